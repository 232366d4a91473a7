//! What lies around the device: kernel and C library, the device's files, other servers, and programs that use the card.

use super::{Report, Verdict};
use crate::known;
use rustix::system::uname;
use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// What needs a newer Linux than 4.18, the oldest one that is supported: since which release, and what happens before it.
const SINCE: &[((u32, u32), &str)] = &[
    ((5, 3), "the end of a program is noticed within a second and not at once"),
    ((6, 5), "`xcli suspend` and the mechanism debug-trap are not there"),
    ((6, 9), "gpu-sim runs HIP 5 only"),
];
const OLDEST: (u32, u32) = (4, 18);
/// The number of the first pid namespace (`PROC_PID_INIT_INO` of include/linux/proc_ns.h). The driver's numbers are those of it.
const FIRST_NAMESPACE: u64 = 0xeffffffc;
/// Names in one line.
const NAMES: usize = 8;

/// A process with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    pid: u32,
    name: String,
}

/// A device's file that cannot be opened.
#[derive(Debug)]
struct Node {
    path: PathBuf,
    error: io::Error,
    /// Its group, by name or number.
    group: Option<String>,
}

/// What there is to see.
#[derive(Debug)]
pub struct System {
    release: String,
    glibc: String,
    /// How many render nodes there are, and those that cannot be opened.
    render: (usize, Vec<Node>),
    /// The group of `/dev/kfd`.
    group: Option<String>,
    servers: Vec<Program>,
    /// Programs with queues on the card, or how many there are where their numbers mean nothing here.
    users: Result<Vec<Program>, usize>,
}

impl System {
    /// Looks.
    pub fn look() -> Self {
        Self {
            release: uname().release().to_string_lossy().into_owned(),
            glibc: glibc(),
            render: render(Path::new("/dev/dri")),
            group: fs::metadata("/dev/kfd").ok().map(|about| group(about.gid())),
            servers: programs(numbers(Path::new("/proc")))
                .filter(|program| program.name == "xserver")
                .collect(),
            users: users(Path::new("/sys/class/kfd/kfd/proc")),
        }
    }

    /// The group of `/dev/kfd`.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }
}

/// The release of the C library.
fn glibc() -> String {
    // SAFETY: takes nothing, and returns a text that is there for ever.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: as above; it ends with a zero.
    unsafe { CStr::from_ptr(version) }.to_string_lossy().into_owned()
}

/// The numbers among the names in a folder.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}

/// Those of these processes that are there, but for this one.
fn programs(pids: Vec<u32>) -> impl Iterator<Item = Program> {
    let others = pids.into_iter().filter(|pid| *pid != std::process::id());
    others.filter_map(|pid| {
        known::status(pid).ok()?;
        Some(Program { pid, name: known::name(pid).ok()? })
    })
}

/// The processes to which the driver has given queues.
fn users(folder: &Path) -> Result<Vec<Program>, usize> {
    let has_queues = |pid: &u32| !numbers(&folder.join(format!("{pid}/queues"))).is_empty();
    let pids: Vec<u32> = numbers(folder).into_iter().filter(has_queues).collect();
    // A simulated device has the numbers of this namespace.
    let is_first = fs::metadata("/proc/self/ns/pid").is_ok_and(|about| about.ino() == FIRST_NAMESPACE);
    if !is_first && !hal_kfd::Kfd::is_simulated() {
        return Err(pids.len());
    }
    Ok(programs(pids).collect())
}

/// How many render nodes there are, and those that cannot be opened.
fn render(folder: &Path) -> (usize, Vec<Node>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let nodes: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("renderD"))
        .map(|entry| entry.path())
        .collect();
    let closed = |path: &PathBuf| {
        let error = OpenOptions::new().read(true).write(true).open(path).err()?;
        let group = fs::metadata(path).ok().map(|about| group(about.gid()));
        Some(Node { path: path.clone(), error, group })
    };
    (nodes.len(), nodes.iter().filter_map(closed).collect())
}

/// A group by its name, or by its number where it has none here.
fn group(gid: u32) -> String {
    let all = fs::read_to_string("/etc/group").unwrap_or_default();
    named(&all, gid).unwrap_or_else(|| gid.to_string())
}

fn named(groups: &str, gid: u32) -> Option<String> {
    let is_it = |line: &&str| line.split(':').nth(2).and_then(|number| number.parse().ok()) == Some(gid);
    Some(groups.lines().find(is_it)?.split(':').next()?.to_owned())
}

/// `5.14.0-427.el9.x86_64` is 5.14.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Says how one gets into a group.
pub fn join(group: Option<&str>) -> String {
    match group {
        // Membership of root's group is nobody's way to a device.
        None | Some("root" | "0") => {
            "root may; the device's file belongs to no group that users can be in".to_owned()
        }
        Some(group) => {
            format!(
                "it belongs to the group {group}: `usermod -aG {group} USER` as root, and a new login, let USER in"
            )
        }
    }
}

/// Says what there is. `server`: the number of the one that answers, and of its clients; nothing if none answers.
pub fn judge(system: &System, is_open: bool, server: Option<(u32, &[u32])>, report: &mut Report) {
    let System { release, glibc, .. } = system;
    let known = version(release);
    let missing: Vec<String> = SINCE
        .iter()
        .filter(|(since, _)| known.is_some_and(|known| known < *since))
        .map(|((major, minor), what)| format!("before {major}.{minor} {what}"))
        .collect();
    let about = format!("Linux {release}, glibc {glibc}");
    if known.is_some_and(|known| known < OLDEST) {
        let (major, minor) = OLDEST;
        report.add(Verdict::Bad, "system", format!("{about}: giveway needs Linux {major}.{minor} or newer"));
    } else if missing.is_empty() {
        report.add(Verdict::Good, "system", about);
    } else {
        report.add(Verdict::Note, "system", format!("{about}: {}", missing.join("; ")));
    }
    render_nodes(system, is_open, report);
    servers(system, server.map(|(pid, _)| pid), report);
    card(system, server, report);
}

fn render_nodes(system: &System, is_open: bool, report: &mut Report) {
    let (all, closed) = &system.render;
    if is_open && *all == 0 {
        let text = "/dev/dri has no render node, without which HIP finds no GPU: a container must be given /dev/dri beside /dev/kfd";
        report.add(Verdict::Bad, "device", text);
    }
    for Node { path, error, group } in closed {
        let path = path.display();
        // A device that a cgroup keeps from a container answers so, too.
        let text = match error.kind() {
            ErrorKind::PermissionDenied => format!("{path} may not be opened: {}", join(group.as_deref())),
            _ => format!("{path} cannot be opened: {error}"),
        };
        report.add(Verdict::Bad, "device", text);
    }
}

fn servers(system: &System, answers: Option<u32>, report: &mut Report) {
    let others: Vec<_> = system.servers.iter().filter(|program| Some(program.pid) != answers).collect();
    if others.is_empty() {
        return;
    }
    let (which, of) = match answers {
        Some(_) => ("another xserver runs", "does not know what this one decides"),
        None => ("an xserver runs", "is another user's, or has another socket (-a, -p)"),
    };
    let pids: Vec<_> = others.iter().map(|program| program.pid.to_string()).collect();
    report.add(
        Verdict::Note,
        "server",
        format!("{which} on this machine, which {of}: process {}", pids.join(", ")),
    );
}

fn card(system: &System, server: Option<(u32, &[u32])>, report: &mut Report) {
    let users = match &system.users {
        Ok(users) => users,
        Err(0) => return,
        Err(number) => {
            let text = format!(
                "{number} programs have queues on it; which of them are scheduled cannot be told in this pid namespace: ask outside the \
                 container"
            );
            return report.add(Verdict::Note, "card", text);
        }
    };
    // A server has queues of programs that it holds from outside, and none of its own.
    let is_left = |program: &&Program| {
        server.is_none_or(|(_, clients)| !clients.contains(&program.pid)) && program.name != "xserver"
    };
    let left: Vec<_> = users.iter().filter(is_left).collect();
    if left.is_empty() {
        return;
    }
    let mut names: Vec<_> =
        left.iter().take(NAMES).map(|program| format!("{} ({})", program.pid, program.name)).collect();
    if left.len() > NAMES {
        names.push(format!("{} more", left.len() - NAMES));
    }
    let who = if server.is_some() { "this server does not schedule" } else { "no server here schedules" };
    let text = format!(
        "programs use it that {who}: {}; `xcli run` starts a program scheduled, `xcli doctor PID` says why one is not, `xcli suspend \
         PID` takes one off",
        names.join(", ")
    );
    report.add(Verdict::Note, "card", text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(pid: u32, name: &str) -> Program {
        Program { pid, name: name.to_owned() }
    }

    fn system() -> System {
        System {
            release: "6.12.0-1-amd64".into(),
            glibc: "2.41".into(),
            render: (1, Vec::new()),
            group: Some("render".into()),
            servers: vec![program(5, "xserver")],
            users: Ok(Vec::new()),
        }
    }

    fn said(system: &System, server: Option<(u32, &[u32])>) -> (bool, String) {
        let mut report = Report { ok: true, ..Report::default() };
        judge(system, true, server, &mut report);
        (report.is_ok(), report.text())
    }

    #[test]
    fn judge_says_what_an_old_kernel_lacks() {
        assert_eq!(version("5.14.0-427.el9.x86_64"), Some((5, 14)));
        assert_eq!(version("6.9-rc1"), Some((6, 9)));
        assert_eq!(version("?"), None);
        assert_eq!(
            said(&system(), Some((5, &[]))),
            (true, "ok    system    Linux 6.12.0-1-amd64, glibc 2.41\n".into())
        );
        let (ok, text) = said(&System { release: "4.18.0-553.el8".into(), ..system() }, Some((5, &[])));
        assert!(
            ok && text.starts_with("note  system    Linux 4.18.0-553.el8, glibc 2.41: before 5.3 "),
            "{text}"
        );
        assert!(text.contains("before 6.5 `xcli suspend`") && text.contains("before 6.9 gpu-sim"), "{text}");
        let (ok, text) = said(&System { release: "3.10.0".into(), ..system() }, Some((5, &[])));
        assert!(!ok && text.contains("needs Linux 4.18 or newer"), "{text}");
    }

    #[test]
    fn judge_names_the_group_of_a_file_that_may_not_be_opened() {
        let node = |kind: ErrorKind, group: &str| Node {
            path: "/dev/dri/renderD128".into(),
            error: kind.into(),
            group: Some(group.to_owned()),
        };
        let case = |node| said(&System { render: (1, vec![node]), ..system() }, Some((5, &[])));
        let (ok, text) = case(node(ErrorKind::PermissionDenied, "render"));
        assert!(
            !ok && text.contains("renderD128 may not be opened: it belongs to the group render: `usermod"),
            "{text}"
        );
        let (ok, text) = case(node(ErrorKind::PermissionDenied, "root"));
        assert!(!ok && !text.contains("usermod"), "{text}");
        let (ok, text) = said(&System { render: (0, Vec::new()), ..system() }, Some((5, &[])));
        assert!(!ok && text.contains("/dev/dri has no render node"), "{text}");
        assert_eq!(named("root:x:0:\nrender:x:105:me\n", 105), Some("render".into()));
        assert_eq!(named("root:x:0:\n", 105), None);
    }

    #[test]
    fn judge_names_other_servers_and_not_the_one_that_answers() {
        let two = System { servers: vec![program(5, "xserver"), program(6, "xserver")], ..system() };
        let (ok, text) = said(&two, Some((5, &[])));
        assert!(
            ok && text.contains("another xserver runs on this machine") && text.contains("process 6\n"),
            "{text}"
        );
        let (ok, text) = said(&two, None);
        assert!(
            ok && text.contains("an xserver runs on this machine") && text.contains("process 5, 6\n"),
            "{text}"
        );
    }

    #[test]
    fn judge_names_programs_on_the_card_that_no_server_schedules() {
        let users = vec![program(5, "xserver"), program(7, "train.py"), program(8, "serve")];
        let busy = System { users: Ok(users), ..system() };
        let (_, text) = said(&busy, Some((5, &[8])));
        assert!(
            text.contains(
                "note  card      programs use it that this server does not schedule: 7 (train.py);"
            ),
            "{text}"
        );
        let (_, text) = said(&busy, Some((5, &[7, 8])));
        assert!(!text.contains("card"), "{text}");
        let (_, text) = said(&busy, None);
        assert!(text.contains("no server here schedules: 7 (train.py), 8 (serve);"), "{text}");
        let many = System { users: Ok((10..30).map(|pid| program(pid, "x")).collect()), ..system() };
        assert!(said(&many, None).1.contains("17 (x), 12 more;"), "{}", said(&many, None).1);
        let (_, text) = said(&System { users: Err(3), ..system() }, None);
        assert!(text.contains("3 programs have queues on it; which of them"), "{text}");
        assert!(!said(&System { users: Err(0), ..system() }, None).1.contains("card"));
    }

    #[test]
    fn only_programs_with_queues_use_the_card() {
        let folder = tempfile::tempdir().unwrap();
        let at = |pid: u32, rest: &str| folder.path().join(format!("{pid}/{rest}"));
        let init = 1;
        fs::create_dir_all(at(init, "queues/0")).unwrap();
        fs::create_dir_all(at(u32::MAX, "queues/0")).unwrap();
        fs::create_dir_all(at(std::process::id(), "queues")).unwrap();
        match users(folder.path()) {
            Ok(users) => assert!(users.iter().all(|program| program.pid == init), "{users:?}"),
            Err(number) => assert_eq!(number, 2),
        }
    }
}
