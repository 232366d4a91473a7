//! What is simulated, as a file says it: clients with their requests, and the model's parameters. `docs/policy-sim.md`
//! describes the file.

use super::arrivals::Arrivals;
use super::hints::{Announce, Hints, Process};
use super::span::Span;
use crate::WrongInput;
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

/// A workload.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What it shows, one sentence.
    #[serde(default)]
    pub about: String,
    /// How long is simulated if nobody says otherwise, seconds.
    pub duration_s: f64,
    /// The model's parameters.
    #[serde(default)]
    pub model: Model,
    /// Who competes, at least one.
    pub client: Vec<Client>,
}

/// How devices, programs and the scheduler behave. Times are microseconds, 0 to 1000000.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// The preemption level: 1, what was launched completes; or 3, what runs is taken off.
    pub level: u8,
    /// How much estimated time a limited queue may have launched besides its first kernel.
    pub window_us: f64,
    /// From a change of the status until the decision that it leads to is in force.
    pub decision_us: f64,
    /// From a launch until the kernel can begin.
    pub launch_us: f64,
    /// How long the device is busy with taking running kernels off (level 3).
    pub save_us: f64,
    /// How much longer a kernel that was taken off runs (level 3).
    pub restore_us: f64,
    /// Whether a suspension at level 3 waits for what is in flight where that takes no longer than `save_us` and
    /// `restore_us` together, as the library does.
    pub wait: bool,
    /// For how long a queue that turned idle counts as ready still.
    pub linger_us: f64,
    /// How often a server decides anew even if it is told nothing; 0 is never.
    pub heartbeat_us: f64,
    /// For how long a queue has nothing to do in the middle of a request before it is seen to be idle.
    pub quiet_us: f64,
    /// How many kernels a device runs at once, each from another queue; they share it.
    pub share: u32,
    /// How many times as long a launch takes a host while another client works: they share the processors.
    pub beside: f64,
    /// How many waves a device holds: then the width of a recorded kernel follows from its grid. With 0 it is what is
    /// said of the request.
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
    /// One without any cost or delay, in which level 3 preempts at once: that of the textbooks.
    pub fn ideal() -> Self {
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

    /// Sets one of the parameters by its name, to a value as it stands in a file.
    ///
    /// # Errors
    /// There is none of that name, or it cannot have that value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |why: &dyn std::fmt::Display| format!("{name} = {value}: {why}");
        let value = serde_json::from_str::<serde_json::Value>(value).map_err(|_| wrong(&"no number"))?;
        let mut all = serde_json::to_value(&*self).map_err(|error| wrong(&error))?;
        match all.get_mut(name) {
            Some(place) => *place = value,
            None => return Err(format!("the model has no {name:?}")),
        }
        let changed: Self = serde_json::from_value(all).map_err(|error| wrong(&error))?;
        changed.check()?;
        *self = changed;
        Ok(())
    }

    /// Whether the numbers make sense; if not, what is wrong with them.
    ///
    /// # Errors
    /// A number is outside its range.
    pub fn check(&self) -> Result<(), String> {
        if !matches!(self.level, 1 | 3) {
            return Err(format!("level = {} is neither 1 nor 3", self.level));
        }
        if !(1..=1024).contains(&self.share) {
            return Err(format!("share = {} is not in 1..1024", self.share));
        }
        if !(0.01..=100.0).contains(&self.beside) {
            return Err(format!("beside = {} is not in 0.01..100", self.beside));
        }
        if self.slots > 1_000_000 {
            return Err(format!("slots = {} is not in 0..1000000", self.slots));
        }
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
        match times.iter().find(|(_, us)| !(0.0..=1e6).contains(us)) {
            Some((name, us)) => Err(format!("{name} = {us} is not in 0..1000000")),
            None => Ok(()),
        }
    }
}

/// A process, or several that are alike.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client {
    /// What it is called in the tables.
    pub name: String,
    /// How many there are of it.
    #[serde(default = "one")]
    pub count: u32,
    /// How urgent its queues are.
    #[serde(default)]
    pub priority: Priority,
    /// Whether it is latency-critical; if nothing is said, it is if it has an `slo_ms`.
    pub critical: Option<bool>,
    /// What a launch takes its host, microseconds: no two of a request are closer to each other.
    #[serde(default)]
    pub call_us: f64,
    /// Within how many milliseconds its requests should be done.
    pub slo_ms: Option<f64>,
    /// Its queues; one on device 0 if nothing is said.
    #[serde(default = "one_queue")]
    pub queues: Vec<QueueOn>,
    /// What its queues do with its requests.
    #[serde(default)]
    pub dispatch: Dispatch,
    /// What is said of its queues.
    #[serde(default)]
    pub hints: Hints,
    /// What is said of its process.
    #[serde(default)]
    pub process: Process,
    /// Whether, and how well, it says when its work comes; it needs a `prepare`.
    pub announce: Option<Announce>,
    /// When its requests come.
    pub arrivals: Arrivals,
    /// What the host does for each request before its first launch.
    pub prepare: Option<Span>,
    /// What a request consists of: one of these, by their weights.
    pub requests: Vec<RequestKind>,
    /// Whether all clients of its job that say so begin each request together.
    #[serde(default)]
    pub lockstep: bool,
    /// Whether the host waits for each kernel before it goes on to the next.
    #[serde(default)]
    pub wait_each: bool,
}

impl Client {
    /// How many requests it works on at once.
    pub fn lanes(&self) -> usize {
        match self.dispatch {
            Dispatch::Turns => self.queues.len(),
            Dispatch::Together => 1,
        }
    }

    /// Whether it is latency-critical.
    pub fn is_critical(&self) -> bool {
        self.critical.unwrap_or(self.slo_ms.is_some())
    }
}

/// A queue of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueOn {
    /// Its device, counted from 0.
    #[serde(default)]
    pub device: u32,
    /// Its priority, if it is another than its client's.
    pub priority: Option<Priority>,
}

/// What several queues of a client do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dispatch {
    /// Each works on a request of its own.
    #[default]
    Turns,
    /// All work on one request: each kernel runs on every queue.
    Together,
}

/// A kind of request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestKind {
    /// How often it comes, relative to the others.
    #[serde(default = "unit")]
    pub weight: f64,
    /// A recorded model: one of the built-in names, or a file.
    pub trace: Option<String>,
    /// By what the recorded times on the device are multiplied.
    #[serde(default = "unit")]
    pub scale: f64,
    /// By what the recorded times of the host are multiplied, besides what the profiler had added.
    #[serde(default = "unit")]
    pub gap_scale: f64,
    /// How many kernels it has, where no trace says so.
    pub kernels: Option<u32>,
    /// How long each takes alone, where no trace says so.
    pub duration: Option<Span>,
    /// What the host needs from one launch to the next, or with `wait_each` from a completion to the next launch, where
    /// no trace says so.
    pub gap: Option<Span>,
    /// What part of the device each kernel needs to run at its full speed, above 0 to 1; counts where `share` lets
    /// several run at once.
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
    ///
    /// # Errors
    /// The file cannot be read, or makes no sense.
    pub fn load(path: &Path) -> Result<Self, WrongInput> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| WrongInput(format!("cannot read the workload {}: {error}", path.display())))?;
        let json = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
        let workload = if json { Self::from_json(&text) } else { Self::from_toml(&text) };
        workload.map_err(|why| WrongInput(format!("{} is no workload: {why}", path.display())))
    }

    /// Parses TOML; the error is one line that says what is wrong.
    ///
    /// # Errors
    /// The text is no TOML, or makes no sense.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let place = |error: &toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            before.map(|before| format!("line {}: ", before.matches('\n').count() + 1)).unwrap_or_default()
        };
        let workload: Self =
            toml::from_str(text).map_err(|error| place(&error) + &one_line(error.message()))?;
        workload.check()?;
        Ok(workload)
    }

    /// Parses JSON; the error is one line that says what is wrong.
    ///
    /// # Errors
    /// The text is no JSON, or makes no sense.
    pub fn from_json(text: &str) -> Result<Self, String> {
        let workload: Self = serde_json::from_str(text).map_err(|error| one_line(&error.to_string()))?;
        workload.check()?;
        Ok(workload)
    }

    fn check(&self) -> Result<(), String> {
        if !(1e-3..=MOST_SECONDS).contains(&self.duration_s) {
            return Err(format!("duration_s = {} is not in 0.001..{MOST_SECONDS}", self.duration_s));
        }
        self.model.check()?;
        if self.client.is_empty() {
            return Err("it has no client".to_owned());
        }
        for (index, client) in self.client.iter().enumerate() {
            client.check().map_err(|why| format!("client {:?}: {why}", client.name))?;
            if self.client[..index].iter().any(|other| other.name == client.name) {
                return Err(format!("two clients are called {:?}", client.name));
            }
        }
        let all: u64 = self.client.iter().map(|client| u64::from(client.count)).sum();
        if all > u64::from(MOST_CLIENTS) {
            return Err(format!("{all} clients, more than {MOST_CLIENTS}"));
        }
        Ok(())
    }
}

impl Client {
    fn check(&self) -> Result<(), String> {
        if self.name.is_empty() || self.name.chars().any(char::is_control) {
            return Err("a name needs letters".to_owned());
        }
        if !(1..=MOST_CLIENTS).contains(&self.count) {
            return Err(format!("count = {} is not in 1..{MOST_CLIENTS}", self.count));
        }
        if self.slo_ms.is_some_and(|slo| !(1e-3..=MOST_SECONDS * 1e3).contains(&slo)) {
            return Err(format!("slo_ms = {} makes no sense", self.slo_ms.unwrap_or_default()));
        }
        if !(0.0..=1e6).contains(&self.call_us) {
            return Err(format!("call_us = {} is not in 0..1000000", self.call_us));
        }
        if !(1..=MOST_QUEUES).contains(&self.queues.len()) {
            return Err(format!("{} queues, not 1 to {MOST_QUEUES}", self.queues.len()));
        }
        if let Some(queue) = self.queues.iter().find(|queue| queue.device >= MOST_DEVICES) {
            return Err(format!("device {} is not below {MOST_DEVICES}", queue.device));
        }
        self.arrivals.check().map_err(|why| format!("arrivals: {why}"))?;
        self.prepare.map_or(Ok(()), |span| span.check()).map_err(|why| format!("prepare: {why}"))?;
        self.process.check().map_err(|why| format!("process: {why}"))?;
        self.announce
            .map_or(Ok(()), |announce| announce.check())
            .map_err(|why| format!("announce: {why}"))?;
        if self.lockstep && (self.process.job.is_none() || self.lanes() > 1) {
            return Err("lockstep: it needs a job, and one request at a time".to_owned());
        }
        if self.announce.is_some() && self.prepare.is_none() {
            return Err("announce: what is not prepared comes at once".to_owned());
        }
        if self.requests.is_empty() {
            return Err("it has no requests".to_owned());
        }
        for kind in &self.requests {
            kind.check().map_err(|why| format!("requests: {why}"))?;
        }
        let closed = self.arrivals.is_closed();
        let nothing = |span: Option<Span>| span.is_none_or(|span| span.mean_us() <= 0.0);
        let empty = |kind: &RequestKind| kind.trace.is_none() && nothing(kind.duration) && nothing(kind.gap);
        // In a closed loop without any time none would ever pass.
        if closed && nothing(self.prepare) && self.requests.iter().any(empty) {
            return Err("requests: a closed loop needs some that take time".to_owned());
        }
        Ok(())
    }
}

impl RequestKind {
    fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: f64, low: f64, high: f64| match (low..=high).contains(&value) {
            true => Ok(()),
            false => Err(format!("{name} = {value} is not in {low}..{high}")),
        };
        within("weight", self.weight, 1e-6, 1e6)?;
        within("scale", self.scale, 1e-3, 1e3)?;
        within("gap_scale", self.gap_scale, 0.0, 1e3)?;
        within("width", self.width, 1.0 / 1024.0, 1.0)?;
        match (&self.trace, self.duration) {
            (None, None) => return Err("one needs a trace or a duration".to_owned()),
            (Some(_), Some(_)) => return Err("one has both a trace and a duration".to_owned()),
            (Some(_), None) if self.kernels.is_some() || self.gap.is_some() => {
                return Err("kernels and gap are those of the trace".to_owned());
            }
            _ => {}
        }
        if self.kernels.is_some_and(|kernels| !(1..=MOST_KERNELS).contains(&kernels)) {
            return Err(format!("kernels is not in 1..{MOST_KERNELS}"));
        }
        for (name, span) in [("duration", self.duration), ("gap", self.gap)] {
            span.map_or(Ok(()), |span| span.check()).map_err(|why| format!("{name}: {why}"))?;
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
    fn toml_and_json_say_the_same() {
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
    fn parameters_of_the_model_can_be_set_by_name() {
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
            assert_eq!(model.set(name, value).unwrap_err(), words);
        }
        assert_eq!(model.decision_us, 35.0);
    }

    #[test]
    fn what_makes_no_sense_is_one_line() {
        let cases = [
            ("duration_s = 1", "duration_s = 0", "duration_s = 0 is not in 0.001..86400"),
            ("duration_s = 1", "duration = 1", "line 2: unknown field `duration`"),
            ("level = 3", "level = 2", "level = 2 is neither 1 nor 3"),
            ("level = 3", "save_us = -1", "save_us = -1 is not in 0..1000000"),
            ("priority = 7", "priority = 300", "line 7: priority 300 is not in -256..255"),
            ("slo_ms = 2.5", "slo_ms = 0", "client \"a\": slo_ms = 0 makes no sense"),
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
            ("slo_ms = 2.5", "announce = {}", "client \"a\": announce: what is not prepared comes at once"),
            (
                "slo_ms = 2.5",
                "announce = { missing = 2 }",
                "client \"a\": announce: missing = 2 is not in 0..1",
            ),
        ];
        for (old, new, words) in cases {
            let text = SMALL.replacen(old, new, 1);
            assert_ne!(text, SMALL);
            let error = Workload::from_toml(&text).unwrap_err();
            assert!(error.starts_with(words), "{error:?}, not {words:?}");
            assert!(!error.contains('\n'), "{error}");
        }
        let closed = SMALL
            .replace("kind = \"poisson\", per_s = 10", "kind = \"closed\"")
            .replace("us = 100", "us = 0");
        assert!(
            Workload::from_toml(&closed).unwrap_err().ends_with("a closed loop needs some that take time")
        );
        let missing = Workload::load(Path::new("/no/such/workload.toml")).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the workload /no/such/workload.toml: "), "{missing}");
    }
}
