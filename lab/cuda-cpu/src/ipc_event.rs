//! Interprocess events: two counters on a page of a memory file.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::abi::Answer;
use crate::arena::{self, PAGE};

/// The interval at which a wait polls the counter of another process.
const LOOK: Duration = Duration::from_micros(100);

/// The page of one event.
#[derive(Debug)]
pub struct SharedEvent {
    file: OwnedFd,
    page: usize,
}

impl SharedEvent {
    /// Makes an event that has no record.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM`, `OUT_OF_MEMORY`.
    pub fn new() -> Answer<SharedEvent> {
        SharedEvent::open(arena::memory_file(PAGE)?)
    }

    /// Opens the event in this file, whose length is at least a page.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub fn open(file: OwnedFd) -> Answer<SharedEvent> {
        let page = arena::map_file(&file, 0, PAGE, true)?;
        Ok(SharedEvent { file, page })
    }

    /// Returns its file's descriptor in this process.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn counters(&self) -> &[AtomicU64; 2] {
        // SAFETY: the page is mapped for as long as `self` lives, is aligned, and all processes access it
        // only by atomics.
        unsafe { &*(self.page as *const [AtomicU64; 2]) }
    }

    /// Counts a record and returns its number.
    pub fn record(&self) -> u64 {
        self.counters()[0].fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns the number of the latest record. 0: none.
    pub fn latest(&self) -> u64 {
        self.counters()[0].load(Ordering::Acquire)
    }

    /// Marks a record as reached by its stream.
    pub fn reach(&self, record: u64) {
        self.counters()[1].fetch_max(record, Ordering::AcqRel);
    }

    /// Returns true if this record was reached.
    pub fn reached(&self, record: u64) -> bool {
        self.counters()[1].load(Ordering::Acquire) >= record
    }

    /// Waits until this record is reached.
    pub fn wait(&self, record: u64) {
        while !self.reached(record) {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        // SAFETY: this event made the mapping, and references to the counters borrow the event, so none
        // exists any more.
        unsafe { arena::unmap(self.page, PAGE) };
    }
}
