//! References that the dynamic linker has bound past us, or to us although they belong to another copy of the runtime.
//!
//! Two things make such references. A library that was loaded with RTLD_DEEPBIND finds HIP among its own dependencies
//! before it finds us. And where two copies of the runtime are loaded, each for some library alone, we stand in front of
//! both, but lead to one: what belongs to the other, and the calls that it makes to itself, must not end there.
//!
//! Neither is common, so nothing is looked at until one of them was seen ([`expect`]). From then on each look-up by name
//! looks whether libraries were loaded since, and writes the right address into the slots of those that need it
//! (docs/adr/0011). Until the first look-up in such a library its calls go where they were bound: natively as well.

use super::elf::{self, Reference};
use super::loader::{self, Object};
use super::{entry, ioctl, runtime};
use agent::errno;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Who makes requests to the driver; from ROCm 6.3 on the second one alone.
const DRIVERS: [&str; 2] = ["libhsakmt.so", "libhsa-runtime64.so"];

/// Whether there is anything to look for.
static EXPECTED: AtomicBool = AtomicBool::new(false);
/// How many libraries had been loaded when all of them were last looked at.
static SEEN: AtomicU64 = AtomicU64::new(0);
/// Held by whoever looks.
static LOOKING: AtomicBool = AtomicBool::new(false);

/// Libraries may be bound past us from now on.
pub(crate) fn expect() {
    EXPECTED.store(true, Ordering::Release);
}

/// Looks at the libraries, if there may be something to find and any was loaded since the last time. Keeps errno, and
/// leaves no error for `dlerror`.
#[inline]
pub(crate) fn look() {
    if EXPECTED.load(Ordering::Relaxed) {
        errno::kept(look_at_all);
    }
}

#[cold]
fn look_at_all() {
    let loaded = elf::loaded_so_far();
    if SEEN.load(Ordering::Acquire) == loaded || LOOKING.swap(true, Ordering::Acquire) {
        return;
    }
    for object in objects() {
        set_right(&object);
    }
    SEEN.store(loaded, Ordering::Release);
    LOOKING.store(false, Ordering::Release);
    // SAFETY: takes nothing, and what it returns is not used: our own look-ups may have failed.
    unsafe { libc::dlerror() };
}

/// What is loaded, at this moment.
fn objects() -> Vec<Object> {
    unsafe extern "C" fn take(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: libc passes a valid description for the time of the call.
        let info = unsafe { &*info };
        // SAFETY: `data` is the place passed below, and nothing else uses it during the iteration.
        let found = unsafe { &mut *data.cast::<Vec<Object>>() };
        if !info.dlpi_phdr.is_null()
            && let Some(object) = Object::of(info.dlpi_phdr.cast())
        {
            found.push(object);
        }
        0
    }
    let mut found = Vec::with_capacity(64);
    // SAFETY: the callback has the type that libc wants, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(take), ptr::from_mut(&mut found).cast()) };
    found
}

/// Sets the references of one object right that lead to the wrong runtime, or past us. The main program is left alone:
/// what it is linked with is in the global scope, where we come first and the runtime that we lead to next.
pub(crate) fn set_right(object: &Object) {
    if object.path().is_empty() || Object::ours().is_none_or(|ours| ours.is(object)) {
        return;
    }
    // The handle also keeps it loaded meanwhile.
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

/// Sets an object's references right, and says whether it calls this function, and calls us by it.
pub(crate) fn leads_here(object: &Object, name: &CStr) -> bool {
    set_right(object);
    let Some(entry) = entry::find(name) else { return false };
    let mut leads = None;
    elf::for_each_reference(object.map, |reference| {
        if reference.name == name {
            leads = Some(leads.unwrap_or(true) && reference.value() == entry.hook());
        }
    });
    leads == Some(true)
}

/// What a driver's reference to `ioctl` is to lead to, if that is something else than now. Whoever stands before us (a tracer, a
/// sanitizer) stays there: its next one is ours.
fn of_a_driver(now: *const c_void, ours: *const c_void, object: &Object) -> Option<*const c_void> {
    if now == ours {
        return None;
    }
    let us = Object::of(ours)?;
    let is_before_us = |address| Object::of(address).is_some_and(|there| there.is_before(&us));
    if !Object::of(now).is_some_and(|there| there.is(object)) {
        return (!is_before_us(now)).then_some(ours);
    }
    // Not looked up yet. It would be found past us, or first of all by whoever is first: what was asked for cannot be seen here.
    let first = loader::find(libc::RTLD_DEFAULT, c"ioctl").map(|first| first.as_ptr().cast_const());
    Some(first.filter(|first| is_before_us(*first)).unwrap_or(ours))
}

/// What a library's reference is to lead to, if that is something else than now.
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
    // Either ours, or not looked up yet: then it leads into the library itself.
    if now != hook && !Object::of(now).is_some_and(|containing| containing.is(object)) {
        return None;
    }
    let local = loader::find(handle, reference.name)?.as_ptr().cast_const();
    if runtime::contains(local) {
        return (now != hook).then_some(hook);
    }
    // Another runtime than ours, unless the global scope, which comes first, has one.
    let is_global = loader::find(libc::RTLD_NEXT, reference.name).is_some();
    let is_ours = Object::of(local).zip(Object::ours()).is_none_or(|(there, ours)| there.is(&ours));
    (!is_global && !is_ours).then_some(local)
}

/// The function of this name that an object would find if this library was not there, if that is one of another runtime
/// than ours. Sets the object's references right if so: it is just being loaded, and makes its first call.
pub(crate) fn in_another_runtime(inside: *const c_void, name: &CStr) -> Option<*const c_void> {
    let object = Object::of(inside).filter(|object| !object.path().is_empty())?;
    // Most have been here before, or need nothing: a runtime in the global scope is everybody's.
    static LAST: AtomicUsize = AtomicUsize::new(0);
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
        set_right(&object);
    }
    Some(local)
}

/// A second copy of the runtime was seen. It is used as if we were not there, and that is said once.
pub(crate) fn another_runtime(copy: &Object) {
    static KNOWN: AtomicUsize = AtomicUsize::new(0);
    if KNOWN.swap(copy.base.addr(), Ordering::AcqRel) == copy.base.addr() {
        return;
    }
    expect();
    set_right(copy);
    runtime::say_of_another(copy);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All references of an object, by name, with where they lead.
    fn references(object: &Object) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        elf::for_each_reference(object.map, |reference| {
            found.push((reference.name.to_string_lossy().into_owned(), reference.value().addr()));
        });
        found
    }

    #[test]
    fn every_loaded_object_is_listed() {
        let (ours, libc) = (Object::ours(), Object::of(libc::malloc as *const () as *const c_void));
        let objects = objects();
        for object in [ours, libc].into_iter().flatten() {
            assert_eq!(objects.iter().filter(|listed| listed.is(&object)).count(), 1, "{object:?}");
        }
        assert!(objects.len() as u64 <= elf::loaded_so_far());
    }

    #[test]
    fn references_lead_where_the_dynamic_linker_says() {
        // This program calls libc by name, through slots that were filled when it started or will be.
        let ours = Object::ours().expect("this code is in an object");
        let references = references(&ours);
        let (_, slot) =
            references.iter().find(|(name, _)| name == "dl_iterate_phdr").expect("a function that we call");
        // SAFETY: a pseudo handle and a C string.
        let real = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dl_iterate_phdr".as_ptr()) };
        assert_eq!(*slot, real.addr());
    }

    #[test]
    fn what_has_nothing_to_do_with_hip_is_left_as_it_is() {
        let all = || -> Vec<_> { objects().iter().map(references).collect() };
        assert!(all().iter().map(Vec::len).sum::<usize>() > 10, "there are references to look at");
        // Another test's first call of a function binds a slot meanwhile, once for each: then this looks again.
        let left_alone = (0..100).any(|_| {
            let before = all();
            for object in objects() {
                set_right(&object);
            }
            all() == before
        });
        assert!(left_alone, "something changes each time");
        assert_eq!(in_another_runtime(libc::malloc as *const () as *const c_void, c"hipMalloc"), None);
        assert_eq!(in_another_runtime(ptr::null(), c"hipMalloc"), None);
        assert_eq!(in_another_runtime(libc::malloc as *const () as *const c_void, c"malloc"), None);
    }

    #[test]
    fn libraries_are_looked_at_once_and_only_if_expected() {
        look();
        assert_eq!(SEEN.load(Ordering::Acquire), 0, "nothing was expected");
        expect();
        // Another test that looks a name up may be looking.
        while SEEN.load(Ordering::Acquire) != elf::loaded_so_far() {
            look();
            std::thread::yield_now();
        }
        // Now there is nothing to look at, and nobody does.
        look_at_all();
        assert_eq!(SEEN.load(Ordering::Acquire), elf::loaded_so_far());
    }
}
