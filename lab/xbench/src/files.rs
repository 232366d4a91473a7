//! Files that measurements read and write; errors name them.

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
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
