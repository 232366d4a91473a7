//! The messages between launchers and the supervisor over its socket: lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};

use crate::sandbox::Place;
use crate::unexecuted::Summary;

/// The options of a set of GPUs. A run that joins a set states only the options that it requires.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Number of GPUs (1 to 8) [default: 1]
    #[arg(long)]
    pub gpus: Option<u32>,
    /// Partitions of each GPU, as in compute partition mode CPX: devices at one PCI address that divide
    /// compute units and memory (gfx942 and gfx950: 2, 4 or 8) [default: 1]
    #[arg(long, value_name = "N")]
    pub partitions: Option<u32>,
    /// Device model [default: gfx90a]
    #[arg(long)]
    pub arch: Option<String>,
    /// Memory of each GPU (1 to 1024) [default: 64]
    #[arg(long, value_name = "GIB")]
    pub vram: Option<u64>,
    /// The model by which kernels share the compute units [default: shared]
    #[arg(long)]
    pub cu_model: Option<CuModel>,
    /// File with a JSON object that maps kernel names, or prefixes ending in '*', to microseconds
    #[arg(long, value_name = "FILE")]
    pub durations: Option<PathBuf>,
    /// Microseconds that the device takes to save the running waves of evicted queues [default: 0]
    #[arg(long, value_name = "N")]
    pub save_us: Option<u64>,
    /// Microseconds that the device takes to restore saved waves [default: 0]
    #[arg(long, value_name = "N")]
    pub restore_us: Option<u64>,
    /// Do not save waves: an eviction waits until the kernels of the queue have ended
    #[arg(long, num_args = 0, default_missing_value = "true")]
    pub no_cwsr: Option<bool>,
    /// Milliseconds after which a failed eviction makes the driver reset the device [default: 9000]
    #[arg(long, value_name = "N")]
    pub preemption_timeout_ms: Option<u64>,
    /// Make the N-th compute queue impossible to evict while it has a kernel
    #[arg(long, value_name = "N")]
    pub stuck_queue: Option<u32>,
    /// Fail ioctls at random: one in ONE_IN (16) of these REQUESTs (by default those that evictions need),
    /// ROW times in a row (1), after which the next one succeeds
    #[arg(long, value_name = "SEED[:ONE_IN[:REQUEST,...[:ROW]]]")]
    pub fail_ioctls: Option<String>,
    /// Record when each process's kernels arrived, ran and ended and when its queues were off the hardware, as
    /// binary records (docs/simulate.md)
    #[arg(long, value_name = "FILE")]
    pub timeline: Option<PathBuf>,
}

/// The model by which kernels share the compute units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CuModel {
    /// Work-groups of all queues are placed in turn as slots become free.
    Shared,
    /// One kernel at a time, in order of arrival.
    Fcfs,
}

impl std::fmt::Display for CuModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::Shared { "shared" } else { "fcfs" })
    }
}

impl Setup {
    /// Returns the first option that a run requires and that this set has with another value.
    pub fn conflict(&self, wanted: &Self) -> Option<String> {
        let options = self.options().into_iter().zip(wanted.options());
        let mut conflicts = options.filter(|((_, have), (_, want))| want.is_some() && have != want);
        let ((name, have), (_, want)) = conflicts.next()?;
        Some(format!("{name} {}, not {}", have.as_deref().unwrap_or("None"), want.unwrap_or_default()))
    }

    /// Returns the names of all options, and the values of those that are set.
    fn options(&self) -> [(&'static str, Option<String>); 13] {
        fn text<T: ToString>(value: &Option<T>) -> Option<String> {
            value.as_ref().map(T::to_string)
        }
        [
            ("gpus", text(&self.gpus)),
            ("partitions", text(&self.partitions)),
            ("arch", text(&self.arch)),
            ("vram", text(&self.vram)),
            ("cu-model", text(&self.cu_model)),
            ("durations", self.durations.as_ref().map(|path| path.display().to_string())),
            ("save-us", text(&self.save_us)),
            ("restore-us", text(&self.restore_us)),
            ("no-cwsr", text(&self.no_cwsr)),
            ("preemption-timeout-ms", text(&self.preemption_timeout_ms)),
            ("stuck-queue", text(&self.stuck_queue)),
            ("fail-ioctls", text(&self.fail_ioctls)),
            ("timeline", self.timeline.as_ref().map(|path| path.display().to_string())),
        ]
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToSupervisor {
    /// Joins the set; the first message of a run.
    Join(Setup),
    /// States the process that the launcher has started.
    Child(i32),
    /// Requests the statistics so far.
    Stats,
    /// Requests that the timeline so far is written.
    Record,
    /// Requests the kernels of the launcher's programs that were not executed.
    Unexecuted,
    /// Requests the state of the machine, without joining.
    Info,
    /// Makes these ioctls fail from now on, in the syntax of `--fail-ioctls`; none if the text is empty.
    FailIoctls(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToLauncher {
    /// The launcher has joined.
    Joined {
        /// The place from which the supervisor was started.
        place: Place,
        /// The pid of the supervisor, whose mount namespace the command enters.
        pid: i32,
    },
    /// The request is refused, for this reason.
    Refused(String),
    /// The answer to [`ToSupervisor::Stats`], [`ToSupervisor::Info`] or [`ToSupervisor::Record`].
    Report(serde_json::Value),
    /// The answer to [`ToSupervisor::Unexecuted`].
    Unexecuted(Summary),
    /// A message for the user.
    Message(String),
}

pub fn send<T: Serialize>(mut stream: &UnixStream, message: &T) -> std::io::Result<()> {
    stream.write_all(&line(message)?)
}

/// Sends one line without waiting.
///
/// # Errors
/// The socket has no room for the whole line, or the other end is closed. The connection is unusable then.
pub fn send_at_once<T: Serialize>(stream: &UnixStream, message: &T) -> std::io::Result<()> {
    let line = line(message)?;
    match rustix::net::send(stream, &line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)? {
        sent if sent == line.len() => Ok(()),
        _ => Err(std::io::ErrorKind::WriteZero.into()),
    }
}

fn line<T: Serialize>(message: &T) -> std::io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Returns the pid of the connected process in this pid namespace; 0 if it has none here. The kernel reports
/// it, because a process in a container knows itself by another pid.
pub fn peer(stream: &UnixStream) -> i32 {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` has room for `length` bytes, any bytes are a valid `ucred`, and both outlive the call.
    // (rustix rejects a pid of 0.)
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if result == 0 { peer.pid } else { 0 }
}

#[derive(Debug)]
pub struct Receiver(BufReader<UnixStream>);

impl Receiver {
    pub fn new(stream: &UnixStream) -> std::io::Result<Self> {
        Ok(Self(BufReader::new(stream.try_clone()?)))
    }

    /// Returns the next message; `None` at the end of the stream or for an invalid one.
    pub fn next<T: for<'a> Deserialize<'a>>(&mut self) -> Option<T> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => serde_json::from_str(&line).ok(),
        }
    }
}

/// Returns the folder with the sockets of supervisors.
pub fn run_dir() -> PathBuf {
    std::env::var_os("GPU_SIM_RUN_DIR").map_or_else(|| PathBuf::from("/run/gpu-sim"), PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_conflicts_only_on_stated_options() {
        let have = Setup { gpus: Some(1), arch: Some("gfx90a".into()), ..Setup::default() };
        assert_eq!(have.conflict(&Setup::default()), None);
        assert_eq!(have.conflict(&Setup { gpus: Some(1), ..Setup::default() }), None);
        let conflict = have.conflict(&Setup { arch: Some("gfx942".into()), ..Setup::default() }).unwrap();
        assert_eq!(conflict, "arch gfx90a, not gfx942");
    }

    #[test]
    fn peer_is_the_connected_process() {
        let (a, _b) = UnixStream::pair().unwrap();
        assert_eq!(peer(&a), std::process::id().cast_signed());
    }

    /// The other end is open and does not read.
    #[test]
    fn line_that_would_block_is_not_sent() {
        let (a, b) = UnixStream::pair().unwrap();
        send_at_once(&a, &ToSupervisor::Child(7)).unwrap();
        assert!(matches!(Receiver::new(&b).unwrap().next(), Some(ToSupervisor::Child(7))));
        let refused = (0..1 << 20).find_map(|_| send_at_once(&a, &ToSupervisor::Unexecuted).err());
        assert_eq!(refused.unwrap().kind(), std::io::ErrorKind::WouldBlock);
        drop(b);
        let refused = send_at_once(&a, &ToSupervisor::Unexecuted).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn message_is_received_and_invalid_line_ends_the_stream() {
        let (a, b) = UnixStream::pair().unwrap();
        send(&a, &ToSupervisor::Child(7)).unwrap();
        (&a).write_all(b"nonsense\n").unwrap();
        let mut receiver = Receiver::new(&b).unwrap();
        assert!(matches!(receiver.next(), Some(ToSupervisor::Child(7))));
        assert!(receiver.next::<ToSupervisor>().is_none());
    }
}
