//! `xcli suspend` and `xcli resume`. The server evicts the queues, because the driver restores them when the
//! process that evicted them ends.

use crate::ask::{self, Cause};
use crate::endpoint::Endpoint;
use crate::server;
use crate::table::{self, Column, Line, duration, plain};
use anyhow::anyhow;
use protocol::control::{Reply, Request};
use protocol::ids::Pid;
use protocol::outside::{Fates, Held, Snapshot, SuspendStatus};
use std::time::Duration;

/// The time limit. The driver waits up to 9 s for a queue (its parameter `queue_preemption_timeout_ms`), for
/// one device after the other.
pub const LIMIT: Duration = Duration::from_secs(30);

const COLUMNS: &[Column] =
    &[Column::number("PID"), Column::names("NAME"), Column::number("QUEUE"), Column::number("FOR")];

/// The two commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Evict queues. Starts a server if none runs.
    Suspend,
    /// Restore queues.
    Resume,
}

/// Sends the command to the server, and returns the result for each queue.
///
/// # Errors
/// The server does not answer or refuses.
pub fn order(order: Order, endpoint: &Endpoint, pid: u32, queues: &[u32]) -> anyhow::Result<Fates> {
    let (pid, queues) = (Pid(pid), queues.to_vec());
    let request = match order {
        Order::Suspend => {
            server::require(endpoint)?;
            Request::Hold { pid, queues }
        }
        Order::Resume => Request::Release { pid, queues },
    };
    match ask::ask_within(endpoint, &request, LIMIT) {
        Ok(Reply::Fates(fates)) => Ok(fates),
        Ok(other) => Err(ask::unexpected(&other)),
        Err(failure) => Err(match &failure.cause {
            // The reason is about the process; the socket of the server does not matter.
            Cause::Refused(why) => anyhow!("{}", plain(why)),
            Cause::Silent => {
                anyhow!(
                    "{failure} Possibly a queue cannot be evicted or process {pid} cannot be stopped; `{}` shows suspended queues",
                    plain(&endpoint.command("list"))
                )
            }
            _ => failure.into(),
        }),
    }
}

/// Formats what was done; nothing if no queue changed.
pub fn text(order: Order, endpoint: &Endpoint, fates: &Fates) -> Option<String> {
    let done = numbers(fates, SuspendStatus::Done);
    if done.is_empty() {
        return None;
    }
    let (pid, name, many) = (fates.pid, plain(&fates.name), if done.len() == 1 { "queue" } else { "queues" });
    let (word, rest) = match order {
        Order::Suspend => {
            let resume = plain(&endpoint.command(&format!("resume {pid}")));
            ("suspended", format!("; `{resume}` resumes it"))
        }
        Order::Resume if fates.held.is_empty() => ("resumed", String::new()),
        Order::Resume => ("resumed", format!("; still suspended: {}", joined(&fates.held))),
    };
    Some(format!("process {pid} ({name}): {word} {many} {}{rest}\n", joined(&done)))
}

/// Formats the failures, one line for each kind.
pub fn faults(order: Order, fates: &Fates) -> Vec<String> {
    let of = |fate: SuspendStatus, what: &str| {
        let queues = numbers(fates, fate);
        (!queues.is_empty()).then(|| format!("process {}, queue {}: {what}", fates.pid, joined(&queues)))
    };
    let invalid = match order {
        Order::Suspend => "there is no such queue, or the driver is just changing it",
        Order::Resume => "this server has not suspended it",
    };
    let invalid = of(SuspendStatus::Invalid, invalid);
    let failed =
        of(SuspendStatus::Failed, "the hardware did not respond, and the state of the queue is unknown");
    [invalid, failed].into_iter().flatten().collect()
}

fn numbers(fates: &Fates, fate: SuspendStatus) -> Vec<u32> {
    fates.queues.iter().filter(|queue| queue.fate == fate).map(|queue| queue.queue).collect()
}

fn joined(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Formats the queues that a server has suspended as a table; nothing if there are none.
pub fn held_table(held: &[Held], terminal: Option<usize>) -> String {
    let row = |process: &Held| -> Vec<Line> {
        let (pid, name) = (process.pid.to_string(), plain(&process.name));
        let cells = |queue: &protocol::outside::HeldQueue| {
            let time = duration(Duration::from_millis(queue.held_ms));
            Line::Row(vec![pid.clone(), name.clone(), queue.queue.to_string(), time])
        };
        process.queues.iter().map(cells).collect()
    };
    let lines: Vec<Line> = held.iter().flat_map(row).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("suspended by xcli suspend:\n{}", table::text(COLUMNS, &lines, terminal))
}

/// Asks the server for the queues of a process as the debugger shows them, if the server has attached to it.
pub fn look(endpoint: &Endpoint, pid: u32) -> Option<Snapshot> {
    match ask::ask(endpoint, &Request::Snapshot { pid: Pid(pid) }) {
        Ok(Reply::Snapshot(snapshot)) => Some(snapshot),
        // The numbers of the driver are useful without it.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::outside::{HeldQueue, QueueSuspendStatus};

    fn fates(queues: &[(u32, SuspendStatus)], held: &[u32]) -> Fates {
        let queues =
            queues.iter().map(|(queue, fate)| QueueSuspendStatus { queue: *queue, fate: *fate }).collect();
        Fates { pid: Pid(42), name: "train\n".to_owned(), queues, held: held.to_vec() }
    }

    #[test]
    fn result_lists_done_and_failed_queues() {
        let here = Endpoint::default();
        let all = fates(&[(1, SuspendStatus::Done), (3, SuspendStatus::Done)], &[1, 3]);
        let want = "process 42 (train?): suspended queues 1, 3; `xcli resume 42` resumes it\n";
        assert_eq!(text(Order::Suspend, &here, &all).as_deref(), Some(want));
        assert!(faults(Order::Suspend, &all).is_empty());
        // Only the same server can resume it.
        let night = Endpoint { options: "-p night".to_owned(), ..Endpoint::default() };
        let want = "process 42 (train?): suspended queues 1, 3; `xcli -p night resume 42` resumes it\n";
        assert_eq!(text(Order::Suspend, &night, &all).as_deref(), Some(want));
        let one = fates(&[(1, SuspendStatus::Done)], &[3]);
        let want = "process 42 (train?): resumed queue 1; still suspended: 3\n";
        assert_eq!(text(Order::Resume, &here, &one).as_deref(), Some(want));
        let none = fates(
            &[(1, SuspendStatus::Invalid), (2, SuspendStatus::Failed), (9, SuspendStatus::Invalid)],
            &[],
        );
        assert_eq!(text(Order::Resume, &here, &none), None);
        let resumed = &faults(Order::Resume, &none)[0];
        assert_eq!(resumed, "process 42, queue 1, 9: this server has not suspended it");
        let faults = faults(Order::Suspend, &none);
        assert!(faults[0].starts_with("process 42, queue 1, 9: there is no such queue"), "{faults:?}");
        assert!(faults[1].starts_with("process 42, queue 2: the hardware did not"), "{faults:?}");
    }

    #[test]
    fn suspended_queues_are_a_table() {
        let queues = vec![HeldQueue { queue: 2, held_ms: 12 }, HeldQueue { queue: 11, held_ms: 3250 }];
        let process = Held { pid: Pid(42), name: "train".to_owned(), queues };
        let want = "\
suspended by xcli suspend:
PID  NAME   QUEUE     FOR
 42  train      2   12 ms
 42  train     11  3.25 s
";
        assert_eq!(held_table(&[process], None), want);
        assert_eq!(held_table(&[], None), "");
    }
}
