//! The runtime that does nothing, which this program carries inside itself.

use anyhow::{Context, Result};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// `libamdhip64.so.5`, compiled by the build script from `null-runtime/`.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libamdhip64.so.5"));

/// The library as a file of its own name in a directory of its own, which goes with this value.
#[derive(Debug)]
pub(super) struct NullRuntime {
    directory: PathBuf,
    path: PathBuf,
}

impl NullRuntime {
    pub(super) fn install() -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("xbench-null-runtime-{}", std::process::id()));
        // Fails if it exists: what somebody else has put there is not loaded.
        DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let installed = Self { path: directory.join("libamdhip64.so.5"), directory };
        std::fs::write(&installed.path, LIBRARY)
            .with_context(|| format!("cannot write {}", installed.path.display()))?;
        Ok(installed)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NullRuntime {
    fn drop(&mut self) {
        // What cannot be removed stays in the directory for temporary files.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
