//! Tests of what the library learns about kernels in flight while the queue is suspended or another process uses the device.

use super::*;

/// Runs all submitted kernels, and polls without a pause.
fn run_all(queue: &Arc<XQueue>, hw: &Simulated) {
    let queues = [queue.clone()];
    while round(&queues) != Stop::Empty || queue.hot.flight.in_flight() != 0 {
        hw.advance(SPIN);
        queue.check_completion();
    }
}

/// Runs kernels until their time is known and none is in flight.
fn learn(queue: &Arc<XQueue>, hw: &Arc<Simulated>, key: CostKey, takes: Duration) {
    (0..8).for_each(|_| append(queue, hw, key, takes));
    run_all(queue, hw);
}

/// A program that is suspended between its launches has its kernels measured nevertheless.
#[test]
fn first_launch_after_a_suspension_is_measured() {
    let (key, takes) = (CostKey(7), 100 * MICRO);
    let (_domain, hw, queue) = begin(LaunchConfig::Adaptive);
    for _ in 0..4 {
        append(&queue, &hw, key, takes);
        suspend_for(&queue, &hw, 1_000 * MICRO);
        run_all(&queue, &hw);
    }
    let known = queue.device.estimates.get(key).map(|known| Duration::from_nanos(known.nanos));
    SIMULATED.set(None);
    let known = known.expect("it was measured");
    assert!(known >= takes && known < takes + 20 * MICRO, "{known:?}");
}

/// While a queue is suspended, another process can have the device. Its time does not count as that of the kernels in flight.
#[test]
fn suspension_does_not_make_a_kernel_seem_longer() {
    let (key, takes) = (CostKey(7), 500 * MICRO);
    let (_domain, hw, queue) = begin(LaunchConfig::Adaptive);
    let queues = [queue.clone()];
    learn(&queue, &hw, key, takes);
    let known = || queue.device.estimates.get(key).map(|known| known.nanos);
    let before = known();
    // One runs, and one behind it begins when the first has ended.
    (0..2).for_each(|_| append(&queue, &hw, key, takes));
    while queue.stats().pending != 0 {
        round(&queues);
        hw.advance(SPIN);
    }
    while queue.hot.flight.in_flight() != 1 {
        hw.advance(SPIN);
        queue.poll(false);
    }
    queue.suspend(SuspendFlags::NONE);
    hw.lend(10_000 * MICRO);
    hw.advance(5_000 * MICRO);
    queue.poll(false);
    let during = known();
    queue.resume(ResumeFlags::NONE);
    append(&queue, &hw, key, takes);
    round(&queues);
    queue.poll(false);
    let after = known();
    run_all(&queue, &hw);
    SIMULATED.set(None);
    assert!(before.is_some() && during == before && after == before, "{before:?} {during:?} {after:?}");
}

/// A kernel that nobody knows runs during a suspension, in which another process has the device.
#[test]
fn suspension_is_no_part_of_a_first_measurement() {
    let (key, takes) = (CostKey(7), 500 * MICRO);
    let (_domain, hw, queue) = begin(LaunchConfig::Adaptive);
    append(&queue, &hw, key, takes);
    round(std::slice::from_ref(&queue));
    queue.suspend(SuspendFlags::NONE);
    hw.lend(10_000 * MICRO);
    hw.advance(9_000 * MICRO);
    queue.resume(ResumeFlags::NONE);
    run_all(&queue, &hw);
    let during = queue.device.estimates.get(key);
    append(&queue, &hw, key, takes);
    run_all(&queue, &hw);
    let known = queue.device.estimates.get(key).map(|known| Duration::from_nanos(known.nanos));
    SIMULATED.set(None);
    assert_eq!(during, None);
    assert!(known.is_some_and(|known| known < takes + 20 * MICRO), "{known:?}");
}

/// A kernel that takes far longer than before is noticed although the queue is suspended while each of them runs.
#[test]
fn changed_kernel_is_noticed_between_suspensions() {
    let key = CostKey(7);
    let (_domain, hw, queue) = begin(LaunchConfig::Adaptive);
    learn(&queue, &hw, key, 40 * MICRO);
    (0..40).for_each(|_| append(&queue, &hw, key, 20_000 * MICRO));
    let changed = || queue.device.estimates.get(key).is_none_or(|known| known.nanos > 1_000_000);
    assert!(!changed());
    let (until, mut turn) = (now() + 200_000 * MICRO, now());
    while now() < until && !changed() {
        if now() >= turn {
            suspend_for(&queue, &hw, 1_000 * MICRO);
            turn = now() + TURN;
        }
        round(std::slice::from_ref(&queue));
        hw.advance(SPIN);
        queue.check_completion();
    }
    let changed = changed();
    queue.resume(ResumeFlags::DROP_COMMANDS);
    while round(std::slice::from_ref(&queue)) != Stop::Empty {}
    SIMULATED.set(None);
    assert!(changed);
}

/// A program can evict its hardware queues itself, without a suspension of the queue here. What completes until it restores them
/// shows neither a late launch nor a kernel's time.
#[test]
fn eviction_of_the_hardware_queues_is_not_judged() {
    let (key, takes) = (CostKey(7), 500 * MICRO);
    let (domain, hw, queue) = begin(LaunchConfig::Adaptive);
    learn(&queue, &hw, key, takes);
    let flight = &queue.hot.flight;
    let known = || queue.device.estimates.get(key).map(|known| known.nanos);
    let before = (flight.launch_ahead(), known());
    for _ in 0..5 {
        (0..4).for_each(|_| append(&queue, &hw, key, takes));
        while flight.in_flight() < 2 {
            round(std::slice::from_ref(&queue));
            hw.advance(SPIN);
        }
        // The worker sleeps beyond the end of what is in flight meanwhile.
        assert!(flight.expectation().is_some());
        domain.note_eviction();
        assert!(flight.expectation().is_none(), "their ends come later");
        hw.lend(10_000 * MICRO);
        hw.advance(12_000 * MICRO);
        domain.note_eviction();
        run_all(&queue, &hw);
    }
    let after = (flight.launch_ahead(), known());
    SIMULATED.set(None);
    assert_eq!(after, before);
}
