//! Who belongs to which job, for the resolution of ranks.

use std::ops::Range;

/// The jobs of a decision. Kept from one to the next, so that noting them allocates only while they grow.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// The policy and the number of a job, and the place of a member.
    members: Vec<((usize, u64), usize)>,
    all: Vec<Job>,
    /// For each entity the index of its job; empty if there are no jobs.
    of: Vec<Option<usize>>,
}

/// Entities that run together or not at all.
#[derive(Debug)]
pub(crate) struct Job {
    members: Range<usize>,
    /// The place of the first that wants a device, in the order in which entities are taken.
    pub first: Option<usize>,
}

impl Jobs {
    /// Replaces the jobs by those with these members: the policy and the number of a job, and a place among so many
    /// entities.
    pub fn note(&mut self, members: impl Iterator<Item = ((usize, u64), usize)>, entities: usize) {
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The job of the entity at this place, as an index below [`Jobs::len`].
    pub fn of(&self, index: usize) -> Option<usize> {
        self.of.get(index).copied().flatten()
    }

    /// One of them.
    pub fn job(&mut self, index: usize) -> &mut Job {
        &mut self.all[index]
    }

    /// The places of its members.
    pub fn indices(&self, index: usize) -> impl Iterator<Item = usize> + Clone + use<'_> {
        self.members[self.all[index].members.clone()].iter().map(|&(_, index)| index)
    }
}
