//! How long a decision takes beside idle queues of other clients: `cargo bench -p xserver --bench idle_queues`, for all
//! policies or for those named after `--`.
//!
//! A decision is one [`Core::step`]: an urgent client has turned ready, and at the end another one's permission is stored.
//! Both have a queue each. Other clients have many queues, all idle. At a heartbeat the server reads those as well, which is
//! measured by itself. The limit is for the median of a decision beside all queues that a server has room for: 100 µs. The
//! last line says whether the worst policy meets it. Under `cargo test` it runs a few rounds only.

use policies::registry::{self, Row};
use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use protocol::control::Preemption;
use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
use protocol::message::ToServer;
use protocol::page::{HEARTBEAT, activity_word};
use protocol::policy::PolicyKind;
use protocol::slow::SlowPath;
use protocol::status::{Activity, Counts};
use protocol::time::Time;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xserver::access::Grant;
use xserver::core::{ClientPage, Core, Newcomer, Settings};

/// The clients with idle queues only, and the queues of each.
const OTHERS: [(usize, usize); 5] = [(0, 0), (4, 250), (32, 250), (240, 254), (15, 4_064)];
/// The median that is wanted, in microseconds.
const LIMIT: f64 = 100.0;
/// The devices of all clients.
const DEVICES: u64 = 8;
/// The time from one decision that is measured to the next.
const ROUND: Duration = Duration::from_millis(5);

/// A queue on a page: a cache line, as in the shared memory.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    activity: AtomicU64,
    worked_ns: AtomicU64,
}

/// The pages of a client, in the memory of this process.
#[derive(Debug, Default)]
struct Page {
    slots: Vec<Slot>,
    event_mask: AtomicU32,
    permission: AtomicU64,
    completed: AtomicU64,
}

#[derive(Debug)]
struct Pages(Rc<Page>);

impl Page {
    fn new(queues: usize) -> Rc<Self> {
        Rc::new(Self { slots: (0..queues).map(|_| Slot::default()).collect(), ..Self::default() })
    }

    fn set(&self, slot: usize, activity: Activity) {
        self.slots[slot].activity.store(activity_word(activity), Ordering::SeqCst);
    }

    fn runs(&self) -> bool {
        self.permission.load(Ordering::SeqCst) & 1 != 0
    }
}

impl ClientPage for Pages {
    fn activity(&self, slot: u32) -> u64 {
        self.0.slots[slot as usize].activity.load(Ordering::SeqCst)
    }

    fn counts(&self, _: u32) -> Counts {
        Counts::default()
    }

    fn worked_ns(&self, slot: u32) -> u64 {
        self.0.slots[slot as usize].worked_ns.load(Ordering::Relaxed)
    }

    fn completed(&self) -> u64 {
        self.0.completed.load(Ordering::Relaxed)
    }

    fn taken(&self) -> u64 {
        0
    }

    fn busy_until(&self) -> Time {
        Time(0)
    }

    fn preemption(&self) -> Preemption {
        Preemption::default()
    }

    fn slow_path(&self, _: SlowPath) -> u64 {
        0
    }

    fn takes(&self) -> u32 {
        u32::MAX
    }

    fn is_stopped(&self) -> bool {
        false
    }

    fn set_event_mask(&self, mask: u32) {
        self.0.event_mask.store(mask, Ordering::SeqCst);
    }

    fn set_permission(&self, word: u64) {
        self.0.permission.store(word, Ordering::SeqCst);
    }

    fn wake(&self) {}
}

/// Connects a client with so many queues, on devices from this one on.
fn join(core: &mut Core<Pages>, queues: usize, priority: i64, device: u64) -> (ClientId, Rc<Page>) {
    let page = Page::new(queues);
    let newcomer = Newcomer { pid: Pid(1), uid: 0, name: "client".into(), grant: Grant::all("all") };
    let client = core.join(newcomer, Pages(page.clone()));
    for number in 0..queues as u64 {
        let created = ToServer::QueueCreated {
            queue: QueueId(number + 1),
            slot: number as u32,
            device: DeviceId(((device + number) % DEVICES) as u32),
            priority: Priority::try_from(priority).expect("in range"),
            level: PreemptLevel::Block,
        };
        assert_eq!(core.apply(client, &created), Ok(None), "there is room");
    }
    (client, page)
}

/// Prints the times, and returns the median of a decision in microseconds.
fn measure(row: &'static Row, (clients, queues): (usize, usize), rounds: u64) -> f64 {
    let mut core = Core::new(row, Settings::default());
    let begin = Time(1_000_000_000);
    let (_, low) = join(&mut core, 1, 0, 0);
    let (urgent, high) = join(&mut core, 1, 10, 0);
    for number in 0..clients {
        let (_, page) = join(&mut core, queues, 5, number as u64);
        (0..queues).for_each(|slot| page.set(slot, Activity::Idle { since: Some(Time(slot as u64 + 1)) }));
    }
    low.set(0, Activity::Ready { since: begin });
    core.step(begin);
    let (mut decisions, mut beats, mut beat) = (Vec::new(), Vec::new(), begin.after(HEARTBEAT));
    for round in 1..=rounds {
        let now = begin.after(ROUND * round as u32);
        high.set(0, Activity::Ready { since: now });
        core.note_event(urgent);
        let start = Instant::now();
        core.step(now);
        decisions.push(start.elapsed());
        // Only this policy lets it run at once in every case.
        assert!(row.kind != PolicyKind::Hpf || high.runs() && !low.runs());
        let end = now.after(ROUND / 5);
        high.set(0, Activity::Idle { since: Some(end) });
        core.note_event(urgent);
        let (mut at, next) = (end, now.after(ROUND));
        while let Some(wake) = core.step(at).filter(|wake| *wake < next) {
            at = wake.max(at);
        }
        if next >= beat {
            let start = Instant::now();
            core.step(beat);
            beats.push(start.elapsed());
            beat = beat.after(HEARTBEAT);
        }
    }
    let kind = row.kind;
    println!("{kind}, {} idle queues of {clients} clients", clients * queues);
    let median = say("decision", &mut decisions);
    say("heartbeat", &mut beats);
    median
}

fn say(what: &str, times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    let at = |part: usize| times[times.len() * part / 1_000].as_nanos() as f64 / 1e3;
    println!("  {what}: p50 {:.1} µs, p99 {:.1} µs", at(500), at(990));
    at(500)
}

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let rounds = if words.iter().any(|word| word == "--bench") { 2_000 } else { 40 };
    words.retain(|word| !word.starts_with('-'));
    let wanted = |row: &&Row| words.is_empty() || words.iter().any(|name| *name == row.kind.to_string());
    let mut worst = (0.0, String::new());
    for row in registry::POLICIES.iter().filter(wanted) {
        for others in OTHERS {
            let median = measure(row, others, rounds);
            if median > worst.0 {
                worst = (median, row.kind.to_string());
            }
        }
    }
    let word = if worst.0 <= LIMIT { "met" } else { "MISSED" };
    println!("the longest median <= {LIMIT} µs: {:.1} ({}), {word}", worst.0, worst.1);
}
