//! Measures what the priority of hardware queues does: the time of a kernel that fills the device, alone, beside another program
//! that keeps the device full, and beside it with queues of a higher priority.
//!
//! The other program is not limited and not suspended. Nothing is evicted: the priority is set while a queue is new.

use super::parent::{Parent, Preload, spread};
use super::worker::{NumberedKernels, hip};
use crate::clock::microseconds;
use crate::kernels::BusyShape;
use anyhow::{Context, Result};
use protocol::report::{PriorityRow, QueuePriority};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The kernel that is measured.
const KERNEL: Duration = Duration::from_micros(200);
/// The kernels of the other program, and how many of them it has in flight.
const OTHER: Duration = Duration::from_micros(800);
const IN_FLIGHT: u64 = 4;
/// The number of times that one of them fills the device. The measured kernel begins between two of these times.
const OTHER_ROUNDS: u32 = 8;
/// The pause between two measured kernels.
const PAUSE: Duration = Duration::from_millis(1);
/// The time that the other program may take to begin.
const BEGIN: Duration = Duration::from_secs(30);

/// The work of the two programs.
const URGENT: &str = "urgent";
const BATCH: &str = "batch";

/// The measurements of a worker, in microseconds.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    took: Vec<f64>,
}

/// Measures in all places.
pub(super) fn measure(parent: &Parent, shim: &Path) -> Result<QueuePriority> {
    let common = [("XSCHED_AUTO_XQUEUE", "OFF"), ("XSCHED_SCHEDULER", "APP")];
    let first =
        [common[0], common[1], ("XSCHED_TEST", "queues-first"), ("XSCHED_KFD_MECHANISM", "update-queue")];
    let mut rows = Vec::new();
    for (place, environment) in [("alone", &common[..]), ("equal", &common[..]), ("first", &first[..])] {
        let other = (place != "alone").then(|| Other::start(parent)).transpose()?;
        let preload = Preload { library: shim, environment };
        let (measured, log) =
            parent.worker::<Measured>(URGENT, Some(preload)).with_context(|| place.to_owned())?;
        let other_kernels_per_s = other.map(Other::end).transpose()?;
        let is_first =
            |line: &str| line.contains("priority of the hardware queues") && line.contains("first=true");
        // The library leaves the priority alone where the driver does not save running waves.
        if (place == "first") == log.lines().any(is_first) {
            let took_us = spread(measured.took)?;
            rows.push(PriorityRow { place: place.to_owned(), took_us, other_kernels_per_s });
        }
    }
    let [kernel_us, other_kernel_us] = [KERNEL, OTHER].map(|length| length.as_micros() as u64);
    Ok(QueuePriority { kernel_us, other_kernel_us, rows })
}

/// The other program while it runs.
struct Other {
    program: crate::process::Program,
    since: Instant,
}

impl Other {
    /// Starts it, and waits until its kernels run.
    fn start(parent: &Parent) -> Result<Self> {
        let mut program = parent.start(BATCH, None)?;
        program.expect("begun", BEGIN)?;
        Ok(Self { program, since: Instant::now() })
    }

    /// Ends it, and returns the number of its kernels a second.
    fn end(mut self) -> Result<f64> {
        let took = self.since.elapsed();
        self.program.tell("end")?;
        let count: u64 = self.program.line(BEGIN)?.parse().context("the other program counts its kernels")?;
        self.program.end()?;
        Ok(count as f64 / took.as_secs_f64())
    }
}

/// Works as one of the two programs.
pub(super) fn work(work: &str, short: bool) -> Result<()> {
    let hip = hip()?;
    let kernels = NumberedKernels::new(&hip)?;
    let filling = kernels.kernels.filling_shape(&hip.device(0)?)?;
    let stream = hip.stream()?;
    if work == BATCH {
        fill(kernels, filling, &stream)
    } else {
        super::print(&urgent(kernels, filling, &stream, short)?)
    }
}

/// Launches one kernel after the other, and measures each.
fn urgent(
    mut kernels: NumberedKernels,
    filling: BusyShape,
    stream: &crate::hip::Stream,
    short: bool,
) -> Result<Measured> {
    // The first launches load code.
    for _ in 0..8 {
        kernels.launch(stream, KERNEL, filling)?;
        kernels.finish(stream)?;
    }
    let count = if short { 20 } else { 500 };
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        std::thread::sleep(PAUSE);
        let begin = Instant::now();
        kernels.launch(stream, KERNEL, filling)?;
        kernels.finish(stream)?;
        took.push(microseconds(begin.elapsed()));
    }
    Ok(Measured { took })
}

/// Keeps the device full until a line or the end of the input comes, and prints the number of kernels since `begun`.
fn fill(mut kernels: NumberedKernels, filling: BusyShape, stream: &crate::hip::Stream) -> Result<()> {
    let mut shape = filling;
    shape.dims.grid[0] *= OTHER_ROUNDS;
    shape.rounds *= OTHER_ROUNDS;
    let (sender, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(std::io::stdin().read_line(&mut String::new()).is_ok()));
    let mut begun = None;
    loop {
        let number = kernels.launch(stream, OTHER, shape)?;
        kernels.await_end(number.saturating_sub(IN_FLIGHT))?;
        let since = *begun.get_or_insert_with(|| {
            println!("begun");
            let _ = std::io::stdout().flush();
            number
        });
        if ended.try_recv().is_ok() {
            kernels.finish(stream)?;
            println!("{}", number - since);
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_answers_with_an_object() {
        let answer = serde_json::to_string(&Measured { took: vec![1.5, 2.0] }).unwrap();
        assert_eq!(answer, r#"{"took":[1.5,2.0]}"#);
    }
}
