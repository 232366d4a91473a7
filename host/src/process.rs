//! The status of a process in `/proc/PID/status` (`proc_pid_status` in `fs/proc/array.c`), and the reason why
//! a process may not be traced (`__ptrace_may_access` in `kernel/ptrace.c`, `cap_ptrace_access_check`, Yama's
//! `yama_ptrace_access_check`).

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

/// The file with the setting of Yama.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
/// `CAP_SYS_PTRACE` of `include/uapi/linux/capability.h`.
const SYS_PTRACE: u64 = 1 << 19;

/// The status of a process or thread. A field that an older kernel does not have is empty or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The letter of the state: `R`, `S`, `D`, `T` stopped, `t` stopped by a tracer, `Z` and `X` ended.
    pub state: u8,
    /// The pid; of a thread, the pid of its process. 0 if unknown.
    pub process: u32,
    /// The user ids: real, effective, saved, file system.
    pub uids: Vec<u32>,
    /// The group ids, in the same order.
    pub gids: Vec<u32>,
    /// The pid of the tracer; 0 if there is none, or if it is outside this pid namespace.
    pub tracer: u32,
    /// The pids from this pid namespace down to its own; empty where the kernel has no pid namespaces.
    pub numbers: Vec<u32>,
    /// The permitted capabilities.
    pub permitted: u64,
    /// The effective capabilities.
    pub effective: u64,
}

/// Reads the name of a process. It can hold any characters.
///
/// # Errors
/// There is no such process, or `/proc` hides it.
pub fn name(pid: u32) -> io::Result<String> {
    let name = fs::read(format!("/proc/{pid}/comm"))?;
    // The kernel cuts a name at 15 bytes, possibly inside a character.
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned())
}

/// Returns true if there is a process with this pid, even if `/proc` hides it: signal 0 tells.
pub fn exists(pid: u32) -> bool {
    let Some(pid) = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0) else { return false };
    // SAFETY: signal 0 is sent to nobody; the kernel only looks for the process.
    let sent = unsafe { libc::kill(pid, 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

impl Status {
    /// Reads the status of a process or thread.
    ///
    /// # Errors
    /// `NotFound`: there is no such process, or `/proc` hides it. Any other error: it has just ended.
    pub fn read(pid: u32) -> io::Result<Self> {
        // The name of a process can be any bytes.
        fs::read(format!("/proc/{pid}/status")).map(|bytes| Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    fn parse(text: &str) -> Self {
        // The kernel escapes a line feed in the name, so that the name cannot forge a line.
        let field = |name: &str| {
            let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
            text.lines().find_map(value).unwrap_or_default()
        };
        let numbers = |name: &str| -> Vec<u32> {
            field(name).split_whitespace().filter_map(|number| number.parse().ok()).collect()
        };
        let capabilities = |name: &str| u64::from_str_radix(&field(name), 16).unwrap_or(0);
        Self {
            state: field("State").bytes().next().unwrap_or(0),
            process: field("Tgid").parse().unwrap_or(0),
            uids: numbers("Uid"),
            gids: numbers("Gid"),
            tracer: field("TracerPid").parse().unwrap_or(0),
            numbers: numbers("NSpid"),
            permitted: capabilities("CapPrm"),
            effective: capabilities("CapEff"),
        }
    }

    /// Returns true if it is stopped, by a signal or by a tracer.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// Returns true if it has ended and its parent has not waited for it.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    /// Returns true if its real, effective and saved user are this user, which excludes set-user-ID programs.
    pub fn is_of(&self, uid: u32) -> bool {
        self.uids.len() > 2 && self.uids.iter().take(3).all(|other| *other == uid)
    }
}

/// The reason why this process must not trace another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untraceable {
    /// The other process is this process.
    Own,
    /// This process traces it already.
    Traced(u32),
    /// Yama forbids it by this setting, 1 to 3.
    Yama(u32),
    /// It acts for this other user.
    Owner(u32),
    /// It has capabilities that this process lacks.
    Capabilities,
    /// Its memory is protected: `PR_SET_DUMPABLE`, or a program file that may not be read.
    Undumpable,
    /// The reason is unknown.
    Unknown,
}

impl fmt::Display for Untraceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NEEDS: &str = "which takes CAP_SYS_PTRACE";
        match self {
            Self::Own => f.write_str("a process cannot trace itself"),
            Self::Traced(tracer) => {
                write!(f, "process {tracer} (a debugger or strace) traces it already")
            }
            Self::Yama(scope @ 3..) => write!(f, "Yama forbids tracing for every user ({YAMA} is {scope})"),
            Self::Yama(scope) => write!(f, "Yama forbids it ({YAMA} is {scope}), {NEEDS}"),
            Self::Owner(uid) => write!(f, "it belongs to user {uid}, {NEEDS}"),
            Self::Capabilities => write!(f, "it has capabilities that the tracer lacks, {NEEDS}"),
            Self::Undumpable => write!(f, "its memory is protected (PR_SET_DUMPABLE), {NEEDS}"),
            Self::Unknown => f.write_str(
                "a container, a security module or a debugger in another pid namespace may be the reason, or another user \
                 namespace",
            ),
        }
    }
}

impl Untraceable {
    /// Finds the reason why the kernel refused (EPERM) that this process traces that one.
    pub fn of(pid: u32) -> Self {
        let own = Status::read(std::process::id());
        let (Ok(own), Ok(other)) = (own, Status::read(pid)) else { return Self::Unknown };
        if pid == std::process::id() {
            return Self::Own;
        }
        let yama = fs::read_to_string(YAMA).ok().and_then(|scope| scope.trim().parse().ok());
        // The folder belongs to the effective user, or to root if the memory is protected.
        let folder = fs::metadata(format!("/proc/{pid}")).ok().map(|metadata| metadata.uid());
        Self::judge(&own, &other, yama, folder)
    }

    /// Judges by the status of both processes, the setting of Yama, and the owner of the other's folder in
    /// `/proc`.
    fn judge(own: &Status, other: &Status, yama: Option<u32>, folder: Option<u32>) -> Self {
        let has_right = own.effective & SYS_PTRACE != 0;
        let real = own.uids.first().copied().unwrap_or(u32::MAX);
        match (other.tracer, yama) {
            (tracer @ 1.., _) => Self::Traced(tracer),
            (_, Some(scope @ 3..)) => Self::Yama(scope),
            _ if has_right => Self::Unknown,
            _ if !other.is_of(real) => {
                let foreign = other.uids.iter().take(3).find(|uid| **uid != real);
                foreign.map_or(Self::Unknown, |uid| Self::Owner(*uid))
            }
            _ if folder.is_some_and(|folder| !other.uids.contains(&folder)) => Self::Undumpable,
            _ if other.permitted & !own.permitted != 0 => Self::Capabilities,
            (_, Some(scope @ 1..)) => Self::Yama(scope),
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tTracerPid:\\t9\nUmask:\t0022\nState:\tt (tracing stop)\nTgid:\t77\nPid:\t77\nTracerPid:\t41\n\
                        Uid:\t1000\t1000\t1000\t1000\nGid:\t7\t7\t7\t7\nNSpid:\t77\t5\nCapPrm:\t0000000000080000\n\
                        CapEff:\t0000000000000001\n";

    #[test]
    fn status_is_parsed() {
        let want = Status {
            state: b't',
            process: 77,
            uids: vec![1000; 4],
            gids: vec![7; 4],
            tracer: 41,
            numbers: vec![77, 5],
            permitted: SYS_PTRACE,
            effective: 1,
        };
        let status = Status::parse(TEXT);
        assert_eq!(status, want);
        assert!(status.is_stopped() && !status.has_ended() && status.is_of(1000) && !status.is_of(0));
        assert_eq!(Status::parse(""), Status::default());
        assert!(!Status::default().is_of(0), "an unknown process belongs to no user");
        let set_user = Status { uids: vec![1000, 0, 0, 0], ..want };
        assert!(!set_user.is_of(1000) && !set_user.is_of(0));
        let own = Status::read(std::process::id()).unwrap();
        assert!(!own.is_stopped() && !own.has_ended());
        assert_eq!(own.numbers.first(), Some(&std::process::id()));
        assert_eq!(Status::read(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn refusal_names_the_reason_that_applies() {
        let user = |uid: u32| Status { uids: vec![uid; 4], ..Status::default() };
        let root = Status { permitted: u64::MAX, effective: u64::MAX, ..user(0) };
        let (mine, yours) = (user(1000), user(1001));
        let case = |own: &Status, other: &Status, yama| Untraceable::judge(own, other, yama, None);
        let traced = Status { tracer: 5, ..mine.clone() };
        // With CAP_SYS_PTRACE, Yama (below 3) and ownership checks do not apply.
        assert_eq!(case(&root, &traced, Some(1)), Untraceable::Traced(5));
        assert_eq!(case(&root, &yours, Some(2)), Untraceable::Unknown);
        assert_eq!(case(&root, &yours, Some(3)), Untraceable::Yama(3));
        assert_eq!(case(&mine, &yours, Some(1)), Untraceable::Owner(1001));
        let set_user = Status { uids: vec![1000, 0, 0, 0], ..mine.clone() };
        assert_eq!(case(&mine, &set_user, None), Untraceable::Owner(0));
        assert_eq!(case(&mine, &mine, Some(1)), Untraceable::Yama(1));
        assert_eq!(case(&mine, &mine, Some(0)), Untraceable::Unknown);
        let able = Status { permitted: 1, ..mine.clone() };
        assert_eq!(case(&mine, &able, Some(0)), Untraceable::Capabilities);
        assert_eq!(Untraceable::judge(&mine, &mine, None, Some(0)), Untraceable::Undumpable);
        assert_eq!(Untraceable::judge(&mine, &mine, None, Some(1000)), Untraceable::Unknown);
        assert_eq!(Untraceable::of(std::process::id()), Untraceable::Own);
        assert_eq!(Untraceable::of(u32::MAX), Untraceable::Unknown);
        assert!(Untraceable::Yama(2).to_string().contains("ptrace_scope is 2"));
        assert!(Untraceable::Owner(7).to_string().contains("belongs to user 7, which takes CAP_SYS_PTRACE"));
    }
}
