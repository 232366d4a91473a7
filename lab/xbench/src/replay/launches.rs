//! The times of a replay's launches, in a file of little endian words of 8 bytes: nanoseconds of the host's
//! monotonic clock, each just after the call of a launch returned.

use crate::clock::now_ns;
use crate::files::write;
use anyhow::{Context, Result};
use std::path::Path;

/// The times so far, if they are asked for. They are kept in memory, so that a launch writes no file.
#[derive(Debug)]
pub(crate) struct Launches(Option<Vec<u64>>);

impl Launches {
    pub(crate) fn new(wanted: bool) -> Self {
        // Room for a million, so that hardly any launch waits for memory.
        Self(wanted.then(|| Vec::with_capacity(1 << 20)))
    }

    /// Notes that a launch has just returned.
    pub(super) fn note(&mut self) {
        if let Some(times) = &mut self.0 {
            times.push(now_ns());
        }
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        write(path, self.0.iter().flatten().flat_map(|ns| ns.to_le_bytes()).collect::<Vec<u8>>())
    }
}

/// Returns the time of each launch.
pub(crate) fn read(path: &Path) -> Result<Vec<u64>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_file() {
        let directory = crate::files::scratch().unwrap();
        let path = directory.path().join("launches");
        let mut launches = Launches::new(true);
        let before = now_ns();
        launches.note();
        launches.note();
        launches.write(&path).unwrap();
        let times = read(&path).unwrap();
        assert!(times.len() == 2 && before <= times[0] && times[0] <= times[1] && times[1] <= now_ns());
        let mut none = Launches::new(false);
        none.note();
        none.write(&path).unwrap();
        assert_eq!(read(&path).unwrap(), [0; 0]);
    }
}
