//! `old-kernel COMMAND...`: runs a command as on Linux 4.18 (Red Hat Enterprise Linux 8); see `tests::kernel`.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use tests::kernel;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(command) = words.next() else {
        eprintln!("old-kernel: no command is given. Usage: old-kernel COMMAND [ARGUMENT...]");
        return ExitCode::from(125);
    };
    match kernel::imitate() {
        Ok(()) => {
            let error = Command::new(&command).args(words).exec();
            eprintln!("old-kernel: cannot start {}: {error}", command.display());
        }
        Err(error) => eprintln!("old-kernel: the kernel takes no seccomp filter: {error}"),
    }
    ExitCode::from(125)
}
