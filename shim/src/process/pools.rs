//! Memory of pools: which blocks the program has, and which it has given back by a call that is still deferred.
//!
//! Only memory that is known to come from a pool is given back later: of all other memory the runtime waits for the
//! device, as in hipFree. A block that a stream gives back can be had again at once by the same stream, as with the runtime
//! itself: all that the new owner does there comes after the deferred call. The call then never happens. Without that, a
//! program that allocates and gives back in turns would run out of memory while its stream is held.
//!
//! A pool can follow events (`hipMemPoolReuseFollowEventDependencies`; from 7 on, measured on 7.2.4): what a stream gives back
//! another one has at once, if it waits for an event that was recorded behind that. While record and wait are deferred with the
//! return, only this file knows of them. The runtime then still has the memory for the first stream, and when the second one
//! gives it back the first one could have it at once, without waiting for anything. So such a block is lent, and returning it
//! makes it the second one's before ([`Pools::return_lent`]).

use crate::thread::Thread;
use hip_sys::pfn;
use hip_sys::types::{
    hipError_t, hipEvent_t, hipMemPool_t, hipMemPoolAttrReservedMemCurrent,
    hipMemPoolReuseFollowEventDependencies, hipStream_t, hipSuccess,
};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use xqueue::{After, QueueId, Ticket, XQueue};

/// A block that the program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Bytes, as far as the program may use them.
    size: usize,
    pool: usize,
    /// Whether the runtime has it for another stream than the program.
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
    /// Queues whose further commands follow the return.
    followers: Mutex<Vec<QueueId>>,
}

const PENDING: u8 = 0;
const LAUNCHED: u8 = 1;
/// Somebody has it again.
const TAKEN: u8 = 2;

impl Returning {
    fn turn(&self, state: u8) -> bool {
        self.state.compare_exchange(PENDING, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Its turn has come. False: somebody has it again.
    pub(crate) fn launch(&self) -> bool {
        self.turn(LAUNCHED)
    }

    fn is_pending(&self) -> bool {
        self.state.load(Ordering::Acquire) == PENDING
    }

    /// Whether what this queue does from now on comes after the return.
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
    /// Returns true if this pool follows events.
    fn does(&self, pool: hipMemPool_t) -> bool {
        let mut follows: c_int = 0;
        // SAFETY: a pool of the program's, and a place for the answer, which is an int.
        let code = unsafe {
            (self.attribute)(pool, hipMemPoolReuseFollowEventDependencies, (&raw mut follows).cast())
        };
        code == hipSuccess && follows != 0
    }
}

/// Blocks that a pool may hand out in place of a lent one before that comes.
const MOST_OTHERS: usize = 64;
/// Records of events that are kept before it is looked which of them are over.
const MOST_RECORDS: usize = 64;

/// The record of an event: by a command of this queue.
type Record = (QueueId, Ticket);
/// With what was about to be returned in front of it.
type Recorded = (Record, Vec<Arc<Returning>>);

/// The pools of a process.
pub(crate) struct Pools {
    current: Option<pfn::hipDeviceGetMemPool>,
    blocks: Mutex<HashMap<usize, Block>>,
    /// With the command that does it.
    returning: Mutex<Vec<(Arc<Returning>, Option<After>)>>,
    /// How many there were when somebody last looked; 0 is the common case.
    open: AtomicUsize,
    following: Option<Following>,
    /// What was about to be returned in front of the last record of an event, by the event's handle.
    records: Mutex<HashMap<usize, Recorded>>,
    /// How many of these there are.
    recorded: AtomicUsize,
    /// Whether a block was ever lent.
    lends: AtomicBool,
    /// Held while the runtime is asked for memory of a pool, once a block was lent; alone by whoever returns such a one.
    hands: RwLock<()>,
}

impl Pools {
    pub(crate) fn new(current: Option<pfn::hipDeviceGetMemPool>, following: Option<Following>) -> Self {
        Self {
            current,
            blocks: Mutex::default(),
            returning: Mutex::default(),
            open: AtomicUsize::new(0),
            following,
            records: Mutex::default(),
            recorded: AtomicUsize::new(0),
            lends: AtomicBool::new(false),
            hands: RwLock::default(),
        }
    }

    /// The pool that a device's stream takes memory from.
    pub(crate) fn current(&self, device: u32) -> Option<hipMemPool_t> {
        let mut pool = hipMemPool_t::NULL;
        // SAFETY: the runtime's function gets a place for its answer.
        let code = unsafe { (self.current?)(&mut pool, c_int::try_from(device).ok()?) };
        (code == hipSuccess).then_some(pool)
    }

    /// A block of at least this size that this queue is about to return to this pool: the smallest one. Else one that another
    /// queue is, if this one follows that and the pool lends it.
    pub(crate) fn take_back(&self, queue: QueueId, pool: hipMemPool_t, size: usize) -> Option<*mut c_void> {
        if self.open.load(Ordering::Acquire) == 0 {
            return None;
        }
        // Asked without a lock: the runtime can wait inside.
        let follows = self.following.is_some_and(|each| each.does(pool));
        let mut returning = self.returning.lock();
        returning.retain(|(one, _)| one.is_pending());
        self.open.store(returning.len(), Ordering::Release);
        loop {
            let fits = |one: &&Arc<Returning>| {
                let is_of = one.block.pool == pool.as_raw() && one.block.size >= size && one.is_pending();
                if !is_of || one.queue == queue {
                    return is_of;
                }
                // The runtime takes nothing that is larger by more than an eighth.
                follows && one.block.size <= size.saturating_add(size / 8) && one.precedes(queue)
            };
            let all = returning.iter().map(|(one, _)| one);
            let best = all.filter(|one| fits(one)).min_by_key(|one| (one.queue != queue, one.block.size))?;
            if best.turn(TAKEN) {
                let block = Block { lent: best.block.lent || best.queue != queue, ..best.block };
                if block.lent {
                    self.lends.store(true, Ordering::SeqCst);
                }
                self.blocks.lock().insert(best.address, block);
                return Some(std::ptr::with_exposed_provenance_mut(best.address));
            }
        }
    }

    /// Asks the runtime for memory of a pool.
    pub(crate) fn ask<R>(&self, ask: impl FnOnce() -> R) -> R {
        let _hands = self.lends.load(Ordering::SeqCst).then(|| self.hands.read());
        ask()
    }

    /// What this queue, or one that it follows, is about to return: it lies in front of an event's record that is about to be
    /// made there.
    pub(crate) fn in_front_of_record(&self, queue: QueueId) -> Vec<Arc<Returning>> {
        if self.following.is_none() || self.open.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut returning = self.returning.lock();
        returning.retain(|(one, _)| one.is_pending());
        self.open.store(returning.len(), Ordering::Release);
        let all = returning.iter().map(|(one, _)| one);
        all.filter(|one| one.precedes(queue)).cloned().collect()
    }

    /// The event is recorded behind these, by a command that is deferred: what is launched has nothing deferred in front.
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

    /// A pool is about to be destroyed. Its blocks stay until the program gives them up, and are nobody's to hand out.
    pub(crate) fn ends(&self, pool: hipMemPool_t) {
        let mut blocks = self.blocks.lock();
        for block in blocks.values_mut().filter(|block| block.pool == pool.as_raw()) {
            (block.lent, block.pool) = (false, 0);
        }
    }

    /// The event is recorded anew, or gone.
    pub(crate) fn forget_record(&self, event: hipEvent_t) {
        if self.recorded.load(Ordering::Acquire) != 0 {
            let mut records = self.records.lock();
            records.remove(&event.as_raw());
            self.recorded.store(records.len(), Ordering::Release);
        }
    }

    /// A graph is launched, which may record any event.
    pub(crate) fn forget_records(&self) {
        if self.recorded.load(Ordering::Acquire) != 0 {
            self.records.lock().clear();
            self.recorded.store(0, Ordering::Release);
        }
    }

    /// What this queue does from now on waits for this record of the event.
    pub(crate) fn waits(&self, event: hipEvent_t, awaited: Record, queue: QueueId) {
        if self.recorded.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut records = self.records.lock();
        // Another thread may have recorded it anew.
        let Some((_, behind)) = records.get_mut(&event.as_raw()).filter(|(record, _)| *record == awaited)
        else {
            return;
        };
        behind.retain(|one| one.is_pending());
        for one in behind.iter().filter(|one| !one.precedes(queue)) {
            one.followers.lock().push(queue);
        }
    }

    /// Returns a lent block on this stream. The runtime makes it the stream's own by handing it out there, and only then has
    /// it back, by `last`, the program's call: else the stream that it was made for could have it at once.
    ///
    /// # Safety
    ///
    /// The program has given the block up, the stream exists, and so does the pool.
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
            // SAFETY: the pool exists, and the answer is a number of 64 bits.
            let code = unsafe { attribute(pool, hipMemPoolAttrReservedMemCurrent, (&raw mut bytes).cast()) };
            (code == hipSuccess).then_some(bytes)
        };
        let _hands = self.hands.write();
        let before = reserved();
        // SAFETY: the caller's promise.
        let code = unsafe { free(address, stream) };
        if code != hipSuccess {
            return code;
        }
        let mut others = Vec::new();
        let mut own = false;
        while !own && others.len() < MOST_OTHERS {
            let mut place = std::ptr::null_mut();
            // SAFETY: a place for the address.
            let code = unsafe { allocate(&mut place, block.size, pool, stream) };
            if code != hipSuccess || place.is_null() {
                break;
            }
            own = place == address;
            if !own {
                others.push(place);
                // It came from outside: the pool has the block no more, and so nobody can have it from there.
                if before.is_none() || reserved() > before {
                    break;
                }
            }
        }
        for one in others {
            // SAFETY: it was allocated above.
            let _ = unsafe { free(one, stream) };
        }
        // What was not had again is returned already.
        if own { last() } else { hipSuccess }
    }

    /// The program has got a block from the runtime.
    pub(crate) fn has(&self, address: *mut c_void, size: usize, pool: hipMemPool_t) {
        let block = Block { size, pool: pool.as_raw(), lent: false };
        self.blocks.lock().insert(address.expose_provenance(), block);
    }

    /// The program gives this memory up. Nothing if it is not known to come from a pool.
    pub(crate) fn gives_up(&self, address: *mut c_void) -> Option<Block> {
        self.blocks.lock().remove(&address.addr())
    }

    /// The runtime has refused that.
    pub(crate) fn keeps(&self, address: *mut c_void, block: Block) {
        self.blocks.lock().insert(address.expose_provenance(), block);
    }

    /// A block is about to be returned by a command of this queue. To be called before it is submitted, so that its launch
    /// finds it; [`Pools::submitted`] says where.
    pub(crate) fn returns(&self, address: *mut c_void, block: Block, queue: QueueId) -> Arc<Returning> {
        let address = address.expose_provenance();
        let followers = Mutex::default();
        Arc::new(Returning { address, block, queue, state: AtomicU8::new(PENDING), followers })
    }

    /// The command was submitted.
    pub(crate) fn submitted(&self, returning: Arc<Returning>, queue: &Arc<XQueue>, ticket: Ticket) {
        let mut all = self.returning.lock();
        all.retain(|(one, _)| one.is_pending());
        all.push((returning, Some(After { queue: queue.clone(), through: ticket })));
        self.open.store(all.len(), Ordering::Release);
    }

    /// Waits until what was to be returned is: who asks a pool, or empties it, must find it there. Inside a callback nothing
    /// waits. Whether there was something.
    pub(crate) fn settle(&self) -> bool {
        if Thread::current().is_in_callback() {
            return false;
        }
        let open: Vec<_> = {
            let all = self.returning.lock();
            all.iter()
                .filter(|(one, _)| one.is_pending())
                .filter_map(|(_, command)| command.clone())
                .collect()
        };
        let some = !open.is_empty();
        for After { queue, through } in open {
            queue.wait_launched(through.next());
        }
        some
    }

    /// A device is reset: nothing is known of any block any more.
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

    /// A block of this size that the queue is about to return.
    fn returning(pools: &Pools, number: usize, size: usize, queue: u64) -> Arc<Returning> {
        pools.has(address(number), size, POOL);
        let block = pools.gives_up(address(number)).expect("the program has it");
        let returning = pools.returns(address(number), block, QueueId(queue));
        pools.returning.lock().push((returning.clone(), None));
        pools.open.fetch_add(1, Ordering::Release);
        returning
    }

    #[test]
    fn only_memory_of_a_pool_is_given_up_and_only_once() {
        let pools = Pools::new(None, None);
        assert_eq!(pools.gives_up(address(0x1000)), None);
        pools.has(address(0x1000), 64, POOL);
        let block = pools.gives_up(address(0x1000)).unwrap();
        assert_eq!(pools.gives_up(address(0x1000)), None);
        pools.keeps(address(0x1000), block);
        assert_eq!(pools.gives_up(address(0x1000)), Some(block));
        pools.keeps(address(0x1000), block);
        pools.forget();
        assert_eq!(pools.gives_up(address(0x1000)), None);
    }

    #[test]
    fn a_block_that_is_taken_back_is_not_returned() {
        let pools = Pools::new(None, None);
        let (large, small) = (returning(&pools, 0x1000, 4096, 1), returning(&pools, 0x2000, 256, 1));
        // Another queue, another pool, more than there is.
        assert_eq!(pools.take_back(QueueId(2), POOL, 16), None);
        assert_eq!(pools.take_back(QueueId(1), hipMemPool_t::NULL, 16), None);
        assert_eq!(pools.take_back(QueueId(1), POOL, 4097), None);
        assert_eq!(pools.take_back(QueueId(1), POOL, 256), Some(address(0x2000)));
        assert!(!small.launch(), "it belongs to the program again");
        assert!(large.launch(), "its turn has come");
        assert_eq!(pools.take_back(QueueId(1), POOL, 16), None, "the runtime has it");
        assert_eq!(
            pools.gives_up(address(0x2000)),
            Some(Block { size: 256, pool: POOL.as_raw(), lent: false })
        );
        assert_eq!(pools.gives_up(address(0x1000)), None);
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
    fn a_block_is_lent_to_a_queue_that_follows_its_return() {
        let [one, two, three] = [1, 2, 3].map(QueueId);
        let [event, other] = [0x100, 0x200].map(hipEvent_t::from_raw);
        let pools = following();
        let (first, second) = ((one, Ticket::NONE), (two, Ticket::NONE));
        let block = returning(&pools, 0x1000, 4096, 1);
        assert_eq!(pools.take_back(two, POOL, 4096), None, "it does not follow");
        // A record of the wrong queue, and one that was made anew.
        assert!(pools.in_front_of_record(two).is_empty());
        pools.recorded(other, first, pools.in_front_of_record(one));
        pools.waits(other, second, two);
        assert_eq!(pools.take_back(two, POOL, 4096), None, "it waits for another record");
        pools.forget_record(other);
        pools.waits(other, first, two);
        assert_eq!(pools.take_back(two, POOL, 4096), None);
        // The third queue follows the second one, which follows the first.
        pools.recorded(event, first, pools.in_front_of_record(one));
        pools.waits(event, first, two);
        pools.recorded(other, second, pools.in_front_of_record(two));
        pools.waits(other, second, three);
        assert_eq!(pools.take_back(three, POOL, 3000), None, "the runtime would not take so large a one");
        assert_eq!(pools.take_back(three, POOL, 4000), Some(address(0x1000)));
        assert!(!block.launch(), "it belongs to the program again");
        assert_eq!(pools.take_back(two, POOL, 4096), None);
        assert!(pools.gives_up(address(0x1000)).is_some_and(|block| block.is_lent()));
        // What was launched is the runtime's to hand out.
        let launched = returning(&pools, 0x2000, 4096, 1);
        pools.recorded(event, first, pools.in_front_of_record(one));
        pools.waits(event, first, two);
        assert!(launched.launch());
        assert_eq!(pools.take_back(two, POOL, 4096), None);
        // A pool that is destroyed hands nothing out.
        pools.has(address(0x3000), 4096, POOL);
        pools.ends(POOL);
        assert!(pools.gives_up(address(0x3000)).is_some_and(|block| block.pool == 0));
    }
}
