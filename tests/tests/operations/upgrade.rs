//! A newer server: programs of an older library, and programs that run while the server is replaced.

use crate::place::{ALICE, CONFIGURATION, Place, built, has, is_of, text};
use std::path::PathBuf;
use tests::program;

/// The library of the commit before the server for all users.
fn old_library() -> PathBuf {
    let path = std::env::var_os("OLD_LIBRARY").expect("OLD_LIBRARY: run scripts/test-operations");
    PathBuf::from(path)
}

#[test]
fn a_program_with_an_older_library_is_scheduled() {
    let place = Place::new(CONFIGURATION);
    let rounds = program("rounds").unwrap_or_else(|reason| panic!("{reason}"));
    let old = old_library();
    assert_ne!(std::fs::read(&old).ok(), std::fs::read(built("libshimhip.so")).ok(), "it is older");
    let run = place.run(ALICE).arg("env").arg(format!("LD_PRELOAD={}", text(&old)));
    let run =
        run.arg("XSCHED_SCHEDULER=GLB").arg("XSCHED_AUTO_XQUEUE=ON").arg("XSCHED_AUTO_XQUEUE_PRIORITY=-5");
    let mut older = run.arg(text(&rounds)).arg("60").arg("20").start();
    assert_eq!(older.line(), "ready");
    let mut newer = place.rounds(ALICE, &["--priority", "50"], &["20", "5", "each"]);
    let is_old = |client: &serde_json::Value| is_of(client, ALICE) && client["queues"][0]["priority"] == -5;
    place.until(0, "the server knows its queues", is_old);
    let lacks = |client: &serde_json::Value| client["lacks"] == serde_json::json!(["traces"]);
    place.until(0, "the server says what the older library lacks", |client| is_old(client) && lacks(client));
    older.let_go();
    place.until(0, "it works", |client| is_old(client) && has(client, "running"));
    newer.let_go();
    place.until(0, "it is suspended", |client| is_old(client) && has(client, "suspended"));
    for running in [newer, older] {
        running.finish().expect_success();
    }
}

#[test]
fn programs_go_on_while_the_server_is_replaced_and_keep_their_own_hints() {
    let mut place = Place::new(CONFIGURATION);
    let mut low = place.rounds(ALICE, &["--priority", "-5"], &["150", "20"]);
    let mut high = place.rounds(ALICE, &["--priority", "50"], &["40", "5", "each"]);
    let has_priority = |client: &serde_json::Value, priority: i64| {
        is_of(client, ALICE) && client["queues"][0]["priority"] == priority
    };
    for priority in [-5, 50] {
        place.until(0, "the server knows the queues", |client| has_priority(client, priority));
    }
    low.let_go();
    place.until(0, "the low program works", |client| has_priority(client, -5) && has(client, "running"));
    place.daemon.replace();
    for priority in [-5, 50] {
        place.until(0, "the new server knows them", |client| has_priority(client, priority));
    }
    high.let_go();
    place.until(0, "the new server suspends", |client| has_priority(client, -5) && has(client, "suspended"));
    for running in [high, low] {
        let finished = running.finish();
        finished.expect_success();
        assert!(finished.stdout.contains("digest "), "{}", finished.stdout);
    }
}
