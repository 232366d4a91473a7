//! The exported HIP functions: one for each prototype of `hip-sys` whose rule is not Forward.
//!
//! A row of `hip_sys::*_prototypes!` becomes the `extern "C"` function of that name, its [`Entry`], and a
//! compile-time check of its signature. `interception` decides which rows there are, and [`crate::hooks`]
//! what a call does beyond being forwarded. A function without a row is not exported: the dynamic linker
//! binds it to the runtime, at no cost.

#![allow(non_snake_case, clippy::too_many_arguments)]

use super::entry::{self, Entries, Entry};
use crate::boundary;
use crate::hooks::{
    callback, copy, copy_wide, devices, drain, error, event, graph, hook, launch, launch_ex, module, pool,
    resolve, stream, sync, value,
};
use hal_hip::waits;
use hip_sys::types::*;
use interception::{Class, FUNCTIONS, Function};
use std::ffi::*;

/// Returns the index of a name in `FUNCTIONS`. A name that is not there, or whose rule is Forward, does not
/// compile.
const fn index_of(name: &str) -> usize {
    let Some(index) = interception::index_of(name.as_bytes()) else {
        panic!("the table of HIP functions has no such function");
    };
    assert!(FUNCTIONS[index].is_exported(), "the table's rule for this function is Forward");
    index
}

/// Returns the row of a name, as [`index_of`] finds it.
const fn row(name: &str) -> &'static Function {
    &FUNCTIONS[index_of(name)]
}

/// Defines the exported functions of a list of prototypes.
macro_rules! exports {
    ($([$($scope:ident)+] fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        export! {
            fn $name($($argument: $type),*) -> $result;
            call => hook!($name, (call, [$($scope)+], const { row(stringify!($name)).is_per_thread() }), ($($argument),*))
        }
    )*};
}

/// Defines the exported functions whose stream is only replaced.
macro_rules! translates {
    ($([own $stream:ident] fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        export! {
            fn $name($($argument: $type),*) -> $result;
            call => drain::translate(call, const { row(stringify!($name)).is_per_thread() }, $stream, |real, $stream| real($($argument),*))
        }
    )*};
}

macro_rules! export {
    (fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty; $call:ident => $body:expr) => {
        #[doc = concat!("`", stringify!($name), "`, as the runtime declares it.")]
        ///
        /// # Safety
        ///
        /// That of the runtime's function of this name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            const CLASS: Class = row(stringify!($name)).class;
            // SAFETY: `pfn` gives the type of the function of this name. The arguments are the caller's own,
            // so they meet the contract of the runtime's function, which is the handler's.
            unsafe {
                let $call = boundary::Call::<hip_sys::pfn::$name>::new(&entries::$name, CLASS);
                $body
            }
        }

        const _: hip_sys::pfn::$name = $name;
    };
}

hip_sys::direct_prototypes!(exports);
hip_sys::drain_prototypes!(exports);
hip_sys::embedded_prototypes!(exports);
hip_sys::translate_prototypes!(translates);

/// The entries, under the names of their functions.
mod entries {
    #![allow(non_upper_case_globals)]

    use super::{ENTRIES, Entry, index_of};
    use std::ffi::c_void;

    macro_rules! statics {
        ($([$scope:ident $($stream:ident)*] fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
            pub(super) static $name: Entry =
                Entry::new(index_of(stringify!($name)), super::$name as *const c_void, &ENTRIES);
        )*};
    }

    hip_sys::direct_prototypes!(statics);
    hip_sys::drain_prototypes!(statics);
    hip_sys::embedded_prototypes!(statics);
    hip_sys::translate_prototypes!(statics);
}

/// Stores the entries of a list of prototypes in an array with one place for each function of the table.
macro_rules! fill {
    ($table:ident: $([$scope:ident $($stream:ident)*] fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $($table[index_of(stringify!($name))] = Some(&entries::$name);)*
    };
}

/// The entries of all functions of the table.
static ENTRIES: Entries = {
    let mut table: Entries = [None; FUNCTIONS.len()];
    macro_rules! rows {
        ($($rows:tt)*) => { fill!(table: $($rows)*) };
    }
    hip_sys::direct_prototypes!(rows);
    hip_sys::drain_prototypes!(rows);
    hip_sys::embedded_prototypes!(rows);
    hip_sys::translate_prototypes!(rows);
    table
};

/// Makes the entries known to [`super::entry`], for look-ups before the first call of a hook.
pub(super) fn register() {
    entry::register(&ENTRIES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_exactly_the_exported_functions() {
        register();
        let exported: Vec<_> = entry::all().map(Entry::name).collect();
        let wanted: Vec<_> = FUNCTIONS
            .iter()
            .filter(|function| function.is_exported())
            .map(|function| function.name)
            .collect();
        assert_eq!(exported, wanted);
    }

    #[test]
    fn find_returns_entries_of_exported_names() {
        register();
        let entry = entry::find(c"hipLaunchKernel").expect("exported");
        assert_eq!(entry.name(), "hipLaunchKernel");
        assert_eq!(entry.class(), Class::Launch);
        assert_eq!(entry.hook(), hipLaunchKernel as *const c_void);
        assert!(entry::find(c"hipGetDevice").is_none(), "left alone");
        assert!(entry::find(c"hip").is_none());
        assert!(entry::find(c"").is_none());
    }
}
