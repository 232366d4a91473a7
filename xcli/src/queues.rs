//! `xcli queues`: the hardware queues of any process, as the driver lists them in sysfs.
//!
//! Sources: `kfd_process.c` and `kfd_topology.c` of Linux. Paths below `/sys/class/kfd/kfd`:
//! `proc/PID/queues/ID/{size,type,gpuid}`, and for each device `topology/nodes/N/{gpu_id,properties}`. If a
//! server has suspended queues of the process, its debugger adds addresses and pointers. A log of the runtime
//! adds the runtime's view.

use crate::amd_log::{self, Address, LogQueue};
use crate::error::Error;
use crate::foreign;
use crate::process;
use crate::table::{self, Column, Line, plain};
use hal_kfd::topology::{self, Device, Files};
use host::process::Status;
use protocol::outside::Snapshot;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The driver's folder, relative to a root directory.
const KFD: &str = "sys/class/kfd/kfd";

/// The last four are shown only if a server has attached to the process.
const COLUMNS: &[Column] = &[
    Column::number("QUEUE"),
    Column::number("GPU"),
    Column::words("PCI"),
    Column::words("TYPE"),
    Column::number("SIZE"),
    Column::words("RING"),
    Column::number("WRITE"),
    Column::number("READ"),
    Column::words("STATE"),
];
const WITHOUT_DEBUGGER: usize = COLUMNS.len() - 4;

const LOG_COLUMNS: &[Column] = &[
    Column::words("HSA QUEUE"),
    Column::words("RING"),
    Column::number("SIZE"),
    Column::words("PRIORITY"),
    Column::words("COOPERATIVE"),
    Column::number("QUEUE"),
];

/// The hardware queues of a process.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Queues {
    pid: u32,
    name: String,
    /// True if a server has suspended queues of the process; none if no server answers.
    held_from_outside: Option<bool>,
    queues: Vec<Queue>,
    /// The queues of the runtime, if its log was read.
    log: Option<Vec<LogQueue>>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Queue {
    id: u32,
    /// The driver's number of the device.
    gpu_id: u32,
    /// The PCI address, if known; partitions of a device share one.
    pci: Option<String>,
    #[serde(rename = "type")]
    kind: Kind,
    /// The size of the ring in bytes.
    size: u64,
    #[serde(flatten)]
    debugger: DebuggerView,
}

/// A queue as the server's debugger shows it. Addresses are those of the process.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct DebuggerView {
    ring_address: Option<Address>,
    write_pointer_address: Option<Address>,
    read_pointer_address: Option<Address>,
    /// In packets for a compute queue, else in bytes. None if the memory cannot be read.
    write_pointer: Option<u64>,
    read_pointer: Option<u64>,
    /// True if the server has suspended the queue.
    held_from_outside: Option<bool>,
}

/// The type of a queue, by `enum kfd_queue_type` of the driver, which differs from the types in its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Compute,
    Sdma,
    Hiq,
    Diq,
    SdmaXgmi,
    SdmaByEngine,
    #[serde(untagged)]
    Other(u64),
}

impl Kind {
    fn of(number: u64) -> Self {
        let known = [Self::Compute, Self::Sdma, Self::Hiq, Self::Diq, Self::SdmaXgmi, Self::SdmaByEngine];
        usize::try_from(number)
            .ok()
            .and_then(|index| known.get(index).copied())
            .unwrap_or(Self::Other(number))
    }

    fn text(self) -> String {
        match self {
            Self::Compute => "compute".to_owned(),
            Self::Sdma => "copy (SDMA)".to_owned(),
            Self::Hiq => "driver (HIQ)".to_owned(),
            Self::Diq => "debugger (DIQ)".to_owned(),
            Self::SdmaXgmi => "copy (SDMA, XGMI)".to_owned(),
            Self::SdmaByEngine => "copy (SDMA, chosen engine)".to_owned(),
            Self::Other(number) => format!("type {number}"),
        }
    }
}

/// The reason why the queues of a process are not known. Displayed as a sentence without control characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There is no such process, or `/proc` hides it.
    #[error("{0}")]
    Process(Error),
    #[error("process {pid} ({}) does not use the KFD: it has opened no AMD GPU", plain(name))]
    Unused { pid: u32, name: String },
    #[error("process {pid} ({}) sees no KFD in /sys: is the driver amdgpu loaded?", plain(name))]
    NoKfd { pid: u32, name: String },
    /// The root directory of the process cannot be entered, so its view of the driver is unknown.
    #[error(
        "cannot find out if process {pid} ({}) uses the KFD: /proc/{pid}/root {} ({error}). Run xcli as the user of the \
         process or as root",
        plain(name),
        if *is_late { "does not answer" } else { "cannot be entered" }
    )]
    Hidden { pid: u32, name: String, error: String, is_late: bool },
}

impl Queues {
    /// Reads the queues of a process.
    ///
    /// # Errors
    /// There is no such process, there is no KFD, or the process does not use it.
    pub fn of(pid: u32) -> Result<Self, Unknown> {
        let name = process::name(pid).map_err(Unknown::Process)?;
        let copy = name.clone();
        let theirs = foreign::look(pid, move |root| Driver::of(root, pid, &copy));
        Self::choose(theirs, || Driver::of(&PathBuf::from("/"), pid, &name), pid, &name)
    }

    /// Prefers `/sys` of the process, because a container or a simulated device has its own.
    fn choose(
        theirs: io::Result<Driver>,
        ours: impl FnOnce() -> Driver,
        pid: u32,
        name: &str,
    ) -> Result<Self, Unknown> {
        if let Ok(Driver::Knows(queues)) = theirs {
            return Ok(queues);
        }
        let ours = ours();
        if let Driver::Knows(queues) = ours {
            return Ok(queues);
        }
        let name = name.to_owned();
        Err(match (theirs, ours) {
            (Err(error), _) => {
                let is_late = error.kind() == ErrorKind::TimedOut;
                Unknown::Hidden { pid, name, error: error.to_string(), is_late }
            }
            (Ok(Driver::Absent), Driver::Absent) => Unknown::NoKfd { pid, name },
            _ => Unknown::Unused { pid, name },
        })
    }

    /// Reads the queues in the driver's folder.
    fn read(files: &dyn Files, pid: u32, name: &str, ids: &[String]) -> Self {
        let kfd = Path::new(KFD);
        let addresses = pci_addresses(files);
        let mut queues = Vec::new();
        for entry in ids {
            let number = |file: &str| -> Option<u64> {
                let path = kfd.join(format!("proc/{pid}/queues/{entry}/{file}"));
                files.text(&path).ok()?.trim().parse().ok()
            };
            // A queue that is destroyed meanwhile is skipped.
            let (Ok(id), Some(size), Some(kind), Some(gpu)) =
                (entry.parse(), number("size"), number("type"), number("gpuid"))
            else {
                continue;
            };
            let Ok(gpu_id) = u32::try_from(gpu) else { continue };
            let pci = addresses.get(&gpu_id).cloned();
            queues.push(Queue {
                id,
                gpu_id,
                pci,
                kind: Kind::of(kind),
                size,
                debugger: DebuggerView::default(),
            });
        }
        queues.sort_by_key(|queue| (queue.gpu_id, queue.id));
        Self { pid, name: name.to_owned(), held_from_outside: None, queues, log: None }
    }

    /// The number of queues for kernels.
    pub fn compute(&self) -> usize {
        self.queues.iter().filter(|queue| queue.kind == Kind::Compute).count()
    }

    /// Adds the view of the server's debugger.
    pub fn add_debugger_view(&mut self, snapshot: &Snapshot) {
        let seen = snapshot.queues.as_deref();
        self.held_from_outside = Some(seen.is_some_and(|queues| queues.iter().any(|queue| queue.held)));
        for queue in &mut self.queues {
            let found = seen.and_then(|queues| queues.iter().find(|other| other.queue == queue.id));
            queue.debugger = DebuggerView {
                ring_address: found.map(|seen| Address(seen.ring_address)),
                write_pointer_address: found.map(|seen| Address(seen.write_pointer_address)),
                read_pointer_address: found.map(|seen| Address(seen.read_pointer_address)),
                write_pointer: found.and_then(|seen| seen.write_pointer),
                read_pointer: found.and_then(|seen| seen.read_pointer),
                held_from_outside: Some(found.is_some_and(|seen| seen.held)),
            };
        }
    }

    /// Adds the queues of the runtime's log. If the debugger shows addresses, they match a queue of the log
    /// to one of the driver.
    ///
    /// # Errors
    /// The log cannot be read, or does not belong to this process.
    pub fn read_log(&mut self, path: &Path) -> anyhow::Result<()> {
        let mut log = amd_log::read(path, &numbers(self.pid))?;
        for queue in &mut log {
            let is_same = |seen: &DebuggerView| {
                let write_pointer = queue.hsa_queue.0.checked_add(amd_log::WRITE_POINTER).map(Address);
                seen.ring_address.is_some()
                    && (seen.ring_address == queue.ring_address
                        || seen.write_pointer_address == write_pointer)
            };
            queue.queue = self.queues.iter().find(|other| is_same(&other.debugger)).map(|other| other.id);
        }
        self.log = Some(log);
        Ok(())
    }

    /// Formats the queues as tables.
    pub fn text(&self, terminal: Option<usize>) -> String {
        let is_attached = self.queues.iter().any(|queue| queue.debugger.ring_address.is_some());
        let columns = if is_attached { COLUMNS } else { &COLUMNS[..WITHOUT_DEBUGGER] };
        let row = |queue: &Queue| {
            let seen = &queue.debugger;
            let mut cells = vec![
                queue.id.to_string(),
                queue.gpu_id.to_string(),
                or_dash(queue.pci.as_ref()),
                queue.kind.text(),
                size(queue.size),
                or_dash(seen.ring_address),
                or_dash(seen.write_pointer),
                or_dash(seen.read_pointer),
                if seen.held_from_outside == Some(true) { "suspended" } else { "active" }.to_owned(),
            ];
            cells.truncate(columns.len());
            Line::Row(cells)
        };
        let lines: Vec<Line> = self.queues.iter().map(row).collect();
        format!(
            "{}process {} ({}): {} hardware queues, {} of them for kernels\n{}",
            if lines.is_empty() { String::new() } else { table::text(columns, &lines, terminal) },
            self.pid,
            plain(&self.name),
            self.queues.len(),
            self.compute(),
            self.log.as_deref().map_or_else(String::new, |log| log_text(log, terminal)),
        )
    }
}

fn log_text(log: &[LogQueue], terminal: Option<usize>) -> String {
    let row = |queue: &LogQueue| {
        Line::Row(vec![
            queue.hsa_queue.to_string(),
            or_dash(queue.ring_address),
            size(queue.size),
            match queue.priority {
                0 => "low".to_owned(),
                1 => "normal".to_owned(),
                2 => "high".to_owned(),
                other => other.to_string(),
            },
            if queue.cooperative { "yes" } else { "no" }.to_owned(),
            or_dash(queue.queue),
        ])
    };
    let lines: Vec<Line> = log.iter().map(row).collect();
    match lines.len() {
        0 => "according to the log, the runtime has no hardware queue left\n".to_owned(),
        many => format!(
            "{}according to the log, the runtime has {many} hardware queues\n",
            table::text(LOG_COLUMNS, &lines, terminal)
        ),
    }
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// All process ids of a process. In a container its own id differs, and the log has that one.
fn numbers(pid: u32) -> Vec<u32> {
    let mut numbers = Status::read(pid).map(|status| status.numbers).unwrap_or_default();
    numbers.push(pid);
    numbers
}

/// The result of looking up a process in the driver's folder.
enum Driver {
    /// The folder does not exist.
    Absent,
    /// The folder does not list the process.
    DoesNotKnow,
    Knows(Queues),
}

impl Driver {
    /// Looks up a process below this root directory.
    fn of(files: &dyn Files, pid: u32, name: &str) -> Self {
        let folder = |path: &str| files.names(&Path::new(KFD).join(path));
        match (folder(&format!("proc/{pid}")), folder(&format!("proc/{pid}/queues"))) {
            (Ok(_), ids) => Self::Knows(Queues::read(files, pid, name, &ids.unwrap_or_default())),
            _ if folder("").is_ok() => Self::DoesNotKnow,
            _ => Self::Absent,
        }
    }
}

/// The PCI addresses of the devices, by the driver's numbers.
fn pci_addresses(files: &dyn Files) -> BTreeMap<u32, String> {
    let address = |device: &Device| Some((device.gpu_id, device.pci()?.to_string()));
    topology::devices_in(files, Path::new(KFD)).iter().filter_map(address).collect()
}

/// Formats a number of bytes exactly.
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A root directory that contains a driver's folder.
    fn kfd() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(KFD)).unwrap();
        let folder = KfdFolder(root.path().join(KFD));
        let queue = |id: u32, size: &str, kind: &str, gpu: &str| {
            for (name, value) in [("size", size), ("type", kind), ("gpuid", gpu)] {
                write(folder.path().join(format!("proc/7/queues/{id}/{name}")), value);
            }
        };
        queue(10, "1048576\n", "1\n", "4660\n");
        queue(2, "65536\n", "0\n", "4660\n");
        queue(3, "12\n", "9\n", "1\n");
        write(folder.path().join("proc/7/queues/4/size"), "4096");
        write(folder.path().join("topology/nodes/0/gpu_id"), "0\n");
        write(folder.path().join("topology/nodes/0/properties"), "location_id 0\n");
        write(folder.path().join("topology/nodes/1/gpu_id"), "4660\n");
        write(
            folder.path().join("topology/nodes/1/properties"),
            "simd_count 4\nlocation_id 50049\ndomain 1\n",
        );
        root
    }

    struct KfdFolder(PathBuf);

    impl KfdFolder {
        fn path(&self) -> &Path {
            &self.0
        }
    }

    fn read(root: &tempfile::TempDir, pid: u32, name: &str) -> Queues {
        match Driver::of(&root.path().to_path_buf(), pid, name) {
            Driver::Knows(queues) => queues,
            _ => panic!("the driver does not know {pid}"),
        }
    }

    #[test]
    fn queues_are_read_and_sorted() {
        let folder = kfd();
        let queues = read(&folder, 7, "batch");
        let lines = [
            "QUEUE   GPU  PCI           TYPE           SIZE",
            "    3     1  -             type 9         12 B",
            "    2  4660  0001:c3:10.1  compute      64 KiB",
            "   10  4660  0001:c3:10.1  copy (SDMA)   1 MiB",
            "process 7 (batch): 3 hardware queues, 1 of them for kernels",
        ];
        assert_eq!(queues.text(None).lines().collect::<Vec<_>>(), lines);
        let json = serde_json::to_value(&queues).unwrap();
        assert_eq!(json["queues"][1]["type"], "compute");
        assert_eq!(json["queues"][1]["size"], 65536);
        assert_eq!(json["queues"][0]["type"], 9);
        assert_eq!(json["queues"][0]["pci"], serde_json::Value::Null);
    }

    #[test]
    fn debugger_view_and_log_are_added() {
        let folder = kfd();
        let mut queues = read(&folder, 7, "batch");
        let plain = queues.text(None);
        let json = serde_json::to_value(&queues).unwrap();
        for name in ["ring_address", "write_pointer", "read_pointer_address", "held_from_outside"] {
            assert_eq!(json["queues"][1].get(name), Some(&serde_json::Value::Null), "{name}");
        }
        assert_eq!(json.get("log"), Some(&serde_json::Value::Null));

        queues.add_debugger_view(&Snapshot { pid: protocol::ids::Pid(7), queues: None });
        assert_eq!(queues.text(None), plain);
        assert_eq!(serde_json::to_value(&queues).unwrap()["held_from_outside"], false);

        let seen = protocol::outside::SeenQueue {
            queue: 2,
            ring_address: 0x7f00_0000_0000,
            write_pointer_address: 0x1038,
            read_pointer_address: 0x1080,
            write_pointer: Some(17),
            read_pointer: None,
            held: true,
        };
        queues.add_debugger_view(&Snapshot { pid: protocol::ids::Pid(7), queues: Some(vec![seen]) });
        let log = folder.path().join("log");
        let line = "rocdevice.cpp :1: 1 us: created hardware queue";
        let lines = format!(
            "{line} 0x1000 with size 1024 with priority 2, cooperative: 0\n{line} 0x3000 with size 64\n"
        );
        fs::write(&log, lines).unwrap();
        queues.read_log(&log).unwrap();
        let lines = [
            "QUEUE   GPU  PCI           TYPE           SIZE  RING            WRITE  READ  STATE",
            "    3     1  -             type 9         12 B  -                   -     -  active",
            "    2  4660  0001:c3:10.1  compute      64 KiB  0x7f0000000000     17     -  suspended",
            "   10  4660  0001:c3:10.1  copy (SDMA)   1 MiB  -                   -     -  active",
            "process 7 (batch): 3 hardware queues, 1 of them for kernels",
            "HSA QUEUE  RING    SIZE  PRIORITY  COOPERATIVE  QUEUE",
            "0x1000     -     64 KiB  high      no               2",
            "0x3000     -      4 KiB  normal    no               -",
            "according to the log, the runtime has 2 hardware queues",
        ];
        assert_eq!(queues.text(None).lines().collect::<Vec<_>>(), lines);
        let json = serde_json::to_value(&queues).unwrap();
        assert_eq!(json["held_from_outside"], true);
        assert_eq!(json["queues"][1]["ring_address"], "0x7f0000000000");
        assert_eq!(json["queues"][1]["write_pointer"], 17);
        assert_eq!(json["queues"][1]["held_from_outside"], true);
        assert_eq!((&json["log"][0]["hsa_queue"], &json["log"][0]["queue"]), (&"0x1000".into(), &2.into()));
        assert_eq!(json["log"][1].get("ring_address"), Some(&serde_json::Value::Null));
    }

    #[test]
    fn process_without_kfd_differs_from_one_without_queues() {
        let folder = kfd();
        let nothing = tempfile::tempdir().unwrap();
        let of = |ours: &tempfile::TempDir, pid, name| {
            let driver = |root: &tempfile::TempDir| Driver::of(&root.path().to_path_buf(), pid, name);
            Queues::choose(Ok(driver(&nothing)), || driver(ours), pid, name)
        };
        assert_eq!(
            of(&nothing, 8, "x").unwrap_err().to_string(),
            "process 8 (x) sees no KFD in /sys: is the driver amdgpu loaded?"
        );
        let error = of(&folder, 8, "other\x1b]0;x\x07").unwrap_err();
        assert!(matches!(error, Unknown::Unused { .. }));
        assert_eq!(
            error.to_string(),
            "process 8 (other?]0;x?) does not use the KFD: it has opened no AMD GPU"
        );
        fs::create_dir_all(folder.path().join(KFD).join("proc/9")).unwrap();
        let none = of(&folder, 9, "idle").unwrap();
        assert_eq!(none.text(None), "process 9 (idle): 0 hardware queues, 0 of them for kernels\n");
        assert_eq!(Queues::of(u32::MAX).unwrap_err().to_string(), "there is no process 4294967295");
        // The process may be on a simulated device, which has its own /sys.
        for (kind, words) in
            [(ErrorKind::PermissionDenied, "cannot be entered"), (ErrorKind::TimedOut, "does not answer")]
        {
            let hidden = Queues::choose(Err(kind.into()), || Driver::Absent, 8, "other").unwrap_err();
            assert!(
                matches!(hidden, Unknown::Hidden { .. }) && hidden.to_string().contains(words),
                "{hidden}"
            );
        }
    }

    #[test]
    fn name_with_control_characters_is_shown_plainly() {
        let folder = kfd();
        let queues = read(&folder, 7, "\x1b]0;x\x07\u{fffd}");
        let text = queues.text(None);
        assert!(text.contains("process 7 (?]0;x?\u{fffd}): 3 hardware queues"), "{text}");
    }
}
