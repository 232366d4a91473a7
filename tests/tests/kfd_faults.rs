//! `make kfd-faults`, as one test: that nothing stays held until somebody ends it, that no command is lost, and what is said.
//! How soon queues are released the command judges, on a machine that has time for it.

use std::time::Duration;

#[test]
fn queues_survive_faults_while_they_are_held() {
    assert!(
        tests::kfd_faults::run(Duration::from_secs(15), "", |line| println!("{line}")),
        "a case failed; its line says why"
    );
}
