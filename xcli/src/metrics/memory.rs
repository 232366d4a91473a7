//! The device memory of each process, as the driver counts it in `/sys/class/kfd/kfd/proc/PID/vram_GPU` (`kfd_procfs_show` of
//! `kfd_process.c`). The driver has no peak, so a thread that reads every second keeps one.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The folder of the driver.
const DRIVER: &str = "/sys/class/kfd/kfd/proc";
/// The time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);

/// The memory of a process on a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    pub pid: u32,
    /// The KFD id of the device.
    pub device: u32,
    pub now: u64,
    /// The most that a reading has found; none if there was one reading only.
    pub peak: Option<u64>,
}

/// The folder with the processes.
#[derive(Debug)]
pub struct Memory(PathBuf);

/// What a thread has found.
#[derive(Debug)]
pub struct Watch {
    memory: Memory,
    peaks: Arc<Mutex<Peaks>>,
}

/// The most memory of each process and device. The inode of the folder tells a process from a later one of the same number.
#[derive(Debug, Default)]
struct Peaks(HashMap<(u32, u32), (u64, u64)>);

impl Memory {
    /// The driver's folder. It may not exist.
    pub fn of_driver() -> Self {
        Self(DRIVER.into())
    }

    /// Reads the memory of all processes that use the driver. What cannot be read is left out.
    pub fn read(&self) -> Vec<Used> {
        self.each().map(|(_, used)| used).collect()
    }

    fn each(&self) -> impl Iterator<Item = (u64, Used)> {
        let processes = fs::read_dir(&self.0).into_iter().flatten().flatten();
        processes.flat_map(|process| {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
            let inode = process.metadata().map(|metadata| metadata.ino()).unwrap_or_default();
            let files = pid.and_then(|_: u32| fs::read_dir(process.path()).ok());
            files.into_iter().flatten().flatten().filter_map(move |file| {
                let device = file.file_name().to_str()?.strip_prefix("vram_")?.parse().ok()?;
                let now = fs::read_to_string(file.path()).ok()?.trim().parse().ok()?;
                Some((inode, Used { pid: pid?, device, now, peak: None }))
            })
        })
    }

    /// Starts the thread that keeps the peaks.
    ///
    /// # Errors
    /// No thread is left.
    pub fn watch(self) -> io::Result<Watch> {
        let peaks: Arc<Mutex<Peaks>> = Arc::default();
        let (folder, shared) = (Self(self.0.clone()), Arc::downgrade(&peaks));
        std::thread::Builder::new().name("memory".to_owned()).spawn(move || {
            while let Some(peaks) = shared.upgrade() {
                peaks.lock().unwrap_or_else(PoisonError::into_inner).update(&folder);
                drop(peaks);
                std::thread::sleep(INTERVAL);
            }
        })?;
        Ok(Watch { memory: self, peaks })
    }
}

impl Watch {
    /// Reads the memory of all processes, with the peaks.
    pub fn read(&self) -> Vec<Used> {
        self.peaks.lock().unwrap_or_else(PoisonError::into_inner).update(&self.memory)
    }
}

impl Peaks {
    /// Takes a reading, and forgets the processes that have ended.
    fn update(&mut self, memory: &Memory) -> Vec<Used> {
        let before = std::mem::take(&mut self.0);
        let mut all = Vec::new();
        for (inode, used) in memory.each() {
            let key = (used.pid, used.device);
            let earlier = before.get(&key).filter(|(other, _)| *other == inode).map(|(_, peak)| *peak);
            let peak = used.now.max(earlier.unwrap_or_default());
            self.0.insert(key, (inode, peak));
            all.push(Used { peak: Some(peak), ..used });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_peaks_are_of_each_process_and_device() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let memory = Memory(folder.path().to_owned());
        write("7/vram_51234", "4096\n");
        write("7/pasid", "3");
        write("7/vram_9", "no number");
        write("self/vram_51234", "1");
        let used = |now, peak| Used { pid: 7, device: 51_234, now, peak };
        assert_eq!(memory.read(), [used(4096, None)]);
        let mut peaks = Peaks::default();
        assert_eq!(peaks.update(&memory), [used(4096, Some(4096))]);
        write("7/vram_51234", "100\n");
        assert_eq!(peaks.update(&memory), [used(100, Some(4096))]);
        // A new process with the same number. Renaming keeps the old inode in use.
        fs::rename(folder.path().join("7"), folder.path().join("old")).unwrap();
        write("7/vram_51234", "200\n");
        assert_eq!(peaks.update(&memory), [used(200, Some(200))]);
        fs::remove_dir_all(folder.path().join("7")).unwrap();
        assert_eq!(peaks.update(&memory), []);
        assert!(peaks.0.is_empty());
        assert_eq!(Memory(folder.path().join("none")).read(), []);
    }
}
