//! The device's time: kernels occupy it, and with `CUDA_CPU_SHARED` processes take turns.
//!
//! `CUDA_CPU_SHARED=1`: all processes of a user together run one kernel at a time, first come, first served,
//! as on a GPU that each kernel fills. A value with a slash names the folder of the lock file, so that only
//! some processes share a device. Without the variable, kernels of different streams and processes run at the
//! same time.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// Blocks the calling thread, and thereby its stream, for this long, without using the processor.
pub fn occupy(duration: Duration) {
    let begin = Instant::now();
    while let Some(left) = duration.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::sleep(left.min(Duration::from_secs(3600)));
    }
}

/// The lock file, if processes share the device.
fn file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    FILE.get_or_init(|| {
        let value =
            std::env::var("CUDA_CPU_SHARED").ok().filter(|value| !matches!(value.as_str(), "" | "0"))?;
        let folder = if value.contains('/') { PathBuf::from(value) } else { PathBuf::from("/dev/shm") };
        // SAFETY: geteuid has no preconditions.
        let path = folder.join(format!("cuda-cpu-{}.lock", unsafe { libc::geteuid() }));
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        if let Err(error) = &opened {
            eprintln!("cuda-cpu: {}: {error}: this process shares the device with nobody", path.display());
        }
        opened.ok()
    })
    .as_ref()
}

/// Locks or unlocks one byte of the file for this process. The kernel unlocks it when the process ends.
fn byte(file: &File, at: usize, kind: libc::c_int) {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at as libc::off_t,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the kernel only reads the structure, which is complete.
    // A forked child would share the lock, which belongs to the open file, but children are refused before.
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &lock) } != 0
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
}

/// Takes a device for this process. A waiter holds the first byte as a gate, so that the process that had the
/// device last cannot overtake it.
fn hold(file: &File, device: usize) {
    byte(file, 2 * device, libc::F_WRLCK);
    byte(file, 2 * device + 1, libc::F_WRLCK);
    byte(file, 2 * device, libc::F_UNLCK);
}

/// Releases a device to other processes.
fn leave(file: &File, device: usize) {
    byte(file, 2 * device + 1, libc::F_UNLCK);
}

/// A kernel's turn on its device. Dropping it ends the turn.
pub struct Turn(Option<(&'static File, usize, MutexGuard<'static, ()>)>);

/// The maximum number of devices.
pub const DEVICES: usize = 16;

/// Waits for a turn on a device.
pub fn take(device: usize) -> Turn {
    static OWN: [Mutex<()>; DEVICES] = [const { Mutex::new(()) }; DEVICES];
    let Some(file) = file() else { return Turn(None) };
    // The file's locks belong to the process, so its threads take turns by a lock of their own.
    let own = OWN[device % DEVICES].lock();
    hold(file, device);
    Turn(Some((file, device, own)))
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((file, device, own)) = self.0.take() {
            leave(file, device);
            // A fair unlock lets this process's other threads take turns as well.
            MutexGuard::unlock_fair(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_holds_a_device_at_a_time() {
        static INSIDE: AtomicU32 = AtomicU32::new(0);
        let path = std::env::temp_dir().join(format!("cuda-cpu-turns-{}", std::process::id()));
        // Locks of separately opened files exclude each other, as those of different processes do.
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let files = [open(), open(), open()];
        std::fs::remove_file(&path).unwrap();
        std::thread::scope(|scope| {
            for file in &files {
                scope.spawn(move || {
                    for _ in 0..200 {
                        hold(file, 3);
                        assert_eq!(INSIDE.fetch_add(1, Ordering::AcqRel), 0);
                        std::thread::yield_now();
                        INSIDE.fetch_sub(1, Ordering::AcqRel);
                        leave(file, 3);
                    }
                });
            }
        });
    }
}
