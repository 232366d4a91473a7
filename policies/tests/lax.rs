//! LAX on hand-made cases.

mod common;

use common::play::{Actor, MS, Setup, Work, play};
use common::{engine, gang, global, local, queue, reasons, running};
use protocol::bounds::Priority;
use protocol::hint::Laxity;
use protocol::policy::PolicyKind;
use protocol::status::{Activity, QueueStatus, Status};
use protocol::time::Time;

fn priority(number: i64) -> Priority {
    Priority::try_from(number).unwrap()
}

/// A queue with a laxity: microseconds, lax priority, critical priority. `ready`: the microsecond since which it
/// is ready.
fn lax(id: u64, ready: Option<u64>, (us, lax, critical): (u64, i64, i64)) -> QueueStatus {
    let mut queue = plain(id, ready, 0);
    queue.hints.laxity = Some(Laxity { us, lax: priority(lax), critical: priority(critical) });
    queue
}

fn plain(id: u64, ready: Option<u64>, number: i64) -> QueueStatus {
    let mut queue = queue(id, 1, number, false);
    if let Some(us) = ready {
        queue.activity = Activity::Ready { since: Time(us * 1_000) };
    }
    queue
}

/// Returns the entities that run at this microsecond, and the microsecond of the wake-up.
fn at(status: &Status, us: u64) -> (String, Option<u64>) {
    let (runs, wake) = running(&mut engine(PolicyKind::Lax, &[]), status, us * 1_000);
    (runs, wake.map(|wake| wake / 1_000))
}

#[test]
fn queue_turns_critical_after_its_laxity() {
    let status = local(vec![lax(1, Some(1_000), (500, -3, 7)), plain(2, Some(0), 0)]);
    assert_eq!(at(&status, 1_000), ("2".into(), Some(1_500)));
    assert_eq!(at(&status, 1_499), ("2".into(), Some(1_500)));
    assert_eq!(at(&status, 1_500), ("1".into(), None));
    assert_eq!(at(&status, 9_000_000), ("1".into(), None));
    let mut engine = engine(PolicyKind::Lax, &[]);
    assert_eq!(reasons(&mut engine, &status, 1_000_000)[0], "queue 2 of pid 4242 has priority 0 > -3");
    assert_eq!(reasons(&mut engine, &status, 1_500_000)[1], "queue 1 of pid 4242 has priority 7 > 0");
}

#[test]
fn priority_follows_the_table() {
    let table: &[(&str, Vec<QueueStatus>, &str, Option<u64>)] = &[
        ("no laxity: the plain priorities", vec![plain(1, Some(0), 1), plain(2, Some(0), 2)], "2", None),
        (
            "a laxity of 0 is used up at once",
            vec![lax(1, Some(1_000), (0, -3, 7)), plain(2, Some(0), 0)],
            "1",
            None,
        ),
        (
            "queues of equal priority run together",
            vec![lax(1, Some(0), (500, -3, 0)), plain(2, Some(0), 0), lax(3, Some(900), (500, 0, 9))],
            "1 2 3",
            Some(1_400),
        ),
        (
            "the wake-up is at the first of several changes",
            vec![lax(1, Some(900), (500, 1, 7)), lax(2, Some(950), (400, 0, 8)), plain(3, Some(0), -1)],
            "1",
            Some(1_350),
        ),
        (
            "equal lax and critical priorities need no wake-up",
            vec![lax(1, Some(900), (500, 4, 4)), plain(2, Some(0), 0)],
            "1",
            None,
        ),
        (
            "an idle queue has its lax priority and needs no wake-up",
            vec![lax(1, None, (500, -1, 9)), plain(2, Some(0), 0)],
            "2",
            None,
        ),
        (
            "an idle queue with a laxity of 0 has its critical priority",
            vec![lax(1, None, (0, -1, 9)), plain(2, Some(0), 0)],
            "1 2",
            None,
        ),
        (
            "the critical priority may be lower",
            vec![lax(1, Some(900), (500, 9, -9)), plain(2, Some(0), 0)],
            "1",
            Some(1_400),
        ),
        ("a lax priority of -256 does not run", vec![lax(1, Some(900), (500, -256, 0))], "", Some(1_400)),
        ("after its laxity the queue runs", vec![lax(1, Some(500), (500, -256, 0))], "1", None),
        (
            "a queue of priority -256 never turns critical",
            vec![
                QueueStatus { priority: Priority::NO_EXECUTE, ..lax(1, Some(0), (500, 0, 9)) },
                plain(2, Some(0), -255),
            ],
            "2",
            None,
        ),
    ];
    for (case, queues, runs, wake) in table {
        assert_eq!(at(&local(queues.clone()), 1_000), ((*runs).into(), *wake), "{case}");
    }
    let status = local(vec![lax(1, Some(900), (500, -256, 0))]);
    assert_eq!(
        reasons(&mut engine(PolicyKind::Lax, &[]), &status, 1_000_000),
        ["its priority is -256 for now"]
    );
}

#[test]
fn process_has_the_highest_of_its_queues_with_work() {
    let status = |first: Option<u64>| {
        let queues = vec![lax(1, first, (500, -3, 7)), plain(2, Some(0), 1), plain(3, None, 100)];
        global(vec![gang(1, queues), gang(2, vec![plain(1, Some(0), 5)])])
    };
    assert_eq!(at(&status(Some(900)), 1_000), ("2".into(), Some(1_400)));
    assert_eq!(at(&status(Some(900)), 1_400), ("1".into(), None));
    assert_eq!(at(&status(None), 1_400), ("2".into(), None));
    // The reason names the queue that is critical, not that of the highest plain priority.
    let mut engine = engine(PolicyKind::Lax, &[]);
    assert_eq!(
        reasons(&mut engine, &status(Some(900)), 1_400_000)[1],
        "queue 1 of pid 1001 has priority 7 > 5"
    );
}

#[test]
fn laxity_restarts_after_idle() {
    let mut urgent = Actor::new(0, Work::Jobs(vec![(0, 4 * MS), (30 * MS, 4 * MS)]));
    urgent.queues[0].hints.laxity = Some(Laxity { us: 10_000, lax: priority(-1), critical: priority(1) });
    let actors = [urgent, Actor::new(0, Work::Always)];
    for local in [false, true] {
        let mut engine = engine(PolicyKind::Lax, &[]);
        let play = play(&mut engine, &actors, Setup { local, ..Setup::until(100 * MS) });
        assert_eq!(play.spans[0], [(10 * MS, 14 * MS), (40 * MS, 44 * MS)]);
    }
}
