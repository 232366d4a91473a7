//! `gpu-sim info`: requirements, runtimes, and running simulations.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::control::{self, Receiver, ToLauncher, ToSupervisor};
use crate::launch::ENVIRONMENT;
use crate::sandbox;
use crate::topology::ARCHS;

/// The folders in which distributions and AMD's packages install the runtime.
const LIBRARY_DIRS: &[&str] =
    &["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/opt/rocm/lib", "/usr/local/lib"];

/// Prints the state. Returns false if a run would fail on this machine.
pub fn info(as_json: bool) -> bool {
    let obstacle = sandbox::obstacle();
    let runtimes = runtimes();
    let running = running();
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    if as_json {
        let text = json!({
            "usable": obstacle.is_none(),
            "obstacle": obstacle,
            "kernel": kernel,
            "runtimes": runtimes,
            "archs": ARCHS.iter().map(|arch| arch.name).collect::<Vec<_>>(),
            "environment": ENVIRONMENT.iter().map(|(name, value, _)| (*name, *value)).collect::<BTreeMap<_, _>>(),
            "running": running,
        });
        println!("{text:#}");
        return obstacle.is_none();
    }
    println!("usable     {}", obstacle.unwrap_or("yes"));
    println!("kernel     {kernel}");
    match runtimes.as_slice() {
        [] => println!("runtime    no libamdhip64 found in the usual places (make deps installs one)"),
        all => all.iter().for_each(|path| println!("runtime    {path}")),
    }
    for arch in ARCHS {
        println!(
            "device     {} ({} compute units of {} waves)",
            arch.name,
            arch.compute_units(),
            arch.waves_per_cu()
        );
    }
    for (name, value, reason) in ENVIRONMENT {
        println!("sets       {name}={value} for each program: {reason}");
    }
    if running.is_empty() {
        println!("running    nothing");
    }
    for set in &running {
        println!(
            "running    {} (supervisor {}): {} GPU(s) {}",
            set["name"].as_str().unwrap_or("?"),
            set["supervisor"],
            set["setup"]["gpus"],
            set["setup"]["arch"].as_str().unwrap_or("?")
        );
        for gpu in set["gpus"].as_array().into_iter().flatten() {
            let gib = |key: &str| gpu[key].as_f64().unwrap_or(0.0) / f64::from(1 << 30);
            println!(
                "           gpu {}: {:.1} of {:.0} GiB in use",
                gpu["gpu_id"],
                gib("vram_used_bytes"),
                gib("vram_bytes")
            );
        }
        for process in set["processes"].as_array().into_iter().flatten() {
            println!("           process {} ({})", process["pid"], process["name"].as_str().unwrap_or("?"));
            for queue in process["queues"].as_array().into_iter().flatten() {
                let text = |key: &str| queue[key].as_str().unwrap_or("?").to_owned();
                println!(
                    "             queue {} ({}, {}%): {}, {} of {} taken",
                    queue["queue_id"],
                    text("type"),
                    queue["percentage"],
                    text("state"),
                    queue["read"],
                    queue["seen"]
                );
            }
        }
    }
    obstacle.is_none()
}

fn runtimes() -> Vec<String> {
    let mut found: Vec<String> = LIBRARY_DIRS
        .iter()
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flatten()
        .flatten()
        // The file, and not the links to it.
        .filter(|entry| {
            entry.file_name().to_string_lossy().starts_with("libamdhip64.so.")
                && entry.file_type().is_ok_and(|t| t.is_file())
        })
        .map(|entry| {
            std::fs::canonicalize(entry.path()).unwrap_or_else(|_| entry.path()).display().to_string()
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

fn running() -> Vec<Value> {
    let Ok(entries) = std::fs::read_dir(control::run_dir()) else { return Vec::new() };
    let sockets = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "sock"));
    let mut sets: Vec<Value> = sockets.filter_map(|path| ask(&path)).collect();
    sets.sort_by_key(|set| set["name"].as_str().unwrap_or_default().to_owned());
    sets
}

fn ask(path: &Path) -> Option<Value> {
    let stream = UnixStream::connect(path).ok()?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(2))).ok()?;
    control::send(&stream, &ToSupervisor::Info).ok()?;
    let Some(ToLauncher::Report(mut report)) = Receiver::new(&stream).ok()?.next() else { return None };
    report["name"] = json!(path.file_stem()?.to_string_lossy());
    Some(report)
}
