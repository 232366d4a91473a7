//! Collects records at the end of a step.

use super::record::{Change, Record, Recorder};
use super::{ClientPage, Core, gangs};
use protocol::time::Time;

impl<P: ClientPage> Core<P> {
    /// Collects records from now on. The caller takes them after each step.
    pub fn start_recording(&mut self) {
        self.recorder = Some(Recorder::default());
    }

    /// The same for a reader who knows the permissions that are in force.
    pub fn start_recording_changes(&mut self) {
        for (state, gang) in self.clients.iter_mut().zip(gangs(&mut self.status)) {
            // Notes the permission as recorded.
            let _ = state.recorded.decided(gang, state.permit);
        }
        self.start_recording();
    }

    /// Returns true if it collects records.
    pub fn is_recording(&self) -> bool {
        self.recorder.is_some()
    }

    /// Collects no more records, and forgets those that were not taken.
    pub fn stop_recording(&mut self) {
        self.recorder = None;
    }

    /// Returns the records since the last call, in order of their times.
    pub fn take_records(&mut self) -> impl Iterator<Item = Record> {
        self.recorder.iter_mut().flat_map(|recorder| recorder.records.drain(..))
    }

    /// Collects what a step saw and decided. The engine knows the same clients as the core.
    pub(super) fn record_step(&mut self, now: Time) {
        let Some(recorder) = &mut self.recorder else { return };
        let comings = recorder.comings.drain(..);
        recorder.records.extend(comings.map(|change| Record { at: now, change }));
        let units = self.engine.entities().all();
        for ((state, gang), unit) in self.clients.iter_mut().zip(gangs(&mut self.status)).zip(units) {
            for change in state.recorded.seen(gang, unit, now).into_iter().flatten() {
                recorder.records.push(Record { at: now, change });
            }
        }
        self.record_permissions(now);
    }

    /// Collects the permissions in force.
    pub(super) fn record_permissions(&mut self, now: Time) {
        let Some(recorder) = &mut self.recorder else { return };
        let on = self.guard.is_active();
        if std::mem::replace(&mut recorder.guard, on) != on {
            recorder.records.push(Record { at: now, change: Change::Guard { on } });
        }
        for (state, gang) in self.clients.iter_mut().zip(gangs(&mut self.status)) {
            if let Some(change) = state.recorded.decided(gang, state.permit) {
                recorder.records.push(Record { at: now, change });
            }
        }
    }
}
