//! Unmodified HIP on a simulated GPU, in other ways than the conformance suite runs its programs (which is natively, too).

use tests::Gpu;

#[test]
fn events_with_timing_succeed() {
    Gpu::take().run("events").arg("--timing").finish().expect_success();
}

#[test]
fn long_kernel_with_blocking_waits() {
    Gpu::take().run("long_kernel").arg("--blocking").finish().expect_success();
}

#[test]
fn random_order_of_four_seeds_is_kept() {
    let gpu = Gpu::take();
    for seed in 1..=4 {
        gpu.run("random_order").arg(seed.to_string()).finish().expect_success();
    }
}

/// A program prints the same in every run, so that native and shimmed runs can be compared.
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
