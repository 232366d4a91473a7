//! The core with clients of which every load and store can be interrupted by a client's own next step.

mod bounds;
mod chosen;

use super::*;
use policies::registry;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::bounds::Priority;
use protocol::ids::{DeviceId, QueueId};
use protocol::page::{WANTS_IDLE, WANTS_READY, activity_word};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const LINGER: Duration = Engine::LINGER;

/// A client's thread between two of its steps: it has written that a queue turned ready or idle, and has not looked at
/// what is wanted yet.
#[derive(Debug, Clone, Copy)]
struct Told {
    ready: bool,
}

/// A client's pages, and the client.
#[derive(Debug, Default)]
struct Board {
    words: [Cell<u64>; 3],
    told: [Cell<Option<Told>>; 3],
    wants: Cell<u32>,
    permission: Cell<u64>,
    completed: Cell<u64>,
    busy_until: Cell<u64>,
    stopped: Cell<bool>,
    wakes: Cell<u32>,
}

impl Board {
    /// The first half of a transition; nothing while the queue's thread is still in the second one.
    fn flip(&self, slot: usize, now: Time) {
        if self.told[slot].get().is_some() {
            return;
        }
        let ready = self.words[slot].get() & 1 == 0;
        let activity =
            if ready { Activity::Ready { since: now } } else { Activity::Idle { since: Some(now) } };
        self.words[slot].set(activity_word(activity));
        self.told[slot].set(Some(Told { ready }));
    }

    /// The second half. Says whether the server is to be woken.
    fn tell(&self, slot: usize) -> bool {
        let wanted = match self.told[slot].take() {
            None => 0,
            Some(Told { ready: true }) => WANTS_READY,
            Some(Told { ready: false }) => WANTS_IDLE,
        };
        self.wants.get() & wanted != 0
    }

    fn runs(&self) -> bool {
        self.permission.get() & 1 != 0
    }
}

/// All clients, and what they do in between.
#[derive(Debug, Default)]
struct World {
    now: Cell<u64>,
    boards: RefCell<Vec<Rc<Board>>>,
    /// The eventfds, taken together.
    woken: Cell<bool>,
    /// One entry is used up at each access of the server's: which client's queue takes its next steps then, and how
    /// many.
    between: RefCell<Vec<(usize, usize, usize)>>,
}

impl World {
    fn act(&self, client: usize, slot: usize) {
        let boards = self.boards.borrow();
        let Some(board) = boards.get(client) else { return };
        if board.told[slot].get().is_some() {
            self.woken.set(self.woken.get() | board.tell(slot));
        } else {
            board.flip(slot, Time(self.now.get()));
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
struct Seen {
    world: Rc<World>,
    board: Rc<Board>,
}

impl Peer for Seen {
    fn activity(&self, slot: u32) -> u64 {
        self.world.interrupt();
        self.board.words[slot as usize].get()
    }

    fn counts(&self, _: u32) -> Counts {
        Counts::default()
    }

    fn completed(&self) -> u64 {
        self.board.completed.get()
    }

    fn busy_until(&self) -> Time {
        Time(self.board.busy_until.get())
    }

    fn preemption(&self) -> Preemption {
        Preemption { holds: 5, ..Preemption::default() }
    }

    fn slow_path(&self, reason: SlowPath) -> u64 {
        if reason == SlowPath::Code { 7 } else { 0 }
    }

    fn is_stopped(&self) -> bool {
        self.board.stopped.get()
    }

    fn set_wants(&self, wants: u32) {
        self.world.interrupt();
        self.board.wants.set(wants);
        self.world.interrupt();
    }

    fn set_permission(&self, word: u64) {
        self.world.interrupt();
        self.board.permission.set(word);
    }

    fn wake(&self) {
        self.board.wakes.set(self.board.wakes.get() + 1);
    }
}

/// A core with some clients.
struct Stage {
    core: Core<Seen>,
    world: Rc<World>,
    clients: Vec<ClientId>,
    wake: Option<Time>,
}

/// (device, priority) of a client's queues, each in the slot of its place.
type Queues<'a> = &'a [(u32, i64)];

impl Stage {
    fn new(settings: Settings, clients: &[Queues<'_>]) -> Self {
        let world = Rc::new(World { now: Cell::new(1_000_000_000), ..World::default() });
        let mut core = Core::new(registry::DEFAULT, settings);
        let mut names = Vec::new();
        for (number, queues) in clients.iter().enumerate() {
            let board = Rc::new(Board::default());
            world.boards.borrow_mut().push(board.clone());
            let client = core.join(
                Pid(100 + number as u32),
                format!("c{number}"),
                Seen { world: world.clone(), board },
            );
            for (place, &(device, priority)) in queues.iter().enumerate() {
                core.apply(client, &created(place as u64 + 1, place as u32, device, priority)).unwrap();
            }
            names.push(client);
        }
        let mut stage = Self { core, world, clients: names, wake: None };
        stage.step();
        stage
    }

    fn board(&self, client: usize) -> Rc<Board> {
        self.world.boards.borrow()[client].clone()
    }

    fn now(&self) -> Time {
        Time(self.world.now.get())
    }

    fn step(&mut self) {
        self.wake = self.core.step(self.now());
    }

    /// A whole transition, and what the server does about it.
    fn flip(&mut self, client: usize) {
        let board = self.board(client);
        board.flip(0, self.now());
        if board.tell(0) {
            self.step();
        }
    }

    /// Lets time pass; the server steps when it wants to and at heartbeats, and `each` is done every millisecond.
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
        self.world.boards.borrow().iter().map(|board| board.runs()).collect()
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

fn two() -> Stage {
    Stage::new(Settings::default(), &[&[(1, 0)], &[(1, 9)]])
}

#[test]
fn a_word_counts_its_writes() {
    let mut stage = two();
    let words = |stage: &Stage| [0, 1].map(|client| stage.board(client).permission.get());
    // Generation, level 1, limit for the one who can be outranked, run.
    assert_eq!(words(&stage), [1 << 32 | 1 << 8 | 3, 1 << 32 | 1 << 8 | 1]);
    stage.step();
    assert_eq!(words(&stage), [1 << 32 | 1 << 8 | 3, 1 << 32 | 1 << 8 | 1]);
    stage.flip(1);
    assert_eq!(words(&stage), [2 << 32 | 1 << 8 | 2, 1 << 32 | 1 << 8 | 1]);
    assert_eq!(stage.board(0).wakes.get(), 2, "its first permission, and this one");
    assert_eq!(stage.board(1).wakes.get(), 1);
}

#[test]
fn the_deepest_level_that_is_asked_for_stands_in_the_word_and_what_is_in_force_in_the_list() {
    let mut stage = two();
    let (low, level) = (stage.clients[0], |level| ToServer::Level { queue: QueueId(1), level });
    let word = |stage: &Stage| stage.board(0).permission.get() >> 8 & 0xff;
    stage.core.apply(low, &level(PreemptLevel::Deactivate)).unwrap();
    stage.step();
    assert_eq!(word(&stage), 2);
    let in_force = |stage: &Stage| {
        let client = stage.core.clients().next().unwrap();
        (client.queues[0].status.level, client.queues[0].in_force, client.preemption)
    };
    assert_eq!(in_force(&stage).1, PreemptLevel::Block, "it has not said that it can");
    let how = "update-queue".to_owned();
    let said = ToServer::Preemption { in_force: PreemptLevel::Interrupt, how: how.clone() };
    stage.core.apply(low, &said).unwrap();
    let want = Preemption { in_force: PreemptLevel::Interrupt, how, holds: 5, ..Preemption::default() };
    assert_eq!(in_force(&stage), (PreemptLevel::Deactivate, PreemptLevel::Interrupt, want));
    stage.core.apply(low, &level(PreemptLevel::Block)).unwrap();
    stage.step();
    assert_eq!((word(&stage), in_force(&stage).1), (1, PreemptLevel::Block));
    let unknown = ToServer::Level { queue: QueueId(9), level: PreemptLevel::Block };
    assert!(matches!(stage.core.apply(low, &unknown), Err(Fault::Queue(_))));
}

#[test]
fn who_is_alone_is_asked_nothing() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, 0)], &[]]);
    assert_eq!(stage.board(0).wants.get(), 0);
    stage.core.apply(stage.clients[1], &created(1, 0, 1, 9)).unwrap();
    stage.step();
    assert_eq!([0, 1].map(|client| stage.board(client).wants.get()), [WANTS_READY; 2]);
    stage.core.leave(stage.clients[1]);
    stage.step();
    assert_eq!(stage.board(0).wants.get(), 0);
}

#[test]
fn a_queue_that_can_raise_its_gang_is_asked_for() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, 3), (1, 9)], &[(1, 5)], &[(2, 0)]]);
    stage.flip(1);
    stage.flip(0);
    assert_eq!(stage.runs(), [false, true, true]);
    assert_ne!(stage.board(0).wants.get() & WANTS_READY, 0, "its other queue is more urgent");
    let board = stage.board(0);
    board.flip(1, stage.now());
    assert!(board.tell(1));
    stage.step();
    assert_eq!(stage.runs(), [true, false, true]);
    assert_eq!(stage.board(0).wants.get() & WANTS_READY, 0, "nothing can raise it further");
}

#[test]
fn times_in_the_future_pass() {
    let mut stage = two();
    stage.flip(0);
    stage.flip(1);
    let board = stage.board(1);
    board.words[0].set(activity_word(Activity::Idle { since: Some(Time(u64::MAX >> 1)) }));
    stage.step();
    assert_eq!(stage.runs(), [false, true]);
    stage.pass(LINGER + Duration::from_millis(2), |_| {});
    assert_eq!(stage.runs(), [true, true]);
}

#[test]
fn the_guard_waits_for_those_who_get_on() {
    let mut stage = two();
    stage.flip(0);
    stage.flip(1);
    stage.pass(Duration::from_secs(1), |stage| {
        stage.board(1).completed.set(stage.now().0);
        assert_eq!(stage.runs(), [false, true]);
    });
    // One long command is no stall, but nobody is believed for ever.
    stage.board(1).busy_until.set(u64::MAX);
    stage.pass(progress::BELIEF - progress::STALL, |stage| assert_eq!(stage.runs(), [false, true]));
    assert_eq!(stage.core.guard_runs(), 0);
    stage.pass(2 * progress::STALL, |_| {});
    assert_eq!(stage.core.guard_runs(), 1);
}

#[test]
fn the_guard_lets_all_run_and_says_so() {
    let mut stage = two();
    stage.flip(0);
    stage.flip(1);
    let together = Cell::new(0);
    stage.pass(Duration::from_millis(400), |stage| {
        if stage.runs() == [true, true] {
            together.set(together.get() + 1);
            let client = stage.core.clients().next().unwrap();
            assert_eq!((client.permit.reason, client.permit.limit), (Reason::Guard, true));
        }
    });
    // About every 145 ms: patience, stall and the sample; then 20 ms.
    assert!((2..=3).contains(&stage.core.guard_runs()), "{}", stage.core.guard_runs());
    assert!((38..=63).contains(&together.get()), "{}", together.get());
    stage.core.set_on(false);
    stage.step();
    assert!(stage.core.clients().all(|client| client.permit.reason == Reason::Off));
}

#[test]
fn the_guard_can_be_switched_off() {
    let mut stage = Stage::new(Settings { guard: false, ..Settings::default() }, &[&[(1, 0)], &[(1, 9)]]);
    stage.flip(0);
    stage.flip(1);
    stage.pass(Duration::from_secs(2), |stage| assert_eq!(stage.runs(), [false, true]));
    assert_eq!(stage.core.guard_runs(), 0);
}

#[test]
fn one_who_gets_on_elsewhere_is_no_excuse() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, 0)], &[(1, 9)], &[(2, 0)], &[(2, 9)]]);
    for client in 0..4 {
        stage.flip(client);
    }
    stage.pass(Duration::from_millis(300), |stage| stage.board(3).completed.set(stage.now().0));
    assert!(stage.core.guard_runs() > 0);
}

#[test]
fn who_never_runs_calls_no_guard() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, -256)], &[(1, 9)]]);
    stage.flip(0);
    stage.flip(1);
    stage.pass(Duration::from_secs(1), |stage| assert_eq!(stage.runs(), [false, true]));
    assert_eq!(stage.core.guard_runs(), 0);
}

#[test]
fn a_stopped_process_yields_until_it_does_something() {
    let mut stage = two();
    stage.flip(0);
    stage.flip(1);
    stage.board(1).stopped.set(true);
    stage.pass(Duration::from_millis(200), |_| {});
    assert_eq!(stage.runs(), [true, true]);
    let yielded = |stage: &Stage| stage.core.clients().map(|client| client.yielded).collect::<Vec<_>>();
    assert_eq!((yielded(&stage), stage.core.guard_runs()), (vec![false, true], 0));
    // Looked up again, it runs.
    stage.board(1).stopped.set(false);
    stage.pass(Duration::from_millis(110), |_| {});
    assert_eq!((stage.runs(), yielded(&stage)), (vec![false, true], vec![false, false]));
    // And what it does counts at once.
    stage.board(1).stopped.set(true);
    stage.pass(Duration::from_millis(200), |_| {});
    assert_eq!(stage.runs(), [true, true]);
    stage.flip(1);
    stage.flip(1);
    assert_eq!((stage.runs(), yielded(&stage)), (vec![false, true], vec![false, false]));
}

/// Which clients' queues are ready, and with what.
fn works_on<'a>(stage: &Stage, client: usize, queues: Queues<'a>) -> Vec<&'a (u32, i64)> {
    let board = stage.board(client);
    queues
        .iter()
        .enumerate()
        .filter(|(slot, queue)| queue.1 != -256 && board.words[*slot].get() & 1 == 1)
        .map(|(_, queue)| queue)
        .collect()
}

/// What holds when nothing is under way.
fn check(stage: &Stage, all: &[Vec<(u32, i64)>]) -> Result<(), TestCaseError> {
    let works: Vec<_> = (0..all.len()).map(|client| works_on(stage, client, &all[client])).collect();
    let rank = |client: usize| works[client].iter().map(|queue| queue.1).max();
    let highest = (0..all.len()).filter_map(rank).max();
    for (client, runs) in stage.runs().into_iter().enumerate() {
        let Some(own) = rank(client) else { continue };
        prop_assert!(runs || Some(own) != highest, "client {} of the highest priority does not run", client);
        let uses = |device| all[client].iter().any(|queue| queue.0 == device && queue.1 != -256);
        let in_the_way = |other: usize| {
            stage.board(other).runs()
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
    /// A queue's thread takes its next step.
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

/// How many steps a client takes between two accesses of the server's.
fn interruptions() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(0usize), 1 => 1usize..5]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Whatever a client does between two accesses of the server's is noticed, without a heartbeat and without
    /// anybody's help.
    #[test]
    fn nothing_is_overlooked(
        all in clients(),
        events in events(),
        between in vec((0usize..4, 0usize..3, interruptions()), 0..200),
    ) {
        let lists: Vec<Queues<'_>> = all.iter().map(Vec::as_slice).collect();
        let mut stage = Stage::new(Settings::default(), &lists);
        // Slots without a queue are the client's own affair.
        let real = |client: usize, slot: usize| all.get(client).is_some_and(|queues| slot < queues.len());
        let between = between.into_iter().map(|(client, slot, steps)| {
            let steps = if real(client, slot) { steps } else { 0 };
            (client, slot, steps)
        });
        *stage.world.between.borrow_mut() = between.collect();
        for event in events {
            match event {
                Do::Act(client, slot) if real(client, slot) => stage.world.act(client, slot),
                Do::Act(..) => {}
                Do::Pass(micros) => stage.world.now.set(stage.now().after(Duration::from_micros(micros)).0),
                Do::Off | Do::On => {
                    stage.core.set_on(matches!(event, Do::On));
                    stage.step();
                    if !stage.core.is_on() {
                        prop_assert!(stage.runs().into_iter().all(|runs| runs));
                    }
                }
            }
            if stage.world.woken.take() || stage.wake.is_some_and(|wake| wake <= stage.now()) {
                stage.step();
            }
        }
        if !stage.core.is_on() {
            stage.core.set_on(true);
            stage.step();
        }
        settle(&mut stage)?;
        check(&stage, &all)?;
        stage.world.between.borrow_mut().clear();
        // When all have finished, all may run: at the next heartbeat at the latest.
        for (client, queues) in all.iter().enumerate() {
            for slot in 0..queues.len() {
                if stage.board(client).words[slot].get() & 1 == 1 {
                    stage.world.act(client, slot);
                }
            }
        }
        settle(&mut stage)?;
        stage.world.now.set(stage.now().after(LINGER).0);
        stage.step();
        for (client, runs) in stage.runs().into_iter().enumerate() {
            let never = !all[client].is_empty() && all[client].iter().all(|queue| queue.1 == -256);
            prop_assert_eq!(runs, !never);
        }
    }
}

/// Lets everybody finish what is under way. The next look at somebody's progress is none of it.
fn settle(stage: &mut Stage) -> Result<(), TestCaseError> {
    for _ in 0..1_000 {
        for (client, board) in stage.world.boards.borrow().iter().enumerate() {
            for slot in 0..board.told.len() {
                if board.told[slot].get().is_some() {
                    stage.world.act(client, slot);
                }
            }
        }
        let soon = stage.now().after(LINGER);
        if stage.world.woken.take() {
            stage.step();
        } else if let Some(wake) = stage.wake.filter(|wake| *wake <= soon) {
            stage.world.now.set(wake.max(stage.now()).0);
            stage.step();
        } else {
            return Ok(());
        }
    }
    Err(TestCaseError::fail("the server finds no rest"))
}
