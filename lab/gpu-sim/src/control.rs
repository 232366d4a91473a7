//! What launchers and the supervisor say to each other over the supervisor's socket: lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};

use crate::sandbox::Place;
use crate::unexecuted::Summary;

/// How a set of GPUs is made. A run that joins one leaves out what it does not insist on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Number of GPUs.
    pub gpus: Option<u32>,
    /// Partitions of each.
    pub partitions: Option<u32>,
    /// Device model.
    pub arch: Option<String>,
    /// Device memory of each, GiB.
    pub vram: Option<u64>,
    /// Model of the compute units.
    pub cu_model: Option<String>,
    /// File of kernel times.
    pub durations: Option<PathBuf>,
    /// Microseconds to save what runs.
    pub save_us: Option<u64>,
    /// Microseconds to restore it.
    pub restore_us: Option<u64>,
    /// Waves are not saved.
    pub no_cwsr: Option<bool>,
    /// Milliseconds until the driver gives queues up.
    pub preemption_timeout_ms: Option<u64>,
    /// The compute queue that never comes off.
    pub stuck_queue: Option<u32>,
    /// Which ioctls fail.
    pub fail_ioctls: Option<String>,
}

impl Setup {
    /// The first option on which a run insists and that this set has otherwise.
    pub fn conflict(&self, wanted: &Self) -> Option<String> {
        fn differ<T: PartialEq + std::fmt::Debug>(
            name: &str,
            have: &Option<T>,
            want: &Option<T>,
        ) -> Option<String> {
            (want.is_some() && want != have).then(|| format!("{name} {have:?}, not {want:?}"))
        }
        differ("gpus", &self.gpus, &wanted.gpus)
            .or_else(|| differ("partitions", &self.partitions, &wanted.partitions))
            .or_else(|| differ("arch", &self.arch, &wanted.arch))
            .or_else(|| differ("vram", &self.vram, &wanted.vram))
            .or_else(|| differ("cu-model", &self.cu_model, &wanted.cu_model))
            .or_else(|| differ("durations", &self.durations, &wanted.durations))
            .or_else(|| differ("save-us", &self.save_us, &wanted.save_us))
            .or_else(|| differ("restore-us", &self.restore_us, &wanted.restore_us))
            .or_else(|| differ("no-cwsr", &self.no_cwsr, &wanted.no_cwsr))
            .or_else(|| {
                let name = "preemption-timeout-ms";
                differ(name, &self.preemption_timeout_ms, &wanted.preemption_timeout_ms)
            })
            .or_else(|| differ("stuck-queue", &self.stuck_queue, &wanted.stuck_queue))
            .or_else(|| differ("fail-ioctls", &self.fail_ioctls, &wanted.fail_ioctls))
            .map(|text| text.replace("Some(", "").replace([')', '"'], ""))
    }
}

/// From a launcher.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToSupervisor {
    /// The first line: join.
    Join(Setup),
    /// The process that was started.
    Child(i32),
    /// Ask for the statistics so far.
    Stats,
    /// Ask which kernels of the own programs were not executed.
    Unexecuted,
    /// Ask what is running, without joining.
    Info,
    /// From now on these ioctls fail, as `--fail-ioctls` says it; none if it is empty.
    FailIoctls(String),
}

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToLauncher {
    /// The join is accepted.
    Joined {
        /// From where the supervisor was started.
        place: Place,
        /// The supervisor, whose mount namespace is to be entered.
        pid: i32,
    },
    /// What was asked for is refused, with a sentence.
    Refused(String),
    /// The answer to [`ToSupervisor::Stats`] or [`ToSupervisor::Info`].
    Report(serde_json::Value),
    /// The answer to [`ToSupervisor::Unexecuted`].
    Unexecuted(Summary),
    /// A sentence for the user.
    Message(String),
}

/// Sends one line.
pub fn send<T: Serialize>(mut stream: &UnixStream, message: &T) -> std::io::Result<()> {
    stream.write_all(&line(message)?)
}

/// Sends one line, if that takes no waiting.
///
/// # Errors
/// There is no room for all of it, or nobody at the other end. The conversation is over then.
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

/// The process that has connected, as it is called here; 0 if it has no name here, being in another pid namespace. What it
/// says of itself counts for nothing: in a container it calls itself 1.
pub fn peer(stream: &UnixStream) -> i32 {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the value has room for `length` bytes, and any bytes are a `ucred`. (rustix takes a pid of 0 for impossible.)
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

/// Receives lines.
#[derive(Debug)]
pub struct Receiver(BufReader<UnixStream>);

impl Receiver {
    /// Receives from a stream.
    pub fn new(stream: &UnixStream) -> std::io::Result<Self> {
        Ok(Self(BufReader::new(stream.try_clone()?)))
    }

    /// The next message; `None` at the end of the stream or if it makes no sense.
    pub fn next<T: for<'a> Deserialize<'a>>(&mut self) -> Option<T> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => serde_json::from_str(&line).ok(),
        }
    }
}

/// Where supervisors keep their sockets.
pub fn run_dir() -> PathBuf {
    std::env::var_os("GPU_SIM_RUN_DIR").map_or_else(|| PathBuf::from("/run/gpu-sim"), PathBuf::from)
}

/// The socket of the set called `name`.
pub fn socket(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.sock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joining_run_insists_only_on_what_it_says() {
        let have = Setup { gpus: Some(1), arch: Some("gfx90a".into()), ..Setup::default() };
        assert_eq!(have.conflict(&Setup::default()), None);
        assert_eq!(have.conflict(&Setup { gpus: Some(1), ..Setup::default() }), None);
        let conflict = have.conflict(&Setup { arch: Some("gfx942".into()), ..Setup::default() }).unwrap();
        assert_eq!(conflict, "arch gfx90a, not gfx942");
    }

    #[test]
    fn the_kernel_knows_who_has_connected() {
        let (a, _b) = UnixStream::pair().unwrap();
        assert_eq!(peer(&a), std::process::id().cast_signed());
    }

    /// The other end is there and does not read.
    #[test]
    fn a_line_that_would_have_to_wait_is_not_sent() {
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
    fn messages_survive_the_wire_and_nonsense_ends_the_conversation() {
        let (a, b) = UnixStream::pair().unwrap();
        send(&a, &ToSupervisor::Child(7)).unwrap();
        (&a).write_all(b"nonsense\n").unwrap();
        let mut receiver = Receiver::new(&b).unwrap();
        assert!(matches!(receiver.next(), Some(ToSupervisor::Child(7))));
        assert!(receiver.next::<ToSupervisor>().is_none());
    }
}
