//! Answers of the KFD: the same program on the simulated driver, per generation and setting, and on a real one where there
//! is one. It says which it was.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use tests::{Finished, Gpu, Run};

/// A test takes a turn on the processors as long as it has this.
fn conformance(run: Run) -> Finished {
    let finished = run.finish();
    finished.expect_success();
    assert!(finished.stdout.starts_with("driver: simulated\n"), "{}", finished.stdout);
    finished
}

fn has(finished: &Finished, line: &str) -> bool {
    finished.stdout.lines().any(|other| other == line)
}

#[test]
fn on_a_simulated_gfx90a() {
    let gpu = Gpu::take();
    let finished = conformance(gpu.run("kfd_ioctls").with_stats());
    assert!(has(&finished, "GET_QUEUE_WAVE_STATE: waves are saved"), "{}", finished.stdout);
    let stats = finished.stats();
    assert!(stats.ioctls("dbg_trap") > 20 && stats.ioctls("update_queue") > 10, "{}", stats.value());
}

#[test]
fn with_times_to_save_and_restore() {
    let gpu = Gpu::take();
    conformance(gpu.run("kfd_ioctls").sim("--save-us", 500).sim("--restore-us", 300));
}

#[test]
fn without_waves_that_can_be_saved() {
    let gpu = Gpu::take();
    let finished = conformance(gpu.run("kfd_ioctls").sim_flag("--no-cwsr"));
    assert!(has(&finished, "GET_QUEUE_WAVE_STATE: waves are not saved"), "{}", finished.stdout);
}

/// The installed runtime may be older than the device: it is told of one that it knows, the driver stays gfx11's.
#[test]
fn on_a_simulated_gfx1100() {
    let gpu = Gpu::take();
    let run = gpu.run("kfd_ioctls").sim("--arch", "gfx1100");
    let finished = conformance(run.env("HSA_OVERRIDE_GFX_VERSION", "10.3.0"));
    assert!(has(&finished, "gfx11: a mask and a debugger exclude each other"), "{}", finished.stdout);
}

#[test]
fn on_a_real_driver_if_there_is_one() {
    let real = |path: &Path| std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_char_device());
    if !real(Path::new("/dev/kfd")) {
        println!("there is no real /dev/kfd here: the conformance was tested on the simulated one alone");
        return;
    }
    let program = tests::program("kfd_ioctls").unwrap_or_else(|reason| panic!("{reason}"));
    let output = tests::kernel::command(program).output().expect("the program runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    println!("on the real /dev/kfd:\n{stdout}");
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.starts_with("driver: real\n"));
}

/// Kernels that are held while saving and restoring take time go on where they were, and the device has counted it.
#[test]
fn kernels_are_held_at_a_cost() {
    let gpu = Gpu::take();
    let run = gpu.run("update_queue").sim("--save-us", 200).sim("--restore-us", 100).with_stats().finish();
    let stats = run.expect_success().stats();
    let driver = &stats.value()["gpus"][0]["driver"];
    let count = |name: &str| driver[name].as_f64().unwrap_or_else(|| panic!("no {name} in {driver}"));
    // Five holds with a running kernel, each saved once and restored once.
    assert!(count("saves") >= 5.0 && count("save_restore_us") >= 5.0 * 300.0, "{driver}");
    assert_eq!(count("resets"), 0.0);
}

/// A queue that does not come off makes the driver reset the device; the program is told, and dies of it.
#[test]
fn a_queue_that_does_not_come_off_resets_the_device() {
    let gpu = Gpu::take();
    let run = (1..=16).map(|queue| {
        gpu.run("update_queue")
            .sim("--preemption-timeout-ms", 100)
            .sim("--stuck-queue", queue)
            .with_stats()
            .finish()
    });
    let reset = |run: &Finished| run.stats().value()["gpus"][0]["driver"]["resets"] == 1;
    // Which number the kernel's queue has is the runtime's business.
    let run = run.into_iter().find(reset).expect("one of the runtime's first queues runs the kernel");
    assert_ne!(run.code, 0, "{run:?}");
}

/// Ioctls that fail by a seed, the same every time.
#[test]
fn failures_are_made_to_order() {
    let gpu = Gpu::take();
    let run = gpu.run("kfd_ioctls").sim("--fail-ioctls", "1:1:update_queue").with_stats().finish();
    assert_ne!(run.code, 0);
    let errors = ["Input/output error instead of", "Cannot allocate memory instead of"];
    assert!(errors.iter().any(|error| run.stderr.contains(error)), "{}", run.stderr);
    assert!(run.stats().value()["failed_ioctls"].as_u64() > Some(0), "{}", run.stats().value());
    let wrong = gpu.run("update_queue").sim("--fail-ioctls", "1:1:nothing").finish();
    assert!(wrong.code == 125 && wrong.stderr.contains("no request of the driver"), "{wrong:?}");
}
