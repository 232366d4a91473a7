//! Whether two modes did the same work.

use super::Role;
use crate::simulated::Counts;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// What the first mode that a role ran in had retired beyond its inferences, to compare the others with.
#[derive(Debug, Default)]
pub(super) struct Agreement(BTreeMap<Role, (String, Counts)>);

impl Agreement {
    /// Compares, or remembers the first. `run` names mode and block for the message.
    pub(super) fn check(&mut self, role: Role, run: &str, beyond: Counts) -> Result<()> {
        let lacking = beyond.iter().find(|(_, count)| **count < 0);
        if let Some((kind, count)) = lacking {
            let missing = -count;
            anyhow::bail!(
                "{run}: the device retired {missing} commands of kind {kind} too few for {}",
                role.name()
            );
        }
        let (first, expected) = self.0.entry(role).or_insert_with(|| (run.to_owned(), beyond.clone()));
        ensure!(
            beyond == *expected,
            "the device did not do the same work for {} in all modes: beyond the commands of its inferences it retired \
             {expected:?} in {first}, {beyond:?} in {run}",
            role.name()
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, i64)]) -> Counts {
        pairs.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
    }

    #[test]
    fn modes_must_agree() {
        let mut agreement = Agreement::default();
        agreement.check(Role::High, "alone", counts(&[("kernel", 2)])).unwrap();
        agreement.check(Role::Low, "alone", counts(&[("kernel", 3)])).unwrap();
        agreement.check(Role::High, "native", counts(&[("kernel", 2)])).unwrap();
        for other in [counts(&[("kernel", 3)]), counts(&[]), counts(&[("kernel", 2), ("copy", 1)])] {
            let error = agreement.check(Role::High, "shim", other).unwrap_err().to_string();
            assert!(
                error.starts_with("the device did not do the same work for high in all modes"),
                "{error}"
            );
        }
        let error = agreement.check(Role::Low, "shim", counts(&[("kernel", -4)])).unwrap_err().to_string();
        assert_eq!(error, "shim: the device retired 4 commands of kind kernel too few for low");
    }
}
