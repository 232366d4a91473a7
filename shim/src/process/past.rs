//! Kernels that were registered past this library. A library loaded with RTLD_DEEPBIND registers its kernels
//! while it is loaded, with the runtime directly, because its references are corrected only afterwards
//! (`bindings`). When such a kernel is to be deferred for the first time, its code is looked for in the
//! library that has the host function.
//!
//! The compiler makes a wrapper for each fat binary (`__hip_fatbin_wrapper` in the section
//! `.hipFatBinSegment`, clang's `CGCUDANV.cpp`): a magic number, a version, and the address of the code in
//! the same library. Sections are not loaded, so the wrappers are looked for in the library's data. The
//! runtime knows the name of the kernel.

use super::slow_path::Names;
use crate::interpose::elf;
use crate::interpose::loader::Object;
use agent::errno;
use hal_hip::kernels::Kernels;
use hip_sys::types::hipStream_t;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

/// The first word of a wrapper: "HIPF", and version 1.
const WRAPPER: u64 = 0x1_4849_5046;

/// The kernels looked for, valid until another library is loaded: until then no address gets another meaning.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// The functions that were not found, and the number of libraries loaded by then.
    unknown: Mutex<HashMap<usize, u64>>,
    /// The last library, so that one with thousands of kernels is read once.
    last: Mutex<Option<Library>>,
}

/// The wrappers in a library.
#[derive(Debug)]
struct Library {
    /// The dynamic linker's description, which identifies the library.
    map: usize,
    /// The number of libraries loaded when it was read.
    loaded: u64,
    wrappers: Arc<[usize]>,
}

impl Past {
    /// Looks for the kernel of a host function and notes it in `kernels`. Returns true if it is known now.
    /// `stream` is one of the runtime's own, and `calls_us` returns true if an object's references to a
    /// function lead to this library.
    pub(crate) fn note(
        &self,
        names: Names,
        kernels: &Kernels,
        stream: hipStream_t,
        function: *const c_void,
        calls_us: impl FnOnce(&Object, &CStr) -> bool,
    ) -> bool {
        let look_for = |loaded| {
            // SAFETY: any address may be asked for; the stream is that of the launch.
            let name = unsafe { (names.host)(function, stream) };
            if name.is_null() {
                return None;
            }
            let object = Object::of(function)?;
            // Unloaded kernels must be forgotten, because another library's kernel may get the same address.
            if !calls_us(&object, c"__hipUnregisterFatBinary") {
                return None;
            }
            let wrappers = self.wrappers_of(function, object.map.addr(), loaded);
            let wrappers: Vec<_> =
                wrappers.iter().map(|wrapper| std::ptr::with_exposed_provenance(*wrapper)).collect();
            // SAFETY: the name is the runtime's own string, which lives as long as the kernel is registered.
            // The wrappers are the compiler's constants in a loaded library, which unregisters them with us
            // before it is unloaded.
            Some(unsafe { kernels.add_unseen(function, CStr::from_ptr(name), &wrappers) })
        };
        errno::kept(|| {
            let loaded = elf::loaded_so_far();
            if self.unknown.lock().get(&function.addr()) == Some(&loaded) {
                return false;
            }
            let known = look_for(loaded).unwrap_or(false);
            if !known {
                self.unknown.lock().insert(function.addr(), loaded);
            }
            // Our own look-ups may have failed, and the program must not see their error.
            // SAFETY: the call takes nothing, and its result is not used.
            unsafe { libc::dlerror() };
            known
        })
    }

    /// Returns the wrappers in the library that contains an address; `map` identifies it.
    fn wrappers_of(&self, inside: *const c_void, map: usize, loaded: u64) -> Arc<[usize]> {
        let mut last = self.last.lock();
        if let Some(library) = last.as_ref().filter(|last| (last.map, last.loaded) == (map, loaded)) {
            return library.wrappers.clone();
        }
        let found: Arc<[usize]> =
            wrappers(inside).iter().map(|wrapper| wrapper.expose_provenance()).collect();
        *last = Some(Library { map, loaded, wrappers: found.clone() });
        found
    }
}

/// Finds the wrappers in the library that contains an address.
fn wrappers(inside: *const c_void) -> Vec<*const c_void> {
    let mut found = Vec::new();
    let mut wrapper = None;
    elf::for_each_word(inside, &mut |place, word| {
        let code = std::ptr::with_exposed_provenance(word as usize);
        found.extend(wrapper.take().map(|wrapper| (wrapper, code)));
        wrapper = (word == WRAPPER).then_some(place.cast::<c_void>());
    });
    found.retain(|(_, code)| elf::contains_both(inside, *code));
    found.into_iter().map(|(wrapper, _)| wrapper).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// Two wrappers: the first one's code is in this object, the second one's is not.
    #[repr(C)]
    struct Wrappers([*const c_void; 3], [*const c_void; 3]);

    // SAFETY: the addresses are never dereferenced.
    unsafe impl Sync for Wrappers {}

    static CODE: u64 = 7;
    static WRAPPERS: Wrappers = {
        let magic = ptr::without_provenance(WRAPPER as usize);
        let code = &raw const CODE;
        Wrappers([magic, code.cast(), ptr::null()], [magic, ptr::without_provenance(8), ptr::null()])
    };

    #[test]
    fn wrappers_of_reads_again_after_another_load() {
        let (past, ours) = (Past::default(), ptr::from_ref(&WRAPPERS).cast::<c_void>());
        let first = past.wrappers_of(ours, 1, 5);
        assert!(first.contains(&ours.addr()));
        assert!(Arc::ptr_eq(&first, &past.wrappers_of(ours, 1, 5)), "the same");
        assert!(!Arc::ptr_eq(&first, &past.wrappers_of(ours, 2, 5)), "of another library");
        let again = past.wrappers_of(ours, 1, 6);
        assert!(!Arc::ptr_eq(&first, &again) && again == first);
    }

    #[test]
    fn wrappers_finds_those_with_code_in_the_object() {
        let ours = ptr::from_ref(&WRAPPERS).cast::<c_void>();
        let found = wrappers(ours);
        assert!(found.contains(&ours), "{found:?}");
        assert!(!found.contains(&ptr::from_ref(&WRAPPERS.1).cast()), "its code is not in this object");
        assert_eq!(wrappers(ptr::null()), Vec::<*const c_void>::new());
    }
}
