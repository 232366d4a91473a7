//! The figures of `xbench one-process`, and their table.

use super::{HIGH, LOW, Mode, OneProcessArgs, Outcome};
use crate::replay::Record;
use crate::simulated::Measured;
use crate::stats::{Samples, mean, median};
use crate::table::Table;
use crate::trace::Trace;
use crate::traffic::Traffic;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write as _;

/// One mode.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ModeFigures {
    mode: &'static str,
    /// The urgent model's latency in milliseconds, medians of the blocks; `null` where it does not run.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// Requests of the urgent model, all blocks.
    requests: usize,
    /// Inferences of the batch model a second, mean of the blocks; `null` where it does not run.
    low_per_s: Option<f64>,
    /// Suspensions by the library, all blocks.
    suspensions: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Figures {
    /// Urgent model and its rate, such as `bert bs8@10`.
    high: String,
    low: String,
    policy: &'static str,
    traffic: Traffic,
    #[serde(flatten)]
    gpu: Measured,
    blocks: u32,
    seconds: f64,
    modes: Vec<ModeFigures>,
    /// The share of time for which the urgent model needs the device.
    high_busy_share: f64,
    /// The batch model's rate over that alone in the time that the urgent one leaves: without and with giveway.
    kept_native: f64,
    kept: f64,
    /// The share of time in which requests of the urgent model were served, with giveway.
    high_served_share: f64,
    /// The share of time that the batch model loses with giveway, over [`Self::high_busy_share`], and over
    /// [`Self::high_served_share`]: it is suspended while a request is served, not only while its kernels run.
    lost_over_used: f64,
    lost_over_served: f64,
    /// The urgent model's p99 with giveway over that alone, and over that without giveway.
    p99_over_alone: f64,
    p99_over_native: f64,
}

impl Figures {
    pub(super) fn new(
        args: &OneProcessArgs,
        gpu: Measured,
        traces: &[Trace; 2],
        outcomes: &[Vec<Outcome>],
    ) -> Result<Self> {
        let modes = Mode::ALL.iter().zip(outcomes).map(|(mode, blocks)| mode_figures(*mode, blocks));
        let modes = modes.collect::<Result<Vec<_>>>()?;
        let [alone, native, scheduled, low_alone] = &modes[..] else { unreachable!("there are four modes") };
        let rate = alone.requests as f64 / (args.seconds * f64::from(args.blocks));
        let high_busy_share = rate * traces[HIGH].device_us() / 1e6;
        let low = |mode: &ModeFigures| mode.low_per_s.context("the batch model did not run");
        let p99 = |mode: &ModeFigures| mode.p99_ms.context("the urgent model did not run");
        let low_alone = low(low_alone)?;
        let free = low_alone * (1.0 - high_busy_share);
        let [native_low, scheduled_low] = [low(native)?, low(scheduled)?];
        let lost = (low_alone - scheduled_low) / low_alone;
        let high_served_share = served_share(&outcomes[2], args.seconds);
        let [alone_p99, native_p99, scheduled_p99] = [p99(alone)?, p99(native)?, p99(scheduled)?];
        Ok(Self {
            high: format!("{}@{}", traces[HIGH].name, args.high.rate),
            low: traces[LOW].name.clone(),
            policy: args.policy.name(),
            traffic: args.traffic,
            gpu,
            blocks: args.blocks,
            seconds: args.seconds,
            high_busy_share,
            kept_native: native_low / free,
            kept: scheduled_low / free,
            high_served_share,
            lost_over_used: lost / high_busy_share,
            lost_over_served: lost / high_served_share,
            p99_over_alone: scheduled_p99 / alone_p99,
            p99_over_native: scheduled_p99 / native_p99,
            modes,
        })
    }

    pub(super) fn table(&self) -> String {
        let Self { high, low, policy, gpu, traffic, .. } = self;
        let traffic = traffic.words();
        let mut text = format!(
            "{} a second and {low} back to back in one process{traffic}; policy {policy}; {gpu}\n\n",
            high.replace('@', ", ")
        );
        let mut table = Table::new(1, ["milliseconds", "p50", "p99", "requests", "low/s", "suspensions"]);
        for mode in &self.modes {
            let [p50, p99, low] =
                [mode.p50_ms, mode.p99_ms, mode.low_per_s].map(|value| crate::table::number(value, 2));
            let [requests, suspensions] = [mode.requests.to_string(), mode.suspensions.to_string()];
            table.push([mode.mode.to_owned(), p50, p99, requests, low, suspensions]);
        }
        let _ = writeln!(
            text,
            "{table}\nwith giveway: p99 x {:.2} of alone, x {:.2} of without; the batch model keeps {:.0} % of what the urgent one \
             leaves ({:.0} % without giveway). It loses {:.2} times what the urgent one uses, {:.2} times the time in which that is served",
            self.p99_over_alone,
            self.p99_over_native,
            self.kept * 100.0,
            self.kept_native * 100.0,
            self.lost_over_used,
            self.lost_over_served,
        );
        text
    }
}

/// Returns the share of time in which requests of the urgent model were served.
fn served_share(blocks: &[Outcome], seconds: f64) -> f64 {
    let of_record = |record: &Record| {
        let served: f64 = record.requests.iter().map(|request| request.ended_us - request.began_us).sum();
        let last = record.requests.last().map_or(0.0, |request| request.ended_us / 1e6);
        served / 1e6 / last.max(seconds)
    };
    mean(records(blocks, HIGH).map(of_record)).unwrap_or(0.0)
}

fn records(blocks: &[Outcome], model: usize) -> impl Iterator<Item = &Record> {
    blocks.iter().filter_map(move |outcome| outcome.records[model].as_ref())
}

fn mode_figures(mode: Mode, blocks: &[Outcome]) -> Result<ModeFigures> {
    let samples = records(blocks, HIGH).map(|record| Samples::new(record.latencies_ms()));
    let samples: Vec<Samples> = samples.collect::<Option<_>>().context("a block without requests")?;
    let percentile = |percent: f64| median(samples.iter().map(|block| block.percentile(percent)));
    Ok(ModeFigures {
        mode: mode.name(),
        p50_ms: percentile(50.0),
        p99_ms: percentile(99.0),
        requests: samples.iter().map(Samples::len).sum(),
        low_per_s: mean(records(blocks, LOW).map(|record| record.per_second(false))),
        suspensions: blocks.iter().map(|outcome| outcome.suspensions).sum(),
    })
}

/// Returns a summary of a run, to show progress.
pub(super) fn summary(outcome: &Outcome) -> String {
    let high = outcome.records[HIGH].as_ref().and_then(|record| Samples::new(record.latencies_ms()));
    let high = high
        .map(|samples| format!("high p50 {:.2}, p99 {:.2} ms", samples.median(), samples.percentile(99.0)));
    let low = outcome.records[LOW].as_ref().map(|record| format!("low {:.2}/s", record.per_second(false)));
    high.into_iter().chain(low).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::record;

    #[test]
    fn loss_is_compared_with_what_the_urgent_model_uses() {
        let args =
            crate::tests::parse::<OneProcessArgs>(&["--high=h@10", "--low=l", "--blocks=1", "--seconds=1"]);
        let trace = |us: f64| Trace {
            name: "t".into(),
            commands: vec![crate::trace::Command {
                work: crate::trace::Work::Memset { bytes: 1 },
                gap_us: 0.0,
                duration_us: us,
            }],
        };
        let high = |ms: f64| Some(record(&[ms; 10], 100.0, 1.0));
        // Back to back: so many inferences in a second.
        let low = |count: usize| {
            let mut record = record(&vec![1.0; count], 1000.0 / count as f64, 1.0);
            record.requests.last_mut().unwrap().ended_us = 1e6;
            Some(record)
        };
        let outcome = |high, low, suspensions| vec![Outcome { records: [high, low], suspensions }];
        let outcomes = [
            outcome(high(2.0), None, 0),
            outcome(high(6.0), low(80), 0),
            outcome(high(3.0), low(60), 7),
            outcome(None, low(100), 0),
        ];
        let gpu = Measured::new(&crate::simulated::tests::gpu(), None);
        // Ten requests a second of 20 ms each: a fifth of the time.
        let figures =
            Figures::new(&args.unwrap(), gpu, &[trace(20_000.0), trace(10_000.0)], &outcomes).unwrap();
        assert!((figures.high_busy_share - 0.2).abs() < 1e-9);
        assert!((figures.kept - 0.75).abs() < 1e-9 && (figures.kept_native - 1.0).abs() < 1e-9);
        assert!((figures.lost_over_used - 2.0).abs() < 1e-9);
        // Ten requests of 3 ms in a second.
        assert!((figures.high_served_share - 0.03).abs() < 1e-9);
        assert!((figures.lost_over_served - 0.4 / 0.03).abs() < 1e-9);
        assert_eq!((figures.p99_over_alone, figures.p99_over_native), (1.5, 0.5));
        let table = figures.table();
        assert!(table.contains("loses 2.00 times what the urgent one uses"), "{table}");
        assert!(
            Figures::new(
                &crate::tests::parse::<OneProcessArgs>(&["--high=h@10", "--low=l"]).unwrap(),
                Measured::new(&crate::simulated::tests::gpu(), None),
                &[trace(1.0), trace(1.0)],
                &[vec![], vec![], vec![], vec![]],
            )
            .is_err()
        );
    }
}
