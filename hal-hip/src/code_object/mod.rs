//! Reading what HIP programs register and load: the wrapper of `__hipRegisterFatBinary`, bundles, plain code objects, in
//! memory or in files. The result is an [`Image`]: the kernel metadata, copied out, so that the program may do with its
//! memory and files what it likes.
//!
//! Reads of memory follow the headers and nothing else, because nobody tells its length. Damaged input gives a reason
//! ([`Unknown`]), never a panic or a loop; memory whose headers name ranges that are not mapped cannot be survived, by
//! the runtime no more than by us, so that memory is read only if the runtime has accepted it or is bound to read it.

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

/// The kernels of what was registered or loaded as one.
#[derive(Debug)]
pub struct Image {
    /// One for each target that a device may take, or why there is nothing.
    entries: Result<Vec<Entry>, Unknown>,
    /// The file that it was read from.
    file: Option<Seen>,
}

#[derive(Debug)]
struct Entry {
    /// For which devices; nothing if the code stands alone.
    target: Option<Target>,
    /// Its metadata, copied.
    notes: Result<Box<[Box<[u8]>]>, Unknown>,
    /// Made when the first kernel is looked for.
    index: Option<Result<Index, Unknown>>,
}

/// A file, and what would change if it did.
#[derive(Debug)]
struct Seen {
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

/// What `__hipRegisterFatBinary` receives.
#[repr(C)]
#[derive(Clone, Copy)]
struct Wrapper {
    magic: u32,
    version: u32,
    payload: *const u8,
    reserved: *const c_void,
}

/// "HIPF"
const WRAPPER: u32 = 0x4849_5046;

impl Image {
    /// Code without a kernel.
    pub const EMPTY: Self = Self { entries: Ok(Vec::new()), file: None };

    /// What a wrapper of `__hipRegisterFatBinary` leads to.
    ///
    /// # Safety
    ///
    /// The wrapper, and what it leads to as far as its headers say, can be read now and is not written to meanwhile.
    pub unsafe fn of_wrapper(wrapper: *const c_void, processors: &Processors) -> Self {
        let wrapper = wrapper.cast::<Wrapper>();
        if wrapper.is_null() || !wrapper.is_aligned() {
            return Self::unknown(Unknown::UnknownFormat);
        }
        // SAFETY: readable by the caller's promise, and not null, and aligned.
        let magic = unsafe { wrapper.cast::<u32>().read() };
        if magic != WRAPPER {
            return Self::unknown(Unknown::UnknownFormat);
        }
        // SAFETY: as above; it is a wrapper.
        let wrapper = unsafe { wrapper.read() };
        // SAFETY: the caller's promise covers what the wrapper leads to.
        unsafe { Self::of_memory(wrapper.payload.cast(), processors) }
    }

    /// A bundle or code object in memory, as for `hipModuleLoadData`.
    ///
    /// # Safety
    ///
    /// The first four bytes, and what they begin as far as its headers say, can be read now and are not written to
    /// meanwhile.
    pub unsafe fn of_memory(data: *const c_void, processors: &Processors) -> Self {
        // SAFETY: the caller's promise, for the time of this call; what is kept is copied.
        let memory = unsafe { Memory::new(data.cast()) };
        Self::read(memory, processors)
    }

    /// A bundle or code object whose length is known.
    pub fn of_bytes(bytes: &[u8], processors: &Processors) -> Self {
        Self::read(bytes, processors)
    }

    /// A file, as for `hipModuleLoad`. To be read before the runtime reads it: [`Image::settle`] then tells whether both
    /// have read the same. Anything but a regular file is left alone, because reading it could take something away.
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
        Self { file: Some(Seen { path: path.to_owned(), state: state(&data) }), ..image }
    }

    /// To be called when the runtime has loaded the image: if it comes from a file that has changed since it was read
    /// here, nothing about it is known.
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
        match compressed::open(data) {
            Ok(None) => Self::read_plain(data, processors),
            Ok(Some(plain)) => Self::read_plain(&plain[..], processors),
            Err(reason) => Self::unknown(reason),
        }
    }

    fn read_plain<'a, R: ReadRef<'a>>(data: R, processors: &Processors) -> Self {
        let entries = bundle::open(data).map(|codes| {
            let targets: Vec<_> =
                codes.iter().map(|code| code.target.as_deref().map(Target::parse)).collect();
            let is_taken = |target: &Option<Target>| {
                let taken = |device: &Target| {
                    best(targets.iter(), device).is_some_and(|best| best == fit(target, device))
                };
                processors.kinds().is_empty() || processors.kinds().iter().any(taken)
            };
            let taken: Vec<bool> = targets.iter().map(is_taken).collect();
            let notes = |code: bundle::Code<R>| {
                elf::metadata_notes(code.data).map(|notes| notes.into_iter().map(Into::into).collect())
            };
            codes
                .into_iter()
                .zip(targets)
                .zip(taken)
                .filter(|(_, taken)| *taken)
                .map(|((code, target), _)| Entry { target, notes: notes(code), index: None })
                .collect()
        });
        Self { entries, file: None }
    }

    /// The kernel of this name as a device has it, of which the runtime says that it is of this architecture (`gfx90a`); as
    /// all have it if that is not known.
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
            // What the runtime adds may differ between processors; what the caller passes may not.
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

fn fit(target: &Option<Target>, device: &Target) -> Fit {
    target.as_ref().map_or(Fit::Own, |target| target.fit(device))
}

/// How well the best code for a device fits; nothing if the runtime has to compile some, or has none.
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
