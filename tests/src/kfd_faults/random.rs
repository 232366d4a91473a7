//! Holds at random of the library's own, while requests fail or queues come and go.

use std::fs::read_to_string;
use std::time::Duration;

use super::bed::{complaints, expect_complaints, expect_success, total, wrong};
use crate::faults::stage::Outcome;
use crate::{Finished, Gpu, Mode, Run};

/// The library's line when the probe has failed: it evicts nothing then.
const REFUSED: &str = "level 3 is asked for and level 1 in force";
/// Its line about the first request that failed.
const REPEATED: &str = "the driver failed a request about a queue";
/// Its lines about the first eviction that failed, and the first restore.
const NOT_OFF: &str = "a queue could not be taken off the hardware";
const NOT_BACK: &str = "queues were not put back at once";

/// A run that has ended, and what the library said.
struct Held {
    ended: Finished,
    said: String,
    holds: u64,
}

/// Runs a program that is held at random.
fn held(run: Run, name: &str, seed: u64, mechanism: &str) -> Outcome<Held> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
    let log = folder.path().join("log");
    let seed = format!("chaos:{seed}");
    let env = [
        ("XSCHED_AUTO_XQUEUE", "ON"),
        ("XSCHED_AUTO_XQUEUE_LEVEL", "3"),
        ("XSCHED_TEST", seed.as_str()),
        ("XSCHED_KFD_MECHANISM", mechanism),
        ("XSCHED_LOG_LEVEL", "debug"),
        ("XSCHED_LOG_FILE", &log.display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let ended = run.mode(Mode::Shimmed { env: env.to_vec() }).with_stats().start().try_finish()?;
    let said = read_to_string(&log).unwrap_or_default();
    expect_success(name, &ended, &said)?;
    let holds = total(&said, "holds");
    Ok(Held { ended, said, holds })
}

/// Runs of a program whose driver fails requests, by seeds: in some of them the probe meets a failure, in others holds do.
///
/// Each of these lines comes in some run, and some that may come beside them.
fn fails(mechanism: &'static str, row: u64, expected: &[&str], beside: &[&str]) -> Outcome<String> {
    let gpu = Gpu::take();
    let (mut holds, mut failed, mut refused, mut said) = (0, 0, 0, vec![0; expected.len()]);
    for seed in 1..=10 {
        let run = gpu.run("endless").arg("low").arg("400");
        let run = run.sim("--fail-ioctls", format!("{seed}:40:update_queue,set_cu_mask,dbg_trap:{row}"));
        let held = held(run, &format!("seed {seed}"), seed, mechanism)?;
        let lines = complaints(&held.said);
        failed += held.ended.stats().value()["failed_ioctls"].as_u64().unwrap_or(0);
        if lines.iter().any(|line| line.contains(REFUSED)) {
            expect_complaints(&format!("seed {seed}"), &lines, &[REFUSED])?;
            if held.holds > 0 {
                return wrong(format!("seed {seed}: refused, and held {} times", held.holds));
            }
            refused += 1;
            continue;
        }
        // Which of them come is chance; none comes twice.
        let possible = expected.iter().chain(beside).copied();
        let wanted: Vec<&str> =
            possible.filter(|text| lines.iter().any(|line| line.contains(text))).collect();
        expect_complaints(&format!("seed {seed}"), &lines, &wanted)?;
        for (count, text) in said.iter_mut().zip(expected) {
            *count += u64::from(wanted.contains(text));
        }
        holds += held.holds;
    }
    if holds == 0 || failed == 0 || said.contains(&0) {
        return wrong(format!("{holds} holds, {failed} requests failed, lines {expected:?}: {said:?} times"));
    }
    Ok(format!(
        "{failed} requests failed in {holds} holds of 10 runs, {refused} of them refused by the probe"
    ))
}

/// Every request that failed succeeds when it is made again at once.
pub fn fails_once(mechanism: &'static str, _: Duration) -> Outcome<String> {
    fails(mechanism, 1, &[REPEATED], &[])
}

/// Requests fail more often in a row than they are made again at once.
pub fn fails_again(mechanism: &'static str, _: Duration) -> Outcome<String> {
    fails(mechanism, 5, &[NOT_OFF, NOT_BACK], &[REPEATED])
}

/// Streams with hardware queues of their own come and go, and rings fill, whatever is held.
pub fn queues(mechanism: &'static str, _: Duration) -> Outcome<String> {
    let gpu = Gpu::take();
    let (mut holds, mut destroyed) = (0, 0);
    for seed in 1..=4 {
        let run = gpu.run("held").arg("alone").arg("400").env("GPU_MAX_HW_QUEUES", "2");
        let held = held(run, &format!("seed {seed}"), seed, mechanism)?;
        expect_complaints(&format!("seed {seed}"), &complaints(&held.said), &[])?;
        if held.holds == 0 {
            return wrong(format!("seed {seed}: nothing was held"));
        }
        holds += held.holds;
        destroyed += held.ended.stats().ioctls("destroy_queue");
    }
    if destroyed == 0 {
        return wrong("no queue was destroyed");
    }
    Ok(format!("{holds} holds, {destroyed} queues destroyed in 4 runs"))
}
