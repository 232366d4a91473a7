//! `old-kernel COMMAND...`: runs a command as on Linux 4.18 (Red Hat Enterprise Linux 8), as far as calls go that the project makes:
//! those that came later do not exist (ENOSYS), and neither does what came later of older ones.

use std::io::Error;
use std::mem::offset_of;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// `AUDIT_ARCH_X86_64` of linux/audit.h.
const X86_64: u32 = 0xc000_003e;
/// The last call of Linux 4.18 is `rseq`, 334 (`arch/x86/entry/syscalls/syscall_64.tbl`).
const FIRST_NEW: u32 = 335;
/// `F_SEAL_FUTURE_WRITE` of linux/fcntl.h, Linux 5.1.
const FUTURE_WRITE: u32 = 0x10;
/// `SO_PEERPIDFD` of asm-generic/socket.h, Linux 6.5.
const PEERPIDFD: u32 = 77;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const HAS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// A step of the filter; where it goes on, in steps from the next one, if its condition holds and if not.
fn step(code: u32, value: u32, holds: u8, else_: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: holds, jf: else_, k: value }
}

fn errno(number: libc::c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | number.cast_unsigned()
}

/// The lower half of an argument.
fn argument(index: usize) -> u32 {
    (offset_of!(libc::seccomp_data, args) + 8 * index) as u32
}

fn be_old() -> std::io::Result<()> {
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
    // SAFETY: a number that concerns this process alone.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the program and its steps live through the call, which copies them.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(command) = words.next() else {
        eprintln!("old-kernel: which command?");
        return ExitCode::from(125);
    };
    let error = match be_old() {
        Ok(()) => Command::new(command).args(words).exec(),
        Err(error) => error,
    };
    eprintln!("old-kernel: {error}");
    ExitCode::from(125)
}
