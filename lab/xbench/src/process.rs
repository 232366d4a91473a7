//! Programs that a measurement starts: how they are found, started, spoken to and ended.

use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The time that a program has to become ready, to answer, or to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The time that an `xserver` has to listen or to notice a client; it takes milliseconds.
pub(crate) const SERVER_PATIENCE: Duration = Duration::from_secs(10);
/// The interval between two checks of a state that sends no event.
const POLL: Duration = Duration::from_millis(2);
/// The time that a killed program has to end. One that is stuck in the driver does not, and is left alone.
const KILL_PATIENCE: Duration = Duration::from_secs(2);
/// Beginnings of lines on standard error that appear in every run: ROCr on the simulated render nodes, and
/// the library's log below warnings.
const USUAL: [&str; 3] = ["amdgpu_device_initialize", "xsched: debug:", "xsched: info:"];

pub(crate) const LIBRARY: &str = "libshimhip.so";

/// Returns the path of this program; the project's other programs lie beside it.
pub(crate) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// Returns the path of a file of the project: beside `this`, or, for an installed library, in `../lib`.
pub(crate) fn beside(this: &Path, name: &str) -> PathBuf {
    let built = this.with_file_name(name);
    let installed = this.with_file_name("../lib").join(name);
    if name == LIBRARY && !built.is_file() && installed.is_file() { installed } else { built }
}

/// Checks that [`beside`] finds these files.
pub(crate) fn ensure_beside<'a>(this: &Path, needed: impl IntoIterator<Item = &'a &'a str>) -> Result<()> {
    let missing = needed.into_iter().find(|name| !beside(this, name).is_file());
    missing.map_or(Ok(()), |name| {
        bail!("xbench needs {name} beside this program; build all of them: cargo build --release --workspace")
    })
}

/// Removes what the shell around us preloads and tells the library: the measurement alone decides that.
pub(crate) fn clear_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name == "LD_PRELOAD" || name.as_bytes().starts_with(b"XSCHED_") {
            command.env_remove(name);
        }
    }
}

/// Writes a line for the parent process.
pub(crate) fn print_word(word: &str) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{word}")?;
    Ok(out.flush()?)
}

/// Reports to the parent process that this one is ready, and waits for the moment of the start.
pub(crate) fn pass_gate() -> Result<u64> {
    print_word("ready")?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let start = line.strip_prefix("start ").and_then(|text| text.trim().parse().ok());
    start.with_context(|| format!("expected `start NS` on standard input, not {:?}", line.trim()))
}

/// Lets the kernel kill the program when the thread that starts it ends.
pub(crate) fn die_with_parent(command: &mut Command) {
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            let signal = Some(rustix::process::Signal::KILL);
            rustix::process::set_parent_process_death_signal(signal).map_err(Into::into)
        })
    };
}

/// Runs one of our own programs to its end, in a cleared environment.
pub(crate) fn run(mut command: Command) -> Result<()> {
    clear_environment(&mut command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let reason = text.trim().lines().last().unwrap_or("it gives no reason");
        bail!("{}", reason.strip_prefix("xbench: ").unwrap_or(reason));
    }
    Ok(())
}

/// Repeats a check until it has a result; `None` if that does not come within `limit`.
pub(crate) fn poll<T>(limit: Duration, mut check: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let begin = Instant::now();
    loop {
        let found = check()?;
        if found.is_some() || begin.elapsed() > limit {
            return Ok(found);
        }
        std::thread::sleep(POLL);
    }
}

/// A started program; killed on drop, and by the kernel when this process dies.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: File,
}

impl Program {
    /// Starts a command; `name` is for error messages.
    pub(crate) fn start(name: &str, mut command: Command) -> Result<Self> {
        let errors = tempfile::tempfile().context("cannot make a temporary file")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.try_clone()?);
        die_with_parent(&mut command);
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let (sender, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Self { name: name.to_owned(), input: child.stdin.take(), child, lines, errors })
    }

    /// Starts an `xserver` with this policy and its options, and waits until it listens.
    pub(crate) fn server(path: &Path, policy: &[String], socket: &Path) -> Result<Self> {
        let mut command = Command::new(path);
        command
            .args(policy)
            .env("XSCHED_SOCKET", socket)
            .env("XSCHED_LOG_LEVEL", "warn")
            .env_remove("LD_PRELOAD");
        let mut server = Self::start("xserver", command)?;
        let listens = poll(SERVER_PATIENCE, || {
            if let Some(status) = server.child.try_wait()? {
                bail!("{}", server.failure(&format!("ended with {status}")));
            }
            Ok(UnixStream::connect(socket).ok())
        })?;
        listens.with_context(|| server.failure(&format!("does not listen on {}", socket.display())))?;
        Ok(server)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its standard input.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let told = self.input.as_mut().map(|input| writeln!(input, "{line}"));
        ensure!(matches!(told, Some(Ok(()))), "{}", self.failure("ended too early"));
        Ok(())
    }

    /// Returns the next line of its standard output.
    pub(crate) fn line(&mut self, limit: Duration) -> Result<String> {
        self.lines.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Disconnected => anyhow::anyhow!("{}", self.failure("has failed")),
            RecvTimeoutError::Timeout => {
                anyhow::anyhow!("{}", self.failure(&format!("did not answer within {} s", limit.as_secs())))
            }
        })
    }

    /// Waits until its next line is this word.
    pub(crate) fn expect(&mut self, word: &str, limit: Duration) -> Result<()> {
        let line = self.line(limit)?;
        ensure!(line == word, "{}", self.failure(&format!("printed {line:?} instead of {word:?}")));
        Ok(())
    }

    /// Returns the remaining lines of its standard output, as far as they arrive within `limit`.
    pub(crate) fn remaining_lines(&self, limit: Duration) -> Vec<String> {
        let end = Instant::now() + limit;
        let next = || self.lines.recv_timeout(end.saturating_duration_since(Instant::now())).ok();
        std::iter::from_fn(next).collect()
    }

    /// Waits for its end, which must be a success, and returns what it wrote to standard error.
    pub(crate) fn end(mut self) -> Result<String> {
        drop(self.input.take());
        let status = self.wait(PATIENCE)?;
        let status = status.with_context(|| self.failure("does not end"))?;
        ensure!(status.success(), "{}", self.failure(&format!("ended with {status}")));
        Ok(self.errors())
    }

    /// Sends SIGTERM to the program, which must still run, and waits for its end.
    pub(crate) fn terminate(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{}", self.failure(&format!("ended while it was needed ({status})")));
        }
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.wait(PATIENCE)?.with_context(|| self.failure("does not end"))?;
        Ok(())
    }

    /// Waits for its end; `None` if that does not come within `limit`.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        poll(limit, || self.child.try_wait().context("cannot wait for a program"))
    }

    /// Returns what it has written to standard error so far.
    pub(crate) fn errors(&self) -> String {
        let length = self.errors.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; length as usize];
        // The child writes at the offset that both share, so the read must not move it.
        let _ = self.errors.read_exact_at(&mut bytes, 0);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns a sentence with the last lines that the program wrote to standard error.
    fn failure(&self, what: &str) -> String {
        format!("the {} program {what}{}", self.name, last_words(&self.errors()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.wait(KILL_PATIENCE);
    }
}

/// Returns the last lines of a program's standard error, without those that every run has, as the end of a
/// sentence.
pub(crate) fn last_words(errors: &str) -> String {
    let usual = |line: &&str| !USUAL.iter().any(|usual| line.starts_with(usual));
    let lines: Vec<&str> = errors.lines().filter(usual).collect();
    let last = lines[lines.len().saturating_sub(5)..].iter();
    let last: Vec<_> = last.map(|line| line.strip_prefix("xbench: ").unwrap_or(line)).collect();
    if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_program_is_named_in_one_sentence() {
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
    fn library_beside_program_comes_before_installed_one() {
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

    fn program(script: &str) -> Program {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Program::start("high", command).unwrap()
    }

    #[test]
    fn lines_go_to_and_from_a_program() {
        let mut program = program("echo ready; read line; echo \"$line\"; cat; echo late; echo warning >&2");
        program.expect("ready", PATIENCE).unwrap();
        program.tell("start 5").unwrap();
        assert_eq!(program.line(PATIENCE).unwrap(), "start 5");
        drop(program.input.take());
        assert_eq!(program.remaining_lines(PATIENCE), ["late"]);
        assert_eq!(program.end().unwrap(), "warning\n");
    }

    #[test]
    fn failure_ends_with_the_last_words_of_the_program() {
        let mut failing =
            program("echo 'amdgpu_device_initialize: x' >&2; echo 'xbench: no GPU' >&2; exit 1");
        let error = failing.expect("ready", PATIENCE).unwrap_err().to_string();
        assert_eq!(error, "the high program has failed: no GPU");
        assert!(failing.end().unwrap_err().to_string().contains("ended with exit status: 1"));
        let mut mute = program("cat >/dev/null");
        let error = mute.expect("ready", Duration::from_millis(1)).unwrap_err().to_string();
        assert_eq!(error, "the high program did not answer within 0 s");
        assert_eq!(last_words("xsched: debug: calls launch=1\n"), "");
    }

    #[test]
    fn server_that_ends_is_an_error() {
        let server = |path: &str| Program::server(Path::new(path), &[], Path::new("/nowhere/socket"));
        let error = server("/bin/false").unwrap_err().to_string();
        assert!(error.starts_with("the xserver program ended with exit status"), "{error}");
        assert_eq!(server("/nowhere/xserver").unwrap_err().to_string(), "cannot start /nowhere/xserver");
    }
}
