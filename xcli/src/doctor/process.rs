//! One process: whether the library is in it, whether its calls pass there, and why it is scheduled or is not.

use super::view::View;
use super::{Report, Verdict};
use crate::list;
use crate::place::Place;
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

/// The server that is asked.
#[derive(Debug, Clone)]
pub struct Server {
    pub place: Place,
    pub is_there: bool,
    pub is_on: bool,
    /// What it holds of the process from outside.
    pub held: Option<Held>,
}

/// Says what is so, in the order in which one thing needs the one before.
pub fn judge(view: &View, server: &Server, client: Option<&Client>, report: &mut Report) {
    let View { pid, name, .. } = view;
    if view.stopped {
        report.add(
            Verdict::Note,
            "process",
            format!("{pid} ({name}) is stopped or traced: it launches nothing, and keeps nobody waiting"),
        );
    } else {
        report.add(Verdict::Good, "process", format!("{pid} ({name}) is there"));
    }
    let config = Config::read(|name| view.variable(name), policies::registry::BUILT).0;
    let loaded = library(view, &config, report);
    runtime(view, client.is_some_and(|client| !client.queues.is_empty()), report);
    held(view, server, report);
    match client {
        Some(client) => connected(view, server, client, report),
        None if loaded => not_connected(view, server, &config, report),
        None => report.add(Verdict::Bad, "schedule", "it is not scheduled: nothing of it passes the library"),
    }
}

/// What keeps its queues off the hardware whatever the schedule says.
fn held(view: &View, server: &Server, report: &mut Report) {
    let Some(held) = server.held.as_ref().filter(|held| !held.queues.is_empty()) else { return };
    let numbers: Vec<_> = held.queues.iter().map(|queue| queue.queue.to_string()).collect();
    let longest = held.queues.iter().map(|queue| queue.held_ms).max().unwrap_or_default();
    let (queues, are, them) =
        if numbers.len() == 1 { ("queue", "is", "it") } else { ("queues", "are", "them") };
    let of = match view.hardware_queues {
        Ok(Some(compute)) => format!(" of {compute} for kernels"),
        _ => String::new(),
    };
    report.add(
        Verdict::Note,
        "held",
        format!(
            "{queues} {}{of} {are} held from outside by `xcli suspend`, for {}: nothing of {them} runs until `{}`",
            numbers.join(", "),
            list::span(Duration::from_millis(longest)),
            server.place.command(&format!("resume {}", view.pid)),
        ),
    );
}

/// Whether the library is in the process, and does anything.
fn library(view: &View, config: &Config, report: &mut Report) -> bool {
    if view.maps.is_none() {
        report.add(
            Verdict::Note,
            "library",
            format!("what process {} has loaded may not be seen: ask as user {} or root", view.pid, view.uid),
        );
        return true;
    }
    let Some(path) = view.mapped(LIBRARY).first().copied() else {
        let preload = view.variable("LD_PRELOAD").unwrap_or_default();
        let text = if preload.as_bytes().windows(LIBRARY.len()).any(|part| part == LIBRARY.as_bytes()) {
            format!(
                "{LIBRARY} is not loaded although LD_PRELOAD names it: the file cannot be opened where the process is, or \
                 the program is statically linked or runs with other rights than whoever started it"
            )
        } else {
            format!("{LIBRARY} is not loaded: start the program by `xcli run`, or with LD_PRELOAD")
        };
        report.add(Verdict::Bad, "library", text);
        return false;
    };
    if config.disable {
        report.add(Verdict::Bad, "library", format!("{path} is loaded, and inert by XSCHED_DISABLE"));
        return false;
    }
    report.add(Verdict::Good, "library", format!("{path} is loaded"));
    true
}

/// `is_seen`: its streams have come to the library, whatever the runtime's file is called.
fn runtime(view: &View, is_seen: bool, report: &mut Report) {
    let hip = view.mapped(RUNTIME);
    match hip.as_slice() {
        _ if view.maps.is_none() => {}
        [] if is_seen => report.add(
            Verdict::Good,
            "runtime",
            "no file of its is called libamdhip64, and its streams come to the library: its HIP runtime has another name",
        ),
        [] if view.uses_the_driver() => report.add(
            Verdict::Note,
            "runtime",
            "no libamdhip64.so is loaded, and the driver is used all the same: through HSA alone, or by a program with HIP \
             linked into it, which the library cannot see",
        ),
        [] => report.add(Verdict::Note, "runtime", "no libamdhip64.so is loaded (yet): it has not used HIP"),
        [one] => report.add(Verdict::Good, "runtime", format!("{one} is loaded")),
        [first, ..] => report.add(
            Verdict::Note,
            "runtime",
            format!("{} runtimes are loaded ({first} first): what uses another than the first is not scheduled", hip.len()),
        ),
    }
    match &view.hardware_queues {
        Ok(Some(count)) => {
            report.add(Verdict::Good, "driver", format!("the driver has {count} compute queues of it"))
        }
        Ok(None) => report.add(Verdict::Note, "driver", "it does not use the KFD (yet)"),
        Err(why) => report.add(Verdict::Note, "driver", why.clone()),
    }
}

/// The server knows it.
fn connected(view: &View, server: &Server, client: &Client, report: &mut Report) {
    let sum = |count: fn(&protocol::status::Counts) -> u64| -> u64 {
        client.queues.iter().map(|queue| count(&queue.status.counts)).sum()
    };
    let (launched, pending) = (sum(|counts| counts.direct + counts.deferred), sum(|counts| counts.pending));
    match (launched + pending, &view.hardware_queues) {
        // Queues that were destroyed are not counted any more, and the runtime makes hardware queues before it needs them.
        (0, Ok(Some(1..))) => report.add(
            Verdict::Note,
            "hooks",
            format!(
                "no launch has passed the library on the {} queues that it has now, though the driver has queues of it: as long as \
                 it has launched nothing on them that is right; if it has, launches are bound past the library, as by \
                 RTLD_DEEPBIND in a release that cannot be corrected, or by static linking",
                client.queues.len()
            ),
        ),
        (0, _) => report.add(
            Verdict::Note,
            "hooks",
            format!("it has launched nothing yet on the {} queues that it has now", client.queues.len()),
        ),
        _ => report.add(
            Verdict::Good,
            "hooks",
            format!("{launched} launches have passed the library, on {} queues", client.queues.len()),
        ),
    }
    if let Some(slow) = list::slow_path(client) {
        let text = format!("{slow} (XSCHED_LOG_LEVEL=info names the first kernel of each)");
        report.add(Verdict::Note, "launches", text);
    }
    let any = |state| client.queues.iter().any(|queue| queue.state == state);
    let (verdict, text) = if !server.is_on {
        (
            Verdict::Note,
            format!(
                "it runs unscheduled, as everybody does: scheduling is switched off (`{}`)",
                server.place.command("on")
            ),
        )
    } else if client.yielded && server.held.is_some() {
        (Verdict::Note, "it counts as idle, because queues of it are held from outside".to_owned())
    } else if client.yielded {
        let was = if view.stopped { "is stopped or traced" } else { "was found stopped, traced or held" };
        (Verdict::Note, format!("it {was}, and counts as idle until it does something"))
    } else if !client.permit.run {
        (Verdict::Note, format!("it is suspended: {}", client.reason))
    } else if any(QueueState::Suspended) {
        (Verdict::Note, "it runs, but for queues whose priority is never to run".to_owned())
    } else if server.held.is_some() {
        (Verdict::Note, format!("it may run, but for what is held from outside: {}", client.reason))
    } else if any(QueueState::Running) {
        (Verdict::Good, format!("it runs: {}", client.reason))
    } else {
        (Verdict::Good, format!("it may run, and has no work at the moment: {}", client.reason))
    };
    report.add(verdict, "schedule", text);
    level(client, report);
}

fn level(client: &Client, report: &mut Report) {
    let asked = client.queues.iter().map(|queue| queue.status.level).max().unwrap_or_default();
    let preemption = &client.preemption;
    match (asked, preemption.in_force) {
        (PreemptLevel::Block, _) => report.add(Verdict::Good, "level", "level 1 is in force, as asked"),
        (asked, PreemptLevel::Block) => report.add(
            Verdict::Bad,
            "level",
            format!("level {asked} is asked for and level 1 in force: {}", preemption.how),
        ),
        (asked, in_force) => report.add(
            Verdict::Good,
            "level",
            format!(
                "level {asked} is asked for and level {in_force} in force by {}: {} holds, {} times waiting cost less{}",
                preemption.how,
                preemption.holds,
                preemption.waits,
                preemption
                    .cost_origin
                    .as_deref()
                    .and_then(CostOrigin::meaning)
                    .map(|meaning| format!("; what a hold costs: {meaning}"))
                    .unwrap_or_default()
            ),
        ),
    }
}

/// The library is there, and the server does not know the process.
fn not_connected(view: &View, server: &Server, config: &Config, report: &mut Report) {
    let used = view.uses_the_driver() || !view.mapped(RUNTIME).is_empty();
    let (verdict, text) = if view.environment.is_none() {
        (
            Verdict::Bad,
            format!(
                "the server does not know it; its variables may not be seen: ask as user {} or root",
                view.uid
            ),
        )
    } else if !config.auto.enabled {
        (
            Verdict::Bad,
            "it is not scheduled: XSCHED_AUTO_XQUEUE was not ON when it started, so that the library only forwards, but for \
             queues that the program makes itself by the C interface"
                .to_owned(),
        )
    } else {
        match config.scheduler_in_force() {
            SchedulerKind::Local => {
                let policy = config.policy.map_or("HPF", |policy| policy.name());
                (
                    Verdict::Note,
                    format!(
                        "it decides for itself by the policy {policy}, among its own queues, without a server"
                    ),
                )
            }
            SchedulerKind::App => {
                let why = match view.variable("XSCHED_SCHEDULER") {
                    Some(_) => "as XSCHED_SCHEDULER says",
                    None => "as neither XSCHED_SCHEDULER nor XSCHED_POLICY says otherwise",
                };
                (
                    Verdict::Note,
                    format!(
                        "the program itself decides which of its queues run ({why}), unless it has set another scheduler by \
                         XHintSetScheduler; without either everything of it runs"
                    ),
                )
            }
            SchedulerKind::Global => global(view, server, config, used),
        }
    };
    report.add(verdict, "schedule", text);
}

/// It wants a server.
fn global(view: &View, server: &Server, config: &Config, used: bool) -> (Verdict, String) {
    let theirs = config
        .socket
        .clone()
        .unwrap_or_else(|| socket::default_path(view.uid, socket::INSTANCE, |path| path.is_dir()));
    if theirs != server.place.socket {
        return (
            Verdict::Bad,
            format!(
                "its server is at {}, and this asks the one at {}: name that one by -a",
                theirs.display(),
                server.place.socket.display()
            ),
        );
    }
    if !server.is_there {
        return (Verdict::Bad, "it runs unscheduled: no xserver answers where it looks for one".to_owned());
    }
    if !used {
        return (Verdict::Note, "it has not used HIP yet, with which it would come to the server".to_owned());
    }
    (
        Verdict::Bad,
        "it uses the GPU, and has not come to the server: the server refuses other users' processes and other versions (its \
         own log says which), no call of the program has passed the library, or it has set another scheduler by XHintSetScheduler"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn at(socket: &str) -> Place {
        Place { socket: socket.into(), ..Place::default() }
    }

    fn server() -> Server {
        Server { place: at("/s"), is_there: true, is_on: true, held: None }
    }

    fn said(view: &View, server: &Server, client: Option<&Client>) -> (bool, String) {
        let mut report = Report { ok: true, ..Report::default() };
        judge(view, server, client, &mut report);
        (report.is_ok(), report.text())
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
    fn what_is_not_loaded_is_not_scheduled_and_says_why() {
        let (ok, text) = said(&view(&[], &[], None), &server(), None);
        assert!(!ok && text.contains("start the program by `xcli run`"), "{text}");
        let named = view(&[], &[("LD_PRELOAD", "/x/libshimhip.so")], None);
        let (ok, text) = said(&named, &server(), None);
        assert!(!ok && text.contains("although LD_PRELOAD names it"), "{text}");
        let inert = view(&LOADED, &[("XSCHED_DISABLE", "1")], None);
        let (ok, text) = said(&inert, &server(), None);
        assert!(!ok && text.contains("inert by XSCHED_DISABLE"), "{text}");
    }

    #[test]
    fn each_reason_for_not_being_known_has_its_sentence() {
        let case = |variables: &[(&str, &str)], server: &Server, queues| {
            said(&view(&LOADED, variables, queues), server, None)
        };
        let (ok, text) = case(&[], &server(), Some(1));
        assert!(!ok && text.contains("XSCHED_AUTO_XQUEUE was not ON"), "{text}");
        // The library cannot see whether the program has set another one since.
        let (ok, text) = case(&GLOBAL[..1], &server(), Some(1));
        assert!(
            ok && text.contains("nor XSCHED_POLICY says otherwise), unless it has set another"),
            "{text}"
        );
        let (ok, text) = case(&[GLOBAL[0], ("XSCHED_SCHEDULER", "app")], &server(), Some(1));
        assert!(ok && text.contains("decides which of its queues run (as XSCHED_SCHEDULER says)"), "{text}");
        let (ok, text) = case(&[GLOBAL[0], ("XSCHED_POLICY", "HPF")], &server(), Some(1));
        assert!(ok && text.contains("for itself by the policy HPF"), "{text}");
        let other = Server { place: at("/other"), ..server() };
        let (ok, text) = case(&GLOBAL, &other, Some(1));
        assert!(!ok && text.contains("its server is at /s"), "{text}");
        let gone = Server { is_there: false, ..server() };
        let (ok, text) = case(&GLOBAL, &gone, Some(1));
        assert!(!ok && text.contains("no xserver answers"), "{text}");
        let (ok, text) = case(&GLOBAL, &server(), Some(1));
        assert!(!ok && text.contains("has not come to the server"), "{text}");
        let early = View { maps: Some(vec![LOADED[0].to_owned()]), ..view(&[], &GLOBAL, None) };
        let (ok, text) = said(&early, &server(), None);
        assert!(ok && text.contains("has not used HIP yet"), "{text}");
    }

    #[test]
    fn what_the_server_knows_is_told() {
        let view = view(&LOADED, &GLOBAL, Some(2));
        let (ok, text) = said(&view, &server(), Some(&client(false, 9, QueueState::Suspended)));
        assert!(ok && text.contains("it is suspended: queue 7 of pid 4 has priority 10 > 1"), "{text}");
        assert!(text.contains("level 3 in force by update-queue: 3 holds"), "{text}");
        let (ok, text) = said(&view, &server(), Some(&client(true, 9, QueueState::Running)));
        assert!(ok && text.contains("it runs: ") && text.contains("9 launches have passed"), "{text}");
        // It may be loading its data still, or make a stream for each request.
        let (ok, text) = said(&view, &server(), Some(&client(true, 0, QueueState::Idle)));
        assert!(
            ok && text.contains("note  hooks     no launch has passed the library on the 1 queues"),
            "{text}"
        );
        let between = Client { queues: vec![], ..client(true, 0, QueueState::Idle) };
        let (ok, text) = said(&view, &server(), Some(&between));
        assert!(ok && text.contains("on the 0 queues that it has now"), "{text}");
        assert!(!text.contains("launches  "), "{text}");
        let slow =
            Client { slow_path: [("code".to_owned(), 2)].into(), ..client(true, 9, QueueState::Running) };
        let (ok, text) = said(&view, &server(), Some(&slow));
        let note = "note  launches  2 launches were not deferred and waited for the turn on the calling thread: 2 because the sizes";
        assert!(ok && text.contains(note), "{text}");
        let off = Server { is_on: false, ..server() };
        let (ok, text) = said(&view, &off, Some(&client(true, 9, QueueState::Running)));
        assert!(ok && text.contains("switched off"), "{text}");
        let mut refused = client(true, 9, QueueState::Running);
        refused.preemption.in_force = PreemptLevel::Block;
        refused.preemption.how = "XSCHED_KFD_MECHANISM is off".to_owned();
        let (ok, text) = said(&view, &server(), Some(&refused));
        assert!(!ok && text.contains("level 1 in force: XSCHED_KFD_MECHANISM is off"), "{text}");
    }

    #[test]
    fn what_is_held_from_outside_is_said_before_the_schedule() {
        let queue = |queue, held_ms| HeldQueue { queue, held_ms };
        let queues = vec![queue(2, 12), queue(11, 3250)];
        let held = Some(Held { pid: Pid(42), name: "train".to_owned(), queues });
        let place = Place { said: "-p night".to_owned(), ..at("/s") };
        let holds = Server { place, held, ..server() };
        let view = view(&LOADED, &GLOBAL, Some(2));
        let note = "note  held      queues 2, 11 of 2 for kernels are held from outside by `xcli suspend`, for 3.25 s: \
                    nothing of them runs until `xcli -p night resume 42`";
        let lines = |client: Option<&Client>| {
            let (_, text) = said(&view, &holds, client);
            let mut lines = text.lines().skip_while(|line| *line != note).map(str::to_owned);
            assert!(lines.next().is_some(), "{text}");
            lines.collect::<Vec<_>>().join("\n")
        };
        let running = lines(Some(&client(true, 9, QueueState::Running)));
        assert!(
            running.contains("note  schedule  it may run, but for what is held from outside: "),
            "{running}"
        );
        let yielded = lines(Some(&Client { yielded: true, ..client(true, 9, QueueState::Running) }));
        assert!(yielded.contains("counts as idle, because queues of it are held"), "{yielded}");
        assert!(!yielded.contains("stopped"), "{yielded}");
        // One that nobody schedules is held as well.
        let foreign = View { maps: Some(vec![]), ..view.clone() };
        let (ok, text) = said(&foreign, &holds, None);
        assert!(!ok && text.contains(note) && text.contains("nothing of it passes the library"), "{text}");
        let stopped = View { stopped: true, ..view.clone() };
        let waits = Client { yielded: true, ..client(true, 9, QueueState::Running) };
        let (_, text) = said(&stopped, &server(), Some(&waits));
        assert!(text.contains("it is stopped or traced, and counts as idle until"), "{text}");
    }

    #[test]
    fn what_may_not_be_seen_is_not_taken_for_nothing() {
        let hidden =
            View { hardware_queues: Err("whether it does is not known".to_owned()), ..view(&[], &[], None) };
        let (_, text) = said(&hidden, &server(), None);
        assert!(text.contains("note  driver    whether it does is not known"), "{text}");
    }
}
