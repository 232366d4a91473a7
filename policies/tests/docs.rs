//! `docs/policies.md` is made of the registry, of the heads of the policies' files, and of a scene played for each.
//!
//! `GIVEWAY_REGENERATE=1 cargo test -p policies --test docs` writes it anew.

mod common;

use common::play::{Actor, MS, Stage, Work, play};
use policies::registry::{POLICIES, Row};
use policies::{Choice, Engine};
use protocol::hint::Laxity;
use protocol::policy::PolicyKind;
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policies.md");
/// Milliseconds of a picture, and of one of its columns.
const LENGTH: u64 = 120;
const COLUMN: u64 = 2;

/// Three programs on one device; what a policy goes by is hinted.
fn scene(kind: PolicyKind) -> Vec<(&'static str, Actor)> {
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
    match kind {
        PolicyKind::Chpf => {
            (urgent.process.nice, steady.process.nice) = (-10, 0);
            batch.process.nice = 10;
        }
        PolicyKind::Up | PolicyKind::Pup | PolicyKind::Spup | PolicyKind::Credit | PolicyKind::Fair => {
            (urgent.work, steady.work) = (Work::Always, every(40, 5, 0));
            share(&mut urgent, 50);
            share(&mut steady, 25);
            share(&mut batch, 25);
        }
        PolicyKind::Cfs | PolicyKind::Mlfq => urgent.work = every(20, 4, 10),
        PolicyKind::Kedf | PolicyKind::Edf => {
            let deadline = |actor: &mut Actor, ms: u64| {
                actor.queues[0].priority = 0.try_into().unwrap();
                actor.queues[0].hints.deadline_us = NonZeroU64::new(ms * 1_000);
            };
            deadline(&mut urgent, 12);
            deadline(&mut steady, 30);
            if kind == PolicyKind::Edf {
                // So that one sees when the slack is used up.
                batch.queues[0].priority = 1.try_into().unwrap();
            }
        }
        PolicyKind::Lax => {
            let [lax, critical] = [-1, 5].map(|priority: i64| priority.try_into().unwrap());
            urgent.queues[0].hints.laxity = Some(Laxity { us: 10_000, lax, critical });
        }
        PolicyKind::Awf => urgent.process.window = true,
        PolicyKind::Gang => {
            for actor in [&mut urgent, &mut batch] {
                actor.queues[0].priority = 0.try_into().unwrap();
                actor.process.job = NonZeroU64::new(7);
            }
            steady.queues[0].priority = 0.try_into().unwrap();
        }
        _ => {}
    }
    vec![("urgent", urgent), ("steady", steady), ("batch", batch)]
}

/// A line a program, a sign a column: it runs for most of the column, for a part of it, waits, or has nothing to do.
fn picture(row: &'static Row) -> String {
    let actors = scene(row.kind);
    let mut engine = Engine::new(Choice::new(row), Duration::ZERO);
    let plain: Vec<_> = actors.iter().map(|(_, actor)| actor.clone()).collect();
    let play = play(&mut engine, &plain, Stage::until(LENGTH * MS));
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

/// The head of the policy's file: from its first line on, without the marks.
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

/// At most one empty line in a row.
fn without_gaps(text: &str) -> String {
    let mut text = text.to_owned();
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text
}

fn page() -> String {
    let mut text = String::from(
        "# Policies\n\n\
         Written by `GIVEWAY_REGENERATE=1 cargo test -p policies --test docs`; edit the heads of `policies/src/*.rs` and\n\
         `policies/src/registry.rs` instead.\n\n\
         A policy says where each program stands; who stands highest on a device runs there, all that are equal to it run\n\
         beside it, and the rest is suspended. Under `xserver` (and in this page) what stands and runs is a *gang*, a process\n\
         with all its queues on all its devices; with `XSCHED_POLICY` it is each queue of the one process. Choose one with\n\
         `xserver NAME`, at run time with `xcli policy set NAME [--PARAMETER VALUE] [--device GPU_ID]`, in one process with\n\
         `XSCHED_POLICY=NAME`. `xcli explain` says why a program runs or waits; `xcli policy list` and `xcli metrics` which policy\n\
         decides where, and what it has counted.\n\n\
         In the pictures three programs share one device for 120 ms of virtual time, without any cost of switching: `#` has\n\
         the device (or its part of it), `+` for less than half of the column, `.` waits, nothing: no work.\n\n",
    );
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
        let _ = write!(text, "```\n{}```\n\n{}\n", picture(row), row.advice);
    }
    text
}

#[test]
fn the_page_is_that_of_the_registry() {
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
fn pictures_are_of_scenes_in_which_something_happens() {
    for row in POLICIES {
        let picture = picture(row);
        assert!(picture.matches('#').count() >= 40, "{picture}");
        assert!(picture.contains('.'), "{}: somebody waits\n{picture}", row.kind);
    }
}
