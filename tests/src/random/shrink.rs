//! Makes a failing program smaller: leaves out steps as long as what is left is valid and fails.

use std::process::Command;

use super::batch::{Tools, carry_out};
use super::plan::{Mode, Plan};

/// Times that a program gets to fail in: what rests on a race of threads does not fail each time.
const TRIES: u64 = 20;

/// The smaller program as text; nothing if the whole one does not fail. `say` gets a line about the progress.
pub fn shrink(
    plan: &Plan,
    tools: &Tools,
    seed: u64,
    mode: Option<Mode>,
    say: impl Fn(&str),
) -> Option<String> {
    let fails = |drop: &[bool]| {
        let report = carry_out(plan, tools, mode, (seed, 1, TRIES), &list(drop));
        report.broken.is_some() || report.said.iter().any(|said| said.wrong.is_some())
    };
    let steps = steps(&text(tools, seed, ""));
    let mut drop = vec![false; steps];
    if !fails(&drop) {
        return None;
    }
    let mut size = steps / 2;
    while size > 0 {
        for first in (0..steps).step_by(size) {
            let mut smaller = drop.clone();
            smaller[first..steps.min(first + size)].fill(true);
            if smaller != drop && is_valid(tools, seed, &list(&smaller)) && fails(&smaller) {
                drop = smaller;
            }
        }
        say(&format!("{} of {steps} steps", drop.iter().filter(|gone| !**gone).count()));
        size /= 2;
    }
    let drop = list(&drop);
    Some(format!("without the steps {drop}:\n{}", text(tools, seed, &drop)))
}

fn say_about(tools: &Tools, what: &str, seed: u64, drop: &str) -> String {
    let output = Command::new(&tools.program).arg(what).arg(seed.to_string()).arg(drop).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run {}: {error}", tools.program.display()));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The program for people.
pub fn text(tools: &Tools, seed: u64, drop: &str) -> String {
    say_about(tools, "show", seed, drop)
}

fn is_valid(tools: &Tools, seed: u64, drop: &str) -> bool {
    say_about(tools, "check", seed, drop) == "valid\n"
}

/// Steps begin with their number.
fn steps(text: &str) -> usize {
    let number = |line: &str| line.split_whitespace().next()?.parse::<usize>().ok();
    text.lines().filter(|line| line.contains("  thread ")).filter_map(number).max().map_or(0, |last| last + 1)
}

/// As the program wants it: "1,4-7".
fn list(drop: &[bool]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut at = 0;
    while at < drop.len() {
        let length = drop[at..].iter().take_while(|gone| **gone).count();
        match length {
            0 => {}
            1 => parts.push(at.to_string()),
            _ => parts.push(format!("{at}-{}", at + length - 1)),
        }
        at += length.max(1);
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_steps() {
        assert_eq!(list(&[false, false]), "");
        assert_eq!(list(&[true, false, true, true, true, false]), "0,2-4");
        assert_eq!(steps("  0  thread 0: a\n     thread 0: inner\n 12  thread 1: b\nvalid\n"), 13);
    }
}
