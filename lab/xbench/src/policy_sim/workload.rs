//! The contents of a workload's file: clients with their requests, and the model's parameters.
//! `docs/policy-sim.md` describes the file.

use super::arrivals::Arrivals;
use super::distribution::Distribution;
use super::hints::{Announce, Hints, Process};
use crate::{WrongInput, ensure_in};
use protocol::bounds::Priority;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The longest simulation, seconds: a day.
pub const MOST_SECONDS: f64 = 86_400.0;
/// Clients, each of a group counted, and queues of a client.
const MOST_CLIENTS: u32 = 10_000;
const MOST_QUEUES: usize = 64;
const MOST_KERNELS: u32 = 100_000;
const MOST_DEVICES: u32 = 64;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// The purpose of the workload, one sentence.
    #[serde(default)]
    pub about: String,
    /// The default length of the simulation, seconds.
    pub duration_s: f64,
    #[serde(default)]
    pub model: Model,
    /// The competing clients, at least one.
    pub client: Vec<Client>,
}

/// The model of devices, programs and the scheduler. Times are microseconds, 0 to 1000000.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// The preemption level: at 1 launched kernels complete, at 3 running kernels are evicted.
    pub level: u8,
    /// The estimated time of the kernels that a limited queue may launch besides its first.
    pub window_us: f64,
    /// The time from a change of the status until the resulting decision is in force.
    pub decision_us: f64,
    /// The time from a launch until the kernel can begin.
    pub launch_us: f64,
    /// The device time of evicting running kernels (level 3).
    pub save_us: f64,
    /// The additional run time of an evicted kernel (level 3).
    pub restore_us: f64,
    /// True if a suspension at level 3 waits for the work in flight where that takes no longer than `save_us`
    /// and `restore_us` together, as the library does.
    pub wait: bool,
    /// The time for which an idle queue still counts as ready.
    pub linger_us: f64,
    /// The period of the server's regular decisions; 0 means none.
    pub heartbeat_us: f64,
    /// The time without work in the middle of a request after which a queue is seen to be idle.
    pub quiet_us: f64,
    /// The number of kernels that share a device at once, each from another queue.
    pub share: u32,
    /// The factor of a launch's host time while another client works, because they share the processors.
    pub beside: f64,
    /// The waves that a device holds, from which the width of a recorded kernel follows. With 0 the width is
    /// that of the request.
    pub slots: u32,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            level: 1,
            window_us: 200.0,
            decision_us: 20.0,
            launch_us: 5.0,
            save_us: 50.0,
            restore_us: 50.0,
            wait: false,
            linger_us: 200.0,
            quiet_us: 300.0,
            heartbeat_us: 100_000.0,
            share: 1,
            beside: 1.0,
            slots: 0,
        }
    }
}

impl Model {
    /// Sets a parameter by its name, to a value as in a file.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), WrongInput> {
        let wrong = |why: &dyn std::fmt::Display| WrongInput(format!("{name} = {value}: {why}"));
        let value = serde_json::from_str::<serde_json::Value>(value).map_err(|_| wrong(&"no number"))?;
        let mut all = serde_json::to_value(&*self).map_err(|error| wrong(&error))?;
        match all.get_mut(name) {
            Some(place) => *place = value,
            None => return Err(WrongInput(format!("the model has no {name:?}"))),
        }
        let changed: Self = serde_json::from_value(all).map_err(|error| wrong(&error))?;
        changed.check()?;
        *self = changed;
        Ok(())
    }

    pub fn check(&self) -> Result<(), WrongInput> {
        if !matches!(self.level, 1 | 3) {
            return Err(WrongInput(format!("level = {} is neither 1 nor 3", self.level)));
        }
        ensure_in("share", self.share, 1, 1024)?;
        ensure_in("beside", self.beside, 0.01, 100.0)?;
        ensure_in("slots", self.slots, 0, 1_000_000)?;
        let times = [
            ("window_us", self.window_us),
            ("decision_us", self.decision_us),
            ("launch_us", self.launch_us),
            ("save_us", self.save_us),
            ("restore_us", self.restore_us),
            ("linger_us", self.linger_us),
            ("quiet_us", self.quiet_us),
            ("heartbeat_us", self.heartbeat_us),
        ];
        times.iter().try_for_each(|(name, us)| ensure_in(name, *us, 0.0, 1e6))
    }
}

/// A process, or a group of equal processes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// The name in the tables.
    pub name: String,
    /// The number of processes.
    #[serde(default = "one")]
    pub count: u32,
    /// The priority of its queues.
    #[serde(default)]
    pub priority: Priority,
    /// True if it is latency-critical; the default is true with an `slo_ms`.
    pub critical: Option<bool>,
    /// The host time of a launch, microseconds: the smallest distance of two launches of a request.
    #[serde(default)]
    pub call_us: f64,
    /// The time in which its requests should be done, milliseconds.
    pub slo_ms: Option<f64>,
    /// Its queues; the default is one on device 0.
    #[serde(default = "one_queue")]
    pub queues: Vec<QueueOn>,
    /// The distribution of its requests over its queues.
    #[serde(default)]
    pub dispatch: Dispatch,
    /// The hints for its queues.
    #[serde(default)]
    pub hints: Hints,
    /// The hints for its process.
    #[serde(default)]
    pub process: Process,
    /// Its announcements of work, which need a `prepare`.
    pub announce: Option<Announce>,
    /// The arrivals of its requests.
    pub arrivals: Arrivals,
    /// The host's work for each request before its first launch.
    pub prepare: Option<Distribution>,
    /// The kinds of requests, drawn by their weights.
    pub requests: Vec<RequestKind>,
    /// True if it begins each request together with the other lockstep clients of its job.
    #[serde(default)]
    pub lockstep: bool,
    /// True if the host waits for each kernel before it launches the next.
    #[serde(default)]
    pub wait_each: bool,
}

impl Client {
    /// Returns the number of requests that it works on at once.
    pub fn lanes(&self) -> usize {
        match self.dispatch {
            Dispatch::Turns => self.queues.len(),
            Dispatch::Together => 1,
        }
    }

    pub fn is_critical(&self) -> bool {
        self.critical.unwrap_or(self.slo_ms.is_some())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueOn {
    /// The device, counted from 0.
    #[serde(default)]
    pub device: u32,
    /// The priority, if it differs from its client's.
    pub priority: Option<Priority>,
}

/// The distribution of requests over several queues of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dispatch {
    /// Each queue works on its own request.
    #[default]
    Turns,
    /// All queues work on the same request: each kernel runs on every queue.
    Together,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestKind {
    /// The frequency relative to the other kinds.
    #[serde(default = "unit")]
    pub weight: f64,
    /// A recorded model: one of the built-in names, or a file.
    pub trace: Option<String>,
    /// The factor for recorded times on the device.
    #[serde(default = "unit")]
    pub scale: f64,
    /// The factor for recorded times of the host, after the profiler's slow-down is removed.
    #[serde(default = "unit")]
    pub gap_scale: f64,
    /// The number of kernels without a trace.
    pub kernels: Option<u32>,
    /// The duration of each kernel alone, without a trace.
    pub duration: Option<Distribution>,
    /// The host's time from a launch to the next, or with `wait_each` from a completion to the next launch,
    /// without a trace.
    pub gap: Option<Distribution>,
    /// The share of the device that a kernel needs for its full speed, above 0 to 1; used if `share` lets
    /// several kernels run at once.
    #[serde(default = "unit")]
    pub width: f64,
}

fn one() -> u32 {
    1
}

fn unit() -> f64 {
    1.0
}

fn one_queue() -> Vec<QueueOn> {
    vec![QueueOn { device: 0, priority: None }]
}

impl Workload {
    /// Reads a file: JSON if its name ends so, otherwise TOML.
    pub fn load(path: &Path) -> Result<Self, WrongInput> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| WrongInput(format!("cannot read the workload {}: {error}", path.display())))?;
        let json = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
        let workload = if json { Self::from_json(&text) } else { Self::from_toml(&text) };
        workload.map_err(|why| why.within(format!("{} is no workload", path.display())))
    }

    pub fn from_toml(text: &str) -> Result<Self, WrongInput> {
        let place = |error: &toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            before.map(|before| format!("line {}: ", before.matches('\n').count() + 1)).unwrap_or_default()
        };
        let wrong = |error: toml::de::Error| WrongInput(place(&error) + &one_line(error.message()));
        let workload: Self = toml::from_str(text).map_err(wrong)?;
        workload.check()?;
        Ok(workload)
    }

    pub fn from_json(text: &str) -> Result<Self, WrongInput> {
        let workload: Self =
            serde_json::from_str(text).map_err(|error| WrongInput(one_line(&error.to_string())))?;
        workload.check()?;
        Ok(workload)
    }

    fn check(&self) -> Result<(), WrongInput> {
        ensure_in("duration_s", self.duration_s, 1e-3, MOST_SECONDS)?;
        self.model.check()?;
        if self.client.is_empty() {
            return Err(WrongInput("it has no client".to_owned()));
        }
        for (index, client) in self.client.iter().enumerate() {
            client.check().map_err(|why| why.within(format!("client {:?}", client.name)))?;
            if self.client[..index].iter().any(|other| other.name == client.name) {
                return Err(WrongInput(format!("two clients are called {:?}", client.name)));
            }
        }
        let all: u64 = self.client.iter().map(|client| u64::from(client.count)).sum();
        if all > u64::from(MOST_CLIENTS) {
            return Err(WrongInput(format!("{all} clients, more than {MOST_CLIENTS}")));
        }
        Ok(())
    }
}

impl Client {
    fn check(&self) -> Result<(), WrongInput> {
        let wrong = |why: &str| Err(WrongInput(why.to_owned()));
        if self.name.is_empty() || self.name.chars().any(char::is_control) {
            return wrong("a name needs letters");
        }
        ensure_in("count", self.count, 1, MOST_CLIENTS)?;
        self.slo_ms.map_or(Ok(()), |slo| ensure_in("slo_ms", slo, 1e-3, MOST_SECONDS * 1e3))?;
        ensure_in("call_us", self.call_us, 0.0, 1e6)?;
        if !(1..=MOST_QUEUES).contains(&self.queues.len()) {
            return wrong(&format!("{} queues, not 1 to {MOST_QUEUES}", self.queues.len()));
        }
        if let Some(queue) = self.queues.iter().find(|queue| queue.device >= MOST_DEVICES) {
            return wrong(&format!("device {} is not below {MOST_DEVICES}", queue.device));
        }
        self.arrivals.check().map_err(|why| why.within("arrivals"))?;
        self.prepare.map_or(Ok(()), |time| time.check()).map_err(|why| why.within("prepare"))?;
        self.process.check().map_err(|why| why.within("process"))?;
        self.announce.map_or(Ok(()), |announce| announce.check()).map_err(|why| why.within("announce"))?;
        if self.lockstep && (self.process.job.is_none() || self.lanes() > 1) {
            return wrong("lockstep: it needs a job, and one request at a time");
        }
        if self.announce.is_some() && self.prepare.is_none() {
            return wrong("announce: it needs a prepare, because an unprepared request is launched at once");
        }
        if self.requests.is_empty() {
            return wrong("it has no requests");
        }
        for kind in &self.requests {
            kind.check().map_err(|why| why.within("requests"))?;
        }
        let closed = self.arrivals.is_closed();
        let nothing = |time: Option<Distribution>| time.is_none_or(|time| time.mean_us() <= 0.0);
        let empty = |kind: &RequestKind| kind.trace.is_none() && nothing(kind.duration) && nothing(kind.gap);
        // In a closed loop without any duration no time would pass.
        if closed && nothing(self.prepare) && self.requests.iter().any(empty) {
            return wrong("requests: a closed loop needs some that take time");
        }
        Ok(())
    }
}

impl RequestKind {
    fn check(&self) -> Result<(), WrongInput> {
        let wrong = |why: &str| Err(WrongInput(why.to_owned()));
        ensure_in("weight", self.weight, 1e-6, 1e6)?;
        ensure_in("scale", self.scale, 1e-3, 1e3)?;
        ensure_in("gap_scale", self.gap_scale, 0.0, 1e3)?;
        ensure_in("width", self.width, 1.0 / 1024.0, 1.0)?;
        match (&self.trace, self.duration) {
            (None, None) => return wrong("one needs a trace or a duration"),
            (Some(_), Some(_)) => return wrong("one has both a trace and a duration"),
            (Some(_), None) if self.kernels.is_some() || self.gap.is_some() => {
                return wrong("kernels and gap are those of the trace");
            }
            _ => {}
        }
        self.kernels.map_or(Ok(()), |kernels| ensure_in("kernels", kernels, 1, MOST_KERNELS))?;
        for (name, time) in [("duration", self.duration), ("gap", self.gap)] {
            time.map_or(Ok(()), |time| time.check()).map_err(|why| why.within(name))?;
        }
        Ok(())
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Model {
        /// Returns the model of textbooks, without costs or delays, in which level 3 preempts at once.
        pub(in super::super) fn ideal() -> Self {
            Self {
                level: 3,
                decision_us: 0.0,
                launch_us: 0.0,
                save_us: 0.0,
                restore_us: 0.0,
                linger_us: 0.0,
                heartbeat_us: 0.0,
                quiet_us: 0.0,
                ..Self::default()
            }
        }
    }

    const SMALL: &str = r#"
        duration_s = 1
        [model]
        level = 3
        [[client]]
        name = "a"
        priority = 7
        slo_ms = 2.5
        arrivals = { kind = "poisson", per_s = 10 }
        requests = [{ duration = { dist = "constant", us = 100 } }]
    "#;

    #[test]
    fn toml_and_json_parse_to_the_same_workload() {
        let workload = Workload::from_toml(SMALL).unwrap();
        let client = &workload.client[0];
        assert_eq!((workload.model.level, workload.model.save_us), (3, 50.0));
        assert_eq!((client.priority.get(), client.count, client.queues.len()), (7, 1, 1));
        assert!(client.is_critical());
        let json = r#"{"duration_s": 1, "model": {"level": 3}, "client": [{"name": "a", "priority": 7, "slo_ms": 2.5,
            "arrivals": {"kind": "poisson", "per_s": 10}, "requests": [{"duration": {"dist": "constant", "us": 100}}]}]}"#;
        assert_eq!(Workload::from_json(json).unwrap(), workload);
    }

    #[test]
    fn model_parameters_are_set_by_name() {
        let mut model = Model::default();
        model.set("wait", "true").unwrap();
        model.set("decision_us", "35").unwrap();
        assert_eq!(model, Model { wait: true, decision_us: 35.0, ..Model::default() });
        for (name, value, words) in [
            ("decision", "35", "the model has no \"decision\""),
            ("decision_us", "-1", "decision_us = -1 is not in 0..1000000"),
            ("decision_us", "x", "decision_us = x: no number"),
            ("beside", "0", "beside = 0 is not in 0.01..100"),
            ("share", "true", "share = true: invalid type: boolean `true`, expected u32"),
        ] {
            assert_eq!(model.set(name, value).unwrap_err().0, words);
        }
        assert_eq!(model.decision_us, 35.0);
    }

    #[test]
    fn invalid_workload_is_a_one_line_error() {
        let cases = [
            ("duration_s = 1", "duration_s = 0", "duration_s = 0 is not in 0.001..86400"),
            ("duration_s = 1", "duration = 1", "line 2: unknown field `duration`"),
            ("level = 3", "level = 2", "level = 2 is neither 1 nor 3"),
            ("level = 3", "save_us = -1", "save_us = -1 is not in 0..1000000"),
            ("priority = 7", "priority = 300", "line 7: priority 300 is not in -256..255"),
            ("slo_ms = 2.5", "slo_ms = 0", "client \"a\": slo_ms = 0 is not in 0.001..86400000"),
            ("slo_ms = 2.5", "call_us = -1", "client \"a\": call_us = -1 is not in 0..1000000"),
            ("slo_ms = 2.5", "queues = []", "client \"a\": 0 queues, not 1 to 64"),
            ("slo_ms = 2.5", "queues = [{ device = 64 }]", "client \"a\": device 64 is not below 64"),
            ("per_s = 10", "per_s = 0", "client \"a\": arrivals: per_s = 0 is not in 0.001..1000000"),
            ("per_s = 10", "rate = 10", "line 9: unknown field `rate`"),
            ("us = 100", "us = -5", "client \"a\": requests: duration: us = -5 is not in 0..86400000000"),
            ("duration = {", "trace = \"x\", duration = {", "client \"a\": requests: one has both"),
            ("duration = { dist = \"constant\", us = 100 }", "", "client \"a\": requests: one needs a trace"),
            ("[[client]]", "[[client]", "line 5: "),
            ("slo_ms = 2.5", "process = { nice = 20 }", "client \"a\": process: nice = 20 is not in -20..19"),
            ("slo_ms = 2.5", "process = { cap = 0 }", "line 8: cap 0 is not in 1..100"),
            ("slo_ms = 2.5", "process = { timeslice_us = 5 }", "line 8: timeslice 5 is not in 100..10000000"),
            ("slo_ms = 2.5", "hints = { utilization = 101 }", "line 8: utilization 101 is not in 0..100"),
            ("slo_ms = 2.5", "hints = { deadline = 7 }", "line 8: unknown field `deadline`"),
            ("slo_ms = 2.5", "lockstep = true", "client \"a\": lockstep: it needs a job, and one request"),
            ("slo_ms = 2.5", "announce = {}", "client \"a\": announce: it needs a prepare, because"),
            (
                "slo_ms = 2.5",
                "announce = { missing = 2 }",
                "client \"a\": announce: missing = 2 is not in 0..1",
            ),
        ];
        for (old, new, words) in cases {
            let text = SMALL.replacen(old, new, 1);
            assert_ne!(text, SMALL);
            let error = Workload::from_toml(&text).unwrap_err().0;
            assert!(error.starts_with(words), "{error:?}, not {words:?}");
            assert!(!error.contains('\n'), "{error}");
        }
        let closed = SMALL
            .replace("kind = \"poisson\", per_s = 10", "kind = \"closed\"")
            .replace("us = 100", "us = 0");
        assert!(
            Workload::from_toml(&closed).unwrap_err().0.ends_with("a closed loop needs some that take time")
        );
        let missing = Workload::load(Path::new("/no/such/workload.toml")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the workload /no/such/workload.toml: "), "{missing}");
    }
}
