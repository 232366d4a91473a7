//! Measures the time until a device that was idle for more than 100 ms sees the next dispatch.

use super::flag::Flag;
use super::measure::{IDLE_AFTER, samples};
use crate::clock::{microseconds as us, now_ns};
use crate::hsa::BarrierQueue;
use crate::kernels::Opened as Bench;
use crate::stats::Samples;
use anyhow::{Context, Result, bail};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
/// The number of tries for each try through HIP.
const LAUNCH_EVERY: usize = 4;

/// The times of dispatches after idleness, and times to compare them with.
#[derive(Debug, Clone)]
pub(super) struct WakeTime {
    /// Idle device: from before the packet was valid until the device took it up, by its stamp. This is the
    /// device's own part.
    pub(super) taken_us: Samples,
    /// Idle device: until the host sees the packet's completion signal lowered; the host has to get its
    /// processor back.
    pub(super) cold_us: Samples,
    /// Idle device: until the store to the doorbell returned; it blocks where it has to wake the supervisor.
    pub(super) store_us: Samples,
    /// As `cold_us`, for a device that has just finished other work.
    pub(super) warm_us: Samples,
    /// Idle device: from HIP's launch call until the host sees the kernel's store. It includes HIP's own path
    /// to the doorbell, whose code and data have left the caches.
    pub(super) launch_cold_us: Samples,
    /// As `launch_cold_us`, with a device and code that have just been used.
    pub(super) launch_warm_us: Samples,
    /// Without a GPU: from the wake-up of a host thread that slept as long until it runs.
    pub(super) host_thread_us: Samples,
}

/// Dispatches to an idle and to a warm device alternately.
pub(super) fn wake(bench: &Bench, tries: usize) -> Result<WakeTime> {
    let mut queue = BarrierQueue::new()?;
    let mut flag = Flag::new(&bench.hip)?;
    let sleeper = Sleeper::start();
    let mut jitter = Jitter::new();
    let [mut taken, mut cold, mut store, mut warm, mut launch_cold, mut launch_warm, mut host] =
        [const { Vec::new() }; 7];
    // The queue's first packet maps memory.
    dispatch(&mut queue, Duration::ZERO)?;
    for index in 0..tries {
        let idle = dispatch(&mut queue, jitter.idle())?;
        taken.push(us(idle.taken));
        cold.push(us(idle.done));
        store.push(us(idle.stored));
        host.push(us(sleeper.wake()?));
        spin(jitter.below(Duration::from_micros(100)));
        warm.push(us(dispatch(&mut queue, Duration::ZERO)?.done));
        if index % LAUNCH_EVERY == 0 {
            thread::sleep(jitter.idle());
            launch_cold.push(store_seen(bench, &mut flag)?);
            spin(jitter.below(Duration::from_micros(100)));
            launch_warm.push(store_seen(bench, &mut flag)?);
        }
    }
    Ok(WakeTime {
        taken_us: samples(taken)?,
        cold_us: samples(cold)?,
        store_us: samples(store)?,
        warm_us: samples(warm)?,
        launch_cold_us: samples(launch_cold)?,
        launch_warm_us: samples(launch_warm)?,
        host_thread_us: samples(host)?,
    })
}

/// The times of a dispatch, from before the packet became valid.
struct Dispatch {
    taken: Duration,
    stored: Duration,
    done: Duration,
}

/// Dispatches a packet after a pause, in which memory does not show a valid packet.
fn dispatch(queue: &mut BarrierQueue, pause: Duration) -> Result<Dispatch> {
    let ready = queue.prepare();
    thread::sleep(pause);
    // The simulated device stamps with the monotonic clock.
    let (start, stamp) = (Instant::now(), now_ns());
    ready.ring();
    let stored = start.elapsed();
    while !queue.is_done() {
        if start.elapsed() > PATIENCE {
            bail!("a packet has not completed {} s after its doorbell", PATIENCE.as_secs());
        }
        std::hint::spin_loop();
    }
    let done = start.elapsed();
    let taken = queue.taken_at().context("the device has not stamped a barrier packet")?;
    Ok(Dispatch { taken: Duration::from_nanos(taken.saturating_sub(stamp)), stored, done })
}

/// Returns the microseconds from the launch call until the store of a one-element `mix` appears in host
/// memory.
fn store_seen(bench: &Bench, flag: &mut Flag) -> Result<f64> {
    let called = Instant::now();
    flag.launch(&bench.kernels, &bench.stream)?;
    let seen = flag.wait()?;
    bench.stream.synchronize()?;
    Ok(us(seen - called))
}

/// A host thread that sleeps until it is woken, and records when it ran.
struct Sleeper {
    base: Instant,
    /// Nanoseconds from `base` to the last run of the thread.
    ran: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Sleeper {
    fn start() -> Self {
        let base = Instant::now();
        let (ran, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (stamp, end) = (Arc::clone(&ran), Arc::clone(&over));
        let thread = thread::spawn(move || {
            while !end.load(Ordering::Acquire) {
                thread::park();
                stamp.store(base.elapsed().as_nanos() as u64, Ordering::Release);
            }
        });
        Self { base, ran, over, thread: Some(thread) }
    }

    /// Wakes the thread, and returns the time until its first instruction.
    fn wake(&self) -> Result<Duration> {
        let thread = self.thread.as_ref().context("the sleeping thread has ended")?;
        let before = self.ran.load(Ordering::Acquire);
        let start = self.base.elapsed();
        thread.thread().unpark();
        loop {
            let ran = self.ran.load(Ordering::Acquire);
            if ran != before {
                return Ok(Duration::from_nanos(ran).saturating_sub(start));
            }
            if self.base.elapsed() - start > Duration::from_secs(5) {
                bail!("a host thread was not scheduled for 5 s");
            }
            std::hint::spin_loop();
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The thread only stores a word, so it cannot have panicked.
            let _ = thread.join();
        }
    }
}

/// Evenly spread pseudo-random durations, the same in every run (xorshift64).
struct Jitter(u64);

impl Jitter {
    fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    /// Returns a pause that counts as idle. It varies, so that it does not keep step with a timer of the
    /// supervisor.
    fn idle(&mut self) -> Duration {
        IDLE_AFTER + self.below(Duration::from_millis(60))
    }

    fn below(&mut self, limit: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_nanos(self.0 % (limit.as_nanos() as u64).max(1))
    }
}

fn spin(duration: Duration) {
    let start = Instant::now();
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_below_its_limit_and_moves() {
        let mut jitter = Jitter::new();
        let limit = Duration::from_micros(100);
        let drawn: Vec<Duration> = (0..1000).map(|_| jitter.below(limit)).collect();
        assert!(drawn.iter().all(|d| *d < limit));
        let upper = drawn.iter().filter(|d| **d > limit / 2).count();
        assert!((400..600).contains(&upper), "{upper} of 1000 in the upper half");
        assert_eq!(jitter.below(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn sleeper_wakes_repeatedly_and_ends() {
        let sleeper = Sleeper::start();
        for _ in 0..20 {
            assert!(sleeper.wake().unwrap() < Duration::from_secs(5));
        }
    }
}
