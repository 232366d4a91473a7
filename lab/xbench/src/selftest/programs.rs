//! Small programs whose effect on memory is known, with or without a library between their calls and the
//! device.
//!
//! They use `mix`, whose result shows if two commands were swapped, repeated or lost.

use super::conformance::Checked;
use super::worker::hip;
use crate::hip::{DeviceBuffer, Hip, Stream};
use crate::kernels::{BusyShape, Kernels, mix_step};
use anyhow::{Context, Result, anyhow, ensure};
use protocol::report::Program;
use std::thread;
use std::time::{Duration, Instant};

/// Words of a buffer.
const WORDS: usize = 1024;
/// The length of a run that waits for random events.
const PATIENCE: Duration = Duration::from_millis(1500);
/// The number of threads that work at once.
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

/// A buffer on the device, and its expected contents.
#[derive(Debug)]
struct Known {
    buffer: DeviceBuffer,
    words: Vec<u64>,
}

impl Machine {
    fn known(&self, seed: u64) -> Result<Known> {
        let words: Vec<u64> =
            (0..WORDS as u64).map(|i| (i + 1).wrapping_mul(seed | 1).rotate_left(23)).collect();
        let buffer = self.hip.malloc(WORDS * size_of::<u64>())?;
        let known = Known { buffer, words };
        self.fill(&known)?;
        Ok(known)
    }

    fn fill(&self, known: &Known) -> Result<()> {
        let bytes: Vec<u8> = known.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(self.hip.copy_to_device(&known.buffer, 0, &bytes)?)
    }

    /// Launches a `mix` of the buffer with itself.
    fn mix(&self, stream: &Stream, known: &mut Known, value: u64) -> Result<()> {
        self.kernels.mix(stream, &known.buffer, &known.buffer, WORDS as u32, value)?;
        for (i, word) in known.words.iter_mut().enumerate() {
            *word = mix_step(*word, *word, i as u32, value);
        }
        Ok(())
    }

    /// Launches a `mix` of a buffer with another one.
    fn mix_with(&self, stream: &Stream, known: &mut Known, other: &Known, value: u64) -> Result<()> {
        self.kernels.mix(stream, &known.buffer, &other.buffer, WORDS as u32, value)?;
        for (i, (word, source)) in known.words.iter_mut().zip(&other.words).enumerate() {
            *word = mix_step(*word, *source, i as u32, value);
        }
        Ok(())
    }

    /// Copies the buffer back, after all work of blocking streams, and compares it.
    fn compare(&self, known: &Known) -> Result<()> {
        let mut bytes = vec![0; WORDS * size_of::<u64>()];
        self.hip.copy_from_device(&mut bytes, &known.buffer, 0)?;
        compare(&bytes, &known.words)
    }
}

fn compare(bytes: &[u8], words: &[u64]) -> Result<()> {
    let held = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
    let wrong: Vec<(usize, u64, u64)> = held
        .zip(words)
        .enumerate()
        .filter_map(|(i, (held, word))| (held != *word).then_some((i, held, *word)))
        .collect();
    match wrong.first() {
        None => Ok(()),
        Some((i, held, word)) => Err(anyhow!(
            "{} of {} words are wrong: word {i} is {held:#x} and not {word:#x}",
            wrong.len(),
            words.len()
        )),
    }
}

fn one_stream(machine: &Machine, round: u64) -> Result<()> {
    let stream = machine.hip.stream()?;
    let mut known = machine.known(round + 1)?;
    for value in 0..200 {
        machine.mix(&stream, &mut known, value)?;
    }
    stream.synchronize()?;
    machine.compare(&known)
}

fn events(machine: &Machine, round: u64) -> Result<()> {
    let streams = [machine.hip.stream()?, machine.hip.stream()?];
    let mut known = [machine.known(round + 2)?, machine.known(round + 3)?];
    let events = [machine.hip.event()?, machine.hip.event()?];
    for value in 0..60 {
        let (writer, reader) = if value % 2 == 0 { (0, 1) } else { (1, 0) };
        machine.mix(&streams[writer], &mut known[writer], value)?;
        events[writer].record(&streams[writer])?;
        streams[reader].wait(&events[writer])?;
        let [first, second] = &mut known;
        let (target, source) = if reader == 0 { (first, second) } else { (second, first) };
        machine.mix_with(&streams[reader], target, source, value)?;
        // The next round writes the buffer that was just read.
        events[reader].record(&streams[reader])?;
        streams[writer].wait(&events[reader])?;
    }
    events[0].synchronize()?;
    machine.hip.synchronize()?;
    known.iter().try_for_each(|known| machine.compare(known))
}

fn default_stream(machine: &Machine, round: u64) -> Result<()> {
    let (null, own) = (machine.hip.null_stream(), [machine.hip.stream()?, machine.hip.stream()?]);
    let mut known = machine.known(round + 4)?;
    for value in 0..60 {
        // Each command waits for the one before it, because one of two neighbours is on the default stream.
        let stream = if value % 2 == 0 { &null } else { &own[value as usize / 2 % 2] };
        machine.mix(stream, &mut known, value)?;
    }
    machine.compare(&known)
}

fn copies(machine: &Machine, round: u64) -> Result<()> {
    let stream = machine.hip.stream()?;
    let mut known = machine.known(round + 5)?;
    for value in 0..12u8 {
        machine.mix(&stream, &mut known, value.into())?;
        let half = WORDS / 2;
        stream.memset(&known.buffer, value, half * size_of::<u64>())?;
        known.words[..half].fill(u64::from_ne_bytes([value; 8]));
        machine.mix(&stream, &mut known, 77)?;
        machine.compare(&known)?;
        known.words.rotate_left(1);
        machine.fill(&known)?;
    }
    machine.compare(&known)
}

fn frees(machine: &Machine, round: u64) -> Result<()> {
    let stream = machine.hip.stream()?;
    let mut known = machine.known(round + 6)?;
    for value in 0..6 {
        let sources = (0..4).map(|i| machine.known(10 * value + i + 100)).collect::<Result<Vec<_>>>()?;
        // The commands behind this kernel have not begun when their memory is freed.
        machine.kernels.busy(&stream, 1_000_000, BusyShape::ONE)?;
        for source in &sources {
            machine.mix_with(&stream, &mut known, source, value)?;
        }
        drop(sources);
        // Reuses the freed memory.
        machine.known(value + 200)?;
    }
    machine.compare(&known)
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
    let stream = machine.hip.stream()?;
    let count = 512;
    let [a, b, c] = [(); 3].map(|()| machine.hip.malloc(count * size_of::<f32>()));
    let [mut a, b, mut c] = [a?, b?, c?];
    let bytes = |f: &dyn Fn(usize) -> f32| (0..count).flat_map(|i| f(i).to_ne_bytes()).collect::<Vec<u8>>();
    machine.hip.copy_to_device(&a, 0, &bytes(&|i| i as f32))?;
    machine.hip.copy_to_device(&b, 0, &bytes(&|i| (i + round as usize) as f32))?;
    // Sums of whole numbers below 2^24 are exact in floats.
    let steps = 8;
    for _ in 0..steps {
        machine.kernels.vector_add(&stream, &a, &b, &c, count as u32)?;
        std::mem::swap(&mut a, &mut c);
    }
    stream.synchronize()?;
    let mut held = vec![0; count * size_of::<f32>()];
    machine.hip.copy_from_device(&mut held, &a, 0)?;
    let expected = bytes(&|i| (i + steps * (i + round as usize)) as f32);
    ensure!(held == expected, "sums are wrong");
    Ok(())
}

fn threads(machine: &Machine, round: u64) -> Result<()> {
    let one = |number: u64| -> Result<()> {
        let stream = machine.hip.stream()?;
        let mut known = machine.known(round + 10 * number)?;
        for value in 0..50 {
            machine.mix(&stream, &mut known, value + number)?;
        }
        stream.synchronize()?;
        machine.compare(&known)
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
            machine.mix(&stream, &mut known, value)?;
        }
        // Its work still runs.
        drop(stream);
        all.push(known);
    }
    machine.hip.synchronize()?;
    all.iter().try_for_each(|known| machine.compare(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compare_names_the_first_wrong_word() {
        let bytes: Vec<u8> = [5u64, 6, 7].into_iter().flat_map(u64::to_ne_bytes).collect();
        compare(&bytes, &[5, 6, 7]).unwrap();
        let error = compare(&bytes, &[5, 9, 8]).unwrap_err().to_string();
        assert_eq!(error, "2 of 3 words are wrong: word 1 is 0x6 and not 0x9");
    }

    #[test]
    fn program_names_are_unique() {
        let mut names = PROGRAMS.map(|(name, _)| name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
