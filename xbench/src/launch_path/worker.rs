//! A process that makes calls and times them, with or without the library in front of it; and its parent's end.
//!
//! The parent writes a line for each round (`launch 20000`), the worker answers with nanoseconds. First it says in which
//! files the functions lie that it calls, last how many calls it has made.

use crate::hip::{Hip, Stream};
use crate::kernels::{BusyShape, Kernels};
use anyhow::{Context, Result, anyhow, bail, ensure};
use hip_sys::pfn;
use hip_sys::types::{dim3, hipStream_t, hipSuccess};
use libloading::Library;
use std::ffi::{CStr, OsString, c_void};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// What a worker calls into.
#[derive(Debug, Clone)]
pub(super) enum Runtime {
    /// The machine's own HIP.
    Real,
    /// The library that does nothing, at this place.
    Null(PathBuf),
}

impl FromStr for Runtime {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "real" { Self::Real } else { Self::Null(PathBuf::from(text)) })
    }
}

impl Runtime {
    fn argument(&self) -> OsString {
        match self {
            Self::Real => "real".into(),
            Self::Null(path) => path.into(),
        }
    }
}

/// What a round consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Launches, and nothing between them.
    Launch,
    /// Launches, each with a synchronization of its stream after it.
    LaunchSync,
}

impl Kind {
    const ALL: [(Self, &str); 2] = [(Self::Launch, "launch"), (Self::LaunchSync, "launch-sync")];

    fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::LaunchSync => "launch-sync",
        }
    }
}

/// Calls that a worker has made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Calls {
    launches: u64,
    synchronizations: u64,
}

/// The parent's end of a worker.
#[derive(Debug)]
pub(super) struct Worker {
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    shimmed: bool,
}

impl Worker {
    /// Starts a worker, with the library in front of it if one is given.
    pub(super) fn start(runtime: &Runtime, shim: Option<&Path>) -> Result<Self> {
        let this = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(this);
        command.args(["launch-path", "--worker"]).arg(runtime.argument());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"XSCHED_") {
                command.env_remove(name);
            }
        }
        if let Some(shim) = shim {
            let mut preload = shim.as_os_str().to_owned();
            if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
                preload.push(":");
                preload.push(others);
            }
            // At this level the library ends with its counts.
            command.env("LD_PRELOAD", preload).env("XSCHED_LOG_LEVEL", "debug");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start a worker")?;
        let commands = process.stdin.take().context("the worker has no standard input")?;
        let answers = process.stdout.take().context("the worker has no standard output")?;
        let mut worker =
            Self { process, commands, answers: BufReader::new(answers), shimmed: shim.is_some() };
        worker.check_where(shim)?;
        Ok(worker)
    }

    /// Reads in which files the functions lie that the worker is going to call.
    fn check_where(&mut self, shim: Option<&Path>) -> Result<()> {
        let line = self.answer()?;
        let files: Vec<_> = line.split('\t').map(PathBuf::from).collect();
        ensure!(files.len() == 2, "the worker does not say what it calls: {line}");
        for file in files {
            let in_shim = match shim {
                Some(shim) => file == shim,
                None => file.file_name().is_some_and(|name| name == "libshimhip.so"),
            };
            if in_shim != shim.is_some() {
                let with = if shim.is_some() { "with" } else { "without" };
                bail!("the worker {with} the library calls functions in {}", file.display());
            }
        }
        Ok(())
    }

    /// Has one round made and returns what it took.
    pub(super) fn round(&mut self, kind: Kind, calls: u32) -> Result<Duration> {
        if let Err(error) = writeln!(self.commands, "{} {calls}", kind.name()) {
            return Err(self.failure(&error.to_string()));
        }
        let line = self.answer()?;
        let nanoseconds = line.parse().with_context(|| format!("the worker answers {line:?}"))?;
        Ok(Duration::from_nanos(nanoseconds))
    }

    /// Ends the worker and compares its calls with the library's counts. Returns the calls.
    pub(super) fn finish(mut self) -> Result<u64> {
        let line = self.command_end()?;
        let made = line
            .split_once(' ')
            .and_then(|(launches, synchronizations)| {
                Some(Calls {
                    launches: launches.parse().ok()?,
                    synchronizations: synchronizations.parse().ok()?,
                })
            })
            .ok_or_else(|| anyhow!("the worker ends with {line:?}"))?;
        let mut said = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            errors.read_to_string(&mut said).context("cannot read what the worker says")?;
        }
        let status = self.process.wait().context("cannot wait for the worker")?;
        ensure!(status.success(), "the worker ended with {status}: {}", said.trim());
        if self.shimmed {
            let counted = counts(&said)
                .ok_or_else(|| anyhow!("the library has not said what it counted: {}", said.trim()))?;
            ensure!(
                counted == made,
                "the worker made {made:?}, the library counted {counted:?}: some went past it"
            );
        }
        Ok(made.launches + made.synchronizations)
    }

    fn command_end(&mut self) -> Result<String> {
        if let Err(error) = writeln!(self.commands, "end") {
            return Err(self.failure(&error.to_string()));
        }
        self.answer()
    }

    fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(self.failure("it ended")),
            Ok(_) => Ok(line.trim_end_matches('\n').to_owned()),
            Err(error) => Err(self.failure(&error.to_string())),
        }
    }

    /// What became of a worker that does not answer, in its own words.
    fn failure(&mut self, reason: &str) -> anyhow::Error {
        // It may be alive and silent; its words end when it does.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let mut said = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        anyhow!("a worker failed ({reason}): {}", said.trim())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Nothing to do for one that has ended; one that is left over must not outlive the measurement.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The counts out of what the library has said.
fn counts(said: &str) -> Option<Calls> {
    let line = said.lines().rev().find_map(|line| line.strip_prefix("xsched: debug: calls "))?;
    let count = |name: &str| {
        let counts = line.split(' ').filter_map(|count| count.split_once('='));
        counts.filter(|(class, _)| *class == name).find_map(|(_, count)| count.parse().ok())
    };
    Some(Calls { launches: count("launch")?, synchronizations: count("sync")? })
}

/// What a worker can call: a launch, and a synchronization with the launches before it.
trait Target {
    /// One launch. Errors are found by the synchronization, or by the check of the first call.
    fn launch(&self) -> Result<()>;
    fn synchronize(&self) -> Result<()>;
    /// Where the two functions are.
    fn functions(&self) -> Result<[*const c_void; 2]>;
}

/// The worker's side: makes calls as its standard input says.
pub(super) fn serve(runtime: &Runtime) -> Result<()> {
    match runtime {
        Runtime::Null(path) => serve_target(&NullTarget::load(path)?),
        Runtime::Real => serve_target(&RealTarget::load()?),
    }
}

fn serve_target(target: &impl Target) -> Result<()> {
    let mut output = std::io::stdout().lock();
    let [launch, synchronize] = target.functions()?.map(file_of);
    writeln!(output, "{}\t{}", launch?, synchronize?)?;
    let mut calls = Calls::default();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let Some((name, count)) = line.split_once(' ') else {
            break;
        };
        let count: u32 = count.parse().context("not a number of calls")?;
        let (kind, _) = Kind::ALL
            .into_iter()
            .find(|(_, known)| *known == name)
            .with_context(|| format!("not a kind of round: {name}"))?;
        let took = round(target, kind, count, &mut calls)?;
        writeln!(output, "{}", took.as_nanos())?;
        output.flush()?;
    }
    writeln!(output, "{} {}", calls.launches, calls.synchronizations)?;
    Ok(())
}

/// One round: calls that warm up the caches and the device, which the other worker has just used, then those that are
/// timed.
fn round(target: &impl Target, kind: Kind, count: u32, calls: &mut Calls) -> Result<Duration> {
    let warming = count / 4;
    make(target, kind, warming)?;
    let start = Instant::now();
    make(target, kind, count)?;
    let took = start.elapsed();
    // What was launched is over before the next round, of this worker or of the other.
    target.synchronize()?;
    let made = u64::from(warming) + u64::from(count);
    calls.launches += made;
    calls.synchronizations += 1 + if kind == Kind::LaunchSync { made } else { 0 };
    Ok(took)
}

fn make(target: &impl Target, kind: Kind, count: u32) -> Result<()> {
    match kind {
        Kind::Launch => {
            for _ in 0..count {
                target.launch()?;
            }
        }
        Kind::LaunchSync => {
            for _ in 0..count {
                target.launch()?;
                target.synchronize()?;
            }
        }
    }
    Ok(())
}

/// The file that an address lies in.
fn file_of(address: *const c_void) -> Result<String> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked about, and the result has a valid place.
    let known = unsafe { libc::dladdr(address, info.as_mut_ptr()) } != 0;
    ensure!(known, "{address:p} is in no file");
    // SAFETY: filled, since the call succeeded.
    let info = unsafe { info.assume_init() };
    // SAFETY: the name of a loaded object is a C string.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    // The library may have been preloaded by another name of the same file.
    Ok(Path::new(&*path).canonicalize().map_or_else(|_| path.into_owned(), |path| path.display().to_string()))
}

/// Calls into the runtime that does nothing.
#[derive(Debug)]
struct NullTarget {
    launch: pfn::hipLaunchKernel,
    synchronize: pfn::hipStreamSynchronize,
}

impl NullTarget {
    fn load(path: &Path) -> Result<Self> {
        // SAFETY: the library has no initialisers; it is this program's own.
        let library = unsafe { Library::new(path) }?;
        // Leaked: the functions are called until the process ends.
        let library = Box::leak(Box::new(library));
        // SAFETY: the symbol is a function of this type, with the library in front of it as well.
        let launch = unsafe { library.get::<pfn::hipLaunchKernel>(b"hipLaunchKernel\0") }?;
        // SAFETY: as above.
        let synchronize = unsafe { library.get::<pfn::hipStreamSynchronize>(b"hipStreamSynchronize\0") }?;
        Ok(Self { launch: *launch, synchronize: *synchronize })
    }
}

impl Target for NullTarget {
    #[inline]
    fn launch(&self) -> Result<()> {
        let one = dim3 { x: 1, y: 1, z: 1 };
        // SAFETY: this runtime looks at no argument.
        let result =
            unsafe { (self.launch)(black_box(ptr::null()), one, one, ptr::null_mut(), 0, hipStream_t::NULL) };
        if result != hipSuccess {
            bail!("hipLaunchKernel returns {}", result.0);
        }
        Ok(())
    }

    #[inline]
    fn synchronize(&self) -> Result<()> {
        // SAFETY: this runtime looks at no argument.
        let result = unsafe { (self.synchronize)(hipStream_t::NULL) };
        if result != hipSuccess {
            bail!("hipStreamSynchronize returns {}", result.0);
        }
        Ok(())
    }

    fn functions(&self) -> Result<[*const c_void; 2]> {
        Ok([self.launch as *const c_void, self.synchronize as *const c_void])
    }
}

/// Launches the shortest kernel there is on the machine's own HIP.
#[derive(Debug)]
struct RealTarget {
    hip: Hip,
    kernels: Kernels,
    stream: Stream,
}

impl RealTarget {
    fn load() -> Result<Self> {
        let hip = Hip::load()?;
        ensure!(
            hip.device_count()? > 0,
            "HIP sees no GPU; without one: gpu-sim run -- xbench launch-path --real"
        );
        let kernels = Kernels::load(&hip, 0)?;
        let stream = hip.stream()?;
        Ok(Self { hip, kernels, stream })
    }
}

impl Target for RealTarget {
    fn launch(&self) -> Result<()> {
        Ok(self.kernels.busy(&self.stream, 0, BusyShape::ONE)?)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(self.stream.synchronize()?)
    }

    fn functions(&self) -> Result<[*const c_void; 2]> {
        let library = self.hip.library();
        // SAFETY: the symbol is a function of this type; only its address is used.
        let launch = unsafe { library.get::<pfn::hipModuleLaunchKernel>(b"hipModuleLaunchKernel\0") }?;
        // SAFETY: as above.
        let synchronize = unsafe { library.get::<pfn::hipStreamSynchronize>(b"hipStreamSynchronize\0") }?;
        Ok([*launch as *const c_void, *synchronize as *const c_void])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_last_line_that_has_them() {
        let said = "xsched: warn: something\nxsched: debug: calls launch=3 copy=9 sync=2 error=0\n";
        assert_eq!(counts(said), Some(Calls { launches: 3, synchronizations: 2 }));
        assert_eq!(counts("xsched: debug: HIP runtime: x\n"), None);
        assert_eq!(counts("xsched: debug: calls launch=3\n"), None);
    }

    #[test]
    fn an_address_has_a_file() {
        assert!(file_of(libc::malloc as *const c_void).unwrap().contains("libc"));
        assert!(file_of(ptr::null()).is_err());
    }
}
