//! The queues of another process, through the driver's debugger.

use super::{Result, kind, of_problem};
use hal_kfd::attach::{Attachment, Problem};
use hal_kfd::session::SuspendStatus;
use hip_sys::kfd::debug::QueueEntry;
use protocol::codes::{KfdQueue, KfdQueueState, KfdQueueType, KfdResult};
use std::collections::BTreeMap;

pub(super) struct Other {
    attachment: Attachment,
    requested: Requested,
}

impl Other {
    pub(super) fn new(attachment: Attachment) -> Self {
        Self { attachment, requested: Requested::default() }
    }

    fn entries(&mut self) -> Result<Vec<QueueEntry>> {
        self.attachment.queues().map_err(|problem| self.requested.failed(&[], problem))
    }

    pub(super) fn queues(&mut self) -> Result<Vec<KfdQueue>> {
        let entries = self.entries()?;
        let described = |entry: &QueueEntry| KfdQueue {
            queue_id: entry.queue_id,
            gpu_id: entry.gpu_id,
            kind: kind(entry.queue_type).number(),
            state: self.requested.state(entry.queue_id).number(),
            ring_address: entry.ring_base_address,
            ring_size: entry.ring_size.into(),
            write_pointer_address: entry.write_pointer_address,
            read_pointer_address: entry.read_pointer_address,
        };
        Ok(entries.iter().map(described).collect())
    }

    pub(super) fn suspend(&mut self, named: Option<&[u32]>) -> Result<()> {
        let ids = chosen(&self.entries()?, named)?;
        let ids: Vec<u32> =
            ids.into_iter().filter(|id| self.requested.state(*id) != KfdQueueState::Suspended).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let outcome = match self.attachment.suspend(&ids) {
            Ok(fates) => self.requested.suspended(&ids, &fates),
            Err(problem) => Err(self.requested.failed(&ids, problem)),
        };
        let back: Vec<u32> =
            ids.into_iter().filter(|id| self.requested.state(*id) != KfdQueueState::Mapped).collect();
        if outcome.is_err() && !back.is_empty() {
            // A queue that cannot be resumed is left for the next call. Its error is not this call's result.
            match self.attachment.resume(&back) {
                Ok(fates) => _ = self.requested.resumed(&back, &fates),
                Err(problem) => _ = self.requested.failed(&back, problem),
            }
        }
        outcome
    }

    pub(super) fn resume(&mut self, named: Option<&[u32]>) -> Result<()> {
        let ids = named.map_or_else(|| self.requested.open(), <[u32]>::to_vec);
        if ids.is_empty() {
            return Ok(());
        }
        match self.attachment.resume(&ids) {
            Ok(fates) => {
                let there = self.requested.resumed(&ids, &fates)?;
                // A queue that has ended since its suspension is ignored if all queues are resumed.
                if there || named.is_none() { Ok(()) } else { Err(KfdResult::ErrorNotFound) }
            }
            Err(problem) => Err(self.requested.failed(&ids, problem)),
        }
    }

    /// Resumes everything, and ends the session.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.attachment.end() {
            Ok(()) | Err(Problem::Lost | Problem::NoProcess | Problem::NoDevice) => Ok(()),
            Err(problem) => Err(of_problem(problem)),
        }
    }
}

/// Returns the queues of a call: those that it names, or all compute queues.
fn chosen(entries: &[QueueEntry], named: Option<&[u32]>) -> Result<Vec<u32>> {
    let is_compute = |entry: &&QueueEntry| kind(entry.queue_type) == KfdQueueType::Compute;
    let Some(ids) = named else {
        return Ok(entries.iter().filter(is_compute).map(|entry| entry.queue_id).collect());
    };
    for id in ids {
        let entry = entries.iter().find(|entry| entry.queue_id == *id).ok_or(KfdResult::ErrorNotFound)?;
        if !is_compute(&entry) {
            return Err(KfdResult::ErrorInvalidValue);
        }
    }
    Ok(ids.to_vec())
}

/// The queues that this session has suspended, and those whose state is unknown. All others are mapped, as
/// far as this session is concerned.
#[derive(Debug, Default)]
struct Requested(BTreeMap<u32, KfdQueueState>);

impl Requested {
    fn state(&self, id: u32) -> KfdQueueState {
        self.0.get(&id).copied().unwrap_or(KfdQueueState::Mapped)
    }

    /// Returns the queues to resume.
    fn open(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// Notes the driver's answer to a suspension.
    ///
    /// # Errors
    /// The reason of the first failure.
    fn suspended(&mut self, ids: &[u32], fates: &[SuspendStatus]) -> Result<()> {
        let mut first = Ok(());
        for (id, fate) in ids.iter().zip(fates) {
            first = first.and(match fate {
                SuspendStatus::Done => {
                    self.0.insert(*id, KfdQueueState::Suspended);
                    Ok(())
                }
                SuspendStatus::Invalid => Err(KfdResult::ErrorInvalidState),
                SuspendStatus::Failed => {
                    self.0.insert(*id, KfdQueueState::Unknown);
                    Err(KfdResult::ErrorSaveFailed)
                }
            });
        }
        first
    }

    /// Notes the driver's answer to a resumption. Returns true if all of the queues exist.
    ///
    /// # Errors
    /// The reason of the first failure.
    fn resumed(&mut self, ids: &[u32], fates: &[SuspendStatus]) -> Result<bool> {
        let mut first = Ok(());
        for (id, fate) in ids.iter().zip(fates) {
            if *fate == SuspendStatus::Failed {
                self.0.insert(*id, KfdQueueState::Unknown);
                first = first.and(Err(KfdResult::ErrorSaveFailed));
            } else {
                self.0.remove(id);
            }
        }
        first.map(|()| !fates.contains(&SuspendStatus::Invalid))
    }

    /// Notes the failure of a whole request about these queues. Returns its result for the caller.
    fn failed(&mut self, ids: &[u32], problem: Problem) -> KfdResult {
        match problem {
            // The queues have been resumed without the session.
            Problem::Lost | Problem::NoProcess | Problem::NoDevice => self.0.clear(),
            // The driver was asked, and may have done a part of the request.
            Problem::Hung(_) | Problem::Failed(_) => {
                self.0.extend(ids.iter().map(|id| (*id, KfdQueueState::Unknown)));
            }
            _ => {}
        }
        of_problem(problem)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hal_kfd::Errno;
    use hip_sys::kfd as driver;
    use host::process::Untraceable;

    const TIME_OUT: Problem = Problem::Hung(Errno(libc::ETIME));

    #[test]
    fn chosen_accepts_only_compute_queues() {
        let types = [driver::QUEUE_TYPE_COMPUTE, driver::QUEUE_TYPE_SDMA, driver::QUEUE_TYPE_COMPUTE_AQL, 77];
        let entry = |(index, queue_type): (usize, &u32)| QueueEntry {
            queue_id: index as u32,
            queue_type: *queue_type,
            ..QueueEntry::default()
        };
        let entries: Vec<_> = types.iter().enumerate().map(entry).collect();
        assert_eq!(chosen(&entries, None), Ok(vec![0, 2]));
        assert_eq!(chosen(&entries, Some(&[2, 0])), Ok(vec![2, 0]));
        for copies in [1, 3] {
            assert_eq!(chosen(&entries, Some(&[0, copies])), Err(KfdResult::ErrorInvalidValue));
        }
        assert_eq!(chosen(&entries, Some(&[0, 4])), Err(KfdResult::ErrorNotFound));
    }

    #[test]
    fn failed_queue_is_unknown_until_resumed() {
        let states = |requested: &Requested| [1, 2, 3].map(|id| requested.state(id));
        let (mapped, off) = (KfdQueueState::Mapped, KfdQueueState::Suspended);
        let doubt = KfdQueueState::Unknown;
        let mut requested = Requested::default();
        assert_eq!(states(&requested), [mapped; 3]);
        let answer = requested
            .suspended(&[1, 2, 3], &[SuspendStatus::Done, SuspendStatus::Failed, SuspendStatus::Invalid]);
        assert_eq!((answer, states(&requested)), (Err(KfdResult::ErrorSaveFailed), [off, doubt, mapped]));
        assert_eq!(requested.open(), [1, 2]);
        let answer = requested.resumed(&[1, 2], &[SuspendStatus::Failed, SuspendStatus::Done]);
        assert_eq!((answer, states(&requested)), (Err(KfdResult::ErrorSaveFailed), [doubt, mapped, mapped]));
        // A queue that has ended has no state.
        assert_eq!(requested.resumed(&[1, 3], &[SuspendStatus::Invalid, SuspendStatus::Done]), Ok(false));
        assert_eq!((requested.open(), requested.resumed(&[2], &[SuspendStatus::Done])), (vec![], Ok(true)));
        assert_eq!(requested.suspended(&[3], &[SuspendStatus::Invalid]), Err(KfdResult::ErrorInvalidState));
    }

    #[test]
    fn failed_request_is_unknown_if_the_driver_was_asked() {
        let mut requested = Requested::default();
        requested.suspended(&[1], &[SuspendStatus::Done]).unwrap();
        assert_eq!(
            requested.failed(&[2], Problem::NotTraceable(Untraceable::Own)),
            KfdResult::ErrorNoPermission
        );
        assert_eq!(requested.open(), [1]);
        assert_eq!(requested.failed(&[1, 2], TIME_OUT), KfdResult::ErrorTimeout);
        assert_eq!([1, 2].map(|id| requested.state(id)), [KfdQueueState::Unknown; 2]);
        assert_eq!(requested.failed(&[], Problem::Lost), KfdResult::ErrorInvalidState);
        assert_eq!(requested.open(), []);
    }
}
