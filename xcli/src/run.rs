//! `xcli run`: sets up the environment of a scheduled program, and becomes the program.

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::hint_options::{self, HintOptions};
use crate::output::warn;
use crate::server::{self, beside};
use crate::trial;
use anyhow::{Context as _, bail};
use protocol::codes::PreemptLevel;
use protocol::config::Config;
use protocol::policy::PolicyKind;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit code if xcli itself fails, as for env(1) and timeout(1).
pub const EXIT_ERROR: u8 = 125;
/// Exit code if the program exists but cannot be run.
const EXIT_NOT_EXECUTABLE: u8 = 126;
/// Exit code if the program does not exist.
const EXIT_NOT_FOUND: u8 = 127;

const LIBRARY: &str = "libshimhip.so";
const PRELOAD: &str = "LD_PRELOAD";
/// The device of AMD's compute driver.
const KFD: &str = "/dev/kfd";
/// Set in programs on a simulated GPU.
const INSIDE_GPU_SIM: &str = "GPU_SIM_SOCKET";

/// The arguments of `xcli run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Schedule the queues of the program by this policy inside the program, without a server
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    policy: Option<PolicyKind>,
    /// Do not run the program (exit code 125) if no server can schedule it or the library cannot be loaded
    #[arg(long, conflicts_with = "policy")]
    pub strict: bool,
    /// Run on a simulated GPU (as root), which all programs of the user with this option share
    #[arg(long)]
    gpu_sim: bool,
    /// The preemption level, from 1 (between commands) to 3 (inside a running kernel) [default: 1]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    level: Option<PreemptLevel>,
    /// The maximum number of commands in flight [default: adaptive, or 16 with --batch]
    #[arg(long, value_name = "COMMANDS", value_parser = clap::value_parser!(u64).range(1..))]
    threshold: Option<u64>,
    /// The number of commands between two completion markers, up to the threshold [default: adaptive, or at most 8]
    #[arg(long, value_name = "COMMANDS", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,
    /// The library to preload [default: libshimhip.so beside xcli, or in ../lib]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
    // The heading applies to all options that follow, so these come last.
    #[command(flatten, next_help_heading = "Hints for the policy")]
    hints: HintOptions<false>,
}

fn level(word: &str) -> Result<PreemptLevel, Error> {
    let known = word.trim().parse().ok().and_then(PreemptLevel::from_number);
    known.ok_or(Error::NotALevel)
}

fn policy(word: &str) -> Result<PolicyKind, Error> {
    policies::registry::by_name(word).map(|row| row.kind).map_err(Error::Policy)
}

/// Becomes the program. Returns only if the program cannot be run, with the exit code.
///
/// # Errors
/// A required file is missing, or options contradict each other.
pub fn run(args: &RunArgs, endpoint: &Endpoint) -> anyhow::Result<u8> {
    let (library, mut variables) = variables(args, endpoint)?;
    let loaded = trial::load(&library);
    if let Err(why) = &loaded {
        let what = format!("{} cannot be loaded: {why}", library.display());
        anyhow::ensure!(!args.strict, "{what}");
        warn(format_args!(
            "{what}{} The program runs unscheduled, as without xcli. Install a library that fits this machine (docs/install.md); with \
             --strict the program does not run",
            end_of_sentence(&what)
        ));
        // The program keeps its own LD_PRELOAD.
        variables.clear();
    }
    let on_gpu_sim = args.gpu_sim && std::env::var_os(INSIDE_GPU_SIM).is_none_or(|socket| socket.is_empty());
    let mut command = match on_gpu_sim {
        true => gpu_sim(&variables, &args.command)?,
        false => prepare(&args.command, &variables),
    };
    if !args.gpu_sim && !Path::new(KFD).exists() {
        warn(format_args!(
            "this machine has no AMD GPU ({KFD} is missing); `xcli run --gpu-sim` simulates one"
        ));
    }
    match args.policy {
        _ if loaded.is_err() => {}
        Some(_) => {}
        None => {
            if let Some(value) = std::env::var_os("XSCHED_POLICY").filter(|value| !value.is_empty()) {
                warn(format_args!(
                    "XSCHED_POLICY={} has no effect, because xserver decides; use --policy to decide inside the program",
                    crate::table::plain(&value.to_string_lossy())
                ));
            }
            match server::ensure(endpoint) {
                Err(error) if args.strict => return Err(error),
                Err(error) => warn(unscheduled(&format!("{error:#}"))),
                Ok(()) => {}
            }
        }
    }
    Ok(exec(&mut command))
}

/// The warning for a program that no server schedules.
fn unscheduled(why: &str) -> String {
    let end = end_of_sentence(why);
    format!(
        "{why}{end} The program runs unscheduled until a server answers. Use -a PATH or XSCHED_SOCKET for another server, --policy HPF \
         for none; with --strict the program does not run"
    )
}

/// A full stop, unless the text ends a sentence already.
fn end_of_sentence(text: &str) -> &'static str {
    if text.ends_with(['.', '?', '!']) { "" } else { "." }
}

/// The work of `xcli with`: becomes a program with these variables (NAME=VALUE; NAME alone removes one).
pub fn with(variables: &[OsString], command: &[OsString]) -> u8 {
    let variables: Variables = variables.iter().map(|word| parse(word)).collect();
    exec(&mut prepare(command, &variables))
}

/// Variables with their values; a variable without a value is removed.
type Variables = Vec<(OsString, Option<OsString>)>;

fn parse(word: &OsStr) -> (OsString, Option<OsString>) {
    let bytes = word.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(at) => {
            (OsString::from_vec(bytes[..at].to_vec()), Some(OsString::from_vec(bytes[at + 1..].to_vec())))
        }
        None => (word.to_owned(), None),
    }
}

/// The library to preload, and the environment of the program.
fn variables(args: &RunArgs, endpoint: &Endpoint) -> anyhow::Result<(PathBuf, Variables)> {
    let library = library(args.library.as_deref())?;
    let preload = preload(&library, std::env::var_os(PRELOAD).as_deref())?;
    let mut set: Variables = vec![
        (PRELOAD.into(), Some(preload)),
        ("XSCHED_AUTO_XQUEUE".into(), Some("ON".into())),
        // A policy in the environment would force the local scheduler.
        ("XSCHED_POLICY".into(), args.policy.map(|policy| policy.name().into())),
    ];
    match args.policy {
        Some(_) => set.push(("XSCHED_SCHEDULER".into(), Some("LCL".into()))),
        None => {
            set.push(("XSCHED_SCHEDULER".into(), Some("GLB".into())));
            set.push(("XSCHED_SOCKET".into(), Some(endpoint.variable())));
        }
    }
    anyhow::ensure!(
        args.policy.is_none() || !args.hints.has_name(),
        "only a server has names for priorities, and with --policy there is none: type a number"
    );
    let mut options = hint_options::variables(&args.hints.resolve(endpoint)?);
    let numbers = [
        ("--level", "XSCHED_AUTO_XQUEUE_LEVEL", args.level.map(|level| level.to_string())),
        ("--threshold", "XSCHED_AUTO_XQUEUE_THRESHOLD", args.threshold.map(|commands| commands.to_string())),
        ("--batch", "XSCHED_AUTO_XQUEUE_BATCH_SIZE", args.batch.map(|commands| commands.to_string())),
    ];
    // The environment may already set options that are not given here.
    let numbers = numbers.into_iter().filter(|(_, _, value)| value.is_some());
    options.extend(numbers.map(|(option, name, value)| (option.to_owned(), name, value)));
    set.extend(options.iter().map(|(_, name, value)| (name.into(), value.as_ref().map(Into::into))));
    check(&options, &set)?;
    Ok((library, set))
}

/// Checks that the library accepts the options. Some ranges are narrower than those of `xcli hint`, and one depends on
/// another option.
fn check(options: &[(String, &str, Option<String>)], set: &Variables) -> anyhow::Result<()> {
    let get = |name: &str| match set.iter().find(|(set, _)| set == name) {
        Some((_, value)) => value.clone(),
        None => std::env::var_os(name),
    };
    let (_, refused) = Config::read(get, &[]);
    for (option, name, _) in options {
        if let Some(error) = refused.iter().find(|error| error.var == *name) {
            bail!("{option} {}: expected {}", error.value.display(), error.expected);
        }
    }
    Ok(())
}

/// Finds the library to preload. Returns an absolute path that LD_PRELOAD can hold.
pub fn library(option: Option<&Path>) -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let folder = this.parent().context("this program's own file lies nowhere")?;
    let found = match option {
        Some(path) if path.is_file() => path.to_owned(),
        Some(path) => bail!("--library {}: there is no such file", path.display()),
        None => {
            let candidates = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)];
            candidates.into_iter().find(|path| path.is_file()).with_context(|| {
                format!(
                    "{LIBRARY} is missing: install it in {} or in ../lib beside it, or specify --library FILE",
                    folder.display()
                )
            })?
        }
    };
    // A link is kept: its target has the version in its name, and an update removes it.
    let path = std::path::absolute(&found)
        .and_then(|found| match (found.parent(), found.file_name()) {
            (Some(folder), Some(name)) => Ok(folder.canonicalize()?.join(name)),
            _ => found.canonicalize(),
        })
        .with_context(|| format!("cannot find {}", found.display()))?;
    // The loader separates paths at both characters and has no quoting.
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b':' | b' ')) {
        bail!("{} cannot be preloaded: its path contains a colon or a space; move it", path.display());
    }
    Ok(path)
}

/// Returns true if the file is a copy of the library by its name, possibly with a version: `libshimhip.so.1`.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.strip_prefix(LIBRARY.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

/// The value of LD_PRELOAD with the library in front, without other copies of it.
fn preload(library: &Path, existing: Option<&OsStr>) -> anyhow::Result<OsString> {
    let mut value = library.as_os_str().to_owned();
    let existing = existing.unwrap_or_default().as_bytes();
    for part in existing.split(|byte| matches!(byte, b':' | b' ')).filter(|part| !part.is_empty()) {
        let part = OsStr::from_bytes(part);
        if !is_ours(Path::new(part)) {
            value.push(":");
            value.push(part);
        }
    }
    Ok(value)
}

/// The command that runs the program on the user's simulated GPU. `xcli with` sets the variables inside, so that gpu-sim itself is not
/// scheduled.
fn gpu_sim(variables: &Variables, words: &[OsString]) -> anyhow::Result<Command> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(beside("gpu-sim")?);
    command
        .args(["run", "--name"])
        .arg(format!("user-{}", rustix::process::geteuid()))
        .arg("--")
        .arg(this)
        .arg("with");
    for (name, value) in variables {
        let mut word = name.clone();
        if let Some(value) = value {
            word.push("=");
            word.push(value);
        }
        command.arg(word);
    }
    command.arg("--").args(words);
    Ok(command)
}

fn prepare(words: &[OsString], variables: &Variables) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Becomes the program. Returns only on failure, with the exit code that a shell would use.
fn exec(command: &mut Command) -> u8 {
    let error = command.exec();
    let program = Path::new(command.get_program()).display();
    let (why, code) = match error.kind() {
        ErrorKind::NotFound => ("no such program".to_owned(), EXIT_NOT_FOUND),
        _ => (error.to_string(), EXIT_NOT_EXECUTABLE),
    };
    warn(format_args!("cannot run {program}: {why}"));
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_preloads_are_kept() {
        let with = |existing: &str| {
            let value = preload(Path::new("/x/libshimhip.so"), Some(existing.as_ref())).unwrap();
            value.into_string().unwrap()
        };
        assert_eq!(with(""), "/x/libshimhip.so");
        assert_eq!(with("/a.so: b.so"), "/x/libshimhip.so:/a.so:b.so");
        assert_eq!(with("/old/libshimhip.so:/a.so"), "/x/libshimhip.so:/a.so");
        assert_eq!(with("/old/libshimhip.so.1:/libshimhip.so2"), "/x/libshimhip.so:/libshimhip.so2");
    }

    #[test]
    fn variables_are_parsed_from_words() {
        let pair = |name: &str, value: Option<&str>| (name.into(), value.map(Into::into));
        assert_eq!(parse("A=b=c".as_ref()), pair("A", Some("b=c")));
        assert_eq!(parse("A=".as_ref()), pair("A", Some("")));
        assert_eq!(parse("A".as_ref()), pair("A", None));
    }

    #[test]
    fn wrong_values_name_the_range() {
        assert!(level("4").unwrap_err().to_string().contains("1 to 3"));
        assert!(policy("FIFO").unwrap_err().to_string().contains("HPF"));
        assert_eq!(policy("hpf"), Ok(PolicyKind::Hpf));
    }
}
