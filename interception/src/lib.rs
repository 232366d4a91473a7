//! The table of HIP functions: the rule by which the library handles each function, and the reason why it may leave
//! some alone. Data only.
//!
//! Every function that one of the supported releases exports has one row, on one line, in the file of its
//! class. The rows are sorted at compile time, so that [`find`] needs only read-only data: no allocation, no
//! lock, no constructor.
//!
//! * `function`: a row, its columns, and the macros that write rows.
//! * `rows`: the rows, one file for each group of classes.
//! * [`reason`]: the reasons for rows that pass or have the conservative handler.

mod function;
pub mod reason;
mod rows {
    pub(crate) mod copy;
    pub(crate) mod graph;
    pub(crate) mod launch;
    pub(crate) mod memory;
    pub(crate) mod passthrough;
    pub(crate) mod resolve;
    pub(crate) mod stream;
}

pub use function::{Class, Function, Release, Releases, Rule};

use core::cmp::Ordering;
use rows::{copy, graph, launch, memory, passthrough, resolve, stream};

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

/// Compares by bytes (`Ord` is not available at compile time).
const fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let mut i = 0;
    while i < a.len() && i < b.len() {
        if a[i] != b[i] {
            return if a[i] < b[i] { Ordering::Less } else { Ordering::Greater };
        }
        i += 1;
    }
    if i < b.len() {
        Ordering::Less
    } else if i < a.len() {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
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
                    Some((_, best)) if compare(best.name.as_bytes(), candidate.name.as_bytes()).is_lt() => {
                        first
                    }
                    _ => Some((group, candidate)),
                };
            }
            group += 1;
        }
        let Some((group, function)) = first else {
            panic!("fewer rows than counted");
        };
        assert!(
            done == 0 || compare(all[done - 1].name.as_bytes(), function.name.as_bytes()).is_lt(),
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

/// Returns the index of a name in [`FUNCTIONS`]. A name that comes from C goes without its final zero byte.
pub const fn index_of(name: &[u8]) -> Option<usize> {
    let (mut low, mut high) = (0, COUNT);
    while low < high {
        let middle = low + (high - low) / 2;
        match compare(SORTED[middle].name.as_bytes(), name) {
            Ordering::Equal => return Some(middle),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    None
}

/// Returns the row of a name.
///
/// ```
/// use interception::{Class, Rule, find};
///
/// let function = find("hipLaunchKernel").unwrap();
/// assert_eq!((function.class, function.rule), (Class::Launch, Rule::Direct));
/// assert!(find("hipNoSuchFunction").is_none());
/// ```
pub fn find(name: &str) -> Option<&'static Function> {
    index_of(name.as_bytes()).map(|index| &FUNCTIONS[index])
}

#[cfg(test)]
mod tests;
