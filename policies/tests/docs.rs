//! The generator of `docs/policies.md`. Its sources are the registry, the head comments of the policies' files, and a
//! scenario for each policy.
//!
//! `GIVEWAY_REGENERATE=1 cargo test -p policies --test docs` writes the page again.

mod common;

use common::engine;
use common::play::{Actor, MS, Setup, Work, play};
use policies::registry::{POLICIES, Row};
use protocol::hint::Laxity;
use protocol::ids::DeviceId;
use protocol::policy::PolicyKind;
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::path::Path;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policies.md");
/// The text before the policies, with everything that holds for all of them.
const INTRODUCTION: &str = "\
# Policies

Written by `GIVEWAY_REGENERATE=1 cargo test -p policies --test docs`; edit the heads of `policies/src/*.rs` and
`policies/src/registry.rs` instead.

A policy ranks the programs on each device. The highest rank runs there, all that are equal to it run beside it, and the
others are suspended. The thing that is ranked is called an *entity*. Under `xserver` (and in this page) it is a *gang*, a
process with all its queues on all its devices; with `XSCHED_POLICY` it is each queue of the one process. Choose a policy
with `xserver NAME`, at run time with `xcli policy set NAME [--PARAMETER VALUE] [--device GPU_ID]`, in one process with
`XSCHED_POLICY=NAME`. `xcli explain` shows why a program runs or waits. `xcli policy list` and `xcli metrics` show which
policy decides where, and its counters.

What is different from XSched under all policies:

* Under `xserver` a process is suspended and resumed as a whole, so that none of its queues waits for another one that is
  suspended. XSched suspends single queues, and programs with several dependent streams can stand still. With
  `XSCHED_POLICY` queues are suspended singly here as well, but a suspended queue launches what a running one waits for.
* A hint belongs to a queue or to a process and ends with it, and so does the state that a policy keeps of it. XSched never
  forgets the hints of destroyed queues.
* A process uses no handle twice, and to name one that has been destroyed is an error (`kXSchedErrorNotFound`).
* Each entity that runs or waits has a reason, which `xcli explain` shows.

In the pictures three programs share one device for 120 ms of virtual time, without any cost of switching. `#` means that
the program has the device (or its part of it), `+` for less than half of the column, `.` that it waits, and a space that
it has no work. `urgent` has priority 2 and 8 ms of work every 40 ms, `steady` priority 1 and 12 ms every 30 ms, `batch`
priority 0 and always work. A policy with another scenario describes it above its picture.

";
/// Milliseconds of a picture, and of one of its columns.
const LENGTH: u64 = 120;
const COLUMN: u64 = 2;

/// Three programs and their hints.
struct Scenario {
    /// The difference from the scenario that the page describes at its top.
    differs: &'static str,
    actors: [(&'static str, Actor); 3],
    parameters: &'static [(&'static str, f64)],
    /// The power of the device, in milliwatts.
    draws: Option<u64>,
}

/// Returns the scenario that shows the behaviour of a policy.
fn scenario(kind: PolicyKind) -> Scenario {
    let every = |period: u64, length: u64, first: u64| {
        let arrivals = (0..).map(move |number| first + number * period).take_while(|at| *at < LENGTH);
        Work::Jobs(arrivals.map(|at| (at * MS, length * MS)).collect())
    };
    let mut urgent = Actor::new(2, every(40, 8, 10));
    let mut steady = Actor::new(1, every(30, 12, 0));
    let mut batch = Actor::new(0, Work::Always);
    let share = |actor: &mut Actor, percent: i64| {
        let percent = percent.try_into().unwrap();
        actor.process.utilization = percent;
        actor.queues[0].hints.utilization = percent;
    };
    let deadline = |actor: &mut Actor, ms: u64| {
        actor.queues[0].hints.deadline_us = NonZeroU64::new(ms * 1_000);
    };
    let prioritize =
        |actor: &mut Actor, priority: i64| actor.queues[0].priority = priority.try_into().unwrap();
    let mut parameters: &[(&str, f64)] = &[];
    let mut draws = None;
    let differs = match kind {
        PolicyKind::Hpf => "",
        PolicyKind::Hhpf => {
            // On one device it is HPF; equals on two do not slow each other down.
            batch.queues[0].device = DeviceId(2);
            prioritize(&mut batch, 1);
            "`batch` has a second device for itself, and the same priority as `steady`."
        }
        PolicyKind::Chpf => {
            (urgent.process.nice, steady.process.nice, batch.process.nice) = (0, -10, 10);
            "The nice value of `urgent` is 0, of `steady` -10, of `batch` 10."
        }
        PolicyKind::Up | PolicyKind::Pup | PolicyKind::Spup => {
            // Each gap begins within a slice and ends before the next one.
            urgent.work = Work::Jobs(vec![(0, 4 * MS), (8 * MS, 26 * MS), (64 * MS, 200 * MS)]);
            steady.work = Work::Always;
            share(&mut urgent, 50);
            share(&mut steady, 25);
            share(&mut batch, 25);
            parameters = &[("timeslice-us", 20_000.0)];
            "Utilizations are 50, 25 and 25, `timeslice-us` is 20000. `steady` always has work, `urgent` pauses."
        }
        PolicyKind::Kedf => {
            deadline(&mut urgent, 12);
            deadline(&mut steady, 30);
            parameters = &[("k", 2.0)];
            "Deadlines are 12 ms for `urgent` and 30 ms for `steady`, `batch` has none; `k` is 2."
        }
        PolicyKind::Lax => {
            let [lax, critical] = [-1, 5].map(|priority: i64| priority.try_into().unwrap());
            urgent.queues[0].hints.laxity = Some(Laxity { us: 10_000, lax, critical });
            "`urgent` has priority -1 until it has been ready for 10 ms, and 5 from then on."
        }
        PolicyKind::Awf => {
            urgent.process.window = true;
            "`urgent` owns the active window."
        }
        PolicyKind::Cfs | PolicyKind::Mlfq => {
            urgent.work = every(20, 4, 10);
            "`urgent` has 4 ms of work every 20 ms."
        }
        PolicyKind::Lcbe => {
            urgent.announces = true;
            parameters = &[("lead-us", 4_000.0)];
            "`urgent` hints when its next work arrives; `lead-us` is 4000."
        }
        PolicyKind::Edf => {
            prioritize(&mut urgent, 0);
            prioritize(&mut steady, 0);
            deadline(&mut urgent, 12);
            deadline(&mut steady, 30);
            // So that the picture shows when the slack is used up.
            prioritize(&mut batch, 1);
            "Deadlines are 12 ms for `urgent` and 30 ms for `steady`, both of priority 0; `batch` has none, and priority 1."
        }
        PolicyKind::Slo => "The target is 10 ms; both `urgent` and `steady` are critical.",
        PolicyKind::Credit | PolicyKind::Fair => {
            (urgent.work, steady.work) = (Work::Always, every(40, 5, 0));
            share(&mut urgent, 50);
            share(&mut steady, 25);
            share(&mut batch, 25);
            "Utilizations are 50, 25 and 25. `urgent` always has work, `steady` 5 ms every 40 ms."
        }
        PolicyKind::Gang => {
            for actor in [&mut urgent, &mut steady, &mut batch] {
                prioritize(actor, 0);
            }
            (urgent.process.job, batch.process.job) = (NonZeroU64::new(7), NonZeroU64::new(7));
            "`urgent` and `batch` are one job, `steady` is another; all have the same priority."
        }
        PolicyKind::Power => {
            draws = Some(450_000);
            parameters = &[("budget-w", 100.0)];
            "`budget-w` is 100, and the device draws 450 W whatever runs; it is read at 0, 50 and 100 ms."
        }
    };
    let actors = [("urgent", urgent), ("steady", steady), ("batch", batch)];
    Scenario { differs, actors, parameters, draws }
}

/// Draws a line for each program with a sign for each column: the program runs for most of the column or for a part
/// of it, waits, or has nothing to do.
fn picture(row: &'static Row) -> String {
    let Scenario { actors, parameters, draws, .. } = scenario(row.kind);
    let mut engine = engine(row.kind, parameters);
    let plain: Vec<_> = actors.iter().map(|(_, actor)| actor.clone()).collect();
    let play = play(&mut engine, &plain, Setup { draws, ..Setup::until(LENGTH * MS) });
    let mut text = String::new();
    let columns = LENGTH / COLUMN;
    let ruler: String = (0..columns).step_by(10).map(|column| format!("{:<10}", column * COLUMN)).collect();
    let _ = writeln!(text, "     ms {}", ruler.trim_end());
    for (place, (name, actor)) in actors.iter().enumerate() {
        let line: String = (0..columns)
            .map(|column| {
                let (from, to) = (column * COLUMN * MS, (column + 1) * COLUMN * MS);
                let ran: u64 =
                    play.spans[place].iter().map(|&(a, b)| b.min(to).saturating_sub(a.max(from))).sum();
                let ends = &play.done[place];
                let waits = match &actor.work {
                    Work::Always => true,
                    Work::From(at) => *at < to,
                    Work::Jobs(jobs) => {
                        let open = |(number, job): (usize, &(u64, u64))| {
                            job.0 < to && ends.get(number).is_none_or(|(_, end)| *end > from)
                        };
                        jobs.iter().enumerate().any(open)
                    }
                };
                match (ran * 2 >= COLUMN * MS, ran > 0, waits) {
                    (true, ..) => '#',
                    (false, true, _) => '+',
                    (false, false, true) => '.',
                    (false, false, false) => ' ',
                }
            })
            .collect();
        let _ = writeln!(text, "{name:>7} {}", line.trim_end());
    }
    text
}

/// Returns the head comment of the policy's file, without the comment marks.
fn head(row: &Row) -> String {
    let name = row.kind.name().to_lowercase();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(format!("{name}.rs"));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let mut page = String::new();
    for line in lines {
        let line = line.strip_prefix(' ').unwrap_or(line);
        // Links that only the API documentation knows are their own text here.
        if line.starts_with('[') && line.contains("]: ") {
            continue;
        }
        let line = line.replace("[`", "`").replace("`]", "`");
        match line.strip_prefix("# ") {
            Some(title) => drop(writeln!(page, "### {title}\n")),
            None => drop(writeln!(page, "{line}")),
        }
    }
    // The title stands over it already.
    let (first, rest) = page.split_once('\n').unwrap();
    assert!(first.starts_with(row.kind.name()), "{}: the head begins with the policy's name", file.display());
    without_gaps(rest.trim())
}

/// Reduces consecutive empty lines to one.
fn without_gaps(text: &str) -> String {
    let mut text = text.to_owned();
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

fn page() -> String {
    let mut text = String::from(INTRODUCTION);
    text.push_str(&policies::registry::markdown());
    for row in POLICIES {
        let _ = write!(text, "\n## {}\n\n", row.kind);
        let _ = write!(text, "{}\n\n", head(row));
        if !row.parameters.is_empty() {
            text.push_str("| parameter | default | from | to | what it is |\n|---|---|---|---|---|\n");
            for parameter in row.parameters {
                let (low, high) = parameter.range;
                let _ = writeln!(
                    text,
                    "| `{}` | {} | {low} | {high} | {} |",
                    parameter.name, parameter.default, parameter.meaning
                );
            }
            text.push('\n');
        }
        let differs = scenario(row.kind).differs;
        if !differs.is_empty() {
            let _ = write!(text, "{differs}\n\n");
        }
        let _ = write!(text, "```\n{}```\n\n{}\n", picture(row), row.advice);
    }
    text
}

#[test]
fn page_matches_the_registry() {
    let page = page();
    if std::env::var_os("GIVEWAY_REGENERATE").is_some() {
        std::fs::write(PAGE, &page).unwrap();
    }
    let written = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        written == page,
        "docs/policies.md is out of date: GIVEWAY_REGENERATE=1 cargo test -p policies --test docs"
    );
}

#[test]
fn pictures_show_scenarios_with_changes() {
    for row in POLICIES {
        let picture = picture(row);
        assert!(picture.matches('#').count() >= 40, "{picture}");
        assert!(picture.contains('.'), "{}: no program waits\n{picture}", row.kind);
    }
}

#[test]
fn pictures_of_two_policies_differ() {
    for (number, row) in POLICIES.iter().enumerate() {
        for other in &POLICIES[..number] {
            assert_ne!(picture(row), picture(other), "{} and {}", row.kind, other.kind);
        }
    }
}
