//! Accounts of hand-made and of random changes.

use super::entry::{ENTRIES, Entries, Entry};
use super::sweep::{Change, Class, What, sweep};
use proptest::prelude::*;

const URGENT: u16 = 0;
const BATCH: u16 = 1;
const CLASSES: [Class; 2] = [Class::Urgent, Class::Batch];

fn at(at: u64, what: What) -> Change {
    Change { at, what }
}

/// Returns the entries that have any time, of the time from 0 to 100. The batch programs run back to back.
fn of(classes: &[Class], mut changes: Vec<Change>) -> Vec<(&'static str, u64)> {
    for (index, _) in (0..).zip(classes).filter(|(_, class)| **class == Class::Batch) {
        changes.extend(Change::interval(0, 100, |open| What::Request(index, open)));
    }
    let entries = sweep(classes, &mut changes, 0, 100);
    assert_eq!(entries.total(), 100);
    let named = ENTRIES.iter().map(|(entry, name, _)| (*name, entries[*entry]));
    named.filter(|(_, ns)| *ns > 0).collect()
}

/// The batch program is suspended with work of its host.
fn suspended() -> Vec<Change> {
    vec![at(0, What::Launched(BATCH, 9)), at(0, What::Permission(BATCH, false))]
}

#[test]
fn running_time_is_of_one_program_or_of_both() {
    let mut changes = Vec::from(Change::interval(10, 60, |open| What::Runs(URGENT, open)));
    changes.extend(Change::interval(40, 100, |open| What::Runs(BATCH, open)));
    // Adjacent intervals count as one.
    changes.extend(Change::interval(0, 5, |open| What::Runs(BATCH, open)));
    changes.extend(Change::interval(5, 10, |open| What::Runs(BATCH, open)));
    assert_eq!(of(&CLASSES, changes), [("urgent", 30), ("others", 50), ("both", 20)]);
}

#[test]
fn time_of_a_program_that_is_not_in_the_run_is_the_others() {
    let changes = Vec::from(Change::interval(0, 30, |open| What::Runs(7, open)));
    assert_eq!(of(&CLASSES, changes), [("others", 30), ("host", 70)]);
}

#[test]
fn switching_is_nobodys_time() {
    let mut changes = suspended();
    changes.extend(Change::interval(0, 20, |open| What::Runs(BATCH, open)));
    changes.extend(Change::interval(20, 100, What::Switching));
    assert_eq!(of(&CLASSES, changes), [("others", 20), ("switching", 80)]);
}

#[test]
fn guard_counts_before_suspensions() {
    let mut changes = suspended();
    changes.extend([at(30, What::Guard(true)), at(70, What::Guard(false))]);
    assert_eq!(of(&CLASSES, changes), [("guard", 40), ("decision", 60)]);
}

#[test]
fn kernel_on_the_hardware_that_does_not_run_is_the_devices_time() {
    let changes = vec![
        at(0, What::Launched(BATCH, 2)),
        at(10, What::Arrived(BATCH, 2)),
        at(30, What::Ended(BATCH, 1)),
        at(60, What::Ended(BATCH, 1)),
    ];
    assert_eq!(of(&CLASSES, changes), [("dispatch", 50), ("window", 10), ("host", 40)]);
}

#[test]
fn suspension_is_gap_then_decision_then_linger_until_the_program_may_resume() {
    let mut changes = suspended();
    changes.extend(Change::interval(0, 40, |open| What::Request(URGENT, open)));
    changes.extend(Change::interval(10, 30, |open| What::Runs(URGENT, open)));
    changes.extend(Change::interval(45, 70, |open| What::Lingers(URGENT, open)));
    changes.extend([at(72, What::Permission(BATCH, true)), at(80, What::Arrived(BATCH, 9))]);
    changes.extend(Change::interval(80, 100, |open| What::Runs(BATCH, open)));
    assert_eq!(
        of(&CLASSES, changes),
        [("urgent", 20), ("others", 20), ("gap", 20), ("linger", 25), ("decision", 7), ("resume", 8)]
    );
}

#[test]
fn evicted_program_resumes_when_its_queue_is_back() {
    let mut changes = vec![
        at(0, What::Launched(BATCH, 2)),
        at(0, What::Arrived(BATCH, 2)),
        at(0, What::Permission(BATCH, false)),
        at(20, What::Permission(BATCH, true)),
    ];
    changes.extend(Change::interval(0, 50, |open| What::Evicted(BATCH, open)));
    // Its kernels are on the hardware again, and it has not begun them.
    changes.extend(Change::interval(55, 100, |open| What::Runs(BATCH, open)));
    assert_eq!(of(&CLASSES, changes), [("others", 45), ("dispatch", 5), ("decision", 20), ("resume", 30)]);
}

#[test]
fn suspended_program_without_work_waits_for_its_own_host() {
    let changes = vec![
        at(0, What::Permission(BATCH, false)),
        at(30, What::Launched(BATCH, 1)),
        at(60, What::Permission(BATCH, true)),
        // A second word is no second permission.
        at(70, What::Permission(BATCH, true)),
        at(80, What::Arrived(BATCH, 1)),
        at(80, What::Ended(BATCH, 1)),
    ];
    assert_eq!(of(&CLASSES, changes), [("decision", 30), ("resume", 20), ("host", 50)]);
}

#[test]
fn program_that_was_never_suspended_resumes_nothing() {
    let changes = vec![at(0, What::Permission(BATCH, true)), at(10, What::Launched(BATCH, 1))];
    assert_eq!(of(&CLASSES, changes), [("window", 90), ("host", 10)]);
}

#[test]
fn urgent_program_alone_has_gaps_or_nothing_under_way() {
    let changes = Vec::from(Change::interval(30, 60, |open| What::Request(0, open)));
    assert_eq!(of(&[Class::Urgent], changes), [("gap", 30), ("none", 70)]);
    assert_eq!(of(&[Class::Batch], vec![]), [("host", 100)]);
    assert_eq!(of(&[], vec![]), [("none", 100)]);
    // A batch program that has not begun.
    let entries = sweep(&[Class::Batch], &mut [], 0, 100);
    assert_eq!(entries[Entry::None], 100);
}

#[test]
fn batch_program_that_may_run_is_no_gap_of_another() {
    let classes = [Class::Urgent, Class::Batch, Class::Batch];
    let mut changes = suspended();
    changes.push(at(0, What::Launched(2, 1)));
    changes.extend(Change::interval(0, 100, |open| What::Request(URGENT, open)));
    assert_eq!(of(&classes, changes.clone()), [("window", 100)]);
    changes.push(at(40, What::Permission(2, false)));
    assert_eq!(of(&classes, changes), [("gap", 60), ("window", 40)]);
}

#[test]
fn changes_before_the_measured_time_count_for_its_begin() {
    let mut changes = suspended();
    changes.extend(Change::interval(10, 90, |open| What::Lingers(URGENT, open)));
    let entries = sweep(&CLASSES, &mut changes, 50, 100);
    assert_eq!((entries[Entry::Linger], entries[Entry::Decision], entries.total()), (40, 10, 50));
    assert_eq!(sweep(&CLASSES, &mut changes, 100, 50), Entries::default());
}

/// A program's number, now and then one that is not in the run.
fn what() -> impl Strategy<Value = What> {
    let (program, count) = (0u16..4, 1u32..5);
    (program, count, any::<bool>(), 0..7).prop_map(|(program, count, set, kind)| match kind {
        0 => What::Launched(program, count),
        1 => What::Arrived(program, count),
        2 => What::Ended(program, count),
        3 | 4 => What::Permission(program, set),
        _ => What::Guard(set),
    })
}

fn interval() -> impl Strategy<Value = [Change; 2]> {
    (0u64..1000, 0u64..300, 0u16..4, 0..5).prop_map(|(from, length, program, kind)| {
        Change::interval(from, from + length, |open| match kind {
            0 => What::Runs(program, open),
            1 => What::Evicted(program, open),
            2 => What::Request(program, open),
            3 => What::Lingers(program, open),
            _ => What::Switching(open),
        })
    })
}

proptest! {
    /// Each nanosecond is in one entry: the accounts of all single nanoseconds are those of the whole.
    #[test]
    fn entries_sum_to_the_measured_time(
        words in prop::collection::vec((0u64..1000, what()), 0..40),
        intervals in prop::collection::vec(interval(), 0..40),
        from in 0u64..1000,
        length in 0u64..200,
    ) {
        let classes = [Class::Urgent, Class::Batch, Class::Batch];
        let mut changes: Vec<Change> = words.into_iter().map(|(moment, what)| at(moment, what)).collect();
        changes.extend(intervals.into_iter().flatten());
        let whole = sweep(&classes, &mut changes, from, from + length);
        prop_assert_eq!(whole.total(), length);
        let mut sum = Entries::default();
        for moment in from..from + length {
            let one = sweep(&classes, &mut changes, moment, moment + 1);
            prop_assert_eq!(ENTRIES.iter().filter(|(entry, ..)| one[*entry] == 1).count(), 1);
            sum += one;
        }
        prop_assert_eq!(sum, whole);
    }

    /// The time in which something runs, counted independently, moment by moment.
    #[test]
    fn busy_time_is_that_in_which_any_program_runs(
        runs in prop::collection::vec((0u64..200, 0u64..50, 0u16..4), 0..20),
        others in prop::collection::vec((0u64..200, what()), 0..20),
    ) {
        let mut changes: Vec<Change> = others.into_iter().map(|(moment, what)| at(moment, what)).collect();
        for &(from, length, program) in &runs {
            changes.extend(Change::interval(from, from + length, |open| What::Runs(program, open)));
        }
        let entries = sweep(&CLASSES, &mut changes, 0, 250);
        let busy = |moment: &u64| runs.iter().any(|(from, length, _)| (*from..from + length).contains(moment));
        prop_assert_eq!(entries.busy(), (0..250).filter(busy).count() as u64);
    }
}
