//! The commands of streams, and how they run.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::abi::{Answer, CUresult, Handle, HostFunction, ILLEGAL_ADDRESS, ILLEGAL_STATE, StreamCallback};
use crate::host;
use crate::ipc_event::SharedEvent;
use crate::kernels::Launch;
use crate::memory::{Owned, Span};

thread_local! {
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Returns true while this thread runs a host function or a callback of the program.
pub fn in_host_function() -> bool {
    IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false)
}

/// One end of a copy.
#[derive(Clone, Debug)]
pub enum Place {
    /// Memory that the device can access.
    Mapped(Span),
    /// The program's own memory, at this address.
    Pageable(usize),
    /// A copy of the source's bytes, made during the call.
    Staged(Arc<[u8]>),
}

/// The width of a copy in bytes, its rows and slices, and the distances between them in bytes on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub src_pitch: usize,
    pub src_slice: usize,
    pub dst_pitch: usize,
    pub dst_slice: usize,
}

impl Shape {
    /// One row.
    pub fn row(width: usize) -> Shape {
        Shape { width, height: 1, depth: 1, src_pitch: 0, src_slice: 0, dst_pitch: 0, dst_slice: 0 }
    }

    /// Returns the number of bytes from the first to the last one, with this pitch and slice. `None`: no
    /// rows, or the result overflows.
    pub fn extent(&self, pitch: usize, slice: usize) -> Option<usize> {
        let rows = pitch.checked_mul(self.height.checked_sub(1)?)?;
        slice.checked_mul(self.depth.checked_sub(1)?)?.checked_add(rows)?.checked_add(self.width)
    }
}

/// A copy.
#[derive(Clone, Debug)]
pub struct Copying {
    pub dst: Place,
    pub src: Place,
    pub shape: Shape,
    /// Where a waiting call finds an error. If `None`, an error becomes the context's.
    pub report: Option<Arc<AtomicU32>>,
}

/// A fill of rows with a pattern of `size` bytes (1, 2 or 4).
#[derive(Clone, Debug)]
pub struct Filling {
    pub dst: Span,
    pub value: u32,
    pub size: usize,
    pub pitch: usize,
    /// The number of elements in a row.
    pub width: usize,
    pub height: usize,
}

/// The comparison of a wait for a value (`CUstreamWaitValue_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// `(int)(*address - value) >= 0`.
    Reached,
    Equal,
    And,
    Nor,
}

/// A program's pointer that is passed to its host function.
#[derive(Clone, Copy, Debug)]
pub struct User(pub *mut c_void);
// SAFETY: this library only passes the pointer back to the program's function, which CUDA calls on another
// thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

/// The time stamp of an event's record.
#[derive(Debug, Default)]
pub struct Stamp {
    /// The time of the record in nanoseconds since the process's first record, plus 1. 0: not reached yet.
    at: AtomicU64,
    /// If the event is shared with other processes: its page, and the number of this record.
    shared: Option<(Arc<SharedEvent>, u64)>,
}

impl Stamp {
    /// Makes the stamp of a record that has not been reached. `shared`: the event's page and the record's
    /// number.
    pub fn new(shared: Option<(Arc<SharedEvent>, u64)>) -> Stamp {
        Stamp { at: AtomicU64::new(0), shared }
    }

    /// Returns when the record was reached, in nanoseconds. `None`: it was not reached.
    pub fn time(&self) -> Option<u64> {
        Some(self.at.load(Ordering::Acquire)).filter(|at| *at != 0)
    }

    fn set(&self) {
        static BEGIN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let since = BEGIN.get_or_init(Instant::now).elapsed().as_nanos() as u64;
        self.at.store(since + 1, Ordering::Release);
        if let Some((event, record)) = &self.shared {
            event.reach(*record);
        }
    }
}

/// The steps of a graph's launch, each with the earlier steps that it waits for.
#[derive(Debug, Default)]
pub struct Plan {
    pub steps: Vec<(Work, Vec<usize>)>,
}

/// One command.
#[derive(Clone, Debug)]
pub enum Work {
    /// No work, only a place in the stream's order.
    Nothing,
    Kernel(Arc<Launch>),
    Copy(Copying),
    Fill(Filling),
    Host(HostFunction, User),
    Callback(StreamCallback, User, Handle),
    /// Waits for a word of 4 or 8 bytes.
    Wait(Span, u64, Compare),
    /// Writes a word of 4 or 8 bytes.
    Write(Span, u64),
    Record(Arc<Stamp>),
    /// Waits for an event of another process.
    Await(Arc<SharedEvent>, u64),
    Graph(Arc<Plan>),
    /// No work. It keeps a graph's memory alive for as long as the graph may run.
    Keep(Arc<Owned>),
}

/// The interval at which a wait polls a word that the host may write.
const LOOK: Duration = Duration::from_micros(50);

impl Work {
    /// Runs the command. `before` is the context's error, or 0. If there is one, only callbacks run, and get
    /// the error.
    ///
    /// # Errors
    /// The error that the context has from now on.
    pub fn run(&self, before: CUresult) -> Answer {
        if let Work::Callback(function, user, stream) = self {
            // SAFETY: the program passed the function together with its argument, for a call on another
            // thread.
            outside(|| unsafe { function(*stream, before, user.0) });
            return Ok(());
        }
        if before != 0 {
            return Ok(());
        }
        match self {
            Work::Nothing | Work::Callback(..) | Work::Keep(_) => {}
            Work::Kernel(launch) => launch.run()?,
            Work::Copy(copy) => match (copy.run(), &copy.report) {
                (Ok(()), _) => {}
                (Err(error), Some(report)) => report.store(error, Ordering::Release),
                (Err(_), None) => return Err(ILLEGAL_ADDRESS),
            },
            Work::Fill(fill) => fill.run(),
            // SAFETY: the program passed the function together with its argument, for a call on another
            // thread.
            Work::Host(function, user) => outside(|| unsafe { function(user.0) }),
            Work::Wait(span, value, how) => {
                while !how.holds(load(span), *value, span.len()) {
                    std::thread::sleep(LOOK);
                }
            }
            Work::Write(span, value) if span.len() == 4 => {
                span.halves()[0].store(*value as u32, Ordering::Release);
            }
            Work::Write(span, value) => span.words()[0].store(*value, Ordering::Release),
            Work::Record(stamp) => stamp.set(),
            Work::Await(event, record) => event.wait(*record),
            Work::Graph(plan) => plan.run()?,
        }
        Ok(())
    }

    /// Returns true if it may take long, so that independent steps should not run after it in the same
    /// thread.
    fn lasts(&self) -> bool {
        match self {
            Work::Kernel(launch) => launch.function.native.is_some_and(|native| native.lasts),
            Work::Host(..) | Work::Callback(..) | Work::Wait(..) | Work::Await(..) => true,
            Work::Graph(plan) => plan.steps.iter().any(|(work, _)| work.lasts()),
            _ => false,
        }
    }
}

/// Runs the program's code. Calls of this library inside are refused.
fn outside(code: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    code();
    IN_HOST_FUNCTION.set(false);
}

fn load(span: &Span) -> u64 {
    if span.len() == 4 {
        u64::from(span.halves()[0].load(Ordering::Acquire))
    } else {
        span.words()[0].load(Ordering::Acquire)
    }
}

impl Compare {
    fn holds(self, word: u64, value: u64, size: usize) -> bool {
        match self {
            Compare::Reached if size == 4 => (word as u32).wrapping_sub(value as u32) as i32 >= 0,
            Compare::Reached => word.wrapping_sub(value) as i64 >= 0,
            Compare::Equal => word == value,
            Compare::And => word & value != 0,
            Compare::Nor if size == 4 => !(word as u32 | value as u32) != 0,
            Compare::Nor => !(word | value) != 0,
        }
    }
}

impl Copying {
    fn run(&self) -> Answer {
        let shape = &self.shape;
        for slice in 0..shape.depth {
            for row in 0..shape.height {
                let dst = slice * shape.dst_slice + row * shape.dst_pitch;
                let src = slice * shape.src_slice + row * shape.src_pitch;
                self.row(dst, src, shape.width)?;
            }
        }
        Ok(())
    }

    /// Copies `len` bytes from one offset to the other. The ranges may overlap.
    fn row(&self, dst: usize, src: usize, len: usize) -> Answer {
        // SAFETY: `copy::plan` has checked that all rows lie inside the spans, `copy::give` has staged all
        // rows, and this copy keeps both alive. The operating system checks the program's own memory.
        unsafe {
            match (&self.dst, &self.src) {
                (Place::Mapped(to), Place::Mapped(from)) => {
                    std::ptr::copy(from.pointer().add(src), to.pointer().add(dst), len);
                }
                (Place::Mapped(to), Place::Staged(from)) => {
                    std::ptr::copy_nonoverlapping(from.as_ptr().add(src), to.pointer().add(dst), len);
                }
                (Place::Mapped(to), Place::Pageable(from)) => {
                    host::read(to.pointer().add(dst), from.wrapping_add(src), len)?;
                }
                (Place::Pageable(to), Place::Mapped(from)) => {
                    host::write(from.pointer().add(src), to.wrapping_add(dst), len)?;
                }
                (Place::Pageable(to), Place::Staged(from)) => {
                    host::write(from.as_ptr().add(src), to.wrapping_add(dst), len)?;
                }
                (Place::Pageable(to), Place::Pageable(from)) => {
                    let bytes = host::bytes(from.wrapping_add(src), len)?;
                    host::write(bytes.as_ptr(), to.wrapping_add(dst), len)?;
                }
                (Place::Staged(_), _) => {}
            }
        }
        Ok(())
    }
}

impl Filling {
    fn run(&self) {
        // Only a piece of the pattern, so that large fills need no large buffer.
        let pattern = self.value.to_le_bytes();
        let piece: Vec<u8> = pattern[..self.size].repeat(self.width.min(16384));
        for at in 0..self.height {
            let mut left = self.width * self.size;
            let mut to = self.dst.pointer().wrapping_add(at * self.pitch);
            while left > 0 {
                let len = left.min(piece.len());
                // SAFETY: `fill::plan` has checked that all rows lie inside the span, which this fill keeps
                // alive. `piece` is a separate buffer of at least `len` bytes.
                unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), to, len) };
                to = to.wrapping_add(len);
                left -= len;
            }
        }
    }
}

/// The steps of a plan that has begun and not yet ended.
struct Progress<'a> {
    plan: &'a Plan,
    /// For each step, the number of steps that it still waits for.
    missing: Vec<usize>,
    /// For each step, those that wait for it.
    followers: Vec<Vec<usize>>,
    ready: VecDeque<usize>,
    result: Answer,
}

impl Progress<'_> {
    fn of(plan: &Plan) -> Progress<'_> {
        let mut followers = vec![Vec::new(); plan.steps.len()];
        for (at, (_, after)) in plan.steps.iter().enumerate() {
            after.iter().for_each(|before| followers[*before].push(at));
        }
        let missing: Vec<usize> = plan.steps.iter().map(|(_, after)| after.len()).collect();
        let ready = (0..missing.len()).filter(|at| missing[*at] == 0).collect();
        Progress { plan, missing, followers, ready, result: Ok(()) }
    }

    /// Takes the next step. After an error no further step begins.
    fn next(&mut self) -> Option<usize> {
        if self.result.is_err() {
            return None;
        }
        // Those that last begin first, so that the others run beside them.
        let lasts = |at: &usize| self.plan.steps[*at].0.lasts();
        let index = self.ready.iter().position(lasts).unwrap_or(0);
        self.ready.remove(index)
    }

    fn ended(&mut self, at: usize, result: Answer) {
        self.result = self.result.and(result);
        for follower in &self.followers[at] {
            self.missing[*follower] -= 1;
            if self.missing[*follower] == 0 {
                self.ready.push_back(*follower);
            }
        }
    }
}

impl Plan {
    /// Runs each step once those that it waits for have ended. Steps that last run at the same time: one may wait
    /// for what another branch does.
    fn run(&self) -> Answer {
        let mut progress = Progress::of(self);
        std::thread::scope(|scope| {
            let (done, ends) = channel();
            let mut running = 0;
            loop {
                while let Some(at) = progress.next() {
                    let work = &self.steps[at].0;
                    // Alone, a step needs no thread of its own.
                    let alone = running == 0 && progress.ready.is_empty();
                    if work.lasts() && !alone {
                        let done = done.clone();
                        let run = move || done.send((at, work.run(0))).unwrap_or_default();
                        if std::thread::Builder::new().spawn_scoped(scope, run).is_ok() {
                            running += 1;
                            continue;
                        }
                        // No thread can be started, so this one runs the step.
                    }
                    progress.ended(at, work.run(0));
                }
                if running == 0 {
                    return progress.result;
                }
                let Ok((at, result)) = ends.recv() else { return Err(ILLEGAL_STATE) };
                running -= 1;
                progress.ended(at, result);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_those_of_the_documentation() {
        assert!(Compare::Reached.holds(3, 0xFFFF_FFFF, 4), "wraps around");
        assert!(!Compare::Reached.holds(3, 4, 8));
        assert!(Compare::Equal.holds(4, 4, 4));
        assert!(Compare::And.holds(6, 2, 4) && !Compare::And.holds(4, 2, 4));
        assert!(Compare::Nor.holds(1, 2, 4) && !Compare::Nor.holds(0xFFFF_0000, 0xFFFF, 4));
    }

    #[test]
    fn a_step_may_wait_for_a_later_one_of_another_branch() {
        static OPEN: AtomicU32 = AtomicU32::new(0);
        unsafe extern "C" fn wait(_: *mut c_void) {
            while OPEN.load(Ordering::Acquire) == 0 {
                std::thread::sleep(LOOK);
            }
        }
        unsafe extern "C" fn open(_: *mut c_void) {
            OPEN.store(1, Ordering::Release);
        }
        let host = |function| Work::Host(function, User(std::ptr::null_mut()));
        // The first step waits for the last one, which has the greater depth.
        let steps = vec![(host(wait), vec![]), (Work::Nothing, vec![]), (host(open), vec![1])];
        assert_eq!(Plan { steps }.run(), Ok(()));
        assert_eq!(OPEN.load(Ordering::Acquire), 1);
    }

    #[test]
    fn extents_are_checked() {
        let shape = Shape { height: 3, depth: 2, ..Shape::row(10) };
        assert_eq!(shape.extent(16, 100), Some(142));
        assert_eq!(shape.extent(usize::MAX, 100), None);
        assert_eq!(Shape { height: 0, ..shape }.extent(16, 100), None);
    }
}
