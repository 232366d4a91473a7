//! Runs of programs on simulated GPUs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{Finished, Running};
use crate::program::Program;
use crate::runtime::{Runtime, arch, program};
use crate::slots;
use crate::tree::product;
use crate::{comgr, kernel};

/// How long a run may take before it counts as hung.
const HANG_GUARD: Duration = Duration::from_secs(120);

/// How a program meets HIP.
#[derive(Clone, Debug, Default)]
pub enum Mode {
    /// The runtime alone.
    #[default]
    Native,
    /// `libshimhip.so` preloaded, with these further variables.
    Shimmed {
        /// Names and values, usually `XSCHED_*`.
        env: Vec<(String, String)>,
    },
}

/// A turn on the machine's processors together with a name of its own for simulated GPUs.
#[derive(Debug)]
pub struct Gpu {
    name: String,
    _slot: slots::Slot,
}

impl Gpu {
    /// Waits for a turn. At most [`slots::AT_ONCE`] tests hold one, over all test processes: the simulated device is paced against the
    /// clock, and more programs than processors would only measure each other.
    pub fn take() -> Gpu {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Gpu {
            name: format!("test-{}-{number}", std::process::id()),
            _slot: slots::take("gpu", slots::AT_ONCE),
        }
    }

    /// The name of the GPUs that all shared runs use, as `gpu-sim run --name` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A run of this program on a GPU of its own.
    pub fn run(&self, program: &str) -> Run {
        Run::new(program)
    }

    /// A run of an executable that is no program of `tests/programs`.
    pub fn run_executable(&self, executable: &Path) -> Run {
        Run::of_executable(executable)
    }

    /// A run of a program as its first line says, with this runtime. The error says what could not be built.
    pub fn directed(&self, program: &Program, runtime: &dyn Runtime) -> Result<Run, String> {
        let directions = &program.directions;
        let mut run = Run { command: Some(runtime.build(program)?), ..Run::new(&program.name) };
        run.enter = runtime.enter();
        run.bare = runtime.without_simulation();
        for name in &directions.loads {
            run.args.push(runtime.build(&Program::find(name)?)?.display().to_string());
        }
        run.args.extend_from_slice(&directions.args);
        run.sim.clone_from(&directions.sim);
        run.env.clone_from(&directions.env);
        Ok(run)
    }

    /// A run of one of the workspace's own binaries on a GPU of its own.
    pub fn product(&self, name: &str) -> Run {
        let command = product(name).unwrap_or_else(|reason| panic!("{reason}"));
        Run { command: Some(command), ..Run::new(name) }
    }

    /// A run of this program on the GPU of 64 GiB that all shared runs of this `Gpu` use (`--name`).
    pub fn shared(&self, program: &str) -> Run {
        let run = Run { name: Some(self.name.clone()), ..Run::new(program) };
        run.sim("--vram", 64)
    }

    /// A run of one of the workspace's own binaries on the GPU that all shared runs of this `Gpu` use.
    pub fn shared_product(&self, name: &str) -> Run {
        let command = product(name).unwrap_or_else(|reason| panic!("{reason}"));
        Run { command: Some(command), ..self.shared(name) }
    }

    /// A run of an executable that is no program of `tests/programs` on the GPU that all shared runs of this `Gpu` use.
    pub fn shared_executable(&self, executable: &Path) -> Run {
        let Run { program, command, .. } = Run::of_executable(executable);
        Run { command, ..self.shared(&program) }
    }

    /// Keeps the shared GPUs in being until the returned run is let go: with none in it, a name is forgotten.
    pub fn keep(&self) -> Running {
        self.keep_run().start()
    }

    /// The run that [`Gpu::keep`] starts, for options that all runs on these GPUs are to have. Once started, the GPUs are there:
    /// a run that came before would make others, without these options.
    pub fn keep_run(&self) -> Run {
        Run { command: Some("cat".into()), keeps: true, ..self.shared("cat") }
    }
}

/// One run of a program, to be described and then started.
#[derive(Clone, Debug)]
pub struct Run {
    pub(crate) program: String,
    pub(crate) command: Option<PathBuf>,
    pub(crate) enter: Vec<PathBuf>,
    /// Variables of a run without `gpu-sim`.
    pub(crate) bare: Option<Vec<(String, String)>>,
    pub(crate) name: Option<String>,
    pub(crate) nested: bool,
    pub(crate) loud: bool,
    pub(crate) keeps: bool,
    pub(crate) sim: Vec<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) mode: Mode,
    pub(crate) stats: bool,
    pub(crate) limit: Duration,
}

impl Run {
    fn new(program: &str) -> Run {
        Run {
            program: program.to_owned(),
            command: None,
            enter: Vec::new(),
            bare: None,
            name: None,
            nested: false,
            loud: false,
            keeps: false,
            sim: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            mode: Mode::Native,
            stats: false,
            limit: HANG_GUARD,
        }
    }

    pub(crate) fn of_executable(executable: &Path) -> Run {
        let name = executable.file_name().map_or_else(String::new, |name| name.display().to_string());
        Run { command: Some(executable.to_owned()), ..Run::new(&name) }
    }

    /// An argument of the program.
    pub fn arg(mut self, arg: impl Into<String>) -> Run {
        self.args.push(arg.into());
        self
    }

    /// A variable in the program's environment.
    pub fn env(mut self, name: &str, value: &str) -> Run {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// An option of `gpu-sim run` with its value, such as `("--vram", "8")`.
    pub fn sim(mut self, option: &str, value: impl ToString) -> Run {
        self.sim.extend([option.to_owned(), value.to_string()]);
        self
    }

    /// An option of `gpu-sim run` that has no value, such as `--no-cwsr`.
    pub fn sim_flag(mut self, option: &str) -> Run {
        self.sim.push(option.to_owned());
        self
    }

    /// Native, or with the shim.
    pub fn mode(mut self, mode: Mode) -> Run {
        self.mode = mode;
        self
    }

    /// Collects `gpu-sim --stats`; [`Finished::stats`] has them.
    pub fn with_stats(mut self) -> Run {
        self.stats = true;
        self
    }

    /// Starts the program by a second `gpu-sim run` inside the first one.
    pub fn nested(mut self) -> Run {
        self.nested = true;
        self
    }

    /// Lets `gpu-sim` say at the end which kernels it did not execute.
    pub fn loud(mut self) -> Run {
        self.loud = true;
        self
    }

    /// Another limit for programs that rightly take long.
    pub fn limit(mut self, limit: Duration) -> Run {
        self.limit = limit;
        self
    }

    /// Builds the program if needed and starts it. A missing tool or binary fails the test with one sentence.
    pub fn start(self) -> Running {
        let program = match &self.command {
            Some(command) => command.clone(),
            None => program(&self.program).unwrap_or_else(|reason| panic!("{reason}")),
        };
        let scratch = tempfile::tempdir().expect("a folder for the statistics");
        let stats = self.stats.then(|| scratch.path().join("stats.json"));
        let (mut command, mut env) = match &self.bare {
            None => (self.simulation(stats.as_deref()), Vec::new()),
            Some(variables) => (bare(self.limit), self.device_variables(variables)),
        };
        if self.bare.is_none() && self.enter.is_empty() {
            env.extend(comgr::variables().iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        }
        // Through env(1), so that the preload meets the program and not gpu-sim.
        env.extend(self.env.iter().cloned());
        let mut label = self.program.clone();
        if let Mode::Shimmed { env: shim } = &self.mode {
            let library = product("libshimhip.so").unwrap_or_else(|reason| panic!("{reason}"));
            env.push(("LD_PRELOAD".to_owned(), library.display().to_string()));
            env.extend(shim.iter().cloned());
            let settings: Vec<_> = shim.iter().map(|(name, value)| format!("{name}={value}")).collect();
            label = format!("{label} with libshimhip.so {}", settings.join(" ")).trim_end().to_owned();
        }
        command.extend(self.enter);
        command.extend(kernel::words());
        if !env.is_empty() {
            command.push("env".into());
            command.extend(env.iter().map(|(name, value)| PathBuf::from(format!("{name}={value}"))));
        }
        command.push(program.clone());
        command.extend(self.args.iter().map(PathBuf::from));
        let mut running =
            Running::start(&label, &command, program, stats.map(|path| (scratch, path)), self.limit);
        if self.keeps {
            running.tell("here");
            assert_eq!(running.line(), "here", "{}", running.report());
        }
        running
    }

    /// The variables of a run without `gpu-sim`: how many devices there are, with how much memory, as `lab/cuda-cpu` takes it.
    fn device_variables(&self, variables: &[(String, String)]) -> Vec<(String, String)> {
        let mut all = variables.to_vec();
        for pair in self.sim.chunks(2) {
            match pair {
                [option, value] if option == "--gpus" => {
                    all.push(("CUDA_CPU_DEVICES".to_owned(), value.clone()))
                }
                [option, value] if option == "--vram" => {
                    let bytes = value.parse::<u64>().map_or(0, |gib| gib << 30);
                    all.push(("CUDA_CPU_MEMORY".to_owned(), bytes.to_string()));
                }
                _ => {}
            }
        }
        all
    }

    /// The words that start `gpu-sim`, in front of the program's.
    fn simulation(&self, stats: Option<&Path>) -> Vec<PathBuf> {
        let mut command = vec![product("gpu-sim").unwrap_or_else(|reason| panic!("{reason}")), "run".into()];
        if !self.loud {
            command.push("--quiet".into());
        }
        if let Some(name) = &self.name {
            command.extend(["--name".into(), name.into()]);
        }
        if !self.sim.iter().any(|option| option == "--arch") {
            command.extend(["--arch".into(), arch().into()]);
        }
        command.extend(self.sim.iter().map(PathBuf::from));
        if let Some(stats) = stats {
            command.extend(["--stats".into(), stats.to_owned()]);
        }
        command.push("--".into());
        if self.nested {
            command.extend([command[0].clone(), "run".into()]);
            if !self.loud {
                command.push("--quiet".into());
            }
            command.push("--".into());
        }
        command
    }

    /// Starts the program with an empty input and waits for its end.
    pub fn finish(self) -> Finished {
        self.start().finish()
    }
}

/// The words in front of a program that runs without `gpu-sim`: a parent, as `gpu-sim` is one, that reports signals as it does.
fn bare(limit: Duration) -> Vec<PathBuf> {
    let longer = limit + Duration::from_secs(60);
    vec!["timeout".into(), longer.as_secs().to_string().into()]
}
