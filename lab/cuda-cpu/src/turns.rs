//! The time of the device: how long a kernel occupies it, and, with `CUDA_CPU_SHARED`, the turns of processes.
//!
//! `CUDA_CPU_SHARED=1`: one kernel at a time of all processes of a user, first come first served, as on a GPU that each
//! kernel fills. A value with a slash names the folder of the lock file, for a device that only some processes share.
//! Without it kernels of different streams and processes run at once.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// Keeps the calling thread, and with it its stream, for this long. It takes no processor time.
pub fn occupy(duration: Duration) {
    let begin = Instant::now();
    while let Some(left) = duration.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        std::thread::sleep(left.min(Duration::from_secs(3600)));
    }
}

/// The lock file, where devices are shared.
fn file() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    FILE.get_or_init(|| {
        let value =
            std::env::var("CUDA_CPU_SHARED").ok().filter(|value| !matches!(value.as_str(), "" | "0"))?;
        let folder = if value.contains('/') { PathBuf::from(value) } else { PathBuf::from("/dev/shm") };
        // SAFETY: geteuid has no conditions.
        let path = folder.join(format!("cuda-cpu-{}.lock", unsafe { libc::geteuid() }));
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        if let Err(error) = &opened {
            eprintln!("cuda-cpu: {}: {error}: this process shares the device with nobody", path.display());
        }
        opened.ok()
    })
    .as_ref()
}

/// Locks or unlocks one byte of the file for this process. A process that ends unlocks it.
fn byte(file: &File, at: usize, kind: libc::c_int) {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at as libc::off_t,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and the structure is complete. The lock belongs to the open file, of which a forked
    // child has a copy; children never get here, because they are refused.
    while unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &lock) } != 0
        && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
    {}
}

/// Takes a device for this process. Who waits for it holds the gate, so that the process that had it last cannot pass.
fn hold(file: &File, device: usize) {
    byte(file, 2 * device, libc::F_WRLCK);
    byte(file, 2 * device + 1, libc::F_WRLCK);
    byte(file, 2 * device, libc::F_UNLCK);
}

/// Lets other processes have it.
fn leave(file: &File, device: usize) {
    byte(file, 2 * device + 1, libc::F_UNLCK);
}

/// A kernel's turn on its device, which ends with this.
pub struct Turn(Option<(&'static File, usize, MutexGuard<'static, ()>)>);

/// The most devices there can be.
pub const DEVICES: usize = 16;

/// Waits for a turn on a device.
pub fn take(device: usize) -> Turn {
    static OWN: [Mutex<()>; DEVICES] = [const { Mutex::new(()) }; DEVICES];
    let Some(file) = file() else { return Turn(None) };
    // One thread of a process at a time: the locks of a file are the process's.
    let own = OWN[device % DEVICES].lock();
    hold(file, device);
    Turn(Some((file, device, own)))
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((file, device, own)) = self.0.take() {
            leave(file, device);
            // Threads of this process take turns, too.
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
        // Files that are opened apart are as those of two processes.
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
