//! Who belongs to which job, for the resolution of ranks.

use std::ops::Range;

/// The jobs of a decision. Kept from one to the next, so that noting them allocates only while they grow.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// The number of a job and the place of a member.
    members: Vec<(u64, usize)>,
    all: Vec<Job>,
}

/// Units that run together or not at all.
#[derive(Debug)]
pub(crate) struct Job {
    number: u64,
    members: Range<usize>,
    /// The place of the first that wants a device, in the order in which units are taken.
    pub first: Option<usize>,
}

impl Jobs {
    /// Replaces the jobs by those with these members.
    pub fn note(&mut self, members: impl Iterator<Item = (u64, usize)>) {
        self.members.clear();
        self.members.extend(members);
        self.members.sort_unstable();
        self.all.clear();
        let mut first = 0;
        for members in self.members.chunk_by(|one, other| one.0 == other.0) {
            let end = first + members.len();
            self.all.push(Job { number: members[0].0, members: first..end, first: None });
            first = end;
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The job with this number, as an index below [`Jobs::len`].
    pub fn find(&self, number: u64) -> Option<usize> {
        self.all.binary_search_by_key(&number, |job| job.number).ok()
    }

    /// One of them.
    pub fn job(&mut self, index: usize) -> &mut Job {
        &mut self.all[index]
    }

    /// The places of its members.
    pub fn places(&self, index: usize) -> impl Iterator<Item = usize> + Clone + use<'_> {
        self.members[self.all[index].members.clone()].iter().map(|&(_, place)| place)
    }
}
