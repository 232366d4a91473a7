//! `make demo-faults`, as one test: that programs go on and are right. How soon they go on the demonstration judges, on a
//! machine that has time for it; here a stall only may not be one that lasts until somebody ends it.

use std::time::Duration;

#[test]
fn programs_survive_faults() {
    assert!(
        tests::faults::run(Duration::from_secs(15), |line| println!("{line}")),
        "a case failed; its line says why"
    );
}

/// The same for faults that follow each other.
#[test]
fn programs_survive_faults_in_a_row() {
    let mut lines = Vec::new();
    let right = tests::faults::many::run(5, 1, Duration::from_secs(15), |line| lines.push(line.to_owned()));
    assert!(right, "{}", lines.join("\n"));
    assert!(lines.last().is_some_and(|line| line.starts_with("5 faults (")), "{lines:?}");
}
