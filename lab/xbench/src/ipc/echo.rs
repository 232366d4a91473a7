//! The same way without a server: a thread that sleeps as the server does, and stores a word when it is notified. It tells
//! what this machine takes to wake any thread on another processor.

use anyhow::{Context, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;

/// A count that ends the thread.
const END: u64 = u64::MAX;

#[derive(Debug)]
struct Words {
    asked: AtomicU64,
    answered: AtomicU64,
    eventfd: OwnedFd,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Echo {
    words: Arc<Words>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    /// Starts the thread, at the server's priority if this process may.
    pub(super) fn start() -> Result<Self> {
        let eventfd =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("no descriptor is left")?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).context("no descriptor is left")?;
        // Edge-triggered and never read, like the server's.
        epoll::add(&epoll, &eventfd, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
        let words = Arc::new(Words { asked: AtomicU64::new(0), answered: AtomicU64::new(0), eventfd });
        let own = words.clone();
        let thread = std::thread::spawn(move || {
            let priority = libc::sched_param { sched_priority: 1 };
            // SAFETY: the call reads `priority`, and 0 means this thread.
            unsafe {
                libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &raw const priority)
            };
            let mut events = Vec::with_capacity(1);
            loop {
                events.clear();
                // A failure, such as an interruption by a signal, leads to another look.
                let _ = epoll::wait(&epoll, spare_capacity(&mut events), None);
                let asked = own.asked.load(SeqCst);
                if asked == END {
                    return;
                }
                own.answered.store(asked, SeqCst);
            }
        });
        Ok(Self { words, thread: Some(thread) })
    }

    /// Notifies the thread.
    pub(super) fn ask(&self) -> Result<()> {
        self.words.asked.fetch_add(1, SeqCst);
        self.notify()
    }

    /// Returns true if the thread has answered.
    pub(super) fn has_answered(&self) -> bool {
        self.words.answered.load(SeqCst) == self.words.asked.load(SeqCst)
    }

    fn notify(&self) -> Result<()> {
        rustix::io::write(&self.words.eventfd, &1_u64.to_ne_bytes()).context("cannot notify a thread")?;
        Ok(())
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.words.asked.store(END, SeqCst);
        if self.notify().is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_is_answered_and_the_thread_ends() {
        let echo = Echo::start().unwrap();
        for _ in 0..3 {
            echo.ask().unwrap();
            while !echo.has_answered() {
                std::thread::yield_now();
            }
        }
        let words = Arc::downgrade(&echo.words);
        drop(echo);
        assert_eq!(words.strong_count(), 0);
    }
}
