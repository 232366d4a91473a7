//! Unmodified HIP on a simulated GPU: one test for each behaviour, the programs are in `tests/programs`.

use tests::Gpu;

/// Programs that need no argument and are right when they say so.
macro_rules! programs {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        $($(#[$doc])*
        #[test]
        fn $name() {
            Gpu::take().run(stringify!($name)).finish().expect_success();
        })+
    };
}

programs! {
    /// hipMemcpy in all directions, all sizes.
    copies,
    /// hipMemcpyAsync, pinned and registered memory.
    copies_async,
    /// hipMemcpy2D.
    copies_2d,
    /// hipMemset in all widths.
    memset,
    /// Launches, order inside a stream, unknown kernels, variables.
    kernels,
    /// Null stream, non-blocking streams, many streams, events between them.
    streams,
    /// Host callbacks behind long kernels.
    callbacks,
    /// More commands than rings hold.
    many,
    /// Threads with own and shared streams.
    threads,
    /// Children with and without HIP.
    fork,
    /// Errors and the last-error state.
    errors,
    /// Stream capture and graph launches.
    graphs,
}

#[test]
fn events() {
    Gpu::take().run("events").arg("--timing").finish().expect_success();
}

/// Runs a program that gets the path of the project's kernels as a code object.
fn with_code_object(program: &str) {
    let code = tests::code_object("module_kernels").unwrap_or_else(|reason| panic!("{reason}"));
    Gpu::take().run(program).arg(code.display().to_string()).finish().expect_success();
}

#[test]
fn modules() {
    with_code_object("module");
}

#[test]
fn launches_of_hip_ext() {
    with_code_object("ext_launch");
}

#[test]
fn long_kernel() {
    Gpu::take().run("long_kernel").finish().expect_success();
}

#[test]
fn long_kernel_with_blocking_waits() {
    Gpu::take().run("long_kernel").arg("--blocking").finish().expect_success();
}

#[test]
fn random_order() {
    let gpu = Gpu::take();
    for seed in 1..=4 {
        gpu.run("random_order").arg(seed.to_string()).finish().expect_success();
    }
}

#[test]
fn two_gpus() {
    Gpu::take().run("multi_gpu").sim("--gpus", 2).sim("--vram", 64).finish().expect_success();
}

/// What a program prints depends on nothing but the program: later native and shimmed runs are compared.
#[test]
fn output_is_the_same_in_every_run() {
    let gpu = Gpu::take();
    for name in ["streams", "kernels", "copies_2d"] {
        let (first, second) = (gpu.run(name).finish(), gpu.run(name).finish());
        assert_eq!(first.expect_success().stdout, second.expect_success().stdout, "{name}");
    }
}

#[test]
fn one_kernel_at_a_time() {
    let gpu = Gpu::take();
    for name in ["kernels", "random_order", "callbacks"] {
        gpu.run(name).sim("--cu-model", "fcfs").finish().expect_success();
    }
}

#[test]
fn exit_code_is_the_programs() {
    let gpu = Gpu::take();
    let run = gpu.run("vram").arg("no-such-role").arg("1").finish();
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("no role no-such-role"), "{run:?}");
}
