//! How much work a client has submitted: natively by the runtime's log, with the library by `xcli list`, or by the sums in
//! its log.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kernel;

/// For how long a program may owe the server its numbers.
const ANSWERS: Duration = Duration::from_secs(60);
/// The name of the urgent program in `xcli list` begins with this.
const RIVAL: &str = "rival-";

/// The work that a client has submitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Submitted {
    /// Calls that launch a kernel.
    pub(super) launches: u64,
    /// Calls that launch a graph.
    pub(super) graphs: u64,
    /// All that is work of a stream: these, copies, fills, events, waits.
    pub(super) commands: u64,
}

/// The sums over all queues in `xcli list` or in the library's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) queues: usize,
    /// Commands launched.
    pub(super) commands: u64,
    /// Of these, deferred.
    pub(super) deferred: u64,
    /// Number of times that a process was suspended while it had work.
    pub(super) preemptions: u64,
}

/// Reads the runtime's log, which has one file for each process.
pub(super) fn logged(folder: &Path) -> Result<Submitted, String> {
    let cannot = |error| format!("cannot read the runtime's log: {error}");
    let mut all = Submitted::default();
    for entry in fs::read_dir(folder).map_err(cannot)?.flatten() {
        let one = submitted(&String::from_utf8_lossy(&fs::read(entry.path()).map_err(cannot)?));
        all.launches += one.launches;
        all.graphs += one.graphs;
        all.commands += one.commands;
    }
    Ok(all)
}

/// Reads the sums that every process of a client has logged at its end. A line ends so:
/// `queues created=2 direct=7 deferred=3 forced=0 suspensions=1 ...`. The suspensions are those of queues.
pub(super) fn totals(log: &Path) -> Result<Listed, String> {
    let text = fs::read(log).map_err(|error| format!("cannot read the library's log: {error}"))?;
    summed(&String::from_utf8_lossy(&text)).ok_or_else(|| "no process has logged its sums".to_owned())
}

fn summed(log: &str) -> Option<Listed> {
    let mut sums = None;
    for (_, line) in log.lines().filter_map(|line| line.split_once("queues created=")) {
        let count = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        let sums = sums.get_or_insert_with(Listed::default);
        let created = line.split_whitespace().next().and_then(|created| created.parse().ok());
        sums.queues += created.unwrap_or(0usize);
        sums.commands += count("direct=")? + count("deferred=")?;
        sums.deferred += count("deferred=")?;
        sums.preemptions += count("suspensions=")?;
    }
    sums
}

/// Counts the calls in a log of the runtime's, which is that of one process. A call's line ends so: `25297871706 us:  \x1b[32m hipMalloc ( 0x7ff, 4 ) \x1b[0m`;
/// what it returned stands in another one.
fn submitted(log: &str) -> Submitted {
    const OTHERS: [&str; 7] = [
        "hipMemcpy",
        "hipMemset",
        "hipEventRecord",
        "hipStreamWaitEvent",
        "hipGraphLaunch",
        "hipLaunchHostFunc",
        "hipStreamAddCallback",
    ];
    let mut seen = Submitted::default();
    // The streams that capture, as the log writes them. What goes to them is submitted with the graph, and counts as that.
    let mut capturing: Vec<&str> = Vec::new();
    for (_, call) in log.lines().filter_map(|line| line.split_once(" us: ")) {
        let Some((name, arguments)) = call.split_once(" (") else { continue };
        let name = name.trim_start().trim_start_matches("\x1b[32m").trim_start();
        let stream = arguments.split([',', ' ', ')']).find(|word| word.starts_with("stream:"));
        match (name, stream) {
            ("hipStreamBeginCapture", Some(stream)) => capturing.push(stream),
            ("hipStreamEndCapture", Some(stream)) => capturing.retain(|other| *other != stream),
            _ => {}
        }
        if stream.is_some_and(|stream| capturing.contains(&stream)) {
            continue;
        }
        let launches = name.starts_with("hip") && name.contains("Launch") && name.contains("Kernel");
        seen.launches += u64::from(launches);
        seen.graphs += u64::from(name == "hipGraphLaunch");
        seen.commands += u64::from(launches || OTHERS.iter().any(|other| name.starts_with(other)));
    }
    seen
}

/// Reads `xcli list` once every client has answered and nothing is deferred.
pub(super) fn listed(xcli: &Path, socket: &Path) -> Result<Listed, String> {
    let until = Instant::now() + ANSWERS;
    loop {
        let mut command = kernel::command(xcli);
        command.arg("-a").arg(socket).args(["list", "--json"]);
        let answer = command.output().map_err(|error| format!("cannot run {}: {error}", xcli.display()))?;
        let list: Value = serde_json::from_slice(&answer.stdout)
            .map_err(|error| format!("xcli list: {error}\n{}", String::from_utf8_lossy(&answer.stderr)))?;
        if let Some(listed) = settled(&list) {
            return Ok(listed);
        }
        if Instant::now() >= until {
            return Err(format!("xcli list does not come to rest: {list:#}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn settled(list: &Value) -> Option<Listed> {
    let mut listed = Listed::default();
    for client in list["clients"].as_array()? {
        if client["name"].as_str()?.starts_with(RIVAL) {
            continue;
        }
        client["fresh"].as_bool().filter(|fresh| *fresh)?;
        listed.preemptions += client["preemptions"].as_u64()?;
        for queue in client["queues"].as_array()? {
            let count = |name: &str| queue["counts"][name].as_u64();
            count("pending").filter(|pending| *pending == 0)?;
            listed.queues += 1;
            listed.commands += count("direct")? + count("deferred")?;
            listed.deferred += count("deferred")?;
        }
    }
    Some(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_are_counted_and_what_they_return_is_not() {
        let log = "\
:3:   :0   : 25297871708 us:  \x1b[32m hipGetProcAddress ( hipModuleLaunchKernel, 0x7f2cec0b8868 ) \x1b[0m
:3:   :0   : 25297871709 us:  \x1b[32m hipModuleLaunchKernel ( 0x1, 98, 1, 1 ) \x1b[0m
:3:   :0   : 25297871710 us:  hipModuleLaunchKernel: Returned hipSuccess :\x20
:3:   :0   : 25297871711 us:  \x1b[32m hipExtModuleLaunchKernel ( 0x1, 98 ) \x1b[0m
:3:   :0   : 25297871712 us:  \x1b[32m hipMemcpyAsync ( 0x1, 98 ) \x1b[0m
:3:   :0   : 25297871713 us:  \x1b[32m hipLaunchHostFunc ( 0x1 ) \x1b[0m
:3:   :0   : 25297871714 us:  \x1b[32m hipStreamSynchronize ( 0x1 ) \x1b[0m
:3:   :0   : 25297871715 us:  Forcing SPIRV: false
";
        assert_eq!(submitted(log), Submitted { launches: 2, graphs: 0, commands: 4 });
    }

    #[test]
    fn calls_into_a_capture_are_not_counted() {
        let log = "\
:3:   :0   : 1 us:  \x1b[32m hipStreamBeginCapture ( stream:0x5610, 2 ) \x1b[0m
:3:   :0   : 2 us:  \x1b[32m hipLaunchKernel ( 0x1, {1,1,1}, {64,1,1}, 0x7, 0, stream:0x5610 ) \x1b[0m
:3:   :0   : 3 us:  \x1b[32m hipLaunchKernel ( 0x1, {1,1,1}, {64,1,1}, 0x7, 0, stream:0x5611 ) \x1b[0m
:3:   :0   : 4 us:  \x1b[32m hipMemcpyAsync ( 0x1, 0x2, 16, 1, stream:0x5610 ) \x1b[0m
:3:   :0   : 5 us:  \x1b[32m hipStreamEndCapture ( stream:0x5610, 0x7f ) \x1b[0m
:3:   :0   : 6 us:  \x1b[32m hipGraphLaunch ( 0x3, stream:0x5610 ) \x1b[0m
:3:   :0   : 7 us:  \x1b[32m hipLaunchKernel ( 0x1, {1,1,1}, {64,1,1}, 0x7, 0, stream:0x5610 ) \x1b[0m
";
        assert_eq!(submitted(log), Submitted { launches: 2, graphs: 1, commands: 3 });
    }

    #[test]
    fn sums_are_those_of_all_processes() {
        let line = |process: u32, direct: u32, deferred: u32| {
            format!(
                "giveway[{process}]: queues created=2 direct={direct} deferred={deferred} forced=0 suspensions=3 suspended_us=9\n"
            )
        };
        let log = format!("started\n{}other\n{}", line(1, 5, 2), line(2, 10, 0));
        let sums = Listed { queues: 4, commands: 17, deferred: 2, preemptions: 6 };
        assert_eq!(summed(&log), Some(sums));
        assert_eq!(summed("started\n"), None);
    }

    fn list(fresh: bool, pending: u64) -> Value {
        let counts = |direct, deferred| json!({"pending": pending, "direct": direct, "deferred": deferred});
        let queues = [json!({"counts": counts(3, 4)}), json!({"counts": counts(10, 0)})];
        let client = json!({"name": "python3", "fresh": fresh, "preemptions": 2, "queues": queues});
        // It goes on launching, and is not looked at.
        let rival =
            json!({"name": "rival-0123456789abcdef", "fresh": false, "preemptions": 1, "queues": queues});
        json!({"clients": [client, rival]})
    }

    #[test]
    fn a_list_counts_when_everybody_has_answered_and_nothing_is_held_back() {
        assert_eq!(
            settled(&list(true, 0)),
            Some(Listed { queues: 2, commands: 17, deferred: 4, preemptions: 2 })
        );
        assert_eq!(settled(&list(true, 1)), None);
        assert_eq!(settled(&list(false, 0)), None);
        assert_eq!(settled(&json!({"clients": []})), Some(Listed::default()));
    }
}
