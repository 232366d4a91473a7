//! Two runs of one program.

use crate::Finished;

/// Parts of the lines that AMD's libraries write to stderr by themselves.
const OF_THE_RUNTIME: &[&str] = &[
    // libdrm, twice: the simulated render node lacks what only a real one has.
    "amdgpu_get_auth",
    // ROCr, as a debug build: natively as well, and how often depends on how far the device was when the host waited.
    "Use of non-host signal in host signal wait API",
    // ROCr, for each allocation that fails; a program that asks again until it succeeds has more of them.
    "MemoryRegion::BlockAllocator::alloc failed",
    // ROCr, of what a failed kernel has cut off.
    "time stamps may be invalid",
    // ROCr 6 and 7 at exit; how many depends on what was in flight.
    "Resource leak detected by SharedSignalPool",
];

/// The first thing in which a run differs from the native one.
pub(super) fn difference(native: &Finished, shimmed: &Finished) -> Option<String> {
    let difference = if shimmed.code != native.code {
        format!("exit code {} instead of {}", shimmed.code, native.code)
    } else if let Some(difference) = first_line("stdout", &native.stdout, &shimmed.stdout) {
        difference
    } else {
        first_line("stderr", &without_the_runtimes(&native.stderr), &without_the_runtimes(&shimmed.stderr))?
    };
    Some(format!("{difference}\nits stdout:\n{}its stderr:\n{}", shimmed.stdout, shimmed.stderr))
}

fn first_line(stream: &str, native: &str, shimmed: &str) -> Option<String> {
    if native == shimmed {
        return None;
    }
    let (mut want, mut got) = (native.split_inclusive('\n'), shimmed.split_inclusive('\n'));
    for number in 1.. {
        match (want.next(), got.next()) {
            (None, None) => break,
            (want, got) if want == got => {}
            (want, got) => return Some(format!("{stream}, line {number}: {got:?} instead of {want:?}")),
        }
    }
    Some(format!("{stream} differs"))
}

fn without_the_runtimes(stderr: &str) -> String {
    let own = |line: &&str| !OF_THE_RUNTIME.iter().any(|part| line.contains(part));
    stderr.split_inclusive('\n').filter(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found() {
        assert_eq!(first_line("stdout", "a\nb\n", "a\nb\n"), None);
        for other in ["", "a\n", "a\nb", "a\nc\n", "a\nb\n\n", "b\na\n"] {
            assert!(first_line("stdout", "a\nb\n", other).is_some(), "{other:?}");
        }
    }

    #[test]
    fn runtime_output_is_not_compared() {
        assert_eq!(without_the_runtimes("amdgpu_get_auth failed\nmine\n"), "mine\n");
    }
}
