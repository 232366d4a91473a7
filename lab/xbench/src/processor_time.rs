//! Processor time of a process and of the whole machine.

use anyhow::{Context, Result, anyhow};
use std::time::{Duration, Instant};

/// Returns the processor time (user and system, all threads) that process `pid` has used so far.
///
/// It reads the process's CPU-time clock: the same quantity as `utime + stime` of `/proc/PID/stat`, but in
/// nanoseconds. The file counts in ticks of 10 ms, which is half of one percent of a two-second window.
pub(crate) fn process_cpu(pid: u32) -> Result<Duration> {
    let cannot =
        |reason: std::io::Error| anyhow!("cannot read the processor time of process {pid}: {reason}");
    let pid_t = libc::pid_t::try_from(pid).with_context(|| format!("{pid} is no process id"))?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` is writable, and the call takes any pid.
    let error = unsafe { libc::clock_getcpuclockid(pid_t, &mut clock) };
    if error != 0 {
        return Err(cannot(std::io::Error::from_raw_os_error(error)));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; the clock of a process that has ended is an error.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(cannot(std::io::Error::last_os_error()));
    }
    Ok(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
}

/// The beginning of the names of the preloaded library's own threads.
const LIBRARY_THREADS: &str = "giveway-";

/// Returns the processor time that the preloaded library's own threads in this process have used so far. What the library
/// does on the program's threads, within their calls, is not in it.
///
/// `None` where the kernel does not count it (`/proc/PID/task/TID/schedstat`, with `CONFIG_SCHED_INFO`).
pub(crate) fn library_cpu() -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).ok();
        // A thread can end meanwhile.
        let Some(name) = read("comm") else { continue };
        if name.starts_with(LIBRARY_THREADS) {
            sum += on_processor(&read("schedstat")?)?;
        }
    }
    Some(sum)
}

/// Returns the time on a processor from a `schedstat`: its first number, in nanoseconds.
fn on_processor(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// Returns the processor time that all processes together have used on all cores since boot, from
/// `/proc/stat`. Time that a hypervisor took away ("steal") counts as used, because it was not available
/// here.
fn machine_cpu() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks = busy_ticks(&text).context("/proc/stat has no valid line `cpu`")?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Returns user + nice + system + irq + softirq + steal of the line that sums all cores. Idle and iowait are
/// left out; guest time is part of user time.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let fields: Option<Vec<u64>> = line.split_whitespace().skip(1).map(|text| text.parse().ok()).collect();
    let fields = fields.filter(|fields| fields.len() >= 4)?;
    // Kernels before 2.6.11 have fewer columns.
    let counts = [0, 1, 2, 5, 6, 7].map(|column| fields.get(column).copied().unwrap_or(0));
    counts.into_iter().try_fold(0, u64::checked_add)
}

#[derive(Debug)]
pub(crate) struct OtherLoad {
    begin: Instant,
    machine: Duration,
    ours: Duration,
    pids: Vec<u32>,
}

impl OtherLoad {
    /// Starts watching; the processes `pids` are not other load.
    pub(crate) fn start(pids: &[u32]) -> Result<Self> {
        let (machine, ours) = (machine_cpu()?, total_cpu(pids)?);
        Ok(Self { begin: Instant::now(), machine, ours, pids: pids.to_vec() })
    }

    /// Returns the cores that all other processes kept busy since the start, on average: 0.5 is half a core.
    pub(crate) fn cores(&self) -> Result<f64> {
        let (machine, ours) = (machine_cpu()?, total_cpu(&self.pids)?);
        let used = [(machine, self.machine), (ours, self.ours)].map(|(now, then)| now.saturating_sub(then));
        Ok(share(used, self.begin.elapsed()))
    }
}

/// Returns the share of `elapsed` that the machine used and our processes did not.
fn share([machine, ours]: [Duration; 2], elapsed: Duration) -> f64 {
    // The machine's time is counted in coarser steps than ours, so it may be smaller.
    machine.saturating_sub(ours).as_secs_f64() / elapsed.as_secs_f64()
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
    fn library_time_is_that_of_its_threads() {
        let before = library_cpu().unwrap();
        let work = move || {
            let mut x = 1u64;
            while library_cpu().unwrap() == before {
                x = std::hint::black_box(x.wrapping_mul(3));
            }
            library_cpu().unwrap()
        };
        let thread = std::thread::Builder::new().name("giveway-test".into()).spawn(work).unwrap();
        assert!(thread.join().unwrap() > before);
        assert_eq!(on_processor("1500 20 3\n"), Some(Duration::from_nanos(1500)));
        assert_eq!([on_processor(""), on_processor("x")], [None; 2]);
    }

    #[test]
    fn missing_process_is_an_error() {
        // The largest pid that the kernel can give is 2^22.
        let error = process_cpu(1 << 23).unwrap_err().to_string();
        assert!(error.contains("process 8388608"), "{error}");
        assert!(process_cpu(u32::MAX).is_err());
    }

    #[test]
    fn busy_time_leaves_out_idle_and_iowait() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(busy_ticks(stat), Some(100 + 20 + 30 + 6 + 7 + 8));
        assert_eq!(busy_ticks("cpu 1 2 3 4\n"), Some(6));
        for wrong in ["", "cpu0 1 2 3 4\n", "cpu 1 2\n", "cpu 1 x 3 4\n"] {
            assert_eq!(busy_ticks(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn other_load_is_the_machines_time_without_ours() {
        let of = |machine: u64, ours: u64| {
            share([machine, ours].map(Duration::from_millis), Duration::from_millis(2000))
        };
        assert_eq!([of(3000, 1000), of(1500, 500), of(900, 1000)], [1.0, 0.5, 0.0]);
    }

    #[test]
    fn other_load_counts_a_process_that_is_not_ours() {
        let load = OtherLoad::start(&[]).unwrap();
        let mut x = 1u64;
        // This process works until the machine's clock has counted it.
        while machine_cpu().unwrap() == load.machine {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(load.cores().unwrap() > 0.0);
    }
}
