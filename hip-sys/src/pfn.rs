//! Function-pointer types of HIP functions, and their prototypes as data and as macros.
//!
//! Every function that the shim intercepts, and every function that our own programs call, has one type of
//! the same name. A mangled twin and a `_spt` twin have types of their own, equal to the plain function's.
//!
//! Five macros contain the prototypes: [`direct_prototypes!`](crate::direct_prototypes),
//! [`drain_prototypes!`](crate::drain_prototypes), [`embedded_prototypes!`](crate::embedded_prototypes),
//! [`translate_prototypes!`](crate::translate_prototypes) and
//! [`forward_prototypes!`](crate::forward_prototypes). Each takes the name of a macro in scope and calls it
//! with all rows, so that a crate can create one function for each row. A row is
//!
//! ```text
//! [scope stream...] fn name(argument: type, ...) -> type;
//! ```
//!
//! where `scope` names the queues that the call concerns ([`Scope`]) and `stream...` names every argument
//! that is a stream handle, in which the per-thread stream must be translated. The types are those of
//! [`crate::types`] and `core::ffi`. The place that uses the macro must import them.

#![allow(non_camel_case_types)]

use core::ffi::*;

use crate::types::*;

#[macro_use]
mod direct;
#[macro_use]
mod drain;
#[macro_use]
mod forward;

/// The queues that a call concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// None.
    None,
    /// The queues of the stream arguments.
    Own,
    /// The queue of the default stream: for a `_spt` twin the calling thread's own stream, else the default
    /// stream of the current device with all streams that it waits for.
    Default,
    /// All queues of the process.
    All,
    /// The queues of streams inside the structures that the arguments point to.
    Embedded,
}

/// A prototype as data.
#[derive(Clone, Copy, Debug)]
pub struct Prototype {
    /// Symbol of the function.
    pub name: &'static str,
    /// The queues that a call concerns.
    pub scope: Scope,
    /// Names of the stream arguments.
    pub streams: &'static [&'static str],
    /// Names and types of the arguments.
    pub arguments: &'static [(&'static str, &'static str)],
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
        }),*]
    };
}

direct_prototypes!(types);
drain_prototypes!(types);
embedded_prototypes!(types);
translate_prototypes!(types);
forward_prototypes!(types);

/// Prototypes of the rule `Direct` of the crate `interception`, for functions whose streams are arguments.
pub const DIRECT: &[Prototype] = direct_prototypes!(data);
/// Prototypes of the rule `Drain`.
pub const DRAIN: &[Prototype] = drain_prototypes!(data);
/// Prototypes of the rule `Direct`, for functions whose streams are inside structures.
pub const EMBEDDED: &[Prototype] = embedded_prototypes!(data);
/// Prototypes of the rule `Translate`.
pub const TRANSLATE: &[Prototype] = translate_prototypes!(data);
/// Prototypes of some functions of the rule `Forward`.
pub const FORWARD: &[Prototype] = forward_prototypes!(data);

#[cfg(test)]
mod tests;
