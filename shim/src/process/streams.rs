//! Streams: the queue of each handle, and the streams in place of `hipStreamPerThread`.
//!
//! The per-thread default stream belongs to the calling thread inside the runtime, so a worker could not
//! launch on it. Each thread gets one blocking stream per device instead, which every function that takes a
//! stream uses.

use super::stream_hints::{self, StreamHints};
use super::{Base, Process, base, captures, get};
use crate::lifecycle;
use crate::thread::Thread;
use agent::{EvictionPause, QueueSlot};
use hal_hip::exclusion;
use hal_hip::queue::HipQueue;
use hal_hip::real::RuntimeFunctions;
use hip_sys::types::{hipStream_t, hipStreamDefault, hipSuccess};
use parking_lot::Mutex;
use protocol::bounds::{Priority, StreamPriority};
use protocol::codes::PreemptLevel;
use protocol::hint::QueueHints;
use protocol::hint::table::HintUpdate;
use std::cell::RefCell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use xqueue::{After, DeviceId, OrderClass, QueueConfig, Stats, Ticket, Window, XQueue};

/// A stream. It is never freed, because launching threads read it without a lock, but reused for another
/// stream of its kind after its end. A thread that still uses it then, because the program destroys a stream
/// in use, finds a valid stream.
pub(crate) struct Stream {
    pub(crate) hw: Arc<HipQueue>,
    class: OrderClass,
    queue: OnceLock<Option<Arc<XQueue>>>,
    /// The handle of its XQueue for the program and the schedulers; 0 if it has none, so that it is never
    /// suspended.
    handle: AtomicU64,
    /// The requested preemption level.
    level: AtomicI32,
    /// The hints for its queue, with times by this process's clock. The lock is held while the queue gets its priority, so
    /// that the last change counts.
    hints: Mutex<StreamHints>,
    /// The hints that the thread has for the streams that it creates, as they were when it created this one.
    given: Mutex<Vec<HintUpdate>>,
    /// The place of its queue's state for a server.
    slot: QueueSlot,
    /// The counters of its queue at the begin of this stream. They are not zero if an ended stream had the queue before.
    earlier: Mutex<Stats>,
}

impl Stream {
    fn new(
        real: &'static RuntimeFunctions,
        stream: hipStream_t,
        device: u32,
        class: OrderClass,
    ) -> &'static Self {
        let hw = Arc::new(HipQueue::new(real, stream, device));
        let (handle, level) = (AtomicU64::new(0), AtomicI32::new(PreemptLevel::Block.number()));
        let (queue, hints, slot) = (OnceLock::new(), Mutex::default(), QueueSlot::new());
        let (given, earlier) = (Mutex::default(), Mutex::default());
        Box::leak(Box::new(Self { hw, class, queue, handle, level, hints, given, slot, earlier }))
    }

    pub(crate) fn default_of(real: &'static RuntimeFunctions, device: u32) -> &'static Self {
        Self::new(real, hipStream_t::NULL, device, OrderClass::Default)
    }

    /// Makes a stream on the current device, from a retired one if possible.
    fn make(
        base: &Base,
        real: &'static RuntimeFunctions,
        stream: hipStream_t,
        class: OrderClass,
        priority: StreamPriority,
    ) -> &'static Self {
        let device = real.current_device();
        let mut retired = base.retired.lock();
        let fits = |other: &&'static Self| other.class == class && other.hw.device() == device;
        let free = retired.iter().position(fits).map(|index| retired.swap_remove(index));
        drop(retired);
        let mut given = stream_hints::of_new_stream();
        if priority != StreamPriority::DEFAULT {
            given.push(HintUpdate::StreamPriority(priority));
        }
        let Some(free) = free else {
            let made = Self::new(real, stream, device, class);
            *made.given.lock() = given;
            return made;
        };
        *free.given.lock() = given;
        free.hw.renew(stream);
        // A reused stream has its queue from the beginning.
        if let (Some(queue), Some(process)) = (free.queue(), get())
            && process.domain.reopen(queue, &free.queue_config(process))
        {
            free.has_queue(process);
        }
        free
    }

    /// Keeps the stream for reuse, after the runtime has destroyed it.
    pub(crate) fn retire(&'static self, base: &Base) {
        base.retired.lock().push(self);
    }

    fn queue_config(&'static self, process: &Process) -> QueueConfig {
        let auto = &process.base.config().auto;
        let covered = auto.enabled;
        let (launch, (priority, hints)) = (process.launch_config(), self.first_hints(process).in_force());
        let (priority, stream_priority) = (priority.get(), hints.stream_priority.get().into());
        QueueConfig { class: self.class, launch, priority, stream_priority, covered, tag: self.slot.tag() }
    }

    /// Notes that the queue was made or reopened.
    fn has_queue(&'static self, process: &'static Process) {
        process.made.fetch_add(1, Ordering::AcqRel);
        process.queued.lock().push(self);
        let auto = &process.base.config().auto;
        self.set_level(PreemptLevel::from_number(auto.level.into()).unwrap_or_default());
        self.reset_hints(process);
        *self.earlier.lock() = self.queue().map(|queue| queue.stats()).unwrap_or_default();
        if auto.enabled {
            // It can have one only from another thread, and then keeps it.
            let _ = self.give_handle(process);
        }
    }

    /// Returns what its queue has done for this stream.
    pub(crate) fn stats(&self) -> Stats {
        let stats = self.queue().map(|queue| queue.stats()).unwrap_or_default();
        stats.since(&self.earlier.lock())
    }

    /// Returns its queue, if it has been used since there are queues.
    pub(crate) fn queue(&self) -> Option<&Arc<XQueue>> {
        self.queue.get().and_then(Option::as_ref)
    }

    pub(crate) fn handle(&self) -> u64 {
        self.handle.load(Ordering::Acquire)
    }

    pub(crate) fn level(&self) -> PreemptLevel {
        PreemptLevel::from_number(i64::from(self.level.load(Ordering::Acquire))).unwrap_or_default()
    }

    pub(crate) fn set_level(&self, level: PreemptLevel) {
        self.level.store(level.number(), Ordering::Release);
    }

    /// Returns the hints in force, except the priority.
    pub(crate) fn hints(&self) -> QueueHints {
        self.hints.lock().in_force().1
    }

    /// Changes the hints. Returns the result, and true if others are in force now.
    pub(crate) fn change_hints<R>(&self, change: impl FnOnce(&mut StreamHints) -> R) -> (R, bool) {
        let mut hints = self.hints.lock();
        let before = hints.in_force();
        let result = change(&mut hints);
        let after = hints.in_force();
        if before != after {
            self.rank_queue(after);
        }
        (result, before != after)
    }

    /// Removes the parts whose work has completed. Returns true if others are in force now.
    pub(crate) fn settle_hints(&self, process: &Process) -> bool {
        let Some(queue) = self.queue() else { return false };
        let (gone, changed) = self.change_hints(|hints| hints.settle(queue));
        process.forget_ended_parts(gone);
        changed
    }

    /// Returns the hints with which its queue begins.
    fn first_hints(&self, process: &Process) -> StreamHints {
        let auto = &process.base.config().auto;
        let queue = if auto.enabled { auto.hints.queue } else { QueueHints::default() };
        let mut hints = StreamHints::new(auto.hints.priority, queue);
        for update in self.given.lock().iter() {
            hints.change(|hints| update.apply(hints, agent::now()));
        }
        hints
    }

    /// Sets the hints with which its queue begins.
    fn reset_hints(&self, process: &Process) {
        let first = self.first_hints(process);
        let mut hints = self.hints.lock();
        process.forget_ended_parts(hints.ended());
        self.rank_queue(first.in_force());
        *hints = first;
    }

    /// Gives its queue the place that these hints say.
    fn rank_queue(&self, (priority, hints): (Priority, QueueHints)) {
        if let Some(queue) = self.queue() {
            queue.set_rank(priority.get(), hints.stream_priority.get().into());
        }
    }

    pub(crate) fn slot(&'static self) -> &'static QueueSlot {
        &self.slot
    }

    /// Returns its queue, which the first call makes.
    #[inline(always)]
    pub(crate) fn queue_in(&'static self, process: &'static Process) -> Option<&'static Arc<XQueue>> {
        match self.queue.get() {
            Some(queue) => queue.as_ref(),
            None => self.make_queue(process),
        }
    }

    #[cold]
    fn make_queue(&'static self, process: &'static Process) -> Option<&'static Arc<XQueue>> {
        let mut made = false;
        let queue = self.queue.get_or_init(|| {
            made = true;
            let device = DeviceId(self.hw.device());
            process.domain.create_queue(device, self.hw.clone(), self.queue_config(process))
        });
        if made && queue.is_some() {
            self.has_queue(process);
        }
        queue.as_ref()
    }

    /// Gives the stream an XQueue, by which schedulers control its queue. `Err` has the handle of the one that it has already,
    /// or 0 if its queue cannot be made.
    pub(crate) fn give_handle(&'static self, process: &'static Process) -> Result<u64, u64> {
        let queue = self.queue_in(process).ok_or(0u64)?;
        let handle = process.handles.take();
        self.handle.compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire)?;
        queue.set_policy_limit(Some(Window::DEFAULT));
        queue.set_covered(true);
        process.scheduler.changed();
        Ok(handle)
    }

    /// Takes its XQueue away: the queue is never suspended from now on, and everything submitted is launched.
    pub(crate) fn take_handle(&self, process: &'static Process) {
        if self.handle.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        let Some(queue) = self.queue() else { return };
        queue.resume(xqueue::ResumeFlags::NONE);
        queue.set_policy_run(true);
        queue.set_covered(false);
        process.scheduler.changed();
        process.drain(xqueue::Scope::Queue(queue));
        queue.set_policy_limit(None);
        // The next XQueue on this stream starts with the defaults.
        self.reset_hints(process);
        queue.set_launch_config(process.launch_config());
    }

    /// Ends the queue of a stream that is about to be destroyed; pending commands are launched. No queue is
    /// evicted until the caller has destroyed the stream and drops the result.
    pub(crate) fn end(&'static self, process: &'static Process) -> Option<EvictionPause<'static>> {
        self.handle.store(0, Ordering::Release);
        self.reset_hints(process);
        process.wrapped.lock().retain(|_, other| !ptr::eq(*other, self));
        let queue = self.queue()?;
        queue.destroy(false);
        process.queued.lock().retain(|other| !ptr::eq(*other, self));
        process.scheduler.changed();
        // The queue that is waited for must not be evicted.
        let pause = process.pause_evictions();
        self.wait_for_handlers(process, queue);
        pause
    }

    /// Waits until no handler of a marker is unfinished, where the runtime's end of the stream does not. It
    /// waits for the stream's work, as the runtime does, but not for the default stream's. In that case the
    /// end is as safe as natively for a program that records events.
    fn wait_for_handlers(&self, process: &Process, queue: &XQueue) {
        if !process.real.stream_end_outruns_handlers()
            || Thread::current().is_in_callback()
            || process.captures.any()
        {
            return;
        }
        let default = process.defaults.get(self.hw.device() as usize).and_then(|stream| stream.queue());
        let is_alone = queue.class() == OrderClass::Independent
            || default.is_none_or(|default| default.frontier() == Ticket::NONE && default.is_complete());
        if self.hw.wait_for_markers() && is_alone {
            self.hw.wait_for_handlers();
        }
    }
}

/// The stream that an argument refers to.
pub(crate) struct Target {
    /// The handle for the real function.
    pub(crate) raw: hipStream_t,
    pub(crate) found: Option<Found>,
}

/// A stream with its queue. A call without one is forwarded.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) process: &'static Process,
    pub(crate) stream: &'static Stream,
    pub(crate) queue: &'static Arc<XQueue>,
}

impl Found {
    /// Returns the edge to the queue's command with this ticket.
    pub(crate) fn after(&self, ticket: Ticket) -> After {
        After { queue: self.queue.clone(), through: ticket }
    }
}

impl Target {
    /// Returns the target of a call. `own` is true if the call is the program's own, and `per_thread` if its
    /// default stream is the calling thread's (`_spt`). A stream that captures has no queue, because captured
    /// work is not launched.
    #[inline(always)]
    pub(crate) fn of(own: bool, stream: hipStream_t, per_thread: bool) -> Self {
        match get() {
            Some(process) if own => Self::find(process, stream, per_thread),
            _ => Self { raw: stream, found: None },
        }
    }

    #[inline(always)]
    fn find(process: &'static Process, stream: hipStream_t, per_thread: bool) -> Self {
        let (raw, stream) = process.stream(stream, per_thread);
        let found = stream.and_then(|stream| {
            let queue = stream.queue_in(process)?;
            let captures = process.captures.any() && process.is_capturing(raw);
            (!captures).then_some(Found { process, stream, queue })
        });
        Self { raw, found }
    }
}

impl Process {
    /// Returns the handle for the real functions, and the stream if it is known.
    #[inline(always)]
    pub(crate) fn stream(
        &'static self,
        stream: hipStream_t,
        per_thread: bool,
    ) -> (hipStream_t, Option<&'static Stream>) {
        match stream.as_raw() {
            0 | 1 if !per_thread => (stream, self.default_stream()),
            0..=2 => match self.own_stream() {
                Some(own) => (own.hw.stream(), Some(own)),
                None => (stream, None),
            },
            handle => (stream, self.base.streams.get(handle)),
        }
    }

    /// Returns the default stream of the calling thread's current device.
    #[inline(always)]
    pub(crate) fn default_stream(&self) -> Option<&'static Stream> {
        self.defaults.get(self.real.current_device() as usize).copied()
    }

    /// Returns the stream in place of `hipStreamPerThread` for the calling thread on its current device.
    #[cold]
    pub(crate) fn own_stream(&'static self) -> Option<&'static Stream> {
        let device = self.real.current_device();
        OWN.try_with(|own| {
            let mut own = own.try_borrow_mut().ok()?;
            if !ptr::eq(own.process, self) {
                own.process = self;
                own.streams.clear();
            }
            if let Some(stream) = own.streams.iter().find(|stream| stream.hw.device() == device) {
                return Some(*stream);
            }
            if !self.base.config().auto.enabled {
                // The program may have used the runtime's own one before there were queues.
                // SAFETY: the runtime knows this handle.
                let _ = unsafe { (self.real.stream_synchronize)(hipStream_t::PER_THREAD) };
            }
            let mut handle = hipStream_t::NULL;
            // SAFETY: the place for the handle is valid.
            let code = unsafe { (self.real.stream_create)(&mut handle, hipStreamDefault) };
            if code != hipSuccess {
                return None;
            }
            let stream =
                Stream::make(self.base, self.real, handle, OrderClass::Blocking, StreamPriority::DEFAULT);
            own.streams.push(stream);
            Some(stream)
        })
        .ok()
        .flatten()
    }

    fn forget_ended_parts(&self, count: usize) {
        self.ended_parts.fetch_sub(u32::try_from(count).unwrap_or(u32::MAX), Ordering::AcqRel);
    }

    /// Removes the parts whose work has completed. Returns true if others have ended and still count.
    pub(crate) fn settle_hints(&'static self) -> bool {
        if self.ended_parts.load(Ordering::Acquire) == 0 {
            return false;
        }
        let queued = self.queued.lock().clone();
        let mut changed = false;
        for stream in queued {
            changed |= stream.settle_hints(self);
        }
        if changed {
            self.scheduler.changed();
        }
        self.ended_parts.load(Ordering::Acquire) != 0
    }

    /// Returns true if the stream captures at present. The default streams never do.
    pub(crate) fn is_capturing(&self, stream: hipStream_t) -> bool {
        captures::is_capturing(self.real, stream)
    }

    /// Returns the default stream's queue on a device and those of the blocking streams, which wait for each
    /// other.
    pub(crate) fn default_kin(&self, device: u32) -> Vec<Arc<XQueue>> {
        let mut queues = self.domain.queues();
        queues.retain(|queue| queue.device() == DeviceId(device) && queue.class() != OrderClass::Independent);
        queues
    }
}

/// The calling thread's own streams, one for each device on which it used one.
struct PerThread {
    process: *const Process,
    streams: Vec<&'static Stream>,
}

thread_local! {
    static OWN: RefCell<PerThread> =
        const { RefCell::new(PerThread { process: ptr::null(), streams: Vec::new() }) };
}

impl Drop for PerThread {
    fn drop(&mut self) {
        // In a forked child, or while the process ends, the streams are left alone.
        if self.streams.is_empty() || !lifecycle::is_ready() {
            return;
        }
        let Some(process) = get().filter(|process| ptr::eq(*process, self.process)) else { return };
        Thread::current().inside(|| {
            for stream in self.streams.drain(..) {
                let _ended = stream.end(process);
                let _apart = exclusion::lock_stream_end();
                // SAFETY: the stream was made by the library for this thread, and nothing else knows it.
                let _ = unsafe { (process.real.stream_destroy)(stream.hw.stream()) };
                stream.retire(process.base);
            }
        });
    }
}

/// Returns the stream priority for HIP's number. HIP knows -1 (high), 0 (normal) and 1 (low), and takes the nearest one.
pub(crate) fn priority_of(number: c_int) -> StreamPriority {
    StreamPriority::try_from(-i64::from(number.signum())).unwrap_or_default()
}

/// Notes a stream that the program has made. If the runtime has no device, calls with the stream are
/// forwarded.
pub(crate) fn remember(stream: hipStream_t, class: OrderClass, priority: StreamPriority) {
    let Some(base) = base() else { return };
    let Some(real) = base.real() else { return };
    base.streams.insert(stream.as_raw(), Stream::make(base, real, stream, class, priority));
}
