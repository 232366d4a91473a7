//! Files that measurements read and write; errors name them.

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Checks, before anything is measured, that a file can be written; creates it if it does not exist.
pub(crate) fn ensure_writable(path: &Path) -> Result<()> {
    let opened = File::options().append(true).create(true).open(path);
    opened.map(drop).with_context(|| format!("cannot write {}", path.display()))
}

pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    serde_json::from_str(&read(path)?).with_context(|| format!("{} is malformed", path.display()))
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    write(path, serde_json::to_string_pretty(value)? + "\n")
}

/// Creates a private directory that is removed with the value.
pub(crate) fn scratch() -> Result<TempDir> {
    let private = Permissions::from_mode(0o700);
    let directory = tempfile::Builder::new().prefix("xbench-").permissions(private).tempdir();
    directory.context("cannot make a temporary directory")
}

/// The files of a run in its directory, through which its processes speak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunFiles<'a>(pub(crate) &'a Path);

impl RunFiles<'_> {
    pub(crate) fn session(&self) -> PathBuf {
        self.0.join("session.json")
    }

    /// The results of a program.
    pub(crate) fn record(&self, program: &str) -> PathBuf {
        self.0.join(format!("{program}.json"))
    }

    /// The log of the library in a program.
    pub(crate) fn log(&self, program: &str) -> PathBuf {
        self.0.join(format!("{program}.log"))
    }

    /// The times of a program's launches.
    pub(crate) fn launches(&self, program: &str) -> PathBuf {
        self.0.join(format!("{program}.launches"))
    }

    /// Memory that programs share.
    pub(crate) fn page(&self) -> PathBuf {
        self.0.join("page")
    }

    /// The server's state before and after the run.
    pub(crate) fn watched(&self) -> PathBuf {
        self.0.join("xserver.watched")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.0.join("xserver.sock")
    }

    /// The decisions of the server.
    pub(crate) fn decisions(&self) -> PathBuf {
        self.0.join("xserver.decisions")
    }

    /// The timeline of the simulated device.
    pub(crate) fn timeline(&self) -> PathBuf {
        self.0.join("gpu-sim.timeline")
    }

    /// The statistics of the simulated device.
    pub(crate) fn stats(&self) -> PathBuf {
        self.0.join("gpu-sim.stats")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_directory_is_private_and_removed() {
        let (a, b) = (scratch().unwrap(), scratch().unwrap());
        assert_ne!(a.path(), b.path());
        assert_eq!(a.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let path = a.path().to_owned();
        drop(a);
        assert!(!path.exists());
    }
}
