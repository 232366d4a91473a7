//! The hardware queues of a process, as the driver shows them in sysfs: also of one that was never preloaded.
//!
//! Sources: `kfd_process.c` and `kfd_topology.c` of Linux. Paths below `/sys/class/kfd/kfd`: `proc/PID/queues/ID/{size,type,gpuid}`,
//! and of each device `topology/nodes/N/{gpu_id,properties}`.

use crate::table::{self, Column, Line};
use anyhow::{Context as _, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const COLUMNS: &[Column] = &[number("QUEUE"), number("GPU"), words("PCI"), words("TYPE"), number("SIZE")];

const fn words(title: &'static str) -> Column {
    Column { title, words: true, gives_way: false }
}

const fn number(title: &'static str) -> Column {
    Column { title, words: false, gives_way: false }
}

/// What the driver shows of a process.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Queues {
    pid: u32,
    name: String,
    queues: Vec<Queue>,
}

/// A hardware queue.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Queue {
    id: u32,
    /// The device's number in the driver.
    gpu_id: u32,
    /// Its place on the PCI bus, if it is known; several may share one.
    pci: Option<String>,
    #[serde(rename = "type")]
    kind: Kind,
    /// Bytes of its ring.
    size: u64,
}

/// What takes commands from the queue: the driver's own numbers (`enum kfd_queue_type`), not those of its requests.
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
        match number {
            0 => Self::Compute,
            1 => Self::Sdma,
            2 => Self::Hiq,
            3 => Self::Diq,
            4 => Self::SdmaXgmi,
            5 => Self::SdmaByEngine,
            other => Self::Other(other),
        }
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

impl Queues {
    /// The queues of this process.
    ///
    /// # Errors
    /// There is no such process, its machine has no KFD, or it does not use it.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let name =
            fs::read_to_string(process.join("comm")).with_context(|| format!("there is no process {pid}"))?;
        // As the process sees it: that of a container or of a simulated device is not ours.
        let theirs = process.join("root/sys/class/kfd/kfd");
        let folders = [theirs, PathBuf::from("/sys/class/kfd/kfd")];
        let Some(kfd) = folders.into_iter().find(|folder| folder.is_dir()) else {
            bail!(
                "process {pid} sees no KFD in /sys (is the driver amdgpu loaded, and may you look into /proc/{pid}/root?)"
            );
        };
        Self::read(&kfd, pid, name.trim())
    }

    fn read(kfd: &Path, pid: u32, name: &str) -> anyhow::Result<Self> {
        let process = kfd.join("proc").join(pid.to_string());
        if !process.is_dir() {
            bail!("process {pid} ({name}) does not use the KFD: it has opened no AMD GPU");
        }
        let places = places(kfd);
        let mut queues = Vec::new();
        for entry in fs::read_dir(process.join("queues")).into_iter().flatten().flatten() {
            let number = |file: &str| -> Option<u64> {
                fs::read_to_string(entry.path().join(file)).ok()?.trim().parse().ok()
            };
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok());
            // One that ends while it is read is none any more.
            let (Some(id), Some(size), Some(kind), Some(gpu)) =
                (id, number("size"), number("type"), number("gpuid"))
            else {
                continue;
            };
            let Ok(gpu_id) = u32::try_from(gpu) else { continue };
            queues.push(Queue { id, gpu_id, pci: places.get(&gpu_id).cloned(), kind: Kind::of(kind), size });
        }
        queues.sort_by_key(|queue| (queue.gpu_id, queue.id));
        Ok(Self { pid, name: name.to_owned(), queues })
    }

    /// For people.
    pub fn text(&self, terminal: Option<usize>) -> String {
        let row = |queue: &Queue| {
            Line::Row(vec![
                queue.id.to_string(),
                queue.gpu_id.to_string(),
                queue.pci.clone().unwrap_or_else(|| "-".to_owned()),
                queue.kind.text(),
                size(queue.size),
            ])
        };
        let lines: Vec<Line> = self.queues.iter().map(row).collect();
        let compute = self.queues.iter().filter(|queue| queue.kind == Kind::Compute).count();
        format!(
            "{}process {} ({}): {} hardware queues, {compute} of them for kernels\n",
            if lines.is_empty() { String::new() } else { table::text(COLUMNS, &lines, terminal) },
            self.pid,
            self.name,
            self.queues.len(),
        )
    }
}

/// Where the devices are on the PCI bus, by their numbers.
fn places(kfd: &Path) -> BTreeMap<u32, String> {
    let nodes = fs::read_dir(kfd.join("topology/nodes")).into_iter().flatten().flatten();
    nodes
        .filter_map(|node| {
            let gpu_id = fs::read_to_string(node.path().join("gpu_id")).ok()?.trim().parse().ok()?;
            let properties = fs::read_to_string(node.path().join("properties")).ok()?;
            let property = |name: &str| -> Option<u32> {
                properties
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
            };
            let at = property("location_id")?;
            let domain = property("domain").unwrap_or(0);
            // A node without a GPU has the number 0.
            (gpu_id != 0).then(|| {
                (gpu_id, format!("{domain:04x}:{:02x}:{:02x}.{}", at >> 8 & 0xff, at >> 3 & 0x1f, at & 7))
            })
        })
        .collect()
}

/// A number of bytes, exactly.
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

    fn write(path: PathBuf, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn kfd() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
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
        folder
    }

    #[test]
    fn queues_are_read_and_put_in_order() {
        let folder = kfd();
        let queues = Queues::read(folder.path(), 7, "batch").unwrap();
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
    fn a_process_without_the_kfd_is_told_from_one_without_queues() {
        let folder = kfd();
        let error = Queues::read(folder.path(), 8, "other").unwrap_err().to_string();
        assert_eq!(error, "process 8 (other) does not use the KFD: it has opened no AMD GPU");
        fs::create_dir_all(folder.path().join("proc/9")).unwrap();
        let none = Queues::read(folder.path(), 9, "idle").unwrap();
        assert_eq!(none.text(None), "process 9 (idle): 0 hardware queues, 0 of them for kernels\n");
        assert_eq!(Queues::of(u32::MAX).unwrap_err().to_string(), "there is no process 4294967295");
    }
}
