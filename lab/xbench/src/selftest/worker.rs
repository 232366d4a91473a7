//! Common code of workers: HIP, the library, and numbered kernels.

use crate::hip::{Hip, HostBuffer, Stream};
use crate::kernels::{BusyShape, Kernels};
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};

/// The time that the work of one measurement may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Opens HIP and checks that it has a device.
pub(super) fn hip() -> Result<Hip> {
    let hip = Hip::load()?;
    ensure!(hip.device_count()? > 0, "HIP sees no GPU");
    Ok(hip)
}

/// Kernels that store their numbers, in launch order, in a word of host memory when they end.
#[derive(Debug)]
pub(super) struct NumberedKernels {
    pub(super) kernels: Kernels,
    word: HostBuffer,
    launched: u64,
}

impl NumberedKernels {
    pub(super) fn new(hip: &Hip) -> Result<Self> {
        let kernels = Kernels::load(hip, 0)?;
        Ok(Self { kernels, word: hip.host_malloc(size_of::<u64>())?, launched: 0 })
    }

    pub(super) fn launch(&mut self, stream: &Stream, length: Duration, shape: BusyShape) -> Result<u64> {
        self.launched += 1;
        let length = length.as_nanos() as u64;
        self.kernels.busy_store(stream, &self.word, self.launched, length, shape)?;
        Ok(self.launched)
    }

    /// Returns the number of the last launched kernel.
    pub(super) fn launched(&self) -> u64 {
        self.launched
    }

    /// Returns the number of the last kernel that has ended.
    pub(super) fn ended(&self) -> u64 {
        self.word.load_word(0)
    }

    pub(super) fn await_end(&self, number: u64) -> Result<()> {
        let begin = Instant::now();
        while self.ended() < number {
            ensure!(begin.elapsed() < PATIENCE, "kernels do not run");
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits for all kernels, and checks that the last launched one has ended last.
    pub(super) fn finish(&self, stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        let ended = self.ended();
        ensure!(ended == self.launched, "of {} kernels the last to end was number {ended}", self.launched);
        Ok(())
    }
}
