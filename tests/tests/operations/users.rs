//! Two users with HIP programs under one server: rights, rules, and a changed configuration.

use crate::place::{ALICE, BOB, Place, has, is_of};
use tests::until;

const CONFIGURATION: &str = r#"
    [[rule]]
    name = "serving"
    users = [40001]
    max_priority = 100
"#;

fn priority(client: &serde_json::Value) -> i64 {
    client["queues"][0]["priority"].as_i64().expect("a priority")
}

#[test]
fn two_users_share_the_gpu_by_the_rules() {
    let place = Place::new(CONFIGURATION);
    let mut bob = place.rounds(BOB, &["--priority", "200"], &["60", "20"]);
    let mut alice = place.rounds(ALICE, &["--priority", "200"], &["20", "5", "each"]);
    let of_bob = place.until(0, "the queues of Bob", |client| is_of(client, BOB));
    let of_alice = place.until(0, "the queues of Alice", |client| is_of(client, ALICE));
    assert_eq!((priority(&of_alice), priority(&of_bob)), (100, 0), "the rules limit both");
    // Each sees the own program only.
    for (uid, own, other) in [(ALICE, &of_alice, &of_bob), (BOB, &of_bob, &of_alice)] {
        let list = place.list(uid);
        let clients = list["clients"].as_array().expect("clients");
        assert_eq!(clients.iter().map(|client| &client["pid"]).collect::<Vec<_>>(), [&own["pid"]]);
        let other = other["pid"].to_string();
        for command in [&["hint", "--pid", &other, "-p", "-5"][..], &["explain", "--pid", &other]] {
            let refused = place.refused(uid, command);
            assert!(refused.contains("not connected") || refused.contains("no "), "{refused}");
        }
        assert!(!place.said(uid, &["metrics"]).contains(&format!("pid=\"{other}\"")));
    }
    let refused = place.refused(BOB, &["hint", "--pid", &of_bob["pid"].to_string(), "-p", "1"]);
    assert!(refused.contains("priority 1 is above 0") && refused.contains("\"default\""), "{refused}");
    for command in [&["off"][..], &["policy", "set", "FAIR"], &["reload"], &["config"]] {
        let refused = place.refused(BOB, command);
        assert!(refused.contains("only an administrator"), "{refused}");
    }
    // The program with the higher limit goes first.
    bob.let_go();
    place.until(BOB, "Bob's program works", |client| has(client, "running"));
    alice.let_go();
    let client = place.until(BOB, "Alice's program suspends it", |client| has(client, "suspended"));
    let reason = client["reason"].as_str().expect("a reason");
    assert!(!reason.contains(&of_alice["pid"].to_string()), "{reason}");
    for running in [alice, bob] {
        let finished = running.finish();
        finished.expect_success();
        assert!(finished.stdout.contains("digest "), "{}", finished.stdout);
    }
}

#[test]
fn a_changed_configuration_holds_for_running_programs_and_a_bad_one_changes_nothing() {
    let place = Place::new(CONFIGURATION);
    let alice = place.rounds(ALICE, &["--priority", "200"], &["3", "5"]);
    place.until(0, "the queues of Alice", |client| is_of(client, ALICE) && priority(client) == 100);
    let file = place.daemon.folder().join("giveway.toml");
    std::fs::write(&file, CONFIGURATION.replace("100", "7")).expect("the configuration");
    place.said(0, &["reload"]);
    place.until(0, "the new limit holds", |client| is_of(client, ALICE) && priority(client) == 7);
    let in_force = place.said(0, &["config"]);
    std::fs::write(&file, CONFIGURATION.replace("100", "\"high\"")).expect("the configuration");
    let refused = place.refused(0, &["reload"]);
    assert!(refused.contains("the configuration has not changed") && refused.contains("line 5"), "{refused}");
    assert_eq!(place.said(0, &["config"]), in_force);
    // A user who is refused now loses the connection, and the program goes on.
    std::fs::write(&file, format!("{CONFIGURATION}\nconnect = false\n")).expect("the configuration");
    place.said(0, &["reload"]);
    until("Alice is disconnected", || {
        let list = place.list(0);
        list["clients"].as_array().expect("clients").is_empty().then_some(())
    });
    alice.finish().expect_success();
}
