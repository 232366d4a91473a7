//! Scheduling as a whole, every interleaving of it (stateright): a server that decides by real policies, two
//! clients that share a device, what is said of them while they run, and what may go wrong between them.
//!
//! # What is modelled
//! * The clients' threads: a program that submits at any time, directly or deferred, under the two locks of a
//!   queue; the worker; the watcher that proves idleness; the listener on the futex; the agent with its
//!   lease. Each makes one access to shared memory in a step, so that what it has read may be out of date
//!   when it acts on it.
//! * The server's round: look at one queue after the other, decide, write what is wanted of one client after
//!   the other and look again, look up who is stopped, store one permission after the other, wake one client
//!   after the other, renew the leases. What it decides and wants comes from `policies::Engine` and
//!   `xserver::core::event_mask`; which policy decides is a parameter ([`decider`] keeps its memory): HPF,
//!   one that takes turns ([`turns`]), and for a few ticks all of the build.
//! * What is said at any time ([`decider::HintUpdate`]): a person chooses policies for all devices or for one of
//!   two, and takes the latter back; a client hints of its queue.
//! * The device: it runs one command at a time, of any queue that has one in flight, and takes a tick for
//!   each. A client with a queue on another device as well has the same work on both.
//! * Failures ([`world::Faults`]), at any step: the server falls silent, a process dies, a process is stopped
//!   and goes on or not, wake-ups are late (the client's by up to two ticks) or lost (the server's).
//!
//! A tick is a heartbeat. Within a tick steps happen in any order and number, and whoever has something to do
//! does it before the tick ends, if it runs: that is the only fairness that is assumed, besides that programs
//! submit a bounded number of commands, so that a more urgent one is idle in the end.
//!
//! # What is proved
//! The names stand in [`model`]: commands are launched once, in order, and none disappears; after a
//! suspension was stored one launch at most begins, and no more than a window is in flight; the device serves
//! a less urgent queue for no more than a window of commands while the critical one has work, and a heartbeat
//! longer if a wake-up is lost, from the moment on that something is said which makes it critical; who has
//! work that no rule holds back completes something within a bounded number of ticks, and ticks come; who is
//! held by a silent server runs within its lease, also if it died between storing a permission and waking
//! those who sleep. Every bound is shown to be reached, and every rule, broken ([`world::Mutation`]), to be
//! noticed.
//!
//! # What is not modelled, and where that is proved
//! * The locks and atomic words of one queue under a weak memory model, several submitting threads, turns,
//!   dropping, destroying: `xqueue/src/model.rs`, with loom on the real code. Here memory is sequentially
//!   consistent, as the pages are used.
//! * Servers that hang and go on, or are started again, and new handshakes: `lease.rs`. Here the agent that
//!   follows nobody stays so, and the end of a connection may never be heard.
//! * The handshake about readiness without a heartbeat, the linger, several queues and devices of a client:
//!   `handshake.rs`. Here a queue that is idle counts as idle at once.
//! * What the guard does when nothing completes, and that a client's words may be lies: `src/core/tests.rs`.
//! * Levels 2 and 3: what is in flight is not taken off the device.

mod client;
mod decider;
mod endless;
mod model;
#[path = "../rules/mod.rs"]
mod rules;
mod server;
mod turns;
mod world;

use decider::{Decider, HintUpdate};
use endless::has_endless_tick;
use model::{BEHIND, LATE_LAUNCH, LOST, ORDER, ORPHANED, RULES, TWICE, WAITS, WINDOW};
use policies::registry::{self, Row};
use protocol::bounds::Priority;
use protocol::hint::{Laxity, QueueHints};
use protocol::page::HEARTBEAT;
use protocol::policy::PolicyKind;
use stateright::{Checker, HasDiscoveries, Model};
use world::{Bounds, Faults, Mutation, Scene};

/// Two programs under this policy.
fn scene(
    row: &'static Row,
    priorities: [i64; 2],
    commands: [u8; 2],
    faults: Faults,
    bounds: Bounds,
) -> Scene {
    Scene {
        decider: Decider::new(row, priorities, HEARTBEAT, 0),
        urgent: vec![(priorities[0] != priorities[1]).then_some(1)],
        commands,
        window: 1,
        ticks: None,
        faults,
        bounds,
        mutation: None,
    }
}

fn hpf() -> &'static Row {
    registry::find(PolicyKind::Hpf).expect("it is built")
}

fn lax() -> &'static Row {
    registry::find(PolicyKind::Lax).expect("it is built")
}

/// A hint for LAX.
fn critical() -> QueueHints {
    let [lax, critical] = [-5, 9].map(|number| Priority::try_from(number).expect("a priority"));
    QueueHints { laxity: Some(Laxity { us: 0, lax, critical }), ..QueueHints::default() }
}

/// A less urgent program and a critical one under HPF.
fn urgent(commands: [u8; 2], faults: Faults, bounds: Bounds) -> Scene {
    scene(hpf(), [0, 9], commands, faults, bounds)
}

/// Two programs that take turns of so many ticks.
fn equal(commands: [u8; 2], turn: u32, faults: Faults, waits: u8) -> Scene {
    let scene = scene(&turns::TURNS, [0; 2], commands, faults, Bounds { behind: 0, waits });
    Scene { decider: Decider::new(&turns::TURNS, [0; 2], turns::TURN / turn, 0), ..scene }
}

/// Two programs under a policy, until a person lets another one decide.
fn chosen(from: &'static Row, to: &'static Row, commands: [u8; 2], faults: Faults, bounds: Bounds) -> Scene {
    let scene = scene(from, [0, 9], commands, faults, bounds);
    let mut decider = Decider::new(from, [0, 9], turns::TURN, 0);
    decider.says = vec![HintUpdate::Policy(None, to)];
    let urgent = [from, to].map(|row| row.goes_by_priority.then_some(1));
    Scene { decider, urgent: urgent.into(), ..scene }
}

/// Two programs that take turns, until a person lets the priority decide on the device that they share, for a
/// while. The critical one is on another as well, where turns are taken always.
fn chosen_of_device(commands: [u8; 2], faults: Faults, bounds: Bounds) -> Scene {
    let mut scene = chosen(&turns::TURNS, hpf(), commands, faults, bounds);
    scene.decider.says = vec![HintUpdate::Policy(Some(1), hpf()), HintUpdate::Reset(1)];
    scene.decider.devices = [&[1], &[1, 2]];
    scene.urgent.push(None);
    scene
}

/// The priority decides. Where only the critical one is, a person lets turns be taken, which changes nothing.
fn turns_elsewhere(commands: [u8; 2], faults: Faults, bounds: Bounds) -> Scene {
    let mut scene = urgent(commands, faults, bounds);
    scene.decider.says = vec![HintUpdate::Policy(Some(2), &turns::TURNS)];
    scene.decider.devices = [&[1], &[1, 2]];
    scene.urgent.push(Some(1));
    scene
}

/// Two programs that do not disturb each other, until one says that it is critical.
fn hinted(commands: [u8; 2], faults: Faults, bounds: Bounds) -> Scene {
    let mut decider = Decider::new(lax(), [0; 2], HEARTBEAT, 0);
    decider.says = vec![HintUpdate::Hints(1, critical())];
    Scene { decider, urgent: vec![None, Some(1)], ..scene(lax(), [0; 2], commands, faults, bounds) }
}

fn check(scene: Scene) {
    let checker = scene.checker().spawn_bfs().join();
    let memories = checker.model().decider.memories();
    println!("{} states, {memories} of the policy", checker.unique_state_count());
    checker.assert_properties();
}

/// After how many steps a property fails, if it does.
fn finds(scene: Scene, property: &'static str) -> Option<usize> {
    let wanted = HasDiscoveries::AnyOf([property].into());
    let checker = scene.checker().finish_when(wanted).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.discovery(property).map(|path| path.into_actions().len())
}

/// Nothing goes wrong.
const NONE: Faults = Faults { silence: false, dies: [false; 2], stops: [false; 2], delays: false };
/// What holds then with a window of 1: the critical one waits for the one command in flight; whoever has work
/// waits for that of the other, and for its own.
const PROMPT: Bounds = Bounds { behind: 1, waits: 2 };
/// One more tick each: that until the next heartbeat, at which the server looks without being woken.
const LATE: Bounds = Bounds { behind: 2, waits: 3 };

#[test]
fn all_is_well_while_nothing_fails() {
    check(urgent([3, 2], NONE, PROMPT));
    let wide = Scene { window: 2, ..urgent([4, 1], NONE, Bounds { behind: 2, waits: 3 }) };
    check(wide);
    // To HPF it makes no difference how long ago something was.
    let remembers = Decider::new(hpf(), [0, 9], HEARTBEAT, 12);
    check(Scene { decider: remembers, ticks: Some(12), ..urgent([2, 1], NONE, PROMPT) });
    check(equal([2, 1], 1, NONE, 3));
}

#[test]
fn wake_ups_may_be_late_or_lost() {
    let faults = Faults { delays: true, ..NONE };
    check(urgent([3, 1], faults, LATE));
    check(equal([2, 1], 2, faults, 4));
}

#[test]
fn a_turn_passes_unused_if_its_wake_up_comes_later() {
    // Turns twice as long are enough: see above.
    let faults = Faults { delays: true, ..NONE };
    let found = finds(equal([2, 1], 1, faults, 4), WAITS);
    println!("{} steps", found.expect("a client that is never awake in its turn"));
}

#[test]
fn the_server_may_fall_silent() {
    let faults = Faults { silence: true, ..NONE };
    // Afterwards nobody is held, and the device serves whom it likes: all of the other's commands, and the
    // own one.
    check(urgent([3, 1], faults, Bounds { waits: 4, ..PROMPT }));
    check(equal([2, 1], 1, faults, 3));
}

#[test]
fn clients_may_die() {
    check(urgent([2, 2], Faults { dies: [true; 2], ..NONE }, PROMPT));
}

#[test]
fn clients_may_be_stopped_and_go_on() {
    // A stop is noticed after two ticks, and its end after one.
    check(urgent([2, 1], Faults { stops: [true; 2], ..NONE }, LATE));
}

#[test]
fn policies_may_be_chosen_while_programs_run() {
    let bounds = Bounds { behind: 1, waits: 3 };
    check(chosen(&turns::TURNS, hpf(), [2, 1], NONE, bounds));
    check(chosen(hpf(), &turns::TURNS, [2, 1], NONE, bounds));
}

#[test]
fn devices_may_have_policies_of_their_own() {
    check(chosen_of_device([1, 1], NONE, PROMPT));
    check(turns_elsewhere([2, 1], NONE, PROMPT));
}

#[test]
fn programs_may_hint_while_they_run() {
    // Before the hint the device serves whom it likes.
    check(hinted([2, 1], NONE, Bounds { waits: 3, ..PROMPT }));
    check(hinted([2, 1], Faults { delays: true, ..NONE }, LATE));
}

#[test]
fn all_may_happen_in_one_run() {
    // Each costs its own time, one after the other.
    let faults = Faults { silence: true, dies: [true; 2], stops: [false, true], delays: true };
    check(urgent([2, 1], faults, Bounds { waits: 8, ..LATE }));
}

/// What does not depend on who is ranked how, for every policy of the build: two equal programs. A policy may
/// remember what it likes for as long as it is looked at.
#[test]
fn no_policy_breaks_a_rule() {
    const TICKS: u8 = 5;
    for row in registry::POLICIES {
        // Under one that may leave the device idle nothing is bounded here.
        let waits = if row.conserves_work { 3 } else { TICKS };
        let scene = scene(row, [0; 2], [2, 1], NONE, Bounds { behind: 0, waits });
        let decider = Decider::new(row, [0; 2], HEARTBEAT, TICKS);
        let checker = Scene { decider, ticks: Some(TICKS), ..scene }.checker().spawn_bfs().join();
        let memories = checker.model().decider.memories();
        println!("{}: {} states, {memories} of the policy", row.kind, checker.unique_state_count());
        for rule in RULES {
            assert!(checker.discovery(rule).is_none(), "{}: {rule}", row.kind);
        }
    }
}

#[test]
fn time_goes_on() {
    let faults = Faults { silence: true, dies: [true; 2], stops: [false, true], delays: true };
    assert!(!has_endless_tick(&urgent([1, 1], faults, LATE)));
    assert!(!has_endless_tick(&urgent([2, 2], NONE, PROMPT)));
    let spins = Scene { mutation: Some(Mutation::LevelTriggered), ..urgent([1, 1], NONE, PROMPT) };
    assert!(has_endless_tick(&spins));
}

/// A permission that is stored too early is in force for a moment: the second look leads to another one, and
/// until then what was decided before holds as well in the right order.
#[test]
fn permissions_may_be_stored_before_the_second_look() {
    check(Scene { mutation: Some(Mutation::PermitsFirst), ..urgent([3, 2], NONE, PROMPT) });
}

/// Unbroken, each of these is a part of what the tests above show to hold, with the same bounds.
#[test]
fn every_broken_rule_is_found() {
    let lost = Faults { delays: true, ..NONE };
    let dies = Faults { dies: [false, true], ..NONE };
    let stops = Faults { stops: [false, true], ..NONE };
    let silence = Faults { silence: true, ..NONE };
    for (mutation, commands, faults, bounds, property) in [
        (Mutation::NoSecondLook, [3, 2], NONE, PROMPT, BEHIND),
        (Mutation::NoSecondDecision, [3, 2], NONE, PROMPT, BEHIND),
        (Mutation::WakesFirst, [2, 1], NONE, PROMPT, WAITS),
        (Mutation::Deaf, [3, 1], lost, LATE, BEHIND),
        (Mutation::Keeps, [2, 1], dies, PROMPT, WAITS),
        (Mutation::NeverLooksUp, [2, 1], stops, LATE, WAITS),
        (Mutation::NoLease, [2, 1], silence, Bounds { waits: 3, ..PROMPT }, ORPHANED),
        (Mutation::PopsOutside, [2, 1], NONE, PROMPT, ORDER),
        (Mutation::Forgets, [2, 1], NONE, PROMPT, LOST),
        (Mutation::Repeats, [2, 1], NONE, PROMPT, TWICE),
        (Mutation::LooksOnce, [3, 1], NONE, Bounds { behind: 2, waits: 3 }, LATE_LAUNCH),
        (Mutation::NoWindow, [2, 1], NONE, PROMPT, WINDOW),
    ] {
        let window = if mutation == Mutation::LooksOnce { 2 } else { 1 };
        let broken = Scene { mutation: Some(mutation), window, ..urgent(commands, faults, bounds) };
        let steps = finds(broken, property).unwrap_or_else(|| panic!("{mutation:?}"));
        println!("{mutation:?}: {property:?} fails after {steps} steps");
    }
}

/// The same of what is said.
#[test]
fn every_broken_rule_of_what_is_said_is_found() {
    let bounds = Bounds { behind: 1, waits: 3 };
    for (mutation, scene) in [
        (Mutation::OnlyNotes, hinted([2, 1], NONE, bounds)),
        (Mutation::OnlyNotes, chosen(&turns::TURNS, hpf(), [2, 1], NONE, bounds)),
        (Mutation::OneForAll, turns_elsewhere([2, 1], NONE, PROMPT)),
    ] {
        let mut broken = Scene { mutation: Some(mutation), ..scene };
        broken.decider.one_for_all = mutation == Mutation::OneForAll;
        let steps = finds(broken, BEHIND).unwrap_or_else(|| panic!("{mutation:?}"));
        println!("{mutation:?}: {BEHIND:?} fails after {steps} steps");
    }
}
