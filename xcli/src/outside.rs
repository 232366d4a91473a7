//! Queues of any process, suspended and resumed through a server: the driver resumes everything when the process that holds
//! ends, so that the hold has to be the server's.

use crate::ask::{self, Cause};
use crate::list;
use crate::place::Place;
use crate::server;
use crate::table::{self, Column, Line, plain};
use anyhow::{anyhow, bail};
use protocol::control::{Reply, Request};
use protocol::ids::Pid;
use protocol::outside::{Fate, Fates, Held, Snapshot};
use std::time::Duration;

/// How long it may take. The driver waits 9 s for a queue by default (its parameter `queue_preemption_timeout_ms`) on one device
/// after the other.
const LIMIT: Duration = Duration::from_secs(30);

const COLUMNS: &[Column] = &[
    Column { title: "PID", words: false, gives_way: false },
    Column { title: "NAME", words: true, gives_way: true },
    Column { title: "HELD QUEUE", words: false, gives_way: false },
    Column { title: "FOR", words: false, gives_way: false },
];

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Take queues off the hardware. Starts a server where none runs.
    Suspend,
    /// Put them back.
    Resume,
}

/// Has it done; what became of the queues.
///
/// # Errors
/// The server cannot be asked, or refuses; why.
pub fn order(order: Order, place: &Place, pid: u32, queues: &[u32]) -> anyhow::Result<Fates> {
    let (pid, queues) = (Pid(pid), queues.to_vec());
    let request = match order {
        Order::Suspend => {
            server::present(place)?;
            Request::Hold { pid, queues }
        }
        Order::Resume => Request::Release { pid, queues },
    };
    match ask::ask_within(place, &request, LIMIT) {
        Ok(Reply::Fates(fates)) => Ok(fates),
        Ok(other) => bail!("the server answers something that makes no sense here: {other:?}"),
        Err(failure) => Err(match &failure.cause {
            // It is not the server that anything is wrong with.
            Cause::Refused(why) => anyhow!("{}", plain(why)),
            Cause::Silent => {
                anyhow!(
                    "{failure} Or a queue does not come off, or process {pid} cannot be stopped; `{}` shows what is held",
                    plain(&place.command("list"))
                )
            }
            _ => failure.into(),
        }),
    }
}

/// What was done, for people; nothing if nothing was.
pub fn text(order: Order, place: &Place, fates: &Fates) -> Option<String> {
    let done = numbers(fates, Fate::Done);
    if done.is_empty() {
        return None;
    }
    let (pid, name, many) = (fates.pid, plain(&fates.name), if done.len() == 1 { "queue" } else { "queues" });
    let (word, rest) = match order {
        Order::Suspend => {
            let resume = plain(&place.command(&format!("resume {pid}")));
            ("suspended", format!("; `{resume}` lets it go on"))
        }
        Order::Resume if fates.held.is_empty() => ("resumed", String::new()),
        Order::Resume => ("resumed", format!("; still suspended: {}", words(&fates.held))),
    };
    Some(format!("process {pid} ({name}): {word} {many} {}{rest}\n", words(&done)))
}

/// What could not be done, one line each.
pub fn faults(order: Order, fates: &Fates) -> Vec<String> {
    let of = |fate: Fate, what: &str| {
        let queues = numbers(fates, fate);
        (!queues.is_empty()).then(|| format!("process {}, queue {}: {what}", fates.pid, words(&queues)))
    };
    let invalid = match order {
        Order::Suspend => "there is no such queue, or nothing is done to it now",
        Order::Resume => "this server does not hold it",
    };
    let invalid = of(Fate::Invalid, invalid);
    let failed = of(Fate::Failed, "the hardware did not do it, and its state is unknown");
    [invalid, failed].into_iter().flatten().collect()
}

fn numbers(fates: &Fates, fate: Fate) -> Vec<u32> {
    fates.queues.iter().filter(|queue| queue.fate == fate).map(|queue| queue.queue).collect()
}

fn words(numbers: &[u32]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// What a server holds from outside, as a table of its own; nothing if it holds nothing.
pub fn held(held: &[Held], terminal: Option<usize>) -> String {
    let row = |process: &Held| -> Vec<Line> {
        let (pid, name) = (process.pid.to_string(), plain(&process.name));
        let cells = |queue: &protocol::outside::HeldQueue| {
            let time = list::span(Duration::from_millis(queue.held_ms));
            Line::Row(vec![pid.clone(), name.clone(), queue.queue.to_string(), time])
        };
        process.queues.iter().map(cells).collect()
    };
    let lines: Vec<Line> = held.iter().flat_map(row).collect();
    if lines.is_empty() {
        return String::new();
    }
    format!("held from outside, by xcli suspend:\n{}", table::text(COLUMNS, &lines, terminal))
}

/// What a server sees of a process's queues; nothing if there is none that tells.
pub fn look(place: &Place, pid: u32) -> Option<Snapshot> {
    match ask::ask(place, &Request::Snapshot { pid: Pid(pid) }) {
        Ok(Reply::Snapshot(snapshot)) => Some(snapshot),
        // Whatever it is, the driver's own numbers are worth showing without it.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::outside::{HeldQueue, QueueFate};

    fn fates(queues: &[(u32, Fate)], held: &[u32]) -> Fates {
        let queues = queues.iter().map(|(queue, fate)| QueueFate { queue: *queue, fate: *fate }).collect();
        Fates { pid: Pid(42), name: "train\n".to_owned(), queues, held: held.to_vec() }
    }

    #[test]
    fn what_was_done_is_said_and_what_was_not() {
        let here = Place::default();
        let all = fates(&[(1, Fate::Done), (3, Fate::Done)], &[1, 3]);
        let want = "process 42 (train?): suspended queues 1, 3; `xcli resume 42` lets it go on\n";
        assert_eq!(text(Order::Suspend, &here, &all).as_deref(), Some(want));
        assert!(faults(Order::Suspend, &all).is_empty());
        // It is the same server that has to resume it.
        let night = Place { said: "-p night".to_owned(), ..Place::default() };
        let want = "process 42 (train?): suspended queues 1, 3; `xcli -p night resume 42` lets it go on\n";
        assert_eq!(text(Order::Suspend, &night, &all).as_deref(), Some(want));
        let one = fates(&[(1, Fate::Done)], &[3]);
        let want = "process 42 (train?): resumed queue 1; still suspended: 3\n";
        assert_eq!(text(Order::Resume, &here, &one).as_deref(), Some(want));
        let none = fates(&[(1, Fate::Invalid), (2, Fate::Failed), (9, Fate::Invalid)], &[]);
        assert_eq!(text(Order::Resume, &here, &none), None);
        let resumed = &faults(Order::Resume, &none)[0];
        assert_eq!(resumed, "process 42, queue 1, 9: this server does not hold it");
        let faults = faults(Order::Suspend, &none);
        assert!(faults[0].starts_with("process 42, queue 1, 9: there is no such queue"), "{faults:?}");
        assert!(faults[1].starts_with("process 42, queue 2: the hardware did not"), "{faults:?}");
    }

    #[test]
    fn what_is_held_is_a_table() {
        let queues = vec![HeldQueue { queue: 2, held_ms: 12 }, HeldQueue { queue: 11, held_ms: 3250 }];
        let process = Held { pid: Pid(42), name: "train".to_owned(), queues };
        let want = "\
held from outside, by xcli suspend:
PID  NAME   HELD QUEUE     FOR
 42  train           2   12 ms
 42  train          11  3.25 s
";
        assert_eq!(held(&[process], None), want);
        assert_eq!(held(&[], None), "");
    }
}
