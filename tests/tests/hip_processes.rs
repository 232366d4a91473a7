//! Several processes on one simulated GPU: shared memory size, processes that are killed, signals, queue updates.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use tests::Gpu;

#[test]
fn vram_is_shared_by_a_process_tree() {
    Gpu::take().run("vram").sim("--vram", 64).finish().expect_success();
}

#[test]
fn vram_is_shared_by_runs_of_one_name() {
    let gpu = Gpu::take();
    let mut holder = gpu.shared("vram").arg("hold").arg("40").start();
    assert_eq!(holder.line(), "held");
    let second = gpu.shared("vram").arg("try").arg("40").finish();
    assert_eq!(second.expect_success().stdout, "hipErrorOutOfMemory\nok\n");
    // Another name is another GPU.
    let other = gpu.run("vram").sim("--vram", 64).arg("try").arg("40").finish();
    assert_eq!(other.expect_success().stdout, "hipSuccess\nok\n");
    // The first run may end before those that joined it: the GPU stays as long as anyone uses it.
    let mut keeper = gpu.keep();
    holder.let_go();
    holder.finish().expect_success();
    let third = gpu.shared("vram").arg("try").arg("40").finish();
    assert_eq!(third.expect_success().stdout, "hipSuccess\nok\n");
    keeper.let_go();
    assert_eq!(keeper.finish().code, 0);
}

/// Starts `gpu-sim run --name NAME -- sh -c ...` in another root directory, where `/mnt/marker` is; shell words that enter it
/// are `how`, with the directory as `$1`.
fn in_another_root(how: &str, name: &str, program: &Path) -> Output {
    let root = tempfile::tempdir().expect("a folder");
    // Nothing of this is seen outside: the mounts are private to the shell.
    let script = format!(
        "set -e; mount --rbind / $1; mount -t tmpfs none $1/mnt; echo mine >$1/mnt/marker; {how} \
         $2 run --name $3 -- sh -c 'cat /mnt/marker; pwd; exec $0 try 40' $4"
    );
    let gpu_sim = tests::product("gpu-sim").unwrap_or_else(|reason| panic!("{reason}"));
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "slave", "sh", "-c", &script, "sh"]);
    command.arg(root.path()).arg(gpu_sim).arg(name).arg(program);
    command.output().expect("unshare starts")
}

/// A run from another root directory is on the same GPU, and sees the files of its own root and not those of the first run's.
#[test]
fn runs_of_one_name_keep_their_root_directories() {
    let gpu = Gpu::take();
    let program = tests::program("vram").unwrap_or_else(|reason| panic!("{reason}"));
    let mut holder = gpu.shared("vram").arg("hold").arg("40").start();
    assert_eq!(holder.line(), "held");
    let pivot = "cd $1; pivot_root . .; umount -l .; cd /usr/lib; exec";
    for (how, directory) in [(pivot, "/usr/lib"), ("exec chroot $1", "/")] {
        let ran = in_another_root(how, gpu.name(), &program);
        let said = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(said, format!("mine\n{directory}\nhipErrorOutOfMemory\nok\n"), "{how}: {ran:?}");
    }
    // Whoever makes the GPUs behind a chroot stays there.
    let first = in_another_root("exec chroot $1", &format!("{}-first", gpu.name()), &program);
    assert_eq!(String::from_utf8_lossy(&first.stdout), "mine\n/\nhipSuccess\nok\n", "{first:?}");
    // A root that is no mount cannot be given mounts that nobody else sees.
    let inside = "mkdir $1/mnt/root; for d in $(ls / | grep -v '^mnt$'); do test ! -d /$d || { mkdir $1/mnt/root/$d; \
                  mount --rbind /$d $1/mnt/root/$d; }; done; exec chroot $1/mnt/root";
    let refused = in_another_root(inside, gpu.name(), &program);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), why.lines().count()), (Some(125), 1), "{refused:?}");
    assert!(why.contains("another root directory") && why.contains("mount --bind DIR DIR"), "{why}");
    holder.let_go();
    holder.finish().expect_success();
}

#[test]
fn out_of_memory() {
    Gpu::take().run("oom").sim("--vram", 8).finish().expect_success();
}

/// A killed process leaves nothing behind: its memory, its queues and its minute-long kernels are gone at once.
#[test]
fn killed_process() {
    let gpu = Gpu::take();
    let mut keeper = gpu.keep();
    for _ in 0..3 {
        let mut victim = gpu.shared("stay").arg("40").start();
        assert_eq!(victim.line(), "ready");
        let meanwhile = gpu.shared("vram").arg("try").arg("40").finish();
        assert_eq!(meanwhile.expect_success().stdout, "hipErrorOutOfMemory\nok\n");
        victim.kill_program();
        let ended = victim.finish();
        assert_eq!(ended.code, 128 + 9, "{ended:?}");
        let fresh = gpu.shared("vram").arg("all").arg("60").finish();
        assert_eq!(fresh.expect_success().stdout, "took 60 GiB and ran\nok\n");
        assert!(
            fresh.wall < Duration::from_secs(30),
            "took {:?} beside the kernel of a dead process",
            fresh.wall
        );
    }
    keeper.let_go();
    assert_eq!(keeper.finish().code, 0);
}

/// Killed at any point: while it starts, allocates, launches. The device stays usable.
#[test]
fn killed_at_any_point() {
    let gpu = Gpu::take();
    let mut keeper = gpu.keep();
    for lines in 0..4 {
        let mut victim = gpu.shared("streams").start();
        for _ in 0..lines {
            victim.line();
        }
        if lines > 0 {
            victim.kill_program();
        }
        drop(victim); // kills gpu-sim's front end as well
        gpu.shared("random_order").arg("7").finish().expect_success();
    }
    keeper.let_go();
    assert_eq!(keeper.finish().code, 0);
}

/// Without its device a program does not go on: it ends with gpu-sim.
#[test]
fn killed_gpu_sim() {
    let gpu = Gpu::take();
    let mut victim = gpu.run("stay").sim("--vram", 64).arg("40").start();
    assert_eq!(victim.line(), "ready");
    victim.kill_gpu_sim();
}

/// A gpu-sim inside a gpu-sim uses the outer one's GPUs: nothing is simulated twice.
#[test]
fn nested() {
    Gpu::take().run("random_order").arg("9").nested().finish().expect_success();
}

/// Under a timer signal every 100 µs each ioctl is executed exactly once: the counts are those of the quiet run.
#[test]
fn signals() {
    let gpu = Gpu::take();
    let run = |mode: &str| gpu.run("signals").arg(mode).with_stats().finish();
    let quiet = run("none");
    quiet.expect_success();
    assert!(quiet.stats().ioctls("alloc_memory_of_gpu") >= 400, "{}", quiet.stats().value());
    for mode in ["restart", "interrupt"] {
        let signalled = run(mode);
        assert_eq!(signalled.expect_success().stdout, quiet.stdout, "{mode}");
        for ioctl in
            ["alloc_memory_of_gpu", "free_memory_of_gpu", "map_memory_to_gpu", "create_queue", "create_event"]
        {
            let (got, want) = (signalled.stats().ioctls(ioctl), quiet.stats().ioctls(ioctl));
            assert_eq!(got, want, "{ioctl} under the timer ({mode})");
        }
    }
}

/// UPDATE_QUEUE stops and continues queues; the running kernel keeps the time that it had left.
#[test]
fn update_queue() {
    Gpu::take().run("update_queue").finish().expect_success();
}

/// `xcli queues` shows from outside what a program has on the device, though it was not preloaded and the device is simulated.
#[test]
fn queues_are_seen_from_outside() {
    let gpu = Gpu::take();
    let mut program = gpu.run("stay").sim("--vram", 64).arg("8").start();
    assert_eq!(program.line(), "ready");
    let pid = program.program().expect("it runs").as_raw_nonzero().to_string();
    let xcli = tests::product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
    let ask =
        |pid: &str| tests::kernel::command(&xcli).args(["queues", pid, "--json"]).output().expect("xcli");
    let answer = ask(&pid);
    assert!(answer.status.success(), "{answer:?}");
    let seen: serde_json::Value = serde_json::from_slice(&answer.stdout).expect("JSON");
    let queues = seen["queues"].as_array().expect("queues");
    let compute = queues.iter().filter(|queue| queue["type"] == "compute").count();
    assert!(compute >= 2, "three streams have {compute} compute queues: {seen}");
    assert!(
        queues.iter().all(|queue| queue["size"].as_u64() > Some(0) && queue["pci"].is_string()),
        "{seen}"
    );
    program.kill_program();
    program.finish();
    let refused = ask(&std::process::id().to_string());
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}
