//! Checks of a process: is the library loaded, do calls pass it, and is the process scheduled.

use super::finding::{Findings, Verdict, bad, good, note};
use super::view::View;
use crate::endpoint::Endpoint;
use crate::list;
use crate::table::duration;
use protocol::codes::PreemptLevel;
use protocol::config::{Config, SchedulerKind};
use protocol::control::{Client, Preemption, QueueState};
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
    let process = match view.stopped {
        true => note(format!(
            "{pid} ({name}) is stopped or traced: it launches nothing, and other programs do not wait for it"
        )),
        false => good(format!("{pid} ({name}) exists")),
    };
    findings.add("process", process);
    let config = Config::read(|name| view.variable(name), policies::registry::BUILT).0;
    let loaded = library(view, &config, findings);
    runtime(view, client.is_some_and(|client| !client.queues.is_empty()), findings);
    held(view, server, findings);
    match client {
        Some(client) => connected(view, server, client, findings),
        None if loaded => not_connected(view, server, &config, findings),
        None => {
            findings.add("schedule", bad("it is not scheduled, because its calls do not pass the library"))
        }
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
        "held",
        note(format!(
            "`xcli suspend` has suspended {queues} {}{of} for {}: {do_not} run until `{}`",
            numbers.join(", "),
            duration(Duration::from_millis(longest)),
            server.endpoint.command(&format!("resume {}", view.pid)),
        )),
    );
}

/// Adds a finding about the library. Returns true if it is loaded and enabled, or if that is unknown.
fn library(view: &View, config: &Config, findings: &mut Findings) -> bool {
    if view.maps.is_none() {
        findings.add(
            "library",
            note(format!(
                "the files that process {} has loaded are hidden: run xcli as user {} or root",
                view.pid, view.uid
            )),
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
        findings.add("library", bad(text));
        return false;
    };
    if config.disable {
        findings.add("library", bad(format!("{path} is loaded, but XSCHED_DISABLE disables it")));
        return false;
    }
    findings.add("library", good(format!("{path} is loaded")));
    true
}

/// Adds findings about HIP's runtime and the driver. `is_seen`: streams of the process have reached the
/// library.
fn runtime(view: &View, is_seen: bool, findings: &mut Findings) {
    if view.maps.is_some() {
        let hip = view.mapped(RUNTIME);
        let runtime = match hip.as_slice() {
            [] if is_seen => good(
                "no file named libamdhip64 is loaded, but streams reach the library: the HIP runtime has another name",
            ),
            [] if view.uses_the_driver() => note(
                "no libamdhip64.so is loaded, but the process uses the driver: it uses HSA alone, or HIP is linked statically, which \
                 the library cannot intercept",
            ),
            [] => note("no libamdhip64.so is loaded: the process has not used HIP yet"),
            [one] => good(format!("{one} is loaded")),
            [first, ..] => note(format!(
                "{} runtimes are loaded ({first} first): only calls to the first are scheduled",
                hip.len()
            )),
        };
        findings.add("runtime", runtime);
    }
    let driver = match &view.hardware_queues {
        Ok(Some(count)) => good(format!("the driver lists {count} compute queues of the process")),
        Ok(None) => note("the process has not used the KFD yet"),
        Err(unknown) => note(unknown.to_string()),
    };
    findings.add("driver", driver);
}

/// Adds findings about a process that is connected to the server.
fn connected(view: &View, server: &Server, client: &Client, findings: &mut Findings) {
    let sum = |count: fn(&protocol::status::Counts) -> u64| -> u64 {
        client.queues.iter().map(|queue| count(&queue.status.counts)).sum()
    };
    let (launched, pending) = (sum(|counts| counts.direct + counts.deferred), sum(|counts| counts.pending));
    let queues = client.queues.len();
    let hooks = match (launched + pending, &view.hardware_queues) {
        // Destroyed queues do not count, and the runtime creates hardware queues in advance.
        (0, Ok(Some(1..))) => note(format!(
            "no launch has passed the library on its {queues} current queues, but the driver lists queues of the process. That is \
             normal before the first launch; otherwise the program binds launches past the library, by static linking, or by \
             RTLD_DEEPBIND in a release of HIP where this cannot be corrected"
        )),
        (0, _) => note(format!("the process has launched nothing yet on its {queues} current queues")),
        _ => good(format!("{launched} launches have passed the library on {queues} queues")),
    };
    findings.add("hooks", hooks);
    if let Some(slow) = list::slow_path(client) {
        let text =
            format!("{slow} (with XSCHED_LOG_LEVEL=info the log names the first kernel for each reason)");
        findings.add("launches", note(text));
    }
    let any = |state| client.queues.iter().any(|queue| queue.state == state);
    let schedule = if !server.is_on {
        note(format!(
            "it runs unscheduled like every program, because scheduling is off (`{}` switches it on)",
            server.endpoint.command("on")
        ))
    } else if client.yielded && server.held.is_some() {
        note("it counts as idle, because `xcli suspend` has suspended its queues")
    } else if client.yielded {
        let state = if view.stopped { "is stopped or traced" } else { "was stopped, traced or suspended" };
        note(format!("it {state}, and counts as idle until it submits work"))
    } else if !client.permit.run {
        note(format!("it is suspended: {}", client.reason))
    } else if any(QueueState::Suspended) {
        note("it runs, except queues of priority -256")
    } else if server.held.is_some() {
        note(format!("it may run, except queues suspended by `xcli suspend`: {}", client.reason))
    } else if any(QueueState::Running) {
        good(format!("it runs: {}", client.reason))
    } else {
        good(format!("it may run, but has no work now: {}", client.reason))
    };
    findings.add("schedule", schedule);
    findings.add("level", level(client));
}

fn level(client: &Client) -> (Verdict, String) {
    let asked = client.queues.iter().map(|queue| queue.status.level).max().unwrap_or_default();
    let preemption = &client.preemption;
    match (asked, preemption.in_force) {
        (PreemptLevel::Block, _) => good("level 1 is in force, as requested"),
        (asked, PreemptLevel::Block) => {
            bad(format!("level {asked} was requested, but level 1 is in force: {}", preemption.how))
        }
        (asked, in_force) => {
            let Preemption { how, holds, waits, cost_origin, .. } = preemption;
            let cost = cost_origin.as_deref().and_then(CostOrigin::meaning);
            let cost = cost.map(|meaning| format!("; cost of eviction: {meaning}")).unwrap_or_default();
            good(format!(
                "level {asked} was requested, and level {in_force} is in force by {how}: evicted {holds} times, waited {waits} times \
                 because waiting cost less{cost}"
            ))
        }
    }
}

/// Adds a finding about a process that has the library but is not connected.
fn not_connected(view: &View, server: &Server, config: &Config, findings: &mut Findings) {
    let used = view.uses_the_driver() || !view.mapped(RUNTIME).is_empty();
    let schedule = if view.environment.is_none() {
        bad(format!(
            "it is not connected to the server, and its environment is hidden: run xcli as user {} or root",
            view.uid
        ))
    } else if !config.auto.enabled {
        bad(
            "it is not scheduled, because XSCHED_AUTO_XQUEUE was not ON when it started: the library only forwards calls, except for \
             queues that the program creates through the C interface",
        )
    } else {
        match config.scheduler_in_force() {
            SchedulerKind::Local => {
                let policy = config.policy.map_or("HPF", |policy| policy.name());
                note(format!("it schedules its own queues by the policy {policy}, without a server"))
            }
            SchedulerKind::AppManaged => {
                let why = match view.variable("XSCHED_SCHEDULER") {
                    Some(_) => "because of XSCHED_SCHEDULER",
                    None => "because neither XSCHED_SCHEDULER nor XSCHED_POLICY is set",
                };
                note(format!(
                    "the program itself suspends and resumes its queues ({why}), unless it has set another scheduler with \
                     XHintSetScheduler; otherwise all its queues run"
                ))
            }
            SchedulerKind::Global => global(view, server, config, used),
        }
    };
    findings.add("schedule", schedule);
}

/// The finding about a process that should connect to a server but has not.
fn global(view: &View, server: &Server, config: &Config, used: bool) -> (Verdict, String) {
    let own = || socket::candidates(view.uid, |path| path.is_dir()).into();
    let theirs: Vec<_> = config.socket.clone().map_or_else(own, |socket| vec![socket]);
    if !theirs.contains(&server.endpoint.socket) {
        let theirs = theirs.last().cloned().unwrap_or_default();
        return bad(format!(
            "it uses the server at {}, but xcli asked the one at {}: specify its server with -a",
            theirs.display(),
            server.endpoint.socket.display()
        ));
    }
    if !server.is_there {
        return bad("it runs unscheduled, because no xserver answers at its socket");
    }
    if !used {
        return note("it has not used HIP yet, and connects to the server when it does");
    }
    bad(
        "it uses the GPU but is not connected. Possible reasons: the server has refused it as another user's process or another \
         version (see the log of the server); no call has passed the library; it has set another scheduler with XHintSetScheduler",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::queues::Unknown;
    use protocol::ids::Pid;
    use protocol::outside::HeldQueue;
    use protocol::status::Counts;

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
        let counts = Counts { direct: launched, ..Counts::default() };
        let mut queue = list::tests::queue(1, 0, state, counts);
        queue.status.level = PreemptLevel::Interrupt;
        queue.in_force = PreemptLevel::Interrupt;
        let (in_force, how) = (PreemptLevel::Interrupt, "update-queue".to_owned());
        let reason = "queue 7 of pid 4 has priority 10 > 1";
        let client = list::tests::client(42, "train", run, reason, vec![queue]);
        Client { preemption: Preemption { in_force, how, holds: 3, ..Preemption::default() }, ..client }
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
