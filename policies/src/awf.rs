//! AWF: the active window first.
//!
//! # The rule
//! On each device where a program has work that owns the window in which the user works, only such programs run; where
//! none has, all run beside each other. Priorities do not count, but a queue of priority -256 never runs. Who owns the
//! window is hinted. As long as nobody does, all run.
//!
//! # What is different
//! XSched suspends everybody else on every device. Here a device on which the window's program has no work stays free
//! for the others, because holding them there would not make the window any faster. A program that uses several devices
//! is suspended on all of them if it is in the way on one. The window goes with the process, and is forgotten with it.
//!
//! # The limit
//! Always set, also for the program that owns the window: the window changes at the user's whim, and the new one shall
//! not wait for deep work of the old.
//!
//! # Parameters, wake-ups
//! None. The others starve as long as the window's program has work, unless `XSCHED_STARVATION_MS` is set.

use crate::policy::{Input, Policy, Standing};
use protocol::operation::Merit;
use protocol::time::Time;

/// The active window first; see the head of this file. It remembers nothing.
#[derive(Debug, Default)]
pub struct Awf;

impl Policy for Awf {
    fn rank(&mut self, input: Input<'_>, standings: &mut [Standing]) -> Option<Time> {
        for (place, unit) in input.members() {
            let window = unit.process.window;
            standings[place] = Standing::new(i64::from(window), Merit::Window(window));
        }
        None
    }
}
