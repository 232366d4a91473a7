//! The memory of deferred commands.
//!
//! If the submitting thread allocated a command and the worker freed it, both would contend for the same lock
//! of the allocator at every launch. The worker therefore returns the memory of a launched command to its
//! queue, and the next submit takes it from there ([`crate::XQueue::spare`]).

use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::hw::HwCommand;

/// The size of a slot in bytes. A larger command has an allocation of its own.
const BYTES: usize = 448;

/// Memory for one command. Aligned so that no two threads use one cache line.
#[repr(C, align(64))]
pub(crate) struct Slot(MaybeUninit<[u8; BYTES]>);

/// Empty memory for one command.
pub struct CommandMemory(NonNull<Slot>);

// SAFETY: it owns its slot, which has no content that could belong to a thread.
unsafe impl Send for CommandMemory {}

impl CommandMemory {
    /// Allocates fresh memory. [`crate::XQueue::spare`] reuses that of an earlier command.
    #[allow(clippy::new_without_default, reason = "a fresh allocation is no default")]
    pub fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(Slot(MaybeUninit::uninit())))))
    }

    /// Gives the slot away as a pointer, for an atomic word.
    pub(crate) fn into_raw(self) -> *mut Slot {
        ManuallyDrop::new(self).0.as_ptr()
    }

    /// Takes back the slot from its pointer.
    ///
    /// # Safety
    ///
    /// `raw` is null, or comes from [`CommandMemory::into_raw`] and is passed to this function once.
    pub(crate) unsafe fn from_raw(raw: *mut Slot) -> Option<Self> {
        NonNull::new(raw).map(Self)
    }

    /// Moves a command into this memory, or into an allocation of its own if it does not fit.
    #[inline]
    pub fn put<C: HwCommand>(self, command: C) -> CommandBox<C> {
        if size_of::<C>() > size_of::<Slot>() || align_of::<C>() > align_of::<Slot>() {
            return CommandBox::from(Box::new(command));
        }
        let slot = ManuallyDrop::new(self).0.cast::<C>();
        // SAFETY: the slot is large enough and aligned by the check above, and `self` owned it.
        unsafe { slot.write(command) };
        CommandBox(Storage::Slot(Filled(slot)))
    }
}

impl Drop for CommandMemory {
    fn drop(&mut self) {
        // SAFETY: `new` made the slot from a box, and this value is its only owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl fmt::Debug for CommandMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CommandMemory")
    }
}

/// A slot with a command; owns both.
struct Filled<C: ?Sized>(NonNull<C>);

// SAFETY: it owns the command, which may be sent.
unsafe impl<C: ?Sized + Send> Send for Filled<C> {}

impl<C: ?Sized> Filled<C> {
    /// Drops the command and returns the memory.
    fn empty(self) -> CommandMemory {
        let command = ManuallyDrop::new(self).0;
        let spare = CommandMemory(command.cast());
        // SAFETY: `self` owned the command and gave it up. If its destructor panics `spare` frees the memory.
        unsafe { command.drop_in_place() };
        spare
    }
}

impl<C> Filled<C> {
    fn into_inner(self) -> C {
        let command = ManuallyDrop::new(self).0;
        let _spare = CommandMemory(command.cast());
        // SAFETY: `self` owned the command and gave it up; `_spare` frees the memory without dropping it.
        unsafe { command.read() }
    }
}

impl<C: ?Sized> Drop for Filled<C> {
    fn drop(&mut self) {
        let _spare = CommandMemory(self.0.cast());
        // SAFETY: `self` owns the command and is never used again.
        unsafe { self.0.drop_in_place() };
    }
}

enum Storage<C: ?Sized> {
    Slot(Filled<C>),
    Own(Box<C>),
}

/// An owned command, in memory that its queue may reuse.
pub struct CommandBox<C: ?Sized = dyn HwCommand>(Storage<C>);

impl<C: HwCommand + 'static> CommandBox<C> {
    #[inline]
    fn erase(self) -> CommandBox {
        CommandBox(match self.0 {
            Storage::Slot(filled) => {
                Storage::Slot(Filled(ManuallyDrop::new(filled).0 as NonNull<dyn HwCommand>))
            }
            Storage::Own(command) => Storage::Own(command),
        })
    }
}

impl<C> CommandBox<C> {
    /// Moves the command out.
    pub fn into_inner(self) -> C {
        match self.0 {
            Storage::Slot(filled) => filled.into_inner(),
            Storage::Own(command) => *command,
        }
    }
}

impl<C: ?Sized> CommandBox<C> {
    /// Drops the command and returns its memory, if that is a slot.
    pub(crate) fn empty(self) -> Option<CommandMemory> {
        match self.0 {
            Storage::Slot(filled) => Some(filled.empty()),
            Storage::Own(_) => None,
        }
    }
}

impl<C> From<Box<C>> for CommandBox<C> {
    fn from(command: Box<C>) -> Self {
        Self(Storage::Own(command))
    }
}

impl From<Box<dyn HwCommand>> for CommandBox {
    fn from(command: Box<dyn HwCommand>) -> Self {
        Self(Storage::Own(command))
    }
}

impl<C: HwCommand + 'static> From<Box<C>> for CommandBox {
    fn from(command: Box<C>) -> Self {
        Self(Storage::Own(command))
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
            // SAFETY: `filled` owns a valid command as long as it lives.
            Storage::Slot(filled) => unsafe { filled.0.as_ref() },
            Storage::Own(command) => command,
        }
    }
}

impl<C: ?Sized> DerefMut for CommandBox<C> {
    fn deref_mut(&mut self) -> &mut C {
        match &mut self.0 {
            // SAFETY: `filled` owns a valid command as long as it lives, and is borrowed exclusively.
            Storage::Slot(filled) => unsafe { filled.0.as_mut() },
            Storage::Own(command) => command,
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

    /// `N` bytes, and a reference count that shows the drops.
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
        CommandMemory::new().put(Sized { bytes: [7; N], _counted: counted.clone() })
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
    fn command_in_any_memory_is_dropped_once() {
        each::<0>(true);
        each::<100>(true);
        each::<{ BYTES - 8 }>(true);
        each::<{ BYTES - 7 }>(false);
        each::<5000>(false);
    }

    #[test]
    fn memory_of_a_dropped_command_is_reused() {
        let counted = Arc::new(());
        let first = put::<100>(&counted);
        let address = (&raw const *first).addr();
        let again = first
            .empty()
            .expect("it was in a slot")
            .put(Sized { bytes: [1; 200], _counted: counted.clone() });
        assert_eq!((&raw const *again).addr(), address);
        // SAFETY: the pointer comes from `into_raw` and is passed on once.
        let raw = unsafe { CommandMemory::from_raw(CommandMemory::new().into_raw()) };
        assert!(raw.is_some());
        // SAFETY: null is permitted.
        assert!(unsafe { CommandMemory::from_raw(std::ptr::null_mut()) }.is_none());
    }
}
