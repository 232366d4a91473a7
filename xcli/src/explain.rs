//! `xcli explain`: the reason why a queue runs or is suspended.

use crate::ask;
use crate::endpoint::Endpoint;
use crate::hint::queue;
use crate::list::{disregarded, given, lacks};
use crate::output::show;
use crate::table::{duration, plain};
use anyhow::bail;
use policies::named;
use protocol::codes::PreemptLevel;
use protocol::control::{Client, List, Queue, QueueState, Waiting};
use protocol::hint::{ProcessHints, QueueHints};
use protocol::ids::{DeviceId, Pid, QueueId};
use protocol::operation::{Reason, Share};
use protocol::status::Activity;
use protocol::time::Time;
use serde::Serialize;
use std::fmt::Write as _;
use std::time::Duration;

/// The arguments of `xcli explain`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("target").required(true).multiple(true)))]
pub struct ExplainArgs {
    /// The queue, by its number in `xcli list`
    #[arg(group = "target", value_parser = queue)]
    queue: Option<u64>,
    /// The process; without a queue, all of its queues
    #[arg(long, group = "target")]
    pid: Option<u32>,
    /// Print JSON: of each queue `pid`, `name`, `queue`, `device`, `priority`, `policy`, `state` (idle,
    /// running, suspended), `since_us`, `why`, `sentence`, `level`, `limited`, `window_us`, `in_flight`,
    /// `pending`, `hints`, `process_hints`, `remarks`
    /// and `waiting` of its process: `connected_us`, `suspended_us`, `others_had_work_us`, `others_worked_us`;
    /// each is a part of the one before it
    #[arg(long)]
    json: bool,
}

/// The state of a queue and the reason for it.
#[derive(Debug, PartialEq, Serialize)]
struct Explanation {
    pid: Pid,
    name: String,
    queue: QueueId,
    device: DeviceId,
    priority: i32,
    /// The policy of its device, with its parameters.
    policy: String,
    state: QueueState,
    /// The time since the state changed; none for a queue that was never used.
    since_us: Option<u64>,
    /// The reason without the state: "queue 7 of pid 4242 has priority 10 > 1".
    why: String,
    /// State and reason: "suspended for 3.1 ms: queue 7 of pid 4242 has priority 10 > 1".
    sentence: String,
    /// The preemption level in force.
    level: i32,
    /// True if the window limits its work in flight.
    limited: bool,
    /// The limit of estimated work in flight, if the policy sets one.
    window_us: Option<u128>,
    in_flight: u64,
    pending: u64,
    hints: QueueHints,
    process_hints: ProcessHints,
    /// Further facts that matter for the queue.
    remarks: Vec<String>,
    /// The time in which its process was suspended; none from an older server.
    waiting: Option<WaitingMicros>,
}

/// [`Waiting`] in microseconds. Each time is a part of the one before it.
#[derive(Debug, PartialEq, Serialize)]
struct WaitingMicros {
    connected_us: u64,
    suspended_us: u64,
    others_had_work_us: u64,
    /// None if it is not known.
    others_worked_us: Option<u64>,
}

impl From<Waiting> for WaitingMicros {
    fn from(waiting: Waiting) -> Self {
        Self {
            connected_us: waiting.connected_ns / 1_000,
            suspended_us: waiting.suspended_ns / 1_000,
            others_had_work_us: waiting.others_had_work_ns / 1_000,
            others_worked_us: waiting.others_worked_ns.map(|worked| worked / 1_000),
        }
    }
}

/// Prints the explanation.
///
/// # Errors
/// The server does not answer, or there is no such queue or process.
pub fn run(args: &ExplainArgs, endpoint: &Endpoint) -> anyhow::Result<()> {
    let list = ask::list(endpoint)?;
    let command = |words: &str| plain(&endpoint.command(words));
    let found = explain(&list, args.pid.map(Pid), args.queue.map(QueueId), command)?;
    show(args.json, &found, || found.iter().map(text).collect())
}

/// Explains a queue of a client, in lines: state and reason, then remarks. Without a queue, the one that tells most: a
/// suspended one, else one that runs.
pub fn lines(
    list: &List,
    client: &Client,
    queue: Option<QueueId>,
    command: impl Fn(&str) -> String,
) -> Vec<String> {
    let rank = |queue: &&Queue| match queue.state {
        QueueState::Suspended => 0,
        QueueState::Running => 1,
        QueueState::Idle => 2,
    };
    let meant = client.queues.iter().filter(|one| queue.is_none_or(|queue| one.id().is_meant_by(queue)));
    let Some(queue) = meant.min_by_key(rank) else {
        return vec!["it has not used a stream yet".to_owned()];
    };
    let Explanation { queue, sentence, remarks, .. } = explanation(list, client, queue, command);
    std::iter::once(format!("queue {queue}: {sentence}")).chain(remarks).collect()
}

fn explain(
    list: &List,
    pid: Option<Pid>,
    queue: Option<QueueId>,
    command: impl Fn(&str) -> String,
) -> anyhow::Result<Vec<Explanation>> {
    let clients: Vec<_> =
        list.clients.iter().filter(|client| pid.is_none_or(|pid| client.pid == pid)).collect();
    if let (Some(pid), []) = (pid, &clients[..]) {
        let held = list.held.iter().any(|held| held.pid == pid);
        let held = if held { " (only suspended by `xcli suspend`)" } else { "" };
        let doctor = command(&format!("doctor {pid}"));
        bail!("process {pid} is not connected to this server{held}; `{doctor}` says why");
    }
    let mut found = Vec::new();
    for client in &clients {
        let meant = client.queues.iter().filter(|one| queue.is_none_or(|queue| one.id().is_meant_by(queue)));
        found.extend(meant.map(|queue| explanation(list, client, queue, &command)));
    }
    match (&found[..], pid, queue) {
        ([], Some(pid), Some(queue)) => {
            bail!("process {pid} has no queue {queue}; `{}` shows its queues", command("list"))
        }
        ([], Some(pid), None) => {
            bail!("process {pid} is connected but has no queue: it has not used a stream yet")
        }
        ([], None, Some(queue)) => {
            bail!("no connected program has a queue {queue}; `{}` shows all queues", command("list"))
        }
        _ => Ok(found),
    }
}

fn explanation(list: &List, client: &Client, queue: &Queue, command: impl Fn(&str) -> String) -> Explanation {
    let status = &queue.status;
    let rulings = || list.server.policies.iter().map(|one| &one.ruling);
    let own = rulings().find(|ruling| ruling.device == Some(queue.device()));
    let policy = own.or_else(|| rulings().find(|ruling| ruling.device.is_none()));
    let policy = policy.map_or_else(|| list.server.policy.clone(), named::text);
    // A queue that turned ready after the decision has had the permission since then.
    let since = match status.activity {
        Activity::Ready { since } => Some(since.max(client.since)),
        Activity::Idle { since } => since,
    };
    let since_us = since.map(|since| micros(list.server.now, since));
    // The permission of the process does not apply to a queue that its program suspends.
    let held = queue.is_held();
    let why = if held { policies::explain(&Reason::NoExecute) } else { plain(&client.reason) };
    let would = match client.permit.run && !held {
        true => format!("it would run if it had work: {why}"),
        false => format!("it would be suspended if it had work: {why}"),
    };
    let time = since_us.map_or(String::new(), |us| format!(" for {}", precise(Duration::from_micros(us))));
    let sentence = match queue.state {
        QueueState::Running => format!("running{time}: {why}"),
        QueueState::Suspended => format!("suspended{time}: {why}"),
        QueueState::Idle if since.is_none() => format!("idle, never used; {would}"),
        QueueState::Idle => format!("idle{time}; {would}"),
    };
    Explanation {
        pid: client.pid,
        name: plain(&client.name),
        queue: queue.id(),
        device: queue.device(),
        priority: status.priority.get(),
        policy,
        state: queue.state,
        since_us,
        why,
        sentence,
        level: queue.in_force.number(),
        limited: client.permit.limit,
        window_us: client.permit.window.time().map(|time| time.as_micros()),
        in_flight: status.counts.in_flight,
        pending: status.counts.pending,
        hints: status.hints,
        process_hints: client.hints,
        remarks: remarks(list, client, queue, command),
        waiting: client.waiting.map(WaitingMicros::from),
    }
}

fn remarks(list: &List, client: &Client, queue: &Queue, command: impl Fn(&str) -> String) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(disregarded(client, queue).map(str::to_owned));
    if !list.server.on {
        remarks.push(format!("scheduling is switched off until `{}`", command("on")));
    }
    if client.yielded {
        let stopped = "the process is stopped, traced or suspended by `xcli suspend`: it counts as idle, and other programs do not wait for it";
        remarks.push(stopped.to_owned());
    }
    if list.held.iter().any(|held| held.pid == client.pid) {
        let resume = command(&format!("resume {}", client.pid));
        remarks.push(format!("`xcli suspend` has suspended queues of the process until `{resume}`"));
    }
    remarks.extend(lacks(client));
    if !client.fresh && !client.yielded {
        remarks.push("the process did not answer: its numbers are old".to_owned());
    }
    remarks.extend(given(client));
    let share = client.permit.share;
    if queue.state == QueueState::Suspended
        && share != Share::NONE
        && client.preemption.in_force == PreemptLevel::Interrupt
    {
        let percent = u32::from(share.units()) * 100 / u32::from(Share::WHOLE);
        remarks.push(format!(
            "it can go on meanwhile, on up to {percent} % of the compute units (`share-percent` of the policy)"
        ));
    }
    if client.permit.run && client.permit.first {
        remarks.push("the policy gives its hardware queues a high priority (`queues-first`)".to_owned());
    }
    if queue.state == QueueState::Suspended {
        let raise = command(&format!("hint --pid {} -p PRIORITY", client.pid));
        remarks.push(format!(
            "times that the program measures include its suspensions; while it tunes itself, raise its priority: `{raise}`"
        ));
    }
    remarks
}

/// The time between two moments, in microseconds.
fn micros(now: Time, since: Time) -> u64 {
    u64::try_from(now.since(since).as_micros()).unwrap_or(u64::MAX)
}

/// Formats a duration with a digit more than elsewhere if it is short: "3.1 ms".
fn precise(time: Duration) -> String {
    match time.as_millis() {
        0..1000 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        _ => duration(time),
    }
}

/// Says for what part of the time the process was suspended, and for what part of that the device worked for others;
/// nothing for one that never was.
fn waiting(of: &WaitingMicros) -> Vec<String> {
    if of.suspended_us == 0 {
        return Vec::new();
    }
    let time = |us| duration(Duration::from_micros(us));
    let had_work = percent(of.others_had_work_us, of.suspended_us);
    let others = match of.others_worked_us {
        _ if of.others_had_work_us == 0 => "others had no unfinished work meanwhile".to_owned(),
        Some(worked) => format!(
            "others had unfinished work for {had_work} of that time; the device worked for them for about {} of it, \
             counting the kernels whose times are known",
            percent(worked, of.suspended_us)
        ),
        None => format!(
            "others had unfinished work for {had_work} of that time; how long the device worked for them is unknown: \
             the times of their kernels are not known"
        ),
    };
    let part = percent(of.suspended_us, of.connected_us);
    vec![
        format!(
            "its process was suspended for {part} of the time since it connected ({} of {})",
            time(of.suspended_us),
            time(of.connected_us)
        ),
        others,
    ]
}

/// A part of a time in percent: "41 %".
fn percent(part: u64, whole: u64) -> String {
    let percent = 100.0 * part.min(whole) as f64 / whole.max(1) as f64;
    if part > 0 && percent < 1.0 { "less than 1 %".to_owned() } else { format!("{percent:.0} %") }
}

fn text(of: &Explanation) -> String {
    let Explanation {
        pid, name, queue, device, priority, policy, sentence, level, in_flight, pending, ..
    } = of;
    let mut text = format!(
        "queue {queue} of pid {pid} ({name}), device {device}, priority {priority}, policy {policy}\n"
    );
    let window = match (of.limited, of.window_us) {
        (false, _) => "no limit of work in flight".to_owned(),
        (true, None) => "its window limits the work in flight".to_owned(),
        (true, Some(micros)) => format!("its window limits the work in flight to {micros} us"),
    };
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  {sentence}");
    let _ = writeln!(text, "  level {level} in force; {window}: {in_flight} in flight, {pending} pending");
    for line in of.waiting.iter().flat_map(waiting) {
        let _ = writeln!(text, "  {line}");
    }
    for remark in &of.remarks {
        let _ = writeln!(text, "  {remark}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::tests::example;
    use crate::list::tests::in_force;
    use protocol::bounds::Priority;

    const NOW: Time = Time(7_500_000_000_000);

    /// The example of `xcli list`, 3.1 ms after the last change.
    fn list() -> List {
        let mut list = example();
        list.server.now = NOW;
        list.server.policies = vec![in_force("HPF", None), in_force("UP", Some(7))];
        for client in &mut list.clients {
            client.since = Time(NOW.0 - 3_100_000);
            for queue in &mut client.queues {
                if queue.state != QueueState::Idle {
                    queue.status.activity = Activity::Ready { since: Time(NOW.0 - 9_000_000) };
                }
            }
        }
        list
    }

    fn said(list: &List, pid: Option<u32>, queue: Option<u64>) -> Result<String, String> {
        let command = |words: &str| format!("xcli -p night {words}");
        let found = explain(list, pid.map(Pid), queue.map(QueueId), command);
        found.map(|found| found.iter().map(text).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn suspended_queue_names_its_rival() {
        let want = "\
queue 1 of pid 31337 (train.py), device 51234, priority -255, policy HPF
  suspended for 3.1 ms: queue 7 of pid 4242 has priority 10 > -255
  level 1 in force; its window limits the work in flight: 0 in flight, 4096 pending
  times that the program measures include its suspensions; while it tunes itself, raise its priority: `xcli -p night hint --pid 31337 -p PRIORITY`
";
        assert_eq!(said(&list(), None, Some(1)).unwrap(), want);
        let mut list = list();
        list.clients[1].queues[0].status.activity = Activity::Ready { since: Time(NOW.0 - 85_000) };
        assert!(
            said(&list, None, Some(1)).unwrap().contains("suspended for 0.1 ms: "),
            "counted from when it got work"
        );
    }

    #[test]
    fn part_of_the_time_for_which_it_was_suspended_is_shown() {
        let mut list = list();
        let mut lines = |waiting| {
            list.clients[1].waiting = waiting;
            let text = said(&list, None, Some(1)).unwrap();
            let lines: Vec<_> = text.lines().map(|line| line.trim_start().to_owned()).collect();
            assert!(lines[2].starts_with("level 1"), "{text}");
            lines[3..lines.len() - 1].to_vec()
        };
        assert_eq!(lines(None), [""; 0], "an older server");
        let waiting = Waiting { connected_ns: 20_000_000_000, ..Waiting::default() };
        assert_eq!(lines(Some(waiting)), [""; 0], "it was never suspended");
        let waiting = Waiting {
            suspended_ns: 8_200_000_000,
            others_had_work_ns: 6_970_000_000,
            others_worked_ns: Some(5_166_000_000),
            ..waiting
        };
        let part = "its process was suspended for 41 % of the time since it connected (8.20 s of 20.00 s)";
        assert_eq!(
            lines(Some(waiting)),
            [
                part,
                "others had unfinished work for 85 % of that time; the device worked for them for about 63 % of it, counting the kernels whose times are known"
            ]
        );
        let waiting = Waiting { others_had_work_ns: 1_000_000, others_worked_ns: None, ..waiting };
        assert_eq!(
            lines(Some(waiting)),
            [
                part,
                "others had unfinished work for less than 1 % of that time; how long the device worked for them is unknown: the times of their kernels are not known"
            ]
        );
    }

    #[test]
    fn only_the_programs_own_priority_suspends_a_queue_for_good() {
        const HINTED: &str = "its priority -256 is a hint";
        let mut list = list();
        let of_idle = |list: &List| said(list, None, Some(8)).unwrap();
        let queues = &mut list.clients[0].queues;
        queues[1].status.priority = Priority::NO_EXECUTE;
        queues[1].own_priority = Some(Priority::NO_EXECUTE);
        // Its process runs for another queue.
        let want = "idle, never used; it would be suspended if it had work: ";
        assert!(of_idle(&list).contains(want), "{}", of_idle(&list));
        assert!(!of_idle(&list).contains(HINTED));
        // A hint alone does not suspend it.
        list.clients[0].queues[1].own_priority = Some(Priority::DEFAULT);
        assert!(of_idle(&list).contains("it would run if it had work: "), "{}", of_idle(&list));
        assert!(of_idle(&list).contains(HINTED));
        let queue = &mut list.clients[0].queues[0];
        queue.status.priority = Priority::NO_EXECUTE;
        let of_running = said(&list, None, Some(7)).unwrap();
        assert!(of_running.contains("running for 3.1 ms: "), "{of_running}");
        assert!(of_running.contains(HINTED));
        let waiting = &mut list.clients[1].queues[0];
        waiting.status.priority = Priority::NO_EXECUTE;
        let of_waiting = said(&list, None, Some(1)).unwrap();
        assert!(of_waiting.contains("suspended for 3.1 ms: queue 7 of pid 4242"), "{of_waiting}");
        list.clients[1].queues[0].own_priority = Some(Priority::NO_EXECUTE);
        assert!(said(&list, None, Some(1)).unwrap().contains("suspended for 3.1 ms: priority -256"));
    }

    #[test]
    fn every_matching_queue_is_shown() {
        let mut list = list();
        let said_of = said(&list, Some(4242), None).unwrap();
        assert!(
            said_of.contains("queue 7 of pid 4242") && said_of.contains("running for 3.1 ms: "),
            "{said_of}"
        );
        assert!(said_of.contains("idle, never used; it would run if it had work: "), "{said_of}");
        let mut twin = list.clients[0].clone();
        twin.pid = Pid(9);
        twin.permit.limit = false;
        twin.queues[0].status.device = DeviceId(7);
        list.clients.push(twin);
        let said = said(&list, None, Some(7)).unwrap();
        assert!(said.contains("of pid 4242") && said.contains("of pid 9"), "{said}");
        assert!(said.contains("policy UP") && said.contains("no limit of work in flight"), "{said}");
    }

    #[test]
    fn share_of_a_suspended_program_is_shown() {
        let mut list = list();
        let shares =
            |list: &List| said(list, None, Some(1)).unwrap().contains("up to 25 % of the compute units");
        list.clients[1].permit.share = Share::of_percent(25.0);
        assert!(!shares(&list), "level 1");
        list.clients[1].preemption.in_force = PreemptLevel::Interrupt;
        assert!(shares(&list));
        list.clients[1].queues[0].state = QueueState::Running;
        assert!(!shares(&list));
    }

    #[test]
    fn priority_of_the_hardware_queues_is_shown() {
        let mut list = list();
        let first = |list: &List| said(list, None, Some(7)).unwrap().contains("`queues-first`");
        assert!(!first(&list));
        list.clients[0].permit.first = true;
        assert!(first(&list));
    }

    #[test]
    fn remarks_explain_unusual_states() {
        let mut list = list();
        list.server.on = false;
        list.clients[0].yielded = true;
        let off = said(&list, None, Some(7)).unwrap();
        assert!(
            off.contains("switched off until `xcli -p night on`") && off.contains("is stopped, traced"),
            "{off}"
        );
        list.clients[1].fresh = false;
        assert!(said(&list, None, Some(1)).unwrap().contains("did not answer"));
    }

    #[test]
    fn missing_process_or_queue_is_named() {
        let error = |pid, queue| said(&list(), pid, queue).unwrap_err();
        let want = "process 17 is not connected to this server; `xcli -p night doctor 17` says why";
        assert_eq!(error(Some(17), None), want);
        assert_eq!(
            error(Some(4242), Some(1)),
            "process 4242 has no queue 1; `xcli -p night list` shows its queues"
        );
        assert_eq!(
            error(None, Some(99)),
            "no connected program has a queue 99; `xcli -p night list` shows all queues"
        );
        assert!(error(Some(5), None).contains("is connected but has no queue"));
    }
}
