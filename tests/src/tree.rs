//! The paths of the workspace: sources, products, and files that tests share.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the workspace")
}

/// The folder of the profile that this test was built for, `target/debug` or `target/release`.
fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the path of the test itself");
    let deps = exe.parent().expect("a test lies in a folder");
    // Tests lie in target/PROFILE/deps, examples and binaries in target/PROFILE.
    if deps.ends_with("deps") {
        deps.parent().expect("deps lies in a folder").to_owned()
    } else {
        deps.to_owned()
    }
}

/// A product of this workspace beside the test (a program or library by its file name), or one sentence that says how to
/// get it.
pub fn product(name: &str) -> Result<PathBuf, String> {
    let path = profile_dir().join(name);
    if path.exists() {
        return Ok(path);
    }
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    Err(format!("{} does not exist: run `cargo build{release} --workspace` first", path.display()))
}

/// The folder of built test programs and of the locks between test processes.
pub(crate) fn output_dir() -> PathBuf {
    let dir = workspace().join("target/hip-programs");
    fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("cannot create {}: {error}", dir.display()));
    dir
}

/// A file to lock, shared by all test processes of this checkout.
pub(crate) fn lock_file(name: &str) -> File {
    let path = output_dir().join(format!("{name}.lock"));
    File::create(&path).unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()))
}
