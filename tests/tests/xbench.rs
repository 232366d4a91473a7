//! xbench's recorded models on the simulated GPU: that they run and are counted, never how fast.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::{Gpu, Mode};

const MODEL: &str = "examples/traces/resnet18_bs1.json";
/// Commands and `mix` kernels of one inference of [`MODEL`].
const KERNELS: u64 = 109 + 13;
/// Inferences before the measured ones.
const WARM_UP: u64 = 3;

fn model() -> String {
    tests::workspace().join(MODEL).display().to_string()
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// Replays 20 requests; the record.
fn replay(mode: Mode) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let (record, launches) = (folder.path().join("record.json"), folder.path().join("launches"));
    let run = Gpu::take()
        .product("xbench")
        .mode(mode)
        .with_stats()
        .arg("replay")
        .arg(model())
        .arg("--rate=100")
        .arg("--seconds=0.2")
        .arg(format!("--record={}", record.display()))
        .arg(format!("--launches={}", launches.display()))
        .finish();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("resnet18 bs1: 20 requests"), "{}", run.stdout);
    // What the runtime itself launches while it starts comes on top.
    let kernels = run.stats().value()["commands"]["kernel"].as_u64().unwrap();
    let expected = (WARM_UP + 20) * KERNELS;
    assert!((expected..expected + KERNELS).contains(&kernels), "{kernels} kernels, {expected} expected");
    assert_eq!(std::fs::metadata(launches).unwrap().len(), expected * 8);
    read(&record)
}

#[test]
fn traffic_is_counted_for_each_inference() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |traffic: &str| {
        let record = folder.path().join(traffic);
        let run = Gpu::take()
            .product("xbench")
            .arg("replay")
            .arg(model())
            .arg("--rate=20")
            .arg("--seconds=0.2")
            .arg(format!("--traffic={traffic}"))
            .arg(format!("--record={}", record.display()))
            .finish();
        assert_eq!(run.code, 0, "{}", run.stderr);
        let record = read(&record);
        let inferences = WARM_UP + record["requests"].as_array().unwrap().len() as u64;
        let bytes = record["traffic_bytes"].as_u64().unwrap();
        assert_eq!((&record["traffic"], bytes % inferences), (&json!(traffic), 0));
        assert_eq!(bytes > 0, run.stdout.contains("all of it counted"), "{}", run.stdout);
        bytes / inferences
    };
    let [none, small, recorded, streaming] = ["none", "small", "recorded", "streaming"].map(bytes);
    assert!(
        none == 0 && 0 < small && small < recorded && recorded < streaming,
        "{small} {recorded} {streaming}"
    );
}

/// Checks the accounts of the device's time in the figures of these modes.
fn check_accounts(accounts: &Value, modes: &[&str]) {
    let accounts = accounts.as_array().unwrap();
    let names: Vec<&str> = accounts.iter().map(|account| account["mode"].as_str().unwrap()).collect();
    assert_eq!(names, modes);
    for account in accounts {
        let number = |value: &Value| value.as_f64().unwrap();
        let entries = account["entries"].as_object().unwrap();
        let (sum, seconds) = (entries.values().map(number).sum::<f64>(), number(&account["seconds"]));
        assert!(seconds > 0.0 && (sum - seconds).abs() < 1e-6, "{account}");
        let busy: f64 = ["urgent", "others", "both"].iter().map(|name| number(&entries[*name])).sum();
        assert!(busy > 0.0 && busy < seconds, "{account}");
        assert!(account["overlap"].is_number(), "{account}");
        // What needs a server is only where there is one.
        let by_server: f64 = ["guard", "linger", "decision"].iter().map(|name| number(&entries[*name])).sum();
        assert!(by_server == 0.0 || !account["level"].is_null(), "{account}");
        assert_eq!(account["doubts"], json!([]), "{account}");
        // The second program alone is the measure of the others.
        let alone = ["low alone", "batch alone"].contains(&account["mode"].as_str().unwrap());
        assert!(account["loss"].is_object() || alone, "{account}");
    }
}

#[test]
fn a_replay_does_the_same_with_and_without_the_library() {
    let native = replay(Mode::Native);
    let queues = ("XSCHED_AUTO_XQUEUE".to_owned(), "ON".to_owned());
    let shimmed = replay(Mode::Shimmed { env: vec![queues, ("XSCHED_POLICY".to_owned(), "HPF".to_owned())] });
    assert_eq!(native["digest"], shimmed["digest"]);
    let arrivals = |record: &Value| {
        let requests = record["requests"].as_array().unwrap();
        requests.iter().map(|request| request["arrived_us"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(arrivals(&native), arrivals(&shimmed));
}

#[test]
fn replay_pauses_between_two_inferences() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.json");
    let run = Gpu::take()
        .product("xbench")
        .arg("replay")
        .arg(model())
        .arg("--think-us=50000")
        .arg("--seconds=0.3")
        .arg(format!("--record={}", record.display()))
        .finish();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("inferences, each 50000 µs after the last"), "{}", run.stdout);
    let record = read(&record);
    let requests = record["requests"].as_array().unwrap();
    assert!(requests.len() > 1, "{record}");
    for pair in requests.windows(2) {
        let pause = pair[1]["began_us"].as_f64().unwrap() - pair[0]["ended_us"].as_f64().unwrap();
        assert!(pause >= 50_000.0, "{pause}");
    }
}

#[test]
fn a_session_serves_every_request_while_the_batch_model_runs() {
    let folder = tempfile::tempdir().unwrap();
    let part = |name: &str, load: Value| {
        json!({
            "name": name, "trace": model(), "scale": 1, "traffic": "none", "seed": 3, "urgent": !load.is_null(),
            "load": load, "prepare_us": 0, "think_us": 0, "hint": false, "level": 1, "variables": [],
        })
    };
    let parts = [part("high", json!([50, "poisson"])), part("low", Value::Null)];
    let session = json!({ "parts": parts, "seconds": 0.4, "policy": null, "account": false });
    std::fs::write(folder.path().join("session.json"), session.to_string()).unwrap();
    let run = Gpu::take()
        .product("xbench")
        .arg("session")
        .arg(format!("--dir={}", folder.path().display()))
        .finish();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let record = |role: &str| read(&PathBuf::from(folder.path()).join(format!("{role}.json")));
    let last = |record: &Value| {
        let requests = record["requests"].as_array().unwrap();
        (requests.len(), requests.last().unwrap()["ended_us"].as_f64().unwrap())
    };
    let (high, high_end) = last(&record("high"));
    let (low, low_end) = last(&record("low"));
    assert_eq!(high, 20);
    assert!(low > 0);
    assert!(low_end > high_end, "the batch model stopped before the last request was served");
}

#[test]
fn the_way_between_programs_and_server_needs_no_device_and_loses_nothing() {
    let _turn = Gpu::take();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ipc.json");
    let output = std::process::Command::new(tests::product("xbench").unwrap())
        .args(["ipc", "--quick", "--clients=2,70", "--rate=2000", "--json"])
        .arg(&file)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let table = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{errors}\n{table}");
    let figures = read(&file);
    let clients: Vec<_> = figures["way"].as_array().unwrap().iter().map(|row| &row["clients"]).collect();
    assert_eq!(clients, [2, 70]);
    for row in figures["way"].as_array().unwrap() {
        assert_eq!(row["blocks"].as_array().unwrap().len(), 2, "{row}");
        assert!(row["best"]["suspended_us"]["p50"].as_f64().unwrap() > 0.0, "{row}");
    }
    let load = &figures["load"];
    for name in ["lost", "gone", "wrong"] {
        assert_eq!(load[name], 0, "{load}");
    }
    let count = |name: &str| load[name].as_u64().unwrap();
    // While the low client waits, each transition of the urgent one is asked for, unless the server has just seen it.
    assert!(count("rounds") > 0 && count("notified") >= count("rounds"), "{load}");
    assert!(count("decisions") >= count("rounds") && count("transitions") >= 2 * count("rounds"), "{load}");
    assert!(figures["memory"]["resident_kib"].as_f64().unwrap() > 0.0, "{figures}");
    let judged = figures["figures"].as_array().unwrap().iter().map(|figure| figure["name"].as_str().unwrap());
    for name in ["ready_p50", "ready_p99", "idle", "rate", "losses", "client_memory"] {
        assert!(judged.clone().any(|judged| judged == name), "{name}");
    }
}

/// Four arrivals beside a low program of this level: what `xbench preempt` has of them.
fn arrivals(level: u8, mechanism: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let run = ["preempt-part", "session", "--kernel-us=2000", "--samples=4", "--seed=1"]
        .into_iter()
        .fold(Gpu::take().product("xbench"), |run, word| run.arg(word))
        .arg(format!("--level={level}"))
        .arg(format!("--mechanism={mechanism}"))
        .arg(format!("--dir={}", folder.path().display()))
        .finish();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let record = read(&folder.path().join("record.json"));
    let samples = record["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 4);
    for sample in samples {
        assert!(sample["to_started_us"].as_f64().unwrap() > 0.0, "{sample}");
        assert!(sample["to_stopped_us"].is_number(), "{sample}");
        let at_once = sample["held"] == true && sample["waited"] == false;
        assert_eq!(sample["software_us"].is_number(), at_once, "{sample}");
    }
    record
}

#[test]
fn urgent_launches_are_followed_until_the_low_program_stands() {
    let record = arrivals(1, "auto");
    assert_eq!((&record["in_force"], &record["how"]), (&Value::from(1), &Value::from("")));
    for sample in record["samples"].as_array().unwrap() {
        assert_eq!((&sample["held"], &sample["waited"]), (&Value::Bool(false), &Value::Bool(false)));
    }
}

#[test]
fn urgent_launches_are_followed_where_nobody_else_is() {
    let record = arrivals(0, "auto");
    for sample in record["samples"].as_array().unwrap() {
        assert_eq!((&sample["held"], &sample["to_stopped_us"]), (&Value::Bool(false), &Value::from(0.0)));
    }
}

#[test]
fn the_level_in_force_is_told() {
    for mechanism in ["update-queue", "debug-trap"] {
        let record = arrivals(3, mechanism);
        assert_eq!(record["in_force"], 3, "{record}");
        assert!(record["how"].as_str().unwrap().contains(mechanism), "{record}");
    }
    let record = arrivals(3, "off");
    assert_eq!(record["in_force"], 1, "{record}");
    assert_ne!(record["how"], "", "{record}");
}

/// A short co-run beside ResNet-50 with these options: exit code, complaints, figures, every latency.
fn corun(options: &[&str]) -> (Option<i32>, String, Value, String) {
    let _turn = Gpu::take();
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("figures.json");
    let low = tests::workspace().join("examples/traces/resnet50_bs256.json");
    let output = std::process::Command::new(tests::product("xbench").unwrap())
        // Kernels of milliseconds, so that a hold pays on a busy machine as well.
        .args(["corun", "--save-us=50", "--scale=20", "--seconds=1", "--blocks=1"])
        // Times are not looked at here, so that a late device is none of this test's business.
        .arg("--allow-late")
        .arg(format!("--high={}@10", model()))
        .arg(format!("--low={}", low.display()))
        .arg(format!("--json={}", figures.display()))
        .args(options)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(figures.exists(), "{errors}");
    let raw = std::fs::read_to_string(folder.path().join("figures.jsonl")).unwrap();
    (output.status.code(), errors, read(&figures), raw)
}

#[test]
fn levels_do_the_same_work_side_by_side() {
    let (code, errors, figures, raw) = corun(&["--level=3,1", "--account"]);
    // Digests, commands, suspensions and the device's own count are judged by the program, which fails otherwise.
    assert_eq!(code, Some(0), "{errors}");
    let levels = figures["levels"].as_array().unwrap();
    assert_eq!(levels.iter().map(|row| row["level"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 3]);
    assert_eq!((&levels[0]["holds"], &levels[0]["in_force"]), (&Value::from(0), &Value::from(1)));
    assert!(levels[1]["holds"].as_u64().unwrap() > 0, "{figures}");
    assert_eq!((&levels[1]["in_force"], &levels[1]["missing"]), (&Value::from(3), &Value::Null));
    for row in levels {
        assert!(
            row["suspensions"].as_u64().unwrap() > 0 && row["low_per_s"].as_f64().unwrap() > 0.0,
            "{row}"
        );
        assert_eq!(row["high_n"], figures["alone"]["high_n"]);
    }
    assert_eq!(figures["save_us"], 50);
    check_accounts(&figures["account"], &["high alone", "without giveway", "HPF", "HPF", "low alone"]);
    let name = |figure: &Value| figure["name"].as_str().expect("a name").to_owned();
    let judged: Vec<String> = figures["figures"].as_array().unwrap().iter().map(name).collect();
    let of_level =
        |level: u8| ["p99_ratio", "free_share", "used_ratio"].map(|name| format!("level{level}_{name}"));
    assert_eq!(judged, [of_level(1), of_level(3)].concat());
    assert!(raw.lines().any(|line| line.contains("\"level\":3") && line.contains("\"role\":\"high\"")));
}

#[test]
fn kernels_with_traffic_do_the_same_work_side_by_side() {
    // Each program checks that its kernels' traffic took place, and fails otherwise.
    let (code, errors, figures, _) = corun(&["--traffic=recorded"]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(figures["traffic"], "recorded");
    assert!(figures["levels"][0]["suspensions"].as_u64().unwrap() > 0, "{figures}");
    assert_eq!(figures["levels"][0]["high_n"], figures["alone"]["high_n"]);
}

#[test]
fn a_level_that_is_not_in_force_is_no_figure_of_it() {
    let (code, errors, figures, _) = corun(&["--level=3", "--mechanism=off"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("level 3 is not in force, level 1 is: "), "{errors}");
    let row = &figures["levels"][0];
    assert_eq!((&row["in_force"], &row["holds"]), (&Value::from(1), &Value::from(0)));
    assert!(row["missing"].is_string(), "{row}");
    assert_eq!(figures["figures"].as_array().unwrap().len(), 0);
}

#[test]
fn a_scenario_runs_each_program_alone_all_as_they_are_and_all_under_a_policy() {
    let _turn = Gpu::take();
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("figures.json");
    let program = tests::product("xbench").unwrap();
    let output = std::process::Command::new(program)
        .args([
            "scenario",
            "two-models",
            "three-priorities",
            "--policy=HPF",
            "--seconds=0.5",
            "--account",
            "--allow-late",
            "--traces",
        ])
        .arg(tests::workspace().join("examples/traces"))
        .arg("--json")
        .arg(&figures)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = read(&figures);
    let names = |value: &Value, name: &str| -> Vec<String> {
        let list = value.as_array().unwrap().iter();
        list.map(|item| item[name].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&all, "scenario"), ["two-models", "three-priorities"]);
    let modes = &all[0]["modes"];
    let expected = ["urgent alone", "batch alone", "without giveway", "all at one priority", "HPF"];
    assert_eq!(names(modes, "mode"), expected);
    check_accounts(&all[0]["account"], &expected);
    assert!(table.contains("difference of both losses within 2 % of the time: "), "{table}");
    assert_eq!(names(&modes[4]["parts"], "part"), ["urgent", "batch"]);
    assert_eq!(modes[3]["suspensions"], 0, "nobody comes before others");
    for mode in modes.as_array().unwrap() {
        for part in mode["parts"].as_array().unwrap() {
            assert!(part["requests"].as_u64().unwrap() > 0, "{mode}");
        }
    }
    let checks = modes[4]["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 3);
    for check in checks {
        let word = if check["met"] == true { "met" } else { "MISSED" };
        let line = table.lines().find(|line| line.contains(check["what"].as_str().unwrap())).unwrap();
        assert!(line.ends_with(word), "{line}");
    }
}

/// What `--real` measures here is the simulated GPU that the command itself runs on.
#[test]
fn the_machines_own_gpu_needs_no_gpu_sim() {
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("figures.json");
    let low = tests::workspace().join("examples/traces/resnet50_bs256.json");
    let run = Gpu::take()
        .product("xbench")
        .arg("corun")
        .arg("--real")
        .arg("--allow-late")
        .arg("--scale=20")
        .arg("--seconds=1")
        .arg("--blocks=1")
        .arg(format!("--high={}@10", model()))
        .arg(format!("--low={}", low.display()))
        .arg(format!("--json={}", figures.display()))
        .finish();
    assert_eq!(run.code, 0, "{}", run.stderr);
    let figures = read(&figures);
    assert_eq!((&figures["device"], &figures["cu_model"]), (&json!("simulated GPU"), &Value::Null));
    assert!(figures["card"]["compute_units"].as_u64().unwrap() > 0, "{figures}");
    assert!(figures["card"]["driver"].is_string(), "{figures}");
    assert!(figures["levels"][0]["suspensions"].as_u64().unwrap() > 0, "{figures}");
    assert_eq!(figures["levels"][0]["high_n"], figures["alone"]["high_n"]);
}

#[test]
fn two_models_of_one_process_are_scheduled_in_it() {
    let _turn = Gpu::take();
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("figures.json");
    let low = tests::workspace().join("examples/traces/resnet50_bs256.json");
    let output = std::process::Command::new(tests::product("xbench").unwrap())
        .args(["one-process", "--allow-late", "--blocks=1", "--seconds=1"])
        .arg(format!("--high={}@10", model()))
        .arg(format!("--low={}", low.display()))
        .arg(format!("--json={}", figures.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures = read(&figures);
    let modes = figures["modes"].as_array().unwrap();
    let of = |name: &str| modes.iter().map(|mode| mode[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("requests"), [json!(10), json!(10), json!(10), json!(0)]);
    assert!(modes[3]["low_per_s"].as_f64().unwrap() > 0.0 && modes[0]["low_per_s"].is_null());
    // The command itself refuses a run in which nothing was suspended.
    assert!(modes[2]["suspensions"].as_u64().unwrap() > 0, "{figures}");
    assert!(figures["lost_over_served"].is_number(), "{figures}");
}

#[test]
fn tenants_are_counted_with_the_processor_time_of_giveway() {
    let _turn = Gpu::take();
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("figures.json");
    let output = std::process::Command::new(tests::product("xbench").unwrap())
        .args(["tenants", "--allow-late", "--blocks=1", "--seconds=1", "--count=1,3"])
        .arg(format!("--trace={}", model()))
        .arg(format!("--json={}", figures.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures = read(&figures);
    let rows = figures["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["tenants"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 3]);
    for row in rows {
        assert!(row["per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["processor"]["library_ms"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["processor"]["server_ms"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(rows[0]["suspensions_per_s"], 0.0, "a program that is alone has no rival");
    assert!(rows[1]["suspensions_per_s"].as_f64().unwrap() > 0.0, "{figures}");
}

#[test]
fn kernels_take_no_less_than_they_are_told_to() {
    let run = Gpu::take()
        .product("xbench")
        .arg("calibrate")
        .arg("--real")
        .arg("--traffic=recorded")
        .arg("--json")
        .finish();
    // How much longer they take depends on the machine, and decides the exit code.
    let calibration: Value =
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {}", run.stderr));
    assert_eq!(calibration["title"], "simulated GPU");
    let figures = calibration["figures"].as_array().unwrap();
    let rows: Vec<_> = figures.iter().filter(|figure| figure["name"] == "in_a_row_us").collect();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!(row["value"].as_f64().unwrap() >= row["limit"]["min"].as_f64().unwrap(), "{row}");
    }
    let both = figures.iter().find(|figure| figure["name"] == "beside_total").unwrap();
    assert!(both["value"].as_f64().unwrap() <= 1.03, "{both}");
    for class in ["streaming", "matrix", "small"] {
        let of = |unit: &str| format!("{class}_{unit}");
        let named = |name: String| figures.iter().filter(move |figure| figure["name"] == name.as_str());
        assert_eq!(named(of("gb_per_s")).count(), 2, "{class}");
        for row in named(of("in_a_row_us")) {
            assert!(row["value"].as_f64().unwrap() >= row["limit"]["min"].as_f64().unwrap(), "{row}");
        }
    }
}

#[test]
fn the_set_of_measurements_keeps_its_figures_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let program = tests::product("gpu-sim").unwrap();
    let bench = |command: &mut std::process::Command| {
        let script = tests::workspace().join("scripts/bench-gpu");
        let command = command.arg(script).arg("--built").arg(program.parent().unwrap());
        let output = command.arg("--out").arg(folder.path()).arg("calibrate").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = bench(&mut std::process::Command::new("bash"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no GPU") && said.contains("there is nothing to measure"), "{said}");
    let _turn = Gpu::take();
    let (code, said) = bench(std::process::Command::new(&program).args(["run", "--", "bash"]));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(read(&folder.path().join("calibrate.json"))["title"], "simulated GPU");
    let dates = &read(&folder.path().join("run.json"))["dates"];
    assert!(dates["calibrate"].is_string() && dates.as_object().unwrap().len() == 1, "{dates}");
}

#[test]
fn measuring_a_gpu_that_is_not_there_is_refused() {
    for command in [
        &["corun"][..],
        &["scenario", "two-models"],
        &["prepreempt"],
        &["calibrate"],
        &["tenants"],
        &["one-process"],
        &["preempt"],
        &["launch-path"],
    ] {
        let output = std::process::Command::new(tests::product("xbench").unwrap())
            .args(command)
            .arg("--real")
            .current_dir(tests::workspace())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        assert!(said.contains("there is no GPU"), "{command:?}: {said}");
    }
}

#[test]
fn a_scenario_that_is_not_there_is_wrong_input() {
    let run = |words: &[&str]| {
        let output =
            std::process::Command::new(tests::product("xbench").unwrap()).args(words).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["scenario", "test5"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no scenario \"test5\" (there are test3, test4, "), "{said}");
    let traces = tests::workspace().join("examples/traces");
    let (code, said) = run(&["scenario", "test3", "--policy=BEST", "--traces", traces.to_str().unwrap()]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no policy \"BEST\" in this build"), "{said}");
}
