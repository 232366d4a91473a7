//! Which handle means which kernel: host functions that programs register before `main`, and functions of modules that
//! they load. How code is read is [`crate::code_object`]'s business; no HIP function is called here.
//!
//! Registration happens in static constructors of every HIP program, some tens of thousands of times for a large
//! framework, so it notes addresses and a hash of the name and reads no code. A launch that is deferred asks
//! [`Kernels::find`], which takes no lock once the handle has been asked for before; the first time, the code is read. What
//! holds for a handle can differ between kinds of devices, for which a binary has different code.
//!
//! What is known of a handle is forgotten when its code is unloaded, so that the next one at this address starts
//! afresh. The kernels themselves are kept for good, equal ones once: a launch holds a plain reference, and a program
//! that loads the same code again and again costs nothing more.
//!
//! Code that was registered past this library, and later shows up by a launch, is noted then ([`Kernels::add_past`]).
//!
//! In a child after a fork `find` works for handles that were found before, whatever other threads did at that moment;
//! everything else takes a lock that may then be held for ever, so that a child starts with a new [`Kernels`].

use crate::code_object::{Image, NameKey, Processors};
use crate::handles::{Handles, Mix};
use crate::layout::{Kernel, Unknown};
use hip_sys::types::{hipFunction_t, hipModule_t};
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

/// A kernel, or why nothing is known of it.
type Answer = Result<Kernel, Unknown>;

/// What a handle was found to be.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Found {
    /// On the first kind of device.
    first: Answer,
    /// On the other kinds, in their order; none if it is the same on all.
    others: Box<[Answer]>,
}

/// The kernels of a process.
pub struct Kernels {
    /// The handles that have been asked for.
    found: Handles<Found>,
    /// Which devices there are; empty until somebody says so.
    processors: OnceLock<Processors>,
    state: Mutex<State>,
}

struct State {
    /// Places are used again; a handle's owner goes together with the image.
    images: Vec<Option<Loaded>>,
    free: Vec<u32>,
    binaries: HashMap<usize, u32, Mix>,
    modules: HashMap<usize, u32, Mix>,
    /// Binaries that were registered past us, by their wrappers.
    past: HashMap<usize, u32, Mix>,
    owners: HashMap<usize, Owners, Mix>,
    /// Images with host functions that do not stand in `owners` yet.
    unsettled: Vec<u32>,
    kept: HashSet<&'static Found, Mix>,
}

/// An image, and the handles that mean its kernels.
struct Loaded {
    /// Of a fat binary that has not been read yet.
    wrapper: Option<Wrapper>,
    image: Image,
    /// Host functions that were registered since somebody last looked for one.
    noted: Vec<(usize, NameKey)>,
    /// Those that stand in `State::owners`.
    handles: Vec<usize>,
}

/// The address that `__hipRegisterFatBinary` received.
struct Wrapper(*const c_void);

// SAFETY: it is read under the lock of `State`, by whichever thread holds it; nobody writes to a registered binary.
unsafe impl Send for Wrapper {}

/// Which kernel of which image a handle means.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner {
    name: NameKey,
    image: u32,
}

/// Nearly always one. A template's host function can be the same symbol in several libraries, each of which registers
/// it with its own code.
#[derive(Clone, PartialEq, Eq)]
enum Owners {
    One(Owner),
    Several(Vec<Owner>),
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernels").finish_non_exhaustive()
    }
}

impl Default for Kernels {
    fn default() -> Self {
        Self::new()
    }
}

impl Kernels {
    /// Knows nothing yet.
    pub const fn new() -> Self {
        Self {
            found: Handles::new(),
            processors: OnceLock::new(),
            state: Mutex::new(State {
                images: Vec::new(),
                free: Vec::new(),
                binaries: HashMap::with_hasher(Mix::NEW),
                modules: HashMap::with_hasher(Mix::NEW),
                past: HashMap::with_hasher(Mix::NEW),
                owners: HashMap::with_hasher(Mix::NEW),
                unsettled: Vec::new(),
                kept: HashSet::with_hasher(Mix::NEW),
            }),
        }
    }

    /// The kernel that a launch function was asked to launch, as the device with this index has it: a host function
    /// (`hipLaunchKernel`) or a `hipFunction_t`.
    #[inline]
    pub fn find(&self, handle: *const c_void, device: u32) -> Result<&'static Kernel, Unknown> {
        match self.found.get(handle.addr()) {
            Some(found) => self.on(found, device),
            None => self.look_for(handle.addr(), device),
        }
    }

    #[inline]
    fn on(&self, found: &'static Found, device: u32) -> Result<&'static Kernel, Unknown> {
        let answer = if found.others.is_empty() {
            &found.first
        } else {
            let kind = self.processors().kind_of(device);
            kind.checked_sub(1).and_then(|other| found.others.get(other)).unwrap_or(&found.first)
        };
        answer.as_ref().map_err(|reason| *reason)
    }

    /// Says which devices there are: before the first [`Kernels::find`], and once. Of each kernel that holds which the
    /// runtime takes for the device; what is never said, holds for all code.
    pub fn set_processors(&self, processors: Processors) {
        let _ = self.processors.set(processors);
    }

    fn processors(&self) -> &Processors {
        static ANY: Processors = Processors::ANY;
        self.processors.get().unwrap_or(&ANY)
    }

    /// The code of `hipModuleLoad`, read before the runtime reads it; for [`Kernels::add_module`]. Both change errno.
    pub fn image_of_file(&self, path: &CStr) -> Image {
        Image::of_file(path, self.processors())
    }

    /// The code of `hipModuleLoadData`, `hipModuleLoadDataEx`; for [`Kernels::add_module`].
    ///
    /// # Safety
    ///
    /// The runtime has loaded this code, and the caller's memory is still as it was then.
    pub unsafe fn image_of_data(&self, data: *const c_void) -> Image {
        // SAFETY: the runtime has followed the same headers, by the caller's promise.
        unsafe { Image::of_memory(data, self.processors()) }
    }

    /// After `__hipRegisterFatBinary(wrapper)` has returned `modules`.
    ///
    /// # Safety
    ///
    /// The wrapper and what it leads to stay as they are until [`Kernels::remove_binary`], as the runtime needs it, too.
    pub unsafe fn add_binary(&self, modules: *const c_void, wrapper: *const c_void) {
        if modules.is_null() {
            return;
        }
        let mut state = self.state.lock();
        if let Some(old) = state.binaries.remove(&modules.addr()) {
            self.forget(&mut state, old);
        }
        let image = state.add(Some(Wrapper(wrapper)), Image::EMPTY);
        state.binaries.insert(modules.addr(), image);
    }

    /// After `__hipRegisterFunction(modules, function, .., name, ..)`.
    ///
    /// # Safety
    ///
    /// `name` is null or a C string.
    pub unsafe fn add_host_function(
        &self,
        modules: *const c_void,
        function: *const c_void,
        name: *const c_char,
    ) {
        // SAFETY: the caller's promise.
        let Some(name) = (unsafe { key(name) }) else { return };
        let handle = function.addr();
        let mut state = self.state.lock();
        let State { binaries, images, unsettled, .. } = &mut *state;
        let Some(&image) = binaries.get(&modules.addr()) else { return };
        let Some(Some(loaded)) = images.get_mut(image as usize) else { return };
        if loaded.noted.is_empty() {
            unsettled.push(image);
        }
        loaded.noted.push((handle, name));
        self.found.remove(handle);
    }

    /// A host function that was registered past us: by one of these wrappers, under this name. Says whether one of them has
    /// such a kernel. Of several that have one all must agree, as of several binaries that register the same function.
    ///
    /// # Safety
    ///
    /// The wrappers and what they lead to stay as they are until [`Kernels::remove_binary`] is called for what was
    /// registered by them.
    pub unsafe fn add_past(&self, function: *const c_void, name: &CStr, wrappers: &[*const c_void]) -> bool {
        let (handle, name) = (function.addr(), NameKey::new(name.to_bytes()));
        let mut state = self.state.lock();
        let mut known = false;
        for wrapper in wrappers {
            let image = match state.past.get(&wrapper.addr()) {
                Some(&image) => image,
                None => {
                    let image = state.add(Some(Wrapper(*wrapper)), Image::EMPTY);
                    state.past.insert(wrapper.addr(), image);
                    image
                }
            };
            let processors = self.processors();
            let Some(Some(loaded)) = state.images.get_mut(image as usize) else { continue };
            let device = processors.kinds().first();
            if loaded.image(processors).kernel_by_key(name, device) == Err(Unknown::NoSuchKernel) {
                continue;
            }
            known = true;
            state.enter(handle, Owner { name, image });
        }
        if known {
            self.found.remove(handle);
        }
        known
    }

    /// Before `__hipUnregisterFatBinary(modules)`. Modules that are not known are those of code that was registered past us, and
    /// whose they are nobody can tell: all such code is forgotten, and noted again at its next launch.
    pub fn remove_binary(&self, modules: *const c_void) {
        let mut state = self.state.lock();
        match state.binaries.remove(&modules.addr()) {
            Some(image) => self.forget(&mut state, image),
            None => {
                for image in std::mem::take(&mut state.past).into_values() {
                    self.forget(&mut state, image);
                }
            }
        }
    }

    /// After a module was loaded from this image.
    pub fn add_module(&self, module: hipModule_t, mut image: Image) {
        image.settle();
        let mut state = self.state.lock();
        if let Some(old) = state.modules.remove(&module.as_raw()) {
            self.forget(&mut state, old);
        }
        let image = state.add(None, image);
        state.modules.insert(module.as_raw(), image);
    }

    /// After `hipModuleGetFunction` has given `function` for this name.
    ///
    /// # Safety
    ///
    /// `name` is null or a C string.
    pub unsafe fn add_function(&self, module: hipModule_t, function: hipFunction_t, name: *const c_char) {
        // SAFETY: the caller's promise.
        let name = unsafe { key(name) };
        let handle = function.as_raw();
        let mut state = self.state.lock();
        let owner = match (state.modules.get(&module.as_raw()), name) {
            (Some(&image), Some(name)) => Some(Owner { name, image }),
            _ => None,
        };
        // Programs may ask for the same function before each launch.
        if let (Some(Owners::One(known)), Some(owner)) = (state.owners.get(&handle), owner)
            && *known == owner
        {
            return;
        }
        // Whatever had this address before is gone, even if nobody said so.
        state.owners.remove(&handle);
        self.found.remove(handle);
        if let Some(owner) = owner {
            state.owners.insert(handle, Owners::One(owner));
            state.note_handle(owner.image, handle);
        }
    }

    /// After `hipGetFuncBySymbol` has given `function` for this host function; says whether that one is known.
    pub fn add_alias(&self, function: hipFunction_t, symbol: *const c_void) -> bool {
        let handle = function.as_raw();
        let mut state = self.state.lock();
        state.settle();
        let owners = state.owners.get(&symbol.addr()).cloned();
        // Programs may ask for the same function before each launch.
        if owners.is_some() && state.owners.get(&handle) == owners.as_ref() {
            return true;
        }
        state.owners.remove(&handle);
        self.found.remove(handle);
        let Some(owners) = owners else { return false };
        for owner in owners.all() {
            state.enter(handle, *owner);
        }
        true
    }

    /// Before `hipModuleUnload(module)`.
    pub fn remove_module(&self, module: hipModule_t) {
        let mut state = self.state.lock();
        if let Some(image) = state.modules.remove(&module.as_raw()) {
            self.forget(&mut state, image);
        }
    }

    /// Before something that takes all modules with it, such as `hipDeviceReset`. Host functions stay.
    pub fn remove_modules(&self) {
        let mut state = self.state.lock();
        for image in std::mem::take(&mut state.modules).into_values() {
            self.forget(&mut state, image);
        }
    }

    /// Forgets an image and what its handles mean.
    fn forget(&self, state: &mut State, image: u32) {
        let Some(loaded) = state.images.get_mut(image as usize).and_then(Option::take) else { return };
        state.free.push(image);
        for handle in loaded.handles {
            let gone = match state.owners.get_mut(&handle) {
                None => false,
                Some(Owners::One(owner)) => owner.image == image,
                Some(Owners::Several(owners)) => {
                    owners.retain(|owner| owner.image != image);
                    owners.is_empty()
                }
            };
            if gone {
                state.owners.remove(&handle);
            }
            self.found.remove(handle);
        }
    }

    #[cold]
    fn look_for(&self, handle: usize, device: u32) -> Result<&'static Kernel, Unknown> {
        let mut state = self.state.lock();
        // Another thread may have been faster.
        let found = match self.found.get(handle) {
            Some(found) => found,
            None => {
                state.settle();
                let found = state.read(handle, self.processors())?;
                let found = state.keep(found);
                self.found.insert(handle, found);
                found
            }
        };
        self.on(found, device)
    }
}

impl State {
    fn add(&mut self, wrapper: Option<Wrapper>, image: Image) -> u32 {
        let loaded = Some(Loaded { wrapper, image, noted: Vec::new(), handles: Vec::new() });
        if let Some(free) = self.free.pop()
            && let Some(place) = self.images.get_mut(free as usize)
        {
            *place = loaded;
            return free;
        }
        self.images.push(loaded);
        self.images.len() as u32 - 1
    }

    fn note_handle(&mut self, image: u32, handle: usize) {
        if let Some(Some(loaded)) = self.images.get_mut(image as usize) {
            loaded.handles.push(handle);
        }
    }

    /// Enters the host functions that have been noted.
    fn settle(&mut self) {
        for image in std::mem::take(&mut self.unsettled) {
            let Some(Some(loaded)) = self.images.get_mut(image as usize) else { continue };
            for (handle, name) in std::mem::take(&mut loaded.noted) {
                self.enter(handle, Owner { name, image });
            }
        }
    }

    /// A handle means this as well.
    fn enter(&mut self, handle: usize, owner: Owner) {
        match self.owners.entry(handle) {
            Entry::Vacant(entry) => drop(entry.insert(Owners::One(owner))),
            Entry::Occupied(mut entry) => entry.get_mut().add(owner),
        }
        self.note_handle(owner.image, handle);
    }

    /// Reads what a handle means; the error is that nobody knows the handle.
    fn read(&mut self, handle: usize, processors: &Processors) -> Result<Found, Unknown> {
        let Self { owners, images, .. } = self;
        let owners = owners.get(&handle).ok_or(Unknown::NotRegistered)?.all();
        let mut on = |kind| {
            let mut result: Answer = Err(Unknown::NotRegistered);
            for owner in owners {
                let Some(Some(loaded)) = images.get_mut(owner.image as usize) else { continue };
                let kernel = loaded.image(processors).kernel_by_key(owner.name, kind);
                // Which one the runtime takes is its affair, so all must agree.
                match (&result, &kernel) {
                    (Ok(one), Ok(other)) if !one.is_launched_as(other) => return Err(Unknown::EntriesDiffer),
                    (_, Err(reason)) => return Err(*reason),
                    _ => result = kernel,
                }
            }
            result
        };
        let mut kinds = processors.kinds().iter();
        let first = on(kinds.next());
        let mut others: Box<[Answer]> = kinds.map(|kind| on(Some(kind))).collect();
        if others.iter().all(|other| *other == first) {
            others = Box::default();
        }
        Ok(Found { first, others })
    }

    /// The one of its kind that stays.
    fn keep(&mut self, found: Found) -> &'static Found {
        if let Some(kept) = self.kept.get(&found) {
            return kept;
        }
        let kept: &'static Found = Box::leak(Box::new(found));
        self.kept.insert(kept);
        kept
    }
}

impl Owners {
    fn all(&self) -> &[Owner] {
        match self {
            Self::One(owner) => std::slice::from_ref(owner),
            Self::Several(owners) => owners,
        }
    }

    fn add(&mut self, owner: Owner) {
        match self {
            Self::One(other) if *other == owner => {}
            Self::One(other) => *self = Self::Several(vec![*other, owner]),
            Self::Several(others) if others.contains(&owner) => {}
            Self::Several(others) => others.push(owner),
        }
    }
}

impl Loaded {
    /// The image, read if it has not been.
    fn image(&mut self, processors: &Processors) -> &mut Image {
        if let Some(Wrapper(wrapper)) = self.wrapper.take() {
            // SAFETY: `add_binary`'s caller has promised that all of it stays until the binary is removed, and then this
            // value is gone.
            self.image = unsafe { Image::of_wrapper(wrapper, processors) };
        }
        &mut self.image
    }
}

/// # Safety
///
/// `name` is null or a C string.
unsafe fn key(name: *const c_char) -> Option<NameKey> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(NameKey::new(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

#[cfg(test)]
mod tests;
