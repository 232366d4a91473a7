//! Memory of pools: the blocks that the program has, and those whose return is still deferred.
//!
//! Only the return of memory that is known to come from a pool is deferred: for other memory the runtime
//! waits for the device, as in hipFree. The same stream may allocate a block again while its return is
//! deferred, as natively: everything that it does with the block comes after the return, which is then never
//! made. Otherwise a program that allocates and returns memory in turns would run out of memory while its
//! stream is suspended.
//!
//! A pool may follow events (`hipMemPoolReuseFollowEventDependencies`; from 7.0 on, measured on 7.2.4):
//! another stream may allocate the block if it waits for an event recorded after the return. While return,
//! record and wait are deferred, only this module knows of them. To the runtime the block still belongs to
//! the first stream, which could allocate it at once when the second stream returns it, without waiting. Such
//! a block is therefore lent, and before its return it is made the second stream's ([`Pools::return_lent`]).

use crate::thread::Thread;
use hip_sys::pfn;
use hip_sys::types::{
    hipError_t, hipEvent_t, hipMemPool_t, hipMemPoolAttrReservedMemCurrent,
    hipMemPoolReuseFollowEventDependencies, hipStream_t, hipSuccess,
};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use xqueue::{After, QueueId, Ticket};

/// A block that the program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The bytes that the program may use.
    size: usize,
    pool: usize,
    /// True if to the runtime it belongs to another stream than it does.
    lent: bool,
}

impl Block {
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }
}

/// A block whose return is deferred.
pub(crate) struct Returning {
    address: usize,
    block: Block,
    queue: QueueId,
    state: AtomicU8,
    /// Locked while the runtime makes the return.
    call: Mutex<()>,
    /// The other queues whose further commands follow the return.
    followers: Mutex<Vec<QueueId>>,
}

const PENDING: u8 = 0;
const LAUNCHED: u8 = 1;
/// The block was allocated again.
const TAKEN: u8 = 2;

impl Returning {
    fn end(&self, state: u8) -> bool {
        self.state.compare_exchange(PENDING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Begins the return, which lasts until the guard is dropped. Returns `None` if the block was allocated
    /// again, so that it must not be returned.
    pub(crate) fn launch(&self) -> Option<MutexGuard<'_, ()>> {
        let call = self.call.lock();
        self.end(LAUNCHED).then_some(call)
    }

    fn is_pending(&self) -> bool {
        self.state.load(Ordering::Acquire) == PENDING
    }

    /// Returns true while the runtime makes the return: it does not have the block yet.
    fn is_in_flight(&self) -> bool {
        self.state.load(Ordering::Acquire) == LAUNCHED && self.call.is_locked()
    }

    /// Waits until the runtime has made a return that it has begun.
    fn wait_made(&self) {
        drop(self.call.lock());
    }

    /// Returns true if this queue's further commands follow the return.
    fn precedes(&self, queue: QueueId) -> bool {
        self.queue == queue || self.followers.lock().contains(&queue)
    }
}

/// The functions for a runtime whose pools follow events.
#[derive(Clone, Copy)]
pub(crate) struct Following {
    pub(super) attribute: pfn::hipMemPoolGetAttribute,
    pub(super) allocate: pfn::hipMallocFromPoolAsync,
    pub(super) free: pfn::hipFreeAsync,
}

impl Following {
    fn follows(&self, pool: hipMemPool_t) -> bool {
        let mut follows: c_int = 0;
        // SAFETY: the pool is the program's, and the place for the answer, an int, is valid.
        let code = unsafe {
            (self.attribute)(pool, hipMemPoolReuseFollowEventDependencies, (&raw mut follows).cast())
        };
        code == hipSuccess && follows != 0
    }
}

/// The most other blocks that a pool may hand out before the lent one.
const MOST_OTHERS: usize = 64;
/// The number of records after which completed ones are removed.
const MOST_RECORDS: usize = 64;

/// The record of an event, as a command of this queue.
type Record = (QueueId, Ticket);
/// A record, with the deferred returns before it.
type Recorded = (Record, Vec<Arc<Returning>>);

#[derive(Default)]
pub(crate) struct Pools {
    current: Option<pfn::hipDeviceGetMemPool>,
    blocks: Mutex<HashMap<usize, Block>>,
    /// The deferred returns, with their commands.
    returning: Mutex<Vec<(Arc<Returning>, Option<After>)>>,
    /// An upper bound of the number of deferred returns; 0 is the common case.
    open: AtomicUsize,
    following: Option<Following>,
    /// The last records of events that have deferred returns before them, by the events' handles.
    records: Mutex<HashMap<usize, Recorded>>,
    /// The number of `records`.
    recorded: AtomicUsize,
    /// True once a block was lent.
    lends: AtomicBool,
    /// Once a block was lent: held for reading during an allocation, and for writing during the return of a
    /// lent block.
    hands: RwLock<()>,
}

impl Pools {
    pub(crate) fn new(current: Option<pfn::hipDeviceGetMemPool>, following: Option<Following>) -> Self {
        Self { current, following, ..Self::default() }
    }

    /// Returns the pool from which a stream of this device allocates.
    pub(crate) fn current(&self, device: u32) -> Option<hipMemPool_t> {
        let mut pool = hipMemPool_t::NULL;
        // SAFETY: the place for the answer is valid.
        let code = unsafe { (self.current?)(&mut pool, c_int::try_from(device).ok()?) };
        (code == hipSuccess).then_some(pool)
    }

    /// Allocates the smallest sufficient block whose return to this pool by this queue is deferred. If there
    /// is none, allocates one of another queue whose return this queue follows, if the pool follows events.
    /// If there is none either, waits for the returns in flight: the runtime may allocate these blocks.
    pub(crate) fn take_back(&self, queue: QueueId, pool: hipMemPool_t, size: usize) -> Option<*mut c_void> {
        if self.open.load(Ordering::Acquire) == 0 {
            return None;
        }
        // Called without a lock, because the runtime may wait inside.
        let follows = self.following.is_some_and(|each| each.follows(pool));
        let returning = self.lock_unmade();
        loop {
            let fits = |one: &&Arc<Returning>| {
                let is_of = one.block.pool == pool.as_raw() && one.block.size >= size && one.is_pending();
                if !is_of || one.queue == queue {
                    return is_of;
                }
                // The runtime uses no block that is larger by more than an eighth.
                follows && one.block.size <= size.saturating_add(size / 8) && one.precedes(queue)
            };
            let all = returning.iter().map(|(one, _)| one);
            let best = all.filter(|one| fits(one)).min_by_key(|one| (one.queue != queue, one.block.size));
            let Some(best) = best else { break };
            if best.end(TAKEN) {
                let block = Block { lent: best.block.lent || best.queue != queue, ..best.block };
                if block.lent {
                    self.lends.store(true, Ordering::SeqCst);
                }
                self.blocks.lock().insert(best.address, block);
                return Some(std::ptr::with_exposed_provenance_mut(best.address));
            }
        }
        if !Thread::current().is_in_callback() {
            let is_before = |one: &Arc<Returning>| {
                one.block.pool == pool.as_raw() && one.precedes(queue) && one.is_in_flight()
            };
            let all = returning.iter().map(|(one, _)| one);
            let in_flight: Vec<_> = all.filter(|one| is_before(one)).cloned().collect();
            drop(returning);
            in_flight.iter().for_each(|one| one.wait_made());
        }
        None
    }

    /// Makes a call that allocates memory of a pool.
    pub(crate) fn allocating<R>(&self, ask: impl FnOnce() -> R) -> R {
        let _hands = self.lends.load(Ordering::SeqCst).then(|| self.hands.read());
        ask()
    }

    /// Returns the deferred returns that this queue's next command follows, which is an event's record.
    pub(crate) fn before_record(&self, queue: QueueId) -> Vec<Arc<Returning>> {
        if self.following.is_none() || self.open.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let returning = self.lock_unmade();
        let all = returning.iter().map(|(one, _)| one);
        all.filter(|one| one.precedes(queue)).cloned().collect()
    }

    /// Notes a deferred record of the event after these returns. A record made at once has no deferred return
    /// before it.
    pub(crate) fn recorded(&self, event: hipEvent_t, record: Record, mut behind: Vec<Arc<Returning>>) {
        behind.retain(|one| one.is_pending());
        if behind.is_empty() {
            return;
        }
        let mut records = self.records.lock();
        if records.len() >= MOST_RECORDS {
            records.retain(|_, (_, behind)| behind.iter().any(|one| one.is_pending()));
        }
        records.insert(event.as_raw(), (record, behind));
        self.recorded.store(records.len(), Ordering::Release);
    }

    /// Notes that a pool is about to be destroyed. Its blocks stay until the program returns them, and are
    /// not reused.
    pub(crate) fn pool_ends(&self, pool: hipMemPool_t) {
        let mut blocks = self.blocks.lock();
        for block in blocks.values_mut().filter(|block| block.pool == pool.as_raw()) {
            (block.lent, block.pool) = (false, 0);
        }
    }

    /// Forgets a record: the event is recorded again, or destroyed.
    pub(crate) fn forget_record(&self, event: hipEvent_t) {
        if self.recorded.load(Ordering::Acquire) != 0 {
            let mut records = self.records.lock();
            records.remove(&event.as_raw());
            self.recorded.store(records.len(), Ordering::Release);
        }
    }

    /// Forgets all records: a graph is launched, which may record any event.
    pub(crate) fn forget_records(&self) {
        if self.recorded.load(Ordering::Acquire) != 0 {
            self.records.lock().clear();
            self.recorded.store(0, Ordering::Release);
        }
    }

    /// Notes that this queue's further commands wait for this record of the event.
    pub(crate) fn waits(&self, event: hipEvent_t, awaited: Record, queue: QueueId) {
        if self.recorded.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut records = self.records.lock();
        // Another thread may have recorded it again.
        let Some((_, behind)) = records.get_mut(&event.as_raw()).filter(|(record, _)| *record == awaited)
        else {
            return;
        };
        behind.retain(|one| one.is_pending());
        for one in behind.iter().filter(|one| !one.precedes(queue)) {
            one.followers.lock().push(queue);
        }
    }

    /// Returns a lent block on this stream. Otherwise its first stream could allocate it at once. So the
    /// block is freed, then allocated on this stream, which makes it this stream's, and then returned by
    /// `last`, the program's call.
    ///
    /// # Safety
    ///
    /// The program does not use the block any more, and stream and pool exist.
    pub(crate) unsafe fn return_lent(
        &self,
        address: *mut c_void,
        block: Block,
        stream: hipStream_t,
        last: impl FnOnce() -> hipError_t,
    ) -> hipError_t {
        let Some(Following { attribute, allocate, free, .. }) = self.following else { return last() };
        let pool = hipMemPool_t::from_raw(block.pool);
        let reserved = || {
            let mut bytes: u64 = 0;
            // SAFETY: the pool exists, and the place for the answer, a number of 64 bits, is valid.
            let code = unsafe { attribute(pool, hipMemPoolAttrReservedMemCurrent, (&raw mut bytes).cast()) };
            (code == hipSuccess).then_some(bytes)
        };
        let _hands = self.hands.write();
        let before = reserved();
        // SAFETY: by the contract the block is not used any more, and the stream exists.
        let code = unsafe { free(address, stream) };
        if code != hipSuccess {
            return code;
        }
        let mut others = Vec::new();
        let mut own = false;
        while !own && others.len() < MOST_OTHERS {
            let mut place = std::ptr::null_mut();
            // SAFETY: the place for the address is valid, and pool and stream exist.
            let code = unsafe { allocate(&mut place, block.size, pool, stream) };
            if code != hipSuccess || place.is_null() {
                break;
            }
            own = place == address;
            if !own {
                others.push(place);
                // The pool has grown, so it has no more free blocks, and the lent one cannot be allocated.
                if before.is_none() || reserved() > before {
                    break;
                }
            }
        }
        for one in others {
            // SAFETY: the block was allocated above, and is not used.
            let _ = unsafe { free(one, stream) };
        }
        // A block that was not allocated again is returned already.
        if own { last() } else { hipSuccess }
    }

    pub(crate) fn allocated(&self, address: *mut c_void, size: usize, pool: hipMemPool_t) {
        let block = Block { size, pool: pool.as_raw(), lent: false };
        self.blocks.lock().insert(address.expose_provenance(), block);
    }

    /// Removes a block that the program returns; `None` if it is not known to come from a pool.
    pub(crate) fn remove(&self, address: *mut c_void) -> Option<Block> {
        self.blocks.lock().remove(&address.addr())
    }

    /// Adds a block again whose return the runtime has refused.
    pub(crate) fn add_again(&self, address: *mut c_void, block: Block) {
        self.blocks.lock().insert(address.expose_provenance(), block);
    }

    /// Prepares the deferred return of a block by a command of this queue, which [`Pools::submitted`] then
    /// notes.
    pub(crate) fn prepare_return(
        &self,
        address: *mut c_void,
        block: Block,
        queue: QueueId,
    ) -> Arc<Returning> {
        let address = address.expose_provenance();
        Arc::new(Returning {
            address,
            block,
            queue,
            state: AtomicU8::new(PENDING),
            call: Mutex::default(),
            followers: Mutex::default(),
        })
    }

    /// Notes the command of a deferred return.
    pub(crate) fn submitted(&self, returning: Arc<Returning>, command: After) {
        let mut all = self.lock_unmade();
        all.push((returning, Some(command)));
        self.open.store(all.len(), Ordering::Release);
    }

    /// Locks the deferred returns, without those that the runtime has made.
    fn lock_unmade(&self) -> MutexGuard<'_, Vec<(Arc<Returning>, Option<After>)>> {
        let mut all = self.returning.lock();
        all.retain(|(one, _)| one.is_pending() || one.is_in_flight());
        self.open.store(all.len(), Ordering::Release);
        all
    }

    /// Waits until all deferred returns are made, for calls that query or trim a pool. Does not wait inside a
    /// callback. Returns true if there were any.
    pub(crate) fn wait_for_returns(&self) -> bool {
        if Thread::current().is_in_callback() {
            return false;
        }
        let open = self.lock_unmade().clone();
        for (one, command) in &open {
            command.iter().for_each(After::wait_launched);
            one.wait_made();
        }
        !open.is_empty()
    }

    /// Forgets all blocks: a device is reset.
    pub(crate) fn forget(&self) {
        self.blocks.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hip_sys::types::{hipErrorOutOfMemory, hipMemPoolAttr};

    fn address(number: usize) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(number)
    }

    const POOL: hipMemPool_t = hipMemPool_t::from_raw(0x10);

    /// Makes a block of this size whose return by the queue is deferred.
    fn returning(pools: &Pools, number: usize, size: usize, queue: u64) -> Arc<Returning> {
        pools.allocated(address(number), size, POOL);
        let block = pools.remove(address(number)).expect("the program has it");
        let returning = pools.prepare_return(address(number), block, QueueId(queue));
        pools.returning.lock().push((returning.clone(), None));
        pools.open.fetch_add(1, Ordering::Release);
        returning
    }

    #[test]
    fn remove_returns_a_pools_block_once() {
        let pools = Pools::new(None, None);
        assert_eq!(pools.remove(address(0x1000)), None);
        pools.allocated(address(0x1000), 64, POOL);
        let block = pools.remove(address(0x1000)).unwrap();
        assert_eq!(pools.remove(address(0x1000)), None);
        pools.add_again(address(0x1000), block);
        assert_eq!(pools.remove(address(0x1000)), Some(block));
        pools.add_again(address(0x1000), block);
        pools.forget();
        assert_eq!(pools.remove(address(0x1000)), None);
    }

    #[test]
    fn take_back_cancels_the_return() {
        let pools = Pools::new(None, None);
        let (large, small) = (returning(&pools, 0x1000, 4096, 1), returning(&pools, 0x2000, 256, 1));
        // Another queue, another pool, more than there is.
        assert_eq!(pools.take_back(QueueId(2), POOL, 16), None);
        assert_eq!(pools.take_back(QueueId(1), hipMemPool_t::NULL, 16), None);
        assert_eq!(pools.take_back(QueueId(1), POOL, 4097), None);
        assert_eq!(pools.take_back(QueueId(1), POOL, 256), Some(address(0x2000)));
        assert!(small.launch().is_none(), "it belongs to the program again");
        assert!(large.launch().is_some(), "its turn has come");
        assert_eq!(pools.take_back(QueueId(1), POOL, 16), None, "the runtime has it");
        assert_eq!(
            pools.remove(address(0x2000)),
            Some(Block { size: 256, pool: POOL.as_raw(), lent: false })
        );
        assert_eq!(pools.remove(address(0x1000)), None);
    }

    #[test]
    fn a_return_in_flight_is_awaited() {
        let pools = Pools::new(None, None);
        let one = returning(&pools, 0x1000, 64, 1);
        let made = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let call = one.launch().expect("nobody has allocated it");
            let waits = [
                scope.spawn(|| {
                    assert_eq!(pools.take_back(QueueId(1), POOL, 64), None);
                    made.load(Ordering::SeqCst)
                }),
                scope.spawn(|| {
                    pools.wait_for_returns();
                    made.load(Ordering::SeqCst)
                }),
            ];
            assert_eq!(pools.take_back(QueueId(2), POOL, 64), None, "another queue does not wait");
            for _ in 0..100 {
                std::thread::yield_now();
            }
            made.store(true, Ordering::SeqCst);
            drop(call);
            assert_eq!(waits.map(|wait| wait.join().unwrap()), [true, true]);
        });
        assert!(!pools.wait_for_returns(), "the runtime has it");
    }

    /// Pools that follow events, and that cannot be asked for memory.
    fn following() -> Pools {
        unsafe extern "C" fn follows(_: hipMemPool_t, _: hipMemPoolAttr, value: *mut c_void) -> hipError_t {
            // SAFETY: the place for an int.
            unsafe { value.cast::<c_int>().write(1) };
            hipSuccess
        }
        unsafe extern "C" fn none(
            _: *mut *mut c_void,
            _: usize,
            _: hipMemPool_t,
            _: hipStream_t,
        ) -> hipError_t {
            hipErrorOutOfMemory
        }
        unsafe extern "C" fn free(_: *mut c_void, _: hipStream_t) -> hipError_t {
            hipSuccess
        }
        Pools::new(None, Some(Following { attribute: follows, allocate: none, free }))
    }

    #[test]
    fn take_back_lends_to_a_queue_that_follows_the_return() {
        let [one, two, three] = [1, 2, 3].map(QueueId);
        let [event, other] = [0x100, 0x200].map(hipEvent_t::from_raw);
        let pools = following();
        let (first, second) = ((one, Ticket::NONE), (two, Ticket::NONE));
        let block = returning(&pools, 0x1000, 4096, 1);
        assert_eq!(pools.take_back(two, POOL, 4096), None, "it does not follow");
        // A record of the wrong queue, and one that was made anew.
        assert!(pools.before_record(two).is_empty());
        pools.recorded(other, first, pools.before_record(one));
        pools.waits(other, second, two);
        assert_eq!(pools.take_back(two, POOL, 4096), None, "it waits for another record");
        pools.forget_record(other);
        pools.waits(other, first, two);
        assert_eq!(pools.take_back(two, POOL, 4096), None);
        // The third queue follows the second one, which follows the first.
        pools.recorded(event, first, pools.before_record(one));
        pools.waits(event, first, two);
        pools.recorded(other, second, pools.before_record(two));
        pools.waits(other, second, three);
        assert_eq!(pools.take_back(three, POOL, 3000), None, "the runtime would not take so large a one");
        assert_eq!(pools.take_back(three, POOL, 4000), Some(address(0x1000)));
        assert!(block.launch().is_none(), "it belongs to the program again");
        assert_eq!(pools.take_back(two, POOL, 4096), None);
        assert!(pools.remove(address(0x1000)).is_some_and(|block| block.is_lent()));
        // What was launched is the runtime's to hand out.
        let launched = returning(&pools, 0x2000, 4096, 1);
        pools.recorded(event, first, pools.before_record(one));
        pools.waits(event, first, two);
        assert!(launched.launch().is_some());
        assert_eq!(pools.take_back(two, POOL, 4096), None);
        // A pool that is destroyed hands nothing out.
        pools.allocated(address(0x3000), 4096, POOL);
        pools.pool_ends(POOL);
        assert!(pools.remove(address(0x3000)).is_some_and(|block| block.pool == 0));
    }
}
