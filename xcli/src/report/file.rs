//! The file: whole or not there, and never in the place of something that nobody said may go.

use anyhow::Context as _;
use rustix::fs::{Access, CWD, RenameFlags, access, renameat_with};
use rustix::io::Errno;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

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

    /// Writes it under another name beside it, and gives it its own when all of it is there.
    ///
    /// # Errors
    /// It cannot be written; nothing is left of it.
    pub fn write(&self, text: &str) -> anyhow::Result<()> {
        let Self::File { path, force } = self else { return Ok(crate::say(text)?) };
        let name = format!(".xcli-report-{}.part", std::process::id());
        let part = folder(path).join(name);
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&part)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            put(&part, path, *force)
        })();
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn put(part: &Path, path: &Path, force: bool) -> std::io::Result<()> {
    if force {
        return std::fs::rename(part, path);
    }
    match renameat_with(CWD, part, CWD, path, RenameFlags::NOREPLACE) {
        // Not every file system has that; a second name is refused as well where there is one.
        Err(Errno::INVAL | Errno::NOSYS) => {
            std::fs::hard_link(part, path)?;
            std::fs::remove_file(part)
        }
        other => Ok(other?),
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
