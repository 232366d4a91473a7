//! The cost of the paths of an XQueue, in nanoseconds, on a hardware queue whose calls do nothing.
//!
//! Every block times the bare call and the paths one after the other, so that a slower phase of the machine
//! affects all of them. The figures are medians over the blocks, the bare call subtracted. `cargo bench -p
//! xqueue` prints them; `-- --json` prints one JSON object.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use xqueue::{
    CommandSpec, Config, CostKey, DeviceId, Direct, Domain, Footprint, HwCommand, HwDevice, HwError, HwQueue,
    HwResult, LaunchConfig, Marker, NullObserver, OrderClass, Permission, QueueConfig, ResumeFlags,
    SuspendFlags, TestMode, XQueue,
};

struct Null(AtomicU64);

impl HwDevice for Null {
    fn enter(&self) {}
}

impl HwQueue for Null {
    fn record_marker(&self) -> Result<Marker, HwError> {
        Ok(Marker(self.0.fetch_add(1, Ordering::Relaxed)))
    }
    fn query_marker(&self, _: Marker) -> Result<bool, HwError> {
        Ok(true)
    }
    fn release_marker(&self, _: Marker) {}
    fn synchronize(&self) -> HwResult {
        Ok(())
    }
}

struct Kernel([u64; 8]);

impl HwCommand for Kernel {
    fn launch(&mut self, _: &dyn HwQueue) -> HwResult {
        real_call(self.0[0])
    }
    fn footprint(&self) -> Footprint {
        Footprint { arguments: 64, staged: 0 }
    }
    fn name(&self) -> &str {
        "kernel"
    }
}

#[inline(never)]
fn real_call(argument: u64) -> HwResult {
    black_box(argument);
    Ok(())
}

struct Bed {
    _domain: Domain,
    queue: Arc<XQueue>,
}

fn bed(permission: Permission, launch: LaunchConfig, test: TestMode) -> Bed {
    let domain = Domain::new(Config { permission, test, ..Config::default() }, Arc::new(NullObserver));
    domain.add_device(DeviceId(0), Arc::new(Null(AtomicU64::new(0))));
    let config = QueueConfig { class: OrderClass::Blocking, launch, ..QueueConfig::default() };
    // A program has more than one stream.
    for _ in 0..3 {
        domain.create_queue(DeviceId(0), Arc::new(Null(AtomicU64::new(0))), config);
    }
    let queue = domain
        .create_queue(DeviceId(0), Arc::new(Null(AtomicU64::new(0))), config)
        .expect("the device is known");
    Bed { _domain: domain, queue }
}

const CALLS: u64 = 20_000;
const BLOCKS: usize = 40;

fn per_call(body: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    body();
    begun.elapsed().as_nanos() as f64 / CALLS as f64
}

fn direct(queue: &XQueue) {
    let mut refused = 0;
    let spec = CommandSpec::new(CostKey(7));
    for n in 0..CALLS {
        // The watcher may be checking the queue for a moment.
        if queue.try_direct(&spec, || real_call(n)) == Direct::NotNow {
            refused += 1;
            while queue.try_direct(&spec, || real_call(n)) == Direct::NotNow {
                std::thread::yield_now();
            }
        }
    }
    assert!(refused < CALLS / 1000, "the direct path refused {refused} calls");
}

fn cpu_nanos() -> u64 {
    // The time of all threads. It is updated at ticks and switches only, so it is read over whole bursts.
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let own: u64 = stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let me = std::process::id().to_string();
    tasks
        .flatten()
        .filter(|task| task.file_name().to_string_lossy() != me)
        .filter_map(|task| std::fs::read_to_string(task.path().join("schedstat")).ok())
        .filter_map(|stat| stat.split_whitespace().next()?.parse::<u64>().ok())
        .fold(own, |sum, nanos| sum + nanos)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let free = bed(Permission::unlimited(), LaunchConfig::Adaptive, TestMode::Off);
    let adaptive = bed(Permission::limited(), LaunchConfig::Adaptive, TestMode::Off);
    let fixed = bed(Permission::limited(), LaunchConfig::from_settings(Some(16), Some(8)), TestMode::Off);
    let deferred = bed(Permission::unlimited(), LaunchConfig::Adaptive, TestMode::Defer);
    let spec = CommandSpec::new(CostKey(7));
    let mut rows: [Vec<f64>; 8] = Default::default();
    for _ in 0..BLOCKS {
        let bare = per_call(|| {
            for n in 0..CALLS {
                let _ = real_call(n);
            }
        });
        rows[0].push(per_call(|| direct(&free.queue)) - bare);
        rows[1].push(per_call(|| direct(&adaptive.queue)) - bare);
        rows[2].push(per_call(|| direct(&fixed.queue)) - bare);
        // A burst within the bounds, as a program submits it; the drain is not part of the timed submit.
        const BURST: u64 = 2_000;
        let cpu = cpu_nanos();
        let begun = Instant::now();
        for n in 0..BURST {
            deferred.queue.submit(&spec, Box::new(Kernel([n; 8]))).expect("the queue is open");
        }
        rows[3].push(begun.elapsed().as_nanos() as f64 / BURST as f64 - bare);
        deferred.queue.wait_all().expect("a null call succeeds");
        rows[4].push(cpu_nanos().saturating_sub(cpu) as f64 / BURST as f64 - bare);
        deferred.queue.suspend(SuspendFlags::NONE);
        let begun = Instant::now();
        for n in 0..BURST {
            deferred.queue.submit(&spec, Box::new(Kernel([n; 8]))).expect("the queue is open");
        }
        rows[7].push(begun.elapsed().as_nanos() as f64 / BURST as f64 - bare);
        deferred.queue.resume(ResumeFlags::NONE);
        deferred.queue.wait_all().expect("a null call succeeds");
        rows[5].push(
            per_call(|| {
                for n in 0..CALLS {
                    let _ = free.queue.try_direct(&spec, || real_call(n));
                    let proof = free.queue.begin_sync();
                    black_box(free.queue.hw().synchronize()).expect("a null call succeeds");
                    free.queue.synced(proof);
                }
            }) - 2.0 * bare,
        );
        rows[6].push(bare);
    }
    let names = [
        "direct_added_ns",
        "contended_adaptive_added_ns",
        "contended_fixed_added_ns",
        "deferred_added_ns",
        "deferred_cpu_ns",
        "launch_sync_added_ns",
        "bare_ns",
        "deferred_suspended_added_ns",
    ];
    let stats = free.queue.stats();
    assert_eq!(stats.deferred, 0, "the direct figure must be of direct launches");
    assert_eq!(deferred.queue.stats().direct, 0, "the deferred one of deferred ones");
    let figures = names.iter().zip(rows).map(|(name, row)| (name, median(row)));
    if std::env::args().any(|argument| argument == "--json") {
        let fields: Vec<String> = figures.map(|(name, nanos)| format!("\"{name}\": {nanos:.1}")).collect();
        println!("{{{}}}", fields.join(", "));
    } else {
        figures.for_each(|(name, nanos)| println!("{name:>28} {nanos:8.1}"));
    }
}
