//! Memory of pools: which blocks the program has, and which it has given back by a call that is still deferred.
//!
//! Only memory that is known to come from a pool is given back later: of all other memory the runtime waits for the
//! device, as in hipFree. A block that a stream gives back can be had again at once by the same stream, as with the runtime
//! itself: all that the new owner does there comes after the deferred call. The call then never happens. Without that, a
//! program that allocates and gives back in turns would run out of memory while its stream is held.

use crate::process::Process;
use crate::thread::Thread;
use hip_sys::pfn;
use hip_sys::types::{hipMemPool_t, hipSuccess};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use xqueue::{After, QueueId, Ticket, XQueue};

/// A block that the program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Bytes, as far as the program may use them.
    size: usize,
    pool: usize,
}

/// A block whose return is deferred.
pub(crate) struct Returning {
    address: usize,
    block: Block,
    queue: QueueId,
    state: AtomicU8,
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
}

/// The pools of a process.
pub(crate) struct Pools {
    current: Option<pfn::hipDeviceGetMemPool>,
    blocks: Mutex<HashMap<usize, Block>>,
    /// With the command that does it.
    returning: Mutex<Vec<(Arc<Returning>, Option<After>)>>,
}

impl Pools {
    pub(crate) fn new(current: Option<pfn::hipDeviceGetMemPool>) -> Self {
        Self { current, blocks: Mutex::default(), returning: Mutex::default() }
    }

    /// The pool that a device's stream takes memory from.
    pub(crate) fn current(&self, device: u32) -> Option<hipMemPool_t> {
        let mut pool = hipMemPool_t::NULL;
        // SAFETY: the runtime's function gets a place for its answer.
        let code = unsafe { (self.current?)(&mut pool, c_int::try_from(device).ok()?) };
        (code == hipSuccess).then_some(pool)
    }

    /// A block of at least this size that this queue is about to return to this pool: the smallest one.
    pub(crate) fn take_back(&self, queue: QueueId, pool: hipMemPool_t, size: usize) -> Option<*mut c_void> {
        let mut returning = self.returning.lock();
        returning.retain(|(one, _)| one.is_pending());
        loop {
            let fits = |one: &&Arc<Returning>| {
                one.queue == queue
                    && one.block.pool == pool.as_raw()
                    && one.block.size >= size
                    && one.is_pending()
            };
            let best = returning.iter().map(|(one, _)| one).filter(fits).min_by_key(|one| one.block.size)?;
            if best.turn(TAKEN) {
                self.blocks.lock().insert(best.address, best.block);
                return Some(std::ptr::with_exposed_provenance_mut(best.address));
            }
        }
    }

    /// The program has got a block from the runtime.
    pub(crate) fn has(&self, address: *mut c_void, size: usize, pool: hipMemPool_t) {
        let block = Block { size, pool: pool.as_raw() };
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
        Arc::new(Returning { address, block, queue, state: AtomicU8::new(PENDING) })
    }

    /// The command was submitted.
    pub(crate) fn submitted(&self, returning: Arc<Returning>, queue: &Arc<XQueue>, ticket: Ticket) {
        let mut all = self.returning.lock();
        all.retain(|(one, _)| one.is_pending());
        all.push((returning, Some(After { queue: queue.clone(), through: ticket })));
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

/// The same for the process of a call that counts as the program's own, if there is one.
pub(crate) fn settle(process: Option<&Process>) {
    if let Some(process) = process {
        process.pools.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        returning
    }

    #[test]
    fn only_memory_of_a_pool_is_given_up_and_only_once() {
        let pools = Pools::new(None);
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
        let pools = Pools::new(None);
        let (large, small) = (returning(&pools, 0x1000, 4096, 1), returning(&pools, 0x2000, 256, 1));
        // Another queue, another pool, more than there is.
        assert_eq!(pools.take_back(QueueId(2), POOL, 16), None);
        assert_eq!(pools.take_back(QueueId(1), hipMemPool_t::NULL, 16), None);
        assert_eq!(pools.take_back(QueueId(1), POOL, 4097), None);
        assert_eq!(pools.take_back(QueueId(1), POOL, 256), Some(address(0x2000)));
        assert!(!small.launch(), "it belongs to the program again");
        assert!(large.launch(), "its turn has come");
        assert_eq!(pools.take_back(QueueId(1), POOL, 16), None, "the runtime has it");
        assert_eq!(pools.gives_up(address(0x2000)), Some(Block { size: 256, pool: POOL.as_raw() }));
        assert_eq!(pools.gives_up(address(0x1000)), None);
    }
}
