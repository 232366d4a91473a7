//! The entries of an account.

use serde::{Serialize, Serializer, ser::SerializeMap};
use std::ops::{AddAssign, Index, IndexMut};

/// The use of the device, or the reason why it did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Only urgent programs ran.
    Urgent,
    /// Only other programs ran.
    Others,
    /// Urgent programs and others ran beside each other.
    Both,
    /// The driver saved or restored running work.
    Switching,
    /// The guard let all run.
    Guard,
    /// A queue on the hardware had kernels, and none ran: the device's own time between two kernels.
    Dispatch,
    /// Others were suspended, and the program that may run was within a request: its host's time.
    Gap,
    /// Others were suspended, and the program that may run was idle and counted as ready.
    Linger,
    /// Others were suspended, and the server had not seen the idle program or had not decided yet.
    Decision,
    /// A program may run and had not acted yet, or its queue was still evicted.
    Resume,
    /// A program that may run had launched kernels that had not arrived on the device.
    Window,
    /// All that the other programs had launched had ended: their hosts' time.
    Host,
    /// No program had a request or an inference under way.
    None,
}

/// All entries with their names and meanings, in the order of the table.
pub(crate) const ENTRIES: [(Entry, &str, &str); 13] = [
    (Entry::Urgent, "urgent", "only urgent programs ran"),
    (Entry::Others, "others", "only other programs ran"),
    (Entry::Both, "both", "both ran"),
    (Entry::Switching, "switching", "the driver saved or restored work"),
    (Entry::Guard, "guard", "the guard let all run"),
    (Entry::Dispatch, "dispatch", "the device was between two kernels"),
    (Entry::Gap, "gap", "within a request: its host's time"),
    (Entry::Linger, "linger", "idle, and still counted as ready"),
    (Entry::Decision, "decision", "idle, and not yet seen or decided"),
    (Entry::Resume, "resume", "allowed to run, and not yet acted"),
    (Entry::Window, "window", "launched by the host, not on the device yet"),
    (Entry::Host, "host", "the other programs' hosts had launched nothing more"),
    (Entry::None, "none", "nobody had a request under way"),
];

impl Entry {
    /// Returns true if a program ran on the device.
    pub(crate) fn is_busy(self) -> bool {
        matches!(self, Self::Urgent | Self::Others | Self::Both)
    }
}

/// The time of each entry, nanoseconds. In JSON an object of seconds by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Entries([u64; ENTRIES.len()]);

impl Entries {
    /// Returns the sum of all entries, which is the length of the measured time.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the time in which any program ran.
    pub(crate) fn busy(&self) -> u64 {
        ENTRIES.iter().filter(|(entry, ..)| entry.is_busy()).map(|(entry, ..)| self[*entry]).sum()
    }

    /// Returns the time in which none ran.
    pub(crate) fn idle(&self) -> u64 {
        self.total() - self.busy()
    }
}

impl Index<Entry> for Entries {
    type Output = u64;

    fn index(&self, entry: Entry) -> &u64 {
        &self.0[entry as usize]
    }
}

impl IndexMut<Entry> for Entries {
    fn index_mut(&mut self, entry: Entry) -> &mut u64 {
        &mut self.0[entry as usize]
    }
}

impl AddAssign for Entries {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, ns)| *sum += ns);
    }
}

impl Serialize for Entries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(ENTRIES.len()))?;
        for (entry, name, _) in ENTRIES {
            map.serialize_entry(name, &(self[entry] as f64 / 1e9))?;
        }
        map.end()
    }
}
