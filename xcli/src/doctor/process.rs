//! Checks of a process: is the library loaded, do calls pass it, and is the process scheduled.

use super::finding::{Findings, Verdict};
use super::view::View;
use crate::endpoint::Endpoint;
use crate::list;
use crate::table::duration;
use protocol::codes::PreemptLevel;
use protocol::config::{Config, SchedulerKind};
use protocol::control::{Client, QueueState};
use protocol::cost::CostOrigin;
use protocol::outside::Held;
use protocol::socket;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

const LIBRARY: &str = "libshimhip.so";
const RUNTIME: &str = "libamdhip64";

/// The server that xcli has asked.
#[derive(Debug, Clone)]
pub struct Server {
    pub endpoint: Endpoint,
    pub is_there: bool,
    pub is_on: bool,
    /// The queues of the process that `xcli suspend` has suspended.
    pub held: Option<Held>,
}

/// Adds the findings about a process, each after those that it depends on.
pub fn judge(view: &View, server: &Server, client: Option<&Client>, findings: &mut Findings) {
    let View { pid, name, .. } = view;
    if view.stopped {
        findings.add(
            Verdict::Note,
            "process",
            format!("{pid} ({name}) is stopped or traced: it launches nothing, and other programs do not wait for it"),
        );
    } else {
        findings.add(Verdict::Good, "process", format!("{pid} ({name}) exists"));
    }
    let config = Config::read(|name| view.variable(name), policies::registry::BUILT).0;
    let loaded = library(view, &config, findings);
    runtime(view, client.is_some_and(|client| !client.queues.is_empty()), findings);
    held(view, server, findings);
    match client {
        Some(client) => connected(view, server, client, findings),
        None if loaded => not_connected(view, server, &config, findings),
        None => findings.add(
            Verdict::Bad,
            "schedule",
            "it is not scheduled, because its calls do not pass the library",
        ),
    }
}

/// Adds a finding about queues that `xcli suspend` has suspended.
fn held(view: &View, server: &Server, findings: &mut Findings) {
    let Some(held) = server.held.as_ref().filter(|held| !held.queues.is_empty()) else { return };
    let numbers: Vec<_> = held.queues.iter().map(|queue| queue.queue.to_string()).collect();
    let longest = held.queues.iter().map(|queue| queue.held_ms).max().unwrap_or_default();
    let (queues, do_not) =
        if numbers.len() == 1 { ("queue", "it does not") } else { ("queues", "they do not") };
    let of = match view.hardware_queues {
        Ok(Some(compute)) => format!(" of {compute}"),
        _ => String::new(),
    };
    findings.add(
        Verdict::Note,
        "held",
        format!(
            "`xcli suspend` has suspended {queues} {}{of} for {}: {do_not} run until `{}`",
            numbers.join(", "),
            duration(Duration::from_millis(longest)),
            server.endpoint.command(&format!("resume {}", view.pid)),
        ),
    );
}

/// Adds a finding about the library. Returns true if it is loaded and enabled, or if that is unknown.
fn library(view: &View, config: &Config, findings: &mut Findings) -> bool {
    if view.maps.is_none() {
        findings.add(
            Verdict::Note,
            "library",
            format!(
                "the files that process {} has loaded are hidden: run xcli as user {} or root",
                view.pid, view.uid
            ),
        );
        return true;
    }
    let Some(path) = view.mapped(LIBRARY).first().copied() else {
        let preload = view.variable("LD_PRELOAD").unwrap_or_default();
        let text = if preload.as_bytes().windows(LIBRARY.len()).any(|part| part == LIBRARY.as_bytes()) {
            format!(
                "{LIBRARY} is not loaded although LD_PRELOAD names it: the process cannot open the file, or the program is \
                 statically linked or gains rights when it starts"
            )
        } else {
            format!("{LIBRARY} is not loaded: start the program with `xcli run` or LD_PRELOAD")
        };
        findings.add(Verdict::Bad, "library", text);
        return false;
    };
    if config.disable {
        findings.add(Verdict::Bad, "library", format!("{path} is loaded, but XSCHED_DISABLE disables it"));
        return false;
    }
    findings.add(Verdict::Good, "library", format!("{path} is loaded"));
    true
}

/// Adds findings about HIP's runtime and the driver. `is_seen`: streams of the process have reached the
/// library.
fn runtime(view: &View, is_seen: bool, findings: &mut Findings) {
    let hip = view.mapped(RUNTIME);
    match hip.as_slice() {
        _ if view.maps.is_none() => {}
        [] if is_seen => findings.add(
            Verdict::Good,
            "runtime",
            "no file named libamdhip64 is loaded, but streams reach the library: the HIP runtime has another name",
        ),
        [] if view.uses_the_driver() => findings.add(
            Verdict::Note,
            "runtime",
            "no libamdhip64.so is loaded, but the process uses the driver: it uses HSA alone, or HIP is linked statically, which \
             the library cannot intercept",
        ),
        [] => findings.add(Verdict::Note, "runtime", "no libamdhip64.so is loaded: the process has not used HIP yet"),
        [one] => findings.add(Verdict::Good, "runtime", format!("{one} is loaded")),
        [first, ..] => findings.add(
            Verdict::Note,
            "runtime",
            format!("{} runtimes are loaded ({first} first): only calls to the first are scheduled", hip.len()),
        ),
    }
    match &view.hardware_queues {
        Ok(Some(count)) => findings.add(
            Verdict::Good,
            "driver",
            format!("the driver lists {count} compute queues of the process"),
        ),
        Ok(None) => findings.add(Verdict::Note, "driver", "the process has not used the KFD yet"),
        Err(unknown) => findings.add(Verdict::Note, "driver", unknown.to_string()),
    }
}

/// Adds findings about a process that is connected to the server.
fn connected(view: &View, server: &Server, client: &Client, findings: &mut Findings) {
    let sum = |count: fn(&protocol::status::Counts) -> u64| -> u64 {
        client.queues.iter().map(|queue| count(&queue.status.counts)).sum()
    };
    let (launched, pending) = (sum(|counts| counts.direct + counts.deferred), sum(|counts| counts.pending));
    match (launched + pending, &view.hardware_queues) {
        // Destroyed queues do not count, and the runtime creates hardware queues in advance.
        (0, Ok(Some(1..))) => findings.add(
            Verdict::Note,
            "hooks",
            format!(
                "no launch has passed the library on its {} current queues, but the driver lists queues of the process. That is normal \
                 before the first launch; otherwise the program binds launches past the library, by static linking, or by \
                 RTLD_DEEPBIND in a release of HIP where this cannot be corrected",
                client.queues.len()
            ),
        ),
        (0, _) => findings.add(
            Verdict::Note,
            "hooks",
            format!("the process has launched nothing yet on its {} current queues", client.queues.len()),
        ),
        _ => findings.add(
            Verdict::Good,
            "hooks",
            format!("{launched} launches have passed the library on {} queues", client.queues.len()),
        ),
    }
    if let Some(slow) = list::slow_path(client) {
        let text =
            format!("{slow} (with XSCHED_LOG_LEVEL=info the log names the first kernel for each reason)");
        findings.add(Verdict::Note, "launches", text);
    }
    let any = |state| client.queues.iter().any(|queue| queue.state == state);
    let (verdict, text) = if !server.is_on {
        (
            Verdict::Note,
            format!(
                "it runs unscheduled like every program, because scheduling is off (`{}` switches it on)",
                server.endpoint.command("on")
            ),
        )
    } else if client.yielded && server.held.is_some() {
        (Verdict::Note, "it counts as idle, because `xcli suspend` has suspended its queues".to_owned())
    } else if client.yielded {
        let state = if view.stopped { "is stopped or traced" } else { "was stopped, traced or suspended" };
        (Verdict::Note, format!("it {state}, and counts as idle until it submits work"))
    } else if !client.permit.run {
        (Verdict::Note, format!("it is suspended: {}", client.reason))
    } else if any(QueueState::Suspended) {
        (Verdict::Note, "it runs, except queues of priority -256".to_owned())
    } else if server.held.is_some() {
        (Verdict::Note, format!("it may run, except queues suspended by `xcli suspend`: {}", client.reason))
    } else if any(QueueState::Running) {
        (Verdict::Good, format!("it runs: {}", client.reason))
    } else {
        (Verdict::Good, format!("it may run, but has no work now: {}", client.reason))
    };
    findings.add(verdict, "schedule", text);
    level(client, findings);
}

fn level(client: &Client, findings: &mut Findings) {
    let asked = client.queues.iter().map(|queue| queue.status.level).max().unwrap_or_default();
    let preemption = &client.preemption;
    match (asked, preemption.in_force) {
        (PreemptLevel::Block, _) => findings.add(Verdict::Good, "level", "level 1 is in force, as requested"),
        (asked, PreemptLevel::Block) => findings.add(
            Verdict::Bad,
            "level",
            format!("level {asked} was requested, but level 1 is in force: {}", preemption.how),
        ),
        (asked, in_force) => findings.add(
            Verdict::Good,
            "level",
            format!(
                "level {asked} was requested, and level {in_force} is in force by {}: evicted {} times, waited {} times because waiting cost less{}",
                preemption.how,
                preemption.holds,
                preemption.waits,
                preemption
                    .cost_origin
                    .as_deref()
                    .and_then(CostOrigin::meaning)
                    .map(|meaning| format!("; cost of eviction: {meaning}"))
                    .unwrap_or_default()
            ),
        ),
    }
}

/// Adds a finding about a process that has the library but is not connected.
fn not_connected(view: &View, server: &Server, config: &Config, findings: &mut Findings) {
    let used = view.uses_the_driver() || !view.mapped(RUNTIME).is_empty();
    let (verdict, text) = if view.environment.is_none() {
        (
            Verdict::Bad,
            format!(
                "it is not connected to the server, and its environment is hidden: run xcli as user {} or root",
                view.uid
            ),
        )
    } else if !config.auto.enabled {
        (
            Verdict::Bad,
            "it is not scheduled, because XSCHED_AUTO_XQUEUE was not ON when it started: the library only forwards calls, except for \
             queues that the program creates through the C interface"
                .to_owned(),
        )
    } else {
        match config.scheduler_in_force() {
            SchedulerKind::Local => {
                let policy = config.policy.map_or("HPF", |policy| policy.name());
                (
                    Verdict::Note,
                    format!("it schedules its own queues by the policy {policy}, without a server"),
                )
            }
            SchedulerKind::App => {
                let why = match view.variable("XSCHED_SCHEDULER") {
                    Some(_) => "because of XSCHED_SCHEDULER",
                    None => "because neither XSCHED_SCHEDULER nor XSCHED_POLICY is set",
                };
                (
                    Verdict::Note,
                    format!(
                        "the program itself suspends and resumes its queues ({why}), unless it has set another scheduler with \
                         XHintSetScheduler; otherwise all its queues run"
                    ),
                )
            }
            SchedulerKind::Global => global(view, server, config, used),
        }
    };
    findings.add(verdict, "schedule", text);
}

/// The finding about a process that should connect to a server but has not.
fn global(view: &View, server: &Server, config: &Config, used: bool) -> (Verdict, String) {
    let theirs = config
        .socket
        .clone()
        .unwrap_or_else(|| socket::default_path(view.uid, socket::INSTANCE, |path| path.is_dir()));
    if theirs != server.endpoint.socket {
        return (
            Verdict::Bad,
            format!(
                "it uses the server at {}, but xcli asked the one at {}: specify its server with -a",
                theirs.display(),
                server.endpoint.socket.display()
            ),
        );
    }
    if !server.is_there {
        return (Verdict::Bad, "it runs unscheduled, because no xserver answers at its socket".to_owned());
    }
    if !used {
        return (
            Verdict::Note,
            "it has not used HIP yet, and connects to the server when it does".to_owned(),
        );
    }
    (
        Verdict::Bad,
        "it uses the GPU but is not connected. Possible reasons: the server has refused it as another user's process or another \
         version (see the log of the server); no call has passed the library; it has set another scheduler with XHintSetScheduler"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::queues::Unknown;
    use protocol::bounds::Priority;
    use protocol::control::{Preemption, Queue};
    use protocol::hint::{ProcessHints, QueueHints};
    use protocol::ids::{ClientId, DeviceId, Pid, QueueId};
    use protocol::operation::{Permit, Reason, Window};
    use protocol::outside::HeldQueue;
    use protocol::status::{Activity, Counts, QueueStatus};
    use protocol::time::Time;

    fn view(maps: &[&str], environment: &[(&str, &str)], hardware_queues: Option<usize>) -> View {
        let environment = environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
        View {
            pid: 42,
            name: "train".to_owned(),
            uid: 1000,
            stopped: false,
            maps: Some(maps.iter().map(|&path| path.to_owned()).collect()),
            environment: Some(environment),
            hardware_queues: Ok(hardware_queues),
        }
    }

    fn at(socket: &str) -> Endpoint {
        Endpoint { socket: socket.into(), ..Endpoint::default() }
    }

    fn server() -> Server {
        Server { endpoint: at("/s"), is_there: true, is_on: true, held: None }
    }

    fn said(view: &View, server: &Server, client: Option<&Client>) -> (bool, String) {
        let mut findings = Findings::default();
        judge(view, server, client, &mut findings);
        (findings.ok, findings.text())
    }

    const LOADED: [&str; 2] = ["/x/libshimhip.so", "/y/libamdhip64.so.5.2.2"];
    const GLOBAL: [(&str, &str); 3] =
        [("XSCHED_AUTO_XQUEUE", "ON"), ("XSCHED_SCHEDULER", "GLB"), ("XSCHED_SOCKET", "/s")];

    fn client(run: bool, launched: u64, state: QueueState) -> Client {
        let status = QueueStatus {
            queue: QueueId(1),
            device: DeviceId(7),
            priority: Priority::DEFAULT,
            hints: QueueHints::default(),
            level: PreemptLevel::Interrupt,
            activity: Activity::Idle { since: None },
            counts: Counts { direct: launched, ..Counts::default() },
        };
        let (in_force, how) = (PreemptLevel::Interrupt, "update-queue".to_owned());
        Client {
            client: ClientId(1),
            pid: Pid(42),
            name: "train".to_owned(),
            hints: ProcessHints::default(),
            permit: Permit { run, limit: true, window: Window::OWN, reason: Reason::Unrivalled },
            since: Time(0),
            reason: "queue 7 of pid 4 has priority 10 > 1".to_owned(),
            yielded: false,
            fresh: true,
            preemption: Preemption { in_force, how, holds: 3, ..Preemption::default() },
            slow_path: [].into(),
            queues: vec![Queue { status, in_force, state, own_priority: Some(status.priority) }],
        }
    }

    #[test]
    fn process_without_library_is_bad() {
        let (ok, text) = said(&view(&[], &[], None), &server(), None);
        assert!(!ok && text.contains("start the program with `xcli run`"), "{text}");
        let named = view(&[], &[("LD_PRELOAD", "/x/libshimhip.so")], None);
        let (ok, text) = said(&named, &server(), None);
        assert!(!ok && text.contains("although LD_PRELOAD names it"), "{text}");
        let inert = view(&LOADED, &[("XSCHED_DISABLE", "1")], None);
        let (ok, text) = said(&inert, &server(), None);
        assert!(!ok && text.contains("XSCHED_DISABLE disables it"), "{text}");
    }

    #[test]
    fn reason_for_no_connection_is_named() {
        let case = |variables: &[(&str, &str)], server: &Server, queues| {
            said(&view(&LOADED, variables, queues), server, None)
        };
        let (ok, text) = case(&[], &server(), Some(1));
        assert!(!ok && text.contains("XSCHED_AUTO_XQUEUE was not ON"), "{text}");
        // The environment does not show if the program has set another scheduler.
        let (ok, text) = case(&GLOBAL[..1], &server(), Some(1));
        assert!(ok && text.contains("nor XSCHED_POLICY is set), unless it has set another"), "{text}");
        let (ok, text) = case(&[GLOBAL[0], ("XSCHED_SCHEDULER", "app")], &server(), Some(1));
        assert!(
            ok && text.contains("suspends and resumes its queues (because of XSCHED_SCHEDULER)"),
            "{text}"
        );
        let (ok, text) = case(&[GLOBAL[0], ("XSCHED_POLICY", "HPF")], &server(), Some(1));
        assert!(ok && text.contains("its own queues by the policy HPF"), "{text}");
        let other = Server { endpoint: at("/other"), ..server() };
        let (ok, text) = case(&GLOBAL, &other, Some(1));
        assert!(!ok && text.contains("it uses the server at /s"), "{text}");
        let gone = Server { is_there: false, ..server() };
        let (ok, text) = case(&GLOBAL, &gone, Some(1));
        assert!(!ok && text.contains("no xserver answers"), "{text}");
        let (ok, text) = case(&GLOBAL, &server(), Some(1));
        assert!(!ok && text.contains("is not connected. Possible reasons"), "{text}");
        let early = View { maps: Some(vec![LOADED[0].to_owned()]), ..view(&[], &GLOBAL, None) };
        let (ok, text) = said(&early, &server(), None);
        assert!(ok && text.contains("has not used HIP yet"), "{text}");
    }

    #[test]
    fn state_of_a_connected_process_is_described() {
        let view = view(&LOADED, &GLOBAL, Some(2));
        let (ok, text) = said(&view, &server(), Some(&client(false, 9, QueueState::Suspended)));
        assert!(ok && text.contains("it is suspended: queue 7 of pid 4 has priority 10 > 1"), "{text}");
        assert!(text.contains("level 3 is in force by update-queue: evicted 3 times"), "{text}");
        let (ok, text) = said(&view, &server(), Some(&client(true, 9, QueueState::Running)));
        assert!(ok && text.contains("it runs: ") && text.contains("9 launches have passed"), "{text}");
        // The process may still load data, or create a stream for each request.
        let (ok, text) = said(&view, &server(), Some(&client(true, 0, QueueState::Idle)));
        assert!(
            ok && text.contains("note  hooks     no launch has passed the library on its 1 current queues"),
            "{text}"
        );
        let between = Client { queues: vec![], ..client(true, 0, QueueState::Idle) };
        let (ok, text) = said(&view, &server(), Some(&between));
        assert!(ok && text.contains("on its 0 current queues"), "{text}");
        assert!(!text.contains("launches  "), "{text}");
        let slow =
            Client { slow_path: [("code".to_owned(), 2)].into(), ..client(true, 9, QueueState::Running) };
        let (ok, text) = said(&view, &server(), Some(&slow));
        let note =
            "note  launches  2 launches could not be deferred and blocked the calling thread: 2 because ";
        assert!(ok && text.contains(note), "{text}");
        let off = Server { is_on: false, ..server() };
        let (ok, text) = said(&view, &off, Some(&client(true, 9, QueueState::Running)));
        assert!(ok && text.contains("scheduling is off"), "{text}");
        let mut refused = client(true, 9, QueueState::Running);
        refused.preemption.in_force = PreemptLevel::Block;
        refused.preemption.how = "XSCHED_KFD_MECHANISM is off".to_owned();
        let (ok, text) = said(&view, &server(), Some(&refused));
        assert!(!ok && text.contains("level 1 is in force: XSCHED_KFD_MECHANISM is off"), "{text}");
    }

    #[test]
    fn suspended_queues_are_listed_before_the_schedule() {
        let queue = |queue, held_ms| HeldQueue { queue, held_ms };
        let queues = vec![queue(2, 12), queue(11, 3250)];
        let held = Some(Held { pid: Pid(42), name: "train".to_owned(), queues });
        let endpoint = Endpoint { options: "-p night".to_owned(), ..at("/s") };
        let holds = Server { endpoint, held, ..server() };
        let view = view(&LOADED, &GLOBAL, Some(2));
        let note = "note  held      `xcli suspend` has suspended queues 2, 11 of 2 for 3.25 s: they do not run until `xcli -p night resume 42`";
        let lines = |client: Option<&Client>| {
            let (_, text) = said(&view, &holds, client);
            let mut lines = text.lines().skip_while(|line| *line != note).map(str::to_owned);
            assert!(lines.next().is_some(), "{text}");
            lines.collect::<Vec<_>>().join("\n")
        };
        let running = lines(Some(&client(true, 9, QueueState::Running)));
        assert!(
            running.contains("note  schedule  it may run, except queues suspended by `xcli suspend`: "),
            "{running}"
        );
        let yielded = lines(Some(&Client { yielded: true, ..client(true, 9, QueueState::Running) }));
        assert!(yielded.contains("counts as idle, because `xcli suspend`"), "{yielded}");
        assert!(!yielded.contains("stopped"), "{yielded}");
        // A process that is not scheduled can be suspended as well.
        let foreign = View { maps: Some(vec![]), ..view.clone() };
        let (ok, text) = said(&foreign, &holds, None);
        assert!(!ok && text.contains(note) && text.contains("its calls do not pass the library"), "{text}");
        let stopped = View { stopped: true, ..view.clone() };
        let waits = Client { yielded: true, ..client(true, 9, QueueState::Running) };
        let (_, text) = said(&stopped, &server(), Some(&waits));
        assert!(text.contains("it is stopped or traced, and counts as idle until"), "{text}");
    }

    #[test]
    fn unknown_queues_are_a_note() {
        let hidden =
            View { hardware_queues: Err(Unknown::Process(Error::HiddenProcess(42))), ..view(&[], &[], None) };
        let (_, text) = said(&hidden, &server(), None);
        assert!(text.contains("note  driver    /proc hides process 42"), "{text}");
    }
}
