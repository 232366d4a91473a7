//! Faults while queues are off the hardware, under both mechanisms: no hang, no lost or repeated command, nothing left held.
//!
//! In most cases a low program is held at level 3 by an urgent one that has work as long as the case says so
//! (`tests/programs/driver/held.cpp`), and the fault comes while the simulated driver itself says that its queues are off. In others
//! the library holds its own process at random (`XSCHED_TEST=chaos`). A case passes if the programs' memory is what their
//! kernels make of it, if nothing is held longer afterwards than the caller says ([`LONGEST`] for `make kfd-faults`), and if
//! the library's warnings are exactly those that the case expects, once each. A run in which nothing was held fails.
//!
//! [`soak()`] is the same question at length: processes that are held and released for minutes leak nothing.

mod bed;
mod first;
mod hang;
mod random;
mod share;
mod soak;
mod two;

use std::time::Duration;

pub use soak::soak;

use crate::faults::missing;
use crate::faults::stage::{Outcome, Trouble};
use crate::slots;
use bed::MECHANISMS;

/// The longest that a queue may stay held when nobody is waited for any more, on a machine that has time for it.
pub const LONGEST: Duration = Duration::from_secs(1);
/// How often a fault may come at the wrong moment.
const TRIES: usize = 8;

/// A case: plays its fault by this mechanism; no wait may last longer than the given time.
type Case = fn(&'static str, Duration) -> Outcome<String>;

const CASES: &[(&str, Case)] = &[
    ("the program resumes its queues itself", |by, longest| two::case(by, longest, two::resumes)),
    ("queues made and destroyed", |by, longest| two::case(by, longest, two::destroys)),
    ("fork", |by, longest| two::case(by, longest, two::forks)),
    ("ring filled", |by, longest| two::case(by, longest, two::fills_while_held)),
    ("held with a full ring", |by, longest| two::case(by, longest, two::held_when_full)),
    ("program ends", |by, longest| two::case(by, longest, two::exits)),
    ("program SIGKILL", |by, longest| two::case(by, longest, two::low_killed)),
    ("urgent program SIGKILL", |by, longest| two::case(by, longest, two::urgent_killed)),
    ("xserver SIGKILL", |by, longest| two::case(by, longest, two::server_killed)),
    ("xserver SIGSTOP, SIGCONT", |by, longest| two::case(by, longest, two::server_stopped)),
    ("a release that fails", |by, longest| two::case(by, longest, two::release_fails)),
    ("a release that fails, and xserver SIGKILL", |by, longest| {
        two::case(by, longest, two::release_fails_without_server)
    }),
    ("share: the program goes on", |by, longest| two::case_in_share(by, longest, share::goes_on)),
    ("share: queues made and destroyed", |by, longest| two::case_in_share(by, longest, share::makes)),
    ("share: fork", |by, longest| two::case_in_share(by, longest, two::forks)),
    ("share: ring filled", |by, longest| two::case_in_share(by, longest, share::fills)),
    ("share: program ends", |by, longest| two::case_in_share(by, longest, two::exits)),
    ("share: program SIGKILL", |by, longest| two::case_in_share(by, longest, two::low_killed)),
    ("share: urgent program SIGKILL", |by, longest| two::case_in_share(by, longest, two::urgent_killed)),
    ("share: xserver SIGKILL", |by, longest| two::case_in_share(by, longest, two::server_killed)),
    ("share: xserver SIGSTOP, SIGCONT", |by, longest| two::case_in_share(by, longest, two::server_stopped)),
    ("share: it comes and goes", |by, longest| two::case_in_share(by, longest, share::comes_and_goes)),
    ("share: taken away from an idle program", |by, longest| two::case_in_share(by, longest, share::idles)),
    ("share: requests fail once", |by, longest| two::case_in_share(by, longest, share::fails_once)),
    ("share: masks fail for good", |by, longest| two::case_in_share(by, longest, share::fails)),
    ("first: it comes and goes", first::comes_and_goes),
    ("first: queues made and destroyed", first::makes),
    ("first: fork", first::forks),
    ("first: xserver SIGKILL", first::server_killed),
    ("first: requests fail once", first::fails_once),
    ("first: requests fail for good", first::fails),
    ("first: level 1", first::at_level_1),
    ("first: no saved waves", first::without_saved_waves),
    ("a queue that does not come off", hang::case),
    ("ioctls fail once", random::fails_once),
    ("ioctls fail and fail again", random::fails_again),
    ("queues come and go at random holds", random::queues),
];

/// Runs every case whose name holds `part`, so many at a time. Says one line for each, and then the line `N passed, N failed`.
/// Returns true if all passed.
pub fn run(longest: Duration, part: &str, at_once: usize, say: impl Fn(&str) + Sync) -> bool {
    if let Some(missing) = missing() {
        say(&missing);
        say("0 passed, 1 failed");
        return false;
    }
    let all = CASES.iter().flat_map(|&(name, case)| {
        MECHANISMS.map(move |mechanism| (format!("{name}, {mechanism}"), case, mechanism))
    });
    let cases: Vec<_> = all.filter(|(name, ..)| name.contains(part)).collect();
    let results = slots::each(&cases, at_once, |(name, case, mechanism)| {
        let result = attempt(|| case(mechanism, longest));
        match &result {
            Ok(what) => say(&format!("ok      {name}: {what}")),
            Err(why) => say(&format!("FAILED  {name}: {why}")),
        }
        result.is_ok()
    });
    let passed = results.iter().filter(|passed| **passed).count();
    let failed = results.len() - passed;
    say(&format!("{passed} passed, {failed} failed"));
    failed == 0 && passed > 0
}

fn attempt(case: impl Fn() -> Outcome<String>) -> Result<String, String> {
    for _ in 0..TRIES {
        match case() {
            Ok(what) => return Ok(what),
            Err(Trouble::Missed) => {}
            Err(Trouble::Wrong(why)) => return Err(why),
        }
    }
    Err(format!("in {TRIES} tries the fault never came while the program was held"))
}
