//! What requests about queues came to.

use std::time::{Duration, Instant};

use crate::kernel::Errno;

/// What became of a hold or a release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Queues that are off the hardware now (hold) or wanted by us no more (release), known for sure.
    pub queues: usize,
    /// Queues that are not known to be as we want them, because a request failed: [`Registry::settle`](crate::Registry::settle) goes on.
    pub unsettled: usize,
    /// Requests made.
    pub requests: usize,
    /// The last error; a time-out of the driver's stays.
    pub error: Option<Errno>,
    /// When the last one was made.
    pub asked_at: Option<Instant>,
    /// How long the requests took together.
    pub took: Duration,
}

impl Outcome {
    /// Makes a request and notes its result.
    pub fn request<T>(&mut self, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let begin = Instant::now();
        let result = make();
        self.took += begin.elapsed();
        self.requests += 1;
        self.asked_at = Some(begin);
        // A time-out is what everything after it comes from.
        if let Err(errno) = &result
            && self.error != Some(Errno(libc::ETIME))
        {
            self.error = Some(*errno);
        }
        result
    }
}
