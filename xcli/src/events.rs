//! `xcli events`: what happens at a server, one line each.

use crate::ask::{self, Cause, Failure, Session};
use crate::endpoint::Endpoint;
use crate::output::print_on;
use crate::table::plain;
use anyhow::bail;
use protocol::control::{EVENTS, EventKind, Refused, Reply, Request, ServerEvent};
use std::fmt::Write as _;
use std::mem::MaybeUninit;

/// The events that --follow shows first.
const FIRST: u32 = 10;

/// The arguments of `xcli events`.
#[derive(Debug, clap::Args)]
pub struct EventsArgs {
    /// Show which programs run now, then events as they happen
    #[arg(short = 'f', long)]
    follow: bool,
    /// The most past events to show [default: all that the server keeps; with --follow: 10]
    #[arg(short = 'n', long, value_name = "COUNT")]
    number: Option<u32>,
    /// Print JSON, one object in a line for each event: `time_us`, `at_ns`, `event` and what belongs to it (docs/json.md)
    #[arg(long)]
    json: bool,
}

/// Prints the events.
///
/// # Errors
/// The server does not answer, is too old, or ends.
pub fn run(args: &EventsArgs, endpoint: &Endpoint) -> anyhow::Result<()> {
    let recent = args.number.unwrap_or(if args.follow { FIRST } else { EVENTS as u32 });
    let request = Request::Events { recent, follow: args.follow };
    let result = Session::new(endpoint).follow(&request, |reply| {
        let Reply::Events(events) = reply else {
            return Err(std::io::Error::other(format!("{:#}", ask::unexpected(&reply))));
        };
        let mut text = String::new();
        for event in &events {
            text += &if args.json { serde_json::to_string(event)? } else { line(event, local) };
            text.push('\n');
        }
        Ok(print_on(&text)? && args.follow)
    });
    match result.as_ref().err().and_then(|error| error.downcast_ref()) {
        Some(Failure { cause: Cause::Refused(why), .. }) if why.contains("unknown variant `events`") => {
            bail!(
                "this server reports no events, because it is older than this xcli: start a server of the same version"
            )
        }
        _ => result,
    }
}

/// Formats an event; `local` formats a time.
fn line(event: &ServerEvent, local: impl Fn(u64) -> String) -> String {
    format!("{}  {}", local(event.time_us), columns(&event.kind))
}

/// Formats what has happened, for a place that has no columns.
pub fn text(kind: &EventKind) -> String {
    columns(kind).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn columns(kind: &EventKind) -> String {
    let mut line = String::new();
    let program = |pid: &protocol::ids::Pid, name: &str| format!("{pid} {}", plain(name));
    let queues = |queues: &[u32]| queues.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    // Writing to a String cannot fail.
    let _ = match kind {
        EventKind::Joined { pid, name, uid } => write!(line, "joined     {}, user {uid}", program(pid, name)),
        EventKind::Left { pid, name, why } => {
            write!(line, "left       {}: {}", program(pid, name), plain(why))
        }
        EventKind::Running { pid, name, why } => {
            write!(line, "running    {}: {}", program(pid, name), plain(why))
        }
        EventKind::Suspended { pid, name, why } => {
            write!(line, "suspended  {}: {}", program(pid, name), plain(why))
        }
        EventKind::Guard => {
            write!(line, "guard      all programs run for a moment: the running ones made no progress")
        }
        EventKind::Policy { by, policy, device } => {
            let device = device.map(|device| format!(" on device {device}")).unwrap_or_default();
            let policy = policy.as_deref().map_or("the common one again".to_owned(), plain);
            write!(line, "policy     {policy}{device}, by {by}")
        }
        EventKind::Switched { by, on } => {
            let (word, what) = if *on { ("on", "the policy decides") } else { ("off", "every program runs") };
            write!(line, "switched   {word}: {what}, by {by}")
        }
        EventKind::Hinted { by, target, hints } => {
            write!(line, "hinted     {}: {}, by {by}", plain(target), plain(hints))
        }
        EventKind::Configured { by, target, settings } => {
            write!(line, "configured {}: {}, by {by}", plain(target), plain(settings))
        }
        EventKind::Reloaded { error: None } => write!(line, "reloaded   the configuration"),
        EventKind::Reloaded { error: Some(error) } => {
            write!(line, "reloaded   nothing: the configuration has a mistake: {}", plain(error))
        }
        EventKind::Refused { pid, uid, what, why } => {
            let what = match what {
                Refused::Connection => "connection",
                Refused::Queue => "queue",
                Refused::Request => "request",
            };
            write!(line, "refused    {what} of {pid}, user {uid}: {}", plain(why))
        }
        EventKind::Held { pid, name, queues: all } => {
            write!(line, "held       {}: queues {} by xcli suspend", program(pid, name), queues(all))
        }
        EventKind::Released { pid, name, queues: all } => {
            write!(line, "released   {}: queues {}", program(pid, name), queues(all))
        }
        EventKind::Dropped { count } => {
            write!(line, "dropped    {count} events are missing here: this reader was too slow")
        }
        EventKind::Unknown => {
            write!(line, "unknown    an event that this xcli does not know: the server is newer")
        }
    };
    line
}

/// Formats a wall-clock time in the time zone of this process.
fn local(time_us: u64) -> String {
    let seconds = libc::time_t::try_from(time_us / 1_000_000).unwrap_or(libc::time_t::MAX);
    let mut parts = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: `localtime_r` reads the first value and fills the second one, or returns null.
    let found = unsafe { libc::localtime_r(&raw const seconds, parts.as_mut_ptr()) };
    if found.is_null() {
        return format!("{time_us} us");
    }
    // SAFETY: `localtime_r` has succeeded.
    let tm = unsafe { parts.assume_init() };
    format!(
        "{}-{:02}-{:02} {:02}:{:02}:{:02}.{:03}",
        i64::from(tm.tm_year) + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        time_us / 1000 % 1000
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ids::{DeviceId, Pid};
    use protocol::time::Time;

    fn said(kind: EventKind) -> String {
        line(&ServerEvent { time_us: 7, at: Time(1), kind }, |time| format!("T{time}"))
    }

    #[test]
    fn events_are_lines_without_foreign_control_characters() {
        let (pid, name, why) = (Pid(42), "a\nb".to_owned(), "w\x1b".to_owned());
        let program = (pid, name, why);
        let cases = [
            (
                EventKind::Joined { pid, name: program.1.clone(), uid: 1000 },
                "T7  joined     42 a?b, user 1000",
            ),
            (
                EventKind::Suspended { pid, name: program.1.clone(), why: program.2.clone() },
                "T7  suspended  42 a?b: w?",
            ),
            (
                EventKind::Left { pid, name: program.1.clone(), why: program.2.clone() },
                "T7  left       42 a?b: w?",
            ),
            (
                EventKind::Policy {
                    by: pid,
                    policy: Some("EDF slack-ms=5".to_owned()),
                    device: Some(DeviceId(3)),
                },
                "T7  policy     EDF slack-ms=5 on device 3, by 42",
            ),
            (
                EventKind::Policy { by: pid, policy: None, device: Some(DeviceId(3)) },
                "T7  policy     the common one again on device 3, by 42",
            ),
            (EventKind::Switched { by: pid, on: false }, "T7  switched   off: every program runs, by 42"),
            (
                EventKind::Hinted { by: pid, target: "pid 7".to_owned(), hints: "priority 3".to_owned() },
                "T7  hinted     pid 7: priority 3, by 42",
            ),
            (
                EventKind::Configured { by: pid, target: "pid 7".to_owned(), settings: "level 3".to_owned() },
                "T7  configured pid 7: level 3, by 42",
            ),
            (
                EventKind::Refused { pid, uid: 7, what: Refused::Queue, why: program.2.clone() },
                "T7  refused    queue of 42, user 7: w?",
            ),
            (
                EventKind::Held { pid, name: program.1.clone(), queues: vec![1, 2] },
                "T7  held       42 a?b: queues 1, 2 by xcli suspend",
            ),
            (EventKind::Reloaded { error: None }, "T7  reloaded   the configuration"),
            (
                EventKind::Dropped { count: 5 },
                "T7  dropped    5 events are missing here: this reader was too slow",
            ),
        ];
        for (kind, want) in cases {
            assert_eq!(said(kind), want);
        }
    }

    #[test]
    fn local_time_has_milliseconds() {
        let time = local(1_700_000_000_123_456);
        assert!(time.starts_with("2023-11-1") && time.ends_with(".123") && time.len() == 23, "{time}");
    }
}
