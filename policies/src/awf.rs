//! AWF: the active window first.
//!
//! # The rule
//! A hint tells which program owns the window in which the user works. On each device where such a program
//! has work only such programs run; on the others all run beside each other. Without a hint all run.
//! Priorities do not count, but a queue of priority -256 never runs.
//!
//! # What is different
//! XSched suspends all others on every device. Here a device on which the window's program has no work stays
//! free for the others, because suspending them there would not make the window any faster. A program on
//! several devices is suspended on all of them if it is in the way on one. The window belongs to the process
//! and is forgotten with it.
//!
//! # The limit
//! Set where others use the device, also for the program that owns the window: the user may change the window at any
//! time, and the new one must not wait for deep work of the old one.
//!
//! # Parameters, wake-ups
//! None. The others starve as long as the window's program has work, unless `XSCHED_STARVATION_MS` is set.

use crate::policy::{Input, Policy, Ranking};
use crate::reason::{ReasonKind, first};
use protocol::time::Time;

/// True if the process owns the window that the user works in.
pub(crate) const WINDOW: &ReasonKind = &ReasonKind::new("Window", |its| {
    let owns = if first(its) == 1 { "owns" } else { "does not own" };
    format!("{owns} the active window")
});

/// The active window first; see the head of this file. It keeps no state.
#[derive(Debug, Default)]
pub struct Awf;

impl Policy for Awf {
    fn rank(&mut self, input: Input<'_>, rankings: &mut [Ranking]) -> Option<Time> {
        for (index, entity) in input.members() {
            let window = entity.process.window;
            rankings[index] = Ranking::new(i64::from(window), WINDOW.flag(window));
        }
        None
    }
}
