//! Tests of what the users of a server for all users may see and change, and how much they can take.

use super::*;
use protocol::control::{HintUpdate, Target};
use std::collections::BTreeSet;
use std::path::Path;

pub(super) fn grant(max_priority: i64) -> Grant {
    let max_priority = Priority::try_from(max_priority).unwrap();
    Grant { max_priority, administers: false, sets_policies: false, observes: false, ..Grant::all("some") }
}

pub(super) fn person(uid: u32, max_priority: i64) -> Asker {
    Asker { uid, grant: grant(max_priority) }
}

impl Fixture {
    /// Adds a client of a user with a queue of this priority on device 1.
    pub(super) fn enter(&mut self, uid: u32, grant: Grant, priority: i64) -> ClientId {
        let page = Rc::new(FakePage::default());
        self.world.pages.borrow_mut().push(page.clone());
        let pid = Pid(100 + self.clients.len() as u32);
        let newcomer = Newcomer { pid, uid, name: format!("of {uid}"), grant };
        let client = self.core.join(newcomer, PageOfWorld { world: self.world.clone(), page });
        assert_eq!(self.core.apply(client, &created(1, 0, 1, priority)), Ok(None));
        self.clients.push(client);
        client
    }

    fn priority(&self, client: ClientId) -> i32 {
        let all: Vec<_> = self.core.clients(&root()).collect();
        all.iter().find(|one| one.client == client).unwrap().queues[0].status.priority.get()
    }
}

fn said(priority: i64) -> [HintUpdate; 1] {
    [HintUpdate::Priority(Priority::try_from(priority).unwrap())]
}

#[test]
fn priority_never_exceeds_the_limit_of_the_rule() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    let client = fixture.enter(7, grant(5), 200);
    let pid = Target { pid: Some(Pid(100)), queue: None };
    assert_eq!(fixture.priority(client), 5, "of a new queue");
    let set = |priority: i64| ToServer::Priority {
        queue: QueueId(1),
        priority: Priority::try_from(priority).unwrap(),
    };
    fixture.core.apply(client, &set(-3)).unwrap();
    assert_eq!(fixture.priority(client), -3);
    fixture.core.apply(client, &set(100)).unwrap();
    assert_eq!(fixture.priority(client), 5);
    // The limit of the program and that of the person count.
    let mut hint = |asker: &Asker, priority| {
        fixture.core.hint(asker, pid, &said(priority), Time(1)).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(hint(&person(7, 100), 5), Ok(()));
    let refused = hint(&person(7, 100), 6).unwrap_err();
    assert!(refused.contains("priority 6 is above 5") && refused.contains("\"some\""), "{refused}");
    assert!(hint(&person(7, 3), 4).unwrap_err().contains("above 3"));
    assert_eq!(hint(&root(), 200), Ok(()));
    assert_eq!(fixture.priority(client), 200, "an administrator has no limit");
    // What the program says afterwards counts again.
    fixture.core.apply(client, &set(-256)).unwrap();
    assert_eq!(fixture.priority(client), -256);
}

#[test]
fn jobs_do_not_cross_limits_and_sockets() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    let inside = Grant { within: Some(Path::new("/box").into()), ..grant(0) };
    let clients = [
        fixture.enter(7, grant(100), 0),
        fixture.enter(7, grant(0), 0),
        fixture.enter(7, inside, 0),
        fixture.enter(8, grant(100), 0),
        fixture.enter(7, grant(100), 0),
    ];
    let owners: Vec<_> = fixture.core.gangs().iter().map(|gang| gang.owner).collect();
    assert_eq!(owners[0], owners[4]);
    assert_eq!(owners[..4].iter().collect::<BTreeSet<_>>().len(), 4, "{owners:?}");
    fixture.core.set_grant(clients[1], grant(100));
    assert_eq!(fixture.core.gangs()[1].owner, owners[0]);
}

#[test]
fn priority_follows_a_changed_rule() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    let client = fixture.enter(7, grant(5), 50);
    fixture.core.set_grant(client, grant(20));
    assert_eq!(fixture.priority(client), 20, "the program's own priority was above the limit");
    fixture.core.set_grant(client, grant(-1));
    assert_eq!(fixture.priority(client), -1);
    fixture.core.set_grant(client, grant(255));
    assert_eq!(fixture.priority(client), 50);
    // A person has chosen a lower priority, which stays.
    let of = Target { pid: Some(Pid(100)), queue: None };
    fixture.core.hint(&person(7, 255), of, &said(10), Time(1)).unwrap();
    fixture.core.set_grant(client, grant(30));
    assert_eq!(fixture.priority(client), 10);
    fixture.core.set_grant(client, grant(8));
    assert_eq!(fixture.priority(client), 8);
    // What an administrator has chosen stays.
    fixture.core.hint(&root(), of, &said(99), Time(1)).unwrap();
    fixture.core.set_grant(client, grant(7));
    assert_eq!(fixture.priority(client), 99);
}

#[test]
fn a_person_sees_and_changes_the_own_programs_only() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    let own = fixture.enter(7, grant(0), 0);
    let other = fixture.enter(8, grant(10), 10);
    let inside = Grant { within: Some(Path::new("/box").into()), ..grant(0) };
    let boxed = fixture.enter(7, inside.clone(), 0);
    for client in 0..3 {
        fixture.flip(client);
    }
    fixture.step();
    let seen = |asker: &Asker| fixture.core.clients(asker).map(|one| one.client).collect::<Vec<_>>();
    assert_eq!(seen(&person(7, 0)), [own, boxed]);
    assert_eq!(seen(&person(8, 0)), [other]);
    assert_eq!(seen(&person(9, 255)), []);
    assert_eq!(
        seen(&Asker { uid: 7, grant: inside.clone() }),
        [boxed],
        "whoever is inside sees nothing outside"
    );
    assert_eq!(seen(&root()), [own, other, boxed]);
    assert_eq!(fixture.core.devices_for(&person(9, 0)), []);
    assert_eq!(fixture.core.devices_for(&person(7, 0)), [DeviceId(1)]);
    // The rival is not named.
    let waiting = fixture.core.clients(&person(7, 0)).next().unwrap();
    assert!(
        matches!(waiting.permit.reason, Reason::OutrankedByOthers { device: DeviceId(1), .. }),
        "{waiting:?}"
    );
    assert!(waiting.reason.contains("another user") && !waiting.reason.contains("101"), "{}", waiting.reason);
    let waiting = fixture.core.clients(&root()).next().unwrap();
    assert!(matches!(waiting.permit.reason, Reason::Outranked { by, .. } if by.pid == Pid(101)));
    // A program of another user cannot be told from one that does not exist.
    let mut hint = |asker: &Asker, pid: Option<u32>, queue: Option<u64>, said: &[HintUpdate]| {
        let of = Target { pid: pid.map(Pid), queue: queue.map(QueueId) };
        fixture.core.hint(asker, of, said, Time(1)).map_err(|refusal| refusal.to_string())
    };
    let person = person(7, 0);
    assert_eq!(hint(&person, Some(101), None, &said(-1)), Err("process 101 is not connected".to_owned()));
    assert_eq!(hint(&person, Some(999), None, &said(-1)), Err("process 999 is not connected".to_owned()));
    assert_eq!(hint(&person, Some(100), None, &said(-1)), Ok(()));
    let several = hint(&person, None, Some(1), &said(-1)).unwrap_err();
    assert!(
        several.contains("100 of 7") && several.contains("102 of 7") && !several.contains("101"),
        "{several}"
    );
    // What concerns all programs is for administrators.
    let slice = HintUpdate::Timeslice(Timeslice::DEFAULT);
    for (pid, update) in [(None, slice), (Some(100), HintUpdate::Window)] {
        let refused = hint(&person, pid, None, &[update]).unwrap_err();
        assert!(refused.contains("only an administrator"), "{refused}");
        assert_eq!(hint(&root(), pid, None, &[update]), Ok(()));
    }
}

#[test]
fn program_with_a_queue_too_many_runs_unscheduled_and_keeps_nobody_waiting() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    fixture.core.set_limits(Limits { queues_per_user: 2, ..Limits::default() });
    let greedy = fixture.enter(7, grant(255), 200);
    let second = fixture.enter(7, grant(255), 0);
    fixture.enter(8, grant(0), 0);
    for client in 0..3 {
        fixture.flip(client);
    }
    fixture.step();
    let runs = |fixture: &Fixture| [0, 1, 2].map(|client| fixture.page(client).runs());
    assert_eq!(runs(&fixture), [true, false, false]);
    let limit = NoRoom::QueuesOfUser { uid: 7, most: 2 };
    assert_eq!(fixture.core.apply(greedy, &created(2, 1, 1, 200)), Ok(Some(limit)));
    fixture.step();
    assert_eq!(runs(&fixture), [true, true, true], "the client with the queue too many counts as idle");
    let reason = fixture.core.clients(&root()).next().unwrap().permit.reason;
    assert_eq!(reason, Reason::NoRoom);
    // Nothing that concerns the queue is a fault, and its name stays taken.
    let hints = QueueHints { preemptible: false, ..QueueHints::default() };
    for message in [
        ToServer::Priority { queue: QueueId(2), priority: Priority::MAX },
        ToServer::Level { queue: QueueId(2), level: PreemptLevel::Interrupt },
        ToServer::QueueHints { queue: QueueId(2), hints },
    ] {
        assert_eq!(fixture.core.apply(greedy, &message), Ok(None));
    }
    let exists = Err(Fault::Queue(StatusError::QueueExists(QueueId(2))));
    assert_eq!(fixture.core.apply(greedy, &created(2, 2, 1, 0)), exists);
    // When there is room, the queue is admitted with what was said of it.
    fixture.core.leave(second);
    fixture.step();
    assert_eq!([0, 2].map(|client| fixture.page(client).runs()), [true, false]);
    let shown = fixture.core.clients(&root()).next().unwrap();
    let status = shown.queues[1].status;
    assert_eq!(
        (status.queue, status.priority, status.level),
        (QueueId(2), Priority::MAX, PreemptLevel::Interrupt)
    );
    assert_eq!(status.hints, hints);
    // A refused queue that is destroyed keeps its client from nothing any more.
    assert_eq!(fixture.core.apply(greedy, &created(3, 2, 1, 0)), Ok(Some(limit)));
    fixture.step();
    assert!(fixture.page(2).runs());
    assert_eq!(fixture.core.apply(greedy, &ToServer::QueueDestroyed { queue: QueueId(3) }), Ok(None));
    fixture.step();
    assert_eq!([0, 2].map(|client| fixture.page(client).runs()), [true, false]);
    // Other users have room, and so has root.
    let other = fixture.clients[2];
    assert_eq!(fixture.core.apply(other, &created(2, 2, 1, 0)), Ok(None));
    assert!(fixture.core.apply(other, &created(3, 3, 1, 0)).unwrap().is_some());
}

#[test]
fn devices_of_one_program_are_limited() {
    let mut fixture = Fixture::new(Settings::default(), &[&[] as Queues<'_>; 2]);
    let [one, other] = fixture.clients[..] else { unreachable!() };
    let most = Limits::of_one_user().devices_per_process as u32;
    for number in 0..most {
        assert_eq!(fixture.core.apply(one, &created(number.into(), number, number, 0)), Ok(None));
    }
    let limit = NoRoom::DevicesOfProcess(most as usize);
    assert_eq!(fixture.core.apply(one, &created(1000, 1000, 1000, 0)), Ok(Some(limit)));
    assert_eq!(fixture.core.apply(one, &created(1001, 1001, 0, 0)), Ok(None), "a device that it has already");
    assert_eq!(fixture.core.apply(other, &created(1, 1, 1000, 0)), Ok(None));
}

#[test]
fn number_of_refused_queues_is_bounded() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    fixture.core.set_limits(Limits { queues_per_user: 1, ..Limits::default() });
    let client = fixture.enter(7, grant(0), 0);
    for queue in 2..=SLOTS as u64 {
        assert!(fixture.core.apply(client, &created(queue, 1, 1, 0)).unwrap().is_some());
    }
    assert_eq!(fixture.core.apply(client, &created(99_999, 1, 1, 0)), Err(Fault::Slot(1)));
}
