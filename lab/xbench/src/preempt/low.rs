//! The low program: launches kernels that fill the device, back to back.

use super::process::{NO_GPU, PartArgs};
use super::shared_page::SharedPage;
use crate::files::RunFiles;
use crate::kernels::Opened;
use anyhow::{Result, ensure};
use std::time::Duration;

/// The number of kernels after which it counts as running: the library has learnt how long they take.
const WARM_UP: u64 = 20;
/// The work that waits behind the running kernel, so that the device never waits for this program. All of it
/// still runs when the program stops.
const BACKLOG: Duration = Duration::from_millis(5);

/// Returns the number of kernels of this length that wait at a time.
fn backlog(kernel: Duration) -> u64 {
    (BACKLOG.as_nanos() / kernel.as_nanos().max(1)).clamp(4, 64) as u64
}

pub(super) fn run(args: &PartArgs) -> Result<()> {
    let page = SharedPage::open(&RunFiles(&args.dir).page())?;
    let Opened { hip, kernels, stream } = Opened::new(NO_GPU)?;
    let shape = kernels.filling_shape(&hip.device(0)?)?;
    // SAFETY: `page` is dropped after `memory`, so the page stays mapped, and the host accesses it by atomic
    // words.
    let memory = unsafe { hip.register(page.memory(), SharedPage::BYTES) }?;
    page.set_pid(std::process::id());

    let kernel = args.kernel();
    let most = backlog(kernel);
    let nap = (kernel * most as u32 / 8).min(Duration::from_millis(2));
    let (mut launched, mut ready) = (0, false);
    while !page.is_stopped() {
        let completed = page.completed();
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
    let completed = page.completed();
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
    fn backlog_is_some_milliseconds_of_kernels() {
        let of = |us| backlog(Duration::from_micros(us));
        assert_eq!([of(1), of(100), of(2000), of(10_000)], [64, 50, 4, 4]);
    }
}
