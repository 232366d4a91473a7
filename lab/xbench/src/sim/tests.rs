use super::*;
use crate::stats::Samples;

fn measured() -> Measured {
    let samples = |values: &[f64]| Samples::new(values.to_vec()).unwrap();
    let kernel = |nominal_us: f64| KernelTime {
        nominal_us,
        synchronized_us: nominal_us + 4.0,
        stored_us: nominal_us + 2.0,
        device_us: nominal_us + 1.0,
    };
    Measured {
        device: Device {
            name: String::new(),
            arch: "gfx90a".to_owned(),
            compute_units: 104,
            memory: 1 << 36,
            clock_mhz: 1700,
            memory_clock_mhz: 1600,
            memory_bus_bits: 4096,
        },
        runtime_version: 50_221_153,
        supervisor: 7,
        empty_us: samples(&[40.0, 41.0, 90.0]),
        kernels: vec![kernel(100.0), kernel(500.0), kernel(5000.0)],
        sum: SumTime { ratio: samples(&[1.01]), host_paced_us: samples(&[4.0]) },
        idle_share: 0.004,
        wake: WakeTime {
            taken_us: samples(&[30.0, 40.0]),
            cold_us: samples(&[50.0, 60.0]),
            store_us: samples(&[20.0, 30.0]),
            warm_us: samples(&[20.0, 25.0]),
            launch_cold_us: samples(&[150.0, 260.0]),
            launch_warm_us: samples(&[40.0, 45.0]),
            host_thread_us: samples(&[45.0, 55.0]),
        },
        other_cores: 0.01,
    }
}

fn missed(measured: &Measured) -> Vec<&'static str> {
    let outcome = judge(measured, false);
    let missed: Vec<_> = outcome.report.missed().map(|f| f.name).collect();
    assert_eq!(outcome.met, missed.is_empty());
    missed
}

#[test]
fn good_device_meets_every_limit() {
    assert_eq!(missed(&measured()), [""; 0]);
}

#[test]
fn limits_are_judged_one_by_one() {
    let mut late = measured();
    late.kernels[1].synchronized_us = 525.1;
    assert_eq!(missed(&late), ["kernel_500us"]);
    late.kernels[1].synchronized_us = 474.9;
    assert_eq!(missed(&late), ["kernel_500us"]);

    let mut adds_up = measured();
    adds_up.sum.ratio = Samples::new(vec![1.0, 1.2, 1.3]).unwrap();
    assert_eq!(missed(&adds_up), ["sum_of_short"]);

    let mut busy = measured();
    busy.idle_share = 0.011;
    assert_eq!(missed(&busy), ["idle_cpu"]);

    let mut sleepy = measured();
    sleepy.wake.taken_us = Samples::new(vec![10.0, 101.0]).unwrap();
    assert_eq!(missed(&sleepy), ["wake_p99"]);
}

#[test]
fn other_durations_are_information_only() {
    let mut odd = measured();
    odd.kernels[0].synchronized_us = 400.0;
    odd.kernels[2].synchronized_us = 9.0;
    assert_eq!(missed(&odd), [""; 0]);
}

#[test]
fn names_are_unique_and_json_holds_the_table() {
    let outcome = judge(&measured(), true);
    let json = serde_json::to_value(&outcome).unwrap();
    let figures = json["figures"].as_array().unwrap();
    let names: std::collections::BTreeSet<_> = figures.iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), figures.len());
    assert_eq!(json["met"], true);
    assert_eq!(json["quick"], true);
    assert_eq!(json["arch"], "gfx90a");
    let table = outcome.table();
    for figure in figures {
        assert!(table.contains(figure["what"].as_str().unwrap()));
    }
    assert!(table.ends_with("Every limit is met.\n"), "{table}");
}

#[test]
fn busy_machine_is_reported() {
    let mut shared = measured();
    shared.other_cores = 0.5;
    let outcome = judge(&shared, false);
    assert!(!outcome.quiet);
    assert!(outcome.table().contains("Other processes kept this machine busy"));
}

#[test]
fn supervisor_pid_must_be_a_number() {
    assert_eq!(supervisor_pid(None).unwrap(), None);
    assert_eq!(supervisor_pid(Some("812".into())).unwrap(), Some(812));
    for wrong in ["", "0", "-3", "x", "99999999999"] {
        let error = supervisor_pid(Some(wrong.into())).unwrap_err().to_string();
        assert!(error.starts_with("GPU_SIM_PID is "), "{error}");
    }
}

#[test]
fn starting_again_keeps_the_options_and_cannot_loop() {
    let args = SimArgs { json: true, quick: true, no_spawn: false };
    let command = respawn("/a/gpu-sim".into(), "/a/xbench".into(), &args);
    let words: Vec<_> = command.get_args().collect();
    assert_eq!(words, ["run", "--", "/a/xbench", "sim", "--no-spawn", "--json", "--quick"]);
}
