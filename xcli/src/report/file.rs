//! The output file of a report, which is written as a whole or not at all, and replaces an existing file only
//! with --force.

use crate::error::{Error, PathFault};
use crate::output::print;
use anyhow::Context as _;
use rustix::fs::{Access, access};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The destination of a report.
#[derive(Debug)]
pub enum Target {
    Output,
    /// A file, which is replaced only if `force` is true.
    File {
        path: PathBuf,
        force: bool,
    },
}

impl Target {
    /// Checks in advance that the destination can be written.
    ///
    /// # Errors
    /// The file exists and may not be replaced, is not a regular file, or its folder cannot be written.
    pub fn new(path: &Path, force: bool) -> Result<Self, Error> {
        let fault = |why| Err(Error::ReportPath { path: path.to_owned(), why });
        if path.as_os_str() == "-" {
            return Ok(Self::Output);
        }
        if let Ok(about) = path.symlink_metadata() {
            if !about.is_file() {
                return fault(PathFault::NotAFile);
            }
            if !force {
                return fault(PathFault::Exists);
            }
        }
        let named = path.file_name().is_some() && !path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if !named {
            return fault(PathFault::NotAName);
        }
        if let Err(errno) = access(folder(path), Access::WRITE_OK) {
            return fault(PathFault::NotWritable(errno));
        }
        Ok(Self::File { path: path.to_owned(), force })
    }

    /// Writes the report to a temporary file beside the destination, and renames it. Signals that ask to end
    /// are ignored meanwhile.
    ///
    /// # Errors
    /// The file cannot be written. No temporary file is left.
    pub fn write(&self, text: &str) -> anyhow::Result<()> {
        self.write_and(text, |_| ())
    }

    /// `half_way` is called with the temporary file before it is renamed.
    fn write_and(&self, text: &str, half_way: impl FnOnce(&Path)) -> anyhow::Result<()> {
        let Self::File { path, force } = self else { return Ok(print(text)?) };
        let _ignored = IgnoredSignals::begin();
        put(text, path, *force, half_way).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Writes and renames the temporary file, which has a unique name and is removed on failure.
fn put(text: &str, path: &Path, force: bool, half_way: impl FnOnce(&Path)) -> io::Result<()> {
    let mut part = tempfile::Builder::new()
        .prefix(".xcli-report-")
        .suffix(".part")
        // Gives the file the usual permissions, and errors without the name of the temporary file.
        .make_in(folder(path), |part| File::create_new(part))?;
    part.as_file_mut().write_all(text.as_bytes())?;
    part.as_file().sync_all()?;
    half_way(part.path());
    let put = if force { part.persist(path) } else { part.persist_noclobber(path) };
    put.map(drop).map_err(|refused| refused.error)
}

/// Ignores the signals that ask this process to end, because they would leave a temporary file.
///
/// A lock allows one at a time: two that overlap would restore each other's dispositions.
struct IgnoredSignals {
    before: Vec<(libc::c_int, libc::sigaction)>,
    _only: MutexGuard<'static, ()>,
}

impl IgnoredSignals {
    fn begin() -> Self {
        static ONLY: Mutex<()> = Mutex::new(());
        // The lock protects no data.
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all zeros are a valid `sigaction`: no flags, an empty mask, SIG_DFL.
        let mut ignore: libc::sigaction = unsafe { std::mem::zeroed() };
        ignore.sa_sigaction = libc::SIG_IGN;
        let mut before = Vec::new();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let mut old = ignore;
            // SAFETY: both pointers are valid during the call, and SIG_IGN runs no code.
            if unsafe { libc::sigaction(signal, &raw const ignore, &raw mut old) } == 0 {
                before.push((signal, old));
            }
        }
        Self { before, _only: only }
    }
}

impl Drop for IgnoredSignals {
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            // SAFETY: `old` is the action that the system returned for this signal; the third argument may be
            // null.
            unsafe { libc::sigaction(*signal, &raw const *old, std::ptr::null_mut()) };
        }
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn existing_file_is_replaced_only_with_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let target = Target::new(&path, false).unwrap();
        target.write("one").unwrap();
        assert!(target.write("two").is_err(), "the file was created meanwhile");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert!(Target::new(&path, false).unwrap_err().to_string().contains("--force"));
        Target::new(&path, true).unwrap().write("three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn signal_leaves_no_partial_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let target = Target::new(&path, false).unwrap();
        let written = target.write_and("one", |part| {
            assert!(part.exists() && !path.exists());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                // The signal goes to this thread only: another thread could have it blocked, and receive it
                // after the test.
                // SAFETY: takes an integer.
                assert_eq!(unsafe { libc::raise(signal) }, 0);
            }
        });
        written.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn file_has_the_usual_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let [report, other] = ["report.json", "other"].map(|name| folder.path().join(name));
        Target::new(&report, false).unwrap().write("one").unwrap();
        fs::write(&other, "one").unwrap();
        assert_eq!(report.metadata().unwrap().permissions(), other.metadata().unwrap().permissions());
    }

    #[test]
    fn unusable_paths_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| Target::new(path, true).unwrap_err().to_string();
        assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
        assert!(refused(folder.path()).contains("not a regular file"));
        assert!(refused(&folder.path().join("none/report.json")).contains("cannot be written"));
        assert!(refused(&folder.path().join("x/..")).contains("not "));
        assert!(matches!(Target::new(Path::new("-"), false), Ok(Target::Output)));
    }
}
