//! A hardware queue, used directly, for measurements that must not include HIP's path to the device.
//!
//! ROCr (libhsa-runtime64) lies under every HIP runtime, and its C interface has kept its ABI since version
//! 1.0. A barrier packet needs no kernel: the packet processor completes it by lowering its completion
//! signal. So only the work of the device lies between a store to the doorbell and a load of the signal.

use crate::hip::function_table;
use anyhow::{Context, Result, anyhow, bail, ensure};
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

const LIBRARIES: [&str; 2] = ["libhsa-runtime64.so.1", "libhsa-runtime64.so"];

/// `hsa_agent_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
struct Agent(u64);

/// `hsa_signal_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
struct Signal(u64);

/// The public head of `hsa_queue_t`.
#[repr(C)]
struct QueueHead {
    kind: u32,
    features: u32,
    base_address: *mut BarrierPacket,
    doorbell: Signal,
    size: u32,
    reserved: u32,
    id: u64,
}

/// `hsa_barrier_and_packet_t`.
#[repr(C)]
struct BarrierPacket {
    header: AtomicU16,
    reserved: [u16; 3],
    dependencies: [Signal; 5],
    reserved_2: u64,
    completion: Signal,
}

const _: () = assert!(size_of::<BarrierPacket>() == 64);

/// Barrier-AND, waits for the packets before it, acquires from and releases to the whole system.
const HEADER: u16 = 3 | 1 << 8 | 2 << 9 | 2 << 11;
/// The size of the queue; at most one packet is in flight.
const SIZE: u32 = 64;

type Status = c_int;

fn missing(what: &str) -> String {
    format!("the HSA runtime is incomplete: {what} is missing")
}

type EachAgent = unsafe extern "C" fn(Agent, *mut c_void) -> Status;

function_table! {
    Api {
        hsa_init: unsafe extern "C" fn() -> Status = "hsa_init";
        hsa_iterate_agents: unsafe extern "C" fn(EachAgent, *mut c_void) -> Status = "hsa_iterate_agents";
        hsa_agent_get_info: unsafe extern "C" fn(Agent, u32, *mut c_void) -> Status = "hsa_agent_get_info";
        hsa_queue_create: unsafe extern "C" fn(Agent, u32, u32, *const c_void, *mut c_void, u32, u32, *mut *mut QueueHead) -> Status = "hsa_queue_create";
        hsa_queue_destroy: unsafe extern "C" fn(*mut QueueHead) -> Status = "hsa_queue_destroy";
        hsa_queue_add_write_index_relaxed: unsafe extern "C" fn(*const QueueHead, u64) -> u64 = "hsa_queue_add_write_index_relaxed";
        hsa_signal_create: unsafe extern "C" fn(i64, u32, *const Agent, *mut Signal) -> Status = "hsa_signal_create";
        hsa_signal_destroy: unsafe extern "C" fn(Signal) -> Status = "hsa_signal_destroy";
        hsa_signal_store_relaxed: unsafe extern "C" fn(Signal, i64) -> () = "hsa_signal_store_relaxed";
        hsa_signal_store_screlease: unsafe extern "C" fn(Signal, i64) -> () = "hsa_signal_store_screlease";
        hsa_signal_load_scacquire: unsafe extern "C" fn(Signal) -> i64 = "hsa_signal_load_scacquire";
    }
}

impl Api {
    fn load() -> Result<Self> {
        // SAFETY: loading ROCr runs its initialisers, as in every HIP program; here it is loaded already.
        let library = LIBRARIES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        let library = library.with_context(|| missing("libhsa-runtime64.so.1"))?;
        // Leaked on purpose: HIP uses it for as long as the process lives.
        let library: &'static Library = Box::leak(Box::new(library));
        // SAFETY: each type is the prototype that hsa.h has for this name.
        unsafe { Self::of(library) }.map_err(|name| anyhow!(missing(name)))
    }
}

fn check(call: &'static str, status: Status) -> Result<()> {
    ensure!(status == 0, "{call} returned status {status:#x}");
    Ok(())
}

/// A hardware queue on the first GPU with one packet in it at a time; destroyed on drop.
#[derive(Debug)]
pub struct BarrierQueue {
    api: Api,
    queue: NonNull<QueueHead>,
    signal: Signal,
}

impl BarrierQueue {
    pub fn new() -> Result<Self> {
        let api = Api::load()?;
        // SAFETY: takes nothing; counted, and never undone because HIP holds a count as well.
        check("hsa_init", unsafe { (api.hsa_init)() })?;
        let agent = first_gpu(&api)?;
        let mut signal = Signal(0);
        // SAFETY: writes one signal; no consumers named means that anybody may wait for it.
        let status = unsafe { (api.hsa_signal_create)(0, 0, ptr::null(), &mut signal) };
        check("hsa_signal_create", status)?;
        let mut queue = ptr::null_mut();
        // SAFETY: the agent is a GPU, the size a power of two, the callback may be null, and one pointer is
        // written.
        let status = unsafe {
            (api.hsa_queue_create)(
                agent,
                SIZE,
                0,
                ptr::null(),
                ptr::null_mut(),
                u32::MAX,
                u32::MAX,
                &mut queue,
            )
        };
        check("hsa_queue_create", status)?;
        let queue = NonNull::new(queue).context("hsa_queue_create returned status 0x0")?;
        Ok(Self { api, queue, signal })
    }

    /// Writes a barrier packet into the queue's memory without the header that makes it valid, so that a
    /// polling device finds no packet. The packet before it must have completed.
    pub fn prepare(&mut self) -> Ready<'_> {
        debug_assert!(self.is_done());
        // SAFETY: the signal is live and no packet in flight uses it.
        unsafe { (self.api.hsa_signal_store_relaxed)(self.signal, 1) };
        // SAFETY: the queue is live.
        let index = unsafe { (self.api.hsa_queue_add_write_index_relaxed)(self.queue.as_ptr(), 1) };
        // SAFETY: ROCr keeps the head readable while the queue lives.
        let head = unsafe { self.queue.as_ref() };
        let slot = head.base_address.wrapping_add((index % u64::from(head.size)) as usize);
        // SAFETY: the slot lies in the ring, and is free: at most one packet is in flight, and that one has
        // completed.
        let packet = unsafe { &mut *slot };
        packet.reserved = [0; 3];
        packet.dependencies = [Signal(0); 5];
        packet.reserved_2 = 0;
        packet.completion = self.signal;
        Ready { queue: self, header: &packet.header, index, doorbell: head.doorbell }
    }

    /// Returns the moment at which the device took the last packet up, nanoseconds of the monotonic clock by
    /// the device's own stamp; `None` where barrier packets are not stamped (a real device unless it is
    /// profiled).
    pub fn taken_at(&self) -> Option<u64> {
        /// Offset of `start_ts` in ROCr's `amd_signal_t`.
        const START: usize = 32;
        let start = (self.signal.0 as *const u8).wrapping_add(START).cast::<u64>();
        // SAFETY: a signal's handle is the address of its `amd_signal_t` of 64 bytes, which lives as long as
        // `self`.
        let stamp = unsafe { start.read_volatile() };
        (stamp != 0).then_some(stamp)
    }

    /// Returns true if the last packet has completed.
    pub fn is_done(&self) -> bool {
        // SAFETY: the signal is live.
        unsafe { (self.api.hsa_signal_load_scacquire)(self.signal) == 0 }
    }
}

impl Drop for BarrierQueue {
    fn drop(&mut self) {
        // SAFETY: created by hsa_queue_create, destroyed once, here.
        unsafe { (self.api.hsa_queue_destroy)(self.queue.as_ptr()) };
        // SAFETY: created by hsa_signal_create, destroyed once, here; the queue that used it is gone.
        unsafe { (self.api.hsa_signal_destroy)(self.signal) };
    }
}

/// A packet that is not valid yet.
#[derive(Debug)]
pub struct Ready<'a> {
    queue: &'a BarrierQueue,
    header: &'a AtomicU16,
    index: u64,
    doorbell: Signal,
}

impl Ready<'_> {
    /// Makes the packet valid and notifies the device by one store to the doorbell.
    pub fn ring(self) {
        self.header.store(HEADER, Ordering::Release);
        // SAFETY: the doorbell belongs to the live queue; its value is the index of the last packet.
        unsafe { (self.queue.api.hsa_signal_store_screlease)(self.doorbell, self.index as i64) };
    }
}

fn first_gpu(api: &Api) -> Result<Agent> {
    unsafe extern "C" fn collect(agent: Agent, list: *mut c_void) -> Status {
        // SAFETY: the vector that `hsa_iterate_agents` was given below; it calls back before it returns.
        let list = unsafe { &mut *list.cast::<Vec<Agent>>() };
        list.push(agent);
        0
    }
    let mut agents: Vec<Agent> = Vec::new();
    // SAFETY: `collect` expects exactly this vector.
    let status = unsafe { (api.hsa_iterate_agents)(collect, ptr::from_mut(&mut agents).cast()) };
    check("hsa_iterate_agents", status)?;
    for agent in agents {
        const KIND: u32 = 17;
        const GPU: u32 = 1;
        let mut kind = 0u32;
        // SAFETY: the attribute HSA_AGENT_INFO_DEVICE is one 32-bit enumeration.
        let status = unsafe { (api.hsa_agent_get_info)(agent, KIND, ptr::from_mut(&mut kind).cast()) };
        check("hsa_agent_get_info", status)?;
        if kind == GPU {
            return Ok(agent);
        }
    }
    bail!("the HSA runtime sees no GPU")
}
