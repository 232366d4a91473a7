//! One run of one setting on one device: a server, the low program and the urgent one. It is a process under
//! gpu-sim (`gpu-sim run -- xbench preempt-part session`), and the two programs are processes under `xcli
//! run`.

use super::sample::ALONE;
use super::shared_page::SharedPage;
use crate::files::RunFiles;
use crate::process::{PATIENCE, Program, this_program};
use crate::table::value_name;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// The name of the urgent program's results.
pub(super) const RECORD: &str = "record";
/// The error where HIP sees no GPU.
pub(super) const NO_GPU: &str = "the HIP runtime sees no GPU";

/// Options of the processes under `xbench preempt`.
#[derive(Debug, Clone, Args)]
pub struct PartArgs {
    #[arg(value_enum)]
    pub(super) part: Part,
    #[arg(long)]
    pub(super) dir: PathBuf,
    #[arg(long)]
    pub(super) level: u8,
    #[arg(long)]
    pub(super) kernel_us: u32,
    #[arg(long)]
    pub(super) samples: usize,
    #[arg(long)]
    pub(super) mechanism: String,
    #[arg(long)]
    pub(super) seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    Session,
    Low,
    Urgent,
}

impl Part {
    fn priority(self) -> &'static str {
        if self == Self::Urgent { "10" } else { "0" }
    }
}

impl PartArgs {
    /// Returns the options as a command line for this part.
    pub(super) fn words(&self, part: Part) -> Vec<OsString> {
        let numbers = [
            ("--level", self.level.to_string()),
            ("--kernel-us", self.kernel_us.to_string()),
            ("--samples", self.samples.to_string()),
            ("--mechanism", self.mechanism.clone()),
            ("--seed", self.seed.to_string()),
        ];
        let mut words: Vec<OsString> = vec!["preempt-part".into(), value_name(part).into()];
        words.extend(["--dir".into(), self.dir.clone().into()]);
        words.extend(numbers.into_iter().flat_map(|(name, value)| [name.into(), value.into()]));
        words
    }

    pub(super) fn kernel(&self) -> Duration {
        Duration::from_micros(self.kernel_us.into())
    }

    /// Returns the time that all arrivals may take: some kernels and waits each.
    fn patience(&self) -> Duration {
        let each = 10 * self.kernel() + Duration::from_millis(100);
        PATIENCE + each * u32::try_from(self.samples).unwrap_or(u32::MAX)
    }
}

pub(super) fn run(args: &PartArgs) -> Result<()> {
    let files = RunFiles(&args.dir);
    let this = this_program()?;
    let page = SharedPage::open(&files.page())?;
    let server = Program::server(&this.with_file_name("xserver"), &["HPF".to_owned()], &files.socket())?;
    let start = |part: Part| {
        let name = value_name(part);
        let mut command = Command::new(this.with_file_name("xcli"));
        command.arg("run").arg("-a").arg(files.socket()).args(["--priority", part.priority()]);
        if part == Part::Low {
            command.args(["--level", &args.level.to_string()]).env("XSCHED_KFD_MECHANISM", &args.mechanism);
        }
        command.arg("--").arg(&this).args(args.words(part));
        command.env("XSCHED_LOG_LEVEL", "warn").env("XSCHED_LOG_FILE", files.log(&name));
        Program::start(&name, command)
    };
    let mut low = (args.level != ALONE).then(|| start(Part::Low)).transpose()?;
    if let Some(low) = &mut low {
        low.expect("ready", PATIENCE)?;
    }
    let mut urgent = start(Part::Urgent)?;
    let measured = urgent.expect("done", args.patience());
    page.stop();
    // If the low program has failed, the urgent one only reports that it does not run.
    let ended = low.map_or(Ok(()), |low| low.end().map(drop));
    measured.map_err(|error| match &ended {
        Ok(()) => error,
        Err(reason) => anyhow::anyhow!("{error}; {reason}"),
    })?;
    ended?;
    urgent.end()?;
    server.terminate()
}
