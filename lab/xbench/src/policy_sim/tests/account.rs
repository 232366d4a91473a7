//! The account of a simulation agrees with what its devices and clients count.

use super::super::account::Collected;
use super::short;
use crate::account::{Class, Entry, sweep};
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
    for (level, share) in [(1, 1), (3, 1), (3, 2)] {
        let mut case = short("two-models", 20.0);
        (case.workload.model.level, case.workload.model.share) = (level, share);
        let (policy, scope) = (&Policy::by_name("HPF").unwrap(), Scope::Global);
        let mut collected = Collected::new(&case, 1);
        collected.run(&Setting { case: &case, instances: &case.instances(), policy, scope, seed: 1 });
        let accounts = serde_json::to_value(collected.finish()).unwrap();
        let names: Vec<_> = accounts.as_array().unwrap().iter().map(|account| &account["mode"]).collect();
        assert_eq!(names, ["urgent alone", "batch alone", "HPF"]);
        assert_eq!(accounts[0]["loss"]["met"], true, "{accounts}");
        assert_eq!(accounts[2]["loss"]["met"], true, "{accounts}");
    }
}
