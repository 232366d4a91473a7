//! How much processor time a process, or the whole machine, has used.

use anyhow::{Context, Result, anyhow};
use std::time::{Duration, Instant};

/// Processor time (user and system, all threads) that process `pid` has used so far.
///
/// Read from the process's CPU-time clock: the same quantity as `utime + stime` of `/proc/PID/stat`, but in
/// nanoseconds. The file counts in ticks of 10 ms, which is half of what one percent of a two-second window is.
pub fn process_cpu(pid: u32) -> Result<Duration> {
    let pid_t = libc::pid_t::try_from(pid).with_context(|| format!("{pid} is no process id"))?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is a live, writable clockid_t; the call reads nothing else and takes any pid.
    let error = unsafe { libc::clock_getcpuclockid(pid_t, &mut clock) };
    if error != 0 {
        let reason = std::io::Error::from_raw_os_error(error);
        return Err(anyhow!("cannot read the processor time of process {pid}: {reason}"));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, writable timespec; an id of a process that is gone is an error, not undefined.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        let reason = std::io::Error::last_os_error();
        return Err(anyhow!("cannot read the processor time of process {pid}: {reason}"));
    }
    Ok(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

/// Share of one core that process `pid` uses while this thread sleeps for `window`: 0.01 is one percent of a core.
pub fn cpu_share_while_sleeping(pid: u32, window: Duration) -> Result<f64> {
    let used_before = process_cpu(pid)?;
    let start = Instant::now();
    std::thread::sleep(window);
    let used = process_cpu(pid)?.saturating_sub(used_before);
    Ok(used.as_secs_f64() / start.elapsed().as_secs_f64())
}

/// Processor time that all processes together have used on all cores since boot, from `/proc/stat`; what a
/// hypervisor took away ("steal") counts as used, because it was not there for us.
pub fn machine_cpu() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks = busy_ticks(&text).ok_or_else(|| anyhow!("/proc/stat has no usable first line"))?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// user + nice + system + irq + softirq + steal of the line that sums all cores (idle and iowait are left out, guest
/// time is contained in user already).
fn busy_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.lines().find(|line| line.starts_with("cpu "))?.split_whitespace().skip(1);
    let mut sum = 0u64;
    for index in 0..8 {
        // Kernels before 2.6.11 have fewer columns; the first four have always been there.
        let value: u64 = match fields.next() {
            Some(text) => text.parse().ok()?,
            None if index >= 4 => 0,
            None => return None,
        };
        if index != 3 && index != 4 {
            sum = sum.checked_add(value)?;
        }
    }
    Some(sum)
}

/// Watches what the rest of the machine does while we measure.
#[derive(Debug)]
pub struct OtherLoad {
    since: Instant,
    machine: Duration,
    ours: Duration,
    pids: Vec<u32>,
}

impl OtherLoad {
    /// Starts watching; time used by the processes `pids` does not count as other load.
    pub fn start(pids: &[u32]) -> Result<Self> {
        Ok(Self {
            since: Instant::now(),
            machine: machine_cpu()?,
            ours: total_cpu(pids)?,
            pids: pids.to_vec(),
        })
    }

    /// Cores that all other processes kept busy since the start, on average: 0.5 is half a core.
    pub fn cores(&self) -> Result<f64> {
        let machine = machine_cpu()?.saturating_sub(self.machine);
        let ours = total_cpu(&self.pids)?.saturating_sub(self.ours);
        Ok(machine.saturating_sub(ours).as_secs_f64() / self.since.elapsed().as_secs_f64())
    }
}

fn total_cpu(pids: &[u32]) -> Result<Duration> {
    pids.iter().map(|pid| process_cpu(*pid)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_time_grows_while_working() {
        let me = std::process::id();
        let before = process_cpu(me).unwrap();
        let mut x = 1u64;
        while process_cpu(me).unwrap() == before {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(process_cpu(me).unwrap() > before);
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        // The largest pid that the kernel can give is 2^22.
        let error = process_cpu(1 << 23).unwrap_err().to_string();
        assert!(error.contains("process 8388608"), "{error}");
        assert!(process_cpu(u32::MAX).is_err());
    }

    #[test]
    fn busy_leaves_out_idle_and_iowait() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy_ticks(stat), Some(100 + 20 + 30 + 6 + 7 + 8));
        assert_eq!(busy_ticks("cpu 1 2 3 4\n"), Some(6));
        for wrong in ["", "cpu0 1 2 3 4\n", "cpu 1 2\n", "cpu 1 x 3 4\n"] {
            assert_eq!(busy_ticks(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn other_load_is_a_number() {
        let load = OtherLoad::start(&[std::process::id()]).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert!(load.cores().unwrap() >= 0.0);
    }
}
