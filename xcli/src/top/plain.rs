//! `xcli top` without a terminal: a table or a JSON object for each interval.

use super::columns::{self, Column, Users};
use super::rows::{Row, State, only_held, rows};
use crate::ask::Session;
use crate::endpoint::Endpoint;
use crate::list::server;
use crate::output::print_on;
use crate::suspend;
use crate::table::{self, Line};
use protocol::control::List;
use serde::Serialize;
use std::io;
use std::thread;
use std::time::Duration;

/// One interval as JSON.
#[derive(Debug, Serialize)]
struct Interval<'a> {
    /// Its length by the server's clock.
    interval_s: f64,
    programs: &'a [Row],
}

/// Prints what happened in each of `count` intervals.
///
/// # Errors
/// The server does not answer.
pub fn run(endpoint: &Endpoint, interval: Duration, count: u64, json: bool) -> anyhow::Result<()> {
    let users = columns::users(&std::fs::read_to_string("/etc/passwd").unwrap_or_default());
    let mut session = Session::new(endpoint);
    let mut before = session.list()?;
    for index in 0..count {
        thread::sleep(interval);
        let now = session.list()?;
        let rows = rows(Some(&before), &now);
        let text = if json {
            let passed = now.server.now.since(before.server.now);
            serde_json::to_string(&Interval { interval_s: passed.as_secs_f64(), programs: &rows })? + "\n"
        } else {
            let gap = if index == 0 { "" } else { "\n" };
            format!("{gap}{}", text(&now, rows, &users, table::terminal_width(io::stdout())))
        };
        if !print_on(&text)? {
            return Ok(());
        }
        before = now;
    }
    Ok(())
}

/// Formats a table with a row for each program, the busiest first, and the reason for each suspension.
fn text(list: &List, mut rows: Vec<Row>, users: &Users, terminal: Option<usize>) -> String {
    let sort = columns::SORTED[0];
    rows.sort_by(|one, other| sort.compare(one, other, false).then(one.client.cmp(&other.client)));
    let has_users = rows.iter().any(|row| row.uid.is_some());
    let is_shown = |column: &Column| match column {
        Column::User => has_users,
        Column::Why => false,
        _ => true,
    };
    let shown: Vec<Column> = columns::ALL.into_iter().filter(is_shown).collect();
    let format = |column: &Column| match column {
        Column::Name => table::Column::names(column.title()),
        column if column.is_number() => table::Column::number(column.title()),
        column => table::Column::words(column.title()),
    };
    let mut lines = Vec::new();
    for row in &rows {
        lines.push(Line::Row(shown.iter().map(|column| column.cell(row, users)).collect()));
        if row.state == State::Suspended {
            lines.push(Line::Remark(format!("suspended: {}", row.why)));
        }
    }
    let others = if list.partial { "programs of other users are not shown\n" } else { "" };
    let held: Vec<_> = only_held(list).into_iter().cloned().collect();
    let table = match rows.is_empty() {
        true => "no program is connected\n".to_owned(),
        false => table::text(&shown.iter().map(format).collect::<Vec<_>>(), &lines, terminal),
    };
    format!("{}\n{table}{others}{}", server(&list.server), suspend::held_table(&held, terminal))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::rows::tests::two_lists;
    use super::*;

    #[test]
    fn interval_is_a_table() {
        let [before, now] = two_lists();
        let said = text(&now, rows(Some(&before), &now), &Users::new(), None);
        let want = "\
xserver 4711: policy HPF, on, up 2 h 5 min, 1 guard run
  PID  NAME      PRIO  LVL  STATE      LAUNCH/S  SHARE%  SUSP%  EVICT/S  AVG SUSP
31337  train.py  -255    1  suspended        50    50.0     25      0.0    250 ms
  suspended: queue 7 of pid 4242 has priority 10 > -255
 4242  infer       10    1  running        1250    25.0      0      1.5         -
    5  fresh        -    1  idle              0     0.0      0      0.0         -
";
        assert_eq!(said, want);
    }

    /// An interval in JSON.
    pub(crate) fn json() -> serde_json::Value {
        let [before, now] = two_lists();
        let rows = rows(Some(&before), &now);
        serde_json::to_value(Interval { interval_s: 2.0, programs: &rows[1..2] }).unwrap()
    }

    #[test]
    fn interval_is_json() {
        let want = serde_json::json!({
            "interval_s": 2.0,
            "programs": [{
                "pid": 31337, "name": "train.py", "uid": null, "priority": -255, "level": 1, "state": "suspended",
                "launches_per_second": 50.0, "share_percent": 50.0, "suspended_percent": 25.0,
                "evictions_per_second": 0.0, "mean_suspension_us": 250_000.0,
                "why": "queue 7 of pid 4242 has priority 10 > -255",
                "queues": [{
                    "queue": 1, "device": 51234, "priority": -255, "level": 1, "state": "suspended",
                    "launches_per_second": 50.0, "share_percent": 50.0, "suspended_percent": 50.0,
                    "evictions_per_second": null, "mean_suspension_us": 250_000.0
                }]
            }]
        });
        assert_eq!(json(), want);
    }

    #[test]
    fn table_without_programs_says_so() {
        let [_, mut now] = two_lists();
        now.clients.clear();
        now.partial = true;
        let said = text(&now, Vec::new(), &Users::new(), None);
        assert!(
            said.ends_with("\nno program is connected\nprograms of other users are not shown\n"),
            "{said}"
        );
    }
}
