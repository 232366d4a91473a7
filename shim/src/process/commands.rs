//! The commands that the program has made by the C interface (`HwCommandCreateCallback`), by their handles.

use std::collections::{HashMap, VecDeque};
use std::ffi::{c_int, c_void};
use xqueue::{QueueId, Ticket};

/// The most submitted commands whose tickets are kept.
const SUBMITTED: usize = 4_096;

/// A function of the program that launches a command. It gets the handle of the hardware queue and its data, and returns an
/// `XResult`.
pub(crate) type LaunchCallback = unsafe extern "C" fn(u64, *mut c_void) -> c_int;

/// A command: a function of the program with its data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Callback {
    pub(crate) launch: LaunchCallback,
    pub(crate) data: *mut c_void,
}

// SAFETY: the C interface says that the function may be called on any thread, with this data.
unsafe impl Send for Callback {}

/// The position of a submitted command in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The command has this ticket.
    Ticket(QueueId, Ticket),
    /// It was submitted before the last [`SUBMITTED`] ones.
    Earlier,
}

/// The commands of the process. No handle is used twice.
#[derive(Debug, Default)]
pub(crate) struct Commands {
    last: u64,
    made: HashMap<u64, Callback>,
    submitted: VecDeque<(u64, QueueId, Ticket)>,
}

impl Commands {
    /// Adds a command. Returns its handle.
    pub(crate) fn add(&mut self, callback: Callback) -> u64 {
        self.last += 1;
        self.made.insert(self.last, callback);
        self.last
    }

    /// Returns a command that is not submitted.
    pub(crate) fn get(&self, handle: u64) -> Option<Callback> {
        self.made.get(&handle).copied()
    }

    /// Removes a command that is not submitted.
    pub(crate) fn take(&mut self, handle: u64) -> Option<Callback> {
        self.made.remove(&handle)
    }

    /// Notes that a command, which was taken, has been submitted.
    pub(crate) fn note_submitted(&mut self, handle: u64, queue: QueueId, ticket: Ticket) {
        if self.submitted.len() == SUBMITTED {
            self.submitted.pop_front();
        }
        self.submitted.push_back((handle, queue, ticket));
    }

    /// Returns where a submitted command is. `None` if there never was one, or if it is not submitted.
    pub(crate) fn place(&self, handle: u64) -> Option<Place> {
        if handle == 0 || handle > self.last || self.made.contains_key(&handle) {
            return None;
        }
        // A wait mostly concerns a late one.
        let found = self.submitted.iter().rev().find(|(other, ..)| *other == handle);
        Some(found.map_or(Place::Earlier, |(_, queue, ticket)| Place::Ticket(*queue, *ticket)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn nothing(_: u64, _: *mut c_void) -> c_int {
        0
    }

    #[test]
    fn handles_are_used_once_and_places_are_bounded() {
        let callback = Callback { launch: nothing, data: std::ptr::null_mut() };
        let mut commands = Commands::default();
        let first = commands.add(callback);
        assert!(first != 0 && commands.get(first).is_some());
        assert_eq!(commands.place(first), None, "it is not submitted");
        assert!(commands.take(first).is_some() && commands.take(first).is_none());
        commands.note_submitted(first, QueueId(1), Ticket::NONE);
        assert_eq!(commands.place(first), Some(Place::Ticket(QueueId(1), Ticket::NONE)));
        for _ in 0..SUBMITTED {
            let next = commands.add(callback);
            commands.take(next);
            commands.note_submitted(next, QueueId(2), Ticket::NONE);
        }
        assert_eq!(commands.place(first), Some(Place::Earlier));
        assert_eq!(commands.submitted.len(), SUBMITTED);
        for unknown in [0, commands.last + 1] {
            assert_eq!(commands.place(unknown), None);
        }
        let destroyed = commands.add(callback);
        commands.take(destroyed);
        assert_eq!(commands.place(destroyed), Some(Place::Earlier), "waiting for it is harmless");
    }
}
