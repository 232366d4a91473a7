//! The mount namespace in which the simulated devices stand where programs look for real ones.
//!
//! A directory such as `/dev` is shadowed: a tmpfs takes its place, every entry of the original is bound back into it,
//! and the simulated entries are added. Nothing outside the namespace changes, and mounts made outside later still
//! arrive (propagation is one-way).

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags};
use rustix::thread::UnshareFlags;

use crate::driver::Settings;
use crate::topology::{self, GpuConfig};

/// Where the driver shows what processes have.
pub const PROC: &str = "/sys/class/kfd/kfd/proc";
/// Where programs look for the KFD.
pub const KFD: &str = "/dev/kfd";

/// Why the simulated device cannot be had here, in one sentence, if it cannot.
pub fn obstacle() -> Option<&'static str> {
    let needed = 1 << 21; // CAP_SYS_ADMIN
    let effective = fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    if !rustix::process::geteuid().is_root() || effective.is_some_and(|caps| caps & needed == 0) {
        return Some(
            "gpu-sim needs root (CAP_SYS_ADMIN): it mounts the simulated device over /dev and /sys in a private namespace.",
        );
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("gpu-sim needs /dev/fuse (kernel module fuse) to serve the simulated device.");
    }
    None
}

/// Moves the calling process into a namespace of its own with the devices in place. Call before starting threads.
///
/// `nodes` are the mounts of the render nodes, in the order of `gpus`; without one a node is a link to the memory itself,
/// which is enough for ROCr before 6.
pub fn enter(
    kfd: OwnedFd,
    nodes: Vec<OwnedFd>,
    memory: BorrowedFd<'_>,
    gpus: &[GpuConfig],
    settings: &Settings,
) -> anyhow::Result<()> {
    // SAFETY: the caller has no other thread whose file system view could be shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
        .context("cannot make a mount namespace")?;
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", propagation).context("cannot change mount propagation")?;

    shadow("/dev", &["kfd", "dri"])?;
    put(&kfd, KFD)?;
    fs::create_dir("/dev/dri")?;
    let mut nodes = nodes.into_iter();
    for gpu in gpus {
        let path = format!("/dev/dri/renderD{}", gpu.render_minor);
        match nodes.next() {
            Some(node) => put(&node, &path)?,
            // Opening the link opens the memfd itself: what a client maps there is the device's memory.
            None => std::os::unix::fs::symlink(
                format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()),
                path,
            )?,
        }
    }

    shadow("/sys/class", &["kfd"])?;
    fs::create_dir_all("/sys/class/kfd/kfd/topology")?;
    topology::write(Path::new("/sys/class/kfd/kfd/topology"), gpus).context("cannot write the topology")?;
    // Newer runtimes look here.
    shadow("/sys/devices/virtual", &["kfd"])?;
    fs::create_dir_all("/sys/devices/virtual/kfd/kfd")?;
    bind("/sys/class/kfd/kfd", "/sys/devices/virtual/kfd/kfd")?;
    // rocminfo asks whether the driver is loaded.
    shadow("/sys/module", &["amdgpu"])?;
    fs::create_dir("/sys/module/amdgpu")?;
    fs::write("/sys/module/amdgpu/initstate", "live\n")?;
    // What says how the driver treats queues (0: hardware scheduling).
    fs::create_dir("/sys/module/amdgpu/parameters")?;
    let parameters = [
        ("sched_policy", "0".to_owned()),
        ("cwsr_enable", u32::from(settings.cwsr).to_string()),
        ("queue_preemption_timeout_ms", (settings.timeout / 1_000_000).to_string()),
    ];
    for (name, value) in parameters {
        fs::write(format!("/sys/module/amdgpu/parameters/{name}"), value + "\n")?;
    }
    Ok(())
}

/// Mounts a file of ours at a path that does not exist yet.
fn put(mount: &OwnedFd, path: &str) -> anyhow::Result<()> {
    fs::write(path, "")?;
    rustix::mount::move_mount(mount.as_fd(), "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .with_context(|| format!("cannot mount {path}"))
}

/// Puts a tmpfs in place of `path` with all its entries bound into it, except those named.
fn shadow(path: &str, without: &[&str]) -> anyhow::Result<()> {
    let work = || -> io::Result<()> {
        let original =
            rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let behind = format!("/proc/self/fd/{}", original.as_raw_fd());
        let entries: Vec<fs::DirEntry> = fs::read_dir(&behind)?.collect::<Result<_, _>>()?;
        rustix::mount::mount("gpu-sim", path, "tmpfs", MountFlags::NOSUID, c"mode=0755")?;
        for entry in entries {
            let name = entry.file_name();
            if without.iter().any(|skip| name == *skip) {
                continue;
            }
            let (from, to) = (Path::new(&behind).join(&name), Path::new(path).join(&name));
            let kind = entry.file_type()?;
            if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
            } else if kind.is_dir() {
                fs::create_dir(&to)?;
                fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
                bind(&from, &to)?;
            } else if kind.is_file()
                || kind.is_char_device()
                || kind.is_block_device()
                || kind.is_socket()
                || kind.is_fifo()
            {
                fs::write(&to, "")?;
                bind(&from, &to)?;
            }
        }
        Ok(())
    };
    work().with_context(|| format!("cannot shadow {path}"))
}

fn bind(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    Ok(rustix::mount::mount_bind_recursive(from.as_ref(), to.as_ref())?)
}
