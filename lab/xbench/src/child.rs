//! Programs that a measurement starts: how they are found and started, words to them and from them, what they complain of,
//! their end.

use crate::daemon;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a program may take to be ready, to answer, or to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// This program's own file; the project's other programs lie beside it.
pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// The library that is preloaded.
pub(crate) const LIBRARY: &str = "libshimhip.so";

/// Where a file of the project lies: beside `this`, or, if it is the library and is not there, in `../lib`, where it is installed.
pub(crate) fn beside(this: &Path, name: &str) -> PathBuf {
    let built = this.with_file_name(name);
    let installed = this.with_file_name("../lib").join(name);
    if name == LIBRARY && !built.is_file() && installed.is_file() { installed } else { built }
}

/// That these files lie beside `this`, as `beside` has it.
///
/// # Errors
/// One does not.
pub(crate) fn ensure_beside<'a>(this: &Path, needed: impl IntoIterator<Item = &'a &'a str>) -> Result<()> {
    let missing = needed.into_iter().find(|name| !beside(this, name).is_file());
    missing.map_or(Ok(()), |name| {
        bail!("xbench needs {name} beside this program; build all of them: cargo build --release --workspace")
    })
}

/// What a program is preloaded with and told is the measurement's choice, not that of the shell around us.
pub(crate) fn forget_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name == "LD_PRELOAD" || name.as_bytes().starts_with(b"XSCHED_") {
            command.env_remove(name);
        }
    }
}

/// Whoever is left when this process is killed would keep the device busy.
pub(crate) fn end_with_us(command: &mut Command) {
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            let signal = Some(rustix::process::Signal::KILL);
            rustix::process::set_parent_process_death_signal(signal).map_err(Into::into)
        })
    };
}

/// Runs one of our own programs to its end, with an environment that is forgotten before.
///
/// # Errors
/// It fails; its last words.
pub(crate) fn run(mut command: Command) -> Result<()> {
    forget_environment(&mut command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let reason = text.trim().lines().last().unwrap_or("no reason given");
        bail!("{}", reason.strip_prefix("xbench: ").unwrap_or(reason));
    }
    Ok(())
}

/// A started program; killed on drop.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: PathBuf,
}

impl Program {
    /// Starts it, with what it says on stderr in a file.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(name: &str, mut command: Command, errors: &Path) -> Result<Self> {
        let file = File::create(errors).with_context(|| format!("cannot write {}", errors.display()))?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        end_with_us(&mut command);
        let program = command.get_program().to_owned();
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Self { name: name.to_owned(), input: child.stdin.take(), child, lines, errors: errors.to_owned() })
    }

    /// Starts an `xserver` with this policy, and waits until it listens.
    ///
    /// # Errors
    /// It does not.
    pub(crate) fn server(path: &Path, policy: &[String], socket: &Path, errors: &Path) -> Result<Self> {
        let (name, words) = policy.split_first().context("no policy")?;
        let mut command = daemon::command(path, name, socket);
        command.args(words);
        let mut server = Self::start("xserver", command, errors)?;
        let listens = daemon::await_listening(&mut server.child, socket);
        listens.map_err(|error| anyhow!("{}", server.failure(&error.to_string())))?;
        Ok(server)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// It does not read any more.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let told = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        if !matches!(told, Some(Ok(()))) {
            bail!("{}", self.failure("has ended before its time"));
        }
        Ok(())
    }

    /// Waits until its next line is this word.
    ///
    /// # Errors
    /// It says something else, ends, or says nothing for `limit`.
    pub(crate) fn expect(&mut self, word: &str, limit: Duration) -> Result<()> {
        match self.lines.recv_timeout(limit) {
            Ok(line) if line == word => Ok(()),
            Ok(line) => bail!("{}", self.failure(&format!("said {line:?} instead of {word:?}"))),
            Err(RecvTimeoutError::Disconnected) => bail!("{}", self.failure("has failed")),
            Err(RecvTimeoutError::Timeout) => {
                bail!("{}", self.failure(&format!("did not say {word:?} within {} s", limit.as_secs())))
            }
        }
    }

    /// Waits for the end, which must be a success.
    ///
    /// # Errors
    /// It is none, or does not come.
    pub(crate) fn end(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.wait(PATIENCE)?;
        ensure!(status.success(), "{}", self.failure(&format!("ended with {status}")));
        Ok(())
    }

    /// Asks the program to end, and waits for that.
    ///
    /// # Errors
    /// It has ended before, or does not end.
    pub(crate) fn terminate(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{}", self.failure(&format!("ended while it was needed ({status})")));
        }
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.wait(PATIENCE)?;
        Ok(())
    }

    fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(begin.elapsed() < limit, "{}", self.failure("does not end"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A sentence with what the program said.
    fn failure(&self, what: &str) -> String {
        let text = std::fs::read_to_string(&self.errors).unwrap_or_default();
        // ROCr's complaint about the simulated render nodes is there in every run.
        let said: Vec<&str> =
            text.lines().filter(|line| !line.starts_with("amdgpu_device_initialize")).collect();
        let said = said[said.len().saturating_sub(5)..].join("; ");
        let colon = if said.is_empty() { "" } else { ": " };
        format!("the {} program {what}{colon}{said}", self.name)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_one_sentence() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("gpu-sim"), "").unwrap();
        let this = directory.path().join("xbench");
        ensure_beside(&this, &["gpu-sim"]).unwrap();
        let error = ensure_beside(&this, &["gpu-sim", "xserver"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "xbench needs xserver beside this program; build all of them: cargo build --release --workspace"
        );
    }

    #[test]
    fn an_installed_library_is_found_and_one_beside_the_program_comes_first() {
        let directory = tempfile::tempdir().unwrap();
        let this = directory.path().join("bin/xbench");
        for folder in ["bin", "lib"] {
            std::fs::create_dir(directory.path().join(folder)).unwrap();
        }
        ensure_beside(&this, &[LIBRARY]).unwrap_err();
        std::fs::write(directory.path().join("lib/libshimhip.so"), "").unwrap();
        ensure_beside(&this, &[LIBRARY]).unwrap();
        assert!(beside(&this, LIBRARY).ends_with("lib/libshimhip.so"));
        std::fs::write(directory.path().join("bin/libshimhip.so"), "").unwrap();
        assert!(beside(&this, LIBRARY).ends_with("bin/libshimhip.so"));
    }

    fn program(script: &str) -> (tempfile::TempDir, Program) {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let program = Program::start("high", command, &directory.path().join("err")).unwrap();
        (directory, program)
    }

    #[test]
    fn words_go_to_and_fro() {
        let (_directory, mut program) = program("echo ready; read line; echo \"$line\"; cat >/dev/null");
        program.expect("ready", PATIENCE).unwrap();
        program.tell("start 5").unwrap();
        program.expect("start 5", PATIENCE).unwrap();
        program.end().unwrap();
    }

    #[test]
    fn a_failure_is_told_in_the_programs_own_words() {
        let (_directory, mut failing) =
            program("echo 'amdgpu_device_initialize: x' >&2; echo 'no GPU' >&2; exit 1");
        let error = failing.expect("ready", PATIENCE).unwrap_err().to_string();
        assert_eq!(error, "the high program has failed: no GPU");
        assert!(failing.end().unwrap_err().to_string().contains("ended with exit status: 1"));
        let (_directory, mut mute) = program("cat >/dev/null");
        let error = mute.expect("ready", Duration::from_millis(1)).unwrap_err().to_string();
        assert_eq!(error, "the high program did not say \"ready\" within 0 s");
    }
}
