//! What can go wrong, as values. The crate invents no code of the hardware API: it carries them.

use std::fmt;
use std::num::NonZeroU32;

/// An error code of the hardware API, as the real call returned it. The crate never looks inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HwError(NonZeroU32);

impl HwError {
    /// For a failure that came without a code.
    pub const UNKNOWN: Self = Self(NonZeroU32::MIN.saturating_add(998));

    /// The error with this code; zero means success everywhere and is none.
    pub fn from_code(code: u32) -> Option<Self> {
        NonZeroU32::new(code).map(Self)
    }

    /// The code as the hardware API knows it.
    pub fn code(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for HwError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hardware error {}", self.0)
    }
}

impl std::error::Error for HwError {}

/// Result of a call to the hardware API: the size of one `u32`, so that passing it on costs nothing.
pub type HwResult = Result<(), HwError>;

/// Turns a status word of the hardware API (zero is success) into a result.
#[inline]
pub fn hw_result(code: u32) -> HwResult {
    match HwError::from_code(code) {
        None => Ok(()),
        Some(error) => Err(error),
    }
}

/// Why a command did not reach the hardware queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// The XQueue has been destroyed; the caller uses the hardware queue, if at all, on its own.
    Closed,
    /// The command was discarded by [`crate::XQueue::resume`] with [`crate::ResumeFlags::DROP_COMMANDS`].
    Dropped,
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the XQueue has been destroyed",
            Self::Dropped => "the command was dropped",
        })
    }
}

impl std::error::Error for SubmitError {}
