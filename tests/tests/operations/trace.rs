//! `xcli trace record`, checked with Perfetto's own schema.

use crate::place::{ALICE, BOB, CONFIGURATION, Place, has, text, texts};
use std::process::Command;
use tests::Recorder;

#[test]
fn users_record_their_programs_for_perfetto() {
    let place = Place::new(CONFIGURATION);
    let folder = tempfile::tempdir().expect("a folder");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), everybody).expect("the folder of the traces");
    let record = |uid: u32| Recorder::start(place.command(uid), &folder.path().join(format!("{uid}.pb")));
    let mut low = place.rounds(ALICE, &["--priority", "-5"], &["60", "5"]);
    let mut high = place.rounds(ALICE, &["--priority", "50"], &["20", "5", "each"]);
    let pids = |list: &serde_json::Value| -> Vec<u64> {
        list["clients"]
            .as_array()
            .expect("clients")
            .iter()
            .filter_map(|client| client["pid"].as_u64())
            .collect()
    };
    let recorders = [record(ALICE), record(BOB)];
    recorders[0].until_it_reads(&pids(&place.list(ALICE)));
    recorders[1].until_it_is_connected();
    low.let_go();
    place.until(0, "the long program is at work", |client| has(client, "running"));
    high.let_go();
    for running in [high, low] {
        running.finish().expect_success();
    }
    let [alice, bob] = recorders.map(|recorder| {
        let file = recorder.file().to_owned();
        recorder.stop();
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
