//! Debug sessions: suspensions, permissions, and the end of a session.

use super::*;

#[test]
fn debug_requests_without_permission_are_refused() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let absent = debug::Disable::default().on(1);
    assert_eq!(bench.now(1, me(), &absent), Err(libc::ESRCH), "the process has not opened the device");
    assert_eq!(
        bench.trap(1, me(), OTHER, &debug::Disable::default()),
        Err(libc::EPERM),
        "the process is not traced"
    );
    assert_eq!(
        bench.trap(1, me(), me(), &debug::Disable::default()),
        Err(libc::EINVAL),
        "there is no session"
    );
    let bad = debug::Enable { dbg_fd: 9_999, ..Default::default() };
    assert_eq!(bench.trap(1, me(), me(), &bad).map(|_| ()), Err(libc::EBADF));
    assert_eq!(bench.enable(1).unwrap().runtime_state, debug::STATE_DISABLED);
    assert_eq!(bench.enable(1), Err(libc::EALREADY));
    let suspend = bench.suspend(1, &[0]);
    assert_eq!(bench.answer(suspend), Some(Err(libc::EPERM)), "the runtime is not enabled");
    // In a session, RUNTIME_ENABLE waits until the debugger acknowledges it.
    let runtime = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
    let waits = bench.call(1, me(), &runtime);
    assert_eq!(bench.answer(waits), None);
    let seen = debug::SendRuntimeEvent {
        exception_mask: debug::exception_bit(debug::EC_PROCESS_RUNTIME),
        ..Default::default()
    };
    bench.trap(1, me(), me(), &seen).unwrap();
    assert!(bench.answer(waits).unwrap().is_ok());
    let many = debug::SuspendQueues { num_queues: 1025, queue_array_ptr: 8, ..Default::default() };
    assert_eq!(bench.trap(1, me(), me(), &many).map(|_| ()), Err(libc::EINVAL));
    let nowhere = debug::SuspendQueues { num_queues: 1, queue_array_ptr: 8, ..Default::default() };
    assert_eq!(bench.trap(1, me(), me(), &nowhere).map(|_| ()), Err(libc::EFAULT));
    let unknown = DbgTrap { op: 15, ..debug::Disable::default().on(me().cast_unsigned()) };
    assert_eq!(bench.now(1, me(), &unknown), Err(libc::EINVAL));
}

#[test]
fn new_queue_is_suspended_only_after_a_snapshot() {
    let mut bench = Bench::new("gfx90a", COSTS);
    bench.debug_self(0);
    let id = bench.create(1, me(), 0);
    let t0 = 200_000_000;
    let suspend = bench.suspend(t0, &[id, 77]);
    assert_eq!(bench.answer(suspend).unwrap().unwrap().0, 0);
    assert_eq!(bench.ids, [id | QUEUE_INVALID, 77 | QUEUE_INVALID]);
    let mut entries = [debug::QueueEntry::default(); 2];
    let snapshot = debug::QueueSnapshot {
        exception_mask: debug::exception_bit(debug::EC_QUEUE_NEW),
        snapshot_buf_ptr: entries.as_mut_ptr() as u64,
        num_queues: 2,
        entry_size: 64,
    };
    let (_, out) = bench.trap(t0, me(), me(), &snapshot).unwrap();
    assert_eq!((out.num_queues, out.entry_size), (1, 64));
    assert_eq!((entries[0].queue_id, entries[0].ring_base_address), (id, RINGS));
    assert_eq!(entries[0].exception_status, 1 << 30);
    let sized = debug::QueueSnapshot { entry_size: 0, ..snapshot };
    assert_eq!(bench.trap(t0, me(), me(), &sized).map(|_| ()), Err(libc::EINVAL));

    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let suspend = bench.suspend(t0 + 1_000, &[id, 77]);
    bench.tick(t0 + 2_000);
    assert_eq!(bench.answer(suspend).unwrap().unwrap().0, 1);
    assert_eq!(bench.ids, [id, 77 | QUEUE_INVALID]);
    // An update of the program does not restore it.
    let own = bench.call(t0 + 3_000, me(), &update(id, 0, 100));
    bench.tick(t0 + 1_000_000);
    assert!(bench.answer(own).unwrap().is_ok() && bench.times(me(), 0).is_none());
    let resume = bench.resume(t0 + 2_000_000, &[id]);
    assert_eq!(bench.answer(resume).unwrap().unwrap().0, 1);
    bench.tick(t0 + 9_000_000);
    assert_eq!(bench.times(me(), 0), Some([t0, t0 + 2_000_000 + 500 + 4_000]));
}

#[test]
fn suspended_queue_is_destroyed_once_it_is_resumed() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    bench.debug_self(0);
    let id = bench.create(1, me(), 0);
    let query = debug::QueryDebugEvent { exception_mask: u64::MAX, ..Default::default() };
    bench.trap(1, me(), me(), &debug::SetExceptionsEnabled { exception_mask: u64::MAX }).unwrap();
    let (_, event) = bench.trap(1, me(), me(), &query).unwrap();
    assert_eq!((event.exception_mask, event.queue_id, event.gpu_id), (1 << 30, id, 1));
    assert_eq!(bench.trap(1, me(), me(), &query).map(|_| ()), Err(libc::EAGAIN));
    let suspend = bench.suspend(2, &[id]);
    assert_eq!(bench.answer(suspend).unwrap().unwrap().0, 1);
    let destroy = bench.call(3, me(), &kfd::DestroyQueue { queue_id: id, pad: 0 });
    assert_eq!(bench.answer(destroy), None);
    assert!(bench.machine.interrupt(destroy));
    assert_eq!(bench.answer(destroy), Some(Err(libc::EINTR)));
    let again = bench.call(4, me(), &kfd::DestroyQueue { queue_id: id, pad: 0 });
    let resume = bench.resume(5, &[]);
    assert_eq!(bench.answer(resume).unwrap().unwrap().0, 1);
    assert!(bench.answer(again).unwrap().is_ok());
    assert!(bench.machine.processes[&me()].queues.is_empty());
}

#[test]
fn session_end_resumes_all_queues() {
    let mut bench = Bench::new("gfx1100", Settings::default());
    bench.debug_self(0);
    let id = bench.create(1, me(), 0);
    let clear = debug::QueueSnapshot {
        exception_mask: u64::MAX,
        entry_size: 64,
        num_queues: 0,
        ..Default::default()
    };
    bench.trap(1, me(), me(), &clear).unwrap();
    let suspend = bench.suspend(2, &[id]);
    assert_eq!(
        bench.answer(suspend).unwrap().unwrap().0,
        0,
        "a snapshot without entries clears no exception"
    );
    bench.trap(3, me(), me(), &debug::Disable::default()).unwrap();
    bench.enable(4).unwrap();
    let suspend = bench.suspend(5, &[id]);
    assert_eq!(bench.answer(suspend).unwrap().unwrap().0, 1, "the queue is older than the session");
    bench.trap(6, me(), me(), &debug::Disable::default()).unwrap();
    assert!(bench.machine.processes[&me()].queues[&id].mapped);
    assert!(bench.ids.iter().all(|id| id & (QUEUE_ERROR | QUEUE_INVALID) == 0));
}

#[test]
fn wave_state_is_available_only_for_an_evicted_queue() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let mut area = [0u32; 64];
    let create = kfd::CreateQueue {
        ctx_save_restore_address: area.as_mut_ptr() as u64,
        ctx_save_restore_size: 1 << 20,
        ctl_stack_size: 4096,
        ..queue(0)
    };
    let id = bench.now(0, me(), &create).unwrap().1.queue_id;
    let state = kfd::GetQueueWaveState {
        ctl_stack_address: area.as_mut_ptr() as u64,
        queue_id: id,
        ..Default::default()
    };
    assert_eq!(bench.now(1, me(), &state), Err(libc::EINVAL), "the queue is on the hardware");
    bench.launch(me(), 0, 0);
    bench.tick(1);
    bench.now(2, me(), &update(id, 0, 0)).unwrap();
    let (_, out) = bench.now(3, me(), &state).unwrap();
    assert!(out.save_area_used_size > 0 && area[3] == out.save_area_used_size);
    assert_eq!(bench.now(3, me(), &kfd::GetQueueWaveState { queue_id: 9, ..state }), Err(libc::EFAULT));
    assert_eq!(
        bench.now(3, me(), &kfd::GetQueueWaveState { ctl_stack_address: 8, ..state }),
        Err(libc::EFAULT)
    );
}
