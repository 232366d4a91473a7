//! A word of pinned host memory that a kernel changes. With it the host sees directly that a dispatch has
//! run, without an event, an interrupt or the runtime.

use crate::hip::{Hip, HostBuffer, Stream};
use crate::kernels::{Kernels, mix_step};
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// The time limit for the word to change.
const PATIENCE: Duration = Duration::from_secs(10);

/// The word, and its value once all launched kernels have run.
pub(super) struct Flag {
    memory: HostBuffer,
    before: u64,
    expected: u64,
}

impl Flag {
    pub(super) fn new(hip: &Hip) -> Result<Self> {
        let memory = hip.host_malloc(size_of::<u64>())?;
        memory.store_word(0, 1);
        Ok(Self { memory, before: 1, expected: 1 })
    }

    /// Launches the kernel that changes the word.
    pub(super) fn launch(&mut self, kernels: &Kernels, stream: &Stream) -> Result<()> {
        kernels.mix(stream, &self.memory, &self.memory, 1, 0x6769_7665)?;
        self.before = self.expected;
        self.expected = mix_step(self.before, self.before, 0, 0x6769_7665);
        Ok(())
    }

    /// Polls the word without pause until the last launch has changed it, and returns that moment.
    pub(super) fn wait(&self) -> Result<Instant> {
        let start = Instant::now();
        loop {
            let word = self.memory.load_word(0);
            let now = Instant::now();
            if word == self.expected {
                return Ok(now);
            }
            if word != self.before {
                bail!(
                    "kernel `mix` left {word:#x} in memory where {:#x} is right; the device computes wrong results",
                    self.expected
                );
            }
            if now - start > PATIENCE {
                bail!("kernel `mix` has not run {} s after its launch", PATIENCE.as_secs());
            }
            std::hint::spin_loop();
        }
    }
}
