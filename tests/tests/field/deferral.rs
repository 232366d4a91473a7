//! Launches that cannot be deferred are counted, and the reason is shown.

use tests::Mode;
use tests::stage::{Stage, text};

/// Two of the program's launches cannot be deferred: each is larger than any before of its kind.
#[test]
fn f1_launches_that_are_not_deferred_are_counted_and_explained() {
    let stage = Stage::new();
    let _server = stage.server();
    let log = stage.folder.path().join("log");
    let env = [
        ("XSCHED_SOCKET", stage.socket().display().to_string()),
        ("XSCHED_SCHEDULER", "GLB".to_owned()),
        ("XSCHED_AUTO_XQUEUE", "ON".to_owned()),
        ("XSCHED_TEST", "defer".to_owned()),
        ("XSCHED_LOG_LEVEL", "debug".to_owned()),
        ("XSCHED_LOG_FILE", log.display().to_string()),
    ];
    let env = env.map(|(name, value)| (name.to_owned(), value)).into();
    let mut program = stage.gpu.shared("launch_slow").mode(Mode::Shimmed { env }).start();
    assert_eq!(program.line(), "ready");
    let pid = program.program().expect("it runs").as_raw_nonzero().to_string();

    let slow = tests::until("the list has the numbers", || {
        let list = stage.list()?;
        let client = list["clients"].as_array()?.first()?;
        client["slow_path"].as_object().filter(|slow| !slow.is_empty()).cloned()
    });
    assert_eq!(serde_json::Value::from(slow), serde_json::json!({"cooperative": 2}));
    let why = "2 launches could not be deferred and blocked the calling thread: 2 because ";
    let said = |words: &[&str]| text(&stage.xcli(words).stdout).to_owned();
    assert!(said(&["list"]).contains(why), "{}", said(&["list"]));
    let doctor = said(&["doctor", &pid]);
    assert!(doctor.contains(&format!("note  launches  {why}")), "{doctor}");
    let metrics = said(&["metrics"]);
    let line = format!("giveway_process_slow_launches_total{{pid=\"{pid}\",");
    let line = metrics.lines().find(|each| each.starts_with(&line)).unwrap_or_else(|| panic!("{metrics}"));
    assert!(line.ends_with(",reason=\"cooperative\"} 2.0"), "{line}");

    program.let_go();
    program.finish().expect_success();
    let log = std::fs::read_to_string(log).expect("it has a log");
    let told: Vec<&str> = log.lines().filter(|line| line.contains("waits for its turn")).collect();
    let [told] = told[..] else { panic!("one line for one reason: {log}") };
    assert!(told.starts_with("xsched: info: mix: a launch waits") && told.contains("cooperative"), "{told}");
    assert!(log.contains(" slow=2 slow_cooperative=2"), "{log}");
}
