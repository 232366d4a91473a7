//! The times of a replay's launches, in a file of little endian words of 8 bytes: nanoseconds of the host's
//! monotonic clock, each just after the call of a launch returned.

use crate::clock::now_ns;
use crate::files::write;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// The times so far, if they are asked for. They are kept in memory, so that a launch writes no file.
#[derive(Debug)]
pub(super) struct Launches(Option<Vec<u64>>);

impl Launches {
    pub(super) fn new(wanted: bool) -> Self {
        Self(wanted.then(Vec::new))
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

/// Calls `each` with the time of each launch.
pub(crate) fn read(path: &Path, mut each: impl FnMut(u64)) -> Result<()> {
    let told = || format!("cannot read {}", path.display());
    let mut file = BufReader::new(File::open(path).with_context(told)?);
    let mut word = [0; size_of::<u64>()];
    loop {
        match file.read_exact(&mut word) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read.with_context(told)?,
        }
        each(u64::from_le_bytes(word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_file() {
        let directory = crate::files::scratch().unwrap();
        let path = directory.path().join("launches");
        let read = || {
            let mut times = Vec::new();
            super::read(&path, |ns| times.push(ns)).unwrap();
            times
        };
        let mut launches = Launches::new(true);
        let before = now_ns();
        launches.note();
        launches.note();
        launches.write(&path).unwrap();
        let times = read();
        assert!(times.len() == 2 && before <= times[0] && times[0] <= times[1] && times[1] <= now_ns());
        let mut none = Launches::new(false);
        none.note();
        none.write(&path).unwrap();
        assert_eq!(read(), [0; 0]);
    }
}
