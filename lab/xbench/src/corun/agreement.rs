//! A check that two modes did the same work.

use crate::simulated::Counts;
use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// For each program, the commands that the first mode retired beyond its inferences.
#[derive(Debug, Default)]
pub(super) struct Agreement(BTreeMap<&'static str, (String, Counts)>);

impl Agreement {
    /// Compares a run with the first one of the program. `run` names mode and block for the message.
    pub(super) fn check(&mut self, role: &'static str, run: &str, beyond: &Counts) -> Result<()> {
        if let Some((kind, count)) = beyond.iter().find(|(_, count)| **count < 0) {
            anyhow::bail!("{run}: the device retired {} commands of kind {kind} too few for {role}", -count);
        }
        let (first, expected) = self.0.entry(role).or_insert_with(|| (run.to_owned(), beyond.clone()));
        ensure!(
            beyond == expected,
            "the device did not do the same work for {role} in all modes: beyond the commands of its inferences it retired \
             {expected:?} in {first}, {beyond:?} in {run}"
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
    fn modes_with_different_work_are_an_error() {
        let mut agreement = Agreement::default();
        agreement.check("high", "alone", &counts(&[("kernel", 2)])).unwrap();
        agreement.check("low", "alone", &counts(&[("kernel", 3)])).unwrap();
        agreement.check("high", "native", &counts(&[("kernel", 2)])).unwrap();
        for other in [counts(&[("kernel", 3)]), counts(&[]), counts(&[("kernel", 2), ("copy", 1)])] {
            let error = agreement.check("high", "shim", &other).unwrap_err().to_string();
            assert!(
                error.starts_with("the device did not do the same work for high in all modes"),
                "{error}"
            );
        }
        let error = agreement.check("low", "shim", &counts(&[("kernel", -4)])).unwrap_err().to_string();
        assert_eq!(error, "shim: the device retired 4 commands of kind kernel too few for low");
    }
}
