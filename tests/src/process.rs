//! A started program: its output as it comes, its end, and the end of everything it started.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use rustix::process::{kill_process, pidfd_open, waitid};
use serde_json::Value;
use tempfile::TempDir;

/// The output and state of a run while it goes on.
#[derive(Debug, Default)]
struct Seen {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// How many of the two streams are still open.
    open: u32,
    status: Option<ExitStatus>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the condition holds; `None` if the time is over first.
    fn wait_for<T>(&self, until: Instant, mut condition: impl FnMut(&mut Seen) -> Option<T>) -> Option<T> {
        let mut seen = self.lock();
        loop {
            if let Some(found) = condition(&mut seen) {
                return Some(found);
            }
            let left = until.checked_duration_since(Instant::now())?;
            seen = self.changed.wait_timeout(seen, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

/// A program that runs under `gpu-sim`. Dropped before its end it is killed, with all that it started.
#[derive(Debug)]
pub struct Running {
    label: String,
    executable: PathBuf,
    pid: Pid,
    input: Option<ChildStdin>,
    shared: Arc<Shared>,
    stats: Option<(TempDir, PathBuf)>,
    started: Instant,
    until: Instant,
    lines_read: usize,
}

impl Running {
    pub(crate) fn start(
        label: &str,
        command: &[PathBuf],
        executable: PathBuf,
        stats: Option<(TempDir, PathBuf)>,
        limit: Duration,
    ) -> Running {
        let mut process = Command::new(&command[0]);
        // What a run is preloaded with and told is the test's choice, not that of the shell around it.
        let inherited = std::env::vars_os().map(|(name, _)| name);
        for name in inherited.filter(|name| name == "LD_PRELOAD" || name.as_bytes().starts_with(b"XSCHED_")) {
            process.env_remove(name);
        }
        let mut child = process
            .args(&command[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", command[0].display()));
        let shared = Arc::new(Shared::default());
        shared.lock().open = 2;
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let stderr = child.stderr.take().expect("stderr is a pipe");
        collect(&shared, stdout, |seen| &mut seen.stdout);
        collect(&shared, stderr, |seen| &mut seen.stderr);
        let started = Instant::now();
        let running = Running {
            label: label.to_owned(),
            executable,
            pid: Pid::from_child(&child),
            input: child.stdin.take(),
            shared: Arc::clone(&shared),
            stats,
            started,
            until: started + limit,
            lines_read: 0,
        };
        await_end(shared, child);
        running
    }

    /// The next whole line of the program's output. The test fails if the program ends or hangs instead.
    pub fn line(&mut self) -> String {
        self.try_line().unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// The same; the error says what happened instead, and shows the output.
    pub fn try_line(&mut self) -> Result<String, String> {
        let skip = self.lines_read;
        let found = self.shared.wait_for(self.until, |seen| {
            let text = String::from_utf8_lossy(&seen.stdout);
            let complete = text.rfind('\n').map_or("", |end| &text[..end]);
            match complete.lines().nth(skip) {
                Some(line) => Some(Some(line.to_owned())),
                None if seen.status.is_some() && seen.open == 0 => Some(None),
                None => None,
            }
        });
        match found {
            Some(Some(line)) => {
                self.lines_read += 1;
                Ok(line)
            }
            Some(None) => Err(format!("{} ended without another line\n{}", self.label, self.report())),
            None => Err(self.hang("printed no further line")),
        }
    }

    /// The next whole line of the program's output, `None` at its end. The error says that neither came within this time;
    /// the program is killed then.
    pub fn next_line(&mut self, within: Duration) -> Result<Option<String>, String> {
        let skip = self.lines_read;
        let found = self.shared.wait_for(Instant::now() + within, |seen| {
            let complete =
                &seen.stdout[..seen.stdout.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)];
            match complete.split(|byte| *byte == b'\n').nth(skip).filter(|line| !line.is_empty()) {
                Some(line) => Some(Some(String::from_utf8_lossy(line).into_owned())),
                None => (seen.status.is_some() && seen.open == 0).then_some(None),
            }
        });
        match found {
            Some(line) => {
                self.lines_read += usize::from(line.is_some());
                Ok(line)
            }
            None => {
                let stacks = self.stacks();
                self.kill_tree();
                let label = &self.label;
                Err(format!("{label} hangs: no further line within {within:?}\n{}{stacks}", self.tail()))
            }
        }
    }

    fn tail(&self) -> String {
        let report = self.report();
        let lines: Vec<&str> = report.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// Returns true if it has printed a whole line that was not read yet.
    pub fn has_line(&self) -> bool {
        let seen = self.shared.lock();
        seen.stdout.iter().filter(|byte| **byte == b'\n').count() > self.lines_read
    }

    /// Gives the program an empty line of input.
    pub fn answer(&mut self) {
        self.tell("");
    }

    /// Gives the program this line of input.
    pub fn tell(&mut self, line: &str) {
        // A program that has ended, or reads no more, needs none.
        let _ = self.input.as_mut().map(|input| input.write_all(format!("{line}\n").as_bytes()));
    }

    /// Sets another limit, which counts from now.
    pub(crate) fn extend(&mut self, limit: Duration) {
        self.until = Instant::now() + limit;
    }

    /// Closes the program's input: what waits for that goes on.
    pub fn let_go(&mut self) {
        self.input = None;
    }

    /// Kills the program itself (SIGKILL) and not `gpu-sim` around it.
    pub fn kill_program(&self) {
        for victim in self.program_processes() {
            // A process that has just gone needs no signal.
            let _ = kill_process(victim, Signal::KILL);
        }
    }

    /// Kills `gpu-sim` (SIGKILL) and waits until the program has ended for that reason.
    pub fn kill_gpu_sim(self) {
        let open = |pid| pidfd_open(pid, PidfdFlags::empty());
        let programs: Vec<_> = self.program_processes().into_iter().flat_map(open).collect();
        kill_process(self.pid, Signal::KILL).expect("gpu-sim runs");
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        for program in &programs {
            let ready = poll(&mut [PollFd::new(program, PollFlags::IN)], Some(&limit));
            assert_eq!(ready, Ok(1), "{} outlives gpu-sim\n{}", self.label, self.report());
        }
    }

    /// The process that runs the program, if it runs already and still.
    pub fn program(&self) -> Option<Pid> {
        descendants(self.pid).into_iter().find(|pid| runs(*pid, &self.executable))
    }

    /// The processes that run the program; the test fails if there are none.
    fn program_processes(&self) -> Vec<Pid> {
        let found: Vec<Pid> =
            descendants(self.pid).into_iter().filter(|pid| runs(*pid, &self.executable)).collect();
        assert!(!found.is_empty(), "{} is not running\n{}", self.label, self.report());
        found
    }

    /// Closes the input and waits for the end of the program and of its output.
    pub fn finish(self) -> Finished {
        self.try_finish().unwrap_or_else(|reason| panic!("{reason}"))
    }

    /// The same; the error says what hung, and shows its output. It is killed then.
    pub fn try_finish(mut self) -> Result<Finished, String> {
        self.let_go();
        let until = self.until;
        let Some(status) = self.shared.wait_for(until, |seen| seen.status) else {
            return Err(self.hang("did not end"));
        };
        let wall = self.started.elapsed();
        // Something left behind that keeps the output open would be a fault of gpu-sim's.
        if self.shared.wait_for(until.max(Instant::now() + Duration::from_secs(5)), closed).is_none() {
            return Err(self.hang("ended, but something that it started still holds its output"));
        }
        let mut seen = self.shared.lock();
        let stdout = String::from_utf8_lossy(&std::mem::take(&mut seen.stdout)).into_owned();
        let stderr = String::from_utf8_lossy(&std::mem::take(&mut seen.stderr)).into_owned();
        drop(seen);
        let stats = self.stats.take().map(|(_keep, path)| Stats::read(&path));
        Ok(Finished { label: self.label.clone(), code: exit_code(status), stdout, stderr, wall, stats })
    }

    /// Returns everything that it has printed so far.
    pub fn report(&self) -> String {
        let seen = self.shared.lock();
        report(&String::from_utf8_lossy(&seen.stdout), &String::from_utf8_lossy(&seen.stderr))
    }

    /// Ends it, and says what it did not do.
    fn hang(&self, what: &str) -> String {
        let stacks = self.stacks();
        self.kill_tree();
        format!("{} {what} within {:?}\n{}{stacks}", self.label, self.until - self.started, self.report())
    }

    /// Writes down where the threads of a program that hangs stand, if there is a gdb: a rare hang is seen once. A line that
    /// names the files.
    fn stacks(&self) -> String {
        let programs = descendants(self.pid).into_iter().filter(|pid| runs(*pid, &self.executable));
        let mut line = String::new();
        for pid in programs {
            let path = std::env::temp_dir().join(format!("giveway-hang-{}.txt", pid.as_raw_nonzero()));
            let gdb = ["60", "gdb", "-batch", "-ex", "thread apply all backtrace 40", "-p"];
            let written = std::fs::File::create(&path).and_then(|file| {
                let mut gdb = Command::new("timeout")
                    .args(gdb)
                    .arg(pid.as_raw_nonzero().to_string())
                    .stdin(Stdio::null())
                    .stdout(file)
                    .stderr(Stdio::null())
                    .spawn()?;
                gdb.wait()
            });
            match written {
                Ok(status) if status.success() => {
                    let _ = writeln!(line, "its threads: {}", path.display());
                    let stacks = std::fs::read_to_string(&path).unwrap_or_default();
                    digest(&stacks).for_each(|frame| {
                        let _ = writeln!(line, "{frame}");
                    });
                }
                // An empty file would say nothing to nobody.
                _ => drop(std::fs::remove_file(&path)),
            }
        }
        line
    }

    fn kill_tree(&self) {
        let mut tree = descendants(self.pid);
        tree.push(self.pid);
        for pid in tree {
            // A process that has just gone needs no signal.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.input = None;
        // The process is reaped only when its status is stored, so the id is still its own here.
        let seen = self.shared.lock();
        if seen.status.is_none() {
            self.kill_tree();
        }
    }
}

/// Where each thread stands, briefly: the file may be on a machine that nobody can look at afterwards.
fn digest(stacks: &str) -> impl Iterator<Item = String> {
    let is_near =
        |line: &&str| line.strip_prefix('#').and_then(|line| line.get(..2)).is_some_and(|n| n.ends_with(' '));
    stacks.lines().filter(move |line| line.starts_with("Thread ") || is_near(line)).map(|line| {
        let at = line.split_once(" in ").map_or(line, |(_, place)| place);
        at.chars().take(100).collect()
    })
}

fn closed(seen: &mut Seen) -> Option<()> {
    (seen.open == 0).then_some(())
}

/// As a shell reports it: the exit code, or 128 + the signal.
fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn collect(shared: &Arc<Shared>, mut from: impl Read + Send + 'static, to: fn(&mut Seen) -> &mut Vec<u8>) {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let mut part = [0; 16384];
        loop {
            match from.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(n) => shared.change(|seen| to(seen).extend_from_slice(&part[..n])),
            }
        }
        shared.change(|seen| seen.open -= 1);
    });
}

/// Stores the status when the child has ended. The child is reaped under the lock that `Drop` holds while it kills, so
/// that no signal can reach another process with the same id.
fn await_end(shared: Arc<Shared>, mut child: Child) {
    std::thread::spawn(move || {
        let pid = Pid::from_child(&child);
        // Only looks: the child stays a zombie, and its id its own, until it is reaped below.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        shared.change(|seen| seen.status = Some(child.wait().expect("the child has ended")));
    });
}

/// All processes below this one, from /proc.
fn descendants(of: Pid) -> Vec<Pid> {
    let mut parents: Vec<(Pid, Pid)> = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // "pid (name) state ppid ...", where the name may hold anything.
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let parent = after_name.split_whitespace().nth(1).and_then(|parent| parent.parse().ok());
        if let Some(parent) = parent.and_then(Pid::from_raw) {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![of];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

fn runs(pid: Pid, executable: &Path) -> bool {
    let link = format!("/proc/{}/exe", pid.as_raw_nonzero());
    let name = executable.file_name();
    std::fs::read_link(link).is_ok_and(|target| target.file_name() == name)
}

fn report(stdout: &str, stderr: &str) -> String {
    let mut text = String::new();
    for (name, stream) in [("stdout", stdout), ("stderr", stderr)] {
        let _ = writeln!(text, "--- {name} ---\n{}", stream.trim_end());
    }
    text
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The program's name.
    pub label: String,
    /// The exit code as a shell reports it: 128 + the signal for a killed program.
    pub code: i32,
    /// The program's standard output.
    pub stdout: String,
    /// The standard error of the program and of `gpu-sim`.
    pub stderr: String,
    /// From start to end, by the host's clock.
    pub wall: Duration,
    stats: Option<Stats>,
}

impl Finished {
    /// Exit code 0 and "ok" as the last line, or the test fails with all that was printed. Exit code 77 means that
    /// `gpu-sim` cannot run on this machine; its sentence is the failure then.
    pub fn expect_success(&self) -> &Finished {
        assert!(self.code != 77, "gpu-sim cannot run here: {}", self.stderr.trim_end());
        let ok = self.stdout.lines().last() == Some("ok");
        assert!(
            self.code == 0 && ok,
            "{} ended with code {}{}\n{}",
            self.label,
            self.code,
            if ok { "" } else { " and did not say ok" },
            report(&self.stdout, &self.stderr)
        );
        self
    }

    /// The statistics of a run started [with them](crate::Run::with_stats).
    pub fn stats(&self) -> &Stats {
        self.stats.as_ref().expect("the run was started with_stats")
    }
}

/// `gpu-sim --stats`: JSON about the whole run.
#[derive(Clone, Debug)]
pub struct Stats {
    value: Value,
}

impl Stats {
    fn read(path: &Path) -> Stats {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("gpu-sim left no statistics in {}: {error}", path.display()));
        let value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("statistics are not JSON: {error}\n{text}"));
        Stats { value }
    }

    /// All of it.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// How often this ioctl was executed, such as `alloc_memory_of_gpu`; 0 if never.
    pub fn ioctls(&self, name: &str) -> u64 {
        let counts = self.value.get("ioctls").unwrap_or_else(|| panic!("no `ioctls` in {}", self.value));
        counts.get(name).and_then(Value::as_u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_names_threads_and_their_nearest_frames() {
        let stacks = "[New LWP 7]\nThread 2 (LWP 7 \"x\"):\n#0  ioctl (fd=3) at ioctl.c:36\n\
                      #1  0x00007f in pass_on (descriptor=3) at kfd.rs:91\n#12 0x00007f in main ()\n";
        let lines: Vec<String> = digest(stacks).collect();
        assert_eq!(
            lines,
            [
                "Thread 2 (LWP 7 \"x\"):",
                "#0  ioctl (fd=3) at ioctl.c:36",
                "pass_on (descriptor=3) at kfd.rs:91"
            ]
        );
    }
}
