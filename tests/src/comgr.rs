//! The cache of AMD's compiler (`tests/comgr/cache.cpp`): without it the runtime compiles its own copy kernels in every process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::runtime::{comgr_cache, hip_major};
use crate::tree::output_dir;

/// The compiler of the distribution's HIP 5. The cache was not tried with a later one.
const REAL: &str = "/usr/lib/x86_64-linux-gnu/libamd_comgr.so.2";

/// Returns the variables with which a program finds the cache, if there is one for the installed runtime.
pub(crate) fn variables() -> &'static [(&'static str, String)] {
    static VARIABLES: OnceLock<Vec<(&str, String)>> = OnceLock::new();
    VARIABLES.get_or_init(|| prepare(&output_dir().join("comgr")).unwrap_or_default())
}

fn prepare(folder: &Path) -> Option<Vec<(&'static str, String)>> {
    let real = fs::canonicalize(REAL).ok().filter(|_| hip_major() == 5)?;
    let library: PathBuf = comgr_cache(&real).unwrap_or_else(|reason| panic!("{reason}"));
    fs::create_dir_all(folder).unwrap_or_else(|error| panic!("cannot create {}: {error}", folder.display()));
    let mut search = library.parent()?.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
        search.push(":");
        search.push(others);
    }
    Some(vec![
        ("LD_LIBRARY_PATH", search.into_string().ok()?),
        ("GIVEWAY_COMGR_CACHE", folder.display().to_string()),
    ])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::{Path, PathBuf};

    use crate::Gpu;

    fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = fs::read_dir(folder).expect("the folder of the test");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.map(|path| (path.clone(), fs::read(path).expect("a file of the cache"))).collect()
    }

    #[test]
    fn kept_results_are_used_and_damaged_ones_are_made_again() {
        let (gpu, folder) = (Gpu::take(), tempfile::tempdir().expect("a folder"));
        let run = || {
            let run = gpu.run("copies_2d").env("GIVEWAY_COMGR_CACHE", &folder.path().display().to_string());
            let finished = run.finish();
            finished.expect_success();
            finished.stdout
        };
        if super::variables().is_empty() {
            return; // a runtime without the cache
        }
        let (output, made) = (run(), files(folder.path()));
        assert!(made.len() >= 6, "{:?}", made.keys());
        let (largest, bytes) = made.iter().max_by_key(|(_, bytes)| bytes.len()).expect("a file");
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).expect("a file"));
        let before: Vec<_> = made.keys().map(|path| inode(path)).collect();
        assert_eq!(run(), output);
        assert_eq!(made.keys().map(|path| inode(path)).collect::<Vec<_>>(), before, "files were made again");
        fs::write(largest, &bytes[..bytes.len() / 2]).expect("a file of the cache");
        assert_eq!(run(), output);
        assert!(files(folder.path())[largest] == *bytes, "the damaged file was not made again");
    }
}
