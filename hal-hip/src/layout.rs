//! The argument layout of a kernel, and the reasons why none is known. Plain values: no parsing, no memory of
//! the program.

use std::fmt;

/// The most bytes of arguments that are copied for a launch.
pub const MAX_BYTES: usize = 4096;

/// The position of one argument in the kernel's argument segment, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArgSlot {
    /// The distance from the start of the segment.
    pub offset: u32,
    /// The number of bytes that the runtime reads at the caller's pointer.
    pub size: u32,
}

/// The arguments that a caller passes to a kernel, in order, without the hidden ones that the runtime adds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    args: Box<[ArgSlot]>,
}

impl Layout {
    /// Creates a layout of these slots in a segment of this size. Fails unless they are in ascending order,
    /// do not overlap, lie in the segment and end within [`MAX_BYTES`].
    pub fn new(args: impl Into<Box<[ArgSlot]>>, kernarg_size: u32) -> Result<Self, Unknown> {
        let args = args.into();
        let mut end = 0;
        for slot in &args {
            if slot.offset < end {
                return Err(Unknown::Malformed);
            }
            end = slot.offset.checked_add(slot.size).ok_or(Unknown::Malformed)?;
        }
        if end > kernarg_size {
            return Err(Unknown::Malformed);
        }
        if end as usize > MAX_BYTES {
            return Err(Unknown::TooLarge);
        }
        Ok(Self { args })
    }

    /// Returns the slots, in the order of the caller's arguments.
    pub fn args(&self) -> &[ArgSlot] {
        &self.args
    }

    /// Returns the end of the caller's last argument; at most [`MAX_BYTES`].
    pub fn bytes(&self) -> usize {
        self.args.last().map_or(0, |last| (last.offset + last.size) as usize)
    }
}

/// A kernel whose layout is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The name in the code object, mangled where the language mangles names.
    pub name: Box<str>,
    /// The layout of its arguments.
    pub layout: Layout,
    /// The most threads in a block (launch bounds); the runtime refuses more. `u32::MAX` if the code states
    /// none.
    pub threads: u32,
}

impl Kernel {
    /// Returns true if a launch of one is valid for the other.
    pub(crate) fn is_launched_as(&self, other: &Self) -> bool {
        self.layout.args() == other.layout.args() && self.threads == other.threads
    }
}

/// The reason why no layout is known. The launch is then made with the caller's own arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// The function is not registered, or its module was not loaded through an intercepted function.
    NotRegistered,
    /// The code is in an unknown format (SPIR-V, for example, which the runtime compiles itself).
    UnknownFormat,
    /// The code is a compressed bundle.
    Compressed,
    /// The code's headers or metadata contradict themselves.
    Malformed,
    /// The code object has no metadata of the supported kind.
    NoMetadata,
    /// The metadata has no kernel of this name.
    NoSuchKernel,
    /// The metadata has several kernels of this name.
    Ambiguous,
    /// The code for different processors lays the arguments out differently, and the runtime's choice is not
    /// known.
    EntriesDiffer,
    /// The code has no machine code for the device. (It may have SPIR-V, which the runtime compiles itself.)
    NoEntry,
    /// The metadata lists no arguments, though the kernel has an argument segment.
    NoArguments,
    /// An argument is of a kind that the runtime does not copy byte by byte (image, sampler, pipe, queue).
    ValueKind,
    /// The arguments take more than [`MAX_BYTES`].
    TooLarge,
    /// The file of the code could not be read.
    Unreadable,
    /// The file of the code changed while the runtime loaded it.
    Changed,
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRegistered => "the kernel was not registered",
            Self::UnknownFormat => "the code is in an unknown format",
            Self::Compressed => "the code is a compressed bundle",
            Self::Malformed => "the code object is malformed",
            Self::NoMetadata => "the code object has no kernel metadata",
            Self::NoSuchKernel => "the code object has no kernel of this name",
            Self::Ambiguous => "the code object has several kernels of this name",
            Self::EntriesDiffer => "the argument layout differs between processors",
            Self::NoEntry => "the code has no machine code for the device",
            Self::NoArguments => "the code object does not describe the kernel's arguments",
            Self::ValueKind => "an argument is of a kind that is not passed by its bytes",
            Self::TooLarge => "the arguments are larger than 4096 bytes",
            Self::Unreadable => "the file of the code could not be read",
            Self::Changed => "the file of the code changed while it was loaded",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(list: &[(u32, u32)]) -> Vec<ArgSlot> {
        list.iter().map(|&(offset, size)| ArgSlot { offset, size }).collect()
    }

    #[test]
    fn layout_of_valid_slots_has_their_bytes() {
        let layout = Layout::new(slots(&[(0, 4), (8, 8), (16, 3)]), 64).unwrap();
        assert_eq!((layout.bytes(), layout.args().len()), (19, 3));
        assert_eq!(Layout::new(slots(&[]), 0).unwrap().bytes(), 0);
        assert_eq!(Layout::new(slots(&[(0, 4096)]), 4096).unwrap().bytes(), MAX_BYTES);
    }

    #[test]
    fn layout_of_contradictory_slots_is_refused() {
        for (list, size, reason) in [
            (&[(0, 8), (4, 4)][..], 64, Unknown::Malformed),
            (&[(8, 8), (0, 4)][..], 64, Unknown::Malformed),
            (&[(0, 8), (8, 8)][..], 15, Unknown::Malformed),
            (&[(0, 8), (u32::MAX, 8)][..], u32::MAX, Unknown::Malformed),
            (&[(0, 4097)][..], 8192, Unknown::TooLarge),
            (&[(4096, 1)][..], 8192, Unknown::TooLarge),
        ] {
            assert_eq!(Layout::new(slots(list), size), Err(reason), "{list:?} in {size}");
        }
    }
}
