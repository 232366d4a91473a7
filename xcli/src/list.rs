//! `xcli list`: the server, its clients and their queues as a table.

use crate::suspend;
use crate::table::{self, Column, Line, duration, plain};
use protocol::bounds::Utilization;
use protocol::codes::PreemptLevel;
use protocol::control::{
    Client, Given, List, Outsider, Owner, PolicyInForce, Preemption, Queue, QueueState, Server,
};
use protocol::cost::CostOrigin;
use protocol::operation::Reason;
use protocol::slow::SlowPath;
use std::time::Duration;

const COLUMNS: &[Column] = &[
    Column::number("PID"),
    Column::names("NAME"),
    Column::number("QUEUE"),
    Column::number("DEVICE"),
    Column::number("PRIO"),
    Column::number("LEVEL"),
    Column::words("STATE"),
    Column::number("PENDING"),
    Column::number("IN FLIGHT"),
    Column::number("DIRECT"),
    Column::number("DEFERRED"),
    Column::number("SUSPENDED"),
];

/// Formats one line about the server and a row for each queue, with remarks that explain unusual states.
pub fn text(list: &List, terminal: Option<usize>) -> String {
    let head = server(&list.server);
    let held = suspend::held_table(&list.held, terminal);
    let others = if list.partial { "programs of other users are not shown\n" } else { "" };
    let others = others.to_owned() + &outsiders(&list.server.outsiders);
    if list.clients.is_empty() {
        let whose =
            if list.partial { "none of your programs is connected" } else { "no program is connected" };
        return format!("{head}\n{whose}\n{others}{held}");
    }
    let lines: Vec<Line> =
        list.clients.iter().flat_map(|client| client_lines(client, list.server.on)).collect();
    format!("{head}\n{}{others}{held}", table::text(COLUMNS, &lines, terminal))
}

/// Describes the server in one line.
pub fn server(server: &Server) -> String {
    let Server { pid, policy, policies, on, uptime_ms, guard_runs, .. } = server;
    let decides = if *on { "on" } else { "off (every program runs unscheduled)" };
    let runs = if *guard_runs == 1 { "run" } else { "runs" };
    let of_device = |PolicyInForce { ruling, .. }: &PolicyInForce| {
        ruling.device.map(|device| format!(", {} on device {device}", plain(&ruling.policy)))
    };
    let others: String = policies.iter().filter_map(of_device).collect();
    format!(
        "xserver {pid}: policy {}{others}, {decides}, up {}, {guard_runs} guard {runs}",
        plain(policy),
        uptime(Duration::from_millis(*uptime_ms))
    )
}

/// Names the programs that use the GPU and are not scheduled.
fn outsiders(all: &[Outsider]) -> String {
    /// The most that are named.
    const NAMES: usize = 8;
    if all.is_empty() {
        return String::new();
    }
    let named = all.iter().take(NAMES);
    let mut names: Vec<_> = named.map(|one| format!("{} ({})", one.pid, plain(&one.name))).collect();
    if all.len() > NAMES {
        names.push(format!("{} more", all.len() - NAMES));
    }
    format!(
        "use the GPU without being scheduled by this server: {}; `xcli doctor PID` says why\n",
        names.join(", ")
    )
}

fn client_lines(client: &Client, on: bool) -> Vec<Line> {
    let (pid, name) = (client.pid.to_string(), plain(&client.name));
    let mut lines: Vec<Line> = client.queues.iter().map(|queue| Line::Row(row(&pid, &name, queue))).collect();
    if lines.is_empty() {
        let mut cells = vec![pid, name];
        cells.resize(COLUMNS.len(), "-".to_owned());
        lines.push(Line::Row(cells));
    }
    // Running is the normal state and needs no reason.
    if on && !client.permit.run {
        lines.push(Line::Remark(format!("suspended: {}", plain(&client.reason))));
    }
    for queue in client.queues.iter().filter(|_| on) {
        let remark = disregarded(client, queue);
        lines.extend(remark.map(|remark| Line::Remark(format!("queue {}: {remark}", queue.id()))));
    }
    lines.extend(owner(client).map(Line::Remark));
    lines.extend(given(client).map(Line::Remark));
    lines.extend(preemption(client).map(Line::Remark));
    lines.extend(slow_path(client).map(Line::Remark));
    lines.extend(lacks(client).map(Line::Remark));
    if client.yielded {
        lines.push(Line::Remark(
            "the process is stopped, traced or suspended by `xcli suspend`; other programs do not wait for it".to_owned(),
        ));
    } else if !client.fresh {
        lines.push(Line::Remark("the process did not answer: its numbers are old".to_owned()));
    }
    lines
}

/// Tells what an older library cannot do.
pub fn lacks(client: &Client) -> Option<String> {
    let lacks: Vec<_> = client.lacks.iter().map(|what| plain(what)).collect();
    (!lacks.is_empty()).then(|| {
        format!(
            "its library is older than the server and has no {}: restart the program to get them",
            lacks.join(", ")
        )
    })
}

/// Tells the user of a client of a server for all users, and what the rules permit.
fn owner(client: &Client) -> Option<String> {
    let Owner { uid, rule, max_priority, max_share, max_level, cgroup } = client.owner.as_ref()?;
    let cgroup =
        cgroup.as_deref().map(|cgroup| format!(", control group {}", plain(cgroup))).unwrap_or_default();
    let own = client.queues.iter().filter_map(|queue| queue.own_priority).max();
    let asks = match own {
        Some(own) if own > *max_priority => format!(", of which the program asks for {own}"),
        _ => String::new(),
    };
    let share = match *max_share {
        Utilization::MAX => String::new(),
        most => format!("; shares up to {most} %"),
    };
    let level = match *max_level {
        PreemptLevel::Interrupt => String::new(),
        most => format!("; preemption level {most} at most"),
    };
    Some(format!(
        "user {uid}{cgroup}; the rule {:?} permits priorities up to {max_priority}{asks}{share}{level}",
        plain(rule)
    ))
}

/// Tells what the configuration gives to a client by its name.
pub fn given(client: &Client) -> Option<String> {
    let Given { program, hints } = client.given.as_ref()?;
    let hints: Vec<_> =
        hints.iter().map(|(name, value)| format!("{} {}", plain(name), plain(value))).collect();
    Some(format!("the configuration gives to programs {:?}: {}", plain(program), hints.join(", ")))
}

/// Explains a queue that runs although its priority is -256. If all queues of a process have that priority,
/// none runs.
pub fn disregarded(client: &Client, queue: &Queue) -> Option<&'static str> {
    (queue.is_disregarded() && client.permit.reason != Reason::NoExecute).then_some(
        "its priority -256 is a hint of `xcli hint`, which the program does not see: \
         the scheduler ignores the queue, and it launches whenever its process may run",
    )
}

/// Explains the preemption level, if it is above level 1 or below the requested level.
pub fn preemption(client: &Client) -> Option<String> {
    let Preemption { how, holds, waits, failures, expected_ns, hold_ns, release_ns, cost_origin, .. } =
        &client.preemption;
    let asked = client.queues.iter().map(|queue| queue.status.level).max()?;
    if asked == PreemptLevel::Block {
        return None;
    }
    let in_force = client.preemption.in_force;
    let how = plain(how);
    if in_force == PreemptLevel::Block {
        return Some(format!("level {asked} was requested, but level 1 is in force: {how}"));
    }
    let time =
        |name: &str, ns: &Option<u64>| ns.map(|ns| format!(", {name} {}", micros(ns))).unwrap_or_default();
    let failed = if *failures == 0 { String::new() } else { format!(", failed {failures} times") };
    let origin = match (cost_origin.as_deref().and_then(CostOrigin::meaning), hold_ns) {
        (Some(meaning), Some(_)) => format!(" ({meaning})"),
        (Some(meaning), None) => format!(", cost of eviction {meaning}"),
        (None, _) => String::new(),
    };
    Some(format!(
        "level {in_force} by {how}: evicted {holds} times, waited {waits} times because waiting cost less{failed}{}{}{origin}{}",
        time("eviction", hold_ns),
        time("restore", release_ns),
        time("work in flight at the last suspension", expected_ns)
    ))
}

/// Explains launches that had to wait on the calling thread because they could not be deferred.
pub fn slow_path(client: &Client) -> Option<String> {
    let launches: u64 = client.slow_path.values().sum();
    let because = client.slow_path.iter().map(|(name, count)| {
        // A newer library can have more reasons.
        let why = SlowPath::of_name(name).map_or_else(|| plain(name), |reason| reason.why().to_owned());
        format!("{count} because {why}")
    });
    let because: Vec<String> = because.collect();
    let launches = if launches == 1 { "1 launch".to_owned() } else { format!("{launches} launches") };
    (!because.is_empty()).then(|| {
        format!("{launches} could not be deferred and blocked the calling thread: {}", because.join("; "))
    })
}

/// Formats a time as "85 µs" or "1.25 ms".
fn micros(ns: u64) -> String {
    match ns / 1000 {
        us @ 0..1000 => format!("{us} µs"),
        _ => format!("{:.2} ms", Duration::from_nanos(ns).as_secs_f64() * 1e3),
    }
}

fn row(pid: &str, name: &str, queue: &Queue) -> Vec<String> {
    let (status, counts) = (&queue.status, &queue.status.counts);
    let state = match queue.state {
        QueueState::Idle => "idle",
        QueueState::Running => "running",
        QueueState::Suspended => "suspended",
    };
    vec![
        pid.to_owned(),
        name.to_owned(),
        queue.id().to_string(),
        queue.device().to_string(),
        status.priority.to_string(),
        queue.in_force.to_string(),
        state.to_owned(),
        counts.pending.to_string(),
        counts.in_flight.to_string(),
        counts.direct.to_string(),
        counts.deferred.to_string(),
        duration(Duration::from_nanos(counts.suspended_ns)),
    ]
}

/// Formats a duration with its two largest units.
fn uptime(uptime: Duration) -> String {
    let seconds = uptime.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use protocol::bounds::Priority;
    use protocol::control::PolicyOrder;
    use protocol::hint::{ProcessHints, QueueHints};
    use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
    use protocol::operation::Permit;
    use protocol::status::{Activity, Counts, QueueStatus};
    use protocol::time::Time;

    /// A policy without parameters.
    pub fn in_force(policy: &str, device: Option<u32>) -> PolicyInForce {
        let ruling =
            PolicyOrder { policy: policy.to_owned(), values: [].into(), device: device.map(DeviceId) };
        PolicyInForce { ruling, counted: [].into() }
    }

    pub fn queue(id: u64, priority: i64, state: QueueState, counts: Counts) -> Queue {
        let status = QueueStatus {
            queue: QueueId(id),
            device: DeviceId(51_234),
            priority: Priority::try_from(priority).unwrap(),
            hints: QueueHints::default(),
            level: PreemptLevel::Block,
            activity: Activity::Idle { since: None },
            counts,
        };
        Queue {
            status,
            in_force: PreemptLevel::Block,
            state,
            own_priority: Some(status.priority),
            times: None,
        }
    }

    pub fn client(pid: u32, name: &str, run: bool, reason: &str, queues: Vec<Queue>) -> Client {
        let permit = Permit { run, ..Permit::running(true, Reason::Unrivalled) };
        let (client, reason) = (ClientId(u64::from(pid)), reason.to_owned());
        Client {
            client,
            pid: Pid(pid),
            name: name.to_owned(),
            owner: None,
            given: None,
            hints: ProcessHints::default(),
            permit,
            since: Time(0),
            reason,
            yielded: false,
            fresh: true,
            waiting: None,
            preemption: Preemption::default(),
            preemptions: Some(4),
            completed: Some(77),
            slow_path: [].into(),
            lacks: vec![],
            queues,
        }
    }

    /// Three programs: a running one, a suspended one, and one without queues.
    pub(crate) fn example() -> List {
        let counts = |pending, in_flight, direct, deferred, suspended_ms: u64| Counts {
            pending,
            in_flight,
            direct,
            deferred,
            suspensions: 3,
            suspended_ns: suspended_ms * 1_000_000,
        };
        let server = Server {
            pid: Pid(4711),
            now: Time(0),
            policy: "HPF".to_owned(),
            policies: vec![],
            on: true,
            uptime_ms: 7_500_000,
            guard_runs: 1,
            decisions: 9,
            totals: None,
            outsiders: vec![],
        };
        let infer = client(
            4242,
            "infer",
            true,
            "nothing ranks higher on its devices",
            vec![
                queue(7, 10, QueueState::Running, counts(0, 2, 123_456, 0, 0)),
                queue(8, 10, QueueState::Idle, counts(0, 0, 12, 1, 7)),
            ],
        );
        let train = vec![queue(1, -255, QueueState::Suspended, counts(4096, 0, 99, 1_234_567, 812_345))];
        let train = client(31_337, "train.py", false, "queue 7 of pid 4242 has priority 10 > -255", train);
        let fresh = client(5, "fresh", true, "nothing ranks higher on its devices", vec![]);
        List { server, clients: vec![infer, train, fresh], held: vec![], partial: false }
    }

    #[test]
    fn list_is_formatted_as_a_table() {
        let want = "\
xserver 4711: policy HPF, on, up 2 h 5 min, 1 guard run
  PID  NAME      QUEUE  DEVICE  PRIO  LEVEL  STATE      PENDING  IN FLIGHT  DIRECT  DEFERRED  SUSPENDED
 4242  infer         7   51234    10      1  running          0          2  123456         0       0 ms
 4242  infer         8   51234    10      1  idle             0          0      12         1       7 ms
31337  train.py      1   51234  -255      1  suspended     4096          0      99   1234567      812 s
  suspended: queue 7 of pid 4242 has priority 10 > -255
    5  fresh         -       -     -      -  -                -          -       -         -          -
";
        assert_eq!(text(&example(), None), want);
        assert_eq!(text(&example(), Some(200)), want);
        let mut list = example();
        list.server.policies = vec![in_force("UP", Some(7))];
        assert!(text(&list, None).starts_with("xserver 4711: policy HPF, UP on device 7, on, up"));
    }

    #[test]
    fn programs_that_are_not_scheduled_are_named() {
        let mut list = example();
        list.server.outsiders = vec![Outsider { pid: Pid(7), name: "train\u{1b}".to_owned() }];
        let line =
            "\nuse the GPU without being scheduled by this server: 7 (train?); `xcli doctor PID` says why\n";
        assert!(text(&list, None).ends_with(line), "{}", text(&list, None));
        list.clients.clear();
        assert!(text(&list, None).contains(line), "{}", text(&list, None));
        list.server.outsiders = (0..10).map(|pid| Outsider { pid: Pid(pid), name: "x".to_owned() }).collect();
        assert!(text(&list, None).contains("7 (x), 2 more;"), "{}", text(&list, None));
    }

    #[test]
    fn older_library_is_named() {
        let mut list = example();
        assert_eq!(lacks(&list.clients[0]), None);
        list.clients[0].lacks = vec!["traces".to_owned(), "x\u{1b}".to_owned()];
        let text = lacks(&list.clients[0]).unwrap();
        assert_eq!(
            text,
            "its library is older than the server and has no traces, x?: restart the program to get them"
        );
    }

    #[test]
    fn unusual_states_have_remarks() {
        let mut list = example();
        list.clients[0].yielded = true;
        list.clients[2].fresh = false;
        let said = text(&list, None);
        assert!(said.contains("the process is stopped, traced or suspended by"), "{said}");
        assert!(said.contains("did not answer"), "{said}");
        list.server.on = false;
        let said = text(&list, None);
        assert!(said.contains("off (every program runs unscheduled)"), "{said}");
        assert!(!said.contains("suspended:"), "{said}");
        list.clients.clear();
        assert!(text(&list, None).ends_with("\nno program is connected\n"));
    }

    #[test]
    fn ignored_queue_that_runs_has_a_remark() {
        let mut list = example();
        let hinted = "\n  queue 7: its priority -256 is a hint";
        list.clients[0].queues[0].status.priority = Priority::NO_EXECUTE;
        assert!(text(&list, None).contains(hinted), "{}", text(&list, None));
        list.clients[0].permit.reason = Reason::NoExecute;
        assert!(!text(&list, None).contains(hinted), "all its queues have priority -256, and none runs");
        list.clients[0].permit.reason = Reason::Unrivalled;
        list.clients[0].queues[0].own_priority = Some(Priority::NO_EXECUTE);
        assert!(!text(&list, None).contains(hinted), "its program suspends it");
    }

    #[test]
    fn requested_level_above_1_is_explained() {
        let mut list = example();
        let train = &mut list.clients[1];
        train.queues[0].status.level = PreemptLevel::Deactivate;
        train.preemption.how = "the driver does not save running waves".to_owned();
        let said = text(&list, None);
        assert!(
            said.contains(
                "level 2 was requested, but level 1 is in force: the driver does not save running waves"
            ),
            "{said}"
        );
        let train = &mut list.clients[1];
        train.queues[0].in_force = PreemptLevel::Interrupt;
        train.preemption = Preemption {
            in_force: PreemptLevel::Interrupt,
            how: "update-queue".to_owned(),
            holds: 12,
            waits: 3,
            hold_ns: Some(91_000),
            release_ns: Some(1_250_000),
            ..Preemption::default()
        };
        let said = text(&list, None);
        assert!(
            said.contains(
                "level 3 by update-queue: evicted 12 times, waited 3 times because waiting cost less, eviction 91 µs, restore 1.25 ms"
            ),
            "{said}"
        );
        assert!(said.contains("      3  suspended"), "{said}");
        let train = &mut list.clients[1];
        train.preemption.cost_origin = Some("taken".to_owned());
        let said = text(&list, None);
        assert!(said.contains("restore 1.25 ms (") && said.contains("earlier program"), "{said}");
        let train = &mut list.clients[1];
        (train.preemption.hold_ns, train.preemption.release_ns) = (None, None);
        train.preemption.cost_origin = Some("unmeasured".to_owned());
        let said = text(&list, None);
        assert!(said.contains("waiting cost less, cost of eviction not measured yet"), "{said}");
    }

    #[test]
    fn launches_that_blocked_have_a_remark() {
        let mut list = example();
        list.clients[0].slow_path = [("code".to_owned(), 12), ("newer".to_owned(), 1)].into();
        let said = text(&list, None);
        let remark = "\n  13 launches could not be deferred and blocked the calling thread: 12 because ";
        assert!(said.contains(remark) && said.contains("; 1 because newer\n"), "{said}");
        list.clients[0].slow_path = [("device".to_owned(), 1)].into();
        let said = text(&list, None);
        assert!(said.contains("\n  1 launch could not be deferred"), "{said}");
    }

    #[test]
    fn durations_have_few_digits() {
        let ms = |ms| duration(Duration::from_millis(ms));
        let spans = [0, 999, 1000, 3254, 99_999, 100_000].map(ms);
        assert_eq!(spans, ["0 ms", "999 ms", "1.00 s", "3.25 s", "100.00 s", "100 s"]);
        let up = [5, 65, 3600, 90_061].map(|s| uptime(Duration::from_secs(s)));
        assert_eq!(up, ["5 s", "1 min 5 s", "1 h 0 min", "1 d 1 h"]);
    }
}
