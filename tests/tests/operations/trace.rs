//! `xcli trace record`, checked with Perfetto's own schema.

use crate::place::{ALICE, BOB, CONFIGURATION, Place, built, has, text, texts};
use std::process::Command;

#[test]
fn users_record_their_programs_for_perfetto() {
    let place = Place::new(CONFIGURATION);
    let folder = tempfile::tempdir().expect("a folder");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), everybody).expect("the folder of the traces");
    let record = |uid: u32| {
        let file = folder.path().join(format!("{uid}.pb"));
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()]);
        command.args(["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]);
        command.arg(built("xcli")).args(["trace", "record", "--seconds", "5", "-o"]).arg(&file);
        command.env("XSCHED_SOCKET", place.daemon.socket()).stdout(std::process::Stdio::piped());
        (file, command.spawn().expect("setpriv"))
    };
    let recorders = [record(ALICE), record(BOB)];
    let mut low = place.rounds(ALICE, &["--priority", "-5"], &["200", "5"]);
    let mut high = place.rounds(ALICE, &["--priority", "50"], &["80", "5", "each"]);
    low.let_go();
    place.until(0, "the long program is at work", |client| has(client, "running"));
    high.let_go();
    for running in [high, low] {
        running.finish().expect_success();
    }
    let [alice, bob] = recorders.map(|(file, recorder)| {
        let output = recorder.wait_with_output().expect("it ends");
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{out}{err}");
        let check =
            Command::new("scripts/perfetto").arg("check").arg(&file).current_dir(tests::workspace()).output();
        let check = check.expect("scripts/perfetto");
        let (out, err) = texts(&check);
        assert!(check.status.success(), "{}: {out}{err}", text(&file));
        serde_json::from_str::<serde_json::Value>(&out).expect("JSON")
    });
    assert_eq!(bob["processes"], serde_json::json!([]), "{bob}");
    let named = |list: &str, part: &str| {
        alice[list]
            .as_array()
            .expect("a list")
            .iter()
            .any(|name| name.as_str().is_some_and(|name| name.contains(part)))
    };
    assert_eq!(alice["processes"].as_array().map(Vec::len), Some(2), "{alice}");
    assert!(named("processes", "rounds") && named("slices", "busy") && named("instants", "mix"), "{alice}");
    assert!(named("slices", "has priority 50 > -5") && named("slices", "suspended"), "{alice}");
    assert!(named("tracks", "queue ") && named("tracks", "in flight"), "{alice}");
}
