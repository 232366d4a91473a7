//! The life cycle of the library in one process: one word, one page, no lock.
//!
//! ```text
//!            first hook                                exit handlers begin
//!   FRESH ----------------> STARTING ----> READY -----------------------> EXITING
//!     ^                          |
//!     |  (a forked child)        '-------> DISABLED   XSCHED_DISABLE, or no memory for the page
//! ```
//!
//! Only READY schedules and counts; in every other state a hook hands the call to the runtime. The word lies in a page
//! of its own that the kernel wipes in a forked child (`MADV_WIPEONFORK`). A child therefore reads FRESH before it
//! reads anything else that the parent's threads may have left half done, however it was created, and no fork handler
//! has to run. What its parent built is never used, except the addresses of the runtime's functions, which are as valid
//! in the child: it forwards until it makes a call that uses a device
//! (see [`uses_device`]), and then starts like any process, in the same page. exec starts from nothing.
//!
//! STARTING is left by the thread that entered it. Others forward meanwhile: waiting for it could hang a program whose
//! threads wait for each other inside a constructor, where the dynamic linker's lock is held.

use crate::{environment, log, process, runtime, summary};
use hip_sys::table::Class;
use protocol::config::Config;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

pub(crate) const FRESH: u8 = 0;
const STARTING: u8 = 1;
const READY: u8 = 2;
const DISABLED: u8 = 3;
const EXITING: u8 = 4;

/// What the word is before there is a page. Never written.
static BEFORE_THE_PAGE: AtomicU8 = AtomicU8::new(FRESH);
/// What the word is if there cannot be a page. Never written.
static WITHOUT_A_PAGE: AtomicU8 = AtomicU8::new(DISABLED);

/// The word in force.
static WORD: AtomicPtr<AtomicU8> = AtomicPtr::new((&raw const BEFORE_THE_PAGE).cast_mut());

#[inline(always)]
fn word() -> &'static AtomicU8 {
    // SAFETY: the pointer leads to one of the two statics above or to the page, which is never unmapped.
    unsafe { &*WORD.load(Ordering::Acquire) }
}

/// Whether calls are to be counted and scheduled.
#[inline(always)]
pub(crate) fn is_ready() -> bool {
    word().load(Ordering::Acquire) == READY
}

/// Whether nothing has started the library in this process yet.
pub(crate) fn is_fresh() -> bool {
    word().load(Ordering::Acquire) == FRESH
}

/// Starts, if this is the call to start with, and says whether the library is ready.
#[cold]
pub(crate) fn ready_for(class: Class) -> bool {
    if word().load(Ordering::Acquire) == FRESH {
        let new = provide_page();
        // Without a new page this process inherited its word, or another thread is about to start.
        if (new || uses_device(class)) && enter_starting() {
            start();
        }
    }
    is_ready()
}

/// Whether a call of this class means that the process uses a device, not only that it tidies up or looks about.
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

fn enter_starting() -> bool {
    word().compare_exchange(FRESH, STARTING, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

/// Reads the configuration and says what is wrong with it. Runs once in a process, on the thread of the first hook.
fn start() {
    environment::refresh();
    SETTLED.store(false, Ordering::Relaxed);
    if environment::is_disabled() {
        word().store(DISABLED, Ordering::Release);
        return;
    }
    let (config, errors) = Config::read(environment::get, policies::registry::BUILT);
    if log::install(&config) {
        for error in &errors {
            tracing::warn!("{error}");
        }
    }
    summary::clear();
    process::begin(config);
    if log::is_enabled(protocol::config::LogLevel::Debug) {
        handle_exit();
    }
    word().store(READY, Ordering::Release);
    runtime::say_what_was_kept();
}

/// Whether it is decided what the environment says.
static SETTLED: AtomicBool = AtomicBool::new(false);

/// The process is about to use a device. Its environment counts as it is now: the library may have started before `main`,
/// when the program's kernels were registered, and programs set variables for themselves. Later changes do not count.
pub(crate) fn settle() {
    if SETTLED.load(Ordering::Relaxed) || SETTLED.swap(true, Ordering::Relaxed) || !environment::refresh() {
        return;
    }
    if environment::is_disabled() {
        let _ = word().compare_exchange(READY, DISABLED, Ordering::AcqRel, Ordering::Acquire);
        return;
    }
    let (config, errors) = Config::read(environment::get, policies::registry::BUILT);
    if process::base().is_none_or(|base| base.config().log_file != config.log_file) {
        log::aim(&config);
    }
    log::set_level(&config);
    for error in &errors {
        tracing::warn!("{error}");
    }
    process::configure(config);
    if log::is_enabled(protocol::config::LogLevel::Debug) {
        handle_exit();
    }
}

/// Sees to it that the end of the process is noticed before the runtime takes itself apart. Handlers run in the
/// reverse order of their registration, so this is called again once the runtime is at work.
pub(crate) fn handle_exit() {
    // SAFETY: the handler is a plain function that stays loaded, because nobody unloads a preloaded library.
    unsafe { libc::atexit(at_exit) };
}

extern "C" fn at_exit() {
    // In a forked child that has not started, the word is FRESH, and there is nothing to say.
    if word().compare_exchange(READY, EXITING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        process::end();
        summary::log();
    }
}

/// Makes `WORD` lead to the page, and says whether the page came into being here.
fn provide_page() -> bool {
    let before = (&raw const BEFORE_THE_PAGE).cast_mut();
    if WORD.load(Ordering::Acquire) != before {
        return false;
    }
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size_of::<AtomicU8>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    let wiped = page != libc::MAP_FAILED && {
        // SAFETY: the range is the mapping just made; the kernel rounds the length up to the page.
        unsafe { libc::madvise(page, size_of::<AtomicU8>(), libc::MADV_WIPEONFORK) == 0 }
    };
    // A page that a child would share in content is worse than no page: then every call is forwarded.
    let new = if wiped { page.cast() } else { (&raw const WITHOUT_A_PAGE).cast_mut() };
    let ours = WORD.compare_exchange(before, new, Ordering::AcqRel, Ordering::Acquire).is_ok();
    if page != libc::MAP_FAILED && !(ours && wiped) {
        // SAFETY: the mapping was made above and nobody else has its address.
        unsafe { libc::munmap(page, size_of::<AtomicU8>()) };
    }
    ours && wiped
}

/// The same for tests, which share one process: whoever starts it, the start is waited for.
#[cfg(test)]
pub(crate) fn starts_for(class: Class) -> bool {
    while !ready_for(class) && [FRESH, STARTING].contains(&word().load(Ordering::Acquire)) {
        std::thread::yield_now();
    }
    is_ready()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_finds_the_word_wiped_and_starts_only_with_the_device() {
        assert!(starts_for(Class::Resolve), "the first hook starts, whatever it is");
        assert!(is_ready());
        // SAFETY: the child runs only the code below, which takes no lock and ends it.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let fresh = !is_ready() && word().load(Ordering::Relaxed) == FRESH;
            let tidying = !ready_for(Class::Memory) && word().load(Ordering::Relaxed) == FRESH;
            let starts = ready_for(Class::Launch);
            let code = i32::from(!fresh) | i32::from(!tidying) << 1 | i32::from(!starts) << 2;
            // SAFETY: ends the child without running the test harness's handlers.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above, with a valid place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 0, "bits: not wiped, started to tidy up, did not start");
        assert!(is_ready(), "the parent is what it was");
    }
}
