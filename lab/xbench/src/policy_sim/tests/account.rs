//! The account of a simulation agrees with what its devices and clients count.

use super::super::account::Collected;
use super::super::alone;
use super::{case, short};
use crate::account::{Class, Entry, What, sweep};
use crate::policy_sim::scheduler::{Policy, Scope};
use crate::policy_sim::simulation::Setting;

#[test]
fn account_has_the_times_of_the_device_and_changes_nothing() {
    for level in [1, 3] {
        let mut case = short("two-models", 5.0);
        (case.workload.model.level, case.workload.model.share) = (level, 1);
        let (policy, scope) = (&Policy::by_name("HPF").unwrap(), Scope::Global);
        let setting = Setting { case: &case, instances: &case.instances(), policy, scope, seed: 1 };
        let (run, mut changes) = setting.run_with_changes();
        assert_eq!(run, setting.run());
        let entries = sweep(&[Class::Urgent, Class::Batch], &mut changes, 0, run.time);
        assert_eq!(entries.total(), run.time);
        let device = run.devices[0];
        // Parts of a nanosecond are lost where a kernel is cut.
        let near = |one: u64, other: u64| one.abs_diff(other) <= device.saves + 1;
        assert!(near(entries.busy(), device.busy - device.restored), "{entries:?} {device:?}");
        assert!(near(entries[Entry::Switching], device.stalled + device.restored), "{entries:?} {device:?}");
        assert_eq!(device.saves > 0, level == 3);
    }
}

#[test]
fn losses_by_entries_and_by_counts_agree() {
    for (level, share, count) in [(1, 1, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2)] {
        let mut case = short("two-models", 20.0);
        (case.workload.model.level, case.workload.model.share) = (level, share);
        case.workload.client[1].count = count;
        let (policy, scope) = (&Policy::by_name("HPF").unwrap(), Scope::Global);
        let mut collected = Collected::default();
        assert_eq!(alone(&case, 1, Some(&mut collected)), alone(&case, 1, None));
        collected.run(&Setting { case: &case, instances: &case.instances(), policy, scope, seed: 1 });
        let accounts = serde_json::to_value(collected.finish()).unwrap();
        let names: Vec<_> = accounts.as_array().unwrap().iter().map(|account| &account["mode"]).collect();
        assert_eq!(names, ["urgent alone", "batch alone", "HPF"]);
        assert_eq!(accounts[0]["loss"]["met"], true, "{accounts}");
        assert_eq!(accounts[2]["loss"]["met"], true, "{accounts}");
    }
}

/// Returns the lingers of an urgent client whose gaps last so long, nanoseconds.
fn lingers(policy: &str, gap_us: u32) -> Vec<u64> {
    let text = format!(
        r#"
        duration_s = 1
        [[client]]
        name = "urgent"
        priority = 1
        critical = true
        arrivals = {{ kind = "closed", think = {{ dist = "constant", us = {gap_us} }} }}
        requests = [{{ duration = {{ dist = "constant", us = 100 }} }}]
        [[client]]
        name = "batch"
        arrivals = {{ kind = "closed" }}
        requests = [{{ duration = {{ dist = "constant", us = 10 }} }}]
        "#
    );
    let (case, policy, scope) = (&case(&text), &Policy::by_name(policy).unwrap(), Scope::Global);
    let (_, changes) =
        Setting { case, instances: &case.instances(), policy, scope, seed: 1 }.run_with_changes();
    let bounds = changes.iter().filter(|change| matches!(change.what, What::Lingers(0, _)));
    bounds.map(|change| change.at).collect::<Vec<_>>().chunks_exact(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn account_has_the_learnt_lingers() {
    let fixed = lingers("HPF gaps=0", 210);
    assert!(fixed.len() > 1000 && fixed.iter().all(|linger| *linger == 200_000), "{fixed:?}");
    // The host reports the end for 20 µs, and then thinks.
    let learnt = lingers("HPF", 210);
    assert_eq!((learnt[0], learnt[1000]), (200_000, 230_001));
    // Long gaps end the lingers.
    let none = lingers("HPF", 5_000);
    assert!((30..60).contains(&none.len()) && none.iter().all(|linger| *linger == 200_000), "{none:?}");
}
