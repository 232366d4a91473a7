//! Corrections of references that the dynamic linker has bound past this library, or to it although they
//! belong to another copy of the runtime.
//!
//! There are two causes. A library loaded with RTLD_DEEPBIND finds HIP among its own dependencies before it
//! finds this library. And if two copies of the runtime are loaded, each for some library alone, this library
//! stands in front of both but leads to one: calls that belong to the other one, and those that it makes to
//! itself, must not end there.
//!
//! Both are rare, so objects are examined only after one of them was seen ([`expect`]). From then on each
//! look-up by name checks whether libraries were loaded since, and writes the right address into their slots
//! (docs/adr/0011). Until the first look-up in such a library its calls go where they were bound, as
//! natively.

use super::elf::{self, Reference};
use super::loader::{self, Object};
use super::{entry, ioctl, runtime};
use agent::errno;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The libraries that make requests to the driver; from ROCm 6.3 on the second one alone.
const DRIVERS: [&str; 2] = ["libhsakmt.so", "libhsa-runtime64.so"];

/// True once there may be wrong references.
static EXPECTED: AtomicBool = AtomicBool::new(false);
/// The number of libraries loaded when all of them were last examined.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// True while a thread examines the libraries.
static LOOKING: AtomicBool = AtomicBool::new(false);

/// Notes that libraries may be bound past this one from now on.
pub(crate) fn expect() {
    EXPECTED.store(true, Ordering::Release);
}

/// Corrects the references of all libraries, if there may be wrong ones and any library was loaded since the
/// last time. Keeps errno, and leaves no error for `dlerror`.
#[inline]
pub(crate) fn correct() {
    if EXPECTED.load(Ordering::Relaxed) {
        errno::kept(correct_all);
    }
}

#[cold]
fn correct_all() {
    let loaded = elf::loaded_so_far();
    if SEEN.load(Ordering::Acquire) == loaded || LOOKING.swap(true, Ordering::Acquire) {
        return;
    }
    for object in objects() {
        correct_object(&object);
    }
    SEEN.store(loaded, Ordering::Release);
    LOOKING.store(false, Ordering::Release);
    // Our own look-ups may have failed, and the program must not see their error.
    // SAFETY: the call takes nothing, and its result is not used.
    unsafe { libc::dlerror() };
}

fn objects() -> Vec<Object> {
    let mut count = 0;
    elf::for_each_object(|_, _| {
        count += 1;
        false
    });
    // With room for some that another thread loads meanwhile. Those beyond are seen the next time.
    let mut places: Vec<*const c_void> = Vec::with_capacity(count + 16);
    elf::for_each_object(|info, headers| {
        if !headers.is_empty() && places.len() < places.capacity() {
            places.push(info.dlpi_phdr.cast());
        }
        false
    });
    places.into_iter().filter_map(Object::of).collect()
}

/// Corrects the references of one object that lead to the wrong runtime or past this library. The main
/// program is left alone: its libraries are in the global scope, in which this library comes first and the
/// right runtime next.
pub(crate) fn correct_object(object: &Object) {
    if object.path().is_empty() || Object::ours().is_none_or(|ours| ours.is(object)) {
        return;
    }
    // The handle keeps the object loaded meanwhile.
    object.with_handle(|handle| {
        if object.is_named(&DRIVERS) {
            let ours = ioctl::ioctl as *const () as *const c_void;
            elf::for_each_reference(object.map, |reference| {
                if reference.name == c"ioctl"
                    && let Some(wanted) = of_a_driver(reference.value(), ours, object)
                {
                    reference.set(wanted);
                }
            });
        }
        let is_runtime = runtime::is_one(object);
        if is_runtime && runtime::contains(object.base) || object.is_named(&runtime::TOOLS) {
            return;
        }
        elf::for_each_reference(object.map, |reference| {
            let Some(entry) = entry::find(reference.name) else { return };
            let hook = entry.hook();
            let wanted = if is_runtime {
                (reference.value() == hook).then_some(reference.own).flatten()
            } else if reference.own.is_none() {
                of_a_library(&reference, hook, object, handle)
            } else {
                None
            };
            if let Some(wanted) = wanted {
                reference.set(wanted);
            }
        });
    });
}

/// Corrects an object's references. Returns true if it refers to this function, and all these references lead
/// to this library.
pub(crate) fn leads_here(object: &Object, name: &CStr) -> bool {
    correct_object(object);
    let Some(entry) = entry::find(name) else { return false };
    let mut leads = None;
    elf::for_each_reference(object.map, |reference| {
        if reference.name == name {
            leads = Some(leads.unwrap_or(true) && reference.value() == entry.hook());
        }
    });
    leads == Some(true)
}

/// Returns the right target of a driver's reference to `ioctl`, if it is wrong. An interposer before this
/// library, such as a tracer or a sanitizer, is kept: its next `ioctl` is ours.
fn of_a_driver(now: *const c_void, ours: *const c_void, object: &Object) -> Option<*const c_void> {
    if now == ours {
        return None;
    }
    let us = Object::of(ours)?;
    let is_before_us = |address| Object::of(address).is_some_and(|there| there.is_before(&us));
    if !Object::of(now).is_some_and(|there| there.is(object)) {
        return (!is_before_us(now)).then_some(ours);
    }
    // The reference is not bound yet. The later look-up may pass this library or find the first interposer,
    // which cannot be known here.
    let first = loader::find(libc::RTLD_DEFAULT, c"ioctl").map(|first| first.as_ptr().cast_const());
    Some(first.filter(|first| is_before_us(*first)).unwrap_or(ours))
}

/// Returns the right target of a library's reference, if it is wrong.
fn of_a_library(
    reference: &Reference<'_>,
    hook: *const c_void,
    object: &Object,
    handle: *mut c_void,
) -> Option<*const c_void> {
    let now = reference.value();
    if runtime::contains(now) {
        return Some(hook);
    }
    // It leads to us, or is not bound yet and leads into the library itself.
    if now != hook && !Object::of(now).is_some_and(|containing| containing.is(object)) {
        return None;
    }
    let local = loader::find(handle, reference.name)?.as_ptr().cast_const();
    if runtime::contains(local) {
        return (now != hook).then_some(hook);
    }
    // It belongs to another runtime, unless the global scope, which comes first, has one.
    let is_global = loader::find(libc::RTLD_NEXT, reference.name).is_some();
    let is_ours = Object::of(local).zip(Object::ours()).is_none_or(|(there, ours)| there.is(&ours));
    (!is_global && !is_ours).then_some(local)
}

/// Returns the function that an object would find natively, if it belongs to another runtime than ours. In
/// that case corrects the object's references: it is just being loaded, and makes its first call.
pub(crate) fn in_another_runtime(inside: *const c_void, name: &CStr) -> Option<*const c_void> {
    let object = Object::of(inside).filter(|object| !object.path().is_empty())?;
    static LAST: AtomicUsize = AtomicUsize::new(0);
    // A runtime in the global scope is every object's.
    if loader::find(libc::RTLD_NEXT, name).is_some() {
        return None;
    }
    let local = object.with_handle(|handle| loader::find(handle, name)).flatten()?.as_ptr().cast_const();
    let defining = Object::of(local)?;
    if runtime::contains(local) || Object::ours().is_none_or(|ours| ours.is(&defining)) {
        return None;
    }
    if LAST.swap(object.base.addr(), Ordering::AcqRel) != object.base.addr() {
        another_runtime(&defining);
        correct_object(&object);
    }
    Some(local)
}

/// Handles a second copy of the runtime: its calls are not intercepted, which is logged once.
pub(crate) fn another_runtime(copy: &Object) {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    if KNOWN.swap(copy.base.addr(), Ordering::AcqRel) == copy.base.addr() {
        return;
    }
    expect();
    correct_object(copy);
    runtime::log_another(copy);
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::ptr;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Libraries of libc that nothing here uses.
    const UNUSED: [&CStr; 3] = [c"libBrokenLocale.so.1", c"libanl.so.1", c"libthread_db.so.1"];

    /// A test that unloads an object must not run beside one that reads all objects without a handle. Both hold this lock.
    static LOADING: Mutex<()> = Mutex::new(());

    /// The dynamic linker has two locks, and `dlopen` takes both.
    #[test]
    fn objects_are_found_while_another_thread_loads_and_unloads_one() {
        let _loading = LOADING.lock();
        // SAFETY: the initialisers of these libraries touch nothing of this process.
        let load = |name: &CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        // SAFETY: each handle is closed once.
        let unload = |handle| unsafe { libc::dlclose(handle) };
        let exists = |name: &&CStr| {
            let handle = load(name);
            !handle.is_null() && unload(handle) == 0
        };
        let name = UNUSED.into_iter().find(exists).expect("libc has one of these libraries");
        let (done, end) = channel();
        let loader = done.clone();
        std::thread::spawn(move || {
            for _ in 0..5000 {
                unload(load(name));
            }
            let _ = loader.send(());
        });
        std::thread::spawn(move || {
            for _ in 0..5000 {
                assert!(!objects().is_empty());
                assert!(runtime::first_loaded().is_none_or(|first| runtime::is_one(&first)));
                elf::find_after_us_if(c"malloc", &|found| Object::of(found.as_ptr()).is_none());
            }
            let _ = done.send(());
        });
        for _ in 0..2 {
            end.recv_timeout(Duration::from_secs(120)).expect("the threads wait for each other");
        }
    }

    /// Returns all references of an object by name, with their targets.
    fn references(object: &Object) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        elf::for_each_reference(object.map, |reference| {
            found.push((reference.name.to_string_lossy().into_owned(), reference.value().addr()));
        });
        found
    }

    #[test]
    fn objects_lists_each_loaded_object_once() {
        let (ours, libc) = (Object::ours(), Object::of(libc::malloc as *const () as *const c_void));
        let objects = objects();
        for object in [ours, libc].into_iter().flatten() {
            assert_eq!(objects.iter().filter(|listed| listed.is(&object)).count(), 1, "{object:?}");
        }
        assert!(objects.len() as u64 <= elf::loaded_so_far());
    }

    #[test]
    fn references_match_the_dynamic_linker() {
        let ours = Object::ours().expect("this code is in an object");
        let references = references(&ours);
        let (_, slot) =
            references.iter().find(|(name, _)| name == "dl_iterate_phdr").expect("a function that we call");
        // SAFETY: the handle is a pseudo handle, and the name is a C string.
        let real = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dl_iterate_phdr".as_ptr()) };
        assert_eq!(*slot, real.addr());
    }

    #[test]
    fn objects_without_hip_are_unchanged() {
        let _loading = LOADING.lock();
        super::super::exports::register();
        let all = || -> Vec<_> { objects().iter().map(references).collect() };
        assert!(all().iter().map(Vec::len).sum::<usize>() > 10, "there are references to look at");
        // Another test's first call of a function may bind a slot meanwhile, so this is repeated.
        let left_alone = (0..100).any(|_| {
            let before = all();
            for object in objects() {
                correct_object(&object);
            }
            all() == before
        });
        assert!(left_alone, "something changes each time");
        assert_eq!(in_another_runtime(libc::malloc as *const () as *const c_void, c"hipMalloc"), None);
        assert_eq!(in_another_runtime(ptr::null(), c"hipMalloc"), None);
        assert_eq!(in_another_runtime(libc::malloc as *const () as *const c_void, c"malloc"), None);
    }

    #[test]
    fn correct_runs_once_per_load_if_expected() {
        correct();
        assert_eq!(SEEN.load(Ordering::Acquire), 0, "nothing was expected");
        expect();
        // Another test's look-up may examine the libraries at the same time.
        while SEEN.load(Ordering::Acquire) != elf::loaded_so_far() {
            correct();
            std::thread::yield_now();
        }
        correct_all();
        assert_eq!(SEEN.load(Ordering::Acquire), elf::loaded_so_far());
    }
}
