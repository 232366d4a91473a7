//! The real HIP runtime: its library and its functions.
//!
//! The library is that of `XSCHED_HIP_LIB`, else the one that the process loaded first, else the first one on
//! the search path. A loaded runtime is recognised by its definitions ([`is_one`]), because wheels rename it
//! (`libamdhip64-1a2b3c4d.so.6`). Its functions are read from its own symbol table: an auditor may change the
//! dynamic linker's answers, and RTLD_NEXT fails if a program loaded HIP for itself (RTLD_LOCAL). A function
//! that turns out to be one of this library's is refused, because calling it would never end. Another
//! interposer may stand between this library and the runtime (docs/adr/0011): calls of the program go through
//! it, calls of the library and of the runtime do not.

use super::elf;
use super::entry::Entry;
use super::loader::{self, Object};
use crate::{environment, lifecycle};
use hip_sys::types::{hipError_t, hipErrorNotInitialized, hipErrorSharedObjectSymbolNotFound};
use libc::{RTLD_LAZY, RTLD_NODELETE, RTLD_NOLOAD, c_int, c_void};
use libloading::os::unix::Library;
use parking_lot::Mutex;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The prefix of a HIP runtime's file name.
const RUNTIME: &str = "libamdhip64.so";
/// The prefix of a renamed runtime's file name.
const RENAMED: &str = "libamdhip64";

/// The prefixes of AMD's libraries that get the real functions, some of which they look up by name.
pub(crate) const TOOLS: [&str; 3] = ["libhsa-runtime64.so", "librocprofiler", "libroctracer64.so"];

/// The names to search for if the process has loaded no runtime, newest first.
const SEARCHED: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// The runtime's handle; null until it is known.
static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

macro_rules! once {
    ($log:expr) => {{
        static LOGGED: AtomicBool = AtomicBool::new(false);
        if !LOGGED.swap(true, Ordering::Relaxed) {
            $log;
        }
    }};
}

/// Finds and stores the entry's real function.
#[cold]
pub(crate) fn resolve(entry: &Entry) -> Result<NonNull<c_void>, hipError_t> {
    let name = CString::new(entry.name()).map_err(|_| hipErrorSharedObjectSymbolNotFound)?;
    let next = || elf::find_after_us(&name).filter(|next| !is_ours(next.as_ptr()));
    // While the library is disabled, a call goes where it would be bound without it.
    if environment::is_disabled()
        && let Some(next) = next()
    {
        entry.set(next, next);
        return Ok(next);
    }
    let Some(handle) = handle_for(&name) else {
        once!(tracing::error!("{}: no HIP runtime ({RUNTIME}*) is loaded or found", entry.name()));
        return Err(hipErrorNotInitialized);
    };
    let Some(real) = defined_by(handle, &name) else {
        once!(tracing::error!("{}: the HIP runtime does not have this function", entry.name()));
        return Err(hipErrorSharedObjectSymbolNotFound);
    };
    if is_ours(real.as_ptr()) {
        once!(tracing::error!(
            "{}: the HIP runtime that was found is this library itself; \
             XSCHED_HIP_LIB must name the real {RUNTIME}",
            entry.name()
        ));
        return Err(hipErrorNotInitialized);
    }
    once!(if let Some(object) = Object::of(real.as_ptr()) {
        tracing::debug!("HIP runtime: {}", object.path().display());
    });
    let next = interposer(&name).unwrap_or(real);
    entry.set(next, real);
    Ok(next)
}

/// Returns the function of another interposer, preloaded after this library: the next one of this name in the
/// global scope, if it is not a runtime's. Natively a linked call ends there, so ours does too. The function
/// is found by reading the objects, and the dynamic linker is only asked whether it is in the global scope.
/// An auditor sees that look-up, and must not take the runtime's own function for the one that the program
/// calls.
fn interposer(name: &CStr) -> Option<NonNull<c_void>> {
    let is_no_runtime = |address: NonNull<c_void>| {
        Object::of(address.as_ptr()).is_some_and(|object| !is_one(&object)) && !is_ours(address.as_ptr())
    };
    let next = elf::find_after_us_if(name, &is_no_runtime)?;
    loader::find(libc::RTLD_NEXT, name).filter(|found| *found == next)
}

/// Returns true if an object is a HIP runtime: by its name, or because it defines a function that only a
/// runtime has a reason to define, and versions of its functions, which an interposer does not have.
pub(crate) fn is_one(object: &Object) -> bool {
    let has_marks = || elf::Definitions::of(object.map).is_some_and(has_marks);
    (object.is_named(&[RUNTIME]) || has_marks()) && Object::ours().is_none_or(|ours| !ours.is(object))
}

fn has_marks(definitions: elf::Definitions) -> bool {
    definitions.find(c"hipRuntimeGetVersion").is_some() && definitions.has_version("hip_")
}

/// Returns the definition of a function in the object with this handle, which is also the dynamic linker's
/// description.
fn defined_by(handle: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    let own = elf::Definitions::of(handle.as_ptr()).and_then(|definitions| definitions.find(name));
    own.or_else(|| loader::find(handle.as_ptr(), name))
}

/// Logs that a second runtime is loaded, at once or when the log is open.
pub(crate) fn log_another(copy: &Object) {
    *ANOTHER.lock() = Some(copy.path().to_owned());
    if lifecycle::is_ready() {
        log_pending();
    }
}

/// Logs a second runtime that was found before the log was open.
pub(crate) fn log_pending() {
    if let Some(path) = ANOTHER.lock().take() {
        tracing::warn!(
            "{}: a second HIP runtime in this process; what uses it is not scheduled (XSCHED_HIP_LIB names the one that is)",
            path.display()
        );
    }
}

/// The path of a second runtime that is not logged yet.
static ANOTHER: Mutex<Option<OsString>> = Mutex::new(None);

/// Returns the runtime's own function of the entry, if it has one. Logs nothing.
pub(crate) fn look_up(entry: &Entry) -> Option<NonNull<c_void>> {
    if let Some(known) = entry.runtimes() {
        return Some(known);
    }
    let known = find(&CString::new(entry.name()).ok()?)?;
    entry.set_runtimes(known);
    Some(known)
}

/// Returns a function of the runtime that has no entry, if there is one. Logs nothing.
pub(crate) fn find(name: &CStr) -> Option<NonNull<c_void>> {
    defined_by(handle()?, name).filter(|real| !is_ours(real.as_ptr()))
}

fn is_ours(address: *const c_void) -> bool {
    match (Object::of(address), Object::ours()) {
        (Some(object), Some(ours)) => object.is(&ours),
        _ => false,
    }
}

/// Warns once if the program finds the runtime before this library. Its calls of HIP then go past the library. The reason is
/// the order in which the program was linked.
pub(crate) fn warn_if_before_us() {
    once!({
        // RTLD_DEFAULT would find the library's own function first, because the library is linked with -Bsymbolic.
        let program = Library::this().into_raw();
        let first = loader::find(program, c"hipLaunchKernel");
        if first.is_some_and(|first| contains(first.as_ptr())) {
            tracing::warn!(
                "the program's calls of HIP do not pass through this library, so its XQueues stay empty: the HIP runtime comes \
                 before it. Link the library before the runtime (-lshimhip -lamdhip64), or start the program with xcli run"
            );
        }
        // The look-up may have failed, and the program must not see its error.
        // SAFETY: the call takes nothing, and its result is not used.
        unsafe { libc::dlerror() };
    });
}

/// Returns true if an address that a program's look-up returned lies in the runtime to which the hooks lead.
///
/// Opens nothing and allocates nothing, so the look-up's `dlerror` is kept.
pub(crate) fn contains(address: *const c_void) -> bool {
    let Some(object) = Object::of(address) else {
        return false;
    };
    let handle = HANDLE.load(Ordering::Acquire);
    if !handle.is_null() {
        return object.map == handle;
    }
    environment::with("XSCHED_HIP_LIB", |path| file_name(object.path()) == file_name(path))
        .unwrap_or_else(|| is_one(&object) && first_loaded().is_some_and(|first| first.is(&object)))
}

fn file_name(path: &OsStr) -> &[u8] {
    path.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// Returns the runtime's handle, if there is one. The next call searches again if there is none.
fn handle() -> Option<NonNull<c_void>> {
    known_handle().or_else(|| keep(open_named().or_else(open_loaded).or_else(open_searched)?))
}

/// Returns the runtime's handle for a call of this function. In a program that is linked with HIP, the next
/// object that defines the function counts as the runtime, whatever else it defines: no other one is loaded
/// beside it.
fn handle_for(name: &CStr) -> Option<NonNull<c_void>> {
    known_handle().or_else(|| {
        let defining = || {
            let object = Object::of(elf::find_after_us(name)?.as_ptr())?;
            open_again(&object).filter(|_| Object::ours().is_some_and(|ours| !ours.is(&object)))
        };
        keep(open_named().or_else(open_loaded).or_else(defining).or_else(open_searched)?)
    })
}

fn known_handle() -> Option<NonNull<c_void>> {
    NonNull::new(HANDLE.load(Ordering::Acquire))
}

fn keep(handle: NonNull<c_void>) -> Option<NonNull<c_void>> {
    // Two threads that store a handle at the same time have found the same library.
    HANDLE.store(handle.as_ptr(), Ordering::Release);
    Some(handle)
}

fn open_named() -> Option<NonNull<c_void>> {
    let path = environment::get("XSCHED_HIP_LIB")?;
    match open(&path, RTLD_LAZY | RTLD_NODELETE) {
        Ok(handle) => Some(handle),
        Err(error) => {
            once!(tracing::warn!(
                "XSCHED_HIP_LIB={} is not usable (expected a HIP runtime: {error}); \
                 the default stays in force",
                path.to_string_lossy().escape_debug()
            ));
            None
        }
    }
}

fn open_loaded() -> Option<NonNull<c_void>> {
    open_again(&first_loaded()?)
}

fn open_again(object: &Object) -> Option<NonNull<c_void>> {
    open(object.path(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE).ok()
}

fn open_searched() -> Option<NonNull<c_void>> {
    SEARCHED.iter().find_map(|name| open(OsStr::new(name), RTLD_LAZY | RTLD_NODELETE).ok())
}

fn open(path: &OsStr, flags: c_int) -> Result<NonNull<c_void>, String> {
    // SAFETY: the program has called a HIP function, so it expects the runtime's initialisers to run.
    let library = unsafe { Library::open(Some(path), flags) };
    let library = library.map_err(|error| {
        use std::error::Error as _;
        error.source().map_or_else(|| error.to_string(), ToString::to_string)
    })?;
    NonNull::new(library.into_raw()).ok_or_else(|| "no handle".to_owned())
}

/// Returns the runtime that the process loaded first. One whose file name is a runtime's, renamed or not,
/// comes before others.
pub(crate) fn first_loaded() -> Option<Object> {
    let (mut named, mut other) = (None, None);
    let ours = first_loaded as *const () as u64;
    elf::for_each_object(|info, headers| {
        let has_marks = || elf::definitions_in(info.dlpi_addr, headers).is_some_and(has_marks);
        let path = match info.dlpi_name.is_null() {
            true => &[],
            // SAFETY: the name is a C string that is valid during the visit.
            false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
        };
        let name = file_name(OsStr::from_bytes(path));
        let is_one = name.starts_with(RUNTIME.as_bytes()) || has_marks();
        if !is_one || elf::contains(info.dlpi_addr, headers, ours) {
            return false;
        }
        let place = info.dlpi_phdr.cast();
        if name.starts_with(RENAMED.as_bytes()) {
            named = Some(place);
        } else {
            other.get_or_insert(place);
        }
        named.is_some()
    });
    Object::of(named.or(other)?)
}
