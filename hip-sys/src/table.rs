//! The table of HIP functions: what the shim does with each function, and why it may leave some alone.
//!
//! Every function that one of the supported releases exports has one row, on one line, in the file of its
//! class. The rows are sorted at compile time, so that [`find`] needs only read-only data: no allocation, no
//! lock, no constructor.

mod copy;
mod graph;
mod launch;
mod memory;
mod passthrough;
mod resolve;
mod stream;

pub mod reason;

/// The class of a function: its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Launches a kernel or a host function.
    Launch,
    /// Copies or moves memory.
    Copy,
    /// Fills memory.
    Memset,
    /// Frees, unmaps or maps memory, or changes memory objects that kernels see (textures, resources).
    Memory,
    /// Creates, records, waits for, queries or destroys an event.
    Event,
    /// Waits or signals: on the host, by values in memory, by external semaphores.
    Sync,
    /// Queries a stream.
    Query,
    /// Captures a stream into a graph. From the first capture on, each launch must check whether its stream
    /// is being captured.
    Capture,
    /// Launches, makes, changes or destroys an executable graph, or destroys what one can hold.
    Graph,
    /// Creates or destroys a stream, or resets a device.
    Lifecycle,
    /// Loads code or looks up functions.
    Resolve,
    /// Reads the last error.
    Error,
    /// Of no concern to the shim. The row gives the reason.
    Passthrough,
}

/// The rule by which the shim intercepts a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A handler of its own.
    Direct,
    /// The conservative handler: it drains the queues concerned, translates stream arguments, and forwards
    /// the call.
    Drain,
    /// Only the per-thread stream is translated; then the call is forwarded. The function enqueues, changes
    /// and frees nothing.
    Translate,
    /// Not exported: calls reach the runtime without the shim.
    Forward,
}

/// A release of HIP that is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// 5.2.3
    V5_2_3,
    /// 5.7.1
    V5_7_1,
    /// 6.4.3
    V6_4_3,
    /// 7.2.4
    V7_2_4,
}

impl Release {
    /// All releases, oldest first.
    pub const ALL: [Self; 4] = [Self::V5_2_3, Self::V5_7_1, Self::V6_4_3, Self::V7_2_4];

    /// Returns the version number.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V5_2_3 => "5.2.3",
            Self::V5_7_1 => "5.7.1",
            Self::V6_4_3 => "6.4.3",
            Self::V7_2_4 => "7.2.4",
        }
    }
}

/// A set of releases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Releases(u8);

impl Releases {
    /// No release.
    pub const NONE: Self = Self(0);

    /// Returns this set with one more release.
    #[must_use]
    pub const fn with(self, release: Release) -> Self {
        Self(self.0 | 1 << release as u8)
    }

    /// Returns true if the release is in the set.
    pub const fn contains(self, release: Release) -> bool {
        self.0 & 1 << release as u8 != 0
    }

    /// Returns the releases of the set, oldest first.
    pub fn iter(self) -> impl Iterator<Item = Release> {
        Release::ALL.into_iter().filter(move |&release| self.contains(release))
    }
}

impl core::fmt::Debug for Releases {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.iter().map(Release::as_str)).finish()
    }
}

// The sets that occur, under the names that the rows use.
const FROM_7_2: Releases = Releases::NONE.with(Release::V7_2_4);
const FROM_6_4: Releases = FROM_7_2.with(Release::V6_4_3);
const FROM_5_7: Releases = FROM_6_4.with(Release::V5_7_1);
const ALL: Releases = FROM_5_7.with(Release::V5_2_3);
const TO_5_2: Releases = Releases::NONE.with(Release::V5_2_3);
const TO_6_4: Releases = IN_5_7_AND_6_4.with(Release::V5_2_3);
const IN_5_7_AND_6_4: Releases = Releases::NONE.with(Release::V5_7_1).with(Release::V6_4_3);

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Symbol.
    pub name: &'static str,
    /// Class.
    pub class: Class,
    /// Rule.
    pub rule: Rule,
    /// Releases that export the function.
    pub releases: Releases,
    /// The reason why the function may pass without the shim (one of [`reason::ALL`]) or why the conservative
    /// handler is right (one of [`reason::CONSERVATIVE`]); empty for all others.
    pub reason: &'static str,
}

impl Function {
    /// Returns true if the shim exports this name.
    pub const fn is_exported(&self) -> bool {
        !matches!(self.rule, Rule::Forward)
    }

    /// Returns true if handle 0 means the calling thread's own stream (the `_spt` twins).
    pub fn is_per_thread(&self) -> bool {
        self.name.ends_with("_spt")
    }
}

/// `rows![Class; Rule RELEASES "name" REASON, ...]`. The reason is that of a conservative handler.
macro_rules! rows {
    ($class:ident; $($rule:ident $releases:ident $name:literal $($reason:ident)?,)*) => {
        &[$(Function {
            name: $name,
            class: super::Class::$class,
            rule: super::Rule::$rule,
            releases: super::$releases,
            reason: reason_of!($($reason)?),
        }),*]
    };
}
use rows;

/// The text of a reason, or none.
macro_rules! reason_of {
    () => {
        ""
    };
    ($reason:ident) => {
        super::reason::$reason
    };
}
use reason_of;

/// `passes![reason::REASON; RELEASES "name", ...]`
macro_rules! passes {
    ($reason:path; $($releases:ident $name:literal,)*) => {
        &[$(Function {
            name: $name,
            class: super::Class::Passthrough,
            rule: super::Rule::Forward,
            releases: super::$releases,
            reason: $reason,
        }),*]
    };
}
use passes;

/// Each group is sorted by the bytes of the names; otherwise merging them fails to compile.
const GROUPS: &[&[Function]] = &[
    launch::LAUNCH,
    copy::COPY,
    copy::MEMSET,
    memory::MEMORY,
    stream::EVENT,
    stream::SYNC,
    stream::QUERY,
    stream::CAPTURE,
    stream::LIFECYCLE,
    graph::GRAPH,
    resolve::RESOLVE,
    resolve::ERROR,
    passthrough::READS_STATE,
    passthrough::THREAD_STATE,
    passthrough::SETS_STATE,
    passthrough::ALLOCATES,
    passthrough::HOST_OBJECT,
    passthrough::GRAPH_TEMPLATE,
    passthrough::COMPILES,
    passthrough::ERROR_TEXT,
    passthrough::TOOLS,
    passthrough::ARITHMETIC,
];

const COUNT: usize = {
    let mut count = 0;
    let mut group = 0;
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

/// Returns true if `a` sorts before `b` by bytes (`Ord` is not available at compile time).
const fn before(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return a[i] < b[i];
        }
        i += 1;
    }
    a.len() < b.len()
}

/// Merges the groups into one sorted array.
const fn merge() -> [Function; COUNT] {
    let mut all = [GROUPS[0][0]; COUNT];
    let mut next = [0; GROUPS.len()];
    let mut done = 0;
    while done < COUNT {
        let mut first: Option<(usize, Function)> = None;
        let mut group = 0;
        while group < GROUPS.len() {
            if next[group] < GROUPS[group].len() {
                let candidate = GROUPS[group][next[group]];
                first = match first {
                    Some((_, best)) if before(best.name, candidate.name) => first,
                    _ => Some((group, candidate)),
                };
            }
            group += 1;
        }
        let Some((group, function)) = first else {
            panic!("fewer rows than counted");
        };
        assert!(
            done == 0 || before(all[done - 1].name, function.name),
            "a group is out of order, or a name occurs twice"
        );
        all[done] = function;
        next[group] += 1;
        done += 1;
    }
    all
}

static SORTED: [Function; COUNT] = merge();

/// All rows, sorted by the bytes of the names.
pub static FUNCTIONS: &[Function] = &SORTED;

/// Returns the row of a name.
///
/// ```
/// use hip_sys::table::{Class, Rule, find};
///
/// let function = find("hipLaunchKernel").unwrap();
/// assert_eq!((function.class, function.rule), (Class::Launch, Rule::Direct));
/// assert!(find("hipNoSuchFunction").is_none());
/// ```
pub fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.binary_search_by(|function| function.name.cmp(name)).ok().map(|index| &FUNCTIONS[index])
}

/// Returns the row of a name that comes from C, without its final zero byte.
pub fn find_bytes(name: &[u8]) -> Option<&'static Function> {
    FUNCTIONS
        .binary_search_by(|function| function.name.as_bytes().cmp(name))
        .ok()
        .map(|index| &FUNCTIONS[index])
}

#[cfg(test)]
mod tests;
