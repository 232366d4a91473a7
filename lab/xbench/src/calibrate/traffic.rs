//! Kernels with memory traffic, alone: do they take the time that they are told to take, and how much do they move?

use super::worker::limit;
use crate::hip::Event;
use crate::kernels::Opened;
use crate::report::Report;
use crate::traffic::{Class, Moving, Traffic, TrafficMemory, bandwidth};
use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The lengths of the kernels, microseconds.
const LENGTHS_US: [u64; 2] = [100, 1_000];
/// The work of each length, microseconds.
const IN_A_ROW_US: u64 = 100_000;
/// The launches of each length before the measurement, which wake the memory.
const WARM_UP: u64 = 16;

/// The answer of the process that measures.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Moved {
    /// The highest bandwidth of the device memory, by its clock and bus or by default, GB/s.
    bandwidth_gb_per_s: f64,
    lengths: Vec<Length>,
}

/// Kernels of one class and length that fill the device.
#[derive(Debug, Serialize, Deserialize)]
struct Length {
    class: Class,
    /// The requested duration of a kernel, microseconds.
    asked_us: u64,
    /// The time of many kernels without a pause over their number, microseconds.
    in_a_row_us: f64,
    /// The bytes that a kernel reads and writes.
    bytes: u64,
}

impl Length {
    /// Returns the bandwidth that a kernel uses if it takes so many microseconds, GB/s.
    fn gb_per_s(&self, us: f64) -> f64 {
        self.bytes as f64 / us / 1e3
    }
}

/// Measures the kernels of these classes, and checks that all their traffic took place.
pub(super) fn measure(opened: &Opened, traffic: Traffic) -> Result<Moved> {
    let Opened { hip, kernels, stream } = opened;
    let device = hip.device(0)?;
    let dims = kernels.filling_traffic(&device)?;
    let events: [Event; 2] = [hip.event()?, hip.event()?];
    let mut memory = TrafficMemory::new(hip, stream, traffic.classes())?;
    let mut lengths = Vec::new();
    for class in traffic.classes() {
        for asked_us in LENGTHS_US {
            let moving = Moving::new(kernels, &device, class, dims, asked_us * 1_000)?;
            let count = IN_A_ROW_US / asked_us;
            (0..WARM_UP).try_for_each(|_| memory.launch(kernels, stream, &moving))?;
            stream.synchronize()?;
            events[0].record(stream)?;
            (0..count).try_for_each(|_| memory.launch(kernels, stream, &moving))?;
            events[1].record(stream)?;
            events[1].synchronize()?;
            memory.check(hip)?;
            let in_a_row_us = f64::from(events[1].milliseconds_since(&events[0])?) * 1e3 / count as f64;
            lengths.push(Length { class, asked_us, in_a_row_us, bytes: moving.bytes() });
        }
    }
    Ok(Moved { bandwidth_gb_per_s: bandwidth(&device) as f64 / 1e3, lengths })
}

/// Judges the times, and tells the traffic.
pub(super) fn judge(report: &mut Report, moved: &Moved) {
    for length in &moved.lengths {
        let asked = length.asked_us;
        let (kind, time, rate) = match length.class {
            Class::Streaming => ("streaming", "streaming_in_a_row_us", "streaming_gb_per_s"),
            Class::Matrix => ("matrix", "matrix_in_a_row_us", "matrix_gb_per_s"),
            Class::Small => ("small", "small_in_a_row_us", "small_gb_per_s"),
        };
        let what = format!("kernels of {asked} µs with {kind} traffic in a row, each");
        report.judged(time, what, length.in_a_row_us, "µs", limit(asked));
        let told = length.gb_per_s(asked as f64);
        let share = 100.0 * told / moved.bandwidth_gb_per_s;
        report.info(
            rate,
            format!("their traffic (told: {told:.0} GB/s, {share:.0} % of {:.0})", moved.bandwidth_gb_per_s),
            length.gb_per_s(length.in_a_row_us),
            "GB/s",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_cannot_move_as_much_are_missed() {
        let judged = |in_a_row_us| {
            let length = Length { class: Class::Streaming, asked_us: 100, in_a_row_us, bytes: 96_000_000 };
            let mut report = Report::default();
            judge(&mut report, &Moved { bandwidth_gb_per_s: 1600.0, lengths: vec![length] });
            report
        };
        assert!(judged(101.0).is_met() && !judged(120.0).is_met() && !judged(f64::NAN).is_met());
        let report = judged(120.0);
        let rate = &report.figures()[1];
        assert_eq!((rate.name, rate.value), ("streaming_gb_per_s", 800.0));
        assert_eq!(rate.what, "their traffic (told: 960 GB/s, 60 % of 1600)");
    }
}
