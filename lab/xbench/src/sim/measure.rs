//! Measures kernel times, short kernels and idleness by the host's clock around calls of the HIP runtime.

use super::flag::Flag;
use crate::clock::microseconds as us;
use crate::compare::{interleave, median_difference};
use crate::contents::{Known, check_sums};
use crate::hip::Event;
use crate::kernels::{BusyShape, Opened as Bench};
use crate::processor_time::process_cpu;
use crate::stats::Samples;
use anyhow::{Context, Result, bail};
use std::thread;
use std::time::{Duration, Instant};

/// The number of repetitions of each measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// Pairs of a busy and an empty kernel for each duration.
    pub(super) pairs: usize,
    /// Repetitions of the batch of short kernels.
    pub(super) sums: usize,
    /// The time for which the idle supervisor is watched.
    pub(super) idle_window: Duration,
    /// Dispatches after idleness, and as many to a warm device; through HIP a quarter of that.
    pub(super) wakes: usize,
}

impl Plan {
    pub(super) const FULL: Self =
        Self { pairs: 201, sums: 5, idle_window: Duration::from_secs(4), wakes: 200 };
    pub(super) const QUICK: Self =
        Self { pairs: 51, sums: 3, idle_window: Duration::from_secs(2), wakes: 50 };
}

/// The shortest pause that counts as idle.
pub(super) const IDLE_AFTER: Duration = Duration::from_millis(100);
pub(super) const SHORT_NS: u64 = 2_000;
/// Short kernels per batch: with what the runtime adds they stay below the 4,096 launches that ROCm 5.2.3
/// allows in flight, so that all of them can be queued behind one kernel.
pub(super) const BATCH: usize = 2_500;
/// Batches per repetition: 5,000 kernels.
pub(super) const BATCHES: usize = 2;

/// The number of elements that are checked: several work-groups, of which the last is not full.
const CHECKED: usize = 5_000;
/// The values of a chain of `mix` kernels, whose result depends on their order and number.
const CHAIN: [u64; 3] = [3, 1, 2];

/// The time of a kernel of one nominal duration.
#[derive(Debug, Clone)]
pub(super) struct KernelTime {
    pub(super) nominal_us: f64,
    /// Launch to synchronize, minus the same for an empty kernel next to it; median.
    pub(super) synchronized_us: f64,
    /// The time from the launch call until the host sees the store of a `mix` behind the kernel, minus the
    /// same behind an empty one; median. No interrupt, event or wait of the runtime is part of it.
    pub(super) stored_us: f64,
    /// By the device's own time stamps: between two events around the kernel, minus the same for an empty
    /// kernel.
    pub(super) device_us: f64,
}

/// The time of thousands of short kernels.
#[derive(Debug, Clone)]
pub(super) struct SumTime {
    /// Total over sum, by repetition.
    pub(super) ratio: Samples,
    /// The time per kernel where the host submits while they run, so that its launch calls set the pace.
    pub(super) host_paced_us: Samples,
}

impl Bench {
    /// Checks that the kernels compute, and warms everything up.
    pub(super) fn warm_up(&self) -> Result<()> {
        self.check()?;
        // The first launches map code and memory, which is not measured.
        let mut flag = Flag::new(&self.hip)?;
        for _ in 0..20 {
            self.launch_to_synchronize(0)?;
            self.launch_to_store(0, &mut flag)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        check_sums(&self.hip, &self.kernels, &self.stream, CHECKED, 1, 1)?;
        let mut known = Known::new(&self.hip, (0..CHECKED as u64).map(|i| i * i).collect())?;
        for value in CHAIN {
            known.mix(&self.kernels, &self.stream, value)?;
        }
        self.stream.synchronize()?;
        known.compare(&self.hip).context("the device computes wrong results")
    }

    fn busy(&self, duration_ns: u64) -> Result<()> {
        self.kernels.busy(&self.stream, duration_ns, BusyShape::ONE)
    }

    /// Returns the microseconds from the launch call to the return of `hipStreamSynchronize`.
    fn launch_to_synchronize(&self, duration_ns: u64) -> Result<f64> {
        let start = Instant::now();
        self.busy(duration_ns)?;
        self.stream.synchronize()?;
        Ok(us(start.elapsed()))
    }

    /// Returns the microseconds from the launch call until the host sees the store of a `mix` behind the
    /// kernel.
    fn launch_to_store(&self, duration_ns: u64, flag: &mut Flag) -> Result<f64> {
        let start = Instant::now();
        self.busy(duration_ns)?;
        flag.launch(&self.kernels, &self.stream)?;
        let seen = flag.wait()?;
        self.stream.synchronize()?;
        Ok(us(seen - start))
    }

    /// Returns the microseconds between two events around the kernel, by the device's time stamps.
    fn between_events(&self, duration_ns: u64, events: &[Event; 2]) -> Result<f64> {
        events[0].record(&self.stream)?;
        self.busy(duration_ns)?;
        events[1].record(&self.stream)?;
        self.stream.synchronize()?;
        Ok(f64::from(events[1].milliseconds_since(&events[0])?) * 1e3)
    }

    /// Measures a kernel of `duration_ns` against an empty one, `pairs` times side by side.
    pub(super) fn kernel_time(&self, duration_ns: u64, pairs: usize) -> Result<KernelTime> {
        let events = [self.hip.event()?, self.hip.event()?];
        let mut flag = Flag::new(&self.hip)?;
        let difference = |measure: &mut dyn FnMut(u64) -> Result<f64>| -> Result<f64> {
            let results = interleave(&[duration_ns, 0], pairs, |_, ns| measure(*ns))?;
            median_difference(&results[0], &results[1]).context("no pairs were measured")
        };
        Ok(KernelTime {
            nominal_us: duration_ns as f64 / 1e3,
            synchronized_us: difference(&mut |ns| self.launch_to_synchronize(ns))?,
            stored_us: difference(&mut |ns| self.launch_to_store(ns, &mut flag))?,
            device_us: difference(&mut |ns| self.between_events(ns, &events))?,
        })
    }

    pub(super) fn empty_kernel(&self, tries: usize) -> Result<Samples> {
        let times = (0..tries).map(|_| self.launch_to_synchronize(0)).collect::<Result<_>>()?;
        samples(times)
    }

    /// Measures thousands of short kernels against the sum of their durations.
    ///
    /// A launch call costs the host more than a short kernel costs the device, so a batch is queued behind
    /// one long kernel (the gate) that still runs when the last launch call has returned; the end is the
    /// moment when the store of a `mix` kernel behind the batch reaches the host. The same with an empty
    /// batch is subtracted: what remains is the batch alone.
    pub(super) fn short_kernels(&self, repetitions: usize) -> Result<SumTime> {
        let mut flag = Flag::new(&self.hip)?;
        let mut gate = self.gate_for_batch()?;
        let sum_us = (BATCHES * BATCH) as f64 * SHORT_NS as f64 / 1e3;
        let mut ratios = Vec::new();
        let mut host_paced = Vec::new();
        for _ in 0..repetitions {
            let mut total_us = 0.0;
            for _ in 0..BATCHES {
                total_us += self.gated_batch(&mut gate, &mut flag)?;
            }
            ratios.push(total_us / sum_us);
            host_paced.push(self.host_paced_batch(&mut flag)? / BATCH as f64);
        }
        Ok(SumTime { ratio: samples(ratios)?, host_paced_us: samples(host_paced)? })
    }

    /// Returns three times the host's time for the launch calls of one batch.
    fn gate_for_batch(&self) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..BATCH {
            self.busy(0)?;
        }
        let submitting = start.elapsed();
        self.stream.synchronize()?;
        Ok((submitting * 3).max(Duration::from_millis(10)))
    }

    /// Returns the microseconds that one batch adds behind the gate.
    fn gated_batch(&self, gate: &mut Duration, flag: &mut Flag) -> Result<f64> {
        for _ in 0..6 {
            let without = self.behind_gate(*gate, 0, flag)?;
            let with = self.behind_gate(*gate, BATCH, flag)?;
            if let (Some(without), Some(with)) = (without, with) {
                return Ok(us(with) - us(without));
            }
            *gate *= 2;
        }
        bail!("the host cannot queue {BATCH} launches while a kernel of {gate:?} runs; is it overloaded?")
    }

    /// Returns the time from the launch of the gate to the end of `count` short kernels behind it; `None` if
    /// the gate ended before the last launch call returned.
    fn behind_gate(&self, gate: Duration, count: usize, flag: &mut Flag) -> Result<Option<Duration>> {
        let start = Instant::now();
        self.busy(gate.as_nanos() as u64)?;
        for _ in 0..count {
            self.busy(SHORT_NS)?;
        }
        flag.launch(&self.kernels, &self.stream)?;
        let queued = start.elapsed();
        let end = flag.wait()?;
        self.stream.synchronize()?;
        Ok((queued < gate).then(|| end - start))
    }

    /// Returns the microseconds of one batch without a gate.
    fn host_paced_batch(&self, flag: &mut Flag) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..BATCH {
            self.busy(SHORT_NS)?;
        }
        flag.launch(&self.kernels, &self.stream)?;
        let end = flag.wait()?;
        self.stream.synchronize()?;
        Ok(us(end - start))
    }

    /// Returns the share of a core that the idle supervisor uses, from 100 ms after the last work on.
    pub(super) fn idle_share(&self, supervisor: u32, window: Duration) -> Result<f64> {
        self.launch_to_synchronize(0)?;
        thread::sleep(IDLE_AFTER);
        let (before, start) = (process_cpu(supervisor)?, Instant::now());
        thread::sleep(window);
        let used = process_cpu(supervisor)?.saturating_sub(before);
        Ok(used.as_secs_f64() / start.elapsed().as_secs_f64())
    }
}

pub(super) fn samples(values: Vec<f64>) -> Result<Samples> {
    Samples::new(values).context("nothing was measured")
}
