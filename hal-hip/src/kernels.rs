//! The map from handles to kernels: host functions that programs register before `main`, and functions of
//! modules that they load. [`crate::code_object`] reads the code; no HIP function is called here.
//!
//! Registration happens in static constructors of every HIP program, some tens of thousands of times for a
//! large framework, so it stores addresses and a hash of the name and reads no code. A deferred launch calls
//! [`Kernels::find`], which takes no lock for a handle that was found before; the first time the code is
//! read. The kernel of a handle can differ between kinds of devices, for which a binary has different code.
//!
//! A handle is forgotten when its code is unloaded, so that the next handle at this address starts afresh.
//! The kernels themselves are never freed, and equal ones are kept once: a launch holds a plain reference, and a program
//! that loads the same code repeatedly costs nothing more.
//!
//! Code that was registered without this library's knowledge is added when a launch shows it
//! ([`Kernels::add_unseen`]).
//!
//! In a child after a fork `find` works for handles that were found before, whatever other threads did at
//! that moment. Everything else takes a lock that may then be held for ever, so a child starts with a new
//! [`Kernels`].

use crate::code_object::{self, Image, NameKey, Processors};
use crate::layout::{Kernel, Unknown};
use crate::map::HandleMap;
use crate::mix::Mix;
use hip_sys::types::{hipFunction_t, hipModule_t};
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, OnceLock, Weak};

/// A kernel, or the reason why nothing is known of it.
type Answer = Result<Kernel, Unknown>;

/// The kernels that were found for a handle.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Found {
    /// The kernel on the first kind of device.
    first: Answer,
    /// The kernels on the other kinds, in their order; empty if it is the same on all.
    others: Box<[Answer]>,
}

/// The kernels of a process.
#[derive(Default)]
pub struct Kernels {
    /// The handles that have been found.
    found: HandleMap<Found>,
    /// The devices; empty until they are set.
    processors: OnceLock<Processors>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The images by index. An index is reused; the owners that refer to it are removed together with the
    /// image.
    images: Vec<Option<Loaded>>,
    /// The code of binaries that was read, by its address. The wrappers of one library can share it
    /// (`-fgpu-rdc` makes one for each source file), and reading it once for each can take minutes.
    shared: Shared,
    free: Vec<u32>,
    binaries: HashMap<usize, u32, Mix>,
    modules: HashMap<usize, u32, Mix>,
    /// Binaries that were registered without the library's knowledge, by their wrappers.
    past: HashMap<usize, u32, Mix>,
    owners: HashMap<usize, Owners, Mix>,
    /// Images with host functions that are not in `owners` yet.
    unentered: Vec<u32>,
    kept: HashSet<&'static Found, Mix>,
}

type Shared = HashMap<usize, Weak<Mutex<Image>>, Mix>;

/// An image, and the handles of its kernels.
struct Loaded {
    code: Code,
    /// Host functions that were registered since the last search.
    noted: Vec<(usize, NameKey)>,
    /// The handles that are in `State::owners`.
    handles: Vec<usize>,
}

enum Code {
    /// A fat binary that has not been read yet.
    Unread(Wrapper),
    Read(Arc<Mutex<Image>>),
}

/// The address passed to `__hipRegisterFatBinary`.
struct Wrapper(*const c_void);

// SAFETY: a registered binary is never written to, so any thread may read it.
unsafe impl Send for Wrapper {}

/// The kernel of a handle: its name and its image.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner {
    name: NameKey,
    image: u32,
}

/// The kernels of a handle, nearly always one. A template's host function can be the same symbol in several
/// libraries, each of which registers it with its own code.
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

impl Kernels {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the kernel of a handle passed to a launch function, as the device with this index has it. The
    /// handle is a host function (`hipLaunchKernel`) or a `hipFunction_t`.
    #[inline]
    pub fn find(&self, handle: *const c_void, device: u32) -> Result<&'static Kernel, Unknown> {
        match self.found.get(handle.addr()) {
            Some(found) => self.on(found, device),
            None => self.find_first(handle.addr(), device),
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

    /// Sets the devices, once and before the first [`Kernels::find`]. A kernel is then the one that the
    /// runtime takes for the device. If the devices are never set, a kernel is known only if all code agrees
    /// on it.
    pub fn set_processors(&self, processors: Processors) {
        let _ = self.processors.set(processors);
    }

    fn processors(&self) -> &Processors {
        static ANY: Processors = Processors::ANY;
        self.processors.get().unwrap_or(&ANY)
    }

    /// Reads the code of `hipModuleLoad` before the runtime reads it, for [`Kernels::add_module`]. Both
    /// change errno.
    pub fn image_of_file(&self, path: &CStr) -> Image {
        Image::of_file(path, self.processors())
    }

    /// Reads the code of `hipModuleLoadData` or `hipModuleLoadDataEx`, for [`Kernels::add_module`].
    ///
    /// # Safety
    ///
    /// The runtime has loaded this code, and the caller's memory is still as it was then.
    pub unsafe fn image_of_data(&self, data: *const c_void) -> Image {
        // SAFETY: the runtime has loaded this memory, so all ranges that its headers name can be read.
        unsafe { Image::of_memory(data, self.processors()) }
    }

    /// Adds a fat binary. Call it after `__hipRegisterFatBinary(wrapper)` has returned `modules`.
    ///
    /// # Safety
    ///
    /// The wrapper and all it refers to stay unchanged until [`Kernels::remove_binary`], which the runtime
    /// requires as well.
    pub unsafe fn add_binary(&self, modules: *const c_void, wrapper: *const c_void) {
        if modules.is_null() {
            return;
        }
        let mut state = self.state.lock();
        if let Some(old) = state.binaries.remove(&modules.addr()) {
            self.forget(&mut state, old);
        }
        let image = state.add(Code::Unread(Wrapper(wrapper)));
        state.binaries.insert(modules.addr(), image);
    }

    /// Adds a host function. Call it after `__hipRegisterFunction(modules, function, .., name, ..)`.
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
        // SAFETY: the caller guarantees null or a C string.
        let Some(name) = (unsafe { key(name) }) else { return };
        let handle = function.addr();
        let mut state = self.state.lock();
        let State { binaries, images, unentered, .. } = &mut *state;
        let Some(&image) = binaries.get(&modules.addr()) else { return };
        let Some(Some(loaded)) = images.get_mut(image as usize) else { return };
        if loaded.noted.is_empty() {
            unentered.push(image);
        }
        loaded.noted.push((handle, name));
        self.found.remove(handle);
    }

    /// Adds a host function that was registered without the library's knowledge, by one of these wrappers and
    /// under this name. Returns true if one of them has such a kernel. If several have one, all must agree,
    /// as with several binaries that register the same function.
    ///
    /// # Safety
    ///
    /// The wrappers and all they refer to stay unchanged until [`Kernels::remove_binary`] is called for what
    /// they registered.
    pub unsafe fn add_unseen(
        &self,
        function: *const c_void,
        name: &CStr,
        wrappers: &[*const c_void],
    ) -> bool {
        let (handle, name) = (function.addr(), NameKey::new(name.to_bytes()));
        let mut state = self.state.lock();
        let mut known = false;
        for wrapper in wrappers {
            let image = match state.past.get(&wrapper.addr()) {
                Some(&image) => image,
                None => {
                    let image = state.add(Code::Unread(Wrapper(*wrapper)));
                    state.past.insert(wrapper.addr(), image);
                    image
                }
            };
            let processors = self.processors();
            let State { images, shared, .. } = &mut *state;
            let Some(Some(loaded)) = images.get_mut(image as usize) else { continue };
            let device = processors.kinds().first();
            let code = loaded.image(processors, shared);
            if code.lock().kernel_by_key(name, device) == Err(Unknown::NoSuchKernel) {
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

    /// Removes a fat binary. Call it before `__hipUnregisterFatBinary(modules)`. Unknown modules belong to
    /// code that was registered without the library's knowledge. Its wrapper cannot be determined, so all
    /// such code is forgotten, and added again at its next launch.
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

    /// Adds a module. Call it after the module was loaded from this image.
    pub fn add_module(&self, module: hipModule_t, mut image: Image) {
        image.settle();
        let mut state = self.state.lock();
        if let Some(old) = state.modules.remove(&module.as_raw()) {
            self.forget(&mut state, old);
        }
        let image = state.add(Code::Read(Arc::new(Mutex::new(image))));
        state.modules.insert(module.as_raw(), image);
    }

    /// Adds a function of a module. Call it after `hipModuleGetFunction` has returned `function` for this
    /// name.
    ///
    /// # Safety
    ///
    /// `name` is null or a C string.
    pub unsafe fn add_function(&self, module: hipModule_t, function: hipFunction_t, name: *const c_char) {
        // SAFETY: the caller guarantees null or a C string.
        let name = unsafe { key(name) };
        let handle = function.as_raw();
        let mut state = self.state.lock();
        let owner = match (state.modules.get(&module.as_raw()), name) {
            (Some(&image), Some(name)) => Some(Owner { name, image }),
            _ => None,
        };
        // Programs may look up the same function before each launch.
        if let (Some(Owners::One(known)), Some(owner)) = (state.owners.get(&handle), owner)
            && *known == owner
        {
            return;
        }
        // The former owner of this address is gone, even if its end was not seen.
        state.owners.remove(&handle);
        self.found.remove(handle);
        if let Some(owner) = owner {
            state.owners.insert(handle, Owners::One(owner));
            state.note_handle(owner.image, handle);
        }
    }

    /// Adds a function of a host function. Call it after `hipGetFuncBySymbol` has returned `function`.
    /// Returns true if the host function is known.
    pub fn add_alias(&self, function: hipFunction_t, symbol: *const c_void) -> bool {
        let handle = function.as_raw();
        let mut state = self.state.lock();
        state.enter_noted();
        let owners = state.owners.get(&symbol.addr()).cloned();
        // Programs may look up the same function before each launch.
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

    /// Removes a module. Call it before `hipModuleUnload(module)`.
    pub fn remove_module(&self, module: hipModule_t) {
        let mut state = self.state.lock();
        if let Some(image) = state.modules.remove(&module.as_raw()) {
            self.forget(&mut state, image);
        }
    }

    /// Removes all modules. Call it before a call that unloads all of them, such as `hipDeviceReset`. Host
    /// functions stay.
    pub fn remove_modules(&self) {
        let mut state = self.state.lock();
        for image in std::mem::take(&mut state.modules).into_values() {
            self.forget(&mut state, image);
        }
    }

    /// Forgets an image and its handles.
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
    fn find_first(&self, handle: usize, device: u32) -> Result<&'static Kernel, Unknown> {
        let mut state = self.state.lock();
        // Another thread may have found it meanwhile.
        let found = match self.found.get(handle) {
            Some(found) => found,
            None => {
                state.enter_noted();
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
    fn add(&mut self, code: Code) -> u32 {
        let loaded = Some(Loaded { code, noted: Vec::new(), handles: Vec::new() });
        if let Some(free) = self.free.pop()
            && let Some(slot) = self.images.get_mut(free as usize)
        {
            *slot = loaded;
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
    fn enter_noted(&mut self) {
        for image in std::mem::take(&mut self.unentered) {
            let Some(Some(loaded)) = self.images.get_mut(image as usize) else { continue };
            for (handle, name) in std::mem::take(&mut loaded.noted) {
                self.enter(handle, Owner { name, image });
            }
        }
    }

    /// Adds an owner to a handle.
    fn enter(&mut self, handle: usize, owner: Owner) {
        match self.owners.entry(handle) {
            Entry::Vacant(entry) => drop(entry.insert(Owners::One(owner))),
            Entry::Occupied(mut entry) => entry.get_mut().add(owner),
        }
        self.note_handle(owner.image, handle);
    }

    /// Reads the kernels of a handle. Fails only if the handle is unknown.
    fn read(&mut self, handle: usize, processors: &Processors) -> Result<Found, Unknown> {
        let Self { owners, images, shared, .. } = self;
        let owners = owners.get(&handle).ok_or(Unknown::NotRegistered)?.all();
        let mut on = |kind| {
            let mut result: Answer = Err(Unknown::NotRegistered);
            for owner in owners {
                let Some(Some(loaded)) = images.get_mut(owner.image as usize) else { continue };
                let kernel = loaded.image(processors, shared).lock().kernel_by_key(owner.name, kind);
                // The runtime's choice among them is not known, so all must agree.
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

    /// Returns the kept equal of `found`, which is leaked if there is none.
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
    /// Returns the image, after reading it if that has not been done.
    fn image(&mut self, processors: &Processors, shared: &mut Shared) -> Arc<Mutex<Image>> {
        let wrapper = match &self.code {
            Code::Read(image) => return image.clone(),
            Code::Unread(Wrapper(wrapper)) => *wrapper,
        };
        // SAFETY: the callers of `add_binary` and `add_unseen` guarantee that all of it stays unchanged until
        // the binary is removed, which drops this value.
        let payload = unsafe { code_object::payload_of(wrapper) };
        // An image is gone with its last binary, and its address may have got other code.
        let known = payload.and_then(|payload| shared.get(&payload.addr())?.upgrade());
        let image = known.unwrap_or_else(|| {
            // SAFETY: as above.
            let image = Arc::new(Mutex::new(unsafe { Image::of_wrapper(wrapper, processors) }));
            if let Some(payload) = payload {
                if shared.len() == shared.capacity() {
                    shared.retain(|_, image| image.strong_count() > 0);
                }
                shared.insert(payload.addr(), Arc::downgrade(&image));
            }
            image
        });
        self.code = Code::Read(image.clone());
        image
    }
}

/// Returns the key of a name; none for null.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe fn key(name: *const c_char) -> Option<NameKey> {
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, so the caller guarantees a C string.
    Some(NameKey::new(unsafe { CStr::from_ptr(name) }.to_bytes()))
}

#[cfg(test)]
mod tests;
