//! Memory of deferred commands.
//!
//! The submitting thread allocates a command and the worker frees it, so both take the same lock of the allocator at every
//! launch. The worker therefore returns the memory of a launched command to its queue, and the next submit takes it from
//! there ([`crate::XQueue::spare`]).

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::hw::HwCommand;

/// Bytes for one command. A larger one has an allocation of its own.
const BYTES: usize = 448;

/// Memory for one command. Aligned so that no two threads use one line of the cache.
#[repr(C, align(64))]
pub(crate) struct Slot(MaybeUninit<[u8; BYTES]>);

/// Memory for one command, empty.
pub struct Spare(NonNull<Slot>);

// SAFETY: it owns memory without content.
unsafe impl Send for Spare {}

impl Spare {
    /// Allocates fresh memory. [`crate::XQueue::spare`] reuses that of an earlier command.
    #[allow(clippy::new_without_default, reason = "nothing about it is a default")]
    pub fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(Slot(MaybeUninit::uninit())))))
    }

    /// For an atomic word.
    pub(crate) fn into_raw(self) -> *mut Slot {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// # Safety
    ///
    /// `raw` is null, or from [`Spare::into_raw`] and given to nobody else.
    pub(crate) unsafe fn from_raw(raw: *mut Slot) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// Puts a command here.
    #[inline]
    pub fn put<C: HwCommand>(self, command: C) -> CommandBox<C> {
        if size_of::<C>() > size_of::<Slot>() || align_of::<C>() > align_of::<Slot>() {
            return CommandBox::from(Box::new(command));
        }
        let place = ManuallyDrop::new(self).0.cast::<C>();
        // SAFETY: the slot is large enough and aligned, as was just seen, and nobody else has it.
        unsafe { place.write(command) };
        CommandBox(Place::Slot(Filled(place)))
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: `new` made the slot from a box, and this value is its only owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl fmt::Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spare")
    }
}

/// A slot with a command, both owned.
struct Filled<C: ?Sized>(NonNull<C>);

// SAFETY: it owns the command.
unsafe impl<C: ?Sized + Send> Send for Filled<C> {}

impl<C: ?Sized> Filled<C> {
    /// The memory, once the command is dropped.
    fn empty(self) -> Spare {
        let command = ManuallyDrop::new(self).0;
        let spare = Spare(command.cast());
        // SAFETY: the command is there, and nobody else has it. If its destructor panics its memory is freed.
        unsafe { command.drop_in_place() };
        spare
    }
}

impl<C> Filled<C> {
    fn into_inner(self) -> C {
        let command = ManuallyDrop::new(self).0;
        let _spare = Spare(command.cast());
        // SAFETY: the command is there, nobody else has it, and its memory is freed without dropping it.
        unsafe { command.read() }
    }
}

impl<C: ?Sized> Drop for Filled<C> {
    fn drop(&mut self) {
        let _spare = Spare(self.0.cast());
        // SAFETY: the command is there, and nobody uses it any more.
        unsafe { self.0.drop_in_place() };
    }
}

enum Place<C: ?Sized> {
    Slot(Filled<C>),
    Own(Box<C>),
}

/// An owned command, in memory that its queue may use again.
pub struct CommandBox<C: ?Sized = dyn HwCommand>(Place<C>);

impl<C: HwCommand + 'static> CommandBox<C> {
    /// The same, whatever kind of command it is.
    #[inline]
    fn erase(self) -> CommandBox {
        CommandBox(match self.0 {
            Place::Slot(filled) => Place::Slot(Filled(ManuallyDrop::new(filled).0 as NonNull<dyn HwCommand>)),
            Place::Own(command) => Place::Own(command),
        })
    }
}

impl<C> CommandBox<C> {
    /// The command by itself.
    pub fn into_inner(self) -> C {
        match self.0 {
            Place::Slot(filled) => filled.into_inner(),
            Place::Own(command) => *command,
        }
    }
}

impl<C: ?Sized> CommandBox<C> {
    /// Drops the command, and keeps its memory if others fit there.
    pub(crate) fn empty(self) -> Option<Spare> {
        match self.0 {
            Place::Slot(filled) => Some(filled.empty()),
            Place::Own(_) => None,
        }
    }
}

impl<C> From<Box<C>> for CommandBox<C> {
    fn from(command: Box<C>) -> Self {
        Self(Place::Own(command))
    }
}

impl From<Box<dyn HwCommand>> for CommandBox {
    fn from(command: Box<dyn HwCommand>) -> Self {
        Self(Place::Own(command))
    }
}

impl<C: HwCommand + 'static> From<Box<C>> for CommandBox {
    fn from(command: Box<C>) -> Self {
        Self(Place::Own(command))
    }
}

impl<C: HwCommand + 'static> From<CommandBox<C>> for CommandBox {
    #[inline]
    fn from(command: CommandBox<C>) -> Self {
        command.erase()
    }
}

impl<C: ?Sized> Deref for CommandBox<C> {
    type Target = C;

    fn deref(&self) -> &C {
        match &self.0 {
            // SAFETY: the command is there as long as this value.
            Place::Slot(filled) => unsafe { filled.0.as_ref() },
            Place::Own(command) => command,
        }
    }
}

impl<C: ?Sized> DerefMut for CommandBox<C> {
    fn deref_mut(&mut self) -> &mut C {
        match &mut self.0 {
            // SAFETY: the command is there as long as this value, which is borrowed as a whole.
            Place::Slot(filled) => unsafe { filled.0.as_mut() },
            Place::Own(command) => command,
        }
    }
}

impl<C: ?Sized + fmt::Debug> fmt::Debug for CommandBox<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::HwResult;
    use crate::hw::HwQueue;

    /// `N` bytes, and something that counts how often it is dropped.
    struct Sized<const N: usize> {
        bytes: [u8; N],
        _counted: Arc<()>,
    }

    impl<const N: usize> HwCommand for Sized<N> {
        fn launch(&mut self, _: &dyn HwQueue) -> HwResult {
            Ok(())
        }
        fn name(&self) -> &str {
            "sized"
        }
    }

    fn put<const N: usize>(counted: &Arc<()>) -> CommandBox<Sized<N>> {
        Spare::new().put(Sized { bytes: [7; N], _counted: counted.clone() })
    }

    fn each<const N: usize>(fits: bool) {
        let counted = Arc::new(());
        let mut one = put::<N>(&counted);
        assert_eq!(one.bytes, [7; N]);
        one.bytes.fill(8);
        assert_eq!(one.into_inner().bytes, [8; N]);
        assert_eq!(Arc::strong_count(&counted), 1);

        let erased: CommandBox = put::<N>(&counted).into();
        assert_eq!((erased.name(), Arc::strong_count(&counted)), ("sized", 2));
        assert_eq!(erased.empty().is_some(), fits);
        assert_eq!(Arc::strong_count(&counted), 1);

        drop::<CommandBox>(put::<N>(&counted).into());
        drop(put::<N>(&counted));
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn a_command_is_dropped_once_wherever_it_is() {
        each::<0>(true);
        each::<100>(true);
        each::<{ BYTES - 8 }>(true);
        each::<{ BYTES - 7 }>(false);
        each::<5000>(false);
    }

    #[test]
    fn memory_is_used_again() {
        let counted = Arc::new(());
        let first = put::<100>(&counted);
        let place = (&raw const *first).addr();
        let again = first
            .empty()
            .expect("it was in a slot")
            .put(Sized { bytes: [1; 200], _counted: counted.clone() });
        assert_eq!((&raw const *again).addr(), place);
        // SAFETY: what `into_raw` gave goes to nobody else.
        let raw = unsafe { Spare::from_raw(Spare::new().into_raw()) };
        assert!(raw.is_some());
        // SAFETY: null is none.
        assert!(unsafe { Spare::from_raw(std::ptr::null_mut()) }.is_none());
    }
}
