//! The timeline of a run (`--timeline`): the times at which each process's kernels arrived, ran and ended, and at
//! which its queues were off the hardware.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;

use crate::device::{Model, QueueKey, Time};
use crate::recording::{Event, Record, Recording};

/// Records the events of all GPUs.
#[derive(Debug)]
pub struct Timeline {
    recording: Recording,
    /// By GPU and process.
    tracks: BTreeMap<(usize, i32), Track>,
    running: Vec<i32>,
}

/// The state of one process on one GPU.
#[derive(Debug, Default)]
struct Track {
    /// The time in which work-groups run. It is kept after its end, so that an interval that follows at once
    /// continues it.
    ran: Option<Interval>,
    off: BTreeSet<u32>,
    off_since: Time,
    /// The number of kernels that have ended since the last record of their times, and the sum of these.
    kernels: u32,
    alone: Time,
}

#[derive(Clone, Copy, Debug)]
struct Interval {
    from: Time,
    /// `None` while it lasts.
    to: Option<Time>,
}

impl Timeline {
    /// Makes an empty timeline that is written to this recording.
    pub fn new(recording: Recording) -> Self {
        Self { recording, tracks: BTreeMap::new(), running: Vec::new() }
    }

    /// Records that kernel dispatch packets of a process were seen.
    pub fn arrived(&mut self, gpu: usize, pid: i32, count: u32, at: Time) {
        self.recording.add(&Record { event: Event::Arrived, pid, gpu, count, from: at, to: at });
    }

    /// Records that a kernel was completed.
    pub fn ended(&mut self, gpu: usize, pid: i32, at: Time) {
        self.recording.add(&Record { event: Event::Ended, pid, gpu, count: 1, from: at, to: at });
    }

    /// Counts a kernel whose last work-group has ended, with its time alone.
    pub fn executed(&mut self, gpu: usize, pid: i32, alone: Time) {
        let track = self.tracks.entry((gpu, pid)).or_default();
        track.kernels += 1;
        track.alone = track.alone.saturating_add(alone);
    }

    /// Records that the device saves or restores running work for a process (0: for none).
    pub fn switching(&mut self, gpu: usize, pid: i32, from: Time, to: Time) {
        write(&mut self.recording, Event::Switching, gpu, pid, from, to);
    }

    /// Records which processes have running work-groups since the model changed at `at`.
    pub fn running(&mut self, gpu: usize, at: Time, model: &dyn Model) {
        self.running.clear();
        model.running(&mut self.running);
        for (&(_, pid), track) in self.tracks.range_mut((gpu, i32::MIN)..=(gpu, i32::MAX)) {
            if let Some(ran) = &mut track.ran
                && ran.to.is_none()
                && !self.running.contains(&pid)
            {
                ran.to = Some(at.max(ran.from));
            }
        }
        for &pid in &self.running {
            let track = self.tracks.entry((gpu, pid)).or_default();
            match &mut track.ran {
                // A call that is handled late can change the device at a time before the last event.
                Some(ran) if ran.to.is_none_or(|to| to >= at) => ran.to = None,
                ran => {
                    if let Some(Interval { from, to: Some(to) }) = ran.take() {
                        write(&mut self.recording, Event::Ran, gpu, pid, from, to);
                    }
                    *ran = Some(Interval { from: at, to: None });
                }
            }
        }
    }

    /// Records that a compute queue comes off the hardware.
    pub fn off(&mut self, gpu: usize, key: QueueKey, at: Time) {
        let track = self.tracks.entry((gpu, key.pid)).or_default();
        if track.off.is_empty() {
            track.off_since = track.off_since.max(at);
        }
        track.off.insert(key.id);
    }

    /// Records that a queue is on the hardware again, or gone. A queue that was not off is ignored.
    pub fn on(&mut self, gpu: usize, key: QueueKey, at: Time) {
        let Some(track) = self.tracks.get_mut(&(gpu, key.pid)) else { return };
        if track.off.remove(&key.id) && track.off.is_empty() {
            write(&mut self.recording, Event::Evicted, gpu, key.pid, track.off_since, at);
            track.off_since = at.max(track.off_since);
        }
    }

    /// Records the rest of a process that has ended at `at`.
    pub fn leave(&mut self, pid: i32, at: Time) {
        for ((gpu, pid), mut track) in self.tracks.extract_if(.., |(_, other), _| *other == pid) {
            track.split(&mut self.recording, gpu, pid, at);
        }
    }

    /// Records everything up to `at`: intervals that last are divided there. Returns the message that all is
    /// written, for which the caller must not wait under the machine's lock; `None` if the recording has failed.
    pub fn flush(&mut self, at: Time) -> Option<Receiver<()>> {
        for (&(gpu, pid), track) in &mut self.tracks {
            track.split(&mut self.recording, gpu, pid, at);
        }
        self.recording.flush()
    }
}

impl Track {
    fn split(&mut self, recording: &mut Recording, gpu: usize, pid: i32, at: Time) {
        if let Some(Interval { from, to }) = self.ran.take() {
            let end = to.unwrap_or(at).max(from);
            write(recording, Event::Ran, gpu, pid, from, end);
            // What was recorded is not recorded again, also if a late call changes the device before `at`.
            self.ran = Some(Interval { from: end, to: to.map(|_| end) });
        }
        if !self.off.is_empty() {
            write(recording, Event::Evicted, gpu, pid, self.off_since, at);
            self.off_since = at.max(self.off_since);
        }
        if self.kernels > 0 {
            let (count, to) = (std::mem::take(&mut self.kernels), std::mem::take(&mut self.alone));
            recording.add(&Record { event: Event::KernelTime, pid, gpu, count, from: at, to });
        }
    }
}

/// Writes an interval, unless it is empty.
fn write(recording: &mut Recording, event: Event, gpu: usize, pid: i32, from: Time, to: Time) {
    if to > from {
        recording.add(&Record { event, pid, gpu, count: 1, from, to });
    }
}
