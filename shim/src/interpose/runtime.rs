//! The real HIP runtime: which library it is, and its functions.
//!
//! The library is that of `XSCHED_HIP_LIB`, else the one that the process loaded first, else the first one on the search
//! path. What is loaded is known by what it defines ([`is_one`]), because wheels bring it under names of their own
//! (`libamdhip64-1a2b3c4d.so.6`). Its functions are read out of its own symbol table: the dynamic linker may say something
//! else, where somebody audits it, and RTLD_NEXT fails where a program loaded HIP for itself (RTLD_LOCAL). A function that
//! turns out to be one of ours is refused, because calling it would never end. Between us and the runtime another interposer may stand (docs/adr/0011): what the program calls goes
//! through it, what we call for ourselves and what the runtime calls does not.

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

/// How the file name of a HIP runtime begins.
const RUNTIME: &str = "libamdhip64.so";
/// The same where it was given a name of its own.
const RENAMED: &str = "libamdhip64";

/// How the file names of AMD's libraries begin that get the real functions: the runtime calls some by name.
pub(crate) const TOOLS: [&str; 3] = ["libhsa-runtime64.so", "librocprofiler", "libroctracer64.so"];

/// Where to look if the process has loaded none, newest first.
const SEARCHED: [&str; 4] = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"];

/// The runtime's handle, once it is known.
static HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Looks the entry's real function up and keeps it.
#[cold]
pub(crate) fn resolve(entry: &Entry) -> Result<NonNull<c_void>, hipError_t> {
    let name = CString::new(entry.name()).map_err(|_| hipErrorSharedObjectSymbolNotFound)?;
    let next = || elf::find_after_us(&name).filter(|next| !is_ours(next.as_ptr()));
    // Switched off, this library is where it would be if it were not there: a call goes where it would be bound to.
    if environment::is_disabled()
        && let Some(next) = next()
    {
        entry.set(next, next);
        return Ok(next);
    }
    let Some(handle) = handle_for(&name) else {
        static SAID: AtomicBool = AtomicBool::new(false);
        once(&SAID, || tracing::error!("{}: no HIP runtime ({RUNTIME}*) is loaded or found", entry.name()));
        return Err(hipErrorNotInitialized);
    };
    let Some(real) = defined_by(handle, &name) else {
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
    entry.set(next, real);
    Ok(next)
}

/// The function of this name that comes after this library in the global scope, if it is nobody's who is a runtime:
/// another interposer, preloaded behind us. Natively a linked call ends there, so ours ends there too. Who is found is
/// read out of the objects, and the dynamic linker asked only whether that one is in the global scope: an auditor hears
/// of what it is asked, and would keep the runtime's own function for the one that the program calls.
fn interposer(name: &CStr) -> Option<NonNull<c_void>> {
    let is_no_runtime = |address: NonNull<c_void>| {
        Object::of(address.as_ptr()).is_some_and(|object| !is_one(&object)) && !is_ours(address.as_ptr())
    };
    let next = elf::find_after_us_if(name, &is_no_runtime)?;
    loader::find(libc::RTLD_NEXT, name).filter(|found| *found == next)
}

/// Whether an object is a HIP runtime. Its name says so, or what it defines: a function that nobody else has a reason to
/// define, and versions of its functions. An interposer may have the one, and has not the other.
pub(crate) fn is_one(object: &Object) -> bool {
    let has_marks = || {
        elf::Definitions::of(object.map).is_some_and(|definitions| {
            definitions.find(c"hipRuntimeGetVersion").is_some() && definitions.has_version("hip_")
        })
    };
    (object.is_named(&[RUNTIME]) || has_marks()) && Object::ours().is_none_or(|ours| !ours.is(object))
}

/// A function as the object with this handle defines it, which is also its description by the dynamic linker.
fn defined_by(handle: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    let own = elf::Definitions::of(handle.as_ptr()).and_then(|definitions| definitions.find(name));
    own.or_else(|| loader::find(handle.as_ptr(), name))
}

/// Says that a second runtime is loaded, or keeps that until somebody listens.
pub(crate) fn say_of_another(copy: &Object) {
    *ANOTHER.lock() = Some(copy.path().to_owned());
    if lifecycle::is_ready() {
        log_pending();
    }
}

/// Says what was found before there was a log.
pub(crate) fn log_pending() {
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
    let known = defined_by(handle()?, &name).filter(|real| !is_ours(real.as_ptr()))?;
    entry.set_runtimes(known);
    Some(known)
}

/// A function of the runtime that has no entry of its own; says nothing if there is none.
pub(crate) fn find(name: &CStr) -> Option<NonNull<c_void>> {
    defined_by(handle()?, name).filter(|real| !is_ours(real.as_ptr()))
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
    known_handle().or_else(|| keep(open_named().or_else(open_loaded).or_else(open_searched)?))
}

/// The same for a call of this function. Whoever defines it behind us is the runtime of a program that is linked with it,
/// whatever it looks like: another one is not loaded beside it.
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
    open_again(&first_loaded()?)
}

fn open_again(object: &Object) -> Option<NonNull<c_void>> {
    open(object.path(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE).ok()
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

/// The runtime that the process loaded first. Of several the first one that is named like it, under a name of its own perhaps.
fn first_loaded() -> Option<Object> {
    #[derive(Default)]
    struct Found {
        named: Option<Object>,
        other: Option<Object>,
    }
    unsafe extern "C" fn look_at(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: libc passes a valid description for the time of the call.
        let info = unsafe { &*info };
        // SAFETY: `data` is the place that the caller passed, and nothing else uses it during the iteration.
        let found = unsafe { &mut *data.cast::<Found>() };
        let Some(object) = Object::of(info.dlpi_phdr.cast()).filter(is_one) else {
            return 0;
        };
        if object.is_named(&[RENAMED]) {
            found.named = Some(object);
        } else if found.other.is_none() {
            found.other = Some(object);
        }
        c_int::from(found.named.is_some())
    }
    let mut found = Found::default();
    // SAFETY: the callback has the type that libc wants, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_at), ptr::from_mut(&mut found).cast()) };
    found.named.or(found.other)
}
