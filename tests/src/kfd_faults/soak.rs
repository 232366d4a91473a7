//! Processes that are held and released for minutes: what they keep of descriptors, threads and memory.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::bed::{Bed, MECHANISMS, Program, wrong};
use crate::dice::Dice;
use crate::faults::log::now;
use crate::faults::stage::{Outcome, Trouble, await_some};

/// Programs that work at the same time: at least so many, and at most three times as many.
const AT_WORK: usize = 1;
/// The longest that the work of all stays as it is, in microseconds.
const SPELL: u64 = 12_000;
/// The duration of a round on an idle device.
const ROUND: Duration = Duration::from_micros(200);
/// Samples after the one that ends the warm-up.
const SAMPLES: u32 = 9;
/// Memory of its own by which a process may have grown since the warm-up, in KiB: an allocator keeps more or less of what it is
/// given back. A hundred bytes for each hold would be as much after 40,000 of them.
const GROWTH_KIB: i64 = 4096;

/// The resources of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    descriptors: i64,
    threads: i64,
    /// Private memory: `gpu-sim` maps the device memory of all programs.
    memory_kib: i64,
}

impl Usage {
    fn of(pid: Pid) -> Option<Self> {
        let folder = format!("/proc/{}", pid.as_raw_nonzero());
        let descriptors = i64::try_from(fs::read_dir(format!("{folder}/fd")).ok()?.count()).ok()?;
        let status = fs::read_to_string(format!("{folder}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<i64>().ok()
        };
        Some(Self { descriptors, threads: field("Threads:")?, memory_kib: field("RssAnon:")? })
    }

    fn since(self, before: Self) -> Self {
        Self {
            descriptors: self.descriptors - before.descriptors,
            threads: self.threads - before.threads,
            memory_kib: self.memory_kib - before.memory_kib,
        }
    }
}

/// Everybody's usage, by name.
type Sample = Vec<(String, Usage)>;

/// The state of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Rest,
    Work,
    /// It was told to rest, and completes what it has submitted.
    End,
}

struct Soak {
    bed: Bed,
    programs: Vec<(Program, Does)>,
    servants: [(&'static str, Pid); 2],
    dice: Dice,
}

/// Has `processes` programs held and released at random for so long; one line to `say` now and then, and the last one is `N
/// passed, N failed`. Whether all passed.
pub fn soak(length: Duration, processes: usize, mut say: impl FnMut(&str)) -> bool {
    if let Some(missing) = crate::faults::missing() {
        say(&missing);
        say("0 passed, 1 failed");
        return false;
    }
    let (mut passed, mut failed) = (0, 0);
    let result = run(length, processes, &mut |line| say(line), &mut |right, line| {
        if right {
            passed += 1
        } else {
            failed += 1
        }
        line.to_owned()
    });
    match result {
        Ok(lines) => lines.iter().for_each(|line| say(line)),
        Err(trouble) => {
            failed += 1;
            let why = match trouble {
                Trouble::Wrong(why) => why,
                Trouble::Missed => "nothing was held".to_owned(),
            };
            say(&format!("FAILED  {why}"));
        }
    }
    say(&format!("{passed} passed, {failed} failed"));
    failed == 0
}

fn run(
    length: Duration,
    processes: usize,
    say: &mut dyn FnMut(&str),
    judge: &mut dyn FnMut(bool, &str) -> String,
) -> Outcome<Vec<String>> {
    // Both mechanisms, half of the programs each.
    let mut bed = Bed::start(MECHANISMS[0], super::LONGEST * 15, &[])?;
    let mut programs = Vec::new();
    for i in 0..processes {
        bed.set_mechanism(MECHANISMS[i % 2]);
        let priority = i32::try_from(i / 2).unwrap_or(0);
        let mut program = bed.program_of(&format!("program-{i}"), priority, &[], ROUND)?;
        // It has all its threads then.
        program.tell("go");
        program.await_round(0)?;
        program.tell("rest");
        program.await_line("resting")?;
        programs.push((program, Does::Rest));
    }
    let servants = await_some("gpu-sim did not answer", || bed.servants())?;
    let mut soak = Soak { bed, programs, servants, dice: Dice::new(0) };
    let begun = Instant::now();
    let spell = length / (SAMPLES + 1);
    soak.play(spell)?;
    let warm = soak.sample()?;
    say(&format!("after {:.0} s: {}", begun.elapsed().as_secs_f64(), told(&warm)));
    for _ in 0..SAMPLES {
        soak.play(spell)?;
        let last = soak.sample()?;
        say(&format!("after {:.0} s: {}", begun.elapsed().as_secs_f64(), told(&last)));
    }
    soak.judge(&warm, judge)
}

/// Returns true if a process has more descriptors or threads than before.
fn more(before: &Sample, after: &Sample) -> bool {
    before.iter().zip(after).any(|((_, before), (_, after))| {
        after.descriptors > before.descriptors || after.threads > before.threads
    })
}

/// The sums over the programs, and what serves them.
fn told(sample: &Sample) -> String {
    let mut programs = Usage::default();
    for (_, usage) in sample.iter().filter(|(name, _)| name.starts_with("program-")) {
        programs.descriptors += usage.descriptors;
        programs.threads += usage.threads;
        programs.memory_kib += usage.memory_kib;
    }
    let one = |name: &str, usage: &Usage| {
        let Usage { descriptors, threads, memory_kib } = usage;
        format!("{name} {descriptors} descriptors, {threads} threads, {memory_kib} KiB")
    };
    let mut parts = vec![one("programs", &programs)];
    parts.extend(
        sample.iter().filter(|(name, _)| !name.starts_with("program-")).map(|(name, usage)| one(name, usage)),
    );
    parts.join("; ")
}

impl Soak {
    /// Programs begin and end their work at random for so long; then all rest.
    fn play(&mut self, length: Duration) -> Outcome<()> {
        let until = Instant::now() + length;
        while Instant::now() < until {
            self.hear(false)?;
            let at_work = self.programs.iter().filter(|(_, does)| *does != Does::Rest).count();
            let more = at_work < AT_WORK || at_work < 3 * AT_WORK && self.dice.below(2) == 0;
            let of = if more { Does::Rest } else { Does::Work };
            let like_that: Vec<usize> =
                (0..self.programs.len()).filter(|i| self.programs[*i].1 == of).collect();
            if !like_that.is_empty() {
                let which = like_that[self.dice.below(like_that.len() as u64) as usize];
                let (program, does) = &mut self.programs[which];
                *does = if more { Does::Work } else { Does::End };
                program.tell(if more { "go" } else { "rest" });
            }
            // The length of a spell is the play itself; nothing is decided by it.
            std::thread::sleep(Duration::from_micros(self.dice.below(SPELL)));
        }
        for (program, _) in self.programs.iter_mut().filter(|(_, does)| *does == Does::Work) {
            program.tell("rest");
        }
        for (_, does) in &mut self.programs {
            *does = if *does == Does::Work { Does::End } else { *does };
        }
        self.hear(true)?;
        self.bed.await_none_held(now()).map(|_| ())
    }

    /// Listens to those who were told to rest, and waits for them if that is wanted.
    fn hear(&mut self, wait: bool) -> Outcome<()> {
        for (program, does) in self.programs.iter_mut().filter(|(_, does)| *does == Does::End) {
            if wait || program.has_line() {
                program.await_line("resting").map_err(|trouble| program.explain(trouble))?;
                *does = Does::Rest;
            }
        }
        Ok(())
    }

    fn sample(&self) -> Outcome<Sample> {
        let usage = |name: &str, pid| match Usage::of(pid) {
            Some(usage) => Ok((name.to_owned(), usage)),
            None => wrong(format!("{name} is gone")),
        };
        let mut all = Sample::new();
        for (program, _) in &self.programs {
            all.push(usage(&program.name, program.pid)?);
        }
        for (name, pid) in self.servants {
            all.push(usage(name, pid)?);
        }
        Ok(all)
    }

    /// Lets all end, and says a line for each thing that was to hold.
    fn judge(self, warm: &Sample, judge: &mut dyn FnMut(bool, &str) -> String) -> Outcome<Vec<String>> {
        let mut lines = Vec::new();
        // Who has just been asked something may not be through with it: that is no leak.
        let settled = || self.sample().ok().filter(|last| !more(warm, last));
        let last = await_some("", settled).or_else(|_| self.sample())?;
        let growth = |of: fn(Usage) -> i64| {
            let pairs = warm.iter().zip(&last);
            let each = pairs.map(|((name, before), (_, after))| (of(after.since(*before)), name.as_str()));
            each.max().unwrap_or_default()
        };
        let mut check = |right: bool, line: String| {
            lines.push(judge(right, &format!("{} {line}", if right { "ok     " } else { "FAILED " })));
        };
        for (what, of, most) in [
            ("descriptors", (|usage: Usage| usage.descriptors) as fn(Usage) -> i64, 0),
            // The library makes one when a program's launch is kept for the first time.
            ("threads", |usage: Usage| usage.threads, 1),
            ("KiB of memory", |usage: Usage| usage.memory_kib, GROWTH_KIB),
        ] {
            let (most_grown, name) = growth(of);
            check(
                most_grown <= most,
                format!("{what} since the warm-up: at most {most_grown} more, of {name} ({most} allowed)"),
            );
        }
        let (mut holds, mut least, mut rounds, mut troubles) = (0, u64::MAX, 0, Vec::new());
        let (mut each, mut late) = (Vec::new(), 0);
        // Nobody is more urgent than the last two.
        let low = self.programs.len().saturating_sub(2).max(1);
        for (i, (program, _)) in self.programs.into_iter().enumerate() {
            let (name, completed) = (program.name.clone(), program.log().rounds());
            match program.finish_with_late_server() {
                Ok((of_it, times)) => {
                    late += times;
                    holds += of_it;
                    each.push(of_it);
                    least = if i < low { least.min(of_it) } else { least };
                    rounds += completed;
                }
                Err(Trouble::Wrong(why)) => troubles.push(why),
                Err(Trouble::Missed) => troubles.push(name),
            }
        }
        check(
            troubles.is_empty(),
            format!(
                "{rounds} rounds right, nothing left held, nothing said but that the server was late ({late} times) {}",
                troubles.join("\n")
            ),
        );
        check(
            least > 0 && holds > 0,
            format!("{holds} holds, of each program but the two most urgent ones at least one: {each:?}"),
        );
        Ok(lines)
    }
}
