//! Two users with HIP programs under one server: rights, rules, and a changed configuration.

use crate::place::{ALICE, BOB, CONFIGURATION, Place, has, is_of};
use tests::until;

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

const NAMED: &str = r#"
    [priorities]
    serving = 100
    batch = -50
    [[rule]]
    name = "serving"
    users = [40001]
    max_priority = "serving"
    max_share = 30
    [[program]]
    name = "rounds*"
    priority = "batch"
    share = 80
"#;

#[test]
fn programs_have_the_hints_of_their_names_within_the_rules_until_somebody_sets_them() {
    let place = Place::new(NAMED);
    let bob = place.rounds(BOB, &[], &["3", "5"]);
    let alice = place.rounds(ALICE, &["--priority", "serving"], &["3", "5"]);
    let of_bob =
        place.until(0, "the entry holds for Bob", |client| is_of(client, BOB) && priority(client) == -50);
    let of_alice =
        place.until(0, "Alice's own priority wins", |client| is_of(client, ALICE) && priority(client) == 100);
    let shares = [&of_bob, &of_alice].map(|client| {
        let queue = &client["queues"][0]["hints"]["utilization"];
        (client["hints"]["utilization"].as_i64(), queue.as_i64())
    });
    assert_eq!(shares, [(Some(80), Some(80)), (Some(30), Some(30))], "the rule limits Alice's share");
    let (pid_of_alice, pid_of_bob) = (of_alice["pid"].to_string(), of_bob["pid"].to_string());
    let explained = place.said(BOB, &["explain", "--pid", &pid_of_bob]);
    assert!(
        explained.contains("the configuration gives to programs \"rounds*\": priority -50"),
        "{explained}"
    );
    // Names give no right, and the refusals say the rule or the names.
    for (uid, command, what) in [
        (BOB, &["hint", "--pid", &pid_of_bob, "--priority", "serving"][..], "priority 100 is above 0"),
        (
            BOB,
            &["hint", "--pid", &pid_of_bob, "--priority", "urgent"],
            "the server has batch (-50), serving (100)",
        ),
        (ALICE, &["hint", "--pid", &pid_of_alice, "-u", "31"], "share 31 is above 30"),
        (ALICE, &["policy", "set", "FAIR"], "`set_policy = true` (yours is \"serving\")"),
    ] {
        let refused = place.refused(uid, command);
        assert!(refused.contains(what), "{command:?}: {refused}");
    }
    place.said(ALICE, &["hint", "--pid", &pid_of_alice, "--priority", "batch"]);
    place.until(0, "the hint holds", |client| is_of(client, ALICE) && priority(client) == -50);
    // A changed file holds for programs that run.
    let file = place.daemon.folder().join("giveway.toml");
    std::fs::write(&file, NAMED.replace("share = 80", "share = 20").replace("-50", "-7"))
        .expect("the configuration");
    place.said(0, &["reload"]);
    let client = place.until(0, "the new entry holds", |client| is_of(client, BOB) && priority(client) == -7);
    assert_eq!(client["hints"]["utilization"], 20);
    for running in [alice, bob] {
        running.finish().expect_success();
    }
}
