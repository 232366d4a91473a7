//! `xcli run`: everything that a program needs to be scheduled, and then the program in our place.

use crate::place::Place;
use crate::server::{self, beside};
use crate::tell::tell;
use crate::trial;
use crate::words::Started;
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

/// Exit code of errors of xcli itself, as env(1) and timeout(1) have it.
pub const EXIT_ERROR: u8 = 125;
/// Exit code if the program is there and cannot be run.
const EXIT_NOT_EXECUTABLE: u8 = 126;
/// Exit code if there is no such program.
const EXIT_NOT_FOUND: u8 = 127;

const LIBRARY: &str = "libshimhip.so";
const PRELOAD: &str = "LD_PRELOAD";
/// Where AMD's kernel driver is met.
const KFD: &str = "/dev/kfd";
/// Set in programs on a simulated GPU.
const INSIDE_GPU_SIM: &str = "GPU_SIM_SOCKET";

/// What `xcli run` is told.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Decide inside the program by this policy, among its own queues, without a server
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    policy: Option<PolicyKind>,
    /// Do not run the program if no server can schedule it or the library cannot be loaded: exit code 125
    #[arg(long, conflicts_with = "policy")]
    pub strict: bool,
    /// Run on a simulated GPU (as root), which all such programs of the user share
    #[arg(long)]
    gpu_sim: bool,
    /// How deep a suspension reaches, from 1 (between commands) to 3 (into the running kernel) [default: 1]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    level: Option<PreemptLevel>,
    /// The most commands in flight [default: adaptive, or 16 with --batch]
    #[arg(long, value_name = "COMMANDS", value_parser = clap::value_parser!(u64).range(1..))]
    threshold: Option<u64>,
    /// Commands between two marks by which completion is known, up to the threshold [default: adaptive, or at most 8]
    #[arg(long, value_name = "COMMANDS", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,
    /// The library to preload [default: libshimhip.so beside xcli, or in ../lib]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
    // Behind all others, which would stand below its heading.
    #[command(flatten, next_help_heading = "What the policy is told of the program")]
    words: Started,
}

fn level(word: &str) -> Result<PreemptLevel, String> {
    let range = PreemptLevel::RANGE;
    let known = word.trim().parse().ok().and_then(PreemptLevel::from_number);
    known.ok_or_else(|| format!("a level is a whole number from {} to {}", range.start(), range.end()))
}

fn policy(word: &str) -> Result<PolicyKind, String> {
    policies::registry::by_name(word).map(|row| row.kind)
}

/// Does everything, and becomes the program; returns only if that cannot be run, with the exit code.
///
/// # Errors
/// Something that is needed is missing, or options contradict each other.
pub fn run(args: &RunArgs, place: &Place) -> anyhow::Result<u8> {
    let (library, mut variables) = variables(args, place)?;
    let loaded = trial::load(&library);
    if let Err(why) = &loaded {
        let what = format!("{} cannot be loaded: {why}", library.display());
        anyhow::ensure!(!args.strict, "{what}");
        tell(format_args!(
            "{what}{} The program runs unscheduled, as if it were started without xcli; a library that fits this machine helps \
             (docs/install.md), --strict refuses to run",
            end_of_sentence(&what)
        ));
        // The program's own LD_PRELOAD stays what it is.
        variables.clear();
    }
    let on_gpu_sim = args.gpu_sim && std::env::var_os(INSIDE_GPU_SIM).is_none_or(|socket| socket.is_empty());
    let mut command = match on_gpu_sim {
        true => gpu_sim(&variables, &args.command)?,
        false => prepare(&args.command, &variables),
    };
    if !args.gpu_sim && !Path::new(KFD).exists() {
        tell(format_args!("there is no AMD GPU here ({KFD} is missing); `xcli run --gpu-sim` simulates one"));
    }
    match args.policy {
        _ if loaded.is_err() => {}
        Some(_) => {}
        None => {
            if let Some(value) = std::env::var_os("XSCHED_POLICY").filter(|value| !value.is_empty()) {
                tell(format_args!(
                    "XSCHED_POLICY={} is not used, xserver decides; --policy decides in the program",
                    crate::table::plain(&value.to_string_lossy())
                ));
            }
            match server::ensure(place) {
                Err(error) if args.strict => return Err(error),
                Err(error) => tell(unscheduled(&format!("{error:#}"))),
                Ok(()) => {}
            }
        }
    }
    Ok(become_it(&mut command))
}

/// What is said of a program that no server schedules: what happened, why, and what to do.
fn unscheduled(why: &str) -> String {
    let end = end_of_sentence(why);
    format!(
        "{why}{end} The program runs unscheduled until a server answers; -a PATH or XSCHED_SOCKET names another place for one, \
         --policy HPF does without, --strict refuses to run"
    )
}

/// What ends a sentence that may have its end already.
fn end_of_sentence(text: &str) -> &'static str {
    if text.ends_with(['.', '?', '!']) { "" } else { "." }
}

/// The work of `xcli with`: becomes a program that finds these variables (NAME=VALUE; NAME alone is taken away).
pub fn with(variables: &[OsString], command: &[OsString]) -> u8 {
    let variables: Variables = variables.iter().map(|word| parse(word)).collect();
    become_it(&mut prepare(command, &variables))
}

/// Names with their values; without one a variable is taken away.
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

/// The library to preload, and what the program finds in its environment.
fn variables(args: &RunArgs, place: &Place) -> anyhow::Result<(PathBuf, Variables)> {
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
            set.push(("XSCHED_SOCKET".into(), Some(place.variable())));
        }
    }
    let mut options = args.words.variables();
    let numbers = [
        ("--level", "XSCHED_AUTO_XQUEUE_LEVEL", args.level.map(|level| level.to_string())),
        ("--threshold", "XSCHED_AUTO_XQUEUE_THRESHOLD", args.threshold.map(|commands| commands.to_string())),
        ("--batch", "XSCHED_AUTO_XQUEUE_BATCH_SIZE", args.batch.map(|commands| commands.to_string())),
    ];
    // What is not said here may stand in the environment already.
    let numbers = numbers.into_iter().filter(|(_, _, value)| value.is_some());
    options.extend(numbers.map(|(option, name, value)| (option.to_owned(), name, value)));
    set.extend(options.iter().map(|(_, name, value)| (name.into(), value.as_ref().map(Into::into))));
    check(&options, &set)?;
    Ok((library, set))
}

/// Whether the library will take them. Some ranges are narrower than those of hints, and one depends on another variable.
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

/// The library to preload, as an absolute path that the loader can be told.
pub fn library(option: Option<&Path>) -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let folder = this.parent().context("this program's own file lies nowhere")?;
    let found = match option {
        Some(path) if path.is_file() => path.to_owned(),
        Some(path) => bail!("--library {}: there is no such file", path.display()),
        None => {
            let places = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)];
            places.into_iter().find(|path| path.is_file()).with_context(|| {
                format!(
                    "{LIBRARY} is missing: it belongs into {} or ../lib beside it, or --library names it",
                    folder.display()
                )
            })?
        }
    };
    // Its name stays, also if that is a link: an installed library's file is called by its version, which an update takes away.
    let path = std::path::absolute(&found)
        .and_then(|found| match (found.parent(), found.file_name()) {
            (Some(folder), Some(name)) => Ok(folder.canonicalize()?.join(name)),
            _ => found.canonicalize(),
        })
        .with_context(|| format!("cannot find {}", found.display()))?;
    // The loader takes both as the end of a path, and has no way to quote them.
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b':' | b' ')) {
        bail!("{} cannot be preloaded: its path holds a colon or a space", path.display());
    }
    Ok(path)
}

/// Whether this is a copy of the library, by its name, which may go on with a version: `libshimhip.so.1`.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.strip_prefix(LIBRARY.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

/// The value of LD_PRELOAD with the library in front of what stands there already; another copy of it is left out.
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

/// The command that runs this one on the user's simulated GPU. The variables are set inside, by `xcli with`: the
/// simulated GPU itself needs no scheduling.
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

/// Returns only if it cannot: the exit code that says why, as a shell has it.
fn become_it(command: &mut Command) -> u8 {
    let error = command.exec();
    let program = Path::new(command.get_program()).display();
    let (why, code) = match error.kind() {
        ErrorKind::NotFound => ("no such program".to_owned(), EXIT_NOT_FOUND),
        _ => (error.to_string(), EXIT_NOT_EXECUTABLE),
    };
    tell(format_args!("cannot run {program}: {why}"));
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays() {
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
    fn words_lead_back_to_variables() {
        let pair = |name: &str, value: Option<&str>| (name.into(), value.map(Into::into));
        assert_eq!(parse("A=b=c".as_ref()), pair("A", Some("b=c")));
        assert_eq!(parse("A=".as_ref()), pair("A", Some("")));
        assert_eq!(parse("A".as_ref()), pair("A", None));
    }

    #[test]
    fn wrong_values_say_the_range() {
        assert!(level("4").unwrap_err().contains("1 to 3"));
        assert!(policy("FIFO").unwrap_err().contains("HPF"));
        assert_eq!(policy("hpf"), Ok(PolicyKind::Hpf));
    }
}
