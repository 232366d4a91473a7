//! The program `xbench`: one subcommand a measurement.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use xbench::{
    WrongInput, calibrate, corun, ipc, launch_path, one_process, policy_sim, preempt, replay, scenario,
    selftest, session, sim, tenants,
};

/// Measure giveway, on your own GPU or on the simulated one.
///
/// Each subcommand prints its figures with their limits, or JSON with --json, and exits with 0 if every limit
/// is met, 1 if one is missed or the measurement cannot be made, 2 for wrong input.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure the time that the preloaded library adds to a launch
    ///
    /// The same calls with and without the library, interleaved, on a runtime whose functions do nothing;
    /// with --real on this machine's own HIP as well.
    LaunchPath(launch_path::LaunchPathArgs),
    /// Check that kernels take the time that they are told to take, alone and beside another process
    ///
    /// Recorded models are replayed with such kernels, so all other figures rest on this. Starts the gpu-sim that lies
    /// beside this program; with --real it measures this machine's own GPU.
    Calibrate(calibrate::CalibrateArgs),
    /// Judge the simulated device by the host's clock
    ///
    /// Kernels take their nominal time, thousands of short ones take the sum of theirs, and the idle
    /// supervisor uses almost no processor time and still sees the next dispatch at once. Takes about 45
    /// seconds; run it on an idle machine. Outside gpu-sim it restarts itself under the gpu-sim in its own
    /// directory.
    Sim(sim::SimArgs),
    /// Run a recorded model as load
    ///
    /// Its kernels become kernels of the same grids and durations; a digest of every inference is checked.
    Replay(replay::ReplayArgs),
    /// Measure an urgent model's latency beside a batch model on one GPU, without and with giveway
    ///
    /// Starts gpu-sim (without --real), xserver and the library that lie beside this program, in interleaved blocks: the
    /// urgent model alone, the batch model alone, both without giveway, and both with it at each requested
    /// preemption level. The exit code is 1 if a level was not in force or never used; missed limits are
    /// reported and do not change it.
    Corun(corun::CorunArgs),
    /// Measure how long an urgent launch waits for the device, at each preemption level
    ///
    /// Measures the time from the urgent program's launch until its kernel runs and until the low program's
    /// queue has stopped, for several lengths of the low program's kernels and, on the simulated GPU, costs
    /// of saving them. Starts gpu-sim, xserver, xcli and the library that lie beside this program. All
    /// settings take about four minutes; run it on an idle machine. The exit code is 1 if a requested level
    /// was not in force; missed limits are reported and do not change it.
    Preempt(preempt::PreemptArgs),
    /// Measure the way between programs and xserver, without a device
    ///
    /// Clients that speak the protocol measure the time from one's launch to another's suspension, processor time and memory
    /// of the server, and a load of many transitions. Starts the xserver that lies beside this program. Takes about two and a
    /// half minutes; run it on an idle machine. The exit code is 1 if a transition was lost; missed limits are reported and do
    /// not change it.
    Ipc(ipc::IpcArgs),
    /// A process of `ipc`.
    #[command(hide = true)]
    IpcPart(ipc::PartArgs),
    /// Run several programs on one GPU, under one policy after the other
    ///
    /// Runs each program alone, all together without giveway, and all together under each policy. Limits are
    /// reported as met or missed and do not change the exit code. --list shows the scenarios.
    Scenario(scenario::ScenarioArgs),
    /// Measure two models on two streams of one process, without and with a policy in the process
    ///
    /// Starts gpu-sim (without --real) and the library that lie beside this program, in interleaved blocks: each model
    /// alone, both without giveway, and both with it. Figures do not change the exit code.
    OneProcess(one_process::OneProcessArgs),
    /// A process of `one-process`.
    #[command(hide = true)]
    OneProcessPart(one_process::PartArgs),
    /// Measure what more and more programs on one GPU cost
    ///
    /// The same model runs back to back in 1, 2, 4, 8 and 16 programs, without giveway and under a policy: the work of all,
    /// its division, and the processor time of the library and the server. Figures do not change the exit code.
    Tenants(tenants::TenantsArgs),
    /// Measure the benefit of knowing about work before it arrives, from hints or by learning
    ///
    /// An urgent program prepares each request on the host before its first launch; with the policy LCBE the
    /// device is cleared meanwhile. The result is a curve over lengths of preparation; limits are reported as
    /// met or missed.
    Prepreempt(scenario::PrepreemptArgs),
    /// Simulate a workload under scheduling policies
    ///
    /// Programs, devices and costs are modelled; the policies are those of this build. Standard output is the
    /// same for the same seed; the speed of the simulation goes to standard error.
    PolicySim(policy_sim::PolicySimArgs),
    /// Measure a part of `xcli report`, as JSON.
    #[command(hide = true)]
    Card(selftest::CardArgs),
    /// A process of `preempt`.
    #[command(hide = true)]
    PreemptPart(preempt::PartArgs),
    /// One run of programs; started by `corun` and `scenario`, under gpu-sim unless they measure a real GPU.
    #[command(hide = true)]
    Session(session::SessionArgs),
}

fn main() -> ExitCode {
    if let Some(code) = manual::asked::<Cli>() {
        return code;
    }
    let result = match Cli::parse().command {
        Command::LaunchPath(args) => launch_path::run(args).map(|()| ExitCode::SUCCESS),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Sim(args) => sim::run(&args),
        Command::Corun(args) => corun::run(&args),
        Command::Preempt(args) => preempt::run(&args),
        Command::PreemptPart(args) => preempt::run_part(&args).map(|()| ExitCode::SUCCESS),
        Command::Ipc(args) => ipc::run(&args),
        Command::IpcPart(args) => ipc::run_part(&args).map(|()| ExitCode::SUCCESS),
        Command::Scenario(args) => scenario::run(&args),
        Command::Prepreempt(args) => scenario::run_prepreempt(&args),
        Command::OneProcess(args) => one_process::run(&args),
        Command::OneProcessPart(args) => one_process::run_part(&args).map(|()| ExitCode::SUCCESS),
        Command::Tenants(args) => tenants::run(&args),
        Command::Session(args) => session::run(&args).map(|()| ExitCode::SUCCESS),
        Command::PolicySim(args) => policy_sim::run(&args),
        Command::Card(args) => selftest::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Replay(args) => replay::run(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xbench: {error:#}");
        if error.is::<WrongInput>() { ExitCode::from(2) } else { ExitCode::FAILURE }
    })
}
