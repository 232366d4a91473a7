//! The worker in virtual time: one queue of a program that always has launches pending, on a device that
//! executes kernels in order. The clock of the test's thread advances by what each step takes. Nothing here
//! depends on the machine.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Lateness, Pause, round};
use crate::config::{Config, LaunchConfig, QueueConfig, nanos};
use crate::domain::Domain;
use crate::error::{HwError, HwResult};
use crate::hw::{CostKey, Footprint, HwCommand, HwDevice, HwQueue, Marker, NullObserver};
use crate::ids::DeviceId;
use crate::path::control::{ResumeFlags, SuspendFlags};
use crate::path::launch::Stop;
use crate::path::order::CommandSpec;
use crate::state::pending::Work;
use crate::state::queue::XQueue;
use crate::sync::{Instant, Mutex, Ordering, SIMULATED, now};
use crate::threads::backoff::{SLEEPS, SPIN};

mod suspensions;

const MICRO: Duration = Duration::from_micros(1);
/// The times of a launch, of a marker's record and of its query on the calling thread.
const LAUNCH: Duration = Duration::from_micros(3);
const RECORD: Duration = Duration::from_micros(3);
const QUERY: Duration = Duration::from_nanos(500);
/// The time from a launch to an idle device's start of the kernel, and from a kernel's end to a query that
/// shows it.
const REACH: Duration = Duration::from_micros(5);
/// The device time of a run.
const SPAN: Duration = Duration::from_millis(200);
/// The time from one suspension to the next.
const TURN: Duration = Duration::from_millis(5);
/// The time between two looks of an urgent program.
const LOOK: Duration = Duration::from_micros(7);

struct State {
    end: Instant,
    busy: Duration,
    marks: VecDeque<(u64, Instant)>,
    recorded: u64,
    /// The waits of an urgent program that comes at each look.
    waits: Vec<Duration>,
    looked: Instant,
}

struct Simulated(Mutex<State>);

impl Simulated {
    fn new() -> Self {
        let begun = now();
        Self(Mutex::new(State {
            end: begun,
            busy: Duration::ZERO,
            marks: VecDeque::new(),
            recorded: 0,
            waits: Vec::new(),
            looked: begun,
        }))
    }

    /// Another process has the device for so long, before what runs goes on.
    fn lend(&self, by: Duration) {
        let mut state = self.0.lock();
        state.end += by;
        state.marks.iter_mut().for_each(|(_, end)| *end += by);
    }

    fn advance(&self, by: Duration) {
        let mut state = self.0.lock();
        let to = now() + by;
        while state.looked + LOOK <= to {
            state.looked += LOOK;
            let wait = state.end.saturating_duration_since(state.looked);
            state.waits.push(wait);
        }
        SIMULATED.set(Some(to));
    }
}

impl HwDevice for Simulated {
    fn enter(&self) {}
}

impl HwQueue for Simulated {
    fn record_marker(&self) -> Result<Marker, HwError> {
        self.advance(RECORD);
        let mut state = self.0.lock();
        state.recorded += 1;
        let mark = (state.recorded, state.end);
        state.marks.push_back(mark);
        Ok(Marker(mark.0))
    }
    fn query_marker(&self, mark: Marker) -> Result<bool, HwError> {
        self.advance(QUERY);
        let seen = now();
        Ok(self.0.lock().marks.iter().any(|(id, end)| *id == mark.0 && *end + REACH <= seen))
    }
    fn release_marker(&self, mark: Marker) {
        self.0.lock().marks.retain(|(id, _)| *id != mark.0);
    }
    fn synchronize(&self) -> HwResult {
        Ok(())
    }
}

struct Kernel(Arc<Simulated>, Duration);

impl HwCommand for Kernel {
    fn launch(&mut self, _: &dyn HwQueue) -> HwResult {
        self.0.advance(LAUNCH);
        let mut state = self.0.0.lock();
        state.end = state.end.max(now() + REACH) + self.1;
        state.busy += self.1;
        Ok(())
    }
    fn name(&self) -> &str {
        "kernel"
    }
}

/// The program: the kernels of one batch in microseconds, and the most by which sleeps of the worker are late.
#[derive(Debug, Clone, Copy)]
struct Case {
    kernels: &'static [u64],
    late: u64,
    /// The lateness of every 1000th sleep, in microseconds, if that is more.
    rare: u64,
    /// How much longer the first kernel takes, in microseconds.
    cold: u64,
    /// The time in microseconds for which the queue is suspended every [`TURN`].
    suspended: u64,
    /// The largest percentage by which a kernel takes longer. Each kernel takes a random part of it.
    varies: u64,
    /// The percentage of its former time that a kernel takes after half of the first [`SPAN`].
    then: u64,
}

impl Case {
    fn of(kernels: &'static [u64]) -> Self {
        Self { kernels, late: 0, rare: 0, cold: 0, suspended: 0, varies: 0, then: 100 }
    }
}

/// The share of the time for which the device was busy, and the mean and the 99th percentile of the waits.
#[derive(Debug, Clone, Copy)]
struct Figures {
    busy: f64,
    mean: Duration,
    p99: Duration,
    /// Markers for each command.
    marks: f64,
    /// The share of the time for which the worker did not sleep.
    awake: f64,
    /// The launch-ahead when the first commands have run.
    ahead: Duration,
    /// The longest launch-ahead at any later time.
    most_ahead: Duration,
    /// The longest estimate of the first kernel at any later time.
    most_known: Duration,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { busy, mean, p99, marks, awake, .. } = self;
        write!(
            f,
            "busy {busy:.3}, wait mean {mean:?} p99 {p99:?}, {marks:.2} markers a command, awake {awake:.2}"
        )
    }
}

/// Starts the clock, and makes a queue of a device.
fn begin(launch: LaunchConfig) -> (Domain, Arc<Simulated>, Arc<XQueue>) {
    SIMULATED.set(Some(now()));
    let config = Config { watch: false, ..Config::default() };
    let domain = Domain::new(config, Arc::new(NullObserver));
    let hw = Arc::new(Simulated::new());
    domain.add_device(DeviceId(0), hw.clone());
    let queue = domain
        .create_queue(DeviceId(0), hw.clone(), QueueConfig { launch, ..QueueConfig::default() })
        .expect("the device is known");
    (domain, hw, queue)
}

/// Submits a kernel that takes so long.
fn append(queue: &XQueue, hw: &Arc<Simulated>, key: CostKey, takes: Duration) {
    let kernel: Box<dyn HwCommand> = Box::new(Kernel(hw.clone(), takes));
    let work = Work::Command(kernel.into());
    queue.append(&CommandSpec::new(key), Footprint::default(), work).expect("the queue is open");
}

/// Suspends the queue for so long. The worker sleeps, and only the resumption wakes it.
fn suspend_for(queue: &Arc<XQueue>, hw: &Simulated, span: Duration) {
    queue.suspend(SuspendFlags::NONE);
    hw.advance(span);
    queue.resume(ResumeFlags::NONE);
}

/// Returns the next number of a sequence below 2^31.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Runs kernels for [`SPAN`], after as many that do not count.
fn run(case: Case, launch: LaunchConfig) -> Figures {
    let (_domain, hw, queue) = begin(launch);
    let queues = [queue.clone()];
    let mut late = Lateness::default();
    let (mut step, mut sleep_seed, mut kernel_seed, mut next) = (0, 1, 7, 0);
    // Every other sleep or so is late, by up to the most.
    let mut sleeps = 0_u64;
    let slept = Cell::new(Duration::ZERO);
    let mut sleep = |planned: Duration| {
        sleeps += 1;
        let rare = if sleeps.is_multiple_of(1000) { case.rare } else { 0 };
        let late = (random(&mut sleep_seed) % (case.late + 1)).max(rare);
        let lasted = planned + MICRO * u32::try_from(late).expect("small");
        hw.advance(lasted);
        slept.set(slept.get() + lasted);
        lasted
    };
    let mut warm = None;
    let mut turn = now() + TURN;
    let (mut most_ahead, mut most_known) = (Duration::ZERO, Duration::ZERO);
    loop {
        if warm.is_some() {
            most_ahead = most_ahead.max(queue.hot.flight.launch_ahead());
            let known = queue.device.estimates.get(CostKey(1 + case.kernels[0] % 7));
            most_known =
                most_known.max(known.map_or(Duration::ZERO, |known| Duration::from_nanos(known.nanos)));
        }
        if case.suspended != 0 && now() >= turn {
            suspend_for(&queue, &hw, MICRO * u32::try_from(case.suspended).expect("small"));
            turn = now() + TURN;
        }
        while queue.stats().pending < 64 {
            let place = next % case.kernels.len();
            let micros = case.kernels[place];
            let takes = if next == 0 { micros + case.cold } else { micros };
            // A function has one grid each here; the same one takes one time at one place and another there.
            let varied = Duration::from_nanos(micros * 10 * (random(&mut kernel_seed) % (case.varies + 1)));
            let then = if hw.0.lock().busy > SPAN / 2 { case.then } else { 100 };
            let takes = (MICRO * u32::try_from(takes).expect("small") + varied)
                * u32::try_from(then).expect("small")
                / 100;
            append(&queue, &hw, CostKey(1 + micros % 7), takes);
            next += 1;
        }
        match round(&queues) {
            Stop::Full => match Pause::until_room(&queue, late) {
                Pause::Spin => {
                    hw.advance(SPIN);
                    late.forget();
                }
                Pause::Sleep(planned) => {
                    let lasted = sleep(planned);
                    late.learn(planned, lasted);
                    queue.device.lateness.store(nanos(late.most), Ordering::Relaxed);
                    step = 0;
                }
                Pause::BackOff => {
                    if step == 0 {
                        hw.advance(SPIN);
                    } else {
                        sleep(Duration::from_micros(SLEEPS[(step - 1).min(SLEEPS.len() - 1)]));
                    }
                    step += 1;
                }
            },
            _ => step = 0,
        }
        let (launched, mut state) = (queue.stats().launched, hw.0.lock());
        // What is launched and has not run does not count.
        let ran = state.busy.saturating_sub(state.end.saturating_duration_since(now()));
        match warm {
            None if ran >= SPAN => {
                state.waits.clear();
                slept.set(Duration::ZERO);
                warm = Some((ran, now(), state.recorded, launched, queue.hot.flight.launch_ahead()));
            }
            Some((before_ran, since, recorded, before, ahead)) if ran >= before_ran + SPAN => {
                let took = now().saturating_duration_since(since);
                let mut waits = std::mem::take(&mut state.waits);
                waits.sort();
                let sum: Duration = waits.iter().sum();
                let figures = Figures {
                    busy: (ran - before_ran).as_secs_f64() / took.as_secs_f64(),
                    mean: sum / u32::try_from(waits.len()).expect("few"),
                    p99: waits[waits.len() * 99 / 100],
                    marks: (state.recorded - recorded) as f64 / (launched - before) as f64,
                    awake: 1.0 - slept.get().as_secs_f64() / took.as_secs_f64(),
                    ahead,
                    most_ahead,
                    most_known,
                };
                drop(state);
                // The domain waits at its end for what is pending.
                queue.resume(ResumeFlags::DROP_COMMANDS);
                while round(&queues) != Stop::Empty {}
                SIMULATED.set(None);
                return figures;
            }
            _ => {}
        }
    }
}

/// A batch of a convolutional network: the same functions take other times at other places.
const MIXED: &[u64] =
    &[20, 60, 350, 40, 90, 210, 20, 60, 120, 40, 30, 75, 400, 25, 110, 60, 15, 230, 45, 95, 130, 20, 80, 160];
/// Short kernels and one long one.
const UNEVEN: &[u64] = &[10, 12, 9, 14, 10, 2_000, 10, 8, 11, 13, 9, 10, 12];

const FIXED: [(u32, u32); 7] = [(1, 1), (2, 1), (4, 2), (8, 4), (16, 8), (32, 16), (64, 32)];

/// The adaptive window keeps at least as much of the device's time as every fixed one at which an urgent
/// program waits no longer.
#[test]
fn adaptive_window_is_hardly_below_a_fixed_one_at_equal_wait() {
    const TOLERANCE: f64 = 0.005;
    let programs: [(&str, &[u64]); 7] = [
        ("10", &[10]),
        ("30", &[30]),
        ("100", &[100]),
        ("300", &[300]),
        ("1000", &[1_000]),
        ("mixed", MIXED),
        ("uneven", UNEVEN),
    ];
    let mut below = Vec::new();
    for (name, kernels) in programs {
        for late in [0, 20, 60, 200] {
            let case = Case { late, ..Case::of(kernels) };
            let adaptive = run(case, LaunchConfig::Adaptive);
            println!("{name:>7} late {late:3} adaptive: {adaptive}");
            for (threshold, batch) in FIXED {
                let fixed = run(case, LaunchConfig::Fixed { threshold, batch });
                println!("{name:>7} late {late:3} {threshold:5}/{batch:2}: {fixed}");
                if fixed.mean <= adaptive.mean && fixed.busy > adaptive.busy + TOLERANCE {
                    below.push(format!(
                        "{name} late {late} {threshold}/{batch}: {fixed}; adaptive: {adaptive}"
                    ));
                }
            }
        }
    }
    assert!(below.is_empty(), "{}", below.join("\n"));
}

/// A study costs a marker in front and one behind, which take a part of a short kernel's time.
#[test]
fn confirmed_times_are_rarely_studied_again() {
    let marks = run(Case::of(&[10]), LaunchConfig::Adaptive).marks;
    // One in 40 is for the interval.
    assert!(marks < 0.035, "{marks}");
}

/// A command of which little is known ends when nobody expects it, and a first launch takes long. Both show nothing
/// of the worker's lateness, which the launch-ahead follows.
#[test]
fn launch_ahead_is_short_where_sleeps_end_in_time() {
    for kernels in [&[50][..], &[500], MIXED] {
        let case = Case { cold: 2_000, ..Case::of(kernels) };
        let ahead = run(case, LaunchConfig::Adaptive).ahead;
        assert!(ahead < 100 * MICRO, "{kernels:?}: {ahead:?}");
    }
}

/// Work completes during a suspension. The worker could launch nothing, so it was not late.
#[test]
fn launch_ahead_is_short_where_the_queue_is_suspended_often() {
    for kernels in [&[10][..], &[50], &[100], &[130], &[500], MIXED, UNEVEN] {
        let longest = MICRO * u32::try_from(kernels.iter().copied().max().unwrap_or(0)).expect("small");
        for suspended in [100, 300, 1_000, 3_000] {
            let case = Case { late: 20, suspended, ..Case::of(kernels) };
            let figures = run(case, LaunchConfig::Adaptive);
            let text = format!("{kernels:?}, suspended for {suspended} µs: {figures}");
            println!("{text}");
            assert!(figures.ahead < 100 * MICRO, "{text}: {:?}", figures.ahead);
            assert!(figures.p99 < longest.max(Config::default().budget) + 60 * MICRO, "{text}");
            // What is in flight runs on for a part of the suspension.
            let off = MICRO * u32::try_from(suspended).expect("small");
            let most = TURN.as_secs_f64() / (TURN + off).as_secs_f64();
            assert!(figures.busy > 0.98 * most, "{text}");
        }
    }
}

/// A machine now and then delays a thread for long. That must not make the worker spin until the next time.
#[test]
fn rare_late_sleep_does_not_make_the_worker_spin() {
    for kernels in [&[40][..], &[100], MIXED] {
        let awake = |rare| {
            let figures = run(Case { late: 10, rare, ..Case::of(kernels) }, LaunchConfig::Adaptive);
            println!("{kernels:?} rare {rare}: {figures}");
            assert!(figures.busy > 0.95, "{kernels:?}: {figures}");
            figures.awake
        };
        let [without, with] = [awake(0), awake(500)];
        assert!(with < without + 0.1, "{kernels:?}: {with} of the time awake, without rare delays {without}");
    }
}

/// The worker looks after the foreseen end of the kernel in front where kernels take half the window or more. Samples that begin
/// unwatched must not raise the estimate then.
#[test]
fn estimates_are_close_beside_equal_kernels() {
    for kernels in [&[80][..], &[90], &[100], &[105], &[110], &[115], &[120], &[125], &[130], &[150], &[180]]
    {
        for late in [0, 20, 60] {
            let figures = run(Case { late, ..Case::of(kernels) }, LaunchConfig::Adaptive);
            let Figures { most_known, most_ahead, .. } = figures;
            let text = format!(
                "{kernels:?} late {late}: {figures}, estimated {most_known:?}, launched ahead {most_ahead:?}"
            );
            println!("{text}");
            let takes = (MICRO * u32::try_from(kernels[0]).expect("small")).as_secs_f64();
            assert!((takes..1.06 * takes).contains(&most_known.as_secs_f64()), "{text}");
            assert!(most_ahead < 160 * MICRO && figures.busy > 0.97, "{text}");
        }
    }
}

/// Kernels of a real program never take the same time twice, and the device slows down. An urgent command waits for one of them
/// nevertheless, and not for a second one that was launched because its start was foreseen too early.
#[test]
fn kernels_that_change_have_no_second_one_behind_them() {
    const CHANGES: [(u64, u64); 9] =
        [(0, 100), (3, 100), (10, 100), (30, 100), (0, 103), (0, 105), (0, 108), (0, 120), (5, 120)];
    for kernel in [&[300][..], &[1_000]] {
        for (late, (varies, then)) in
            [0, 20, 60].into_iter().flat_map(|late| CHANGES.map(|change| (late, change)))
        {
            let figures = run(Case { late, varies, then, ..Case::of(kernel) }, LaunchConfig::Adaptive);
            let text = format!("{kernel:?} late {late} varies by {varies} %, then {then} %: {figures}");
            println!("{text}");
            let micros = |micros: u64| MICRO * u32::try_from(micros).expect("small");
            let most = micros(kernel[0] * (100 + varies) * then / 10_000);
            // By its estimate, the least of recent times, an end comes too early. A look at an end is as late as a sleep, and
            // is not worth it for a small part of the kernel's time.
            let longer = most - micros(kernel[0]);
            let looked = 60 * MICRO + micros(late) + micros(kernel[0]) / 16;
            assert!(figures.p99 < most + 3 * longer / 2 + looked, "{text}");
            assert!(figures.busy > 0.995 && figures.awake < 0.2, "{text}");
        }
    }
}

/// A second kernel of more than two fifths of the window does not keep the device busier, unless the worker would have to spin.
#[test]
fn window_admits_one_kernel_where_the_worker_can_sleep_meanwhile() {
    for kernel in [&[90][..], &[100], &[150]] {
        let takes = MICRO * u32::try_from(kernel[0]).expect("small");
        let figures = run(Case::of(kernel), LaunchConfig::Adaptive);
        assert!(figures.p99 < takes + 40 * MICRO && figures.busy > 0.99, "{kernel:?}: {figures}");
    }
    for kernel in [&[60][..], &[90], &[100]] {
        let figures = run(Case { late: 60, ..Case::of(kernel) }, LaunchConfig::Adaptive);
        assert!(figures.awake < 0.2 && figures.busy > 0.99, "{kernel:?}: {figures}");
    }
}
