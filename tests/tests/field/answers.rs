//! Answers of the runtime (at once or deferred) and of the simulated driver. The programs check
//! that themselves; here each runs in the modes in which it once was answered otherwise than natively.

use tests::Installed;
use tests::conformance::{MODES, compare};
use tests::program::Program;

/// These programs do and say in these modes what they do and say natively.
fn as_natively(programs: &[&str], modes: &[&str]) {
    let mode = |name: &&str| MODES.iter().find(|mode| mode.name == *name).unwrap_or_else(|| panic!("{name}"));
    let modes: Vec<_> = modes.iter().map(mode).collect();
    for name in programs {
        let program = Program::find(name).unwrap_or_else(|reason| panic!("{reason}"));
        assert!(program.directions.from_hip <= tests::hip_major(), "{name} is for a later HIP");
        let verdict = compare(&program, &modes, &Installed);
        assert!(verdict.problems.is_empty(), "{}", verdict.problems);
    }
}

#[test]
fn h1_nothing_waits_behind_what_only_the_program_can_end() {
    as_natively(&["host_opens", "capture_behind_value"], &["defer", "rival"]);
}

#[test]
fn h2_a_query_knows_what_a_synchronous_call_has_completed() {
    as_natively(&["query_behind_whole"], &["queues"]);
}

#[test]
fn h3_what_the_runtime_refuses_is_refused_at_once() {
    as_natively(&["refused_copies", "refused_launches", "refused_others"], &["defer"]);
}

#[test]
fn h4_f7_the_limits_are_the_devices_own() {
    as_natively(&["launch_limits"], &["defer"]);
}

#[test]
fn h5_a_graph_that_was_destroyed_is_refused_at_once() {
    as_natively(&["graph_ended"], &["defer"]);
}

#[test]
fn g1_g2_g3_the_simulated_driver_does_what_the_driver_does_or_says_that_it_does_not() {
    as_natively(&["host_register_unmapped", "virtual_memory", "events_ipc", "ipc_processes"], &["queues"]);
}

#[test]
fn f1_kernels_of_many_architectures_are_deferred() {
    as_natively(&["arguments_none", "ext_launch"], &["fat", "fat-compressed"]);
}

#[test]
fn f2_a_renamed_runtime_is_scheduled_and_the_switch_is_heeded() {
    as_natively(&["path_renamed"], &["queues", "inert"]);
}

#[test]
fn f2_each_of_two_runtimes_answers_for_itself() {
    as_natively(&["path_two_runtimes"], &["queues"]);
}

#[test]
fn f10_a_busy_kernel_is_a_fixed_amount_of_work() {
    as_natively(&["busy_clock"], &["preloaded"]);
}

#[test]
fn f14_an_auditor_beside_the_library_finds_its_way() {
    as_natively(&["path_audit"], &["queues"]);
}

#[test]
fn a8_a_request_to_the_driver_with_a_bad_pointer_is_refused() {
    as_natively(&["kfd_bad_arguments"], &["queues"]);
}
