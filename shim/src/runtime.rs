//! The real HIP runtime: which library it is, and its functions.
//!
//! The library is that of `XSCHED_HIP_LIB`, else the `libamdhip64.so*` that the process loaded first, else the first
//! one on the search path. Its functions are looked up by its handle, never by RTLD_NEXT, which fails where a program
//! loaded HIP for itself (RTLD_LOCAL). A function that turns out to be one of ours is refused, because calling it would
//! never end. Between us and the runtime another interposer may stand (docs/adr/0010): what the program calls goes
//! through it, what we call for ourselves and what the runtime calls does not.

use crate::loader::{self, Object};
use crate::table::Entry;
use crate::{environment, lifecycle};
use hip_sys::types::{hipError_t, hipErrorNotInitialized, hipErrorSharedObjectSymbolNotFound};
use libc::{RTLD_LAZY, RTLD_NODELETE, RTLD_NOLOAD, c_int, c_void};
use libloading::os::unix::Library;
use parking_lot::Mutex;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// How the file name of a HIP runtime begins.
pub(crate) const RUNTIME: &str = "libamdhip64.so";

/// How the file names of AMD's libraries begin that get the real functions: the runtime calls some by name.
pub(crate) const TOOLS: [&str; 3] = ["libhsa-runtime64.so", "librocprofiler", "libroctracer64.so"];

/// Where to look if the process has loaded none, newest first.
const SEARCHED: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// The runtime's handle, once it is known.
static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Looks the entry's real function up and keeps it.
#[cold]
pub(crate) fn resolve(entry: &Entry) -> Result<NonNull<c_void>, hipError_t> {
    let Some(handle) = handle() else {
        static SAID: AtomicBool = AtomicBool::new(false);
        once(&SAID, || tracing::error!("{}: no HIP runtime ({RUNTIME}*) is loaded or found", entry.name()));
        return Err(hipErrorNotInitialized);
    };
    let name = CString::new(entry.name()).map_err(|_| hipErrorSharedObjectSymbolNotFound)?;
    let Some(real) = loader::find(handle.as_ptr(), &name) else {
        static SAID: AtomicBool = AtomicBool::new(false);
        once(&SAID, || tracing::error!("{}: the HIP runtime does not have this function", entry.name()));
        return Err(hipErrorSharedObjectSymbolNotFound);
    };
    if is_ours(real.as_ptr()) {
        static SAID: AtomicBool = AtomicBool::new(false);
        once(&SAID, || {
            tracing::error!(
                "{}: the HIP runtime that was found is this library itself; \
                 XSCHED_HIP_LIB must name the real {RUNTIME}",
                entry.name()
            );
        });
        return Err(hipErrorNotInitialized);
    }
    static SAID: AtomicBool = AtomicBool::new(false);
    once(&SAID, || {
        if let Some(object) = Object::of(real.as_ptr()) {
            tracing::debug!("HIP runtime: {}", object.path().display());
        }
    });
    let next = interposer(&name).unwrap_or(real);
    entry.keep(next, real);
    Ok(next)
}

/// The function of this name that comes after this library in the global scope, if it is nobody's who is a runtime:
/// another interposer, preloaded behind us. Natively a linked call ends there, so ours ends there too.
fn interposer(name: &CStr) -> Option<NonNull<c_void>> {
    let next = loader::find(libc::RTLD_NEXT, name)?;
    let object = Object::of(next.as_ptr())?;
    let is_runtime = object.with_handle(|handle| is_one(&object, handle)).unwrap_or(false);
    (!is_runtime && !is_ours(next.as_ptr())).then_some(next)
}

/// Whether an object is a HIP runtime, under whatever file name: it defines a function that nobody else has a reason to.
pub(crate) fn is_one(object: &Object, handle: *mut c_void) -> bool {
    let defines_it = |function: NonNull<c_void>| {
        Object::of(function.as_ptr()).is_some_and(|defining| defining.is(object))
            && !is_ours(function.as_ptr())
    };
    object.is_named(&[RUNTIME]) || loader::find(handle, c"hipRuntimeGetVersion").is_some_and(defines_it)
}

/// Says that a second runtime is loaded, or keeps that until somebody listens.
pub(crate) fn say_of_another(copy: &Object) {
    *ANOTHER.lock() = Some(copy.path().to_owned());
    if lifecycle::is_ready() {
        say_what_was_kept();
    }
}

/// Says what was found before there was a log.
pub(crate) fn say_what_was_kept() {
    if let Some(path) = ANOTHER.lock().take() {
        tracing::warn!(
            "{}: a second HIP runtime in this process; what uses it is not scheduled (XSCHED_HIP_LIB names the one that is)",
            path.display()
        );
    }
}

/// A second runtime that nothing was said of yet.
static ANOTHER: Mutex<Option<OsString>> = Mutex::new(None);

/// The runtime's own function of the entry, if it has one; says nothing if not.
pub(crate) fn look_up(entry: &Entry) -> Option<NonNull<c_void>> {
    if let Some(known) = entry.runtimes() {
        return Some(known);
    }
    let name = CString::new(entry.name()).ok()?;
    let known = loader::find(handle()?.as_ptr(), &name).filter(|real| !is_ours(real.as_ptr()))?;
    entry.keep_runtimes(known);
    Some(known)
}

/// A function of the runtime that has no entry of its own; says nothing if there is none.
pub(crate) fn find(name: &CStr) -> Option<NonNull<c_void>> {
    loader::find(handle()?.as_ptr(), name).filter(|real| !is_ours(real.as_ptr()))
}

/// Says something once in a process.
fn once(said: &AtomicBool, say: impl FnOnce()) {
    if !said.swap(true, Ordering::Relaxed) {
        say();
    }
}

fn is_ours(address: *const c_void) -> bool {
    match (Object::of(address), Object::ours()) {
        (Some(object), Some(ours)) => object.is(&ours),
        _ => false,
    }
}

/// Whether the address, which a look-up of a program gave, lies in the runtime that our hooks lead to.
///
/// Opens nothing and allocates nothing, so that the look-up's own outcome (`dlerror`) stays what it is.
pub(crate) fn contains(address: *const c_void) -> bool {
    let Some(object) = Object::of(address) else {
        return false;
    };
    let handle = HANDLE.load(Ordering::Acquire);
    if !handle.is_null() {
        return object.map == handle;
    }
    environment::with("XSCHED_HIP_LIB", |path| file_name(object.path()) == file_name(path))
        .unwrap_or_else(|| first_loaded().is_some_and(|first| first.is(&object)))
}

fn file_name(path: &OsStr) -> &[u8] {
    path.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// The runtime's handle. Found once; a process that has no runtime yet is asked again by the next call.
fn handle() -> Option<NonNull<c_void>> {
    if let Some(handle) = NonNull::new(HANDLE.load(Ordering::Acquire)) {
        return Some(handle);
    }
    let handle = open_named().or_else(open_loaded).or_else(open_searched)?;
    // Two threads that come here together have found the same library, and a handle more is no harm.
    HANDLE.store(handle.as_ptr(), Ordering::Release);
    Some(handle)
}

fn open_named() -> Option<NonNull<c_void>> {
    let path = environment::get("XSCHED_HIP_LIB")?;
    match open(&path, RTLD_LAZY | RTLD_NODELETE) {
        Ok(handle) => Some(handle),
        Err(error) => {
            static SAID: AtomicBool = AtomicBool::new(false);
            once(&SAID, || {
                tracing::warn!(
                    "XSCHED_HIP_LIB={} is not usable (expected a HIP runtime: {error}); \
                     the default stays in force",
                    path.to_string_lossy().escape_debug()
                );
            });
            None
        }
    }
}

fn open_loaded() -> Option<NonNull<c_void>> {
    let path = first_loaded()?.path().to_owned();
    open(&path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE).ok()
}

fn open_searched() -> Option<NonNull<c_void>> {
    SEARCHED.iter().find_map(|name| open(OsStr::new(name), RTLD_LAZY | RTLD_NODELETE).ok())
}

fn open(path: &OsStr, flags: c_int) -> Result<NonNull<c_void>, String> {
    // SAFETY: a HIP runtime's initialisation is what the program that called a HIP function expects to run.
    let library = unsafe { Library::open(Some(path), flags) };
    let library = library.map_err(|error| {
        use std::error::Error as _;
        error.source().map_or_else(|| error.to_string(), ToString::to_string)
    })?;
    NonNull::new(library.into_raw()).ok_or_else(|| "no handle".to_owned())
}

/// The runtime that the process loaded first.
fn first_loaded() -> Option<Object> {
    unsafe extern "C" fn look_at(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: libc passes a valid description for the time of the call.
        let info = unsafe { &*info };
        let Some(object) = Object::of(info.dlpi_addr as *const c_void) else {
            return 0;
        };
        // This library may have been installed under the runtime's name.
        if !object.is_named(&[RUNTIME]) || Object::ours().is_none_or(|ours| ours.is(&object)) {
            return 0;
        }
        // SAFETY: `data` is the place that the caller passed, and nothing else uses it during the iteration.
        unsafe { *data.cast::<Option<Object>>() = Some(object) };
        1
    }
    let mut found: Option<Object> = None;
    // SAFETY: the callback has the type that libc wants, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at), ptr::from_mut(&mut found).cast()) };
    found
}
