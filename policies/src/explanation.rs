//! The reason of a decision as text for users.

use crate::reason::{ReasonKind, STARVED};
use crate::registry::POLICIES;
use protocol::bounds::Priority;
use protocol::operation::{Reason, Rival, Throttle};
use protocol::rank_reason::RankReason;

/// Returns the text of a permission's reason, as it completes "runs: ..." or "suspended: ...".
///
/// ```
/// use protocol::operation::Reason;
///
/// assert_eq!(policies::explain(&Reason::NoExecute), "priority -256 never runs");
/// ```
pub fn explain(reason: &Reason) -> String {
    match *reason {
        Reason::Unrivalled => "nothing ranks higher on its devices".to_owned(),
        Reason::NoExecute => format!("priority {} never runs", Priority::NO_EXECUTE),
        Reason::Outranked { by: Rival { pid, queue, reason, .. }, own } => {
            format!("queue {queue} of pid {pid} {}", comparison(reason, own))
        }
        Reason::OutrankedByOthers { device, own } => {
            format!("a program of another user goes first on device {device}; this one {}", sentence(own))
        }
        Reason::Throttled(throttle) => throttled(throttle),
        Reason::Job { pid } => format!("pid {pid} of the same job cannot run, and they run together"),
        Reason::Starved { waited_ms } => format!("it had waited for {waited_ms} ms, and runs for a moment"),
        Reason::Guard => "those of higher priority complete nothing, all run for a moment".to_owned(),
        Reason::NoRoom => "the server has no room for one of its queues, so it runs unscheduled".to_owned(),
        Reason::Off => "scheduling is switched off".to_owned(),
    }
}

fn comparison(its: RankReason, own: RankReason) -> String {
    let compared = kind(its).and_then(|kind| (kind.compare)(its, own));
    compared.unwrap_or_else(|| format!("{}, this one {}", sentence(its), sentence(own)))
}

fn sentence(reason: RankReason) -> String {
    match kind(reason) {
        Some(kind) => (kind.text)(reason),
        None => format!("ranks by {:?}, which this version does not know", reason.name),
    }
}

fn kind(reason: RankReason) -> Option<&'static ReasonKind> {
    let of_policies = POLICIES.iter().flat_map(|row| row.reasons);
    of_policies.copied().chain([STARVED]).find(|kind| kind.is(&reason))
}

fn throttled(throttle: Throttle) -> String {
    match throttle {
        Throttle::Share { percent } => format!("it has used its share of {percent} % for now"),
        Throttle::Turn => "another one has its turn, and keeps the device with work or without".to_owned(),
        Throttle::Power { milliwatts, budget } => {
            let watts = |milliwatts: u64| milliwatts as f64 / 1e3;
            format!("the device draws {:.1} W of {:.1} W", watts(milliwatts), watts(budget))
        }
        Throttle::NoExecute => format!("its priority is {} for now", Priority::NO_EXECUTE),
        Throttle::Latency { p99_us, target_us } => {
            let (p99, target) = (p99_us as f64 / 1e3, target_us as f64 / 1e3);
            format!("critical work has a p99 of {p99:.1} ms, the target is {target:.1} ms")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::{EXPECTED, PRIORITY, SLICE, WAITS};
    use crate::{chpf, deadline, lcbe, mlfq, slo};
    use protocol::ids::{DeviceId, Pid, QueueId};

    fn outranked(reason: RankReason, own: RankReason) -> String {
        let by = Rival { pid: Pid(4242), queue: QueueId(7), device: DeviceId(51_234), reason };
        let text = explain(&Reason::Outranked { by, own });
        text.strip_prefix("queue 7 of pid 4242 ").unwrap().to_owned()
    }

    #[test]
    fn outranked_reasons_are_sentences() {
        let [ten, one] = [10, 1].map(|number| PRIORITY.number(number));
        let slice = |class| lcbe::CLASS_SLICE.pair(["class", "us"], [class, 3_100]);
        let waits = |class| lcbe::CLASS_WAITS.pair(["class", "others"], [class, 0]);
        let level = mlfq::LEVEL.number(2);
        let date = |us| deadline::DEADLINE.number(us);
        let undated = deadline::NO_DEADLINE.plain();
        let unknown = ReasonKind::new("Moon", |_| unreachable!()).plain();
        let cases = [
            (ten, one, "has priority 10 > 1"),
            (one, one, "has priority 1 as well, and its turn comes first"),
            (one, ten, "has priority 1, this one has priority 10"),
            (SLICE.number(3_100), WAITS.number(0), "has its turn for 3.1 ms more, this one is next"),
            (SLICE.number(3_100), WAITS.number(2), "has its turn for 3.1 ms more, and 2 are before this one"),
            (date(-200), undated, "missed its deadline 0.2 ms ago, this one has no deadline"),
            (date(3_000), date(-200), "has a deadline in 3.0 ms, this one missed its deadline 0.2 ms ago"),
            (date(-200), date(3_000), "has a deadline -0.2 ms < 3.0 ms"),
            (undated, undated, "has no deadline either, and had work earlier"),
            (level, level, "is on level 2 as well, and its turn comes first"),
            (chpf::NICE.number(-5), chpf::NICE.number(10), "has nice value -5 < 10"),
            (slice(5), waits(1), "is of class 5 > 1"),
            (slice(1), waits(1), "has its turn for 3.1 ms more, this one is next"),
            (
                waits(1),
                slice(1),
                "waits for the turn of class 1 behind 0, this one has the turn of class 1 for 3.1 ms more",
            ),
            (EXPECTED.number(-1_200), waits(1), "was expected to have work 1.2 ms ago"),
            (slo::BESIDE.number(10), one, "runs beside work of priority 10 > 1"),
            (STARVED.number(50), one, "had waited for 50 ms, this one has priority 1"),
            (unknown, one, "ranks by Moon, which this version does not know, this one has priority 1"),
        ];
        for (its, own, expected) in cases {
            assert_eq!(outranked(its, own), expected);
        }
    }

    #[test]
    fn other_reasons_are_sentences() {
        assert_eq!(explain(&Reason::NoExecute), "priority -256 never runs");
        assert_eq!(explain(&Reason::Throttled(Throttle::NoExecute)), "its priority is -256 for now");
    }
}
