//! Parsing of the code that HIP programs register and load: the wrapper of `__hipRegisterFatBinary`, bundles
//! and plain code objects, in memory or in files. The result is an [`Image`]: a copy of the kernel metadata,
//! so that the program may change its memory and files afterwards.
//!
//! Reads of memory follow the headers and nothing else, because its length is not known. Damaged input gives
//! a reason ([`Unknown`]), never a panic or a loop. Headers that name unmapped ranges would crash this
//! library like the runtime, so memory is read only if the runtime has accepted it or is bound to read it.

mod bundle;
mod compressed;
mod elf;
mod metadata;
mod source;
mod target;

use crate::layout::{Kernel, Unknown};
use metadata::Index;
pub(crate) use metadata::NameKey;
use object::read::{ReadCache, ReadRef};
use source::Memory;
use std::ffi::{CStr, OsStr, c_void};
use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
pub use target::Processors;
use target::{Fit, Target};

/// The kernels of one binary or module.
#[derive(Debug)]
pub struct Image {
    /// One entry for each target that a device may take, or the reason why there is none.
    entries: Result<Vec<Entry>, Unknown>,
    /// The file from which it was read.
    file: Option<FileState>,
}

#[derive(Debug)]
struct Entry {
    /// The target of the code; none for a code object outside a bundle.
    target: Option<Target>,
    /// A copy of its metadata.
    notes: Result<Box<[Box<[u8]>]>, Unknown>,
    /// The index, built at the first search for a kernel.
    index: Option<Result<Index, Unknown>>,
}

/// A file, and the properties that change with its content.
#[derive(Debug)]
struct FileState {
    path: PathBuf,
    state: [i64; 7],
}

fn state(data: &Metadata) -> [i64; 7] {
    [
        data.dev() as i64,
        data.ino() as i64,
        data.size() as i64,
        data.mtime(),
        data.mtime_nsec(),
        data.ctime(),
        data.ctime_nsec(),
    ]
}

/// The argument of `__hipRegisterFatBinary`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wrapper {
    magic: u32,
    version: u32,
    payload: *const u8,
    reserved: *const c_void,
}

/// The magic number "HIPF".
const WRAPPER: u32 = 0x4849_5046;

/// Returns the address of a wrapper's code, which is not read; none if it is no wrapper.
///
/// # Safety
///
/// The wrapper can be read and is not written to during the call.
pub(crate) unsafe fn payload_of(wrapper: *const c_void) -> Option<*const c_void> {
    let wrapper = wrapper.cast::<Wrapper>();
    if wrapper.is_null() || !wrapper.is_aligned() {
        return None;
    }
    // SAFETY: not null and aligned; the caller guarantees that it can be read.
    let magic = unsafe { wrapper.cast::<u32>().read() };
    // SAFETY: by its magic number it is a wrapper, which can be read as a whole.
    (magic == WRAPPER).then(|| unsafe { wrapper.read().payload.cast() })
}

impl Image {
    /// An image without a kernel.
    pub const EMPTY: Self = Self { entries: Ok(Vec::new()), file: None };

    /// Reads the code of a wrapper of `__hipRegisterFatBinary`.
    ///
    /// # Safety
    ///
    /// The wrapper, and its payload as far as the headers extend, can be read and are not written to during
    /// the call.
    pub unsafe fn of_wrapper(wrapper: *const c_void, processors: &Processors) -> Self {
        // SAFETY: the caller guarantees it.
        match unsafe { payload_of(wrapper) } {
            None => Self::unknown(Unknown::UnknownFormat),
            // SAFETY: the payload of a wrapper can be read as far as its headers extend.
            Some(payload) => unsafe { Self::of_memory(payload, processors) },
        }
    }

    /// Reads a bundle or code object in memory, as for `hipModuleLoadData`.
    ///
    /// # Safety
    ///
    /// The first four bytes, and the code that they begin as far as its headers extend, can be read and are
    /// not written to during the call.
    pub unsafe fn of_memory(data: *const c_void, processors: &Processors) -> Self {
        // SAFETY: the caller guarantees it for the time of this call, and everything that is kept is copied.
        let memory = unsafe { Memory::new(data.cast()) };
        Self::read(memory, processors)
    }

    /// Reads a bundle or code object whose length is known.
    pub fn of_bytes(bytes: &[u8], processors: &Processors) -> Self {
        Self::read(bytes, processors)
    }

    /// Reads a file, as for `hipModuleLoad`. Call it before the runtime reads the file: [`Image::settle`]
    /// then checks that both have read the same. Only a regular file is read, because reading from a pipe
    /// would consume its data.
    pub fn of_file(path: &CStr, processors: &Processors) -> Self {
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let Ok(file) = OpenOptions::new().read(true).custom_flags(flags).open(path) else {
            return Self::unknown(Unknown::Unreadable);
        };
        let Some(data) = file.metadata().ok().filter(Metadata::is_file) else {
            return Self::unknown(Unknown::Unreadable);
        };
        let cache: ReadCache<File> = ReadCache::new(file);
        let image = Self::read(&cache, processors);
        Self { file: Some(FileState { path: path.to_owned(), state: state(&data) }), ..image }
    }

    /// Forgets the content if the file has changed since it was read here. Call it once the runtime has
    /// loaded the image.
    pub fn settle(&mut self) {
        if let Some(seen) = self.file.take()
            && seen.path.metadata().ok().is_none_or(|data| state(&data) != seen.state)
        {
            self.entries = Err(Unknown::Changed);
        }
    }

    fn unknown(reason: Unknown) -> Self {
        Self { entries: Err(reason), file: None }
    }

    fn read<'a, R: ReadRef<'a>>(data: R, processors: &Processors) -> Self {
        // The code of one processor can be a tenth of a bundle with a gigabyte.
        let extent = |start: &[u8]| {
            let codes = taken(bundle::open(start).ok()?, processors);
            let ends = codes.iter().map(|(code, target)| target.as_ref().and(code.data.end()));
            ends.max().unwrap_or(Some(0))
        };
        match compressed::open(data, extent) {
            Ok(None) => Self::read_plain(data, processors),
            Ok(Some(plain)) => Self::read_plain(&plain[..], processors),
            Err(reason) => Self::unknown(reason),
        }
    }

    fn read_plain<'a, R: ReadRef<'a>>(data: R, processors: &Processors) -> Self {
        let entries = bundle::open(data).map(|codes| {
            let notes = |code: bundle::Code<R>| {
                elf::metadata_notes(code.data).map(|notes| notes.into_iter().map(Into::into).collect())
            };
            taken(codes, processors)
                .into_iter()
                .map(|(code, target)| Entry { target, notes: notes(code), index: None })
                .collect()
        });
        Self { entries, file: None }
    }

    /// Returns the kernel of this name as a device of this architecture (`gfx90a`, as the runtime names it)
    /// has it. If the architecture is not known, all code must agree on the kernel.
    pub fn kernel(&mut self, name: &[u8], device: Option<&str>) -> Result<Kernel, Unknown> {
        self.kernel_by_key(NameKey::new(name), device.map(Target::parse).as_ref())
    }

    pub(crate) fn kernel_by_key(&mut self, key: NameKey, device: Option<&Target>) -> Result<Kernel, Unknown> {
        let entries = self.entries.as_mut().map_err(|reason| *reason)?;
        let best = match device {
            None => None,
            Some(device) => Some((
                device,
                best(entries.iter().map(|entry| &entry.target), device).ok_or(Unknown::NoEntry)?,
            )),
        };
        let mut found: Option<Kernel> = None;
        for entry in entries {
            if best.is_some_and(|(device, best)| fit(&entry.target, device) != best) {
                continue;
            }
            let Some(kernel) = entry.kernel(key)? else { continue };
            // The hidden arguments may differ between processors; those of the caller may not.
            match &found {
                Some(other) if !other.is_launched_as(&kernel) => {
                    return Err(Unknown::EntriesDiffer);
                }
                _ => found = Some(kernel),
            }
        }
        found.ok_or(Unknown::NoSuchKernel)
    }
}

/// Returns the code that a device may take, with its targets.
fn taken<R>(codes: Vec<bundle::Code<R>>, processors: &Processors) -> Vec<(bundle::Code<R>, Option<Target>)> {
    let targets: Vec<_> = codes.iter().map(|code| code.target.as_deref().map(Target::parse)).collect();
    let is_taken = |target: &Option<Target>| {
        let taken =
            |device: &Target| best(targets.iter(), device).is_some_and(|best| best == fit(target, device));
        processors.kinds().is_empty() || processors.kinds().iter().any(taken)
    };
    let taken: Vec<bool> = targets.iter().map(is_taken).collect();
    let codes = codes.into_iter().zip(targets).zip(taken);
    codes.filter(|(_, taken)| *taken).map(|(code, _)| code).collect()
}

fn fit(target: &Option<Target>, device: &Target) -> Fit {
    target.as_ref().map_or(Fit::Own, |target| target.fit(device))
}

/// Returns the fit of the best code for a device; none if there is none, or only code that the runtime has to
/// compile.
fn best<'a>(targets: impl Iterator<Item = &'a Option<Target>>, device: &Target) -> Option<Fit> {
    targets.map(|target| fit(target, device)).min().filter(|best| *best != Fit::None)
}

impl Entry {
    fn kernel(&mut self, key: NameKey) -> Result<Option<Kernel>, Unknown> {
        let notes = self.notes.as_deref().map_err(|reason| *reason)?;
        let index = self.index.get_or_insert_with(|| metadata::index(notes));
        let index = index.as_ref().map_err(|reason| *reason)?;
        index.get(&key).map(|&place| metadata::kernel(notes, place)).transpose()
    }
}

#[cfg(test)]
mod tests;
