//! Every interleaving of scheduling as a whole (stateright): a server that decides by real policies, two
//! clients that share a device, changes of policies and hints while they run, and faults.
//!
//! # What is modelled
//! * The threads of a client. The program submits at any time, directly or deferred, under the submit lock or
//!   the pending lock of its queue. The worker launches what is pending. The watcher proves that the queue is
//!   idle. The listener waits on the futex. The agent checks the lease. Each step makes one access to shared
//!   memory, so a thread may act on a value that is out of date.
//! * The decision round of the server. It reads the queues, except idle ones whose clients notify it when they
//!   turn ready and have not done so, decides, writes the event masks and reads again
//!   each queue whose mask has grown, looks up stopped processes, stores the permissions, wakes the clients,
//!   and at a heartbeat renews the leases. It handles one client after the other. The decisions come from
//!   `policies::Engine`, the event masks from `xserver::core::event_mask`. The policy is a parameter: HPF,
//!   LAX, a policy that takes turns ([`turns`]), and for a few ticks every policy of the build. [`decider`]
//!   keeps the memory of the policy.
//! * Setting changes at any time ([`decider::SettingChange`]). A user sets the policy of all devices or of
//!   one, and removes the latter. A client changes the hints for its queues.
//! * The device. It executes one command at a time, of any queue that has one in flight, and takes a tick for
//!   each. A client with a queue on a second device has the same work on both.
//! * Faults at any step ([`world::Faults`]). The server falls silent. A process dies, or is stopped and
//!   perhaps continued. A wake-up of a client comes up to two ticks late. A notification to the server is
//!   lost.
//!
//! A tick is the interval between two heartbeats. Within a tick actions happen in any order and number. There
//! are two assumptions about fairness. A running thread that has something to do does it before the tick
//! ends, unless a fault delays it. Each program submits a bounded number of commands, so the urgent client
//! becomes idle in the end.
//!
//! # What is proved
//! The *urgent* client is the one that outranks the other. The properties have their names in [`model`]:
//! * Each command is launched once and in order, and none is lost.
//! * At most one launch begins after a suspension is stored, and at most a window is in flight.
//! * While the urgent client has work, the device executes at most a window of commands of the other one, and
//!   for one heartbeat more if a notification is lost. This holds from the change on that makes the client
//!   urgent.
//! * A client with work that no rule keeps waiting completes a command within a bounded number of ticks, and
//!   no run postpones a tick for ever.
//! * A client that a silent server suspends runs at the latest when its lease ends, even if the server died
//!   after it stored a permission and before it woke the client.
//!
//! Other properties show that each bound is reached. The mutations ([`world::Mutation`]) show that a broken
//! rule is found.
//!
//! # What is not modelled, and where it is proved
//! * The locks and atomic words of one queue under a weak memory model, several submitting threads, in-order
//!   launches, dropped commands, destroyed queues: `xqueue/src/tests.rs`, with loom on the real code. Here
//!   memory is sequentially consistent, as it is for the shared pages.
//! * Servers that hang and go on or are started again, and new handshakes: `lease.rs`. Here a client that has
//!   left the server does not connect again, and it may never see the end of its connection.
//! * The handshake about readiness without a heartbeat, the linger, and several queues of a client with
//!   different work: `handshake.rs`. Here an idle queue counts as idle at once.
//! * The progress guard, and clients that write false values: `src/core/tests.rs`.
//! * Preemption levels 2 and 3. Here a command in flight is never taken off the device.

mod client;
mod cycles;
mod decider;
mod model;
#[path = "../rules/mod.rs"]
mod rules;
mod server;
mod turns;
mod world;

use cycles::has_cycle_without_tick;
use decider::{Decider, SettingChange};
use model::{INVERSION, LATE_LAUNCH, LAUNCHED_ONCE, NONE_LOST, ORDER, ORPHANED, RULES, WAITING, WINDOW};
use policies::registry::{self, Row};
use protocol::bounds::Priority;
use protocol::hint::{Laxity, QueueHints};
use protocol::page::HEARTBEAT;
use protocol::policy::PolicyKind;
use stateright::{Checker, HasDiscoveries, Model};
use world::{Bounds, Faults, Mutation, ScheduleModel};

/// Two clients under a policy. The second one is urgent if the priorities differ.
fn two_clients(
    row: &'static Row,
    priorities: [i64; 2],
    commands: [u8; 2],
    faults: Faults,
    bounds: Bounds,
) -> ScheduleModel {
    ScheduleModel {
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
    registry::find(PolicyKind::Hpf).expect("HPF is in every build")
}

fn lax() -> &'static Row {
    registry::find(PolicyKind::Lax).expect("LAX is in every build")
}

/// Hints by which LAX gives a queue its critical priority as soon as it is ready.
fn critical_hints() -> QueueHints {
    let [lax, critical] = [-5, 9].map(|number| Priority::try_from(number).expect("the priority is in range"));
    QueueHints { laxity: Some(Laxity { us: 0, lax, critical }), ..QueueHints::default() }
}

/// A client of low priority and an urgent one under HPF.
fn urgent_client(commands: [u8; 2], faults: Faults, bounds: Bounds) -> ScheduleModel {
    two_clients(hpf(), [0, 9], commands, faults, bounds)
}

/// Two equal clients that take turns. `turn`: the length of a turn in ticks.
fn equal_clients(commands: [u8; 2], turn: u32, faults: Faults, waiting: u8) -> ScheduleModel {
    let model = two_clients(&turns::TURNS, [0; 2], commands, faults, Bounds { inversion: 0, waiting });
    ScheduleModel { decider: Decider::new(&turns::TURNS, [0; 2], turns::TURN / turn, 0), ..model }
}

/// Two clients under one policy. Later a user sets another one.
fn policy_change(
    from: &'static Row,
    to: &'static Row,
    commands: [u8; 2],
    faults: Faults,
    bounds: Bounds,
) -> ScheduleModel {
    let model = two_clients(from, [0, 9], commands, faults, bounds);
    let mut decider = Decider::new(from, [0, 9], turns::TURN, 0);
    decider.setting_changes = vec![SettingChange::Policy(None, to)];
    let urgent = [from, to].map(|row| row.goes_by_priority.then_some(1));
    ScheduleModel { decider, urgent: urgent.into(), ..model }
}

/// Two clients that take turns. Later a user sets HPF for the device that they share, and then removes it.
/// The client that HPF makes urgent has a queue on a second device too, where the policy does not change.
fn device_policy_change(commands: [u8; 2], faults: Faults, bounds: Bounds) -> ScheduleModel {
    let mut model = policy_change(&turns::TURNS, hpf(), commands, faults, bounds);
    model.decider.setting_changes = vec![SettingChange::Policy(Some(1), hpf()), SettingChange::Reset(1)];
    model.decider.devices = [&[1], &[1, 2]];
    model.urgent.push(None);
    model
}

/// Two clients under HPF. Later a user sets a policy that takes turns for a second device, where only the
/// urgent client has a queue. The client stays urgent on the device that both share.
fn other_device_policy_change(commands: [u8; 2], faults: Faults, bounds: Bounds) -> ScheduleModel {
    let mut model = urgent_client(commands, faults, bounds);
    model.decider.setting_changes = vec![SettingChange::Policy(Some(2), &turns::TURNS)];
    model.decider.devices = [&[1], &[1, 2]];
    model.urgent.push(Some(1));
    model
}

/// Two clients under LAX, both of which may run. Later the hints of the second one make it urgent.
fn hint_change(commands: [u8; 2], faults: Faults, bounds: Bounds) -> ScheduleModel {
    let mut decider = Decider::new(lax(), [0; 2], HEARTBEAT, 0);
    decider.setting_changes = vec![SettingChange::Hints(1, critical_hints())];
    ScheduleModel {
        decider,
        urgent: vec![None, Some(1)],
        ..two_clients(lax(), [0; 2], commands, faults, bounds)
    }
}

/// Checks all properties of a model.
fn check(model: ScheduleModel) {
    let checker = model.checker().spawn_bfs().join();
    let memories = checker.model().decider.memories();
    println!("{} states, {memories} memories of the policy", checker.unique_state_count());
    checker.assert_properties();
}

/// Returns the number of steps of a run in which a property fails, if there is one.
fn steps_to_failure(model: ScheduleModel, property: &'static str) -> Option<usize> {
    let wanted = HasDiscoveries::AnyOf([property].into());
    let checker = model.checker().finish_when(wanted).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.discovery(property).map(|path| path.into_actions().len())
}

/// No faults.
const NONE: Faults = Faults { silence: false, dies: [false; 2], stops: [false; 2], delays: false };
/// The bounds without faults and with a window of 1. The urgent client waits for the one command in flight. A
/// client with work waits for one command of the other one and for its own.
const PROMPT: Bounds = Bounds { inversion: 1, waiting: 2 };
/// The bounds with late events: one more tick each, because the server decides at the next heartbeat even if
/// no event wakes it.
const LATE: Bounds = Bounds { inversion: 2, waiting: 3 };

#[test]
fn properties_hold_without_faults() {
    check(urgent_client([3, 2], NONE, PROMPT));
    let wide =
        ScheduleModel { window: 2, ..urgent_client([4, 1], NONE, Bounds { inversion: 2, waiting: 3 }) };
    check(wide);
    // HPF does not depend on ages, so the properties hold with them too.
    let with_ages = Decider::new(hpf(), [0, 9], HEARTBEAT, 12);
    check(ScheduleModel { decider: with_ages, ticks: Some(12), ..urgent_client([2, 1], NONE, PROMPT) });
    check(equal_clients([2, 1], 1, NONE, 3));
}

#[test]
fn properties_hold_with_late_and_lost_wake_ups() {
    let faults = Faults { delays: true, ..NONE };
    check(urgent_client([3, 1], faults, LATE));
    check(equal_clients([2, 1], 2, faults, 4));
}

/// Shows that a client can wait too long if its turns end before its wake-ups come. Turns of twice that
/// length suffice, as the test above shows.
#[test]
fn turn_shorter_than_wake_up_passes_unused() {
    let faults = Faults { delays: true, ..NONE };
    let steps = steps_to_failure(equal_clients([2, 1], 1, faults, 4), WAITING);
    println!("{} steps", steps.expect("a client waits longer than the bound"));
}

#[test]
fn properties_hold_with_a_silent_server() {
    let faults = Faults { silence: true, ..NONE };
    // Once the clients have left the server, none is suspended, and the device takes its queues in any order. The urgent client
    // may then wait for the three commands of the other one and for its own.
    check(urgent_client([3, 1], faults, Bounds { waiting: 4, ..PROMPT }));
    check(equal_clients([2, 1], 1, faults, 3));
}

#[test]
fn properties_hold_with_clients_that_die() {
    check(urgent_client([2, 2], Faults { dies: [true; 2], ..NONE }, PROMPT));
}

#[test]
fn properties_hold_with_clients_that_stop_and_continue() {
    // The server notices a stopped process after two ticks, and a continued one after one tick.
    check(urgent_client([2, 1], Faults { stops: [true; 2], ..NONE }, LATE));
}

#[test]
fn properties_hold_while_policies_change() {
    let bounds = Bounds { inversion: 1, waiting: 3 };
    check(policy_change(&turns::TURNS, hpf(), [2, 1], NONE, bounds));
    check(policy_change(hpf(), &turns::TURNS, [2, 1], NONE, bounds));
}

#[test]
fn properties_hold_while_device_policies_change() {
    check(device_policy_change([1, 1], NONE, PROMPT));
    check(other_device_policy_change([2, 1], NONE, PROMPT));
}

#[test]
fn properties_hold_while_hints_change() {
    // Before the change the device takes the queues in any order.
    check(hint_change([2, 1], NONE, Bounds { waiting: 3, ..PROMPT }));
    check(hint_change([2, 1], Faults { delays: true, ..NONE }, LATE));
}

#[test]
fn properties_hold_with_all_faults_in_one_run() {
    // The delays of the faults add up.
    let faults = Faults { silence: true, dies: [true; 2], stops: [false, true], delays: true };
    check(urgent_client([2, 1], faults, Bounds { waiting: 8, ..LATE }));
}

/// Checks with two equal clients what does not depend on ranks. The memory of a policy may grow without
/// bound, so the number of ticks is bounded.
#[test]
fn properties_hold_under_every_policy() {
    const TICKS: u8 = 5;
    for row in registry::POLICIES {
        // A policy that may leave the device idle has no bound here: a wait may last the whole run.
        let waiting = if row.conserves_work { 3 } else { TICKS };
        let model = two_clients(row, [0; 2], [2, 1], NONE, Bounds { inversion: 0, waiting });
        let decider = Decider::new(row, [0; 2], HEARTBEAT, TICKS);
        let checker = ScheduleModel { decider, ticks: Some(TICKS), ..model }.checker().spawn_bfs().join();
        let memories = checker.model().decider.memories();
        println!("{}: {} states, {memories} memories", row.kind, checker.unique_state_count());
        for rule in RULES {
            assert!(checker.discovery(rule).is_none(), "{}: {rule}", row.kind);
        }
    }
}

#[test]
fn tick_is_postponed_for_ever_only_with_a_mutation() {
    let faults = Faults { silence: true, dies: [true; 2], stops: [false, true], delays: true };
    assert!(!has_cycle_without_tick(&urgent_client([1, 1], faults, LATE)));
    assert!(!has_cycle_without_tick(&urgent_client([2, 2], NONE, PROMPT)));
    let mutation = Some(Mutation::LevelTriggered);
    assert!(has_cycle_without_tick(&ScheduleModel { mutation, ..urgent_client([1, 1], NONE, PROMPT) }));
}

/// Checks that a permission may be stored too early. It is in force only for a moment, because the second
/// read leads to another decision. In the real order the previous permission, which is out of date as well,
/// is in force until then.
#[test]
fn properties_hold_with_permissions_stored_before_the_second_read() {
    let mutation = Some(Mutation::StoresBeforeMasks);
    check(ScheduleModel { mutation, ..urgent_client([3, 2], NONE, PROMPT) });
}

/// Without its mutation, each model is part of one that the tests above check with the same bounds.
#[test]
fn mutation_makes_its_property_fail() {
    let lost = Faults { delays: true, ..NONE };
    let dies = Faults { dies: [false, true], ..NONE };
    let stops = Faults { stops: [false, true], ..NONE };
    let silence = Faults { silence: true, ..NONE };
    for (mutation, commands, faults, bounds, property) in [
        (Mutation::NoSecondRead, [3, 2], NONE, PROMPT, INVERSION),
        (Mutation::NoSecondDecision, [3, 2], NONE, PROMPT, INVERSION),
        (Mutation::IgnoresNotifier, [2, 1], NONE, PROMPT, INVERSION),
        (Mutation::TakesNotificationsLate, [2, 1], NONE, PROMPT, INVERSION),
        (Mutation::WakesBeforeStoring, [2, 1], NONE, PROMPT, WAITING),
        (Mutation::HeartbeatOnlyRenews, [3, 1], lost, LATE, INVERSION),
        (Mutation::KeepsDeadClients, [2, 1], dies, PROMPT, WAITING),
        (Mutation::IgnoresStoppedProcesses, [2, 1], stops, LATE, WAITING),
        (Mutation::AgentIgnoresLease, [2, 1], silence, Bounds { waiting: 4, ..PROMPT }, ORPHANED),
        (Mutation::PopsWithoutSubmitLock, [2, 1], NONE, PROMPT, ORDER),
        (Mutation::DropsCommand, [2, 1], NONE, PROMPT, NONE_LOST),
        (Mutation::LaunchesWithoutPop, [2, 1], NONE, PROMPT, LAUNCHED_ONCE),
        (Mutation::ReadsPermissionOnce, [3, 1], NONE, Bounds { inversion: 2, waiting: 3 }, LATE_LAUNCH),
        (Mutation::IgnoresWindow, [2, 1], NONE, PROMPT, WINDOW),
    ] {
        let window = if mutation == Mutation::ReadsPermissionOnce { 2 } else { 1 };
        let model =
            ScheduleModel { mutation: Some(mutation), window, ..urgent_client(commands, faults, bounds) };
        let steps = steps_to_failure(model, property)
            .unwrap_or_else(|| panic!("{mutation:?} does not make {property:?} fail"));
        println!("{mutation:?}: {property:?} fails after {steps} steps");
    }
}

#[test]
fn mutation_of_setting_changes_makes_its_property_fail() {
    let bounds = Bounds { inversion: 1, waiting: 3 };
    for (mutation, model) in [
        (Mutation::NoDecisionAfterChange, hint_change([2, 1], NONE, bounds)),
        (Mutation::NoDecisionAfterChange, policy_change(&turns::TURNS, hpf(), [2, 1], NONE, bounds)),
        (Mutation::DevicePolicyOnAll, other_device_policy_change([2, 1], NONE, PROMPT)),
    ] {
        let mut model = ScheduleModel { mutation: Some(mutation), ..model };
        model.decider.device_policy_on_all = mutation == Mutation::DevicePolicyOnAll;
        let steps = steps_to_failure(model, INVERSION)
            .unwrap_or_else(|| panic!("{mutation:?} does not make {INVERSION:?} fail"));
        println!("{mutation:?}: {INVERSION:?} fails after {steps} steps");
    }
}
