//! The scenarios: which programs, and what is asked of a policy that schedules them.

use crate::replay::schedule::Pattern;

/// A program of a scenario.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub name: String,
    /// A file of examples/traces, without its ending.
    pub trace: String,
    /// Multiplies its recorded times.
    pub scale: f64,
    /// Requests a second and how they arrive; without that one inference follows the other.
    pub load: Option<(f64, Pattern)>,
    pub priority: i32,
    /// Its share in percent, for the policies that go by that.
    pub utilization: u32,
    /// By when a request is to be done, for the policies that go by that, in milliseconds.
    pub deadline_ms: Option<f64>,
    /// For how many microseconds the host works on a request before its first launch.
    pub prepare_us: u32,
}

/// What a policy is judged by. Shares of alone are of what a program does by itself on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Check {
    /// The 99th percentile of this program's latency over that alone.
    P99OverAlone(&'static str, f64),
    /// Its 99th percentile in milliseconds.
    P99(&'static str, f64),
    /// Least share of its rate alone.
    Keeps(&'static str, f64),
    /// Its share of the device time that all get, and by how much it may be missed.
    Share(&'static str, f64, f64),
    /// Least share of the device time that all get without giveway.
    Total(f64),
    /// The 99th percentile of the first over alone is at most that of the second.
    Before(&'static str, &'static str),
}

/// Programs that run at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub name: &'static str,
    pub about: &'static str,
    pub parts: Vec<Part>,
    /// The policies that it is for, with their parameters: `SLO target-ms=50`.
    pub policies: &'static [&'static str],
    /// How long requests arrive.
    pub seconds: f64,
    pub checks: Vec<Check>,
}

impl Part {
    pub fn new(name: &str, trace: &str, load: Option<(f64, Pattern)>, priority: i32) -> Self {
        Self {
            name: name.to_owned(),
            trace: trace.to_owned(),
            scale: 1.0,
            load,
            priority,
            utilization: 100,
            deadline_ms: None,
            prepare_us: 0,
        }
    }
}

/// What compares policies that put one program before the others.
const URGENT: &[&str] = &["HPF", "LCBE", "SLO target-ms=50"];

/// Every scenario.
pub(crate) fn scenes() -> Vec<Scene> {
    let poisson = |rate| Some((rate, Pattern::Poisson));
    let shares = |first: u32, second: u32| {
        let one =
            |name: &str, utilization| Part { utilization, ..Part::new(name, "resnet50_bs256", None, 0) };
        vec![one("first", first), one("second", second)]
    };
    vec![
        Scene {
            name: "test3",
            about: "BERT at batch 8, 10 requests a second, beside the same model back to back",
            parts: vec![
                Part { deadline_ms: Some(100.0), ..Part::new("urgent", "bert_bs8", poisson(10.0), 10) },
                Part::new("batch", "bert_bs8", None, 0),
            ],
            policies: URGENT,
            seconds: 30.0,
            checks: vec![Check::P99OverAlone("urgent", 1.10), Check::Keeps("batch", 0.99)],
        },
        Scene {
            name: "test4",
            about: "ResNet-18 at batch 1, 20 requests a second, beside ResNet-50 at batch 1024 (the one of 256, four times \
                    as long)",
            parts: vec![
                Part { deadline_ms: Some(50.0), ..Part::new("urgent", "resnet18_bs1", poisson(20.0), 10) },
                Part { scale: 4.0, ..Part::new("batch", "resnet50_bs256", None, 0) },
            ],
            policies: URGENT,
            seconds: 30.0,
            checks: vec![Check::P99OverAlone("urgent", 1.10), Check::Keeps("batch", 0.99)],
        },
        Scene {
            name: "two-models",
            about: "ResNet-18, 20 requests a second, beside ResNet-50 at batch 256 back to back",
            parts: vec![
                Part { deadline_ms: Some(50.0), ..Part::new("urgent", "resnet18_bs1", poisson(20.0), 10) },
                Part::new("batch", "resnet50_bs256", None, 0),
            ],
            policies: URGENT,
            seconds: 60.0,
            checks: vec![Check::P99("urgent", 50.0), Check::Keeps("batch", 0.99)],
        },
        Scene {
            name: "shares",
            about: "ResNet-50 at batch 256 twice, back to back, shares 75 and 25",
            parts: shares(75, 25),
            policies: &["UP timeslice-us=100000 +window=16/8", "FAIR slice-us=50000 +window=16/8"],
            seconds: 20.0,
            checks: vec![Check::Share("first", 0.75, 0.01), Check::Total(0.985)],
        },
        Scene {
            name: "three-priorities",
            about: "three programs at three priorities, the lowest back to back",
            parts: vec![
                Part::new("high", "resnet18_bs1", poisson(20.0), 10),
                Part::new("middle", "resnet50_bs1", poisson(20.0), 5),
                Part::new("low", "bert_bs8", None, 0),
            ],
            policies: &["HPF", "LCBE"],
            seconds: 20.0,
            checks: vec![Check::P99OverAlone("high", 1.25), Check::Before("high", "middle")],
        },
        Scene {
            name: "bursts",
            about: "ResNet-18, eight requests at a time and 16 a second, beside BERT at batch 8 back to back",
            parts: vec![
                Part::new("urgent", "resnet18_bs1", Some((16.0, Pattern::Bursts)), 10),
                Part::new("batch", "bert_bs8", None, 0),
            ],
            policies: &["HPF", "LCBE"],
            seconds: 20.0,
            checks: vec![Check::P99OverAlone("urgent", 1.25)],
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenes_name_what_there_is() {
        let scenes = scenes();
        for scene in &scenes {
            let part = |name: &str| scene.parts.iter().any(|part| part.name == name);
            assert_eq!(scenes.iter().filter(|other| other.name == scene.name).count(), 1);
            for check in &scene.checks {
                let known = match *check {
                    Check::P99OverAlone(name, _) | Check::P99(name, _) => {
                        scene.parts.iter().any(|part| part.name == name && part.load.is_some())
                    }
                    Check::Keeps(name, _) | Check::Share(name, ..) => part(name),
                    Check::Before(first, second) => part(first) && part(second),
                    Check::Total(_) => true,
                };
                assert!(known, "{}: {check:?}", scene.name);
            }
            for part in &scene.parts {
                let path = format!("{}/../examples/traces/{}.json", env!("CARGO_MANIFEST_DIR"), part.trace);
                assert!(std::path::Path::new(&path).is_file(), "{path}");
            }
        }
    }
}
