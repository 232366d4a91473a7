//! The scenarios: which programs, and what is asked of a policy that schedules them. The programs are those of the built-in
//! workloads of `xbench policy-sim`.

use crate::WrongInput;
use crate::policy_sim::{Arrivals, Case, Client};
use crate::replay::schedule::{BURST, Pattern};

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
    /// The same of the time that the second one leaves, which needs the device for as long as when it is alone.
    KeepsOfRest(&'static str, &'static str, f64),
    /// Its share of the device time that all get, and by how much it may be missed.
    Share(&'static str, f64, f64),
    /// Least share of the device time that all get without giveway.
    Total(f64),
    /// Least share of the device time that this one gets alone, by all together. Who takes turns does not fill the gaps
    /// between two kernels of another.
    TotalOverAlone(&'static str, f64),
    /// The 99th percentile of the first over alone is at most that of the second.
    Before(&'static str, &'static str),
}

/// Programs that run at the same time.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub name: &'static str,
    pub about: String,
    pub parts: Vec<Part>,
    /// The policies that it is for, with their parameters: `SLO target-ms=50`.
    pub policies: &'static [&'static str],
    /// How long requests arrive.
    pub seconds: f64,
    pub checks: &'static [Check],
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

    /// A client of a workload; nothing if a replay cannot do what it does. Each request is prepared for as long as the mean.
    fn of(client: &Client) -> Option<Self> {
        let load = match client.arrivals {
            Arrivals::Closed { think: None } => None,
            Arrivals::Poisson { per_s } => Some((per_s, Pattern::Poisson)),
            Arrivals::Bursty { every_us, size, spacing_us: 0.0 } if size as usize == BURST => {
                Some((f64::from(size) * 1e6 / every_us, Pattern::Bursts))
            }
            _ => return None,
        };
        let [request] = &client.requests[..] else { return None };
        let trace = request.trace.as_deref().filter(|_| request.scale == request.gap_scale)?;
        let hints = &client.hints;
        Some(Self {
            scale: request.scale,
            utilization: hints.utilization.unwrap_or_default().get().into(),
            deadline_ms: hints.deadline_us.map(|us| us.get() as f64 / 1e3),
            prepare_us: client.prepare.map_or(0, |span| span.mean_us().round() as u32),
            ..Self::new(&client.name, trace, load, client.priority.get())
        })
    }
}

/// What compares policies that put one program before the others.
const URGENT: &[&str] = &["HPF", "LCBE", "SLO target-ms=50"];

/// Every scenario.
///
/// # Errors
/// A workload makes no sense for a replay.
pub(crate) fn scenes() -> Result<Vec<Scene>, WrongInput> {
    let scene = |name, policies, checks| {
        let workload = Case::load(name)?.workload;
        let cannot = |client: &Client| WrongInput(format!("{name}: no replay is like {:?}", client.name));
        let part = |client| Part::of(client).ok_or_else(|| cannot(client));
        let parts = workload.client.iter().map(part).collect::<Result<_, _>>()?;
        Ok(Scene { name, about: workload.about, parts, policies, seconds: workload.duration_s, checks })
    };
    const REST: Check = Check::KeepsOfRest("batch", "urgent", 0.99);
    const LIKE_ALONE: &[Check] = &[Check::P99OverAlone("urgent", 1.10), Check::Keeps("batch", 0.99), REST];
    Ok(vec![
        scene("test3", URGENT, LIKE_ALONE)?,
        scene("test4", URGENT, LIKE_ALONE)?,
        scene("two-models", URGENT, &[Check::P99("urgent", 50.0), Check::Keeps("batch", 0.99), REST])?,
        scene(
            "shares",
            &["UP timeslice-us=100000", "FAIR slice-us=50000"],
            &[Check::Share("first", 0.75, 0.01), Check::Total(0.985), Check::TotalOverAlone("first", 0.985)],
        )?,
        scene(
            "three-priorities",
            &["HPF", "LCBE"],
            &[Check::P99OverAlone("high", 1.25), Check::Before("high", "middle")],
        )?,
        scene(
            "bursts",
            &["HPF", "LCBE", "LCBE learn=0 +hint", "SLO target-ms=50"],
            &[Check::P99OverAlone("urgent", 1.25)],
        )?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenes_name_what_there_is() {
        let scenes = scenes().unwrap();
        for scene in &scenes {
            let part = |name: &str| scene.parts.iter().any(|part| part.name == name);
            assert_eq!(scenes.iter().filter(|other| other.name == scene.name).count(), 1);
            for check in scene.checks {
                let known = match *check {
                    Check::P99OverAlone(name, _) | Check::P99(name, _) => {
                        scene.parts.iter().any(|part| part.name == name && part.load.is_some())
                    }
                    Check::Keeps(name, _) | Check::Share(name, ..) => part(name),
                    Check::Before(first, second) | Check::KeepsOfRest(first, second, _) => {
                        part(first) && part(second)
                    }
                    Check::TotalOverAlone(name, _) => part(name),
                    Check::Total(_) => true,
                };
                assert!(known, "{}: {check:?}", scene.name);
            }
            for part in &scene.parts {
                let path =
                    format!("{}/../../examples/traces/{}.json", env!("CARGO_MANIFEST_DIR"), part.trace);
                assert!(std::path::Path::new(&path).is_file(), "{path}");
            }
        }
    }

    #[test]
    fn a_client_is_what_a_replay_can_do() {
        let scenes = scenes().unwrap();
        let part =
            |name: &str, place: usize| &scenes.iter().find(|scene| scene.name == name).unwrap().parts[place];
        let (urgent, batch) = (part("test4", 0), part("test4", 1));
        assert_eq!(
            (urgent.load, urgent.priority, urgent.deadline_ms),
            (Some((20.0, Pattern::Poisson)), 10, Some(50.0))
        );
        assert_eq!((batch.load, batch.scale, batch.trace.as_str()), (None, 4.0, "resnet50_bs256"));
        let (bursts, first) = (part("bursts", 0), part("shares", 0));
        assert_eq!((bursts.load, bursts.prepare_us), (Some((16.0, Pattern::Bursts)), 300));
        assert_eq!((first.utilization, first.deadline_ms), (75, None));
        // Other times than those of the trace, or several kinds of request.
        for other in ["mm1", "disb-c"] {
            assert!(
                Case::load(other).unwrap().workload.client.iter().any(|client| Part::of(client).is_none()),
                "{other}"
            );
        }
    }
}
