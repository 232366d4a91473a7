//! How much work a client has submitted: natively by the runtime's log, with the library by `xcli list`.

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
    /// All that is work of a stream: these, copies, fills, events, waits.
    pub(super) commands: u64,
}

/// The sums over all queues in `xcli list`.
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
    let mut all = String::new();
    for entry in fs::read_dir(folder).map_err(cannot)?.flatten() {
        all.push_str(&String::from_utf8_lossy(&fs::read(entry.path()).map_err(cannot)?));
    }
    Ok(submitted(&all))
}

/// Counts the calls in a log of the runtime's. A call's line ends so: `25297871706 us:  \x1b[32m hipMalloc ( 0x7ff, 4 ) \x1b[0m`;
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
    for (_, call) in log.lines().filter_map(|line| line.split_once(" us: ")) {
        let Some((name, _)) = call.split_once(" (") else { continue };
        let name = name.trim_start().trim_start_matches("\x1b[32m").trim_start();
        let launches = name.starts_with("hip") && name.contains("Launch") && name.contains("Kernel");
        seen.launches += u64::from(launches);
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
        assert_eq!(submitted(log), Submitted { launches: 2, commands: 4 });
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
