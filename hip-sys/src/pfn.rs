//! Function-pointer types of HIP functions, and their prototypes as data and as macros.
//!
//! There is one type for every function that the shim does not leave alone, and for those that our own programs call.
//! It has the function's name. A mangled twin, and a `_spt` twin, has a type of its own that equals the plain one's.
//!
//! The prototypes stand in five macros: [`direct_prototypes!`](crate::direct_prototypes),
//! [`drain_prototypes!`](crate::drain_prototypes), [`embedded_prototypes!`](crate::embedded_prototypes),
//! [`translate_prototypes!`](crate::translate_prototypes) and [`forward_prototypes!`](crate::forward_prototypes). Each
//! takes the name of a macro that is in scope and calls it with all rows, so that a crate can make one function of each
//! row. A row is
//!
//! ```text
//! [scope stream...] fn name(argument: type, ...) -> type;
//! ```
//!
//! where `scope` says which queues the call concerns ([`Scope`]) and `stream...` names every argument that is a stream
//! handle: in each of them the per-thread stream has to be translated. The types are those of [`crate::types`] and
//! `core::ffi`, found by their names where the macro is used.

#![allow(non_camel_case_types)]

use core::ffi::*;

use crate::types::*;

#[macro_use]
mod direct;
#[macro_use]
mod drain;
#[macro_use]
mod forward;

/// Which queues a call concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// None.
    None,
    /// Those of the stream arguments.
    Own,
    /// The default stream: the calling thread's own one for a `_spt` twin, else the one of its current device with all
    /// the streams that this waits for.
    Default,
    /// All of the process.
    All,
    /// Those named inside the structures that the arguments point to.
    Embedded,
}

/// A prototype as data.
#[derive(Clone, Copy, Debug)]
pub struct Prototype {
    /// The function's symbol.
    pub name: &'static str,
    /// Which queues a call concerns.
    pub scope: Scope,
    /// Names of the stream arguments.
    pub streams: &'static [&'static str],
    /// Names and types of the arguments.
    pub arguments: &'static [(&'static str, &'static str)],
    /// Type of the result.
    pub result: &'static str,
}

macro_rules! scope {
    (none) => {
        Scope::None
    };
    (own) => {
        Scope::Own
    };
    (default) => {
        Scope::Default
    };
    (all) => {
        Scope::All
    };
    (embedded) => {
        Scope::Embedded
    };
}

macro_rules! types {
    ($([$scope:ident $($stream:ident)*] fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`")]
        pub type $name = unsafe extern "C" fn($($argument: $type),*) -> $result;
    )*};
}

macro_rules! data {
    ($([$scope:ident $($stream:ident)*] fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        &[$(Prototype {
            name: stringify!($name),
            scope: scope!($scope),
            streams: &[$(stringify!($stream)),*],
            arguments: &[$((stringify!($argument), stringify!($type))),*],
            result: stringify!($result),
        }),*]
    };
}

direct_prototypes!(types);
drain_prototypes!(types);
embedded_prototypes!(types);
translate_prototypes!(types);
forward_prototypes!(types);

/// Prototypes of [`Rule::Direct`](crate::table::Rule::Direct) whose streams are arguments.
pub const DIRECT: &[Prototype] = direct_prototypes!(data);
/// Prototypes of [`Rule::Drain`](crate::table::Rule::Drain).
pub const DRAIN: &[Prototype] = drain_prototypes!(data);
/// Prototypes of [`Rule::Direct`](crate::table::Rule::Direct) whose streams are inside structures.
pub const EMBEDDED: &[Prototype] = embedded_prototypes!(data);
/// Prototypes of [`Rule::Translate`](crate::table::Rule::Translate).
pub const TRANSLATE: &[Prototype] = translate_prototypes!(data);
/// Prototypes of some functions of [`Rule::Forward`](crate::table::Rule::Forward).
pub const FORWARD: &[Prototype] = forward_prototypes!(data);

#[cfg(test)]
mod tests;
