//! The time that a kernel takes alone on the device: from a table by name, otherwise from a model by grid.

use std::collections::BTreeMap;
use std::path::Path;

use crate::device::Time;

/// The time of one work-group of an unknown kernel.
const UNKNOWN_GROUP: Time = 5_000;
/// The fixed part of the time of the runtime's fill and copy kernels.
const MOVE_FIXED: Time = 2_000;
/// Bytes that a kernel moves within the device in a microsecond: 800 GB/s.
const DEVICE_BYTES_PER_US: u64 = 800_000;
/// Bytes that a copy engine moves over the link to the host in a microsecond: 24 GB/s.
const LINK_BYTES_PER_US: u64 = 24_000;

/// Kernel times by name, from `--durations FILE`.
#[derive(Clone, Debug, Default)]
pub struct Durations {
    exact: BTreeMap<String, Time>,
    prefixes: Vec<(String, Time)>,
}

impl Durations {
    /// Reads a JSON object that maps kernel names, or prefixes ending in `*`, to microseconds.
    ///
    /// # Errors
    /// The file and the reason why it is invalid.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
        Self::parse(&text).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))
    }

    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let table: BTreeMap<String, f64> = serde_json::from_str(text)?;
        let mut durations = Self::default();
        for (name, us) in table {
            anyhow::ensure!(
                (0.0..=60e6).contains(&us),
                "{name}: {us} is not a time of 0 to 60,000,000 microseconds"
            );
            let time = (us * 1000.0).round() as Time;
            match name.strip_suffix('*') {
                Some(prefix) => durations.prefixes.push((prefix.to_owned(), time)),
                None => {
                    durations.exact.insert(name, time);
                }
            }
        }
        // The longest prefix wins.
        durations.prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(durations)
    }

    pub fn get(&self, name: &str) -> Option<Time> {
        let by_prefix =
            || self.prefixes.iter().find(|(prefix, _)| name.starts_with(prefix.as_str())).map(|(_, t)| *t);
        self.exact.get(name).copied().or_else(by_prefix)
    }
}

/// Returns the time of an unknown kernel: five microseconds each time the device is filled with its
/// work-groups.
pub fn by_grid(rounds: u64) -> Time {
    rounds.saturating_mul(UNKNOWN_GROUP)
}

/// Returns the time of a kernel that moves `bytes` within the device.
pub fn device_move(bytes: u64) -> Time {
    MOVE_FIXED + bytes.saturating_mul(1000) / DEVICE_BYTES_PER_US
}

/// Returns the time of a copy engine's transfer of `bytes`.
pub fn link_move(bytes: u64) -> Time {
    bytes.saturating_mul(1000) / LINK_BYTES_PER_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_name_precedes_the_longest_prefix() {
        let table = Durations::parse(r#"{"gemm": 2.5, "ge*": 1, "gemm_*": 7}"#).unwrap();
        assert_eq!(table.get("gemm"), Some(2500));
        assert_eq!(table.get("gemm_nt"), Some(7000));
        assert_eq!(table.get("gelu"), Some(1000));
        assert_eq!(table.get("relu"), None);
    }

    #[test]
    fn invalid_table_is_refused_with_the_name() {
        assert!(Durations::parse(r#"{"a": -1}"#).unwrap_err().to_string().contains("a: -1"));
        assert!(Durations::parse("[]").is_err());
    }
}
