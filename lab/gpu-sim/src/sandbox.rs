//! The mount namespace that contains the simulated devices at the paths of real ones.
//!
//! A directory such as `/dev` is shadowed: a tmpfs replaces it, every entry of the original is bound into it,
//! and the simulated entries are added. Nothing outside the namespace changes. Later mounts outside still
//! appear inside (one-way propagation).

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags};
use serde::{Deserialize, Serialize};

use crate::cards;
use crate::machine::Settings;
use crate::topology::{self, GpuConfig};

/// The folder in which the driver shows the queues of processes.
pub const PROC: &str = "/sys/class/kfd/kfd/proc";
/// The path of the KFD.
pub const KFD: &str = "/dev/kfd";

/// The directories that are shadowed, and the names of their simulated entries.
const SIMULATED: &[(&str, &[&str])] = &[
    ("/dev", &["kfd", "dri"]),
    ("/sys/class", &["kfd", "drm"]),
    ("/sys/devices", &[cards::BUS]),
    // Newer runtimes read the topology here.
    ("/sys/devices/virtual", &["kfd"]),
    // rocminfo checks here that the driver is loaded.
    ("/sys/module", &["amdgpu"]),
];

/// The view of the file system that a process has: its mount namespace and its root directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    namespace: u64,
    /// The mount and the inode of the root directory.
    root: (u64, u64),
}

impl Place {
    /// Returns the place of the calling process.
    pub fn here() -> io::Result<Self> {
        Self::of("self")
    }

    /// Returns the place of a process, by its name in `/proc`.
    pub fn of(process: impl std::fmt::Display) -> io::Result<Self> {
        let namespace = fs::metadata(format!("/proc/{process}/ns/mnt"))?.ino();
        let (path, wanted) = (format!("/proc/{process}/root/"), StatxFlags::INO | StatxFlags::MNT_ID);
        let root = rustix::fs::statx(CWD, path, AtFlags::empty(), wanted)?;
        Ok(Self { namespace, root: (root.stx_mnt_id, root.stx_ino) })
    }
}

/// Returns the reason why this machine cannot simulate a device, if there is one.
pub fn obstacle() -> Option<&'static str> {
    let lacks = rustix::thread::capabilities(None)
        .is_ok_and(|sets| !sets.effective.contains(CapabilitySet::SYS_ADMIN));
    if !rustix::process::geteuid().is_root() || lacks {
        return Some(
            "gpu-sim needs root (CAP_SYS_ADMIN): it mounts the simulated device over /dev and /sys in a private namespace.",
        );
    }
    if !Path::new("/dev/fuse").exists() {
        return Some("gpu-sim needs /dev/fuse (kernel module fuse) to serve the simulated device.");
    }
    None
}

/// Gives the calling process a new mount namespace, whose mounts are invisible outside.
fn isolate() -> anyhow::Result<()> {
    // SAFETY: the calling process has one thread, so that no other thread shares its view of the file system.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
        .context("cannot create a mount namespace")?;
    let propagation = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    match rustix::mount::mount_change("/", propagation) {
        Err(rustix::io::Errno::INVAL) => anyhow::bail!(
            "the root directory is not a mount point (this is a chroot), so that mounts in it would be visible outside. Bind it to \
             itself (mount --bind DIR DIR) before the chroot"
        ),
        result => result.context("cannot change mount propagation"),
    }
}

/// Moves the calling process into a new namespace that contains the devices. Call it before any thread
/// starts.
///
/// `nodes` are the mounts of the render nodes, in the order of `gpus`. A node without a mount is a link to
/// the memory, which suffices for ROCr before 6.
pub fn enter(
    kfd: OwnedFd,
    nodes: Vec<OwnedFd>,
    memory: BorrowedFd<'_>,
    gpus: &[GpuConfig],
    settings: &Settings,
) -> anyhow::Result<()> {
    isolate()?;
    for (directory, names) in SIMULATED {
        shadow(directory, names)?;
    }
    put(&kfd, KFD)?;
    fs::create_dir("/dev/dri")?;
    let mut nodes = nodes.into_iter();
    for gpu in gpus {
        let path = format!("/dev/dri/renderD{}", gpu.render_minor);
        match nodes.next() {
            Some(node) => put(&node, &path)?,
            // The link opens the memfd itself, so that clients map the device's memory.
            None => std::os::unix::fs::symlink(
                format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd()),
                path,
            )?,
        }
    }

    fs::create_dir_all("/sys/class/kfd/kfd/topology")?;
    topology::write(Path::new("/sys/class/kfd/kfd/topology"), gpus).context("cannot write the topology")?;
    fs::create_dir_all("/sys/devices/virtual/kfd/kfd")?;
    bind("/sys/class/kfd/kfd", "/sys/devices/virtual/kfd/kfd")?;
    fs::create_dir("/sys/class/drm")?;
    let written = cards::write(Path::new("/sys/devices"), Path::new("/sys/class/drm"), gpus);
    written.context("cannot write the devices into sysfs")?;
    fs::create_dir("/sys/module/amdgpu")?;
    fs::write("/sys/module/amdgpu/initstate", "live\n")?;
    // Parameters of the driver (`sched_policy` 0: hardware scheduling).
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

/// Moves the calling process into a new namespace that contains the devices of a supervisor in the root
/// directory of the caller. Call it before any thread starts.
pub fn share(supervisor: i32) -> anyhow::Result<()> {
    let home =
        fs::File::open("/proc/self/ns/mnt").context("cannot open the mount namespace of this process")?;
    let open = |path: &str| directory(path).with_context(|| format!("cannot open {path}"));
    let (root, current) = (open("/")?, open(".")?);
    // The mounts of the devices can be copied only in the namespace of the supervisor.
    Entrance::of(supervisor)?.enter()?;
    let mut copies = Vec::new();
    let simulated =
        SIMULATED.iter().flat_map(|(of, names)| names.iter().map(|name| Path::new(of).join(name)));
    for path in simulated {
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(CWD, &path, flags);
        let tree = tree.with_context(|| format!("cannot copy the mount of {}", path.display()))?;
        copies.push((tree, path));
    }
    Entrance { namespace: home.into(), root }.enter()?;
    rustix::process::fchdir(&current)?;
    isolate()?;
    for (directory, names) in SIMULATED {
        shadow(directory, names)?;
    }
    for (tree, path) in copies {
        let is_directory = rustix::fs::fstat(&tree)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
        if is_directory { fs::create_dir(&path) } else { fs::write(&path, "") }?;
        move_to(&tree, &path)?;
    }
    Ok(())
}

/// The descriptors by which a process enters another mount namespace and a root directory in it.
#[derive(Debug)]
pub struct Entrance {
    namespace: OwnedFd,
    root: OwnedFd,
}

impl Entrance {
    /// Opens the namespace and root directory of a process.
    pub fn of(process: i32) -> anyhow::Result<Self> {
        let namespace = fs::File::open(format!("/proc/{process}/ns/mnt"));
        let namespace = namespace.context("cannot reach the simulated GPU's namespace")?.into();
        let root = directory(&format!("/proc/{process}/root"));
        Ok(Self { namespace, root: root.context("cannot reach the simulated GPU's root directory")? })
    }

    /// Enters the namespace, with its root directory as the current directory. The caller has one thread.
    /// Allocates nothing.
    pub fn enter(&self) -> io::Result<()> {
        rustix::thread::move_into_link_name_space(self.namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
        // The call above sets the root of the namespace, which differs from the root of a process in a
        // chroot.
        rustix::process::fchdir(&self.root)?;
        rustix::process::chroot(".")?;
        Ok(())
    }
}

fn directory(path: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Mounts a file at a path that does not exist yet.
fn put(mount: &OwnedFd, path: &str) -> anyhow::Result<()> {
    fs::write(path, "")?;
    move_to(mount, Path::new(path))
}

fn move_to(mount: &OwnedFd, path: &Path) -> anyhow::Result<()> {
    rustix::mount::move_mount(mount.as_fd(), "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .with_context(|| format!("cannot mount {}", path.display()))
}

/// Replaces `path` by a tmpfs with all its entries bound into it, except those in `without`.
fn shadow(path: &str, without: &[&str]) -> anyhow::Result<()> {
    let work = || -> io::Result<()> {
        let original = directory(path)?;
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
            } else {
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
