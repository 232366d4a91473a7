//! The entries of the exported HIP functions.

use interception::{Class, FUNCTIONS, Function};
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The entries in the table's order; `None` for a function that is not exported.
pub(crate) type Entries = [Option<&'static Entry>; FUNCTIONS.len()];

/// The entries in force: null until [`register`] was called.
static ENTRIES: AtomicPtr<Entries> = AtomicPtr::new(ptr::null_mut());

/// An exported function: its row of the table, our entry point, and the real function once it is found.
pub(crate) struct Entry {
    function: &'static Function,
    hook: *const c_void,
    all: &'static Entries,
    real: AtomicPtr<c_void>,
    /// The runtime's own function. It differs from `real` if another interposer stands between us and the
    /// runtime.
    runtimes: AtomicPtr<c_void>,
}

// SAFETY: `hook` is the address of a function; it is never written or dereferenced. All other fields are
// `Sync`.
unsafe impl Sync for Entry {}

impl Entry {
    /// Makes the entry of the function with this index in the table, as one of `all`.
    pub(super) const fn new(index: usize, hook: *const c_void, all: &'static Entries) -> Self {
        let [real, runtimes] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];
        Self { function: &FUNCTIONS[index], hook, all, real, runtimes }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.function.name
    }

    pub(crate) fn class(&self) -> Class {
        self.function.class
    }

    /// Returns our entry point, which programs get instead of the real function.
    pub(crate) fn hook(&self) -> *const c_void {
        self.hook
    }

    /// Returns the function to call for a call of the program, if it is known.
    #[inline(always)]
    pub(crate) fn real(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.real.load(Ordering::Acquire))
    }

    pub(crate) fn runtimes(&self) -> Option<NonNull<c_void>> {
        NonNull::new(self.runtimes.load(Ordering::Acquire))
    }

    pub(crate) fn set_runtimes(&self, runtimes: NonNull<c_void>) {
        self.runtimes.store(runtimes.as_ptr(), Ordering::Release);
    }

    pub(crate) fn set(&self, real: NonNull<c_void>, runtimes: NonNull<c_void>) {
        self.set_runtimes(runtimes);
        self.real.store(real.as_ptr(), Ordering::Release);
    }

    /// Registers this entry and all others, so that [`find`] and [`all`] know them. A hook's first call does
    /// this.
    pub(crate) fn register(&self) {
        register(self.all);
    }
}

/// Makes the entries known to [`find`] and [`all`].
pub(crate) fn register(entries: &'static Entries) {
    // Each look-up of the program comes here: only the first one writes the shared word.
    if ENTRIES.load(Ordering::Relaxed).is_null() {
        ENTRIES.store(ptr::from_ref(entries).cast_mut(), Ordering::Release);
    }
}

/// Returns the entry of a name, if this library exports it. Allocates nothing.
pub(crate) fn find(name: &CStr) -> Option<&'static Entry> {
    let index = interception::index_of(name.to_bytes())?;
    registered()?.get(index).copied().flatten()
}

pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
    registered().into_iter().flatten().copied().flatten()
}

fn registered() -> Option<&'static Entries> {
    // SAFETY: the pointer is null, or was a `&'static Entries` in `register`.
    unsafe { ENTRIES.load(Ordering::Acquire).as_ref() }
}
