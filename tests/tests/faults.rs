//! `make demo-faults`, as one test.

#[test]
fn programs_survive_faults() {
    assert!(tests::faults::run(|line| println!("{line}")), "a case failed; its line says why");
}
