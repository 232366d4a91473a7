//! Reads the decisions of the server (`xserver --decisions`): a JSON object a line, of its changes only.

use super::lingers::Lingers;
use super::sweep::{Change, Index, What};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

#[derive(Debug, Deserialize)]
struct Line {
    /// Nanoseconds of the host's monotonic clock.
    at_ns: u64,
    /// The process that changes, if one does.
    pid: Option<u32>,
    #[serde(flatten)]
    kind: Kind,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Kind {
    Work {
        works: bool,
    },
    Linger {
        until_ns: u64,
    },
    Permission {
        run: bool,
    },
    Leave,
    Guard {
        on: bool,
    },
    End {
        dropped: u64,
    },
    #[serde(other)]
    Other,
}

/// Reads the decisions: adds their changes to `changes`, and returns the number of lines that the server has
/// lost; `None` if the file has no end, because the server was killed or its disk was full. A program's number is
/// its place in `pids`; other processes are left out.
pub(super) fn read(path: &Path, pids: &[u32], changes: &mut Vec<Change>) -> Result<Option<u64>> {
    let told = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(told)?;
    read_from(BufReader::new(file), pids, changes).with_context(told)
}

fn read_from(mut file: impl BufRead, pids: &[u32], changes: &mut Vec<Change>) -> Result<Option<u64>> {
    let mut lingers = Lingers::new(pids.len());
    let mut lost = None;
    let mut text = String::new();
    for line in 1.. {
        text.clear();
        // A line without an end was cut off.
        if file.read_line(&mut text)? == 0 || !text.ends_with('\n') {
            break;
        }
        let Line { at_ns: at, pid, kind } =
            serde_json::from_str(&text).with_context(|| format!("line {line} is malformed"))?;
        let place = pids.iter().position(|known| Some(*known) == pid).map(|place| place as Index);
        match (kind, place) {
            (Kind::Linger { until_ns }, Some(place)) => lingers.note(at, place, Some(until_ns), changes),
            (Kind::Work { works: true } | Kind::Leave, Some(place)) => lingers.note(at, place, None, changes),
            (Kind::Permission { run }, Some(place)) => {
                changes.push(Change { at, what: What::Permission(place, run) })
            }
            (Kind::Guard { on }, _) => changes.push(Change { at, what: What::Guard(on) }),
            (Kind::End { dropped }, _) => lost = Some(dropped),
            _ => (),
        }
    }
    lingers.finish(changes);
    Ok(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Vec<Change>, Option<u64>)> {
        let mut changes = Vec::new();
        let lost = read_from(text.as_bytes(), &[7, 9], &mut changes)?;
        Ok((changes, lost))
    }

    #[test]
    fn lines_become_changes_of_their_programs() {
        let text = r#"{"at_ns":1,"kind":"join","client":1,"pid":7}
{"at_ns":2,"kind":"permission","client":2,"pid":9,"run":false,"why":"suspended"}
{"at_ns":3,"kind":"permission","client":3,"pid":8,"run":false,"why":"suspended"}
{"at_ns":4,"kind":"guard","on":true}
{"at_ns":5,"kind":"work","client":1,"pid":7,"works":false,"since_ns":4}
{"at_ns":6,"kind":"end","dropped":3}
"#;
        let (changes, lost) = parse(text).unwrap();
        let at = |at, what| Change { at, what };
        assert_eq!(changes, [at(2, What::Permission(1, false)), at(4, What::Guard(true))]);
        assert_eq!(lost, Some(3));
    }

    #[test]
    fn file_that_was_cut_off_is_read_as_far_as_it_goes() {
        let whole =
            "{\"at_ns\":4,\"kind\":\"guard\",\"on\":true}\n{\"at_ns\":6,\"kind\":\"end\",\"dropped\":0}\n";
        assert_eq!(parse(whole).unwrap().1, Some(0));
        let guard = [Change { at: 4, what: What::Guard(true) }];
        for length in whole.find('\n').unwrap() + 1..whole.len() {
            assert_eq!(parse(&whole[..length]).unwrap(), (guard.to_vec(), None), "{length}");
        }
    }

    /// Returns the intervals in which program 7 lingers.
    fn lingers(lines: &[&str]) -> Vec<(u64, u64)> {
        let mut changes = parse(&lines.concat()).unwrap().0;
        changes.sort_by_key(|change| change.at);
        let bound = |change: &Change| match change.what {
            What::Lingers(0, _) => change.at,
            other => panic!("{other:?}"),
        };
        let bounds: Vec<u64> = changes.iter().map(bound).collect();
        bounds.chunks(2).map(|pair| (pair[0], pair[1])).collect()
    }

    #[test]
    fn linger_ends_at_its_end_or_with_the_next_work() {
        let linger = |at: u64, until: u64| {
            format!("{{\"at_ns\":{at},\"kind\":\"linger\",\"client\":1,\"pid\":7,\"until_ns\":{until}}}\n")
        };
        let work = |at: u64| {
            format!(
                "{{\"at_ns\":{at},\"kind\":\"work\",\"client\":1,\"pid\":7,\"works\":true,\"since_ns\":{at}}}\n"
            )
        };
        assert_eq!(lingers(&[&linger(10, 30)]), [(10, 30)]);
        assert_eq!(lingers(&[&linger(10, 30), &work(20)]), [(10, 20)]);
        assert_eq!(lingers(&[&linger(10, 30), &work(40), &linger(50, 60)]), [(10, 30), (50, 60)]);
        // A later word moves the end.
        assert_eq!(lingers(&[&linger(10, 30), &linger(20, 50)]), [(10, 20), (20, 50)]);
        assert_eq!(lingers(&[&linger(10, 5)]), []);
    }

    #[test]
    fn malformed_line_is_named() {
        let error = parse("{\"at_ns\":1,\"kind\":\"guard\",\"on\":true}\n{\"at_ns\":2}\n").unwrap_err();
        assert_eq!(error.to_string(), "line 2 is malformed");
    }
}
