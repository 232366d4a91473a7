//! The built-in scenarios: programs, and limits for the policies that schedule them. The programs are those
//! of the built-in workloads of `xbench policy-sim`.

use super::definition::{Check, Scenario};
use crate::WrongInput;
use crate::experiment::Program;
use crate::policy_sim::{Arrivals, Case, Client, Distribution};
use crate::replay::schedule::{BURST, Pattern};

/// Returns a client of a workload as a program; `None` if a replay cannot imitate it. The preparation of each
/// request takes the mean time.
fn program(client: &Client) -> Option<Program> {
    let mut think_us = 0;
    let load = match client.arrivals {
        Arrivals::Closed { think: None } => None,
        Arrivals::Closed { think: Some(Distribution::Constant { us }) } => {
            think_us = us.round() as u32;
            None
        }
        Arrivals::Poisson { per_s } => Some((per_s, Pattern::Poisson)),
        Arrivals::Bursty { every_us, size, spacing_us: 0.0 } if size as usize == BURST => {
            Some((f64::from(size) * 1e6 / every_us, Pattern::Bursts))
        }
        _ => return None,
    };
    let [request] = &client.requests[..] else { return None };
    let trace = request.trace.as_deref().filter(|_| request.scale == request.gap_scale)?;
    let hints = &client.hints;
    Some(Program {
        scale: request.scale,
        utilization: hints.utilization.unwrap_or_default().get().into(),
        deadline_ms: hints.deadline_us.map(|us| us.get() as f64 / 1e3),
        think_us,
        prepare_us: client.prepare.map_or(0, |span| span.mean_us().round() as u32),
        ..Program::new(&client.name, format!("{trace}.json"), load, client.priority.get())
    })
}

/// Policies that prefer one program to the others.
const URGENT: &[&str] = &["HPF", "LCBE", "SLO target-ms=50"];

pub(super) fn scenarios() -> Result<Vec<Scenario>, WrongInput> {
    let scenario = |name, policies, checks| {
        let workload = Case::load(name)?.workload;
        let cannot =
            |client: &Client| WrongInput(format!("{name}: a replay cannot imitate client {:?}", client.name));
        let program = |client| program(client).ok_or_else(|| cannot(client));
        let programs = workload.client.iter().map(program).collect::<Result<_, _>>()?;
        Ok(Scenario { name, about: workload.about, programs, policies, seconds: workload.duration_s, checks })
    };
    const REST: Check = Check::KeepsOfRest("batch", "urgent", 0.99);
    const LIKE_ALONE: &[Check] = &[Check::P99OverAlone("urgent", 1.10), Check::Keeps("batch", 0.99), REST];
    const TOKENS: &[Check] = &[
        Check::P50OverAlone("server", 1.10),
        Check::P99OverAlone("server", 1.10),
        Check::KeepsOfRest("batch", "server", 0.90),
    ];
    Ok(vec![
        scenario("test3", URGENT, LIKE_ALONE)?,
        scenario("test4", URGENT, LIKE_ALONE)?,
        scenario("two-models", URGENT, &[Check::P99("urgent", 50.0), Check::Keeps("batch", 0.99), REST])?,
        scenario(
            "shares",
            &["UP timeslice-us=100000", "FAIR slice-us=50000"],
            &[Check::Share("first", 0.75, 0.01), Check::Total(0.985), Check::TotalOverAlone("first", 0.985)],
        )?,
        scenario(
            "three-priorities",
            &["HPF", "LCBE"],
            &[Check::P99OverAlone("high", 1.25), Check::Before("high", "middle")],
        )?,
        scenario(
            "bursts",
            &["HPF", "LCBE", "LCBE learn=0 +hint", "SLO target-ms=25"],
            &[Check::P99OverAlone("urgent", 1.25)],
        )?,
        scenario("tokens", &["HPF", "LCBE"], TOKENS)?,
        scenario("tokens-two", &["HPF", "LCBE"], TOKENS)?,
        scenario("tokens-long", &["HPF", "LCBE"], TOKENS)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_name_existing_programs_and_traces() {
        let scenarios = scenarios().unwrap();
        for scenario in &scenarios {
            let part = |name: &str| scenario.programs.iter().any(|program| program.name == name);
            assert_eq!(scenarios.iter().filter(|other| other.name == scenario.name).count(), 1);
            for check in scenario.checks {
                let known = match *check {
                    Check::P50OverAlone(name, _) | Check::P99OverAlone(name, _) | Check::P99(name, _) => {
                        scenario.programs.iter().any(|program| program.name == name && program.has_latency())
                    }
                    Check::Keeps(name, _) | Check::Share(name, ..) => part(name),
                    Check::Before(first, second) | Check::KeepsOfRest(first, second, _) => {
                        part(first) && part(second)
                    }
                    Check::TotalOverAlone(name, _) => part(name),
                    Check::Total(_) => true,
                };
                assert!(known, "{}: {check:?}", scenario.name);
            }
            for program in &scenario.programs {
                let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("../../examples/traces")
                    .join(&program.trace);
                assert!(path.is_file(), "{}", path.display());
            }
        }
    }

    #[test]
    fn program_is_none_if_a_replay_cannot_imitate_the_client() {
        let scenarios = scenarios().unwrap();
        let part = |name: &str, index: usize| {
            &scenarios.iter().find(|scenario| scenario.name == name).unwrap().programs[index]
        };
        let (urgent, batch) = (part("test4", 0), part("test4", 1));
        assert_eq!(
            (urgent.load, urgent.priority, urgent.deadline_ms),
            (Some((20.0, Pattern::Poisson)), 10, Some(50.0))
        );
        assert_eq!((batch.load, batch.scale, batch.trace.to_str()), (None, 4.0, Some("resnet50_bs256.json")));
        assert_eq!(batch.think_us, 0);
        let (server, batch_loop) = (part("tokens", 0), part("tokens", 1));
        assert_eq!((server.load, server.think_us, batch_loop.think_us), (None, 3000, 0));
        assert!(server.has_latency() && !batch_loop.has_latency());
        let (bursts, first) = (part("bursts", 0), part("shares", 0));
        assert_eq!((bursts.load, bursts.prepare_us), (Some((16.0, Pattern::Bursts)), 300));
        assert_eq!((first.utilization, first.deadline_ms), (75, None));
        // Other times than those of the trace, or several kinds of request.
        for other in ["mm1", "disb-c"] {
            assert!(
                Case::load(other)
                    .unwrap()
                    .workload
                    .client
                    .iter()
                    .any(|client| super::program(client).is_none()),
                "{other}"
            );
        }
    }
}
