//! The requests behind the keys that change something.
//!
//! A program is suspended by a hint: priority -256 for all queues that it has. The server then suspends it as it suspends
//! any program, at once and at the program's preemption level, without a right to trace it. Queues that the program creates
//! later run. To resume it, each queue gets the priority that it had, as far as this view has seen it, or else the one that
//! the program has set itself. What `xcli suspend` has suspended is resumed as by `xcli resume`.

use policies::{named, registry};
use protocol::bounds::Priority;
use protocol::control::{Client, HintUpdate, List, PolicyOrder, Queue, Request, Target};
use protocol::ids::{ClientId, Pid, QueueId};
use std::collections::BTreeMap;

/// Requests that belong together. After the first refusal the others are not sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    pub requests: Vec<Request>,
    /// What has happened when all are carried out.
    pub done: String,
}

/// The priorities of queues before this view suspended them.
pub type Remembered = BTreeMap<(ClientId, QueueId), Priority>;

fn hint(pid: Pid, queue: Option<QueueId>, priority: Priority) -> Request {
    Request::Hint { of: Target { pid: Some(pid), queue }, said: vec![HintUpdate::Priority(priority)] }
}

/// Suspends a program, and remembers the priorities of its queues.
pub fn suspend(client: &Client, name: &str, remembered: &mut Remembered) -> Result<Order, String> {
    if client.queues.is_empty() {
        return Err(format!("{name} has no queue yet: there is nothing to suspend"));
    }
    for queue in &client.queues {
        if queue.status.priority != Priority::NO_EXECUTE {
            remembered.insert((client.client, queue.id()), queue.status.priority);
        }
    }
    let done = format!("{name}: suspended (priority {}); Z resumes it", Priority::NO_EXECUTE);
    Ok(Order { requests: vec![hint(client.pid, None, Priority::NO_EXECUTE)], done })
}

/// Resumes a program that was suspended by a hint or by `xcli suspend`.
pub fn resume(list: &List, client: &Client, name: &str, remembered: &Remembered) -> Result<Order, String> {
    let is_held = list.held.iter().any(|held| held.pid == client.pid);
    let priority = |queue: &Queue| {
        let own = queue.own_priority.unwrap_or(Priority::DEFAULT);
        let most = client.owner.as_ref().map_or(Priority::MAX, |owner| owner.max_priority);
        let before = remembered.get(&(client.client, queue.id())).copied();
        before.unwrap_or(own.min(most))
    };
    let hinted: Vec<(QueueId, Priority)> = client
        .queues
        .iter()
        .filter(|queue| queue.is_disregarded())
        .map(|queue| (queue.id(), priority(queue)))
        .collect();
    let mut requests: Vec<Request> = match hinted[..] {
        [(_, first), ..]
            if hinted.len() == client.queues.len() && hinted.iter().all(|(_, one)| *one == first) =>
        {
            vec![hint(client.pid, None, first)]
        }
        _ => hinted.iter().map(|(queue, priority)| hint(client.pid, Some(*queue), *priority)).collect(),
    };
    if is_held {
        requests.push(release(client.pid));
    }
    if requests.is_empty() {
        let held = client.queues.iter().any(Queue::is_held);
        let why =
            if held { "the program itself suspends its queues" } else { "no queue is suspended by a hint" };
        return Err(format!("{name}: nothing to resume: {why}"));
    }
    Ok(Order { requests, done: format!("{name}: resumed") })
}

fn release(pid: Pid) -> Request {
    Request::Release { pid, queues: Vec::new() }
}

/// Resumes a process that `xcli suspend` has suspended.
pub fn resume_held(pid: Pid) -> Order {
    Order { requests: vec![release(pid)], done: format!("{pid}: resumed") }
}

/// Sets the priority of a queue, or of all queues of a program.
pub fn set_priority(client: &Client, name: &str, queue: Option<QueueId>, priority: Priority) -> Order {
    let what = queue.map(|queue| format!("queue {queue} of ")).unwrap_or_default();
    let done = format!("{what}{name}: priority {priority}");
    Order { requests: vec![hint(client.pid, queue, priority)], done }
}

/// Raises or lowers a priority by one.
pub fn step_priority(
    client: &Client,
    name: &str,
    queue: Option<QueueId>,
    step: i64,
) -> Result<Order, String> {
    let meant = client.queues.iter().filter(|one| queue.is_none_or(|queue| queue == one.id()));
    let Some(highest) = meant.map(|queue| queue.status.priority).max() else {
        return Err(format!("{name} has no queue yet: there is no priority to change"));
    };
    if highest == Priority::NO_EXECUTE {
        return Err(format!("{name} is suspended: Z resumes it, p sets a priority"));
    }
    let next = i64::from(highest) + step;
    match Priority::try_from(next) {
        Ok(next) if next != Priority::NO_EXECUTE => Ok(set_priority(client, name, queue, next)),
        _ if step > 0 => Err(format!("priority {highest} is the highest")),
        _ => Err(format!("priority {highest} is the lowest with which a program runs; z suspends it")),
    }
}

/// Reads a typed priority.
pub fn priority(text: &str) -> Result<Priority, String> {
    let number = text.trim().parse::<i64>().ok();
    let expected = || format!("{text:?} is not a priority: type a whole number from -256 to 255");
    number.and_then(|number| Priority::try_from(number).ok()).ok_or_else(expected)
}

/// Puts a typed policy in force, such as `EDF slack-ms=5`.
pub fn set_policy(text: &str) -> Result<Order, String> {
    let mut words = text.split_whitespace();
    let policy = words.next().ok_or("type the name of a policy")?.to_owned();
    let value = |word: &str| {
        let (name, value) = word.split_once('=')?;
        Some((name.trim_start_matches('-').to_owned(), value.parse::<f64>().ok()?))
    };
    let values =
        words.map(|word| value(word).ok_or_else(|| format!("{word:?} is not a parameter: type NAME=NUMBER")));
    let order = PolicyOrder { policy, values: values.collect::<Result<_, String>>()?, device: None };
    let choice = named::choice(&order)?;
    let order = PolicyOrder { policy: choice.row.kind.name().to_owned(), ..order };
    let done = format!("policy {}", named::text(&order));
    Ok(Order { requests: vec![Request::SetPolicy(order)], done })
}

/// The name of the policy behind or before another one, by their numbers; of the first one for an unknown name.
pub fn next_policy(text: &str, forward: bool) -> &'static str {
    let names: Vec<&str> = registry::POLICIES.iter().map(|row| row.kind.name()).collect();
    let place = names.iter().position(|name| name.eq_ignore_ascii_case(text.trim()));
    let next = match (place, forward) {
        (None, true) => 0,
        (None, false) => names.len() - 1,
        (Some(place), true) => (place + 1) % names.len(),
        (Some(place), false) => (place + names.len() - 1) % names.len(),
    };
    names[next]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::tests::example;
    use protocol::bounds::Utilization;
    use protocol::codes::PreemptLevel;
    use protocol::control::Owner;
    use protocol::outside::Held;

    fn level(number: i64) -> Priority {
        Priority::try_from(number).unwrap()
    }

    /// The first program of the example as the server shows it after it was suspended.
    fn suspended(list: &mut List) -> &mut Client {
        let client = &mut list.clients[0];
        client.queues[0].own_priority = Some(level(3));
        client.queues[1].own_priority = Some(level(4));
        for queue in &mut client.queues {
            queue.status.priority = Priority::NO_EXECUTE;
        }
        client
    }

    #[test]
    fn resumed_program_has_the_priorities_that_it_had() {
        let mut list = example();
        let mut remembered = Remembered::new();
        let order = suspend(&list.clients[0], "infer", &mut remembered).unwrap();
        assert_eq!(order.requests, [hint(Pid(4242), None, Priority::NO_EXECUTE)]);
        assert!(suspend(&list.clients[2], "fresh", &mut remembered).unwrap_err().contains("no queue yet"));
        suspended(&mut list);
        let order = |list: &List, remembered: &Remembered| {
            resume(list, &list.clients[0], "infer", remembered).map(|order| order.requests)
        };
        assert_eq!(order(&list, &remembered).unwrap(), [hint(Pid(4242), None, level(10))]);
        // Another view suspended it.
        let own = [hint(Pid(4242), Some(QueueId(7)), level(3)), hint(Pid(4242), Some(QueueId(8)), level(4))];
        assert_eq!(order(&list, &Remembered::new()).unwrap(), own);
        let client = &mut list.clients[0];
        client.owner = Some(Owner {
            uid: 7,
            rule: "r".to_owned(),
            max_priority: level(2),
            max_share: Utilization::MAX,
            max_level: PreemptLevel::Interrupt,
            cgroup: None,
        });
        assert_eq!(order(&list, &Remembered::new()).unwrap(), [hint(Pid(4242), None, level(2))]);
        list.held = vec![Held { pid: Pid(4242), name: "infer".to_owned(), queues: vec![] }];
        assert_eq!(
            order(&list, &remembered).unwrap(),
            [hint(Pid(4242), None, level(10)), release(Pid(4242))]
        );
    }

    #[test]
    fn running_program_cannot_be_resumed() {
        let mut list = example();
        let refused = |list: &List| resume(list, &list.clients[0], "infer", &Remembered::new()).unwrap_err();
        assert!(refused(&list).ends_with("no queue is suspended by a hint"));
        for queue in &mut suspended(&mut list).queues {
            queue.own_priority = Some(Priority::NO_EXECUTE);
        }
        assert!(refused(&list).ends_with("the program itself suspends its queues"));
    }

    #[test]
    fn priority_changes_by_one_within_its_range() {
        let mut list = example();
        let step = |list: &List, client: usize, queue, by| {
            step_priority(&list.clients[client], "it", queue, by).map(|order| order.requests)
        };
        assert_eq!(step(&list, 0, None, 1).unwrap(), [hint(Pid(4242), None, level(11))]);
        let of_queue = step(&list, 0, Some(QueueId(8)), -1).unwrap();
        assert_eq!(of_queue, [hint(Pid(4242), Some(QueueId(8)), level(9))]);
        assert_eq!(
            step(&list, 1, None, -1),
            Err("priority -255 is the lowest with which a program runs; z suspends it".to_owned())
        );
        assert!(step(&list, 2, None, 1).unwrap_err().contains("no queue yet"));
        suspended(&mut list);
        assert!(step(&list, 0, None, 1).unwrap_err().contains("Z resumes it"));
        assert_eq!(priority(" -7 "), Ok(level(-7)));
        assert!(priority("256").unwrap_err().contains("from -256 to 255"));
        assert!(priority("").is_err());
    }

    #[test]
    fn policies_are_typed_with_parameters() {
        let request = |text| set_policy(text).map(|order| order.requests);
        let edf = PolicyOrder {
            policy: "EDF".to_owned(),
            values: [("slack-ms".to_owned(), 5.0)].into(),
            device: None,
        };
        assert_eq!(request("edf slack-ms=5"), Ok(vec![Request::SetPolicy(edf.clone())]));
        assert_eq!(request("EDF --slack-ms=5"), Ok(vec![Request::SetPolicy(edf)]));
        assert!(request("FIFO").unwrap_err().starts_with("no policy \"FIFO\""));
        assert!(request("EDF slack=5").unwrap_err().contains("no parameter"));
        assert!(request("EDF slack-ms").unwrap_err().contains("NAME=NUMBER"));
        assert!(request(" ").is_err());
        assert_eq!((next_policy("", true), next_policy("hpf", false)), ("HPF", next_policy("", false)));
        assert_eq!(next_policy(next_policy("HPF", true), false), "HPF");
    }
}
