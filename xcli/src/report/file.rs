//! The file: whole or not there, and never in the place of something that nobody said may go.

use anyhow::Context as _;
use rustix::fs::{Access, access};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where the report goes.
#[derive(Debug)]
pub enum Target {
    /// Standard output.
    Output,
    /// A file, which is replaced if it is there.
    File {
        /// Its path.
        path: PathBuf,
        /// Whether it may be replaced.
        force: bool,
    },
}

impl Target {
    /// Looks whether it can be written before there is something to write.
    ///
    /// # Errors
    /// It is there and may not be replaced, is no file, or its folder takes none.
    pub fn new(path: &Path, force: bool) -> Result<Self, String> {
        if path.as_os_str() == "-" {
            return Ok(Self::Output);
        }
        if let Ok(about) = path.symlink_metadata() {
            if !about.is_file() {
                return Err(format!("{} is no file", path.display()));
            }
            if !force {
                return Err(format!("{} is there already; --force replaces it", path.display()));
            }
        }
        let named = path.file_name().is_some() && !path.as_os_str().as_encoded_bytes().ends_with(b"/");
        if !named {
            return Err(format!("{} is no name of a file", path.display()));
        }
        access(folder(path), Access::WRITE_OK)
            .map_err(|errno| format!("{} cannot be written: {errno}", path.display()))?;
        Ok(Self::File { path: path.to_owned(), force })
    }

    /// Writes it under another name beside it, and gives it its own when all of it is there. Ctrl-C comes too late then.
    ///
    /// # Errors
    /// It cannot be written; nothing is left of it.
    pub fn write(&self, text: &str) -> anyhow::Result<()> {
        self.write_and(text, |_| ())
    }

    /// `half_way` sees the part before it has its own name.
    fn write_and(&self, text: &str, half_way: impl FnOnce(&Path)) -> anyhow::Result<()> {
        let Self::File { path, force } = self else { return Ok(crate::say(text)?) };
        let _undisturbed = Undisturbed::begin();
        put(text, path, *force, half_way).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The part has a name that nobody else has, and is gone if this fails.
fn put(text: &str, path: &Path, force: bool, half_way: impl FnOnce(&Path)) -> io::Result<()> {
    let mut part = tempfile::Builder::new()
        .prefix(".xcli-report-")
        .suffix(".part")
        // With the permissions of any new file, and with errors that do not name the part.
        .make_in(folder(path), |part| File::create_new(part))?;
    part.as_file_mut().write_all(text.as_bytes())?;
    part.as_file().sync_all()?;
    half_way(part.path());
    let put = if force { part.persist(path) } else { part.persist_noclobber(path) };
    put.map(drop).map_err(|refused| refused.error)
}

/// While it lives, the signals that ask a process to end do nothing, in whichever thread: half a file would stay.
///
/// One at a time: two that overlap would each bring back what the other has set.
struct Undisturbed {
    before: Vec<(libc::c_int, libc::sigaction)>,
    _only: MutexGuard<'static, ()>,
}

impl Undisturbed {
    fn begin() -> Self {
        static ONLY: Mutex<()> = Mutex::new(());
        // It guards nothing that a panic could leave half done.
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: all zeros are a valid `sigaction`: no flags, an empty mask, SIG_DFL.
        let mut ignore: libc::sigaction = unsafe { std::mem::zeroed() };
        ignore.sa_sigaction = libc::SIG_IGN;
        let mut before = Vec::new();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let mut old = ignore;
            // SAFETY: both point to values that live through the call, and SIG_IGN runs no code.
            if unsafe { libc::sigaction(signal, &raw const ignore, &raw mut old) } == 0 {
                before.push((signal, old));
            }
        }
        Self { before, _only: only }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            // SAFETY: it is what the system gave for this signal, and lives through the call; the other may be null.
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
    fn what_is_there_stays_unless_it_may_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let target = Target::new(&path, false).unwrap();
        target.write("one").unwrap();
        assert!(target.write("two").is_err(), "somebody else has made it meanwhile");
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert!(Target::new(&path, false).unwrap_err().contains("--force"));
        Target::new(&path, true).unwrap().write("three").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn a_signal_leaves_no_half_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        let target = Target::new(&path, false).unwrap();
        let written = target.write_and("one", |part| {
            assert!(part.exists() && !path.exists());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                // SAFETY: a number; the signal is for this thread. One for the process would wait for the harness's thread
                // if that blocks it just then, to start a test, and end the process later.
                assert_eq!(unsafe { libc::raise(signal) }, 0);
            }
        });
        written.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn whoever_may_read_other_files_may_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let [report, other] = ["report.json", "other"].map(|name| folder.path().join(name));
        Target::new(&report, false).unwrap().write("one").unwrap();
        fs::write(&other, "one").unwrap();
        assert_eq!(report.metadata().unwrap().permissions(), other.metadata().unwrap().permissions());
    }

    #[test]
    fn what_cannot_be_a_report_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| Target::new(path, true).unwrap_err();
        assert!(refused(Path::new("/dev/null")).contains("no file"));
        assert!(refused(folder.path()).contains("no file"));
        assert!(refused(&folder.path().join("none/report.json")).contains("cannot be written"));
        assert!(refused(&folder.path().join("x/..")).contains("no "));
        assert!(matches!(Target::new(Path::new("-"), false), Ok(Target::Output)));
    }
}
