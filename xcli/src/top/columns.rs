//! The columns: their cells, their order by them, and which of them fit.

use super::rows::{QueueRow, Rates, Row, State};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// The names of users by their numbers.
pub type Users = BTreeMap<u32, String>;

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Pid,
    User,
    Name,
    Priority,
    Level,
    State,
    Launches,
    Share,
    Suspended,
    Evictions,
    MeanSuspension,
    Why,
}

use Column::{Evictions, Launches, Level, MeanSuspension, Name, Pid, Priority, Share, Suspended, User, Why};

/// All columns from left to right.
pub const ALL: [Column; 12] = [
    Pid,
    User,
    Name,
    Priority,
    Level,
    Column::State,
    Launches,
    Share,
    Suspended,
    Evictions,
    MeanSuspension,
    Why,
];

/// The columns by which rows can be sorted, in the order of the key `s`.
pub const SORTED: [Column; 9] =
    [Share, Launches, Suspended, MeanSuspension, Evictions, Priority, Column::State, Name, Pid];

/// The columns in the order in which a narrow terminal gets them.
const KEPT: [Column; 12] = [
    Name,
    Pid,
    Column::State,
    Share,
    Priority,
    Suspended,
    Launches,
    MeanSuspension,
    Evictions,
    User,
    Level,
    Why,
];

/// The width of names from which on they have room for a queue and its device.
const QUEUE_AND_DEVICE: u16 = 26;
/// The greatest width of names.
const LONGEST_NAME: u16 = 32;

impl Column {
    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Pid => "PID",
            User => "USER",
            Name => "NAME",
            Priority => "PRIO",
            Level => "LVL",
            Self::State => "STATE",
            Launches => "LAUNCH/S",
            Share => "SHARE%",
            Suspended => "SUSP%",
            Evictions => "EVICT/S",
            MeanSuspension => "AVG SUSP",
            Why => "WHY",
        }
    }

    /// The meaning, for the help.
    pub fn meaning(self) -> &'static str {
        match self {
            Pid => "process, as the server sees it",
            User => "its user, on a server for all users",
            Name => "name of the program; below it, its queues",
            Priority => "highest priority of its queues",
            Level => "preemption level in force",
            Self::State => "running, suspended, idle (no work), stopped (also by xcli suspend)",
            Launches => "launches per second",
            Share => "known device time in percent; 100 is one device; - if no kernel times are known",
            Suspended => "time with work while suspended, in percent",
            Evictions => "evictions of hardware queues per second",
            MeanSuspension => "mean duration of a suspension",
            Why => "why it runs or is suspended",
        }
    }

    /// The least width, which has room for the mark of the order.
    pub fn width(self) -> u16 {
        match self {
            Pid | Share => 7,
            User | Name | Evictions => 8,
            Priority => 5,
            Level => 3,
            Self::State | Launches | MeanSuspension => 9,
            Suspended => 6,
            Why => 30,
        }
    }

    /// Returns true for numbers, which are aligned to the right.
    pub fn is_number(self) -> bool {
        !matches!(self, User | Name | Self::State | Why)
    }

    /// Returns true if the order by this column begins with the greatest value.
    pub fn begins_with_greatest(self) -> bool {
        matches!(self, Share | Launches | Suspended | MeanSuspension | Evictions | Priority)
    }

    /// The text of a program.
    pub fn cell(self, row: &Row, users: &Users) -> String {
        match self {
            Pid => row.pid.to_string(),
            User => {
                row.uid.map(|uid| users.get(&uid).cloned().unwrap_or(uid.to_string())).unwrap_or_default()
            }
            Name => row.name.clone(),
            Priority => row.priority.map_or("-".to_owned(), |priority| priority.to_string()),
            Level => row.level.to_string(),
            Self::State => row.state.word().to_owned(),
            Why => row.why.clone(),
            Launches | Share | Suspended | Evictions | MeanSuspension => self.rate(&row.rates),
        }
    }

    /// The text of a queue, in a column of this width.
    pub fn cell_of_queue(self, row: &QueueRow, width: u16) -> String {
        match self {
            Pid | User | Why => String::new(),
            Name if width < QUEUE_AND_DEVICE => format!(" queue {}", row.queue),
            Name => format!("  queue {}, device {}", row.queue, row.device),
            Priority => row.priority.to_string(),
            Level => row.level.to_string(),
            Self::State => row.state.word().to_owned(),
            Launches | Share | Suspended | MeanSuspension => self.rate(&row.rates),
            // The queues of a process are evicted together.
            Evictions => String::new(),
        }
    }

    fn rate(self, rates: &Rates) -> String {
        let text = match self {
            Launches => rates.launches_per_second.map(|rate| number(rate, 0)),
            Share => rates.share_percent.map(|percent| number(percent, 1)),
            Suspended => rates.suspended_percent.map(|percent| number(percent, 0)),
            Evictions => rates.evictions_per_second.map(|rate| number(rate, 1)),
            MeanSuspension => rates.mean_suspension_us.map(time),
            Pid | User | Name | Priority | Level | Self::State | Why => None,
        };
        text.unwrap_or_else(|| "-".to_owned())
    }

    /// The order of two programs by this column. Those without a value are the last, whatever the direction.
    pub fn compare(self, one: &Row, other: &Row, is_reversed: bool) -> Ordering {
        let value = |row: &Row| match self {
            Launches => row.rates.launches_per_second,
            Share => row.rates.share_percent,
            Suspended => row.rates.suspended_percent,
            Evictions => row.rates.evictions_per_second,
            MeanSuspension => row.rates.mean_suspension_us,
            Priority => row.priority.map(f64::from),
            Level => Some(f64::from(row.level)),
            Pid => Some(f64::from(row.pid.0)),
            User => row.uid.map(f64::from),
            Name | Self::State | Why => None,
        };
        let order = match self {
            Name => one.name.cmp(&other.name),
            Self::State => one.state.cmp(&other.state),
            Why => one.why.cmp(&other.why),
            _ => match (value(one), value(other)) {
                (Some(one), Some(other)) => one.total_cmp(&other),
                (one, other) => return other.is_some().cmp(&one.is_some()),
            },
        };
        if self.begins_with_greatest() != is_reversed { order.reverse() } else { order }
    }
}

/// The columns for a width, from left to right, each with its width. There are gaps of one character.
pub fn fitting(width: u16, has_users: bool) -> Vec<(Column, u16)> {
    let mut kept: Vec<Column> = Vec::new();
    let mut used = 0;
    for column in KEPT.into_iter().filter(|column| *column != User || has_users) {
        let more = column.width() + u16::from(used > 0);
        if used + more <= width || kept.is_empty() {
            used += more;
            kept.push(column);
        }
    }
    let mut left = width.saturating_sub(used);
    let mut columns: Vec<_> = ALL
        .into_iter()
        .filter(|column| kept.contains(column))
        .map(|column| (column, column.width()))
        .collect();
    for (column, most) in [(Name, LONGEST_NAME), (Why, u16::MAX)] {
        if let Some((_, width)) = columns.iter_mut().find(|(other, _)| *other == column) {
            let more = left.min(most - *width);
            *width += more;
            left -= more;
        }
    }
    columns
}

/// Formats a number with some decimals, and shortens those above five digits: "12.3k".
fn number(value: f64, decimals: usize) -> String {
    match value {
        0.0..1e5 => format!("{value:.decimals$}"),
        1e5..1e6 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.1}M", value / 1e6),
    }
}

/// Formats microseconds: "85 us", "1.25 ms", "12.0 s".
fn time(us: f64) -> String {
    match us {
        ..1e3 => format!("{us:.0} us"),
        ..1e5 => format!("{:.2} ms", us / 1e3),
        ..1e6 => format!("{:.0} ms", us / 1e3),
        ..1e9 => format!("{:.1} s", us / 1e6),
        _ => format!("{:.0} min", us / 6e7),
    }
}

/// Reads the names of users from the text of `/etc/passwd`. Other databases can wait for a network.
pub fn users(passwd: &str) -> Users {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        Some((fields.nth(1)?.parse().ok()?, crate::table::plain(&name)))
    };
    let mut users = Users::new();
    for (uid, name) in passwd.lines().filter_map(user) {
        // The first line counts.
        users.entry(uid).or_insert(name);
    }
    users
}

/// The order of states in which the busiest comes first is that of the type.
const _: () = assert!((State::Running as u8) < State::Idle as u8);

#[cfg(test)]
mod tests {
    use super::super::rows::rows;
    use super::super::rows::tests::two_lists;
    use super::*;

    #[test]
    fn narrow_terminals_get_the_most_important_columns() {
        let titles = |width, users| -> Vec<&str> {
            fitting(width, users).iter().map(|(column, _)| column.title()).collect()
        };
        assert_eq!(titles(40, true), ["PID", "NAME", "PRIO", "STATE", "SHARE%"]);
        let all_rates = ["PRIO", "LVL", "STATE", "LAUNCH/S", "SHARE%", "SUSP%", "EVICT/S", "AVG SUSP"];
        assert_eq!(titles(80, false), [&["PID", "NAME"], &all_rates[..]].concat());
        assert_eq!(titles(200, true), [&["PID", "USER", "NAME"], &all_rates[..], &["WHY"]].concat());
        assert_eq!(titles(3, true), ["NAME"]);
        for width in 8..300 {
            let columns = fitting(width, true);
            let used = columns.iter().map(|(_, width)| width + 1).sum::<u16>() - 1;
            assert!(used <= width, "{width}: {columns:?}");
        }
    }

    #[test]
    fn rows_are_sorted_and_unknown_values_come_last() {
        let [before, now] = two_lists();
        let rows = rows(Some(&before), &now);
        let sorted = |column: Column, is_reversed| -> Vec<u32> {
            let mut rows = rows.clone();
            rows.sort_by(|one, other| column.compare(one, other, is_reversed));
            rows.iter().map(|row| row.pid.0).collect()
        };
        assert_eq!(sorted(Share, false), [31_337, 4242, 5]);
        assert_eq!(sorted(Share, true), [5, 4242, 31_337]);
        assert_eq!(sorted(Priority, false), [4242, 31_337, 5]);
        assert_eq!(sorted(Priority, true), [31_337, 4242, 5]);
        assert_eq!(sorted(MeanSuspension, false)[0], 31_337);
        assert_eq!(sorted(MeanSuspension, true)[0], 31_337, "the only one that has a value");
        assert_eq!(sorted(Name, false), [5, 4242, 31_337]);
        assert_eq!(sorted(Pid, true), [31_337, 4242, 5]);
        assert_eq!(sorted(Column::State, false), [4242, 31_337, 5]);
    }

    #[test]
    fn numbers_and_times_fit_their_columns() {
        let numbers = [0.0, 0.04, 12.34, 99_999.4, 123_456.0, 4_200_000.0].map(|value| number(value, 1));
        assert_eq!(numbers, ["0.0", "0.0", "12.3", "99999.4", "123k", "4.2M"]);
        let times = [0.0, 999.0, 1_250.0, 250_000.0, 12e6, 7.2e9].map(time);
        assert_eq!(times, ["0 us", "999 us", "1.25 ms", "250 ms", "12.0 s", "120 min"]);
    }

    #[test]
    fn users_are_read_from_the_file() {
        let users = users("root:x:0:0:root:/root:/bin/sh\nbad line\nsvc\x1b:x:7:7::/:\nother:x:7:7::/:\n");
        assert_eq!(users, [(0, "root".to_owned()), (7, "svc?".to_owned())].into());
    }
}
