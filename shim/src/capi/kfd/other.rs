//! The queues of another process, through the driver's debugger.

use super::{Result, kind, of_problem};
use hal_kfd::outside::{Attachment, Problem};
use hal_kfd::session::Fate;
use hip_sys::kfd::debug::QueueEntry;
use protocol::codes::{KfdQueue, KfdQueueState, KfdQueueType, KfdResult};
use std::collections::BTreeMap;

/// A session about another process.
pub(super) struct Other {
    attachment: Attachment,
    books: Books,
}

impl Other {
    pub(super) fn new(attachment: Attachment) -> Self {
        Self { attachment, books: Books::default() }
    }

    fn entries(&mut self) -> Result<Vec<QueueEntry>> {
        self.attachment.queues().map_err(|problem| self.books.failed(&[], problem))
    }

    pub(super) fn queues(&mut self) -> Result<Vec<KfdQueue>> {
        let entries = self.entries()?;
        let described = |entry: &QueueEntry| KfdQueue {
            queue_id: entry.queue_id,
            gpu_id: entry.gpu_id,
            kind: kind(entry.queue_type).number(),
            state: self.books.state(entry.queue_id).number(),
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
            ids.into_iter().filter(|id| self.books.state(*id) != KfdQueueState::Suspended).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let outcome = match self.attachment.suspend(&ids) {
            Ok(fates) => self.books.suspended(&ids, &fates),
            Err(problem) => Err(self.books.failed(&ids, problem)),
        };
        let back: Vec<u32> =
            ids.into_iter().filter(|id| self.books.state(*id) != KfdQueueState::Mapped).collect();
        if outcome.is_err() && !back.is_empty() {
            // What cannot be put back is left for the next resumption, and is none of the result's.
            match self.attachment.resume(&back) {
                Ok(fates) => _ = self.books.resumed(&back, &fates),
                Err(problem) => _ = self.books.failed(&back, problem),
            }
        }
        outcome
    }

    pub(super) fn resume(&mut self, named: Option<&[u32]>) -> Result<()> {
        let ids = named.map_or_else(|| self.books.asked(), <[u32]>::to_vec);
        if ids.is_empty() {
            return Ok(());
        }
        match self.attachment.resume(&ids) {
            Ok(fates) => {
                let there = self.books.resumed(&ids, &fates)?;
                // A queue that has ended since it was suspended stands nowhere still.
                if there || named.is_none() { Ok(()) } else { Err(KfdResult::ErrorNotFound) }
            }
            Err(problem) => Err(self.books.failed(&ids, problem)),
        }
    }

    /// Everything goes on.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.attachment.end() {
            Ok(()) | Err(Problem::Lost | Problem::NoProcess | Problem::NoDevice) => Ok(()),
            Err(problem) => Err(of_problem(problem)),
        }
    }
}

/// The queues that a caller means: those that it names, or all compute queues.
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

/// What came of this session's requests: queues that are suspended, or in doubt. The others are on the hardware, as far as
/// this session is concerned.
#[derive(Debug, Default)]
struct Books(BTreeMap<u32, KfdQueueState>);

impl Books {
    fn state(&self, id: u32) -> KfdQueueState {
        self.0.get(&id).copied().unwrap_or(KfdQueueState::Mapped)
    }

    /// What there is to be resumed.
    fn asked(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// The answer to a suspension. Why the first that failed did.
    fn suspended(&mut self, ids: &[u32], fates: &[Fate]) -> Result<()> {
        let mut first = Ok(());
        for (id, fate) in ids.iter().zip(fates) {
            first = first.and(match fate {
                Fate::Done => {
                    self.0.insert(*id, KfdQueueState::Suspended);
                    Ok(())
                }
                Fate::Invalid => Err(KfdResult::ErrorInvalidState),
                Fate::Failed => {
                    self.0.insert(*id, KfdQueueState::Unknown);
                    Err(KfdResult::ErrorSaveFailed)
                }
            });
        }
        first
    }

    /// The answer to a resumption: whether all of them are there, or why the first that failed did.
    fn resumed(&mut self, ids: &[u32], fates: &[Fate]) -> Result<bool> {
        let mut first = Ok(());
        for (id, fate) in ids.iter().zip(fates) {
            if *fate == Fate::Failed {
                self.0.insert(*id, KfdQueueState::Unknown);
                first = first.and(Err(KfdResult::ErrorSaveFailed));
            } else {
                self.0.remove(id);
            }
        }
        // Whatever is there can be resumed.
        first.map(|()| !fates.contains(&Fate::Invalid))
    }

    /// A request as a whole has failed: what the problem leaves of these queues, and what it means.
    fn failed(&mut self, ids: &[u32], problem: Problem) -> KfdResult {
        match problem {
            // Everything goes on without the session.
            Problem::Lost | Problem::NoProcess | Problem::NoDevice => self.0.clear(),
            // The driver was asked, and may have done a part of it.
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
    fn compute_queues_are_meant_and_nothing_else() {
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
    fn what_fails_is_in_doubt_until_it_is_resumed() {
        let states = |books: &Books| [1, 2, 3].map(|id| books.state(id));
        let (mapped, off) = (KfdQueueState::Mapped, KfdQueueState::Suspended);
        let doubt = KfdQueueState::Unknown;
        let mut books = Books::default();
        assert_eq!(states(&books), [mapped; 3]);
        let answer = books.suspended(&[1, 2, 3], &[Fate::Done, Fate::Failed, Fate::Invalid]);
        assert_eq!((answer, states(&books)), (Err(KfdResult::ErrorSaveFailed), [off, doubt, mapped]));
        assert_eq!(books.asked(), [1, 2]);
        let answer = books.resumed(&[1, 2], &[Fate::Failed, Fate::Done]);
        assert_eq!((answer, states(&books)), (Err(KfdResult::ErrorSaveFailed), [doubt, mapped, mapped]));
        // One that is not there any more has no state.
        assert_eq!(books.resumed(&[1, 3], &[Fate::Invalid, Fate::Done]), Ok(false));
        assert_eq!((books.asked(), books.resumed(&[2], &[Fate::Done])), (vec![], Ok(true)));
        assert_eq!(books.suspended(&[3], &[Fate::Invalid]), Err(KfdResult::ErrorInvalidState));
    }

    #[test]
    fn a_request_that_fails_leaves_doubt_if_the_driver_was_asked() {
        let mut books = Books::default();
        books.suspended(&[1], &[Fate::Done]).unwrap();
        assert_eq!(books.failed(&[2], Problem::NotTraceable(Untraceable::Own)), KfdResult::ErrorNoPermission);
        assert_eq!(books.asked(), [1]);
        assert_eq!(books.failed(&[1, 2], TIME_OUT), KfdResult::ErrorTimeout);
        assert_eq!([1, 2].map(|id| books.state(id)), [KfdQueueState::Unknown; 2]);
        assert_eq!(books.failed(&[], Problem::Lost), KfdResult::ErrorInvalidState);
        assert_eq!(books.asked(), []);
    }
}
