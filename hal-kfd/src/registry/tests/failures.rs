//! Failing requests: no queue stays evicted that cannot be restored.

use super::*;

/// The operation number in the log.
const SUSPEND: u32 = <debug::SuspendQueues as debug::Operation>::OP;

#[test]
fn failed_request_is_sent_again_until_it_succeeds() {
    for after in [false, true] {
        let mut bench = Bench::new(MechanismKind::UpdateQueue);
        let id = bench.compute(1);
        let failure = Some(Failure { errno: libc::ENOMEM, after });
        bench.kernel.fail([failure, failure]);
        let outcome = bench.evict();
        assert_eq!((outcome.queues, outcome.unsettled, outcome.requests), (1, 0, 3));
        bench.kernel.fail([failure; 3]);
        let outcome = bench.registry.restore(GPU);
        assert_eq!((outcome.queues, outcome.unsettled), (0, 1));
        assert_eq!(outcome.error, Some(Errno(libc::ENOMEM)));
        assert_eq!(bench.registry.reconcile().unsettled, 0);
        assert!(bench.kernel.runs(id));
        assert!(!bench.registry.has_pending());
        assert_eq!(bench.registry.reconcile().requests, 0, "the state of all queues is known");
        // After a failed update or mask of the runtime the state is unknown as well, which matters while the
        // queue is evicted.
        let mask = u32::MAX;
        let mut set = kfd::SetCuMask { queue_id: id, num_cu_mask: 32, cu_mask_ptr: (&raw const mask) as u64 };
        for evicted in [false, true] {
            if evicted {
                bench.evict();
            }
            bench.kernel.fail([failure]);
            assert!(bench.runtime_update(id, 100).is_err());
            assert_eq!(bench.registry.reconcile().requests, usize::from(evicted));
            bench.kernel.fail([failure]);
            assert!(bench.call(&mut set).is_err());
            assert_eq!(bench.registry.reconcile().requests, usize::from(evicted));
            assert_eq!(bench.kernel.queue(id).mapped, !evicted);
        }
        bench.call(&mut set).unwrap();
        assert_eq!(bench.registry.queues()[0].cu_mask, [u32::MAX]);
    }
}

/// The core dump of ROCr and `rocgdb` end sessions of a process as well.
#[test]
fn session_that_another_process_ended_is_begun_again() {
    let mut bench = Bench::new(MechanismKind::DebugTrap);
    let (first, second) = (bench.compute(1), bench.compute(1));
    let end = |bench: &Bench| {
        let mut state = bench.kernel.0.lock();
        state.session = false;
        state.queues.values_mut().for_each(|queue| queue.suspended = false);
    };
    bench.evict();
    end(&bench);
    assert_eq!(bench.registry.restore(GPU).unsettled, 0);
    let outcome = bench.evict();
    assert_eq!((outcome.queues, outcome.unsettled), (2, 0));
    assert!(!bench.kernel.runs(first) && !bench.kernel.runs(second));
    end(&bench);
    bench.registry.shut_down();
    assert!(bench.kernel.runs(first) && !bench.kernel.0.lock().session);
    assert_eq!(bench.evict().unsettled, 0);
    assert!(!bench.kernel.runs(second));
}

#[test]
fn time_out_ends_all_evictions_for_good() {
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    let (first, second) = (bench.compute(1), bench.compute(1));
    // The error after the time-out is a consequence and is not reported.
    let failure = |errno: i32| Some(Failure { errno, after: false });
    bench.kernel.fail([None, failure(libc::ETIME), failure(libc::EIO)]);
    let outcome = bench.evict();
    assert_eq!(outcome.error, Some(Errno(libc::ETIME)));
    assert_eq!(bench.registry.given_up(), Some(Errno(libc::ETIME)));
    assert!(bench.kernel.runs(first) && bench.kernel.runs(second), "evicted queues are restored");
    bench.kernel.asked();
    assert_eq!(bench.evict().error, Some(Errno(libc::ETIME)));
    assert!(bench.registry.suspend_for(1, Some(&[first])).is_err());
    assert!(bench.kernel.asked().is_empty() && bench.registry.held_devices().is_empty());
    assert!(bench.compute(0) > 1 && bench.kernel.runs(2));
}

#[test]
fn failed_suspend_of_debug_trap_counts_as_time_out() {
    let mut bench = Bench::new(MechanismKind::DebugTrap);
    let queue = bench.compute(1);
    bench.kernel.0.lock().hangs = true;
    bench.kernel.asked();
    let outcome = bench.evict();
    assert_eq!(outcome.error, Some(Errno(libc::ETIME)));
    assert_eq!(bench.registry.given_up(), Some(Errno(libc::ETIME)));
    let asked = bench.kernel.asked();
    let suspends = asked.iter().filter(|nr| **nr == 0x100 + SUSPEND).count();
    assert_eq!(suspends, 1, "a second attempt could reset the device again");
    assert!(bench.kernel.runs(queue));
}

#[test]
fn lost_device_does_not_keep_queues_of_another_evicted() {
    let mut bench = Bench::new(MechanismKind::UpdateQueue);
    let lost = bench.compute(1);
    let other = bench.create(GPU + 1, kfd::QUEUE_TYPE_COMPUTE_AQL, 1);
    bench.evict();
    // SAFETY: the indices live as long as the bench.
    assert_eq!(unsafe { bench.registry.evict(GPU + 1) }.queues, 1);
    let reset = Some(Failure { errno: libc::EACCES, after: false });
    bench.kernel.fail([reset, reset]);
    assert_eq!(bench.runtime_update(lost, 100), Err(Errno(libc::EACCES)));
    assert_eq!(bench.registry.given_up(), Some(Errno(libc::EACCES)));
    assert!(bench.kernel.runs(other) && !bench.kernel.runs(lost));
}

#[test]
fn time_out_of_a_runtime_request_restores_all_queues() {
    type Request = fn(&mut Bench, u32) -> Result<i32, Errno>;
    let time_out = Some(Failure { errno: libc::ETIME, after: false });
    let requests: [Request; 4] = [
        |bench, _| {
            bench.call(&mut kfd::CreateQueue { gpu_id: GPU, queue_percentage: 100, ..Default::default() })
        },
        |bench, id| bench.runtime_update(id, 50),
        |bench, id| {
            let mask = u32::MAX;
            bench.call(&mut kfd::SetCuMask {
                queue_id: id,
                num_cu_mask: 32,
                cu_mask_ptr: (&raw const mask) as u64,
            })
        },
        |bench, _| bench.destroy(2),
    ];
    for (request, kind) in requests.iter().flat_map(|request| BOTH.map(|kind| (request, kind))) {
        let mut bench = Bench::new(kind);
        let (first, second) = (bench.compute(1), bench.compute(1));
        let idle = bench.compute(0);
        assert_eq!((bench.evict().queues, idle), (2, 2));
        bench.kernel.fail([time_out]);
        assert_eq!(request(&mut bench, first), Err(Errno(libc::ETIME)));
        assert_eq!(bench.registry.given_up(), Some(Errno(libc::ETIME)));
        assert!(bench.kernel.runs(first) && bench.kernel.runs(second));
        assert!(bench.registry.held_devices().is_empty());
    }
}

#[test]
fn abandoned_registry_restores_queues_and_evicts_none() {
    for kind in BOTH {
        let mut bench = Bench::new(kind);
        let id = bench.compute(1);
        let serial = bench.registry.serial(id);
        assert!(serial.is_some() && bench.registry.serial(id + 1).is_none());
        bench.evict();
        bench.registry.abandon(Errno(libc::EOPNOTSUPP));
        assert!(bench.kernel.runs(id));
        assert_eq!(bench.evict().error, Some(Errno(libc::EOPNOTSUPP)));
        assert!(bench.kernel.runs(id) && bench.registry.held_devices().is_empty());
        bench.destroy(id).unwrap();
        assert_eq!(bench.compute(0), id);
        assert_ne!(bench.registry.serial(id), serial);
    }
}

#[test]
fn existing_debugger_keeps_queues_running() {
    let mut bench = Bench::new(MechanismKind::DebugTrap);
    let id = bench.compute(1);
    bench.kernel.0.lock().session = true;
    let outcome = bench.evict();
    assert_eq!((outcome.queues, outcome.unsettled, outcome.error), (0, 1, Some(Errno(libc::EALREADY))));
    assert!(bench.kernel.runs(id));
    bench.registry.restore(GPU);
    assert!(bench.kernel.0.lock().session, "the session belongs to the other debugger");
}
