//! Calls that wait for a debugger or for the lock of their process.

use super::*;

const T0: Time = 400_000_000;

/// Returns a suspended queue of a process that debugs itself, and a destruction that waits for it. The kernel
/// of another process runs, so that operations take time.
fn blocked() -> (Bench, u32, u64) {
    let mut bench = Bench::new("gfx90a", COSTS);
    bench.debug_self(0);
    let (id, _) = (bench.create(1, me(), 0), bench.create(200_000_000, OTHER, 0));
    let mut entries = [debug::QueueEntry::default(); 1];
    let known = debug::QueueSnapshot {
        exception_mask: u64::MAX,
        snapshot_buf_ptr: entries.as_mut_ptr() as u64,
        num_queues: 1,
        entry_size: 64,
    };
    bench.trap(T0, me(), me(), &known).unwrap();
    bench.launch(OTHER, 0, 0);
    bench.tick(T0);
    let suspend = bench.suspend(T0, &[id]);
    bench.tick(T0 + 1_600);
    assert_eq!(bench.answer(suspend).unwrap().unwrap().0, 1);
    let destroy = bench.call(T0 + 1_700, me(), &kfd::DestroyQueue { queue_id: id, pad: 0 });
    assert_eq!(bench.answer(destroy), None);
    (bench, id, destroy)
}

#[test]
fn destruction_continues_after_the_end_of_the_session() {
    let (mut bench, _, destroy) = blocked();
    bench.trap(T0 + 1_800, me(), me(), &debug::Disable::default()).unwrap();
    assert_eq!(bench.answer(destroy), None, "the waves of the other process are being saved");
    bench.tick(T0 + 100_000);
    assert!(bench.answer(destroy).unwrap().is_ok());
    assert!(
        bench.machine.processes[&me()].queues.is_empty() && bench.machine.calls.uninterruptible.is_empty()
    );
}

#[test]
fn continued_destruction_has_the_lock_of_its_process() {
    let (mut bench, id, destroy) = blocked();
    let resume = bench.resume(T0 + 1_800, &[]);
    bench.tick(T0 + 2_800);
    assert_eq!(bench.answer(resume).unwrap().unwrap().0, 1);
    assert_eq!(bench.answer(destroy), None);
    let late = bench.call(T0 + 2_900, me(), &update(id, 0, 100));
    assert_eq!(bench.answer(late), None);
    bench.tick(T0 + 100_000);
    assert!(bench.answer(destroy).unwrap().is_ok());
    assert_eq!(bench.answer(late), Some(Err(libc::EFAULT)), "the queue is destroyed");
}

#[test]
fn destruction_continues_after_a_reset() {
    let settings = Settings { save: 0, restore: 0, cwsr: false, timeout: 1_000, stuck: None };
    let (mut bench, _, destroy) = blocked();
    bench.machine.driver.settings = settings;
    // The eviction of the other process's kernel times out.
    bench.trap(T0 + 1_800, me(), me(), &debug::Disable::default()).unwrap();
    bench.tick(T0 + 2_900);
    assert!(bench.answer(destroy).unwrap().is_ok());
    assert_eq!(bench.machine.gpus[0].scheduler.resets, 1);
}

/// Nested execution would overflow the stack.
#[test]
fn many_calls_that_wait_for_a_lock_continue_in_order() {
    let mut bench = Bench::new("gfx1100", COSTS);
    let id = bench.create(0, me(), 0);
    bench.launch(me(), 0, 0);
    bench.tick(T0);
    let first = bench.call(T0 + 100, me(), &update(id, 0, 0));
    let rest: Vec<u64> = (0..20_000).map(|_| bench.call(T0 + 200, me(), &update(id, 0, 0))).collect();
    assert!(bench.machine.outbox.answers.is_empty());
    bench.tick(T0 + 10_000);
    let order: Vec<u64> = bench.machine.outbox.answers.iter().map(|(unique, _)| *unique).collect();
    assert_eq!(order, [vec![first], rest].concat());
    assert!(bench.machine.calls.uninterruptible.is_empty() && bench.machine.calls.unlocked.is_empty());
}

#[test]
fn answered_runtime_enable_is_not_repeated() {
    let mut bench = Bench::new("gfx1100", Settings::default());
    bench.enable(0).unwrap();
    let enable = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
    let first = bench.call(1, me(), &enable);
    assert!(bench.machine.interrupt(first));
    assert_eq!(bench.answer(first), Some(Err(libc::EINTR)));
    let again = bench.call(2, me(), &enable);
    let seen = debug::SendRuntimeEvent { exception_mask: 1 << 47, ..Default::default() };
    bench.trap(3, me(), me(), &seen).unwrap();
    assert!(bench.answer(again).unwrap().is_ok());
    assert_eq!(bench.now(4, me(), &enable).map(|_| ()), Err(libc::EBUSY));
}
