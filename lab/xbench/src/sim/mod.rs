//! `xbench sim`: judges the simulated device by the host's clock.
//!
//! All measurements are made from outside, through stock HIP calls and the processor time of the supervisor,
//! so that the device cannot judge itself. Four figures have a limit:
//!
//! * A kernel of 500 µs: from the launch call to the return of `hipStreamSynchronize`, minus the same for an
//!   empty kernel next to it, median. 500 µs ± 5 %.
//! * 5,000 kernels of 2 µs, back to back on one stream: total over sum. 0.95 to 1.10: a device that dropped
//!   or overlapped kernels would be below; one that is late for each of them adds its lateness up and lands
//!   at 2 or more, because a single wake-up takes longer than such a kernel. Ten percent leaves room for the
//!   host to notice the end of a 5 ms batch late by half a millisecond.
//! * The supervisor's processor time from 100 ms after the last work on: at most 1 % of a core.
//! * A dispatch to a device idle for more than 100 ms: from before the store to the doorbell of a hardware
//!   queue to the moment when the host, looking without pause, sees the packet's completion signal lowered.
//!   p99 at most 100 µs. The packet is a barrier, which takes no time, in a queue of our own beside HIP's, so
//!   that neither HIP's way to the doorbell nor an interrupt is part of it; it is an upper bound of when the
//!   supervisor noticed. Beside it: the part in which the store itself was blocked, the same to a warm
//!   device, what a HIP launch adds, and the wake-up of a host thread after the same pause. The last is what
//!   this machine takes to get any sleeping thread onto a core; a supervisor that must not use the processor
//!   while idle cannot be faster.
//!
//! The other figures explain: where a kernel is too long through `hipStreamSynchronize` but right up to the
//! store of the next one, the runtime's way of waiting (an interrupt, a thread that has to be woken) is slow,
//! not the kernel.

mod flag;
mod measure;
mod wake;

use crate::WrongInput;
use crate::hip::Device;
use crate::kernels::Opened;
use crate::processor_time::{OtherLoad, process_cpu};
use crate::report::{Limit, Report};
use crate::stats::Samples;
use anyhow::{Context, Result, bail};
use clap::Args;
use measure::{KernelTime, Plan, SumTime};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use wake::WakeTime;

/// Set by gpu-sim for its children: the supervisor's process id.
const SUPERVISOR: &str = "GPU_SIM_PID";
/// The cores used by other processes above which the figures are not reliable.
const QUIET_CORES: f64 = 0.1;

/// Options of `xbench sim`.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
    /// Fewer repetitions: a quarter of the time, and a p99 without room for an outlier
    #[arg(long)]
    quick: bool,
    /// Fail outside gpu-sim instead of restarting under the gpu-sim beside this program
    #[arg(long)]
    no_spawn: bool,
}

/// Runs the command: exit code 0 if every limit is met, else 1.
pub fn run(args: &SimArgs) -> Result<ExitCode> {
    let Some(supervisor) = supervisor_pid(std::env::var_os(SUPERVISOR))? else {
        return outside(args);
    };
    let plan = if args.quick { Plan::QUICK } else { Plan::FULL };
    let outcome = judge(&measure_all(supervisor, plan)?, args.quick);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
    } else {
        print!("{}", outcome.table());
    }
    Ok(if outcome.met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the supervisor's id from the environment; `None` outside gpu-sim.
fn supervisor_pid(value: Option<OsString>) -> Result<Option<u32>> {
    let Some(value) = value else { return Ok(None) };
    let pid = value.to_str().and_then(|text| text.parse().ok()).filter(|pid| *pid > 0);
    let wrong = || WrongInput(format!("{SUPERVISOR} is {value:?}, which is no process id"));
    Ok(Some(pid.ok_or_else(wrong)?))
}

/// Outside gpu-sim: replaces this process by `gpu-sim run -- xbench sim`, or reports the command to type.
fn outside(args: &SimArgs) -> Result<ExitCode> {
    let advice = "xbench sim judges the simulated GPU and must run under it: gpu-sim run -- xbench sim";
    if args.no_spawn {
        bail!("{advice}");
    }
    let this = crate::process::this_program()?;
    let gpu_sim = this.with_file_name("gpu-sim");
    if !gpu_sim.is_file() {
        bail!("{advice} (there is no gpu-sim beside this program)");
    }
    let mut command = respawn(gpu_sim, this, args);
    eprintln!("xbench: no simulated GPU here; starting again as: gpu-sim run -- xbench sim");
    // Returns only on failure.
    Err(command.exec()).with_context(|| format!("cannot start {:?}", command.get_program()))
}

/// Returns the command line under gpu-sim. `--no-spawn` prevents a loop if the supervisor does not announce
/// itself.
fn respawn(gpu_sim: PathBuf, this: PathBuf, args: &SimArgs) -> Command {
    let mut command = Command::new(gpu_sim);
    command.args(["run", "--"]).arg(this).args(["sim", "--no-spawn"]);
    if args.json {
        command.arg("--json");
    }
    if args.quick {
        command.arg("--quick");
    }
    command
}

#[derive(Debug)]
struct Measured {
    device: Device,
    runtime_version: i32,
    supervisor: u32,
    empty_us: Samples,
    kernels: Vec<KernelTime>,
    sum: SumTime,
    idle_share: f64,
    wake: WakeTime,
    other_cores: f64,
}

fn measure_all(supervisor: u32, plan: Plan) -> Result<Measured> {
    let bench = Opened::new("the HIP runtime sees no device, although GPU_SIM_PID is set")?;
    bench.warm_up()?;
    let others = OtherLoad::start(&[std::process::id(), supervisor])?;
    let empty_us = bench.empty_kernel(plan.pairs)?;
    let used_before = process_cpu(supervisor)?;
    let mut kernels = Vec::new();
    for (duration_us, pairs) in [(100, plan.pairs), (500, plan.pairs), (5000, plan.pairs / 5)] {
        kernels.push(bench.kernel_time(duration_us * 1000, pairs)?);
    }
    let sum = bench.short_kernels(plan.sums)?;
    if process_cpu(supervisor)? == used_before {
        // Otherwise its idle time below would look excellent.
        bail!(
            "process {supervisor} used no processor time while the device worked, so it is not the supervisor that \
             {SUPERVISOR} should name"
        );
    }
    Ok(Measured {
        device: bench.hip.device(0)?,
        runtime_version: bench.hip.runtime_version()?,
        supervisor,
        empty_us,
        kernels,
        sum,
        idle_share: bench.idle_share(supervisor, plan.idle_window)?,
        wake: wake::wake(&bench, plan.wakes)?,
        other_cores: others.cores()?,
    })
}

#[derive(Debug, Serialize)]
struct Outcome {
    command: &'static str,
    met: bool,
    quick: bool,
    /// False if other processes kept the machine busy, which can make the device miss a limit.
    quiet: bool,
    arch: String,
    compute_units: u32,
    runtime_version: i32,
    supervisor_pid: u32,
    #[serde(flatten)]
    report: Report,
}

impl Outcome {
    fn table(&self) -> String {
        let mut text = format!(
            "simulated {} with {} compute units, HIP runtime {}, seen by the host's clock\n\n{}\n",
            self.arch, self.compute_units, self.runtime_version, self.report
        );
        let missed = self.report.missed().count();
        if missed == 0 {
            text.push_str("Every limit is met.\n");
        } else {
            text.push_str(&format!("{missed} of the limits missed.\n"));
        }
        if !self.quiet {
            text.push_str(
                "Other processes kept this machine busy during the measurement: repeat it on an idle machine.\n",
            );
        }
        text
    }
}

fn judge(measured: &Measured, quick: bool) -> Outcome {
    let mut report = Report::default();
    kernel_figures(&mut report, measured);
    sum_figures(&mut report, &measured.sum);
    report.judged(
        "idle_cpu",
        "supervisor's processor time, idle, from 100 ms after the last work",
        measured.idle_share * 100.0,
        "%",
        Limit::at_most(1.0),
    );
    wake_figures(&mut report, &measured.wake);
    report.info("other_load", "cores kept busy by other processes meanwhile", measured.other_cores, "");
    Outcome {
        command: "sim",
        met: report.is_met(),
        quick,
        quiet: measured.other_cores <= QUIET_CORES,
        arch: measured.device.arch.clone(),
        compute_units: measured.device.compute_units,
        runtime_version: measured.runtime_version,
        supervisor_pid: measured.supervisor,
        report,
    }
}

fn kernel_figures(report: &mut Report, measured: &Measured) {
    let empty = &measured.empty_us;
    report.info("empty_p50", "empty kernel, launch to synchronize, p50", empty.median(), "µs");
    report.info("empty_p99", "empty kernel, p99", empty.percentile(99.0), "µs");
    for kernel in &measured.kernels {
        let names = match kernel.nominal_us as u64 {
            100 => ["kernel_100us", "kernel_100us_stored", "kernel_100us_device"],
            500 => ["kernel_500us", "kernel_500us_stored", "kernel_500us_device"],
            _ => ["kernel_5ms", "kernel_5ms_stored", "kernel_5ms_device"],
        };
        let what = format!("{} µs kernel minus empty, launch to synchronize", kernel.nominal_us);
        let limit = (kernel.nominal_us == 500.0).then(|| Limit::within(475.0, 525.0));
        report.push(names[0], what, kernel.synchronized_us, "µs", limit);
        report.info(
            names[1],
            "  until the host sees the store of a kernel behind it",
            kernel.stored_us,
            "µs",
        );
        report.info(names[2], "  by the device's time stamps", kernel.device_us, "µs");
    }
}

fn sum_figures(report: &mut Report, sum: &SumTime) {
    report.judged(
        "sum_of_short",
        "5000 kernels of 2 µs, already queued: total / sum",
        sum.ratio.median(),
        "",
        Limit::within(0.95, 1.10),
    );
    report.info(
        "host_paced",
        "  each, as fast as the host can launch them",
        sum.host_paced_us.median(),
        "µs",
    );
}

fn wake_figures(report: &mut Report, wake: &WakeTime) {
    let what = "idle > 100 ms: packet to the device taking it up";
    let [p50, p99] = [50.0, 99.0].map(|percent| wake.taken_us.percentile(percent));
    report.judged("wake_p99", format!("{what}, p99"), p99, "µs", Limit::at_most(100.0));
    report.info("wake_p50", format!("{what}, p50"), p50, "µs");
    let others = [
        (["wake_done_p50", "wake_done_p99"], "until the host sees it completed", &wake.cold_us),
        (["wake_store_p50", "wake_store_p99"], "until the store to the doorbell is through", &wake.store_us),
        (["warm_p50", "warm_p99"], "the same, device warm, until completed", &wake.warm_us),
        (
            ["host_thread_p50", "host_thread_p99"],
            "a sleeping host thread's wake-up, no GPU",
            &wake.host_thread_us,
        ),
        (
            ["launch_idle_p50", "launch_idle_p99"],
            "HIP launch call to kernel's store, idle",
            &wake.launch_cold_us,
        ),
        (
            ["launch_warm_p50", "launch_warm_p99"],
            "HIP launch call to kernel's store, warm",
            &wake.launch_warm_us,
        ),
    ];
    for (names, what, samples) in others {
        for (name, percent) in names.into_iter().zip([50.0, 99.0]) {
            report.info(name, format!("  {what}, p{percent}"), samples.percentile(percent), "µs");
        }
    }
}

#[cfg(test)]
mod tests;
