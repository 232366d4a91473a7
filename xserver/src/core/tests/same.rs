//! A core that keeps what has not changed decides the same as one that reads and works out everything at every step.

use super::*;
use policies::Choice;
use policies::registry::{POLICIES, Row};
use protocol::bounds::Utilization;
use protocol::hint::Laxity;
use protocol::page::AHEAD;
use std::num::NonZeroU64;

/// The clients from the beginning, and the queues of each.
const CLIENTS: usize = 4;
const QUEUES: usize = 3;

#[derive(Debug, Clone)]
enum Event {
    /// A queue turns ready or idle, and notifies the server if it is asked to.
    Flip(usize, usize),
    /// A queue gets brief work, so many microseconds ahead.
    Brief(usize, usize, u64),
    /// A client completes work that it has, so many microseconds of it.
    Complete(usize, u64),
    /// A process is stopped, or continues.
    Stop(usize, bool),
    Priority(usize, usize, i64),
    Level(usize, usize, usize),
    Hints(usize, usize, QueueHints),
    Process(usize, ProcessHints),
    /// A queue is destroyed, or created again on another device.
    Destroy(usize, usize),
    Create(usize, usize, u32),
    Leave(usize),
    /// A policy for all devices, or for one.
    Policy(&'static Row, Option<u32>, f64),
    On(bool),
    /// Microseconds pass. The server steps when due.
    Pass(u64),
    /// A step for another reason.
    Step,
}

fn client() -> impl Strategy<Value = usize> {
    0..CLIENTS
}

fn slot() -> impl Strategy<Value = usize> {
    // Most work is on the first queue, so that the others stay idle.
    prop_oneof![3 => Just(0usize), 1 => 0..QUEUES]
}

fn priority() -> impl Strategy<Value = i64> {
    prop_oneof![1 => Just(-256i64), 8 => -2i64..4]
}

fn hints() -> impl Strategy<Value = QueueHints> {
    (0u64..3_000, 0i64..101, any::<bool>(), priority(), proptest::option::of(0u64..50_000_000)).prop_map(
        |(number, percent, preemptible, priority, arrival)| {
            let [lax, critical] = [priority, 3].map(|number| Priority::try_from(number).unwrap());
            QueueHints {
                utilization: Utilization::try_from(percent).unwrap(),
                deadline_us: NonZeroU64::new(number),
                laxity: (number % 2 == 1).then_some(Laxity { us: number % 1_500, lax, critical }),
                preemptible,
                arrival: arrival.map(|nanos| Time(1_000_000_000 + nanos)),
                ..QueueHints::default()
            }
        },
    )
}

fn process() -> impl Strategy<Value = ProcessHints> {
    (0u64..3, 1i64..101).prop_map(|(job, percent)| ProcessHints {
        job: NonZeroU64::new(job),
        utilization: Utilization::try_from(percent).unwrap(),
        ..ProcessHints::default()
    })
}

fn event() -> impl Strategy<Value = Event> {
    let row = (0..POLICIES.len()).prop_map(|place| &POLICIES[place]);
    prop_oneof![
        12 => (client(), slot()).prop_map(|(client, slot)| Event::Flip(client, slot)),
        2 => (client(), slot(), 0u64..600).prop_map(|(client, slot, us)| Event::Brief(client, slot, us)),
        4 => (client(), 0u64..2_000).prop_map(|(client, us)| Event::Complete(client, us)),
        1 => (client(), any::<bool>()).prop_map(|(client, stops)| Event::Stop(client, stops)),
        1 => (client(), 0..QUEUES, priority()).prop_map(|(client, slot, to)| Event::Priority(client, slot, to)),
        1 => (client(), 0..QUEUES, 0usize..3).prop_map(|(client, slot, level)| Event::Level(client, slot, level)),
        2 => (client(), 0..QUEUES, hints()).prop_map(|(client, slot, hints)| Event::Hints(client, slot, hints)),
        1 => (client(), process()).prop_map(|(client, hints)| Event::Process(client, hints)),
        1 => (client(), 0..QUEUES).prop_map(|(client, slot)| Event::Destroy(client, slot)),
        1 => (client(), 0..QUEUES, 1u32..4).prop_map(|(client, slot, on)| Event::Create(client, slot, on)),
        1 => (2..CLIENTS).prop_map(Event::Leave),
        2 => (row, proptest::option::of(1u32..4), 0.0f64..1.0)
            .prop_map(|(row, device, part)| Event::Policy(row, device, part)),
        1 => any::<bool>().prop_map(Event::On),
        8 => prop_oneof![0u64..300, 0u64..20_000].prop_map(Event::Pass),
        4 => Just(Event::Step),
    ]
}

/// A core, and whether it works everything out again at every step.
struct Player {
    fixture: Fixture,
    forgets: bool,
}

impl Player {
    fn new(row: &'static Row, forgets: bool) -> Self {
        let all: [&[(u32, i64)]; CLIENTS] = [
            &[(1, 0), (2, 0), (1, 0)],
            &[(1, 2), (1, 0), (2, 1)],
            &[(1, 1), (3, 1), (3, 1)],
            &[(2, 0); QUEUES],
        ];
        let settings = Settings { starvation: Some(Duration::from_millis(40)), ..Settings::default() };
        let mut fixture = Fixture::new(settings, &all);
        fixture.core.start_recording();
        fixture.core.set_policy(None, row.into()).unwrap();
        let mut player = Self { fixture, forgets };
        player.step();
        player
    }

    /// Makes a step.
    fn step(&mut self) {
        if self.forgets {
            let core = &mut self.fixture.core;
            for (state, gang) in core.clients.iter_mut().zip(gangs(&mut core.status)) {
                (state.by_event, state.waiting.rests) = (false, false);
                // Equal queues, but nobody can know that.
                gang.queues = Vec::from(std::mem::take(&mut gang.queues)).try_into().unwrap();
            }
        }
        self.fixture.step();
    }

    fn set(&mut self, client: usize, slot: usize, activity: Activity) {
        let page = self.fixture.page(client);
        page.words[slot].set(activity_word(activity));
        page.reported[slot].set(Some(Transition { ready: matches!(activity, Activity::Ready { .. }) }));
        if page.report(slot) {
            self.step();
        }
    }

    fn tell(&mut self, client: usize, message: &ToServer) {
        // What is about a queue that is gone has no effect, in both cores.
        let _ = self.fixture.core.apply(self.fixture.clients[client], message);
        self.step();
    }

    fn play(&mut self, event: &Event) {
        // Time never stands still: a queue that turns ready and idle again has another idle time.
        let now = Time(self.fixture.now().0 + 1);
        self.fixture.world.now.set(now.0);
        let queue = |slot: usize| QueueId(slot as u64 + 1);
        match *event {
            Event::Flip(client, slot) => {
                let ready = self.fixture.page(client).words[slot].get() & 1 == 0;
                let activity = match ready {
                    true => Activity::Ready { since: now },
                    false => Activity::Idle { since: Some(now) },
                };
                self.set(client, slot, activity);
            }
            Event::Brief(client, slot, us) => {
                let since = now.after(Duration::from_micros(us).min(AHEAD));
                if self.fixture.page(client).words[slot].get() & 1 == 0 {
                    self.set(client, slot, Activity::Ready { since });
                }
            }
            Event::Complete(client, us) => {
                let page = self.fixture.page(client);
                let id = self.fixture.clients[client];
                let state = self.fixture.core.clients.iter().find(|state| state.client == id);
                let slots = state.iter().flat_map(|state| &state.slots).map(|slot| slot.index as usize);
                // The device works for queues that are ready only.
                for slot in slots.filter(|slot| page.words[*slot].get() & 1 == 1) {
                    page.completed.set(page.completed.get() + 1);
                    let worked = &page.worked_more_ns[slot];
                    worked.set(worked.get() + us * 1_000);
                }
            }
            Event::Stop(client, stops) => self.fixture.page(client).stopped.set(stops),
            Event::Priority(client, slot, to) => {
                let priority = Priority::try_from(to).unwrap();
                self.tell(client, &ToServer::Priority { queue: queue(slot), priority });
            }
            Event::Level(client, slot, level) => {
                let level = [PreemptLevel::Block, PreemptLevel::Deactivate, PreemptLevel::Interrupt][level];
                self.tell(client, &ToServer::Level { queue: queue(slot), level });
            }
            Event::Hints(client, slot, hints) => {
                self.tell(client, &ToServer::QueueHints { queue: queue(slot), hints });
            }
            Event::Process(client, hints) => self.tell(client, &ToServer::ProcessHints { hints }),
            Event::Destroy(client, slot) => {
                self.tell(client, &ToServer::QueueDestroyed { queue: queue(slot) });
            }
            Event::Create(client, slot, device) => {
                self.tell(client, &created(slot as u64 + 1, slot as u32, device, 1));
            }
            Event::Leave(client) => {
                self.fixture.core.leave(self.fixture.clients[client]);
                self.step();
            }
            Event::Policy(row, device, part) => {
                let mut choice = Choice::new(row);
                for parameter in row.parameters {
                    let (low, high) = parameter.range;
                    let near = parameter.default + (high - low) * part / 1e3;
                    choice.values.set(parameter.name, near.clamp(low, high)).unwrap();
                }
                self.fixture.core.set_policy(device.map(DeviceId), choice).unwrap();
                self.step();
            }
            Event::On(on) => {
                self.fixture.core.set_on(on);
                self.step();
            }
            Event::Pass(us) => {
                let end = now.after(Duration::from_micros(us));
                while let Some(wake) = self.fixture.wake.filter(|wake| *wake <= end) {
                    self.fixture.world.now.set(wake.max(self.fixture.now()).0);
                    self.step();
                }
                self.fixture.world.now.set(end.0);
            }
            Event::Step => self.step(),
        }
    }

    /// All that the core shows, in parts.
    fn shows(&mut self) -> Vec<String> {
        let core = &mut self.fixture.core;
        let records: Vec<_> = core.take_records().collect();
        let clients: Vec<_> = core.clients(&root()).collect();
        let (policies, guard_runs, decisions) = (core.in_force(), core.guard_runs(), core.decisions());
        let pages = self.fixture.world.pages.borrow();
        let pages: Vec<_> =
            pages.iter().map(|page| (&page.event_mask, &page.permission, &page.wakes).to_owned()).collect();
        let wake = self.fixture.wake;
        let rest = format!("{wake:?} {pages:?} {policies:?} {guard_runs} {decisions}");
        let records = records.iter().map(|record| format!("{record:?}"));
        std::iter::once(rest)
            .chain(records)
            .chain(clients.iter().map(|client| format!("{client:?}")))
            .collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn core_decides_as_if_it_kept_nothing(row in 0..POLICIES.len(), events in vec(event(), 1..60)) {
        let [mut one, mut other] = [false, true].map(|forgets| Player::new(&POLICIES[row], forgets));
        for event in &events {
            one.play(event);
            other.play(event);
            let (one, other) = (one.shows(), other.shows());
            prop_assert_eq!(one.len(), other.len(), "{} after {:?}", POLICIES[row].kind, event);
            for (one, other) in one.iter().zip(&other) {
                prop_assert_eq!(one, other, "{} after {:?}", POLICIES[row].kind, event);
            }
        }
    }
}

/// What a queue had done, and the server had not seen when the queue was destroyed, counts for no other queue.
#[test]
fn work_of_a_destroyed_queue_is_not_that_of_another() {
    let flips = [0, 1, 3, 3, 3].map(|client| Event::Flip(client, 0));
    let [mut one, mut other] = [false, true].map(|forgets| Player::new(&POLICIES[3], forgets));
    for event in flips.iter().chain(&[Event::Complete(3, 1), Event::Destroy(3, 0)]) {
        one.play(event);
        other.play(event);
        assert_eq!(one.shows(), other.shows(), "{event:?}");
    }
}
