//! The facts about a process.

use crate::error::Error;
use crate::foreign;
use crate::process;
use crate::queues::{Queues, Unknown};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The facts about a process.
#[derive(Debug, Clone)]
pub struct View {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) uid: u32,
    /// True if it is stopped or traced.
    pub(super) stopped: bool,
    /// The files that it has mapped, each once; none if they are hidden.
    pub(super) maps: Option<Vec<String>>,
    /// Its environment at its start; none if it is hidden.
    pub(super) environment: Option<HashMap<OsString, OsString>>,
    /// The number of compute queues that the driver lists; none if it does not use the driver.
    pub(super) hardware_queues: Result<Option<usize>, Unknown>,
}

impl View {
    /// Collects the facts.
    ///
    /// # Errors
    /// There is no such process, it has ended, or `/proc` hides it.
    pub fn look(pid: u32) -> Result<Self, Error> {
        let status = process::status(pid)?;
        let name = process::name(pid)?;
        let folder = PathBuf::from(format!("/proc/{pid}"));
        // Reading the memory of the process can block, because it may map files that never answer.
        let read = |name: &str| {
            let path = folder.join(name);
            foreign::within(move || fs::read(path)).ok()
        };
        let maps = read("maps").map(|bytes| mapped(&String::from_utf8_lossy(&bytes)));
        let environment = read("environ").map(|bytes| variables(&bytes));
        let hardware_queues = match Queues::of(pid) {
            Ok(queues) => Ok(Some(queues.compute())),
            Err(Unknown::Unused { .. } | Unknown::NoKfd { .. }) => Ok(None),
            Err(unknown) => Err(unknown),
        };
        // A server that the process starts gets its effective user.
        let uid = status.uids.get(1).copied().unwrap_or_default();
        let stopped = status.is_stopped();
        Ok(Self { pid, name, uid, stopped, maps, environment, hardware_queues })
    }

    /// Returns true if the process is known to use the driver.
    pub(super) fn uses_the_driver(&self) -> bool {
        matches!(self.hardware_queues, Ok(Some(_)))
    }

    pub(super) fn mapped(&self, name: &str) -> Vec<&str> {
        let maps = self.maps.iter().flatten();
        maps.filter(|path| {
            Path::new(path).file_name().is_some_and(|file| file.as_bytes().starts_with(name.as_bytes()))
        })
        .map(String::as_str)
        .collect()
    }

    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        self.environment.as_ref()?.get(OsStr::new(name)).filter(|value| !value.is_empty()).cloned()
    }
}

/// The files that a process has mapped.
fn mapped(maps: &str) -> Vec<String> {
    let mut files: Vec<String> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| line[at..].trim_end_matches(" (deleted)").to_owned()))
        .collect();
    files.sort_unstable();
    files.dedup();
    files
}

fn variables(bytes: &[u8]) -> HashMap<OsString, OsString> {
    let pair = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        Some((OsStr::from_bytes(&entry[..at]).to_owned(), OsStr::from_bytes(&entry[at + 1..]).to_owned()))
    };
    bytes.split(|byte| *byte == 0).filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_environment_are_parsed() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 42    /x/libshimhip.so\n\
                    7f01-7f02 r--p 00001000 08:01 42    /x/libshimhip.so\n\
                    7f03-7f04 rw-p 00000000 00:00 0 \n\
                    7f05-7f06 r-xp 00000000 08:01 43    /y/lib amdhip.so (deleted)\n";
        assert_eq!(mapped(maps), ["/x/libshimhip.so", "/y/lib amdhip.so"]);
        let variables = variables(b"A=b=c\0B=\0bad\0");
        assert_eq!(variables.get(OsStr::new("A")).map(|value| value.as_bytes()), Some(&b"b=c"[..]));
        assert_eq!(variables.len(), 2);
    }

    #[test]
    fn facts_of_this_process_are_collected() {
        let view = View::look(std::process::id()).unwrap();
        assert!(!view.stopped && view.maps.is_some_and(|maps| !maps.is_empty()));
        assert_eq!(View::look(u32::MAX).unwrap_err(), Error::NoProcess(u32::MAX));
    }
}
