//! A small per-user cache of compiled kernels, under `$XDG_CACHE_HOME/giveway` or `~/.cache/giveway`.
//!
//! An entry contains its whole key and a checksum. An entry that does not match, is truncated, or belongs to
//! another user counts as absent, so that a corrupt cache costs only a compilation. A cache that cannot be
//! written is no error.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// The shortest compilation whose result is kept.
const WORTH_KEEPING: Duration = Duration::from_millis(500);

/// The first bytes of an entry; the number increases when the layout changes.
const MAGIC: &[u8; 8] = b"GWKERN01";

#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
    worth_keeping: Duration,
}

impl Cache {
    /// Returns the cache of the user who runs this process; `None` if the environment names no home.
    pub fn of_user() -> Option<Self> {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
        Some(Self::in_directory(base.join("giveway").join("kernels")))
    }

    /// Returns a cache in `directory`, which need not exist yet.
    pub fn in_directory(directory: PathBuf) -> Self {
        Self { directory, worth_keeping: WORTH_KEEPING }
    }

    /// Returns the entry of `key`, or the result of `build`, which is kept if the build took longer than half
    /// a second.
    pub fn get_or_build<E>(
        &self,
        key: &str,
        build: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let path = self.path_of(key);
        if let Some(code) = read(&path, key) {
            return Ok(code);
        }
        let start = Instant::now();
        let code = build()?;
        if start.elapsed() > self.worth_keeping {
            // Without an entry the next run compiles again, which needs no report.
            let _ = write(&path, key, &code);
        }
        Ok(code)
    }

    fn path_of(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{:016x}", fnv1a(key.as_bytes())))
    }
}

/// Returns the code of an entry that is whole, our user's, and made for exactly this key.
fn read(path: &Path, key: &str) -> Option<Vec<u8>> {
    let owner = fs::metadata(path).ok()?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return None;
    }
    decode(&fs::read(path).ok()?, key)
}

/// Writes an entry under a temporary name and renames it, so that no reader sees a partial entry.
fn write(path: &Path, key: &str, code: &[u8]) -> std::io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file = NamedTempFile::new_in(directory)?;
    file.write_all(&encode(key, code))?;
    file.persist(path)?;
    Ok(())
}

/// Layout: magic, checksum of all that follows, length of the key, key, code; numbers little-endian, 8 bytes
/// each.
fn encode(key: &str, code: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(8 + key.len() + code.len());
    body.extend((key.len() as u64).to_le_bytes());
    body.extend(key.as_bytes());
    body.extend(code);
    [MAGIC.as_slice(), &fnv1a(&body).to_le_bytes(), &body].concat()
}

fn decode(entry: &[u8], key: &str) -> Option<Vec<u8>> {
    let rest = entry.strip_prefix(MAGIC)?;
    let (checksum, body) = rest.split_first_chunk::<8>()?;
    if fnv1a(body).to_le_bytes() != *checksum {
        return None;
    }
    let (length, rest) = body.split_first_chunk::<8>()?;
    if u64::from_le_bytes(*length) != key.len() as u64 {
        return None;
    }
    Some(rest.strip_prefix(key.as_bytes())?.to_vec())
}

/// FNV-1a, 64 bits: stable over releases of the compiler, which the standard library's hasher is not.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    /// A cache that keeps everything, however fast it was built.
    fn eager(directory: &Path) -> Cache {
        Cache { directory: directory.join("a").join("b"), worth_keeping: Duration::ZERO }
    }

    fn build(cache: &Cache, key: &str, code: &[u8], builds: &mut u32) -> Vec<u8> {
        let result = cache.get_or_build(key, || {
            *builds += 1;
            std::thread::sleep(Duration::from_micros(1));
            Ok::<_, Infallible>(code.to_vec())
        });
        result.unwrap()
    }

    #[test]
    fn built_once_then_read() {
        let directory = tempfile::tempdir().unwrap();
        let cache = eager(directory.path());
        let mut builds = 0;
        assert_eq!(build(&cache, "key", b"code", &mut builds), b"code");
        assert_eq!(build(&cache, "key", b"other", &mut builds), b"code");
        assert_eq!(build(&cache, "key2", b"other", &mut builds), b"other");
        assert_eq!(builds, 2);
    }

    #[test]
    fn fast_build_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::in_directory(directory.path().join("kernels"));
        let mut builds = 0;
        build(&cache, "key", b"code", &mut builds);
        build(&cache, "key", b"code", &mut builds);
        assert_eq!(builds, 2);
        assert!(!directory.path().join("kernels").exists());
    }

    #[test]
    fn corrupt_entry_is_rebuilt() {
        let directory = tempfile::tempdir().unwrap();
        let cache = eager(directory.path());
        let mut builds = 0;
        build(&cache, "key", b"code", &mut builds);
        let path = cache.path_of("key");
        let whole = fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for (index, damaged) in [&whole[..whole.len() - 1], &flipped, b"", b"GWKERN01"].iter().enumerate() {
            fs::write(&path, damaged).unwrap();
            assert_eq!(build(&cache, "key", b"fresh", &mut builds), b"fresh");
            assert_eq!(builds, 2 + index as u32);
            assert_eq!(read(&path, "key").unwrap(), b"fresh");
        }
    }

    #[test]
    fn unwritable_directory_is_no_error() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a"), "a file where a directory should be").unwrap();
        let mut builds = 0;
        assert_eq!(build(&eager(directory.path()), "key", b"code", &mut builds), b"code");
        assert_eq!(builds, 1);
    }

    #[test]
    fn failed_build_returns_its_error_and_leaves_no_entry() {
        let directory = tempfile::tempdir().unwrap();
        let cache = eager(directory.path());
        assert_eq!(cache.get_or_build("key", || Err("no")), Err("no"));
        assert_eq!(read(&cache.path_of("key"), "key"), None);
    }

    #[test]
    fn fnv1a_is_the_published_function() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    proptest! {
        #[test]
        fn entries_round_trip(key in ".{0,80}", code in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(decode(&encode(&key, &code), &key), Some(code.clone()));
            prop_assert_eq!(decode(&encode(&key, &code), &format!("{key}x")), None);
        }

        #[test]
        fn changed_byte_is_noticed(code in prop::collection::vec(any::<u8>(), 1..100), at in any::<prop::sample::Index>(), by in 1u8..) {
            let mut entry = encode("key", &code);
            let index = at.index(entry.len());
            entry[index] ^= by;
            prop_assert_eq!(decode(&entry, "key"), None);
        }
    }
}
