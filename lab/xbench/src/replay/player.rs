//! Issues a trace to HIP, one inference at a time.
//!
//! **Host time.** The recorded gap between two submits is time that the framework's thread computes. The
//! replay spends it the same way: it waits for the moment of the next submit, sleeping only if that is more
//! than 150 µs away, so the processor is as busy as a framework keeps it while it submits. Moments are
//! absolute, so that one late wake-up delays one submit and not all behind it. Time that a call takes beyond
//! the gap that it falls into (the runtime or the library made it wait) delays everything behind it, as it
//! delays a framework.

use super::digest::{Digest, EVERY, WORDS};
use super::launches::Launches;
use crate::clock::{now_ns, wait_until};
use crate::hip::{DeviceBuffer, Hip, HostBuffer, Stream};
use crate::kernels::{BusyShape, Kernels};
use crate::trace::{GAP_FACTOR, Trace, Work};
use crate::traffic::{Moving, Traffic, TrafficMemory};
use anyhow::{Context, Result, ensure};

#[derive(Debug, Clone, Copy)]
enum Call {
    Busy { duration_ns: u64, shape: BusyShape },
    Traffic(Moving),
    Memset { bytes: usize },
}

#[derive(Debug, Clone, Copy)]
struct Step {
    /// The time from the previous command's submit.
    gap_ns: u64,
    call: Call,
}

/// A trace that is ready to run.
#[derive(Debug)]
pub(crate) struct Player {
    hip: Hip,
    kernels: Kernels,
    stream: Stream,
    steps: Vec<Step>,
    scratch: Option<DeviceBuffer>,
    traffic: Option<TrafficMemory>,
    /// The digest, in host memory that the device reaches, so that reading it is no command.
    memory: HostBuffer,
    expected: Digest,
    requests: u64,
    launches: Launches,
}

impl Player {
    /// Loads kernels and memory on the first device; `scale` multiplies kernel times and gaps, and `traffic` says what
    /// the kernels do with memory meanwhile.
    pub(crate) fn new(
        hip: &Hip,
        trace: &Trace,
        scale: f64,
        traffic: Traffic,
        null_stream: bool,
        launches: Launches,
    ) -> Result<Self> {
        ensure!(
            hip.device_count()? > 0,
            "the HIP runtime sees no GPU; gpu-sim run -- starts a program on a simulated one"
        );
        let kernels = Kernels::load(hip, 0)?;
        let device = hip.device(0)?;
        let mut steps = Vec::with_capacity(trace.commands.len());
        for command in &trace.commands {
            let duration_ns = (command.duration_us * scale * 1e3).round() as u64;
            let call = match command.work {
                Work::Kernel { dims, class } => match traffic.of(class) {
                    Some(class) => Call::Traffic(Moving::new(&kernels, &device, class, dims, duration_ns)?),
                    None => Call::Busy { duration_ns, shape: kernels.busy_shape(&device, dims)? },
                },
                Work::Memset { bytes } => Call::Memset { bytes },
            };
            steps.push(Step { gap_ns: (command.gap_us * GAP_FACTOR * scale * 1e3).round() as u64, call });
        }
        let scratch = match trace.most_memset_bytes() {
            0 => None,
            bytes => Some(hip.malloc(bytes)?),
        };
        let stream = if null_stream { hip.null_stream() } else { hip.stream()? };
        let traffic = match traffic {
            Traffic::None => None,
            some => Some(TrafficMemory::new(hip, &stream, some.classes())?),
        };
        let memory = hip.host_malloc(WORDS * size_of::<u64>())?;
        let expected = Digest::default();
        let hip = *hip;
        Ok(Self { hip, kernels, stream, steps, scratch, traffic, memory, expected, requests: 0, launches })
    }

    /// Runs one inference, ended by a synchronization of the stream.
    pub(crate) fn infer(&mut self) -> Result<()> {
        let mut due = now_ns();
        let mut spent = 0;
        for (index, step) in self.steps.iter().enumerate() {
            due += step.gap_ns.max(spent);
            wait_until(due);
            let before = now_ns();
            match step.call {
                Call::Busy { duration_ns, shape } => self.kernels.busy(&self.stream, duration_ns, shape)?,
                Call::Traffic(moving) => {
                    let traffic = self.traffic.as_mut().context("traffic without memory")?;
                    traffic.launch(&self.kernels, &self.stream, &moving)?;
                }
                Call::Memset { bytes } => {
                    let scratch = self.scratch.as_ref().context("a memset without memory")?;
                    self.stream.memset(scratch, 0, bytes)?;
                }
            }
            self.launches.note();
            if (index + 1) % EVERY == 0 {
                let value = self.expected.mix();
                self.kernels.mix(&self.stream, &self.memory, &self.memory, WORDS as u32, value)?;
                self.launches.note();
            }
            spent = now_ns() - before;
        }
        self.stream.synchronize()?;
        self.requests += 1;
        Ok(())
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn launches(&self) -> &Launches {
        &self.launches
    }

    /// Returns the number of inferences so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests
    }

    /// Returns the digest of the device, which must be the one that the host computes.
    pub(crate) fn check(&self) -> Result<&Digest> {
        let words = std::array::from_fn(|index| self.memory.load_word(index));
        ensure!(
            words == *self.expected.words(),
            "the digest is wrong after inference {}: commands were lost, doubled or run in another order",
            self.requests
        );
        Ok(&self.expected)
    }
    /// Checks that the memory traffic of all inferences took place, and returns its bytes; 0 without traffic. It copies
    /// from the device, so it is for the end of a run.
    pub(crate) fn check_traffic(&self) -> Result<u64> {
        let Some(traffic) = &self.traffic else { return Ok(0) };
        traffic.check(&self.hip)?;
        Ok(traffic.bytes())
    }
}
