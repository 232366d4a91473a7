//! The registry with a fake driver: evictions and restorations. Failing requests: [`failures`].

mod failures;

use super::*;
use crate::fake::{Failure, FakeKernel};
use proptest::prelude::*;
use std::sync::atomic::AtomicU64;
use std::sync::{Barrier, mpsc};
use std::time::Duration;

pub const GPU: u32 = 7;
/// The units of its device.
pub const UNITS: Units = Units { all: 40, pair: 1, step: 8 };
/// The numbers of the requests as [`FakeKernel::asked`] has them.
pub const UPDATE: u32 = 0x07;
pub const SET: u32 = 0x1a;
const EIO: Failure = Failure { errno: libc::EIO, after: false };

/// A registry with a fake driver, and the indices of its queues.
pub struct Bench {
    pub kernel: Arc<FakeKernel>,
    pub registry: Registry,
    indices: Vec<Arc<[AtomicU64; 2]>>,
}

impl Bench {
    pub fn new(kind: MechanismKind) -> Self {
        let kernel = Arc::new(FakeKernel::default());
        Self { registry: Registry::new(kernel.clone(), kind), kernel, indices: Vec::new() }
    }

    /// Makes a call of the runtime.
    fn call<A: Ioctl>(&self, argument: &mut A) -> Result<i32, Errno> {
        let mut bytes = argument.as_bytes().to_vec();
        let result = self.registry.intercept(&*self.kernel, A::COMMAND, &mut bytes).expect("about queues");
        *argument = A::from_bytes(&bytes);
        result
    }

    pub fn create(&mut self, gpu_id: u32, queue_type: u32, work: u64) -> u32 {
        let indices = Arc::new([AtomicU64::new(work), AtomicU64::new(0)]);
        let mut create = kfd::CreateQueue {
            ring_base_address: 0x1000,
            write_pointer_address: indices[0].as_ptr() as u64,
            read_pointer_address: indices[1].as_ptr() as u64,
            ring_size: 4096,
            gpu_id,
            queue_type,
            queue_percentage: 0x0100 | 100,
            queue_priority: 7,
            ..Default::default()
        };
        self.indices.push(indices);
        self.call(&mut create).unwrap();
        assert_eq!(
            (create.queue_percentage, create.queue_priority),
            (0x0164, 7),
            "the runtime sees its own setting"
        );
        create.queue_id
    }

    pub fn compute(&mut self, work: u64) -> u32 {
        self.create(GPU, kfd::QUEUE_TYPE_COMPUTE_AQL, work)
    }

    pub fn evict(&self) -> Outcome {
        // SAFETY: the indices live as long as the bench.
        unsafe { self.registry.evict(GPU) }
    }

    /// Limits the queues to 8 of the 40 units.
    pub fn limit(&self) -> Option<Outcome> {
        // SAFETY: the indices live as long as the bench.
        unsafe { self.registry.limit(GPU, UNITS, 8) }
    }

    pub fn runtime_update(&self, id: u32, percentage: u32) -> Result<i32, Errno> {
        let mut update = kfd::UpdateQueue {
            ring_base_address: 0x1000,
            queue_id: id,
            ring_size: 4096,
            queue_percentage: percentage,
            queue_priority: 7,
        };
        let result = self.call(&mut update);
        assert_eq!(update.queue_percentage, percentage);
        result
    }

    pub fn runtime_priority(&self, id: u32, priority: u32) -> Result<i32, Errno> {
        self.call(&mut kfd::UpdateQueue {
            ring_base_address: 0x1000,
            queue_id: id,
            ring_size: 4096,
            queue_percentage: 100,
            queue_priority: priority,
        })
    }

    pub fn runtime_mask(&self, id: u32, mask: &[u32]) -> Result<i32, Errno> {
        let num_cu_mask = 32 * mask.len() as u32;
        self.call(&mut kfd::SetCuMask { queue_id: id, num_cu_mask, cu_mask_ptr: mask.as_ptr() as u64 })
    }

    /// Writes packets: sets the write index.
    pub fn write(&self, id: u32, index: u64) {
        self.indices[id as usize][0].store(index, Ordering::Release);
    }

    /// Lets the device take all packets of a queue, and complete them.
    pub fn drain(&self, id: u32) {
        let indices = &self.indices[id as usize];
        indices[1].store(indices[0].load(Ordering::Acquire), Ordering::Release);
        // SAFETY: the indices live as long as the bench.
        let mark = unsafe { self.registry.marker(GPU) };
        self.registry.note_complete(&mark);
    }

    pub fn destroy(&self, id: u32) -> Result<i32, Errno> {
        self.call(&mut kfd::DestroyQueue { queue_id: id, pad: 0 })
    }
}

pub const BOTH: [MechanismKind; 2] = [MechanismKind::UpdateQueue, MechanismKind::DebugTrap];

#[test]
fn compute_queues_with_work_are_evicted_and_restored_unchanged() {
    for kind in BOTH {
        let mut bench = Bench::new(kind);
        let (busy, idle) = (bench.compute(3), bench.compute(0));
        let sdma = bench.create(GPU, kfd::QUEUE_TYPE_SDMA, 64);
        let elsewhere = bench.create(GPU + 1, kfd::QUEUE_TYPE_COMPUTE_AQL, 3);
        let before = bench.kernel.queue(busy);
        bench.kernel.asked();
        // SAFETY: the indices live as long as the bench.
        let with_work = unsafe { bench.registry.count_with_work() };
        assert_eq!(with_work, Some(2), "of both devices, without the SDMA queue");
        let outcome = bench.evict();
        assert_eq!((outcome.queues, outcome.unsettled, outcome.error), (1, 0, None), "{kind:?}");
        assert_eq!([busy, idle, sdma, elsewhere].map(|id| bench.kernel.runs(id)), [false, true, true, true]);
        let asked = bench.kernel.asked();
        match kind {
            MechanismKind::UpdateQueue => assert_eq!(asked, [0x07]),
            MechanismKind::DebugTrap => assert_eq!(asked, [0x100, 0x10d, 0x106]),
        }
        // The next call evicts the queue that has got work meanwhile.
        bench.indices[idle as usize][0].store(9, Ordering::Release);
        assert_eq!(bench.evict().queues, 2);
        assert!(!bench.kernel.runs(idle));
        assert_eq!(bench.registry.restore(GPU).error, None);
        let after = bench.kernel.queue(busy);
        assert_eq!((after.kept, after.mapped, after.suspended), (before.kept, true, false), "{kind:?}");
        assert!(bench.registry.held_devices().is_empty());
    }
}

#[test]
fn taken_packets_of_compute_queues_are_counted() {
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    let (first, second) = (bench.compute(3), bench.compute(4));
    let copies = bench.create(GPU, kfd::QUEUE_TYPE_SDMA, 64);
    // SAFETY: the indices live as long as the bench.
    let taken = |bench: &Bench| unsafe { bench.registry.taken() };
    assert_eq!(taken(&bench), Some(0));
    bench.indices[first as usize][1].store(2, Ordering::Release);
    bench.indices[copies as usize][1].store(64, Ordering::Release);
    assert_eq!(taken(&bench), Some(2), "a kernel of the first queue has begun; copies do not count");
    bench.drain(second);
    assert_eq!(taken(&bench), Some(6));
    bench.destroy(second).unwrap();
    assert_eq!(taken(&bench), Some(2));
    bench.registry.abandon(Errno(libc::EIO));
    assert_eq!(taken(&bench), Some(0), "destructions may pass the registry by");
}

#[test]
fn most_active_queue_is_evicted_first_and_restored_last() {
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    let [old, waiting, taken] = [3, 3, 3].map(|work| bench.compute(work));
    let set = |id: u32, write, read| {
        bench.indices[id as usize][0].store(write, Ordering::Release);
        bench.indices[id as usize][1].store(read, Ordering::Release);
    };
    let order = || {
        let updated = || std::mem::take(&mut bench.kernel.0.lock().updated);
        assert_eq!(bench.evict().queues, 3);
        let order = updated();
        assert_eq!((bench.evict().queues, updated()), (3, vec![]), "a second call changes nothing");
        assert_eq!(bench.registry.restore(GPU).error, None);
        assert_eq!(updated().last(), order.first());
        order
    };
    // All but one queue have no waiting packets.
    set(old, 3, 3);
    set(taken, 3, 3);
    assert_eq!(order()[0], waiting);
    // One queue has got packets since, and one has waiting packets.
    set(taken, 9, 9);
    set(waiting, 4, 3);
    assert_eq!(order(), [waiting, taken, old]);
    set(waiting, 4, 4);
    set(old, 4, 4);
    assert_eq!(order()[0], old);
}

/// Equal indices say that the device has taken the last packet; its kernel may be running.
#[test]
fn queue_without_completed_mark_counts_as_busy() {
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    let id = bench.compute(0);
    let set =
        |bench: &Bench, to: u64| bench.indices[0].iter().for_each(|index| index.store(to, Ordering::Release));
    set(&bench, 5);
    assert_eq!(bench.evict().queues, 1, "five packets were taken, and their completion is unknown");
    bench.registry.restore(GPU);
    // SAFETY: the indices live as long as the bench.
    let mark = unsafe { bench.registry.marker(GPU) };
    bench.registry.note_complete(&mark);
    assert_eq!(bench.evict().queues, 0);
    bench.registry.restore(GPU);
    // Packets after the mark do not count as complete.
    set(&bench, 6);
    bench.registry.note_complete(&mark);
    assert_eq!(bench.evict().queues, 1);
    assert!(!bench.kernel.runs(id));
    // A new queue with a reused number has no completed packets.
    bench.destroy(id).unwrap();
    assert_eq!(bench.compute(0), id);
    bench.registry.restore(GPU);
    bench.indices[1][0].store(1, Ordering::Release);
    assert_eq!(bench.evict().queues, 1);
}

#[test]
fn queue_created_during_eviction_is_created_evicted() {
    for kind in BOTH {
        let mut bench = Bench::new(kind);
        bench.compute(1);
        bench.evict();
        let (born, copies) = (bench.compute(0), bench.create(GPU, kfd::QUEUE_TYPE_SDMA, 0));
        assert!(!bench.kernel.runs(born) && bench.kernel.runs(copies), "{kind:?}");
        let other = bench.create(GPU + 1, kfd::QUEUE_TYPE_COMPUTE_AQL, 0);
        assert!(bench.kernel.runs(other));
        bench.registry.restore(GPU);
        assert!(bench.kernel.runs(born));
        assert_eq!(bench.kernel.queue(born).kept.percentage, 0x0164);
    }
}

#[test]
fn update_of_the_runtime_keeps_eviction_and_takes_effect_later() {
    for kind in BOTH {
        let mut bench = Bench::new(kind);
        let id = bench.compute(1);
        bench.evict();
        bench.runtime_update(id, 100).unwrap();
        assert!(!bench.kernel.runs(id), "{kind:?}");
        bench.registry.restore(GPU);
        assert!(bench.kernel.runs(id) && bench.kernel.queue(id).kept.percentage == 100);
        // A queue that the runtime has disabled stays disabled.
        bench.runtime_update(id, 0).unwrap();
        bench.evict();
        bench.registry.restore(GPU);
        assert!(!bench.kernel.runs(id), "{kind:?}");
        assert_eq!(bench.runtime_update(id, 101), Err(Errno(libc::EINVAL)));
        assert_eq!(bench.runtime_update(99, 100), Err(Errno(libc::EFAULT)));
    }
}

#[test]
fn cu_mask_is_read_as_far_as_the_driver_reads() {
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    let id = bench.compute(0);
    // At an odd address; an inaccessible page follows the words that the driver reads.
    let page = 4096;
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the call makes a new mapping at an address that the kernel chooses.
    let pages = unsafe { libc::mmap(std::ptr::null_mut(), 2 * page, protection, kind, -1, 0) };
    assert_ne!(pages, libc::MAP_FAILED);
    let pages = pages.cast::<u8>();
    // SAFETY: the address range is the second page of the mapping above.
    let guarded = unsafe { libc::mprotect(pages.wrapping_add(page).cast(), page, libc::PROT_NONE) };
    assert_eq!(guarded, 0);
    for (bits, back, words) in [(1 << 20, 128, 32), (64, 9, 2)] {
        let at = pages.wrapping_add(page - back);
        // SAFETY: the range ends where the guarded page begins, and lies in the writable first page.
        unsafe { std::ptr::write_bytes(at, 0xa5, back) };
        let mut set = kfd::SetCuMask { queue_id: id, num_cu_mask: bits, cu_mask_ptr: at as u64 };
        bench.call(&mut set).unwrap();
        assert_eq!(bench.registry.queues()[0].cu_mask, vec![0xa5a5_a5a5u32; words]);
    }
    // SAFETY: the range is the mapping made above, and nothing refers to it any more.
    unsafe { libc::munmap(pages.cast(), 2 * page) };
}

#[test]
fn evicted_queue_is_restored_before_destruction() {
    for kind in BOTH {
        let mut bench = Bench::new(kind);
        let (first, second) = (bench.compute(1), bench.compute(1));
        bench.evict();
        bench.kernel.asked();
        bench.destroy(first).unwrap();
        let released = if kind == MechanismKind::UpdateQueue { 0x07 } else { 0x107 };
        assert_eq!(bench.kernel.asked(), [released, 0x03], "{kind:?}");
        assert!(!bench.kernel.runs(second));
        assert_eq!(bench.registry.queues().len(), 1);
        assert_eq!(bench.destroy(99), Err(Errno(libc::EINVAL)));
    }
    // If the resume fails, the end of the session keeps the destruction from blocking.
    let mut bench = Bench::new(MechanismKind::DebugTrap);
    let (id, other) = (bench.compute(1), bench.compute(1));
    bench.evict();
    bench.kernel.fail([Some(EIO); 3]);
    bench.destroy(id).unwrap();
    assert!(bench.kernel.runs(other));
    // The other queue is known to run, and a new eviction begins a new session.
    bench.evict();
    assert!(!bench.kernel.runs(other));
}

#[test]
fn destruction_that_waits_in_the_driver_blocks_no_other_call() {
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    let (busy, waits) = (bench.compute(1), bench.compute(1));
    let gate = Arc::new([Barrier::new(2), Barrier::new(2)]);
    bench.kernel.0.lock().gate = Some(gate.clone());
    std::thread::scope(|scope| {
        let destroyed = scope.spawn(|| bench.destroy(waits));
        gate[0].wait();
        let (done, others) = mpsc::channel();
        let bench = &bench;
        scope.spawn(move || {
            let held = (bench.evict().queues, bench.kernel.runs(busy));
            bench.registry.restore(GPU);
            let ids: Vec<u32> = bench.registry.queues().iter().map(|queue| queue.id).collect();
            done.send((held, ids)).unwrap();
        });
        let others = others.recv_timeout(Duration::from_secs(60));
        gate[1].wait();
        // The queue that is being destroyed has left the registry.
        assert_eq!(others, Ok(((1, false), vec![busy])));
        assert_eq!(destroyed.join().unwrap(), Ok(0));
    });
    // A queue whose destruction failed is known again.
    bench.kernel.0.lock().gate = None;
    bench.kernel.fail([Some(Failure { errno: libc::ENOMEM, after: false })]);
    assert_eq!(bench.destroy(busy), Err(Errno(libc::ENOMEM)));
    assert_eq!(bench.evict().queues, 1);
}

#[test]
fn mark_does_not_apply_to_a_new_queue_with_a_reused_number() {
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    let id = bench.compute(5);
    // SAFETY: the indices live as long as the bench.
    let mark = unsafe { bench.registry.marker(GPU) };
    bench.destroy(id).unwrap();
    assert_eq!(bench.compute(5), id);
    bench.indices[1][1].store(5, Ordering::Release);
    bench.registry.note_complete(&mark);
    assert_eq!(bench.evict().queues, 1);
}

#[test]
fn idle_queue_is_preferred_on_each_device() {
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    let (busy, idle) = (bench.compute(1), bench.compute(0));
    let alone = bench.create(GPU + 1, kfd::QUEUE_TYPE_COMPUTE_AQL, 1);
    bench.create(GPU + 2, kfd::QUEUE_TYPE_SDMA, 0);
    // SAFETY: the indices live as long as the bench.
    let found = |bench: &Bench| unsafe { bench.registry.quietest() };
    assert_eq!(found(&bench), BTreeMap::from([(GPU, (idle, true)), (GPU + 1, (alone, false))]));
    bench.registry.suspend_for(1, Some(&[idle])).unwrap();
    assert_eq!(found(&bench)[&GPU], (busy, false));
}

#[test]
fn debug_trap_enables_the_runtime_before_the_first_queue_if_needed() {
    let mut bench = Bench::new(MechanismKind::DebugTrap);
    bench.compute(1);
    bench.compute(1);
    assert_eq!(bench.kernel.asked(), [0x25, 0x02, 0x02]);
    let mut bench = Bench::new(MechanismKind::DebugTrap);
    bench.call(&mut debug::RuntimeEnable { mode_mask: 1, ..Default::default() }).unwrap();
    bench.compute(1);
    assert_eq!(bench.kernel.asked(), [0x25, 0x02]);
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    bench.compute(1);
    assert_eq!(bench.kernel.asked(), [0x02]);
}

#[test]
fn shut_down_restores_all_queues() {
    for kind in BOTH {
        let mut bench = Bench::new(kind);
        let ids = [bench.compute(1), bench.compute(2)];
        bench.evict();
        bench.registry.shut_down();
        assert!(ids.iter().all(|id| bench.kernel.runs(*id)) && !bench.kernel.0.lock().session);
    }
}

#[test]
fn shorter_structure_of_an_older_caller_is_accepted() {
    let bench = Bench::new(MechanismKind::UpdateQueue);
    let create =
        kfd::CreateQueue { gpu_id: GPU, queue_percentage: 100, ring_size: 4096, ..Default::default() };
    let mut old = create.as_bytes()[..88].to_vec();
    bench.registry.intercept(&*bench.kernel, 0xc058_4b02, &mut old).unwrap().unwrap();
    assert_eq!(bench.registry.queues().len(), 1);
    assert!(bench.registry.intercept(&*bench.kernel, kfd::GetVersion::COMMAND, &mut [0; 8]).is_none());
    assert!(bench.registry.intercept(&*bench.kernel, 0x5401, &mut [0; 8]).is_none());
}

#[derive(Clone, Debug)]
enum Step {
    Evict,
    Restore,
    Settle,
    Create(bool),
    Destroy(usize),
    Update(usize, u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Evict),
        Just(Step::Restore),
        Just(Step::Settle),
        any::<bool>().prop_map(Step::Create),
        (0usize..4).prop_map(Step::Destroy),
        (0usize..4, prop_oneof![Just(0u32), Just(100), Just(0x0232)]).prop_map(|(i, p)| Step::Update(i, p)),
    ]
}

proptest! {
    /// Under any sequence of calls and failures, the registry knows the driver's queues and never claims a
    /// wrong state, and in the end all queues are as the runtime wants them.
    #[test]
    fn registry_never_claims_a_wrong_state_and_restores_all_queues(
        debugger in any::<bool>(),
        steps in proptest::collection::vec((step(), proptest::collection::vec(any::<Option<bool>>(), 0..4)), 0..40),
    ) {
        let mut bench = Bench::new(if debugger { MechanismKind::DebugTrap } else { MechanismKind::UpdateQueue });
        let mut wants: BTreeMap<u32, u32> = BTreeMap::new();
        for (step, failures) in steps {
            let failures: Vec<_> = failures
                .into_iter()
                .map(|f| f.map(|after| Failure { errno: libc::ENOMEM, after }))
                .collect();
            let nth = |wants: &BTreeMap<u32, u32>, i: usize| wants.keys().nth(i).copied();
            match step {
                Step::Evict => {
                    bench.kernel.fail(failures);
                    bench.evict();
                }
                Step::Restore => {
                    bench.kernel.fail(failures);
                    bench.registry.restore(GPU);
                }
                Step::Settle => {
                    bench.kernel.fail(failures);
                    bench.registry.reconcile();
                }
                Step::Create(work) => {
                    wants.insert(bench.compute(work.into()), 0x0164);
                }
                Step::Destroy(i) => if let Some(id) = nth(&wants, i) {
                    // Failures of this request are tested elsewhere.
                    bench.kernel.fail([]);
                    bench.destroy(id).unwrap();
                    wants.remove(&id);
                },
                Step::Update(i, percentage) => if let Some(id) = nth(&wants, i) {
                    bench.kernel.fail(failures);
                    // The value is kept even if the request fails.
                    let _ = bench.runtime_update(id, percentage);
                    wants.insert(id, percentage);
                },
            }
            bench.kernel.fail([]);
            for queue in bench.registry.queues() {
                let real = bench.kernel.queue(queue.id);
                if let Some(suspended) = queue.suspended {
                    prop_assert_eq!(real.suspended, suspended);
                }
                if !debugger && queue.arbiter.is_off() {
                    prop_assert!(!real.mapped);
                }
            }
        }
        let known: Vec<u32> = bench.registry.queues().iter().map(|queue| queue.id).collect();
        prop_assert_eq!(known, wants.keys().copied().collect::<Vec<_>>());
        bench.registry.restore(GPU);
        prop_assert_eq!(bench.registry.reconcile().unsettled, 0);
        for (id, percentage) in wants {
            let real = bench.kernel.queue(id);
            prop_assert!(!real.suspended);
            prop_assert_eq!(real.kept.percentage, percentage);
            if !debugger {
                prop_assert_eq!(real.mapped, percentage & 0xff > 0);
            }
        }
    }
}
