//! Checks of the system: kernel and C library, device files, other servers, and programs that use the GPU.

use super::finding::{Findings, bad, good, note};
use crate::process;
use hal_kfd::users;
use rustix::system::uname;
use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Features that need a newer Linux than the oldest supported one: the release, and the restriction before
/// it.
const SINCE: &[((u32, u32), &str)] = &[
    ((5, 3), "the server notices the end of a program only within a second"),
    ((6, 5), "`xcli suspend` and the mechanism debug-trap do not work"),
    ((6, 9), "gpu-sim runs only HIP 5"),
];
const OLDEST: (u32, u32) = (4, 18);
/// The most program names in one finding.
const NAMES: usize = 8;

/// A process with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    pid: u32,
    name: String,
}

/// A render node that cannot be opened.
#[derive(Debug)]
struct Node {
    path: PathBuf,
    error: io::Error,
    /// The group of the file, by name or number.
    group: Option<String>,
}

/// The facts about the system.
#[derive(Debug)]
pub struct System {
    release: String,
    glibc: String,
    /// The number of render nodes, and those that cannot be opened.
    render: (usize, Vec<Node>),
    /// The group of `/dev/kfd`.
    group: Option<String>,
    servers: Vec<Program>,
    /// The programs with queues on a GPU; only their number if the driver's process ids are those of another
    /// namespace.
    users: Result<Vec<Program>, usize>,
}

impl System {
    /// Collects the facts.
    pub fn look() -> Self {
        Self {
            release: uname().release().to_string_lossy().into_owned(),
            glibc: glibc(),
            render: render(Path::new("/dev/dri")),
            group: fs::metadata("/dev/kfd").ok().map(|about| group(about.gid())),
            servers: programs(users::numbers(Path::new("/proc")))
                .filter(|program| program.name == "xserver")
                .collect(),
            users: users::with_queues().map(|pids| programs(pids).collect()),
        }
    }

    /// The group of `/dev/kfd`.
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }
}

/// The release of the C library.
fn glibc() -> String {
    // SAFETY: the function returns a static string that ends with a zero.
    unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) }.to_string_lossy().into_owned()
}

/// The processes among these that exist, except this one.
fn programs(pids: Vec<u32>) -> impl Iterator<Item = Program> {
    let others = pids.into_iter().filter(|pid| *pid != std::process::id());
    others.filter_map(|pid| {
        process::status(pid).ok()?;
        Some(Program { pid, name: process::name(pid).ok()? })
    })
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

/// The advice for a device file without permission.
pub fn access_advice(group: Option<&str>) -> String {
    match group {
        // Users should not join root's group.
        None | Some("root" | "0") => {
            "only root can open it, because no group for users owns the file".to_owned()
        }
        Some(group) => {
            format!(
                "it belongs to the group {group}: run `usermod -aG {group} USER` as root, and log in again"
            )
        }
    }
}

/// Adds the findings about the system. `server`: the process id of the server that answers, and those of its
/// clients.
pub fn judge(system: &System, is_open: bool, server: Option<(u32, &[u32])>, findings: &mut Findings) {
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
        findings.add("system", bad(format!("{about}: giveway needs Linux {major}.{minor} or newer")));
    } else if missing.is_empty() {
        findings.add("system", good(about));
    } else {
        findings.add("system", note(format!("{about}: {}", missing.join("; "))));
    }
    render_nodes(system, is_open, findings);
    servers(system, server.map(|(pid, _)| pid), findings);
    programs_on_gpu(system, server, findings);
}

fn render_nodes(system: &System, is_open: bool, findings: &mut Findings) {
    let (all, closed) = &system.render;
    if is_open && *all == 0 {
        let text = "/dev/dri has no render node, and HIP finds no GPU without one: a container needs /dev/dri in addition to /dev/kfd";
        findings.add("device", bad(text));
    }
    for Node { path, error, group } in closed {
        let path = path.display();
        // A device that a cgroup denies to a container causes the same error.
        let text = match error.kind() {
            ErrorKind::PermissionDenied => {
                format!("{path}: permission denied: {}", access_advice(group.as_deref()))
            }
            _ => format!("{path} cannot be opened: {error}"),
        };
        findings.add("device", bad(text));
    }
}

fn servers(system: &System, answers: Option<u32>, findings: &mut Findings) {
    let others: Vec<_> = system.servers.iter().filter(|program| Some(program.pid) != answers).collect();
    if others.is_empty() {
        return;
    }
    let (which, of) = match answers {
        Some(_) => ("another xserver runs", "schedules independently of this one"),
        None => ("an xserver runs", "belongs to another user or has another socket (-a, -p)"),
    };
    let pids: Vec<_> = others.iter().map(|program| program.pid.to_string()).collect();
    findings.add("server", note(format!("{which} on this machine and {of}: process {}", pids.join(", "))));
}

fn programs_on_gpu(system: &System, server: Option<(u32, &[u32])>, findings: &mut Findings) {
    let users = match &system.users {
        Ok(users) => users,
        Err(0) => return,
        Err(number) => {
            let text = format!(
                "{number} programs have queues on the GPU; this pid namespace hides which of them are scheduled: run xcli outside the \
                 container"
            );
            return findings.add("card", note(text));
        }
    };
    // The driver lists a server that has suspended queues of other programs.
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
    let who = if server.is_some() { "this server" } else { "a server of this user" };
    let text = format!(
        "programs use the GPU without being scheduled by {who}: {}. `xcli run` starts a scheduled program, `xcli doctor PID` explains why \
         one is not scheduled, `xcli suspend PID` evicts one",
        names.join(", ")
    );
    findings.add("card", note(text));
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
        let mut findings = Findings::default();
        judge(system, true, server, &mut findings);
        (findings.ok, findings.text())
    }

    #[test]
    fn old_kernel_is_a_note_about_missing_features() {
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
    fn denied_render_node_names_its_group() {
        let node = |kind: ErrorKind, group: &str| Node {
            path: "/dev/dri/renderD128".into(),
            error: kind.into(),
            group: Some(group.to_owned()),
        };
        let case = |node| said(&System { render: (1, vec![node]), ..system() }, Some((5, &[])));
        let (ok, text) = case(node(ErrorKind::PermissionDenied, "render"));
        assert!(
            !ok && text
                .contains("renderD128: permission denied: it belongs to the group render: run `usermod"),
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
    fn other_servers_are_named() {
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
    fn unscheduled_programs_are_named() {
        let users = vec![program(5, "xserver"), program(7, "train.py"), program(8, "serve")];
        let busy = System { users: Ok(users), ..system() };
        let (_, text) = said(&busy, Some((5, &[8])));
        assert!(
            text.contains(
                "note  card      programs use the GPU without being scheduled by this server: 7 (train.py)."
            ),
            "{text}"
        );
        let (_, text) = said(&busy, Some((5, &[7, 8])));
        assert!(!text.contains("card"), "{text}");
        let (_, text) = said(&busy, None);
        assert!(text.contains("scheduled by a server of this user: 7 (train.py), 8 (serve)."), "{text}");
        let many = System { users: Ok((10..30).map(|pid| program(pid, "x")).collect()), ..system() };
        assert!(said(&many, None).1.contains("17 (x), 12 more."), "{}", said(&many, None).1);
        let (_, text) = said(&System { users: Err(3), ..system() }, None);
        assert!(text.contains("3 programs have queues on the GPU; this pid namespace"), "{text}");
        assert!(!said(&System { users: Err(0), ..system() }, None).1.contains("card"));
    }
}
