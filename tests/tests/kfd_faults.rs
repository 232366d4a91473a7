//! `make kfd-faults`, as one test: that no command is lost or repeated, and nothing stays held. How soon it comes back is
//! judged there, on a machine that has time for it; here only what lasts until somebody ends it counts.

use std::time::Duration;

#[test]
fn programs_survive_faults_while_they_are_held() {
    assert!(
        tests::kfd_faults::run(Duration::from_secs(15), "", tests::AT_ONCE, |line| println!("{line}")),
        "a case failed; its line says why"
    );
}
