//! The queues and the memory of each process in sysfs: `proc/PID/queues/ID/{size,type,gpuid}` and `proc/PID/vram_GPU` below
//! `/sys/class/kfd/kfd` (`kfd_procfs_add_queue` and `kfd_procfs_show` of `kfd_process.c`).

use std::io;
use std::path::{Path, PathBuf};

use hip_sys::kfd;

/// The folder `proc`, if there is one.
#[derive(Debug, Default)]
pub struct Sysfs {
    root: Option<PathBuf>,
}

/// Returns the driver's internal number of a queue type (`enum kfd_queue_type`), which differs from that of
/// the interface.
fn driver_type(kfd_type: u32) -> u32 {
    match kfd_type {
        kfd::QUEUE_TYPE_SDMA | kfd::QUEUE_TYPE_SDMA_BY_ENG_ID => 1,
        kfd::QUEUE_TYPE_SDMA_XGMI => 4,
        _ => 0,
    }
}

impl Sysfs {
    /// Shows queues below this folder, which it creates.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn at(root: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(root)?;
        Ok(Self { root: Some(root.to_owned()) })
    }

    fn process(&self, pid: i32) -> Option<PathBuf> {
        Some(self.root.as_ref()?.join(pid.to_string()))
    }

    fn queue(&self, pid: i32, id: u32) -> Option<PathBuf> {
        Some(self.process(pid)?.join("queues").join(id.to_string()))
    }

    /// Adds a queue. Errors are ignored, as in the driver.
    pub fn add(&self, pid: i32, id: u32, size: u32, kfd_type: u32, gpu_id: u32) {
        let Some(path) = self.queue(pid, id) else { return };
        let show = || -> io::Result<()> {
            std::fs::create_dir_all(&path)?;
            for (name, value) in [("size", size), ("type", driver_type(kfd_type)), ("gpuid", gpu_id)] {
                std::fs::write(path.join(name), value.to_string())?;
            }
            Ok(())
        };
        let _ = show();
    }

    /// Shows the bytes of a device's memory that a process has allocated. Memory that it has imported does not count.
    pub fn show_memory(&self, pid: i32, gpu_id: u32, bytes: u64) {
        let Some(path) = self.process(pid) else { return };
        let show = || {
            std::fs::create_dir_all(&path)?;
            std::fs::write(path.join(format!("vram_{gpu_id}")), format!("{bytes}\n"))
        };
        // Errors are ignored, as in the driver.
        let _ = show();
    }

    pub fn remove(&self, pid: i32, id: u32) {
        if let Some(path) = self.queue(pid, id) {
            let _ = std::fs::remove_dir_all(path);
        }
    }

    pub fn forget(&self, pid: i32) {
        if let Some(path) = self.process(pid) {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_shown_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::at(&dir.path().join("proc")).unwrap();
        sysfs.add(7, 2, 4096, kfd::QUEUE_TYPE_COMPUTE_AQL, 9);
        sysfs.add(7, 3, 4096, kfd::QUEUE_TYPE_SDMA_XGMI, 9);
        let read = |path: &str| std::fs::read_to_string(dir.path().join("proc").join(path)).ok();
        assert_eq!(read("7/queues/2/size").as_deref(), Some("4096"));
        assert_eq!(read("7/queues/2/type").as_deref(), Some("0"));
        assert_eq!(read("7/queues/3/type").as_deref(), Some("4"));
        assert_eq!(read("7/queues/3/gpuid").as_deref(), Some("9"));
        sysfs.show_memory(7, 9, 1 << 40);
        assert_eq!(read("7/vram_9").as_deref(), Some("1099511627776\n"));
        sysfs.remove(7, 2);
        assert_eq!(read("7/queues/2/size"), None);
        sysfs.forget(7);
        assert_eq!(read("7/queues/3/size"), None);
        Sysfs::default().add(7, 2, 4096, 0, 9);
    }
}
