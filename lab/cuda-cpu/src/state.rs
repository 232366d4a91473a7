//! What this library knows: contexts, streams, events, modules, graphs, captures and pools, by their handles, under one
//! lock. Commands run without it.

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

/// A context. Streams belong to one.
#[derive(Debug)]
pub struct Context {
    pub device: usize,
    /// The stream that 0 and `CU_STREAM_LEGACY` mean.
    pub legacy: Handle,
    /// The error that all calls return once there is one.
    pub error: CUresult,
    pub primary: bool,
    /// How often a primary context was retained.
    pub retained: u32,
    pub flags: u32,
    pub limits: BTreeMap<u32, usize>,
    pub cache: u32,
    pub shared: u32,
    pub peers: Vec<Handle>,
}

/// A stream and the commands that have not completed.
#[derive(Debug)]
pub struct Stream {
    pub context: Handle,
    pub legacy: bool,
    pub flags: u32,
    pub priority: i32,
    /// What `cuStreamGetId` returns.
    pub id: u64,
    pub queue: VecDeque<u64>,
    /// The last command that it was given. 0: none.
    pub last: u64,
    /// Tells its thread that something may run.
    pub wake: Arc<Condvar>,
    /// Tells callers that the queue has room.
    pub room: Arc<Condvar>,
    /// True once it is destroyed: its handle is not valid, and it ends with its last command.
    pub closing: bool,
    /// True once its thread runs.
    pub started: bool,
    /// The capture that it takes part in, and the nodes that the next one waits for.
    pub capture: Option<(u64, Vec<Handle>)>,
    /// What `cuStreamGetCaptureInfo_v2` last showed, which the program reads until the next call.
    pub shown: Box<[Handle]>,
}

/// A command that has not completed.
#[derive(Debug)]
pub struct Pending {
    pub stream: Handle,
    /// How many commands it still waits for.
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
    /// The last record: its command and when it was reached.
    pub record: Option<(u64, Arc<Stamp>)>,
    /// The capture in which it was recorded last, and the nodes that it stands for.
    pub captured: Option<(u64, Vec<Handle>)>,
    /// Its page, if it is for other processes, and true if another process made it.
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
    /// The most dynamic shared memory that a launch may ask for, in bytes.
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
    /// Nodes that no stream waits for any more, because its dependencies were replaced, but that were joined.
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
    /// How many unused bytes it keeps when something synchronizes.
    pub threshold: u64,
    /// What it has from the device, and the most it had.
    pub reserved: u64,
    pub reserved_high: u64,
    /// What the program has from it, and the most it had.
    pub used: u64,
    pub used_high: u64,
    /// The most it may have. 0: no limit.
    pub most: u64,
    /// Memory that was returned, with the stream and the command that returned it.
    pub free: Vec<(Arc<Mapping>, Handle, u64)>,
    /// True once it was destroyed: it ends with its last allocation.
    pub closing: bool,
}

/// Everything.
#[derive(Debug)]
pub struct State {
    handles: Handle,
    numbers: u64,
    pub contexts: BTreeMap<Handle, Context>,
    pub streams: BTreeMap<Handle, Stream>,
    /// A command that is not here has completed.
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

/// The lock.
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
    /// A handle that was never used before.
    pub fn handle(&mut self) -> Handle {
        self.handles += 16;
        self.handles
    }

    /// A number that was never used before: of a command, a capture, an allocation or a stream.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// True if this command has completed.
    pub fn done(&self, command: u64) -> bool {
        !self.commands.contains_key(&command)
    }

    /// The streams of a context that order themselves with its legacy stream.
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
}

/// What belongs to a thread.
pub struct Thread {
    /// A number that no other thread has.
    pub number: u64,
    /// Its contexts, the current one last.
    pub contexts: Vec<Handle>,
    /// How it treats captures of others (`cuThreadExchangeStreamCaptureMode`).
    pub mode: u32,
}

impl Drop for Thread {
    fn drop(&mut self) {
        // In a forked child the lock may stay locked for ever, and the streams are the parent's.
        if crate::start::is_forked() {
            return;
        }
        // Its default streams end with it.
        let mut state = STATE.lock();
        let own: Vec<Handle> = state
            .of_threads
            .extract_if((self.number, 0)..=(self.number, Handle::MAX), |_, _| true)
            .map(|(_, stream)| stream)
            .collect();
        for handle in own {
            if let Some(stream) = state.streams.get_mut(&handle) {
                stream.closing = true;
                stream.wake.notify_all();
                if !stream.started {
                    state.streams.remove(&handle);
                }
            }
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

/// Reads or changes what belongs to the calling thread. `None`: the thread is ending.
pub fn thread<T>(then: impl FnOnce(&mut Thread) -> T) -> Option<T> {
    THREAD.try_with(|thread| then(&mut thread.borrow_mut())).ok()
}
