//! The outcome of requests about queues.

use std::time::{Duration, Instant};

use crate::kernel::Errno;

/// The outcome of an eviction or a restoration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number of queues whose state is known to be the wanted one: off the hardware, or not evicted by us
    /// any more.
    pub queues: usize,
    /// The number of queues whose state is unknown because a request failed; `Registry::reconcile` sends it
    /// again.
    pub unsettled: usize,
    /// The number of requests made.
    pub requests: usize,
    /// The last error. A time-out of the driver is kept, because the errors after it follow from it.
    pub error: Option<Errno>,
    /// The time at which the last request was made.
    pub asked_at: Option<Instant>,
    /// The duration of all requests together.
    pub took: Duration,
}

impl Outcome {
    /// Makes a request and records its result.
    pub fn request<T>(&mut self, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let begin = Instant::now();
        let result = make();
        self.took += begin.elapsed();
        self.requests += 1;
        self.asked_at = Some(begin);
        if let Err(errno) = &result
            && self.error != Some(Errno(libc::ETIME))
        {
            self.error = Some(*errno);
        }
        result
    }
}
