//! Errors as values. The crate passes on the codes of the hardware API and invents none.

use std::num::NonZeroU32;

/// An error code of the hardware API, as the real call returned it. The crate does not interpret it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HwError(NonZeroU32);

impl HwError {
    /// The error of a failure that came without a code.
    pub const UNKNOWN: Self = Self(NonZeroU32::MIN.saturating_add(998));

    /// Returns the error with this code; none for zero, which means success.
    pub fn from_code(code: u32) -> Option<Self> {
        NonZeroU32::new(code).map(Self)
    }

    /// Returns the code of the hardware API.
    pub fn code(self) -> u32 {
        self.0.get()
    }
}

/// The result of a call to the hardware API. It has the size of one `u32`, so that passing it on costs
/// nothing.
pub type HwResult = Result<(), HwError>;

/// Converts a status code of the hardware API (zero is success) into a result.
#[inline]
pub fn hw_result(code: u32) -> HwResult {
    HwError::from_code(code).map_or(Ok(()), Err)
}

/// The reason why a command did not reach the hardware queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitError {
    /// The XQueue has been destroyed. The caller may use the hardware queue directly.
    Closed,
    /// The command was discarded by [`crate::XQueue::resume`] with [`crate::ResumeFlags::DROP_COMMANDS`].
    Dropped,
}
