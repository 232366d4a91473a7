//! Events that other processes know: two counters on a page of a memory file.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::abi::Answer;
use crate::arena::{self, PAGE};

/// How often another process's counter is looked at.
const LOOK: Duration = Duration::from_micros(100);

/// The page of one event.
#[derive(Debug)]
pub struct SharedEvent {
    file: OwnedFd,
    page: usize,
}

impl SharedEvent {
    /// Makes an event that was never recorded.
    ///
    /// # Errors
    /// `OPERATING_SYSTEM`, `OUT_OF_MEMORY`.
    pub fn new() -> Answer<SharedEvent> {
        SharedEvent::open(arena::memory_file(PAGE)?)
    }

    /// Opens the event in this file, which has a page.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY`.
    pub fn open(file: OwnedFd) -> Answer<SharedEvent> {
        let page = arena::map_file(&file, 0, PAGE, true)?;
        Ok(SharedEvent { file, page })
    }

    /// Its file's descriptor in this process.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    fn counters(&self) -> &[AtomicU64; 2] {
        // SAFETY: the page is mapped while this lives, and all processes use it by atomics only.
        unsafe { &*(self.page as *const [AtomicU64; 2]) }
    }

    /// Counts a record and returns its number.
    pub fn record(&self) -> u64 {
        self.counters()[0].fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the latest record. 0: none.
    pub fn latest(&self) -> u64 {
        self.counters()[0].load(Ordering::Acquire)
    }

    /// Notes that a record's turn in its stream has come.
    pub fn reach(&self, record: u64) {
        self.counters()[1].fetch_max(record, Ordering::AcqRel);
    }

    /// True if this record was reached.
    pub fn reached(&self, record: u64) -> bool {
        self.counters()[1].load(Ordering::Acquire) >= record
    }

    /// Returns when this record was reached.
    pub fn wait(&self, record: u64) {
        while !self.reached(record) {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        // SAFETY: the page is this event's own mapping, and references to it have ended.
        unsafe { arena::unmap(self.page, PAGE) };
    }
}
