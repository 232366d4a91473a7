//! The state of this library under one lock: contexts, streams, events, modules, graphs, captures and pools
//! by their handles. Commands run without the lock.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::abi::{CUresult, Handle};
use crate::graph::{Exec, Graph};
use crate::ipc_event::SharedEvent;
use crate::kernels::Function;
use crate::memory::Mapping;
use crate::work::{Stamp, Work};

/// A context, which owns streams.
#[derive(Debug)]
pub struct Context {
    pub device: usize,
    /// The stream that 0 and `CU_STREAM_LEGACY` mean.
    pub legacy: Handle,
    /// The error that all calls return after a fault. 0: none.
    pub error: CUresult,
    pub primary: bool,
    /// The reference count of a primary context.
    pub retained: u32,
    pub flags: u32,
    pub limits: BTreeMap<u32, usize>,
    pub cache: u32,
    pub shared: u32,
    pub peers: Vec<Handle>,
}

/// A stream and its commands that have not completed.
#[derive(Debug)]
pub struct Stream {
    pub context: Handle,
    pub legacy: bool,
    pub flags: u32,
    pub priority: i32,
    /// What `cuStreamGetId` returns.
    pub id: u64,
    pub queue: VecDeque<u64>,
    /// The last command that was submitted to it. 0: none.
    pub last: u64,
    /// Wakes its thread when a command may run.
    pub wake: Arc<Condvar>,
    /// Wakes callers when the queue has room.
    pub room: Arc<Condvar>,
    /// True once it is destroyed: its handle is invalid, and its thread ends after the last command.
    pub closing: bool,
    /// True once its thread runs.
    pub started: bool,
    /// The capture that it takes part in, and the nodes that its next node waits for.
    pub capture: Option<(u64, Vec<Handle>)>,
    /// The list that `cuStreamGetCaptureInfo_v2` last returned. The program may read it until the next call.
    pub shown: Box<[Handle]>,
}

/// A command that has not completed.
#[derive(Debug)]
pub struct Pending {
    pub stream: Handle,
    /// The number of commands that it still waits for.
    pub missing: usize,
    /// The commands that wait for it.
    pub followers: Vec<u64>,
    /// The threads that wait for it.
    pub waiters: Vec<Arc<Condvar>>,
    /// `None` while it runs.
    pub work: Option<Work>,
}

/// An event.
#[derive(Debug)]
pub struct Event {
    pub context: Handle,
    pub flags: u32,
    /// The last record: its command and its time stamp.
    pub record: Option<(u64, Arc<Stamp>)>,
    /// If the last record was in a capture: the capture, and the nodes that the event stands for.
    pub captured: Option<(u64, Vec<Handle>)>,
    /// The page of an interprocess event, and true if another process created the event.
    pub shared: Option<(Arc<SharedEvent>, bool)>,
}

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    pub context: Handle,
    pub functions: BTreeMap<String, Handle>,
    pub globals: BTreeMap<String, Arc<Mapping>>,
}

/// A function's handle.
#[derive(Debug)]
pub struct FunctionEntry {
    pub module: Handle,
    pub function: Arc<Function>,
    /// The maximum dynamic shared memory of a launch, in bytes.
    pub dynamic: u32,
    pub carveout: i32,
}

/// A capture that has not ended.
#[derive(Debug)]
pub struct Capture {
    pub graph: Handle,
    pub context: Handle,
    /// `CUstreamCaptureMode`: 0 global, 1 thread-local, 2 relaxed.
    pub mode: u32,
    /// The stream that began it.
    pub origin: Handle,
    /// The thread that began it.
    pub thread: u64,
    pub invalid: bool,
    /// Nodes that a stream dropped when its dependencies were replaced. They count as joined.
    pub released: Vec<Handle>,
}

/// A memory pool.
#[derive(Debug)]
pub struct Pool {
    pub device: usize,
    /// False for a device's own pool, which cannot be destroyed.
    pub created: bool,
    /// The attributes 1 to 3, which are 0 or 1.
    pub reuse: [i32; 3],
    /// The unused bytes that it keeps after a synchronization.
    pub threshold: u64,
    /// The bytes that it holds from the device, and their maximum so far.
    pub reserved: u64,
    pub reserved_high: u64,
    /// The bytes that the program holds from it, and their maximum so far.
    pub used: u64,
    pub used_high: u64,
    /// The limit of `reserved`. 0: none.
    pub most: u64,
    /// Returned memory, with the stream and the command that returned it.
    pub free: Vec<(Arc<Mapping>, Handle, u64)>,
    /// True once it is destroyed: it is removed together with its last allocation.
    pub closing: bool,
}

/// All tables.
#[derive(Debug)]
pub struct State {
    handles: Handle,
    numbers: u64,
    pub contexts: BTreeMap<Handle, Context>,
    pub streams: BTreeMap<Handle, Stream>,
    /// The commands that have not completed.
    pub commands: BTreeMap<u64, Pending>,
    pub events: BTreeMap<Handle, Event>,
    pub modules: BTreeMap<Handle, Module>,
    pub functions: BTreeMap<Handle, FunctionEntry>,
    pub graphs: BTreeMap<Handle, Graph>,
    /// The graph of each node.
    pub nodes: BTreeMap<Handle, Handle>,
    pub execs: BTreeMap<Handle, Exec>,
    pub captures: BTreeMap<u64, Capture>,
    pub pools: BTreeMap<Handle, Pool>,
    /// The default and the current pool of each device.
    pub device_pools: BTreeMap<usize, (Handle, Handle)>,
    /// The default streams of threads: thread, context and stream.
    pub of_threads: BTreeMap<(u64, Handle), Handle>,
}

/// All tables, under one lock.
pub static STATE: Mutex<State> = Mutex::new(State {
    handles: 0x10_0000,
    numbers: 0,
    contexts: BTreeMap::new(),
    streams: BTreeMap::new(),
    commands: BTreeMap::new(),
    events: BTreeMap::new(),
    modules: BTreeMap::new(),
    functions: BTreeMap::new(),
    graphs: BTreeMap::new(),
    nodes: BTreeMap::new(),
    execs: BTreeMap::new(),
    captures: BTreeMap::new(),
    pools: BTreeMap::new(),
    device_pools: BTreeMap::new(),
    of_threads: BTreeMap::new(),
});

impl State {
    /// Returns a handle that was never used before.
    pub fn handle(&mut self) -> Handle {
        self.handles += 16;
        self.handles
    }

    /// Returns a number that was never used before, for a command, a capture, an allocation or a stream.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Returns true if this command has completed.
    pub fn done(&self, command: u64) -> bool {
        !self.commands.contains_key(&command)
    }

    /// Returns a context's blocking streams: those that synchronize with its legacy stream.
    pub fn blocking(&self, context: Handle) -> impl Iterator<Item = &Stream> {
        let same = move |stream: &&Stream| {
            stream.context == context && !stream.legacy && stream.flags & crate::abi::STREAM_NON_BLOCKING == 0
        };
        self.streams.values().filter(same)
    }

    /// Adds a stream to a context.
    pub fn add_stream(&mut self, context: Handle, legacy: bool, flags: u32, priority: i32) -> Handle {
        let (handle, id) = (self.handle(), self.number());
        let stream = Stream {
            context,
            legacy,
            flags,
            priority,
            id,
            queue: VecDeque::new(),
            last: 0,
            wake: Arc::new(Condvar::new()),
            room: Arc::new(Condvar::new()),
            closing: false,
            started: false,
            capture: None,
            shown: Box::default(),
        };
        self.streams.insert(handle, stream);
        handle
    }

    /// Destroys a stream. Its remaining commands still run.
    pub fn close(&mut self, handle: Handle) {
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.closing = true;
            stream.wake.notify_all();
            if !stream.started {
                self.streams.remove(&handle);
            }
        }
    }
}

/// The state of a thread.
pub struct Thread {
    /// A unique number.
    pub number: u64,
    /// The stack of contexts, the current one last.
    pub contexts: Vec<Handle>,
    /// The thread's capture mode (`cuThreadExchangeStreamCaptureMode`).
    pub mode: u32,
}

impl Drop for Thread {
    fn drop(&mut self) {
        // In a forked child the lock may stay locked forever, and the streams are the parent's.
        if crate::start::is_forked() {
            return;
        }
        // The thread's default streams end with it.
        let mut state = STATE.lock();
        let own: Vec<Handle> = state
            .of_threads
            .extract_if((self.number, 0)..=(self.number, Handle::MAX), |_, _| true)
            .map(|(_, stream)| stream)
            .collect();
        for handle in own {
            state.close(handle);
        }
    }
}

thread_local! {
    static THREAD: RefCell<Thread> = RefCell::new(Thread {
        number: {
            static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
            NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
        },
        contexts: Vec::new(),
        mode: 0,
    });
}

/// Reads or changes the calling thread's state. `None`: the thread is ending.
pub fn thread<T>(then: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    THREAD.try_with(|thread| then(&mut thread.borrow_mut())).ok()
}
