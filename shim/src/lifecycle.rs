//! The life cycle of the library in one process: one word, one page, no lock.
//!
//! ```text
//!            first hook                                exit handlers begin
//!   FRESH ----------------> STARTING ----> READY -----------------------> EXITING
//!     ^                          |
//!     |  (a forked child)        '-------> DISABLED   XSCHED_DISABLE, or no memory for the page
//! ```
//!
//! Only READY schedules and counts; in every other state a hook forwards the call to the runtime. The word
//! lies in a page that the kernel wipes in a forked child (`MADV_WIPEONFORK`). A child therefore reads FRESH
//! before it reads anything that the parent's threads may have left half done, however it was created, and no
//! fork handler has to run. Nothing that the parent built is used, except the addresses of the runtime's
//! functions, which are valid in the child as well. The child forwards until it makes a call that uses a
//! device (see [`uses_device`]); then it starts like any process, in the same page. exec starts from nothing.
//!
//! Only the thread that entered STARTING leaves it. Others forward meanwhile: waiting could hang a program
//! whose threads wait for each other inside a constructor, where the dynamic linker's lock is held. A function of the C
//! interface has nothing to forward to, so it waits, but not for long ([`await_start`]).

use interception::Class;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::time::{Duration, Instant};

const FRESH: u8 = 0;
const STARTING: u8 = 1;
const READY: u8 = 2;
const DISABLED: u8 = 3;
const EXITING: u8 = 4;

/// The word before there is a page. Never written.
static BEFORE_THE_PAGE: AtomicU8 = AtomicU8::new(FRESH);
/// The word if there cannot be a page. Never written.
static WITHOUT_A_PAGE: AtomicU8 = AtomicU8::new(DISABLED);

/// The word in force.
static WORD: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const BEFORE_THE_PAGE).cast_mut());

#[inline(always)]
fn word() -> &'static AtomicU8 {
    // SAFETY: the pointer leads to one of the two statics above or to the page, which is never unmapped.
    unsafe { &*WORD.load(Ordering::Acquire) }
}

/// Returns true if calls are to be counted and scheduled.
#[inline(always)]
pub(crate) fn is_ready() -> bool {
    word().load(Ordering::Acquire) == READY
}

/// Returns true if no call has started the library in this process yet.
pub(crate) fn is_fresh() -> bool {
    word().load(Ordering::Acquire) == FRESH
}

/// Returns true if a call of this class uses a device, and does not only tidy up or ask.
pub(crate) fn uses_device(class: Class) -> bool {
    match class {
        Class::Launch
        | Class::Copy
        | Class::Memset
        | Class::Event
        | Class::Sync
        | Class::Capture
        | Class::Graph
        | Class::Lifecycle => true,
        Class::Memory | Class::Query | Class::Resolve | Class::Error | Class::Passthrough => false,
    }
}

/// Enters STARTING if a call of this class starts the library. On true the caller has to call
/// [`finish_start`].
pub(crate) fn begin_start(class: Class) -> bool {
    if !is_fresh() {
        return false;
    }
    // If the page is not new, the process inherited it, or another thread is about to start.
    let new = provide_page();
    (new || uses_device(class)) && change(FRESH, STARTING)
}

/// Waits while another thread is in STARTING, at most for `limit`.
#[cold]
pub(crate) fn await_start(limit: Duration) {
    let begin = Instant::now();
    // No event: the thread that starts may be inside a constructor, and the word lies in a page that a fork wipes.
    while word().load(Ordering::Acquire) == STARTING && begin.elapsed() < limit {
        std::thread::yield_now();
    }
}

/// Leaves STARTING: the library is in force, or disabled.
pub(crate) fn finish_start(enabled: bool) {
    word().store(if enabled { READY } else { DISABLED }, Ordering::Release);
}

pub(crate) fn disable() {
    change(READY, DISABLED);
}

/// Enters EXITING. Returns false if the library was not in force, as in a forked child that has not started.
pub(crate) fn begin_exit() -> bool {
    change(READY, EXITING)
}

fn change(from: u8, to: u8) -> bool {
    word().compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Makes `WORD` lead to the page. Returns true if the page was made here.
fn provide_page() -> bool {
    let before = (&raw const BEFORE_THE_PAGE).cast_mut();
    if WORD.load(Ordering::Acquire) != before {
        return false;
    }
    let length = size_of::<AtomicU8>();
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists; the
    // kernel rounds the length up to a page.
    let (page, wiped) = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let page =
            libc::mmap(ptr::null_mut(), length, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        let mapped = page != libc::MAP_FAILED;
        (page, mapped && libc::madvise(page, length, libc::MADV_WIPEONFORK) == 0)
    };
    // A page whose content a child would inherit is worse than no page. Without one every call is forwarded.
    let new = if wiped { page.cast() } else { (&raw const WITHOUT_A_PAGE).cast_mut() };
    let ours = WORD.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if page != libc::MAP_FAILED && !(ours && wiped) {
        // SAFETY: the mapping was made above, and its address was not stored anywhere.
        unsafe { libc::munmap(page, length) };
    }
    ours && wiped
}

/// Returns true while the library has not finished its start.
#[cfg(test)]
pub(crate) fn is_unstarted() -> bool {
    [FRESH, STARTING].contains(&word().load(Ordering::Acquire))
}
