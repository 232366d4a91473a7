//! Jobs and their members, for the resolution of ranks.

use std::ops::Range;

/// The key of a job: policy, owner and number.
pub(crate) type JobKey = (usize, u32, u64);

/// The jobs of a decision. The same value is used for every decision, so that noting them allocates only
/// while they grow.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// A job, and the index of a member.
    members: Vec<(JobKey, usize)>,
    all: Vec<Job>,
    /// The index of the job of each entity; empty if there are no jobs.
    of: Vec<Option<usize>>,
}

/// Entities that run together or not at all.
#[derive(Debug)]
pub(crate) struct Job {
    members: Range<usize>,
    /// The member that is taken first of those that want a device.
    pub first: Option<usize>,
}

impl Jobs {
    /// Replaces the jobs. A member is its job and its index among so many entities.
    pub fn note(&mut self, members: impl Iterator<Item = (JobKey, usize)>, entities: usize) {
        self.members.clear();
        self.members.extend(members);
        self.members.sort_unstable();
        self.all.clear();
        self.of.clear();
        if self.members.is_empty() {
            return;
        }
        self.of.resize(entities, None);
        let mut first = 0;
        for members in self.members.chunk_by(|one, other| one.0 == other.0) {
            let end = first + members.len();
            for &(_, index) in members {
                self.of[index] = Some(self.all.len());
            }
            self.all.push(Job { members: first..end, first: None });
            first = end;
        }
    }

    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the job of an entity, as an index below [`Jobs::len`].
    pub fn of(&self, index: usize) -> Option<usize> {
        self.of.get(index).copied().flatten()
    }

    /// Returns one of the jobs.
    pub fn job(&mut self, index: usize) -> &mut Job {
        &mut self.all[index]
    }

    /// Returns the indices of the members of a job.
    pub fn indices(&self, index: usize) -> impl Iterator<Item = usize> + Clone + use<'_> {
        self.members[self.all[index].members.clone()].iter().map(|&(_, index)| index)
    }
}
