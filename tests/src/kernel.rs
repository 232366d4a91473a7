//! Linux 4.18 (Red Hat Enterprise Linux 8) on a newer kernel: a seccomp filter answers as 4.18 does.
//!
//! System calls that came later do not exist (ENOSYS), and neither do later options of older calls that the project uses. With
//! [`VARIABLE`] set to `4.18` the harness starts programs, servers and `xcli` behind the filter. `gpu-sim` itself runs in front of it:
//! the simulated device stands for hardware, and it needs Linux 5.8 (`pidfd_getfd`, `open_tree`, FUSE).

use std::ffi::OsStr;
use std::io::Error;
use std::mem::offset_of;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use crate::tree::product;

/// The environment variable that turns the mode on. The only value is [`OLD`].
pub const VARIABLE: &str = "GIVEWAY_TEST_KERNEL";
/// The kernel that is imitated.
pub const OLD: &str = "4.18";
/// The first system call that Linux 4.18 does not have. Its last one is `rseq`, 334
/// (`arch/x86/entry/syscalls/syscall_64.tbl`).
pub const FIRST_NEW: u32 = 335;

/// `AUDIT_ARCH_X86_64` of linux/audit.h.
const X86_64: u32 = 0xc000_003e;
/// `F_SEAL_FUTURE_WRITE` of linux/fcntl.h, Linux 5.1.
const FUTURE_WRITE: u32 = 0x10;
/// `SO_PEERPIDFD` of asm-generic/socket.h, Linux 6.5.
const PEERPIDFD: u32 = 77;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// Returns true if the harness starts everything behind the old-kernel filter.
///
/// # Panics
/// If the variable names a kernel that is not imitated.
pub fn is_old() -> bool {
    match std::env::var_os(VARIABLE) {
        None => false,
        Some(value) if value == OLD => true,
        Some(value) => {
            panic!("{VARIABLE}={}: only {OLD} can be imitated; unset it or set {OLD}", value.display())
        }
    }
}

/// The words to put before a program that another program starts; none if the mode is off.
pub fn words() -> Vec<PathBuf> {
    if !is_old() {
        return Vec::new();
    }
    vec![product("old-kernel").unwrap_or_else(|reason| panic!("{reason}"))]
}

/// A command that runs behind the filter if the mode is on.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    if is_old() {
        // SAFETY: the closure makes system calls alone and allocates nothing.
        unsafe { command.pre_exec(imitate) };
    }
    command
}

/// A step of the filter; where it goes on, in steps from the next one, if its condition holds and if not.
const fn step(code: u32, value: u32, holds: u8, else_: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: holds, jf: else_, k: value }
}

const fn errno(number: libc::c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | number.cast_unsigned()
}

/// The lower half of an argument.
const fn argument(index: usize) -> u32 {
    (offset_of!(libc::seccomp_data, args) + 8 * index) as u32
}

/// Has this process, and all that it starts, run as on Linux 4.18 from now on. There is no way back.
///
/// # Errors
/// The kernel takes no filter.
pub fn imitate() -> std::io::Result<()> {
    let number = offset_of!(libc::seccomp_data, nr) as u32;
    let architecture = offset_of!(libc::seccomp_data, arch) as u32;
    let mut steps = [
        step(LOAD, architecture, 0, 0),
        step(EQUAL, X86_64, 0, 4),
        step(LOAD, number, 0, 0),
        step(AT_LEAST, FIRST_NEW, 9, 0),
        step(EQUAL, libc::SYS_fcntl as u32, 2, 0),
        step(EQUAL, libc::SYS_getsockopt as u32, 4, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        // fcntl
        step(LOAD, argument(1), 0, 0),
        step(EQUAL, libc::F_ADD_SEALS.cast_unsigned(), 5, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        // getsockopt
        step(LOAD, argument(2), 0, 0),
        step(EQUAL, PEERPIDFD, 5, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(RETURN, errno(libc::ENOSYS), 0, 0),
        // F_ADD_SEALS
        step(LOAD, argument(2), 0, 0),
        step(HAS, FUTURE_WRITE, 0, 2),
        step(RETURN, errno(libc::EINVAL), 0, 0),
        step(RETURN, errno(libc::ENOPROTOOPT), 0, 0),
        step(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    match filter(&program) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {}
        done => return done,
    }
    // Who has no CAP_SYS_ADMIN may take a filter only after giving up set-user-ID programs. Root keeps them, as it has them on 4.18.
    // SAFETY: a number that concerns this process alone.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(Error::last_os_error());
    }
    filter(&program)
}

fn filter(program: &libc::sock_fprog) -> std::io::Result<()> {
    // SAFETY: the program and its steps live through the call, which copies them.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, program) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
