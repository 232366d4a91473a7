//! Small programs whose effect on memory is known, with or without a library between their calls and the
//! device.
//!
//! They use `mix`, whose result shows if two commands were swapped, repeated or lost.

use super::conformance::Checked;
use super::worker::hip;
use crate::contents::{Known, check_sums};
use crate::hip::Hip;
use crate::kernels::{BusyShape, Kernels};
use anyhow::{Context, Result, anyhow, ensure};
use protocol::report::Program;
use std::thread;
use std::time::{Duration, Instant};

const WORDS: usize = 1024;
/// The length of a run that waits for random events.
const PATIENCE: Duration = Duration::from_millis(1500);
const THREADS: u64 = 4;
/// More streams than a process usually has hardware queues.
const STREAMS: u64 = 9;

type Check = fn(&Machine, u64) -> Result<()>;

const PROGRAMS: [(&str, Check); 9] = [
    ("one stream keeps its order", one_stream),
    ("streams wait for events", events),
    ("the default stream keeps its rule", default_stream),
    ("copies and fills", copies),
    ("memory is freed while it is used", frees),
    ("a kernel writes host memory", host_memory),
    ("arguments are copied", arguments),
    ("threads have streams of their own", threads),
    ("streams are destroyed with work in them", destroyed_streams),
];

/// Runs all programs, several times unless `short`; if `patient`, until enough time has passed.
pub(super) fn work(short: bool, patient: bool) -> Result<Checked> {
    let hip = hip()?;
    let machine = Machine { kernels: Kernels::load(&hip, 0)?, hip };
    let mut programs: Vec<Program> =
        PROGRAMS.iter().map(|(name, _)| Program { name: (*name).to_owned(), error: None }).collect();
    let begin = Instant::now();
    let (least, patience) = if short { (1, PATIENCE / 3) } else { (4, PATIENCE) };
    let mut rounds = 0;
    while rounds < least || patient && begin.elapsed() < patience {
        for ((_, check), program) in PROGRAMS.iter().zip(&mut programs) {
            if program.error.is_none() {
                program.error = check(&machine, rounds).err().map(|error| format!("{error:#}"));
            }
        }
        rounds += 1;
    }
    Ok(Checked { programs, rounds })
}

#[derive(Debug)]
struct Machine {
    hip: Hip,
    kernels: Kernels,
}

impl Machine {
    fn known(&self, seed: u64) -> Result<Known> {
        let word = |i: u64| (i + 1).wrapping_mul(seed | 1).rotate_left(23);
        Known::new(&self.hip, (0..WORDS as u64).map(word).collect())
    }
}

fn one_stream(machine: &Machine, round: u64) -> Result<()> {
    let stream = machine.hip.stream()?;
    let mut known = machine.known(round + 1)?;
    for value in 0..200 {
        known.mix(&machine.kernels, &stream, value)?;
    }
    stream.synchronize()?;
    known.compare(&machine.hip)
}

fn events(machine: &Machine, round: u64) -> Result<()> {
    let streams = [machine.hip.stream()?, machine.hip.stream()?];
    let mut known = [machine.known(round + 2)?, machine.known(round + 3)?];
    let events = [machine.hip.event()?, machine.hip.event()?];
    for value in 0..60 {
        let (writer, reader) = if value % 2 == 0 { (0, 1) } else { (1, 0) };
        known[writer].mix(&machine.kernels, &streams[writer], value)?;
        events[writer].record(&streams[writer])?;
        streams[reader].wait(&events[writer])?;
        let [first, second] = &mut known;
        let (target, source) = if reader == 0 { (first, second) } else { (second, first) };
        target.mix_with(&machine.kernels, &streams[reader], source, value)?;
        // The next round writes the buffer that was just read.
        events[reader].record(&streams[reader])?;
        streams[writer].wait(&events[reader])?;
    }
    events[0].synchronize()?;
    machine.hip.synchronize()?;
    known.iter().try_for_each(|known| known.compare(&machine.hip))
}

fn default_stream(machine: &Machine, round: u64) -> Result<()> {
    let (null, own) = (machine.hip.null_stream(), [machine.hip.stream()?, machine.hip.stream()?]);
    let mut known = machine.known(round + 4)?;
    for value in 0..60 {
        // Each command waits for the one before it, because one of two neighbours is on the default stream.
        let stream = if value % 2 == 0 { &null } else { &own[value as usize / 2 % 2] };
        known.mix(&machine.kernels, stream, value)?;
    }
    known.compare(&machine.hip)
}

fn copies(machine: &Machine, round: u64) -> Result<()> {
    let stream = machine.hip.stream()?;
    let mut known = machine.known(round + 5)?;
    for value in 0..12u8 {
        known.mix(&machine.kernels, &stream, value.into())?;
        known.memset(&stream, value, WORDS / 2)?;
        known.mix(&machine.kernels, &stream, 77)?;
        known.compare(&machine.hip)?;
        known.words.rotate_left(1);
        known.fill(&machine.hip)?;
    }
    known.compare(&machine.hip)
}

fn frees(machine: &Machine, round: u64) -> Result<()> {
    let stream = machine.hip.stream()?;
    let mut known = machine.known(round + 6)?;
    for value in 0..6 {
        let sources = (0..4).map(|i| machine.known(10 * value + i + 100)).collect::<Result<Vec<_>>>()?;
        // The commands behind this kernel have not begun when their memory is freed.
        machine.kernels.busy(&stream, 1_000_000, BusyShape::ONE)?;
        for source in &sources {
            known.mix_with(&machine.kernels, &stream, source, value)?;
        }
        drop(sources);
        // Reuses the freed memory.
        machine.known(value + 200)?;
    }
    known.compare(&machine.hip)
}

fn host_memory(machine: &Machine, round: u64) -> Result<()> {
    let stream = machine.hip.stream()?;
    let word = machine.hip.host_malloc(size_of::<u64>())?;
    let done = machine.hip.event()?;
    for value in 1..40 {
        let value = round * 1000 + value;
        machine.kernels.busy_store(&stream, &word, value, 20_000, BusyShape::ONE)?;
        done.record(&stream)?;
        done.synchronize()?;
        let held = word.load_word(0);
        ensure!(held == value, "the word is {held} and not {value} after its kernel");
        ensure!(stream.is_done()?, "a stream with nothing to do is not done");
    }
    Ok(())
}

fn arguments(machine: &Machine, round: u64) -> Result<()> {
    check_sums(&machine.hip, &machine.kernels, &machine.hip.stream()?, 512, round as usize, 8)
}

fn threads(machine: &Machine, round: u64) -> Result<()> {
    let one = |number: u64| -> Result<()> {
        let stream = machine.hip.stream()?;
        let mut known = machine.known(round + 10 * number)?;
        for value in 0..50 {
            known.mix(&machine.kernels, &stream, value + number)?;
        }
        stream.synchronize()?;
        known.compare(&machine.hip)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().enumerate().try_for_each(|(number, thread)| {
            let result = thread.join().map_err(|_| anyhow!("it panicked"))?;
            result.with_context(|| format!("thread {number}"))
        })
    })
}

fn destroyed_streams(machine: &Machine, round: u64) -> Result<()> {
    let mut all = Vec::new();
    for number in 0..STREAMS {
        let stream = machine.hip.stream()?;
        let mut known = machine.known(round + 30 + number)?;
        for value in 0..20 {
            known.mix(&machine.kernels, &stream, value)?;
        }
        // Its work still runs.
        drop(stream);
        all.push(known);
    }
    machine.hip.synchronize()?;
    all.iter().try_for_each(|known| known.compare(&machine.hip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names_are_unique() {
        let mut names = PROGRAMS.map(|(name, _)| name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
