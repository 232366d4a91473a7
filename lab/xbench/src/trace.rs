//! Recorded models: the GPU commands of one inference in their order, as in the files of `examples/traces`.
//!
//! A command that cannot be replayed is refused, with its number and the reason.

use crate::WrongInput;
use crate::hip::Dims;
use crate::traffic::Class;
use serde::Deserialize;
use std::path::Path;

/// The factor for recorded gaps between submits. Under the recorder's profiler a submit took about twice as
/// long: ResNet-18, whose time is host time, took 2.04 ms recorded and 1.00 ms without the profiler.
pub const GAP_FACTOR: f64 = 0.49;
/// The most local memory of a work-group on an AMD GPU; the recorder's device has up to 227 KiB.
const MOST_SHARED_BYTES: u32 = 64 << 10;
/// The most threads of a work-group.
const MOST_THREADS: u64 = 1024;
/// The most threads of a grid in one dimension, which HIP counts in 32 bits.
const MOST_THREADS_OF_A_DIMENSION: u64 = u32::MAX as u64;
/// The longest command, microseconds.
const MOST_US: f64 = 60e6;
const MOST_MEMSET_BYTES: usize = 1 << 30;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    Kernel {
        /// The grid; local memory is limited to that of AMD's devices.
        dims: Dims,
        /// Its use of memory, by its name and grid.
        class: Class,
    },
    Memset {
        /// The length, at least 1.
        bytes: usize,
    },
}

/// A command of the inference; times are microseconds as recorded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Command {
    pub work: Work,
    /// The time from the previous submit to this one, including the profiler's slow-down; 0 for the first
    /// command.
    pub gap_us: f64,
    /// The time on the device.
    pub duration_us: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Model and batch size, such as `bert bs8`.
    pub name: String,
    /// Its commands in order; at least one.
    pub commands: Vec<Command>,
}

impl Trace {
    pub fn load(path: &Path) -> Result<Self, WrongInput> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| WrongInput(format!("cannot read the trace {}: {error}", path.display())))?;
        Self::parse(&text).map_err(|why| why.within(format!("{} is no trace", path.display())))
    }

    pub fn parse(text: &str) -> Result<Self, WrongInput> {
        let file: File = serde_json::from_str(text).map_err(|error| WrongInput(error.to_string()))?;
        if file.commands.is_empty() {
            return Err(WrongInput("it has no commands".to_owned()));
        }
        let mut last_us = 0.0;
        let mut commands = Vec::with_capacity(file.commands.len());
        for (index, recorded) in file.commands.iter().enumerate() {
            let command = recorded.check(last_us).map_err(|why| why.within(format!("command {index}")))?;
            last_us = recorded.submit_us;
            commands.push(command);
        }
        Ok(Self { name: format!("{} bs{}", file.model, file.batch), commands })
    }

    /// Returns the device time of one inference, microseconds as recorded.
    pub fn device_us(&self) -> f64 {
        self.commands.iter().map(|command| command.duration_us).sum()
    }

    /// Returns the size of the largest memset; 0 if there is none.
    pub fn most_memset_bytes(&self) -> usize {
        let bytes = |command: &Command| match command.work {
            Work::Memset { bytes } => bytes,
            Work::Kernel { .. } => 0,
        };
        self.commands.iter().map(bytes).max().unwrap_or(0)
    }
}

/// The file format, without the fields that are not needed here.
#[derive(Debug, Deserialize)]
struct File {
    model: String,
    batch: u32,
    commands: Vec<Recorded>,
}

#[derive(Debug, Deserialize)]
struct Recorded {
    kind: String,
    #[serde(default)]
    name: String,
    grid: Option<[u32; 3]>,
    block: Option<[u32; 3]>,
    shared_bytes: Option<u32>,
    bytes: Option<usize>,
    submit_us: f64,
    duration_us: f64,
}

impl Recorded {
    /// Converts a command that can be replayed. `last_us` is the submit time of the command before it.
    fn check(&self, last_us: f64) -> Result<Command, WrongInput> {
        let wrong = |why: String| Err(WrongInput(why));
        let gap_us = self.submit_us - last_us;
        if !(0.0..=MOST_US).contains(&gap_us) {
            return wrong(format!("submit_us is {}, after {last_us}", self.submit_us));
        }
        if !(0.0..=MOST_US).contains(&self.duration_us) {
            return wrong(format!("duration_us is {}", self.duration_us));
        }
        let work = match self.kind.as_str() {
            "kernel" => {
                let dims = self.dims()?;
                let groups = dims.grid.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
                Work::Kernel { dims, class: Class::of(&self.name, groups, self.duration_us) }
            }
            "memset" => match self.bytes {
                None => return wrong("a memset needs bytes".to_owned()),
                Some(bytes @ 1..=MOST_MEMSET_BYTES) => Work::Memset { bytes },
                Some(bytes) => return wrong(format!("a memset of {bytes} bytes")),
            },
            other => return wrong(format!("kind {other:?} is neither kernel nor memset")),
        };
        Ok(Command { work, gap_us, duration_us: self.duration_us })
    }

    fn dims(&self) -> Result<Dims, WrongInput> {
        let wrong = |why: String| Err(WrongInput(why));
        let (Some(grid), Some(block)) = (self.grid, self.block) else {
            return wrong("a kernel needs grid and block".to_owned());
        };
        // Three numbers of 32 bits can have a product of 96.
        let threads: u128 = block.iter().map(|n| u128::from(*n)).product();
        if !(1..=u128::from(MOST_THREADS)).contains(&threads) {
            return wrong(format!("a work-group of {block:?} threads"));
        }
        let all = grid.iter().zip(block).map(|(groups, threads)| u64::from(*groups) * u64::from(threads));
        if all.clone().any(|threads| !(1..=MOST_THREADS_OF_A_DIMENSION).contains(&threads)) {
            return wrong(format!("a grid of {grid:?} work-groups"));
        }
        let shared_bytes = self.shared_bytes.unwrap_or(0).min(MOST_SHARED_BYTES);
        Ok(Dims { grid, block, shared_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = r#"{"kind": "kernel", "name": "k", "grid": [2, 3, 4], "block": [64, 2, 1],
        "shared_bytes": 231424, "submit_us": 0.0, "start_us": 5.0, "duration_us": 7.5}"#;
    const MEMSET: &str =
        r#"{"kind": "memset", "bytes": 256, "submit_us": 12.0, "start_us": 14.0, "duration_us": 1.0}"#;

    fn parse(commands: &str) -> Result<Trace, WrongInput> {
        Trace::parse(&format!(r#"{{"model": "m", "batch": 8, "device": "d", "commands": [{commands}]}}"#))
    }

    #[test]
    fn kernels_and_memsets() {
        let trace = parse(&format!("{KERNEL}, {MEMSET}")).unwrap();
        assert_eq!(trace.name, "m bs8");
        let dims = Dims { grid: [2, 3, 4], block: [64, 2, 1], shared_bytes: 65536 };
        assert_eq!(
            trace.commands,
            [
                Command { work: Work::Kernel { dims, class: Class::Small }, gap_us: 0.0, duration_us: 7.5 },
                Command { work: Work::Memset { bytes: 256 }, gap_us: 12.0, duration_us: 1.0 },
            ]
        );
        assert_eq!(trace.device_us(), 8.5);
        assert_eq!(trace.most_memset_bytes(), 256);
    }

    #[test]
    fn parse_names_the_command_that_cannot_be_replayed() {
        let cases = [
            (String::new(), "it has no commands"),
            (format!("{MEMSET}, {KERNEL}"), "command 1: submit_us is 0, after 12"),
            (KERNEL.replace("7.5", "-1"), "command 0: duration_us is -1"),
            (KERNEL.replace("7.5", "1e9"), "command 0: duration_us is 1000000000"),
            (
                KERNEL.replace("\"kernel\"", "\"memcpy\""),
                "command 0: kind \"memcpy\" is neither kernel nor memset",
            ),
            (KERNEL.replace("grid", "grit"), "command 0: a kernel needs grid and block"),
            (KERNEL.replace("[64, 2, 1]", "[64, 17, 1]"), "command 0: a work-group of [64, 17, 1] threads"),
            // Products beyond 64 bits.
            (
                KERNEL.replace("[64, 2, 1]", "[4294967295, 4294967295, 1]"),
                "command 0: a work-group of [4294967295, 4294967295, 1] threads",
            ),
            (
                KERNEL.replace("[64, 2, 1]", "[4294967295, 4294967295, 4294967295]"),
                "command 0: a work-group of [4294967295, 4294967295, 4294967295] threads",
            ),
            (KERNEL.replace("[2, 3, 4]", "[2, 0, 4]"), "command 0: a grid of [2, 0, 4] work-groups"),
            (
                KERNEL.replace("[2, 3, 4]", "[99999999, 3, 4]"),
                "command 0: a grid of [99999999, 3, 4] work-groups",
            ),
            (MEMSET.replace("256", "0"), "command 0: a memset of 0 bytes"),
            (MEMSET.replace("bytes", "size"), "command 0: a memset needs bytes"),
        ];
        for (commands, expected) in cases {
            assert_eq!(parse(&commands).unwrap_err().0, expected, "{commands}");
        }
        assert!(Trace::parse("[]").is_err());
        assert!(parse(&KERNEL.replace("7.5", "\"x\"")).unwrap_err().0.contains("expected f64"));
    }

    #[test]
    fn missing_file_is_named() {
        let error = Trace::load(Path::new("/no/such/trace.json")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the trace /no/such/trace.json: "), "{error}");
    }

    /// Kernels of each class in the example files: streaming, matrix, small.
    #[test]
    fn every_recorded_kernel_has_a_class() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces");
        for (name, expected) in [
            ("bert_bs8", [0, 85, 69]),
            ("elementwise_bs1", [50, 0, 0]),
            ("long_bs1", [0, 4, 0]),
            ("matmul_bs1", [0, 16, 0]),
            ("resnet18_bs1", [3, 5, 94]),
            ("resnet50_bs1", [3, 6, 209]),
            ("resnet50_bs256", [172, 54, 19]),
            ("token_step_bs1", [64, 0, 32]),
        ] {
            let trace = Trace::load(&directory.join(format!("{name}.json"))).unwrap();
            let count = |wanted: Class| {
                let of = |command: &&Command| matches!(command.work, Work::Kernel { class, .. } if class == wanted);
                trace.commands.iter().filter(of).count()
            };
            assert_eq!([Class::Streaming, Class::Matrix, Class::Small].map(count), expected, "{name}");
            let memsets = trace.commands.iter().filter(|c| matches!(c.work, Work::Memset { .. })).count();
            assert_eq!(expected.iter().sum::<usize>() + memsets, trace.commands.len(), "{name}");
        }
    }

    #[test]
    fn example_files_are_traces() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces");
        for (name, commands) in [
            ("bert_bs8", 154),
            ("elementwise_bs1", 50),
            ("matmul_bs1", 16),
            ("resnet18_bs1", 109),
            ("resnet152_bs8", 674),
            ("resnet50_bs1", 227),
            ("resnet50_bs256", 285),
            ("token_step_bs1", 96),
        ] {
            let trace = Trace::load(&directory.join(format!("{name}.json"))).unwrap();
            assert_eq!(trace.commands.len(), commands, "{name}");
            assert_eq!(trace.name.replace(' ', "_"), name);
        }
    }
}
