//! The processors on which the measuring thread and the server run.

use crate::processors;
use crate::table::value_name;
use anyhow::{Context, Result};
use clap::ValueEnum;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// Where the server and the bare thread run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Placement {
    /// Where the kernel puts them
    Free,
    /// On another processor than the thread that measures
    Apart,
    /// On its processor
    Together,
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&value_name(*self))
    }
}

/// The measuring thread on its processor, until this is dropped.
#[derive(Debug)]
pub(super) struct Placed {
    before: CpuSet,
    /// The processors of this thread and of the server; none if they are free.
    chosen: Option<(CpuSet, CpuSet)>,
}

impl Placed {
    /// Places this thread.
    pub(super) fn here(placement: Placement) -> Result<Self> {
        let before = sched_getaffinity(None).context("cannot read the processors of this thread")?;
        let (own, other) = match placement {
            Placement::Free => return Ok(Self { before, chosen: None }),
            Placement::Apart => choose(&before)
                .context("--placement apart needs two processors, and this process may use one")?,
            Placement::Together => {
                let own = processors::each(&before).next().context("this process may use no processor")?;
                (own, own)
            }
        };
        sched_setaffinity(None, &own).context("cannot keep this thread on a processor")?;
        Ok(Self { before, chosen: Some((own, other)) })
    }

    /// Places the deciding thread of the server, which is the first of its process.
    pub(super) fn place(&self, server: u32) -> Result<()> {
        let Some((_, other)) = &self.chosen else { return Ok(()) };
        let thread = Pid::from_raw(server.cast_signed()).context("0 is no process")?;
        sched_setaffinity(Some(thread), other).context("cannot keep the server on a processor")
    }

    /// Runs this on the processor of the server. Threads that it starts stay there.
    pub(super) fn there<T>(&self, run: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some((own, other)) = &self.chosen else { return run() };
        sched_setaffinity(None, other).context("cannot keep a thread on a processor")?;
        let result = run();
        sched_setaffinity(None, own).context("cannot keep this thread on a processor")?;
        result
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        // The processors were permitted before.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// The first and the last processor of a set; none if they are one.
fn choose(set: &CpuSet) -> Option<(CpuSet, CpuSet)> {
    let (first, last) = (processors::each(set).next()?, processors::each(set).last()?);
    (first != last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::only;

    #[test]
    fn first_and_last_processor_are_apart() {
        let mut set = only(3);
        assert!(choose(&set).is_none() && choose(&CpuSet::new()).is_none());
        set.set(1);
        set.set(7);
        assert_eq!(choose(&set), Some((only(1), only(7))));
    }

    #[test]
    fn thread_is_placed_and_released() {
        let before = sched_getaffinity(None).unwrap();
        let free = Placed::here(Placement::Free).unwrap();
        assert!(free.there(|| Ok(sched_getaffinity(None)? == before)).unwrap());
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        let placed = Placed::here(Placement::Together).unwrap();
        let own = sched_getaffinity(None).unwrap();
        assert_eq!(own.count(), 1);
        assert!(placed.there(|| Ok(sched_getaffinity(None)? == own)).unwrap());
        drop((placed, free));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
