//! The programs of `tests/programs` on a second runtime that shares no code with AMD's: `lab/hip-cuda`, over
//! `lab/cuda-cpu` or a real CUDA driver (docs/hip-cuda.md). They run natively and in the modes of conformance
//! that do not evict.

mod omitted;

use std::path::{Path, PathBuf};

use crate::conformance::{self, MODES, Mode, Verdict, is_usual};
use crate::program::{Kind, Program};
use crate::runtime::{Installed, Runtime, Sanitized, hip_major};
use crate::{Gpu, product, slots, workspace};

pub use omitted::{OMITTED, Omitted};

/// hip-cuda. It runs programs that the installed compilers build.
#[derive(Clone, Debug)]
pub struct HipCuda {
    /// The folder of its `libamdhip64.so.*`.
    folder: PathBuf,
    /// The driver's file.
    driver: PathBuf,
    /// The library that programs link to look for data races.
    sanitized: Option<Sanitized>,
}

impl HipCuda {
    /// Finds what `scripts/hip-cuda` has built, and `lab/cuda-cpu`, or the driver that `HIP_CUDA_DRIVER`
    /// names.
    ///
    /// # Errors
    /// One of them is missing; one sentence.
    pub fn find() -> Result<HipCuda, String> {
        let folder = workspace().join("target/hip-cuda");
        let library = folder.join(format!("libamdhip64.so.{}", hip_major()));
        if !library.exists() {
            return Err(format!("{} does not exist: run scripts/hip-cuda first", library.display()));
        }
        let driver = match std::env::var_os("HIP_CUDA_DRIVER") {
            Some(driver) => driver.into(),
            None => product("libcuda_cpu.so")?,
        };
        Ok(HipCuda { folder, driver, sanitized: None })
    }

    /// Returns the runtime for programs that link a library made for ThreadSanitizer. It and `lab/cuda-cpu` are made
    /// for it as well, because ThreadSanitizer must see the locks that order their memory; `scripts/test-races` puts
    /// them beside the library.
    pub fn sanitized(self, sanitized: &Sanitized) -> HipCuda {
        let beside = sanitized.library.parent().unwrap_or(Path::new("."));
        let driver = match std::env::var_os("HIP_CUDA_DRIVER") {
            Some(driver) => driver.into(),
            None => beside.join("libcuda_cpu.so"),
        };
        HipCuda { folder: beside.join("hip-cuda"), driver, sanitized: Some(sanitized.clone()) }
    }
}

impl Runtime for HipCuda {
    fn build(&self, program: &Program) -> Result<PathBuf, String> {
        match &self.sanitized {
            Some(sanitized) => sanitized.build(program),
            None => Installed.build(program),
        }
    }

    fn fat(&self, _compressed: bool) -> Option<&dyn Runtime> {
        // Only AMD's runtime chooses among code for several architectures.
        None
    }

    fn enter(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn without_simulation(&self) -> Option<Vec<(String, String)>> {
        let folder = self.folder.display().to_string();
        let driver = self.driver.display().to_string();
        Some(vec![("LD_LIBRARY_PATH".to_owned(), folder), ("HIP_CUDA_DRIVER".to_owned(), driver)])
    }
}

/// Returns the modes in which a program is compared, without those that evict.
fn modes(program: &Program, named: &[&'static Mode]) -> Vec<&'static Mode> {
    let usual = MODES.iter().filter(|mode| match named {
        [] => is_usual(mode, &program.directions),
        named => named.iter().any(|one| one.name == mode.name),
    });
    usual.filter(|mode| !mode.holds()).collect()
}

/// Returns the entry of a program that cannot run here.
fn omission(program: &Program) -> Option<&'static Omitted> {
    OMITTED
        .iter()
        .find(|omitted| hip_major() < omitted.runs_from && omitted.programs.contains(&program.name.as_str()))
}

/// Returns the programs for the installed release whose names contain one of these parts, or all of them if
/// there are none. It skips files that other programs load.
///
/// # Errors
/// One sentence for each program whose first line is wrong.
pub fn programs(parts: &[String]) -> Result<Vec<Program>, String> {
    let wanted = |program: &Program| {
        program.directions.kind == Kind::Executable
            && program.directions.from_hip <= hip_major()
            && (parts.is_empty() || parts.iter().any(|part| program.name.contains(part.as_str())))
    };
    Ok(Program::all()?.into_iter().filter(wanted).collect())
}

/// The number of programs by their result.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Programs with equal output in all modes.
    pub passed: usize,
    /// Programs that differ and are not listed, or pass although they are listed.
    pub failed: usize,
    /// Listed programs that cannot run.
    pub omitted: usize,
}

/// Compares the programs' native output with that in these modes, or in their usual modes if there are none.
pub fn compare(programs: &[Program], runtime: &HipCuda, named: &[&'static Mode]) -> Outcome {
    let verdicts = slots::each(programs, slots::AT_ONCE, |program| {
        let verdict = conformance::compare(program, &modes(program, named), runtime);
        let word = match (verdict.problems.is_empty(), omission(program)) {
            (true, None) => "ok",
            (false, Some(_)) => "omitted",
            (true, Some(_)) => "PASSED",
            (false, None) => "FAILED",
        };
        let took = verdict.took.as_secs_f32();
        println!("{word:8} {:28} {:8} held back {took:6.1} s", verdict.program, verdict.held_back);
        (verdict, omission(program))
    });
    let mut outcome = Outcome::default();
    for (Verdict { program, problems, .. }, omitted) in &verdicts {
        match (problems.is_empty(), omitted) {
            (true, None) => outcome.passed += 1,
            (false, Some(_)) => outcome.omitted += 1,
            (true, Some(omitted)) => {
                outcome.failed += 1;
                println!(
                    "\n{program} passes, and is listed in tests/src/hip_cuda/omitted.rs: {}",
                    omitted.reason
                );
            }
            (false, None) => {
                outcome.failed += 1;
                print!("\n{problems}");
            }
        }
    }
    outcome
}

/// Compares the programs' native output with that on AMD's runtime and the simulated GPU. A difference does
/// not fail the test: it only shows where the two runtimes behave differently.
pub fn against_amd(programs: &[Program], runtime: &HipCuda) -> Outcome {
    let results = slots::each(programs, slots::AT_ONCE, |program| {
        let gpu = Gpu::take();
        let output = |runtime: &dyn Runtime| {
            let run = gpu.directed(program, runtime)?;
            conformance::finish(run, program.directions.end).map(|end| (end.code, end.stdout, end.stderr))
        };
        if omission(program).is_some() {
            return None;
        }
        let (here, there) = (output(runtime), output(&Installed));
        let same = match (&here, &there) {
            (Ok((code, text, _)), Ok((other_code, other_text, _))) => {
                code == other_code && text == other_text
            }
            _ => false,
        };
        if !same {
            println!("{}:", program.name);
            match (here, there) {
                (Ok((_, here, stderr)), Ok((_, there, _))) => {
                    let mut both =
                        here.lines().zip(there.lines()).filter(|(here, there)| here != there).peekable();
                    if both.peek().is_none() {
                        println!("  ends early: {stderr}");
                    }
                    both.for_each(|(here, there)| println!("  here: {here}\n  AMD:  {there}"));
                }
                (here, there) => println!("  here: {:?}\n  AMD:  {:?}", here.err(), there.err()),
            }
        }
        Some(same)
    });
    let count = |wanted| results.iter().filter(|&&result| result == wanted).count();
    Outcome { passed: count(Some(true)), failed: count(Some(false)), omitted: count(None) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_programs_exist_and_have_a_reason() {
        let mut seen: Vec<&str> = Vec::new();
        for omitted in OMITTED {
            assert!(omitted.reason.len() > 20, "{omitted:?}");
            for name in omitted.programs {
                let program = Program::find(name).unwrap_or_else(|reason| panic!("{reason}"));
                assert_eq!(program.directions.kind, Kind::Executable, "{name}");
                assert!(!seen.contains(name), "{name} is listed twice");
                seen.push(name);
            }
        }
    }
}
