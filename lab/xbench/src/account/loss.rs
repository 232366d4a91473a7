//! The accounts of the modes of an experiment, and the check of each against the programs' own counts.
//!
//! The loss is the time that nobody used. By counts it is the measured time, without the device time of the
//! urgent programs' inferences, and without the time that the batch programs' inferences take alone. By
//! entries it is the time in which nothing ran, without the overlap of kernels that ran beside each other, and
//! without what the batch programs lose alone as well. The counts are the programs' own, the entries those of
//! the device and the server.

use super::entry::{ENTRIES, Entries, Entry};
use super::latency::{Latency, Means};
use super::run::{Part, RunAccount};
use super::sweep::Class;
use crate::table::{Table, verdict};
use serde::Serialize;
use std::fmt::{self, Write as _};

/// The largest difference of both losses, percent of the measured time.
const LIMIT_PERCENT: f64 = 2.0;

/// The accounts of all modes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Accounts(Vec<ModeAccount>);

/// The account of a mode, all blocks together. Times are seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ModeAccount {
    /// The mode: a program alone, without the library, or a policy with its parameters.
    pub(crate) mode: String,
    /// The preemption level; `null` without the library.
    pub(crate) level: Option<u8>,
    /// The measured time.
    pub(crate) seconds: f64,
    pub(crate) entries: Entries,
    /// The sum of the ended kernels' times alone, less the time in which any kernel ran; negative if they
    /// slowed each other more than they overlapped. `null` if the device did not tell it.
    pub(crate) overlap: Option<f64>,
    /// The comparison of both losses; `null` where a batch program is alone, or was not measured alone.
    pub(crate) loss: Option<Loss>,
    /// The urgent programs' requests; none where they were not measured.
    pub(crate) latency: Vec<Means>,
    /// Reasons why entries may be wrong.
    pub(crate) doubts: Vec<String>,
}

/// The loss by entries and by counts, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Loss {
    /// The time that the batch programs lose alone as well, for as many inferences.
    pub(crate) alone: f64,
    pub(crate) by_entries: f64,
    pub(crate) by_counts: f64,
    /// The difference, percent of the measured time.
    pub(crate) difference_percent: f64,
    /// True if that is small enough.
    pub(crate) met: bool,
}

/// The runs of a mode, one a block.
#[derive(Debug)]
pub(crate) struct Runs {
    pub(crate) mode: String,
    pub(crate) level: Option<u8>,
    /// The numbers of its programs, in the order of the runs' parts.
    pub(crate) programs: std::ops::Range<usize>,
    /// True if a program is alone. It stands for all of `programs`.
    pub(crate) alone: bool,
    pub(crate) runs: Vec<RunAccount>,
}

/// The sums of all blocks of a mode, nanoseconds.
#[derive(Debug, Clone)]
struct Sums {
    entries: Entries,
    parts: Vec<Part>,
    latency: Vec<Latency>,
}

impl Sums {
    /// Sums the runs up; `None` without any.
    fn new(runs: &[RunAccount]) -> Option<Self> {
        let (first, others) = runs.split_first()?;
        let (parts, latency) = (first.parts.clone(), first.latency.clone());
        let mut sums = Self { entries: first.entries, parts, latency };
        for run in others {
            sums.entries += run.entries;
            for (part, more) in sums.parts.iter_mut().zip(&run.parts) {
                part.inferences += more.inferences;
                part.alone_ns = part.alone_ns.zip(more.alone_ns).map(|(one, other)| one + other);
            }
            for (latency, more) in sums.latency.iter_mut().zip(&run.latency) {
                latency.extend(more);
            }
        }
        Some(sums)
    }

    fn time(&self) -> f64 {
        self.entries.total() as f64
    }

    fn overlap(&self) -> Option<f64> {
        let alone: Option<f64> = self.parts.iter().map(|part| part.alone_ns).sum();
        alone.map(|alone| alone - self.entries.busy() as f64)
    }

    /// Returns the time that nobody used, without what ran beside something else.
    fn unused(&self) -> Option<f64> {
        Some(self.entries.idle() as f64 - self.overlap()?)
    }

    /// Computes the loss; `alone` has the sums of each program alone.
    fn loss(&self, alone: &[Option<&Self>]) -> Option<Loss> {
        let (mut own, mut used) = (0.0, 0.0);
        for (part, alone) in self.parts.iter().zip(alone) {
            if part.class == Class::Urgent {
                used += part.inferences * part.device_us * 1e3;
                continue;
            }
            let alone = (*alone)?;
            // Its inferences here take this part of the measured time alone.
            let share = part.inferences / alone.parts.first()?.inferences * alone.time() / self.time();
            used += share * self.time();
            own += share * self.time() * alone.unused()? / alone.time();
        }
        let (by_entries, by_counts) = (self.unused()? - own, self.time() - used);
        let difference = (by_entries - by_counts) / self.time() * 100.0;
        let seconds = |ns: f64| ns / 1e9;
        Some(Loss {
            alone: seconds(own),
            by_entries: seconds(by_entries),
            by_counts: seconds(by_counts),
            difference_percent: difference,
            met: difference.abs() <= LIMIT_PERCENT,
        })
    }
}

impl Accounts {
    /// Computes the accounts of all modes that have runs.
    pub(crate) fn new(modes: &[Runs]) -> Self {
        let sums: Vec<(&Runs, Sums)> =
            modes.iter().filter_map(|mode| Some((mode, Sums::new(&mode.runs)?))).collect();
        let alone = |program: usize| {
            let mut alone = sums.iter().filter(|(mode, _)| mode.alone && mode.programs.contains(&program));
            alone.next().map(|(_, sums)| sums)
        };
        let account = |(mode, sums): &(&Runs, Sums)| {
            // A batch program alone is the measure of the others.
            let judged = !mode.alone || sums.parts.iter().all(|part| part.class == Class::Urgent);
            let alone: Vec<_> = mode.programs.clone().map(alone).collect();
            ModeAccount {
                mode: mode.mode.clone(),
                level: mode.level,
                seconds: sums.time() / 1e9,
                entries: sums.entries,
                overlap: sums.overlap().map(|ns| ns / 1e9),
                latency: sums.latency.iter().filter_map(Latency::means).collect(),
                loss: judged.then(|| sums.loss(&alone)).flatten(),
                doubts: mode.runs.iter().flat_map(|run| &run.doubts).cloned().collect(),
            }
        };
        Self(sums.iter().map(account).collect())
    }
}

/// Writes a table a mode.
impl fmt::Display for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|account| writeln!(f, "{account}"))
    }
}

impl ModeAccount {
    /// Returns the rows of the table: who ran, then the reasons why nobody did from the largest on.
    fn rows(&self) -> Vec<(&'static str, f64, &'static str)> {
        let seconds = |entry: Entry| self.entries[entry] as f64 / 1e9;
        let row = |(entry, name, what): (Entry, _, _)| (name, seconds(entry), what);
        let (busy, mut idle): (Vec<_>, Vec<_>) = ENTRIES.into_iter().partition(|(entry, ..)| entry.is_busy());
        idle.retain(|(entry, ..)| self.entries[*entry] > 0);
        idle.sort_by_key(|(entry, ..)| std::cmp::Reverse(self.entries[*entry]));
        let mut rows: Vec<_> = busy.into_iter().chain(idle).map(row).collect();
        rows.extend(self.overlap.map(|overlap| ("overlap", -overlap, "kernels that ran beside each other")));
        if let Some(loss) = &self.loss {
            let what = "what the batch programs lose alone as well";
            rows.extend(Some(("alone", -loss.alone, what)).filter(|_| loss.alone != 0.0));
            rows.push(("loss", loss.by_entries, "by these entries"));
            rows.push(("loss", loss.by_counts, "by the programs' counts"));
        }
        rows
    }
}

/// Returns the number with so many digits behind the point; zero has no sign.
fn signed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text.strip_prefix('-') {
        Some(zero) if !zero.contains(|digit| ('1'..='9').contains(&digit)) => zero.to_owned(),
        _ => text,
    }
}

impl fmt::Display for ModeAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.map_or(String::new(), |level| format!(", level {level}"));
        writeln!(f, "the device's time, {}{level}: {:.3} s", self.mode, self.seconds)?;
        let mut table = Table::without_header([false, true, true, false]);
        table.push(["", "seconds", "%", ""].map(str::to_owned));
        for (name, seconds, what) in self.rows() {
            let (percent, what) = (signed(seconds / self.seconds * 100.0, 2), what.to_owned());
            table.push([name.to_owned(), signed(seconds, 3), percent, what]);
        }
        table.fmt(f)?;
        let mut text = String::new();
        if let Some(Loss { difference_percent, met, .. }) = self.loss {
            let word = verdict(met);
            let _ = writeln!(
                text,
                "difference of both losses within {LIMIT_PERCENT} % of the time: {difference_percent:.2} %, {word}"
            );
        }
        for doubt in &self.doubts {
            let _ = writeln!(text, "! {doubt}");
        }
        f.write_str(&text)?;
        self.latency.iter().try_for_each(|means| write!(f, "\n{means}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns the account of a run of 100 ms with these entries, in milliseconds, and parts.
    fn run(entries: &[(Entry, u64)], parts: &[Part]) -> RunAccount {
        let mut all = Entries::default();
        entries.iter().for_each(|(entry, ms)| all[*entry] = ms * MS);
        assert_eq!(all.total(), 100 * MS);
        RunAccount { entries: all, parts: parts.to_vec(), latency: Vec::new(), doubts: Vec::new() }
    }

    fn part(class: Class, inferences: f64, alone_ms: f64) -> Part {
        Part { class, inferences, device_us: 5_000.0, alone_ns: Some(alone_ms * 1e6) }
    }

    fn modes(high: &RunAccount, low: &RunAccount, both: &RunAccount) -> [Runs; 3] {
        let mode = |mode: &str, alone: bool, programs, run: &RunAccount| Runs {
            mode: mode.to_owned(),
            level: (!alone).then_some(3),
            programs,
            alone,
            // Two blocks that are alike.
            runs: vec![run.clone(), run.clone()],
        };
        [
            mode("urgent alone", true, 0..1, high),
            mode("batch alone", true, 1..2, low),
            mode("HPF", false, 0..2, both),
        ]
    }

    /// Four requests of 5 ms beside a batch program whose inferences take 9 ms of the device and 10 alone.
    fn accounts(batch: f64) -> Accounts {
        let (urgent, other) = (part(Class::Urgent, 4.0, 20.0), part(Class::Batch, batch, 9.0 * batch));
        let high = run(&[(Entry::Urgent, 20), (Entry::Gap, 10), (Entry::None, 70)], &[urgent]);
        let low = run(&[(Entry::Others, 90), (Entry::Host, 10)], &[part(Class::Batch, 10.0, 90.0)]);
        // 5 ms of both beside each other: 20 of the urgent one and 63 of the other are 78 together.
        let busy = [(Entry::Urgent, 15), (Entry::Others, 58), (Entry::Both, 5)];
        let idle = [(Entry::Linger, 9), (Entry::Host, 7), (Entry::Switching, 6)];
        let both = run(&[busy, idle].concat(), &[urgent, other]);
        Accounts::new(&modes(&high, &low, &both))
    }

    #[test]
    fn losses_by_entries_and_by_counts_agree() {
        let accounts = accounts(7.0);
        let both = &accounts.0[2];
        assert!((both.seconds - 0.2).abs() < 1e-9 && (both.overlap.unwrap() - 0.010).abs() < 1e-9);
        let loss = both.loss.unwrap();
        // Per block 22 - 5 - 7 × 1 by entries, and 100 - 20 - 70 by counts.
        assert!((loss.by_entries - 0.020).abs() < 1e-9, "{loss:?}");
        assert!((loss.by_counts - 0.020).abs() < 1e-9, "{loss:?}");
        assert!(loss.met && loss.difference_percent.abs() < 1e-9 && (loss.alone - 0.014).abs() < 1e-9);
        // Alone the urgent program's loss is its gaps and the time without requests.
        let high = accounts.0[0].loss.unwrap();
        assert!(high.met && (high.by_counts - 0.160).abs() < 1e-9, "{high:?}");
        assert_eq!(accounts.0[1].loss, None);
    }

    #[test]
    fn losses_that_differ_miss_the_limit() {
        // An inference that is counted twice: its 10 ms here are 1 ms of the entries' loss as well.
        let mut loss = accounts(8.0).0[2].loss.unwrap();
        assert!((loss.difference_percent - 0.0).abs() < 1e-9, "its kernels count as overlap: {loss:?}");
        let (urgent, other) = (part(Class::Urgent, 4.0, 20.0), part(Class::Batch, 8.0, 63.0));
        let low = run(&[(Entry::Others, 90), (Entry::Host, 10)], &[part(Class::Batch, 10.0, 90.0)]);
        let both = run(&[(Entry::Urgent, 20), (Entry::Others, 63), (Entry::Host, 17)], &[urgent, other]);
        loss = Accounts::new(&modes(&both, &low, &both)).0[2].loss.unwrap();
        assert!(!loss.met && (loss.difference_percent - 9.0).abs() < 1e-9, "{loss:?}");
    }

    #[test]
    fn loss_needs_the_batch_program_alone_and_the_times_of_kernels() {
        let urgent = part(Class::Urgent, 4.0, 20.0);
        let both = run(&[(Entry::Others, 100)], &[urgent, part(Class::Batch, 7.0, 63.0)]);
        let [_, _, mode] = modes(&both, &both, &both);
        assert_eq!(Accounts::new(&[mode]).0[0].loss, None);
        let silent = Part { alone_ns: None, ..urgent };
        let high = run(&[(Entry::Urgent, 100)], &[silent]);
        let [mode, ..] = modes(&high, &high, &high);
        let account = &Accounts::new(&[mode]).0[0];
        assert_eq!((account.overlap, account.loss), (None, None));
    }

    #[test]
    fn table_has_users_then_losses_from_the_largest_on() {
        let mut accounts = accounts(7.0);
        accounts.0[2].doubts.push("something is missing".to_owned());
        let expected = "\
the device's time, HPF, level 3: 0.200 s
           seconds      %
urgent       0.030  15.00  only urgent programs ran
others       0.116  58.00  only other programs ran
both         0.010   5.00  both ran
linger       0.018   9.00  idle, and still counted as ready
host         0.014   7.00  the other programs' hosts had launched nothing more
switching    0.012   6.00  the driver saved or restored work
overlap     -0.010  -5.00  kernels that ran beside each other
alone       -0.014  -7.00  what the batch programs lose alone as well
loss         0.020  10.00  by these entries
loss         0.020  10.00  by the programs' counts
difference of both losses within 2 % of the time: 0.00 %, met
! something is missing
";
        assert_eq!(accounts.0[2].to_string(), expected);
    }

    #[test]
    fn zero_has_no_sign() {
        assert_eq!(
            [-0.0004, -0.0, 0.0, -0.0006, 1.5].map(|value| signed(value, 3)),
            ["0.000", "0.000", "0.000", "-0.001", "1.500"]
        );
    }

    #[test]
    fn json_has_seconds_by_name() {
        let json = serde_json::to_value(accounts(7.0)).unwrap();
        let mode = &json[2];
        assert_eq!((&mode["mode"], &mode["level"]), (&"HPF".into(), &3.into()));
        assert_eq!((&mode["entries"]["linger"], &mode["entries"]["none"]), (&0.018.into(), &0.0.into()));
        assert_eq!(mode["loss"]["met"], true);
        assert!(json[1]["loss"].is_null());
    }
}
