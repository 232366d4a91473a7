//! Queue updates, CU masks, and evictions by them.

use super::*;

#[test]
fn update_under_hws_stops_every_process_for_a_moment() {
    let mut bench = Bench::new("gfx90a", COSTS);
    let (mine, _) = (bench.create(0, me(), 0), bench.create(0, OTHER, 0));
    let t0 = 200_000_000;
    bench.launch(OTHER, 0, 0);
    bench.tick(t0);
    // The queue is idle, but the waves of the other process are saved and restored nevertheless.
    let call = bench.call(t0 + 2_000, me(), &update(mine, 0, 0));
    assert_eq!(bench.answer(call), None, "the waves are being saved");
    bench.tick(t0 + 3_000);
    assert!(bench.answer(call).unwrap().is_ok());
    bench.tick(t0 + 100_000);
    assert_eq!(bench.times(OTHER, 0), Some([t0, t0 + KERNEL + 1_500]));
    let report = bench.machine.gpus[0].scheduler.report();
    assert_eq!((&report["saves"], &report["save_restore_us"]), (&1.into(), &1.5.into()));
}

#[test]
fn update_under_mes_stops_only_its_queue() {
    let mut bench = Bench::new("gfx1100", COSTS);
    let (mine, _) = (bench.create(0, me(), 0), bench.create(0, OTHER, 0));
    let t0 = 200_000_000;
    bench.launch(OTHER, 0, 0);
    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let evict = bench.call(t0 + 2_000, me(), &update(mine, 0, 0));
    bench.tick(t0 + 50_000);
    assert!(bench.answer(evict).unwrap().is_ok());
    assert_eq!(bench.times(OTHER, 0), Some([t0, t0 + KERNEL]));
    let restore = bench.call(t0 + 60_000, me(), &update(mine, 0, 100));
    assert!(bench.answer(restore).unwrap().is_ok(), "no running waves have to be saved");
    bench.tick(t0 + 100_000);
    // 3 µs were left, and were restored within 500 ns.
    assert_eq!(bench.times(me(), 0), Some([t0, t0 + 60_500 + 3_000]));
}

#[test]
fn operations_of_a_device_are_sequential() {
    let mut bench = Bench::new("gfx90a", COSTS);
    let (mine, theirs) = (bench.create(0, me(), 0), bench.create(0, OTHER, 0));
    let t0 = 200_000_000;
    bench.launch(OTHER, 0, 0);
    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let first = bench.call(t0 + 1_000, me(), &update(mine, 0, 0));
    let second = bench.call(t0 + 1_100, OTHER, &update(theirs, 0, 0));
    bench.tick(t0 + 2_000);
    assert!(bench.answer(first).is_some() && bench.answer(second).is_none());
    // The first operation restores the other's kernel until 2,500; then the second one saves it again.
    bench.tick(t0 + 3_499);
    assert_eq!(bench.answer(second), None);
    bench.tick(t0 + 3_500);
    assert!(bench.answer(second).unwrap().is_ok());
}

#[test]
fn call_waits_for_an_update_of_its_process() {
    let mut bench = Bench::new("gfx90a", COSTS);
    let mine = bench.create(0, me(), 0);
    let t0 = 200_000_000;
    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let evict = bench.call(t0 + 1_000, me(), &update(mine, 0, 0));
    let memory = bench.call(t0 + 1_000, me(), &kfd::GetAvailableMemory { gpu_id: 1, ..Default::default() });
    let version = bench.call(t0 + 1_000, me(), &kfd::GetVersion::default());
    assert!(bench.answer(version).is_some(), "this request needs no lock");
    assert!(bench.answer(memory).is_none() && bench.machine.interrupt(memory), "uninterruptible");
    bench.tick(t0 + 2_000);
    assert!(bench.answer(evict).unwrap().is_ok() && bench.answer(memory).unwrap().is_ok());
}

#[test]
fn eviction_without_cwsr_waits_for_the_kernels() {
    let mut bench = Bench::new("gfx90a", Settings { cwsr: false, ..Settings::default() });
    let mine = bench.create(0, me(), 0);
    let t0 = 200_000_000;
    bench.launch(me(), 0, 0);
    bench.launch(me(), 0, 1);
    bench.tick(t0);
    let evict = bench.call(t0 + 1_000, me(), &update(mine, 0, 0));
    bench.tick(t0 + KERNEL - 1);
    assert_eq!(bench.answer(evict), None);
    bench.tick(t0 + KERNEL);
    assert!(bench.answer(evict).unwrap().is_ok());
    assert_eq!(bench.times(me(), 0), Some([t0, t0 + KERNEL]));
    // Both kernels had been launched; a new one is not.
    bench.launch(me(), 0, 2);
    bench.tick(t0 + 1_000_000);
    assert_eq!((bench.times(me(), 1), bench.times(me(), 2)), (Some([t0, t0 + KERNEL]), None));
    let state = kfd::GetQueueWaveState { queue_id: mine, ..Default::default() };
    assert_eq!(bench.now(t0 + 1_000_000, me(), &state), Err(libc::EINVAL));
}

#[test]
fn drain_time_out_resets_the_device_for_every_process() {
    let settings = Settings { cwsr: false, timeout: 1_000, ..Settings::default() };
    let mut bench = Bench::new("gfx90a", settings);
    let (mine, theirs) = (bench.create(0, me(), 0), bench.create(0, OTHER, 0));
    let event = bench.machine.processes.get_mut(&OTHER).unwrap();
    let event = event.events.create(kfd::EVENT_HW_EXCEPTION, false).unwrap();
    let t0 = 200_000_000;
    bench.launch(me(), 0, 0);
    bench.tick(t0);
    let evict = bench.call(t0, me(), &update(mine, 0, 0));
    let late = bench.call(t0 + 10, OTHER, &update(theirs, 0, 0));
    bench.tick(t0 + 1_000);
    assert_eq!(bench.answer(evict), Some(Err(libc::ETIME)));
    assert_eq!(bench.answer(late), Some(Err(libc::EIO)));
    let of = |bench: &Bench, pid: i32| bench.machine.processes[&pid].queues[&0].state;
    assert_eq!((of(&bench, me()), of(&bench, OTHER)), (State::Dead, State::Dead));
    assert!(bench.machine.processes[&OTHER].events.is_signaled(event));
    // The queues of a process on this device are lost.
    assert_eq!(bench.now(t0 + RESET / 2, me(), &update(mine, 0, 100)), Err(libc::EACCES));
    assert_eq!(bench.now(t0 + 2 * RESET, me(), &queue(1)), Err(libc::EIO));
    assert_eq!(bench.machine.gpus[0].scheduler.report()["resets"], 1);
}

#[test]
fn stuck_queue_is_evicted_only_while_idle() {
    let settings = Settings { stuck: Some(2), timeout: 1_000, ..Settings::default() };
    let mut bench = Bench::new("gfx1100", settings);
    let (sane, stuck) = (bench.create(0, me(), 0), bench.create(0, me(), 1));
    let t0 = 300_000_000;
    for percentage in [0, 100] {
        bench.now(t0, me(), &update(stuck, 1, percentage)).unwrap();
    }
    bench.launch(me(), 1, 0);
    bench.tick(t0);
    bench.now(t0 + 10, me(), &update(sane, 0, 0)).expect("under MES the stuck queue does not matter");
    let evict = bench.call(t0 + 20, me(), &update(stuck, 1, 0));
    bench.tick(t0 + 1_019);
    assert_eq!(bench.answer(evict), None);
    bench.tick(t0 + 1_020);
    assert_eq!(bench.answer(evict), Some(Err(libc::ETIME)));
}

#[test]
fn invalid_update_is_refused_with_the_errno_of_the_driver() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let id = bench.create(0, me(), 0);
    let good = update(id, 0, 100);
    let cases = [
        (kfd::UpdateQueue { queue_percentage: 101, ..good }, libc::EINVAL),
        (kfd::UpdateQueue { queue_priority: 16, ..good }, libc::EINVAL),
        (kfd::UpdateQueue { ring_size: 0x1001, ..good }, libc::EINVAL),
        (kfd::UpdateQueue { queue_id: 77, ..good }, libc::EFAULT),
        // The mapping of the ring has one page.
        (kfd::UpdateQueue { ring_size: 0x2000, ..good }, libc::EFAULT),
        (kfd::UpdateQueue { ring_base_address: RINGS + 64, ..good }, libc::EFAULT),
        (kfd::UpdateQueue { ring_base_address: 0x10, ..good }, libc::EFAULT),
    ];
    for (wrong, errno) in cases {
        assert_eq!(bench.now(1, me(), &wrong), Err(errno), "{wrong:?}");
    }
    // Bits 8 to 15 have another meaning and are ignored.
    bench.now(1, me(), &kfd::UpdateQueue { queue_percentage: 0x0300 | 100, ..good }).unwrap();
    assert!(bench.machine.processes[&me()].queues[&id].mapped);
    bench.now(1, me(), &kfd::UpdateQueue { queue_percentage: 0x0300, ..good }).unwrap();
    assert!(!bench.machine.processes[&me()].queues[&id].mapped);
}

#[test]
fn failed_update_keeps_its_values() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let id = bench.create(0, me(), 0);
    bench.machine.driver.faults = Some(Faults::parse("3:1:update_queue").unwrap());
    let mut took_effect = [false; 2];
    for round in 0..32u32 {
        let percentage = if round.is_multiple_of(2) { 0 } else { 100 };
        assert!(bench.now(1, me(), &update(id, 0, percentage)).is_err(), "every first call fails");
        let queue = &bench.machine.processes[&me()].queues[&id];
        assert_eq!(queue.percentage, percentage);
        took_effect[usize::from(queue.mapped == (percentage > 0))] = true;
        bench.now(1, me(), &update(id, 0, percentage)).expect("the repetition succeeds");
        assert_eq!(bench.machine.processes[&me()].queues[&id].mapped, percentage > 0);
    }
    assert_eq!(took_effect, [true; 2], "some failed calls took effect, and some did not");
}

#[test]
fn invalid_cu_mask_is_refused() {
    let mut bench = Bench::new("gfx1100", Settings::default());
    let id = bench.create(0, me(), 0);
    let mask = [u32::MAX, 0b1100, 0b0100];
    let set = |queue_id: u32, num_cu_mask: u32, i: usize| kfd::SetCuMask {
        queue_id,
        num_cu_mask,
        cu_mask_ptr: (&raw const mask[i]) as u64,
    };
    assert_eq!(bench.now(1, me(), &set(id, 0, 0)), Err(libc::EINVAL));
    assert_eq!(bench.now(1, me(), &set(id, 33, 0)), Err(libc::EINVAL));
    assert_eq!(bench.now(1, me(), &set(9, 32, 0)), Err(libc::EFAULT));
    assert_eq!(bench.now(1, me(), &kfd::SetCuMask { cu_mask_ptr: 8, ..set(id, 32, 0) }), Err(libc::EFAULT));
    assert_eq!(bench.now(1, me(), &set(id, 32, 2)), Err(libc::EINVAL), "one unit of a pair");
    bench.now(1, me(), &set(id, 32, 1)).unwrap();
    let enable = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
    assert_eq!(bench.now(1, me(), &enable), Err(libc::EEXIST));
}

#[test]
fn cu_mask_and_debugger_exclude_each_other_on_gfx11() {
    let mut bench = Bench::new("gfx1100", Settings::default());
    let enable = debug::RuntimeEnable { mode_mask: debug::RUNTIME_ENABLE, ..Default::default() };
    bench.now(1, me(), &enable).unwrap();
    let id = bench.create(1, me(), 0);
    let mask = u32::MAX;
    let set = kfd::SetCuMask { queue_id: id, num_cu_mask: 32, cu_mask_ptr: (&raw const mask) as u64 };
    bench.now(2, me(), &set).unwrap();
    assert_eq!(bench.enable(3).unwrap().runtime_state, debug::STATE_ENABLED_BUSY);
    let suspend = bench.suspend(4, &[id]);
    assert_eq!(bench.answer(suspend), Some(Err(libc::EPERM)));
    bench.trap(5, me(), me(), &debug::Disable::default()).unwrap();
    assert_eq!(bench.now(6, me(), &enable), Err(libc::EBUSY), "the runtime is still enabled");
}

/// Launches a kernel of unknown name with this number of work-groups of 64 work-items.
fn launch_groups(bench: &Bench, pid: i32, i: u64, signal: u64, groups: u32) {
    let (view, index) = (bench.view(pid), INDICES + 16 * i);
    let slot = view.load_u64(index).unwrap();
    bench.launch(pid, i, signal);
    let at = RINGS + RING * i + 64 * slot;
    view.write(at + 4, &64u16.to_le_bytes()).unwrap();
    view.write(at + 12, &(64 * groups).to_le_bytes()).unwrap();
}

#[test]
fn masked_queue_runs_on_its_compute_units() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let id = bench.create(0, me(), 0);
    bench.create(100_000_000, OTHER, 0);
    let mask = |words: &[u32; 4]| kfd::SetCuMask {
        queue_id: id,
        num_cu_mask: 128,
        cu_mask_ptr: words.as_ptr() as u64,
    };
    let mut t = 300_000_000;
    // 26 of 104 units; further bits have no unit. A mask with all or none is no mask.
    for (words, rounds) in
        [([0x03ff_ffff, 0, 0, u32::MAX << 8], 4), ([u32::MAX; 4], 1), ([1, 0, 0, 0], 104), ([0; 4], 1)]
    {
        let before = bench.machine.gpus[0].scheduler.unmaps;
        bench.now(t, me(), &mask(&words)).unwrap();
        assert_eq!(bench.machine.gpus[0].scheduler.unmaps, before, "free of cost as any update");
        bench.view(me()).write(SIGNALS + 8, &1u64.to_le_bytes()).unwrap();
        launch_groups(&bench, me(), 0, 0, 3328);
        bench.tick(t);
        bench.tick(t + 10_000_000);
        assert_eq!(bench.times(me(), 0), Some([t, t + rounds * KERNEL]), "{words:x?}");
        t += 10_000_000;
    }
}

#[test]
fn queue_of_higher_priority_gets_the_slots_that_become_free() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let (mine, _) = (bench.create(0, me(), 0), bench.create(100_000_000, OTHER, 0));
    let t0 = 300_000_000;
    let urgent = kfd::UpdateQueue { queue_priority: 15, ..update(mine, 0, 100) };
    for (priority, end) in [(0, 3), (15, 2)] {
        let t = t0 + 10_000_000 * u64::from(priority);
        bench.now(t, me(), &kfd::UpdateQueue { queue_priority: priority, ..urgent }).unwrap();
        for pid in [me(), OTHER] {
            bench.view(pid).write(SIGNALS + 8, &1u64.to_le_bytes()).unwrap();
        }
        // The other's kernel fills the device three times, this one once.
        launch_groups(&bench, OTHER, 0, 0, 3 * 3328);
        bench.tick(t);
        launch_groups(&bench, me(), 0, 0, 3328);
        bench.tick(t + 1);
        bench.tick(t + 1_000_000);
        assert_eq!(bench.times(me(), 0), Some([t + KERNEL, t + end * KERNEL]), "priority {priority}");
        assert_eq!(bench.times(OTHER, 0), Some([t, t + 4 * KERNEL]));
    }
}
