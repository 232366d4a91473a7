//! `docs/json.md` names every field of the JSON outputs that can be made without a server.

use crate::hooks;
use crate::list::tests::example;
use crate::top::example_json;
use policies::named;
use protocol::bounds::{Priority, Utilization};
use protocol::codes::PreemptLevel;
use protocol::control::{
    ConfigInForce, ConfigKey, ConfigOrigin, EventKind, Given, Owner, Policies, Refused, ServerEvent, Waiting,
};
use protocol::hint::Laxity;
use protocol::ids::{DeviceId, Pid};
use protocol::outside::{Held, HeldQueue};
use protocol::time::Time;
use protocol::totals::{QueueTimes, Totals};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;

/// Adds the names of all fields. Below those that have names of programs or policies there are no fields.
fn fields(of: &Value, found: &mut BTreeSet<String>) {
    match of {
        Value::Object(map) => {
            for (name, value) in map {
                found.insert(name.clone());
                let is_given = name == "hints" && map.contains_key("program");
                if !is_given && !["counted", "values", "slow_path"].contains(&name.as_str()) {
                    fields(value, found);
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| fields(value, found)),
        _ => {}
    }
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

fn events() -> Vec<EventKind> {
    let (pid, name, why) = (Pid(1), String::new(), String::new());
    let queues = vec![1];
    vec![
        EventKind::Joined { pid, name: name.clone(), uid: 0 },
        EventKind::Left { pid, name: name.clone(), why: why.clone() },
        EventKind::Running { pid, name: name.clone(), why: why.clone() },
        EventKind::Suspended { pid, name: name.clone(), why: why.clone() },
        EventKind::Guard,
        EventKind::Policy { by: pid, policy: None, device: None },
        EventKind::Switched { by: pid, on: true },
        EventKind::Hinted { by: pid, target: name.clone(), hints: name.clone() },
        EventKind::Configured { by: pid, target: name.clone(), settings: name.clone() },
        EventKind::Reloaded { error: None },
        EventKind::Refused { pid, uid: 0, what: Refused::Queue, why },
        EventKind::Held { pid, name: name.clone(), queues: queues.clone() },
        EventKind::Released { pid, name, queues },
        EventKind::Dropped { count: 1 },
    ]
}

#[test]
fn every_field_and_event_is_documented() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md");
    let document = std::fs::read_to_string(document).unwrap();
    let mut found = BTreeSet::new();
    let mut list = example();
    list.server.totals = Some(Totals::default());
    list.held =
        vec![Held { pid: Pid(1), name: String::new(), queues: vec![HeldQueue { queue: 1, held_ms: 1 }] }];
    let client = &mut list.clients[0];
    let (rule, max_priority) = (String::new(), Priority::MAX);
    let (max_share, max_level) = (Utilization::MAX, PreemptLevel::Interrupt);
    client.owner = Some(Owner { uid: 0, rule, max_priority, max_share, max_level, cgroup: None });
    client.given =
        Some(Given { program: String::new(), hints: [("deadline".to_owned(), "5".to_owned())].into() });
    client.waiting = Some(Waiting::default());
    client.queues[0].times = Some(QueueTimes::default());
    client.queues[0].status.hints.laxity = Some(Laxity { us: 1, lax: max_priority, critical: max_priority });
    let policies = Policies { policies: named::all(), in_force: vec![], devices: vec![DeviceId(1)] };
    let key = ConfigKey { name: String::new(), value: String::new(), from: ConfigOrigin::File };
    let config = ConfigInForce { file: None, keys: vec![key] };
    for of in [json(&list), json(&policies), json(&config), example_json(), hooks::json(true)] {
        fields(&of, &mut found);
    }
    for kind in events() {
        let event = json(&ServerEvent { time_us: 0, at: Time(0), kind });
        found.insert(event["event"].as_str().unwrap().to_owned());
        fields(&event, &mut found);
    }
    let missing: Vec<_> = found.iter().filter(|name| !document.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/json.md does not name {missing:?}");
    assert!(found.len() > 90, "{found:?}");
}
