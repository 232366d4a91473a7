//! Tests of the core with fake pages. Every load and store of the server can be interrupted by the next step
//! of a client.

mod bounds;
mod brief;
mod chosen;
mod gaps;
mod guard_runs;
mod idle;
mod programs;
mod record;
mod rest;
mod same;
mod shares;
mod totals;
mod users;
mod waiting;

use super::*;
use crate::access::Asker;
use policies::registry;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::control::{Preemption, Queue, QueueState};
use protocol::hint::QueueHints;
use protocol::ids::{DeviceId, QueueId};
use protocol::page::{EVENT_IDLE, EVENT_READY, SLOTS, activity_word};
use protocol::slow::SlowPath;
use protocol::status::{Activity, Counts, StatusError};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const LINGER: Duration = Engine::LINGER;

/// A thread of a client between two steps: it has written that a queue turned ready or idle, but has not read
/// the event mask yet.
#[derive(Debug, Clone, Copy)]
struct Transition {
    ready: bool,
}

/// The fake pages of a client.
#[derive(Debug, Default)]
struct FakePage {
    words: [Cell<u64>; 3],
    reported: [Cell<Option<Transition>>; 3],
    event_mask: Cell<u32>,
    permission: Cell<u64>,
    completed: Cell<u64>,
    taken: Cell<u64>,
    /// What the device has done for each queue.
    worked_ns: Cell<u64>,
    /// The same, for one queue more than for the others.
    worked_more_ns: [Cell<u64>; 3],
    busy_until: Cell<u64>,
    stopped: Cell<bool>,
    wakes: Cell<u32>,
    /// True if its eventfd was written since the last step.
    notified: Cell<bool>,
    /// The number of slots that the server has read.
    reads: Cell<u32>,
}

impl FakePage {
    /// The first half of a transition. Does nothing while the thread of the queue is in the second half.
    fn flip(&self, slot: usize, now: Time) {
        if self.reported[slot].get().is_some() {
            return;
        }
        let ready = self.words[slot].get() & 1 == 0;
        let activity =
            if ready { Activity::Ready { since: now } } else { Activity::Idle { since: Some(now) } };
        self.words[slot].set(activity_word(activity));
        self.reported[slot].set(Some(Transition { ready }));
    }

    /// The second half. Returns true if the server must be woken.
    fn report(&self, slot: usize) -> bool {
        let wanted = match self.reported[slot].take() {
            None => 0,
            Some(Transition { ready: true }) => EVENT_READY,
            Some(Transition { ready: false }) => EVENT_IDLE,
        };
        let notifies = self.event_mask.get() & wanted != 0;
        self.notified.set(self.notified.get() | notifies);
        notifies
    }

    fn runs(&self) -> bool {
        self.permission.get() & 1 != 0
    }
}

/// All clients, and their steps between accesses of the server.
#[derive(Debug, Default)]
struct World {
    now: Cell<u64>,
    pages: RefCell<Vec<Rc<FakePage>>>,
    /// True if an eventfd was written.
    woken: Cell<bool>,
    /// The steps at each access of the server, one entry for each: client, queue, and number of steps.
    between: RefCell<Vec<(usize, usize, usize)>>,
}

impl World {
    fn act(&self, client: usize, slot: usize) {
        let pages = self.pages.borrow();
        let Some(page) = pages.get(client) else { return };
        if page.reported[slot].get().is_some() {
            self.woken.set(self.woken.get() | page.report(slot));
        } else {
            page.flip(slot, Time(self.now.get()));
        }
    }

    fn interrupt(&self) {
        let next = self.between.borrow_mut().pop();
        let (client, slot, steps) = next.unwrap_or_default();
        for _ in 0..steps {
            self.act(client, slot);
        }
    }
}

#[derive(Debug)]
struct PageOfWorld {
    world: Rc<World>,
    page: Rc<FakePage>,
}

impl ClientPage for PageOfWorld {
    fn activity(&self, slot: u32) -> u64 {
        self.world.interrupt();
        self.page.reads.set(self.page.reads.get() + 1);
        self.page.words[slot as usize].get()
    }

    fn counts(&self, _: u32) -> Counts {
        Counts::default()
    }

    fn worked_ns(&self, index: u32) -> u64 {
        let more = self.page.worked_more_ns.get(index as usize).map_or(0, Cell::get);
        self.page.worked_ns.get().saturating_add(more)
    }

    fn completed(&self) -> u64 {
        self.page.completed.get()
    }

    fn taken(&self) -> u64 {
        self.page.taken.get()
    }

    fn busy_until(&self) -> Time {
        Time(self.page.busy_until.get())
    }

    fn preemption(&self) -> Preemption {
        Preemption { holds: 5, ..Preemption::default() }
    }

    fn slow_path(&self, reason: SlowPath) -> u64 {
        if reason == SlowPath::Code { 7 } else { 0 }
    }

    fn takes(&self) -> u32 {
        protocol::page::TAKES_TRACES
    }

    fn is_stopped(&self) -> bool {
        self.page.stopped.get()
    }

    fn set_event_mask(&self, event_mask: u32) {
        self.world.interrupt();
        self.page.event_mask.set(event_mask);
        self.world.interrupt();
    }

    fn set_permission(&self, word: u64) {
        self.world.interrupt();
        self.page.permission.set(word);
    }

    fn wake(&self) {
        self.page.wakes.set(self.page.wakes.get() + 1);
    }
}

/// A core with fake clients.
struct Fixture {
    core: Core<PageOfWorld>,
    world: Rc<World>,
    clients: Vec<ClientId>,
    wake: Option<Time>,
}

/// A process of root, who may do everything.
fn newcomer(pid: u32, name: &str) -> Newcomer {
    Newcomer { pid: Pid(pid), uid: 0, name: name.to_owned(), grant: all() }
}

/// What root may do.
fn all() -> Grant {
    Grant::all("root")
}

/// Root.
fn root() -> Asker {
    Asker { uid: 0, grant: all() }
}

/// (device, priority) of the queues of a client, by slot.
type Queues<'a> = &'a [(u32, i64)];

impl Fixture {
    fn new(settings: Settings, clients: &[Queues<'_>]) -> Self {
        let world = Rc::new(World { now: Cell::new(1_000_000_000), ..World::default() });
        let mut core = Core::new(registry::DEFAULT, settings);
        let mut names = Vec::new();
        for (number, queues) in clients.iter().enumerate() {
            let page = Rc::new(FakePage::default());
            world.pages.borrow_mut().push(page.clone());
            let newcomer = newcomer(100 + number as u32, &format!("c{number}"));
            let client = core.join(newcomer, PageOfWorld { world: world.clone(), page });
            for (index, &(device, priority)) in queues.iter().enumerate() {
                core.apply(client, &created(index as u64 + 1, index as u32, device, priority)).unwrap();
            }
            names.push(client);
        }
        let mut fixture = Self { core, world, clients: names, wake: None };
        fixture.step();
        fixture
    }

    fn page(&self, client: usize) -> Rc<FakePage> {
        self.world.pages.borrow()[client].clone()
    }

    fn now(&self) -> Time {
        Time(self.world.now.get())
    }

    /// Takes the notifications, and makes a step.
    fn step(&mut self) {
        for (page, client) in self.world.pages.borrow().iter().zip(&self.clients) {
            if page.notified.take() {
                self.core.note_event(*client);
            }
        }
        self.wake = self.core.step(self.now());
    }

    /// A whole transition, and the reaction of the server.
    fn flip(&mut self, client: usize) {
        let page = self.page(client);
        page.flip(0, self.now());
        if page.report(0) {
            self.step();
        }
    }

    /// Lets time pass. The server steps when due, and `each` is called every millisecond.
    fn pass(&mut self, span: Duration, each: impl Fn(&Self)) {
        let end = self.now().after(span);
        while self.now() < end {
            let next = self.now().after(Duration::from_millis(1)).min(end);
            let wake = self.wake.filter(|wake| *wake < next);
            self.world.now.set(wake.unwrap_or(next).max(self.now()).0);
            each(self);
            if wake.is_some() {
                self.step();
            }
        }
    }

    fn runs(&self) -> Vec<bool> {
        self.world.pages.borrow().iter().map(|page| page.runs()).collect()
    }
}

fn created(queue: u64, slot: u32, device: u32, priority: i64) -> ToServer {
    ToServer::QueueCreated {
        queue: QueueId(queue),
        slot,
        device: DeviceId(device),
        priority: Priority::try_from(priority).unwrap(),
        level: PreemptLevel::Block,
    }
}

fn two() -> Fixture {
    Fixture::new(Settings::default(), &[&[(1, 0)], &[(1, 9)]])
}

#[test]
fn permission_word_counts_its_writes() {
    let mut fixture = two();
    let words = |fixture: &Fixture| [0, 1].map(|client| fixture.page(client).permission.get());
    // Generation, level 1, limit for the client that can be outranked, run.
    assert_eq!(words(&fixture), [1 << 32 | 1 << 8 | 3, 1 << 32 | 1 << 8 | 1]);
    fixture.step();
    assert_eq!(words(&fixture), [1 << 32 | 1 << 8 | 3, 1 << 32 | 1 << 8 | 1]);
    fixture.flip(1);
    assert_eq!(words(&fixture), [2 << 32 | 1 << 8 | 2, 1 << 32 | 1 << 8 | 1]);
    assert_eq!(fixture.page(0).wakes.get(), 2, "its first permission, and this one");
    assert_eq!(fixture.page(1).wakes.get(), 1);
}

#[test]
fn word_has_the_requested_level_and_list_the_level_in_force() {
    let mut fixture = two();
    let (low, level) = (fixture.clients[0], |level| ToServer::Level { queue: QueueId(1), level });
    let word = |fixture: &Fixture| fixture.page(0).permission.get() >> 8 & 0xff;
    fixture.core.apply(low, &level(PreemptLevel::Deactivate)).unwrap();
    fixture.step();
    assert_eq!(word(&fixture), 2);
    let in_force = |fixture: &Fixture| {
        let client = fixture.core.clients(&root()).next().unwrap();
        (client.queues[0].status.level, client.queues[0].in_force, client.preemption)
    };
    assert_eq!(in_force(&fixture).1, PreemptLevel::Block, "the client has not reported that it can");
    let how = "update-queue".to_owned();
    let said = ToServer::Preemption { in_force: PreemptLevel::Interrupt, how: how.clone() };
    fixture.core.apply(low, &said).unwrap();
    let want = Preemption { in_force: PreemptLevel::Interrupt, how, holds: 5, ..Preemption::default() };
    assert_eq!(in_force(&fixture), (PreemptLevel::Deactivate, PreemptLevel::Interrupt, want));
    fixture.core.apply(low, &level(PreemptLevel::Block)).unwrap();
    fixture.step();
    assert_eq!((word(&fixture), in_force(&fixture).1), (1, PreemptLevel::Block));
    let unknown = ToServer::Level { queue: QueueId(9), level: PreemptLevel::Block };
    assert!(matches!(fixture.core.apply(low, &unknown), Err(Fault::Queue(_))));
}

#[test]
fn single_client_reports_no_events() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0)], &[]]);
    assert_eq!(fixture.page(0).event_mask.get(), MAY_STAY_READY);
    fixture.core.apply(fixture.clients[1], &created(1, 0, 1, 9)).unwrap();
    fixture.step();
    assert_eq!([0, 1].map(|client| fixture.page(client).event_mask.get()), [EVENT_READY; 2]);
    fixture.core.leave(fixture.clients[1]);
    fixture.step();
    assert_eq!(fixture.page(0).event_mask.get(), MAY_STAY_READY);
}

#[test]
fn client_with_a_window_may_stay_ready_while_no_other_has_work() {
    let two = || Fixture::new(Settings::default(), &[&[(1, 0)], &[(1, 9)]]);
    let mut fixture = two();
    fixture.flip(0);
    let event_masks = |fixture: &Fixture| [0, 1].map(|client| fixture.page(client).event_mask.get());
    assert_eq!(event_masks(&fixture), [MAY_STAY_READY, EVENT_READY]);
    fixture.flip(1);
    assert_eq!(event_masks(&fixture)[1], EVENT_IDLE, "the first one waits");
    let mut fixture = two();
    fixture.flip(1);
    assert_eq!(event_masks(&fixture), [EVENT_READY, 0], "it has no window, so its watcher looks rarely");
}

#[test]
fn queue_that_can_raise_its_gang_reports_ready() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 3), (1, 9)], &[(1, 5)], &[(2, 0)]]);
    fixture.flip(1);
    fixture.flip(0);
    assert_eq!(fixture.runs(), [false, true, true]);
    assert_ne!(fixture.page(0).event_mask.get() & EVENT_READY, 0, "its other queue is more urgent");
    let page = fixture.page(0);
    page.flip(1, fixture.now());
    assert!(page.report(1));
    fixture.step();
    assert_eq!(fixture.runs(), [true, false, true]);
    assert_eq!(fixture.page(0).event_mask.get() & EVENT_READY, 0, "nothing can raise it further");
}

#[test]
fn time_in_the_future_is_cut() {
    let mut fixture = two();
    fixture.flip(0);
    fixture.flip(1);
    let page = fixture.page(1);
    page.words[0].set(activity_word(Activity::Idle { since: Some(Time(u64::MAX >> 1)) }));
    fixture.step();
    assert_eq!(fixture.runs(), [false, true]);
    fixture.pass(LINGER + Duration::from_millis(2), |_| {});
    assert_eq!(fixture.runs(), [true, true]);
}

#[test]
fn guard_waits_for_clients_with_progress() {
    let mut fixture = two();
    fixture.flip(0);
    fixture.flip(1);
    fixture.pass(Duration::from_secs(1), |fixture| {
        fixture.page(1).completed.set(fixture.now().0);
        assert_eq!(fixture.runs(), [false, true]);
    });
    // Without markers no command is known to have completed, but its device takes packets.
    fixture.pass(Duration::from_secs(1), |fixture| {
        fixture.page(1).taken.set(fixture.now().0);
        assert_eq!(fixture.runs(), [false, true]);
    });
    // A long command is no stall, but the claim is believed for a limited time.
    fixture.page(1).busy_until.set(u64::MAX);
    fixture.pass(guard::BELIEF - guard::STALL, |fixture| assert_eq!(fixture.runs(), [false, true]));
    assert_eq!(fixture.core.guard_runs(), 0);
    fixture.pass(2 * guard::STALL, |_| {});
    assert_eq!(fixture.core.guard_runs(), 1);
}

/// The ready queues of a client.
fn works_on<'a>(fixture: &Fixture, client: usize, queues: Queues<'a>) -> Vec<&'a (u32, i64)> {
    let page = fixture.page(client);
    queues
        .iter()
        .enumerate()
        .filter(|(slot, queue)| queue.1 != -256 && page.words[*slot].get() & 1 == 1)
        .map(|(_, queue)| queue)
        .collect()
}

/// Checks the permissions when no event is pending.
fn check(fixture: &Fixture, all: &[Vec<(u32, i64)>]) -> Result<(), TestCaseError> {
    let works: Vec<_> = (0..all.len()).map(|client| works_on(fixture, client, &all[client])).collect();
    let rank = |client: usize| works[client].iter().map(|queue| queue.1).max();
    let highest = (0..all.len()).filter_map(rank).max();
    for (client, runs) in fixture.runs().into_iter().enumerate() {
        let Some(own) = rank(client) else { continue };
        prop_assert!(runs || Some(own) != highest, "client {} of the highest priority does not run", client);
        let uses = |device| all[client].iter().any(|queue| queue.0 == device && queue.1 != -256);
        let in_the_way = |other: usize| {
            fixture.page(other).runs()
                && rank(other).is_some_and(|other| other > own)
                && works[other].iter().any(|queue| uses(queue.0))
        };
        let outranked = (0..all.len()).any(in_the_way);
        prop_assert!(runs || outranked, "client {} is suspended for nobody", client);
        prop_assert!(!runs || !outranked, "client {} runs beside one of higher priority", client);
    }
    Ok(())
}

#[derive(Debug, Clone)]
enum Do {
    /// The thread of a queue takes its next step.
    Act(usize, usize),
    /// Microseconds pass.
    Pass(u64),
    Off,
    On,
}

fn events() -> impl Strategy<Value = Vec<Do>> {
    let one = prop_oneof![
        12 => (0usize..4, 0usize..3).prop_map(|(client, slot)| Do::Act(client, slot)),
        4 => (0u64..300).prop_map(Do::Pass),
        1 => Just(Do::Off),
        2 => Just(Do::On),
    ];
    vec(one, 0..60)
}

fn clients() -> impl Strategy<Value = Vec<Vec<(u32, i64)>>> {
    let priority = prop_oneof![1 => Just(-256i64), 8 => 0i64..4];
    vec(vec((1u32..4, priority), 0..4), 1..5)
}

/// The number of steps of a client between two accesses of the server.
fn interruptions() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0usize), 1 => 1usize..5]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// The server notices every event between two of its accesses, without a heartbeat.
    #[test]
    fn every_event_is_noticed(
        all in clients(),
        events in events(),
        between in vec((0usize..4, 0usize..3, interruptions()), 0..200),
    ) {
        let lists: Vec<Queues<'_>> = all.iter().map(Vec::as_slice).collect();
        let mut fixture = Fixture::new(Settings::default(), &lists);
        // Slots without a queue do not count.
        let real = |client: usize, slot: usize| all.get(client).is_some_and(|queues| slot < queues.len());
        let between = between.into_iter().map(|(client, slot, steps)| {
            let steps = if real(client, slot) { steps } else { 0 };
            (client, slot, steps)
        });
        *fixture.world.between.borrow_mut() = between.collect();
        for event in events {
            match event {
                Do::Act(client, slot) if real(client, slot) => fixture.world.act(client, slot),
                Do::Act(..) => {}
                Do::Pass(micros) => fixture.world.now.set(fixture.now().after(Duration::from_micros(micros)).0),
                Do::Off | Do::On => {
                    fixture.core.set_on(matches!(event, Do::On));
                    fixture.step();
                    if !fixture.core.is_on() {
                        prop_assert!(fixture.runs().into_iter().all(|runs| runs));
                    }
                }
            }
            if fixture.world.woken.take() || fixture.wake.is_some_and(|wake| wake <= fixture.now()) {
                fixture.step();
            }
        }
        if !fixture.core.is_on() {
            fixture.core.set_on(true);
            fixture.step();
        }
        settle(&mut fixture)?;
        check(&fixture, &all)?;
        fixture.world.between.borrow_mut().clear();
        // When all queues are idle, all clients may run after the next step.
        for (client, queues) in all.iter().enumerate() {
            for slot in 0..queues.len() {
                if fixture.page(client).words[slot].get() & 1 == 1 {
                    fixture.world.act(client, slot);
                }
            }
        }
        settle(&mut fixture)?;
        fixture.world.now.set(fixture.now().after(LINGER).0);
        fixture.step();
        for (client, runs) in fixture.runs().into_iter().enumerate() {
            let never = !all[client].is_empty() && all[client].iter().all(|queue| queue.1 == -256);
            prop_assert_eq!(runs, !never);
        }
    }
}

/// Lets all threads finish their transitions, and the server its steps. Checks of progress do not count.
fn settle(fixture: &mut Fixture) -> Result<(), TestCaseError> {
    for _ in 0..1_000 {
        for (client, page) in fixture.world.pages.borrow().iter().enumerate() {
            for slot in 0..page.reported.len() {
                if page.reported[slot].get().is_some() {
                    fixture.world.act(client, slot);
                }
            }
        }
        let soon = fixture.now().after(LINGER);
        if fixture.world.woken.take() {
            fixture.step();
        } else if let Some(wake) = fixture.wake.filter(|wake| *wake <= soon) {
            fixture.world.now.set(wake.max(fixture.now()).0);
            fixture.step();
        } else {
            return Ok(());
        }
    }
    Err(TestCaseError::fail("the server does not come to rest"))
}
