//! `xcli report` on a simulated GPU: all parts are complete, nothing identifies a user, and queues are evicted only if allowed.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tests::{Finished, Gpu, Run};

/// Marks that must not be in any report.
const MARKS: [&str; 6] =
    ["zebrahome", "zebrauser", "zebrahost", "zebrasocket", "zebratoken", "zebraargument"];

/// A home folder with a mark in its name.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("zebrahome").tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `xcli report --short` with marks in the host name, the home folder and the environment.
    fn report(&self, gpu: &Gpu, options: &[&str]) -> Run {
        let xcli = tests::product("xcli").unwrap_or_else(|reason| panic!("{reason}"));
        let script = "echo zebrahost.example.org > /proc/sys/kernel/hostname && exec \"$@\"";
        let words = ["--uts", "sh", "-c", script, "sh"];
        let run =
            words.iter().fold(gpu.run_executable(Path::new("/usr/bin/unshare")), |run, word| run.arg(*word));
        let run = run.arg(xcli.display().to_string()).arg("report").arg("--short").arg("-o");
        let run = run.arg(self.path("report.json").display().to_string());
        let run = options.iter().fold(run, |run, word| run.arg(*word));
        run.env("HOME", &self.folder.path().display().to_string())
            .env("USER", "zebrauser")
            .env("LOGNAME", "zebrauser")
            .env("HOSTNAME", "zebrahost")
            .env("XSCHED_SOCKET", &self.path("zebrasocket.sock").display().to_string())
            .env("SECRET_TOKEN", "zebratoken")
            .limit(Duration::from_secs(600))
    }

    /// Reads the report of a run, and checks that it contains no mark.
    fn read(&self, run: &Finished) -> Value {
        let text = std::fs::read_to_string(self.path("report.json"))
            .unwrap_or_else(|error| panic!("no report: {error}\n{}", run.stderr));
        for mark in MARKS {
            assert!(!text.contains(mark), "{mark} is in the report:\n{text}");
        }
        // The socket was left out.
        assert!(text.contains("no process listens on <path>."), "{text}");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((run.code, &report["complete"]), (0, &Value::Bool(true)), "{}\n{text}", run.stderr);
        assert_eq!(report["simulated"], true);
        for (name, part) in report["parts"].as_object().expect("parts") {
            assert_eq!(part["error"], Value::Null, "{name}");
            assert_ne!(part["result"].is_null(), part["skipped"].is_null(), "{name}");
        }
        report
    }
}

/// The names of the modes. Checks that all have passed with all programs.
fn modes(report: &Value) -> Vec<&str> {
    let modes = report["parts"]["conformance"]["result"]["modes"].as_array().expect("modes");
    for mode in modes {
        assert_eq!(mode["passed"], true, "{mode}");
        assert_eq!(mode["programs"].as_array().map(Vec::len), Some(9), "{mode}");
    }
    modes.iter().map(|mode| mode["name"].as_str().expect("a name")).collect()
}

/// Checks the parts whose times are those of the simulated GPU and the machine: what they must have whatever the times are.
fn check_figures(report: &Value, levels: &[u64]) {
    let calibration = &report["parts"]["calibration"]["result"];
    let names: Vec<&str> = calibration["figures"]
        .as_array()
        .expect("figures")
        .iter()
        .map(|figure| figure["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names.iter().filter(|name| **name == "in_a_row_us").count(), 4, "{calibration}");
    assert!(names.contains(&"beside_total") && calibration["met"].is_boolean(), "{calibration}");

    let masks = &report["parts"]["unit_masks"]["result"];
    let rows = masks["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "{masks}");
    assert!(rows[0]["units"].is_null() && rows[0]["ratio"] == 1.0, "{masks}");
    let all = report["parts"]["devices"]["result"]["devices"][0]["compute_units"].as_u64().expect("a number");
    for (row, units) in rows[1..].iter().zip([all, all / 2, all / 4]) {
        assert!(row["units"] == units && row["set"] == units && row["took_us"]["n"] == 5, "{units}: {row}");
    }

    let corun = &report["parts"]["corun"]["result"];
    assert_eq!((&corun["high"], &corun["low"]), (&"bert bs8@10".into(), &"resnet50 bs256".into()));
    let requests = corun["alone"]["requests"].as_u64().expect("a number");
    assert!(requests > 0 && corun["native"]["requests"] == requests, "{corun}");
    let rows = corun["levels"].as_array().expect("levels");
    assert_eq!(rows.iter().map(|row| row["level"].as_u64().expect("a level")).collect::<Vec<_>>(), levels);
    for row in rows {
        let (in_force, holds) = (row["in_force"].as_u64(), row["holds"].as_u64());
        assert!(row["missing"].is_null() && in_force == row["level"].as_u64(), "{row}");
        assert!(row["mode"]["requests"] == requests && row["suspensions"].as_u64() > Some(0), "{row}");
        assert_eq!(holds > Some(0), in_force > Some(1), "{row}");
    }
}

/// Counts the requests about existing queues.
fn requests(run: &Finished) -> u64 {
    run.stats().ioctls("update_queue") + run.stats().ioctls("dbg_trap")
}

/// Checks the kernels that were evicted with words in registers and local memory.
fn check_occupied(rows: &[Value]) {
    assert_eq!(rows.len(), 5, "{rows:?}");
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name}: {row}"));
    for row in rows {
        let items = number(row, "groups") * number(row, "group_size");
        assert_eq!((number(row, "compared"), number(row, "wrong")), (2 * items, 0), "{row}");
        assert_eq!(row["stood"], row["interrupted"], "an evicted kernel went on: {row}");
        // All its words are in registers.
        let kept = if row["kernel"] == "keep_many" { 192 } else { 8 };
        assert!((kept..=256).contains(&number(row, "registers")), "{row}");
    }
    assert!(rows.iter().any(|row| number(row, "interrupted") > 0), "{rows:?}");
    let local: Vec<u64> = rows.iter().map(|row| number(row, "local_bytes") >> 10).collect();
    assert_eq!(local, [0, 16, 64, 0, 64]);
    // Local memory limits how many work-groups fill the device.
    assert!(number(&rows[2], "groups") < number(&rows[0], "groups"), "{rows:?}");
}

#[test]
fn report_evicts_no_queue_without_permission() {
    let home = Home::new();
    let gpu = Gpu::take();
    let run = home.report(&gpu, &[]).with_stats().finish();
    let report = home.read(&run);
    assert_eq!((&report["holds"], requests(&run)), (&Value::from(0), 0), "no queue was evicted");
    assert!(report["parts"]["holds"]["skipped"].is_string());
    assert_eq!(modes(&report), ["native", "forward", "queues", "defer", "chaos:1"]);
    check_figures(&report, &[1]);
    let versions = &report["parts"]["versions"]["result"];
    assert_eq!(versions["environment"]["XSCHED_SOCKET"], "(a path)");
    assert_eq!(versions["gpus"][0]["target"], tests::arch().as_str());
    let figures = report["parts"]["launch_path"]["result"]["figures"].as_array().expect("figures");
    for name in ["real_native_ns", "real_shim_ns", "forward_added_ns", "direct_added_ns"] {
        assert!(figures.iter().any(|figure| figure["name"] == name), "{name}");
    }
    let rows = report["parts"]["priority"]["result"]["rows"].as_array().expect("rows");
    let places = rows.iter().map(|row| row["place"].as_str().expect("a place")).collect::<Vec<_>>();
    assert_eq!(places, ["alone", "equal", "first"]);
    for row in rows {
        let other = row["other_kernels_per_s"].as_f64();
        assert!(row["took_us"]["n"] == 20 && other.is_none_or(|count| count > 0.0), "{row}");
        assert_eq!(other.is_none(), row["place"] == "alone", "{row}");
    }
    let window = &report["parts"]["window"]["result"];
    let rows = window["rows"].as_array().expect("rows");
    // A busy machine launches the shortest kernels more slowly than they run. The report then leaves them out and says so.
    let lengths = match window["left_out"].as_array() {
        None => 3,
        Some(left_out) if *left_out == [10] => 2,
        Some(_) => panic!("{window}"),
    };
    assert_eq!(rows.len(), 8 * lengths, "{window}");
    for row in rows {
        assert!(row["kernels_per_s"].as_f64() > Some(0.0) && row["idle_us"]["n"] == 3, "{row}");
    }
}

#[test]
fn report_with_level_2_measures_evictions_beside_another_program() {
    let home = Home::new();
    let gpu = Gpu::take();
    // A HIP program with a mark in its command line, on its own device. Three requests a second leave the processors to the report.
    let model = tests::workspace().join("examples/traces/resnet18_bs1.json");
    let beside = ["replay", &model.display().to_string(), "--rate=3", "--seconds=600"]
        .into_iter()
        .fold(gpu.product("xbench"), |run, word| run.arg(word))
        .arg(format!("--record={}", home.path("zebraargument").display()))
        .start();
    let run = home.report(&gpu, &["--try-level2", "--yes"]).with_stats().finish();
    assert!(beside.program().is_some(), "it runs during the report\n{}", beside.report());
    drop(beside);
    let report = home.read(&run);
    assert_eq!(modes(&report), ["native", "forward", "queues", "defer", "chaos:1", "hold"]);
    assert!(run.stderr.contains("hang or reset the GPU"), "{}", run.stderr);
    let rows = report["parts"]["holds"]["result"]["mechanisms"].as_array().expect("mechanisms");
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(row["error"], Value::Null, "{row}");
        assert!(row["idle"]["hold_us"]["n"] == 8 && row["probe"]["hold_us"].is_number(), "{row}");
        assert!(row["stood"] == row["interrupted"], "an evicted kernel went on: {row}");
        assert!(row["interrupted"].as_u64() > Some(0), "{row}");
        check_occupied(row["occupied"].as_array().expect("rows"));
    }
    check_figures(&report, &[1, 3]);
    // One request can evict several queues.
    let holds = report["holds"].as_u64().expect("a number");
    assert!(holds >= 24 && requests(&run) >= 24, "{holds} holds, {} requests", requests(&run));
}
