//! Measures what a stream's mask of compute units does: the time of a kernel that fills the device, on all units, on half of them
//! and on a quarter.
//!
//! Each work-group of the kernel takes the same time, so on half of the units the kernel takes twice as long, and on a quarter four
//! times. Where the mask has no effect the time stays the same.

use super::parent::{Parent, spread};
use super::worker::{NumberedKernels, hip};
use crate::clock::microseconds;
use crate::hip::Stream;
use crate::kernels::BusyShape;
use crate::stats::median;
use anyhow::{Context, Result};
use protocol::report::{UnitMaskRow, UnitMasks};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

const KERNEL: Duration = Duration::from_millis(2);
/// The masks: one over these numbers of the units.
const PARTS: [u32; 3] = [1, 2, 4];
/// The bits of a word of a mask.
const WORD: u32 = u32::BITS;

/// The measurements of the worker, in microseconds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Measured {
    refused: Option<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row {
    units: Option<u64>,
    set: Option<u64>,
    took: Vec<f64>,
}

/// Measures in a worker without the library.
pub(super) fn measure(parent: &Parent) -> Result<UnitMasks> {
    report(parent.worker("native", None)?.0)
}

fn report(measured: Measured) -> Result<UnitMasks> {
    let kernel_us = KERNEL.as_micros() as u64;
    if measured.refused.is_some() {
        return Ok(UnitMasks { kernel_us, refused: measured.refused, rows: Vec::new() });
    }
    let whole = measured.rows.iter().find(|row| row.units.is_none());
    let whole = whole.and_then(|row| median(row.took.iter().copied()));
    let whole = whole.context("nothing was measured without a mask")?;
    let row = |row: Row| {
        let took_us = spread(row.took)?;
        Ok(UnitMaskRow { units: row.units, set: row.set, ratio: took_us.p50 / whole, took_us })
    };
    let rows = measured.rows.into_iter().map(row).collect::<Result<_>>()?;
    Ok(UnitMasks { kernel_us, refused: None, rows })
}

/// Measures as the worker.
pub(super) fn work(short: bool) -> Result<Measured> {
    let hip = hip()?;
    let device = hip.device(0)?;
    let mut kernels = NumberedKernels::new(&hip)?;
    let filling = kernels.kernels.filling_shape(&device)?;
    let count = if short { 5 } else { 50 };
    let mut measured = Measured::default();
    let mut row = |stream: &Stream, units: Option<u32>, set| -> Result<()> {
        let took = took(&mut kernels, stream, filling, count)?;
        measured.rows.push(Row { units: units.map(u64::from), set, took });
        Ok(())
    };
    row(&hip.stream()?, None, None)?;
    for part in PARTS {
        let units = part_of(device.compute_units, part);
        let stream = match hip.stream_on_units(&mask(units, device.compute_units)) {
            Ok(stream) => stream,
            Err(why) => return Ok(Measured { refused: Some(format!("{why:#}")), rows: Vec::new() }),
        };
        row(&stream, Some(units), set_units(&stream, device.compute_units))?;
    }
    Ok(measured)
}

/// Returns the microseconds of each kernel.
fn took(
    kernels: &mut NumberedKernels,
    stream: &Stream,
    filling: BusyShape,
    count: usize,
) -> Result<Vec<f64>> {
    // The first launches of a stream create its queue.
    for _ in 0..2 {
        kernels.launch(stream, KERNEL, filling)?;
        kernels.finish(stream)?;
    }
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        kernels.launch(stream, KERNEL, filling)?;
        kernels.finish(stream)?;
        took.push(microseconds(begin.elapsed()));
    }
    Ok(took)
}

/// Returns the number of units in the mask of the stream as HIP has it; `None` if it does not say.
fn set_units(stream: &Stream, all: u32) -> Option<u64> {
    let words = stream.units(all.div_ceil(WORD) as usize).ok()?;
    Some(words.iter().map(|word| u64::from(word.count_ones())).sum())
}

/// Returns an even part of the units, at least 2: from gfx10 on the driver takes only whole pairs.
fn part_of(units: u32, part: u32) -> u32 {
    if part == 1 { units } else { (units / part / 2 * 2).max(2) }
}

/// Returns the mask of the first of all units, with a bit for each of all: what missing words mean is the runtime's choice. The driver
/// spreads the units over all shader arrays.
fn mask(units: u32, all: u32) -> Vec<u32> {
    let word = |index: u32| match units.saturating_sub(index * WORD) {
        left if left >= WORD => u32::MAX,
        left => (1 << left) - 1,
    };
    (0..all.div_ceil(WORD)).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_has_the_first_units_in_pairs() {
        assert_eq!(mask(104, 104), [u32::MAX, u32::MAX, u32::MAX, 0xff]);
        assert_eq!(mask(64, 104), [u32::MAX, u32::MAX, 0, 0]);
        assert_eq!(mask(2, 30), [3]);
        assert_eq!([1, 2, 4].map(|part| part_of(104, part)), [104, 52, 26]);
        assert_eq!([1, 2, 4].map(|part| part_of(30, part)), [30, 14, 6]);
        assert_eq!(part_of(3, 4), 2);
    }

    #[test]
    fn ratios_are_those_to_the_stream_without_a_mask() {
        let row = |units, took: &[f64]| Row { units, set: units, took: took.to_vec() };
        let rows = vec![row(None, &[2000.0, 2010.0, 2020.0]), row(Some(52), &[4020.0; 3])];
        let made = report(Measured { refused: None, rows }).unwrap();
        assert_eq!((made.rows[0].ratio, made.rows[1].ratio), (1.0, 2.0));
        assert_eq!((made.rows[0].units, made.rows[1].set, made.kernel_us), (None, Some(52), 2000));
        assert!(report(Measured::default()).is_err(), "nothing was measured");
        let refused = report(Measured { refused: Some("no".into()), rows: vec![] }).unwrap();
        assert_eq!((refused.refused.as_deref(), refused.rows.len()), (Some("no"), 0));
    }
}
