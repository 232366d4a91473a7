//! The low program: kernels that fill the device, back to back.

use super::board::Board;
use super::session::{Files, PartArgs};
use crate::hip::Hip;
use crate::kernels::Kernels;
use anyhow::{Result, ensure};
use std::time::Duration;

/// Kernels before it counts as running: the library has learnt how long they take.
const WARM_UP: u64 = 20;
/// How much work waits behind the running kernel, so that the device never waits for this program; all of it has to run
/// when the program ends.
const BACKLOG: Duration = Duration::from_millis(5);

/// Kernels of this length that wait at a time.
fn backlog(kernel: Duration) -> u64 {
    (BACKLOG.as_nanos() / kernel.as_nanos().max(1)).clamp(4, 64) as u64
}

pub(super) fn run(args: &PartArgs) -> Result<()> {
    let board = Board::open(&Files(&args.dir).board())?;
    let hip = Hip::load()?;
    ensure!(hip.device_count()? > 0, "the HIP runtime sees no GPU");
    let kernels = Kernels::load(&hip, 0)?;
    let shape = kernels.filling_shape(&hip.device(0)?)?;
    let stream = hip.stream()?;
    // SAFETY: the page is mapped until `board` is dropped, which is after `memory`, and read by atomic words.
    let memory = unsafe { hip.register(board.memory(), Board::BYTES) }?;
    board.set_pid(std::process::id());

    let kernel = args.kernel();
    let most = backlog(kernel);
    let nap = (kernel * most as u32 / 8).min(Duration::from_millis(2));
    let (mut launched, mut ready) = (0, false);
    while !board.is_over() {
        let completed = board.completed();
        if !ready && completed >= WARM_UP {
            ready = true;
            println!("ready");
        }
        if launched - completed >= most {
            std::thread::sleep(nap);
            continue;
        }
        launched += 1;
        kernels.busy_store(&stream, &memory, launched, kernel.as_nanos() as u64, shape)?;
    }
    stream.synchronize()?;
    let completed = board.completed();
    ensure!(
        completed == launched,
        "{launched} kernels were launched, and the last to end was number {completed}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_milliseconds_of_work_wait() {
        let of = |us| backlog(Duration::from_micros(us));
        assert_eq!([of(1), of(100), of(2000), of(10_000)], [64, 50, 4, 4]);
    }
}
