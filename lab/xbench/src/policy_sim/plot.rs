//! The plot: the throughput of best-effort clients over the p99 of the critical ones, a point for each
//! policy.

use super::figures::Figures;
use crate::svg::{Axis, COLOURS, Panel, Picture, Place};

const SIZE: [f64; 2] = [860.0, 490.0];
const PLACE: Place = [80.0, 104.0, 620.0, 420.0];
/// The smallest time on the logarithmic axis, milliseconds.
const LEAST_MS: f64 = 1e-4;

/// Returns the picture; `None` if no critical client or no other client got anything done.
pub(super) fn svg(figures: &Figures) -> Option<String> {
    let point = |policy: &super::figures::PolicyFigures| {
        let p99 = policy.critical_p99_ms()?.max(LEAST_MS);
        Some((policy.policy.clone(), p99, policy.best_effort_of_alone()?))
    };
    let points: Vec<_> = figures.policies.iter().filter_map(point).collect();
    let p99s = || points.iter().map(|(_, p99, _)| *p99);
    let across = Axis::logarithmic(p99s().reduce(f64::min)?, p99s().reduce(f64::max)?);
    let most = points.iter().map(|(_, _, of_alone)| *of_alone).fold(1.0, f64::max) * 100.0;
    let ticks = (0..=most as u32).step_by(20).map(f64::from).collect();
    let up = Axis::linear(ticks, most, "");

    let note = format!(
        "simulated, {} s, seed {}, level {}; no GPU measurement",
        figures.duration_s, figures.seed, figures.model.level
    );
    let mut picture = Picture::new(SIZE, PLACE[0], &figures.workload, &[&figures.about], &note);
    let panel = Panel { place: PLACE, across: &across, up: &up };
    let heading = "best-effort throughput, % of alone (mean over clients)";
    panel.frame(&mut picture, heading, "longest p99 of a critical client, ms");
    for (index, (policy, p99, of_alone)) in points.iter().enumerate() {
        mark(&mut picture, [panel.x(*p99), panel.y(*of_alone * 100.0)], index);
        let [x, y] = [PLACE[2] + 24.0, PLACE[1] + 12.0 + 20.0 * index as f64];
        mark(&mut picture, [x, y - 4.0], index);
        let text = format!("{policy}: {p99:.3} ms, {:.1} %", of_alone * 100.0);
        picture.text([x + 12.0, y], "start", "", &text);
    }
    Some(picture.finish())
}

/// Draws the mark of a policy: each round of colours has another shape.
fn mark(picture: &mut Picture, [x, y]: [f64; 2], index: usize) {
    let style = format!("fill=\"{}\" fill-opacity=\"0.8\"", COLOURS[index % COLOURS.len()]);
    let angle = match index / COLOURS.len() {
        0 => return picture.push(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" {style}/>")),
        1 => 0,
        _ => 45,
    };
    let style = format!("transform=\"rotate({angle} {x:.1} {y:.1})\" {style}");
    picture.rectangle([x - 4.5, y - 4.5], [9.0, 9.0], &style);
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::{figures, policy};
    use super::*;

    #[test]
    fn policy_is_a_point_and_a_line_of_the_legend() {
        let policies = (1..=9).map(|n| policy("HPF", f64::from(n), 0.1 * f64::from(n))).collect();
        let picture = svg(&figures(policies)).unwrap();
        crate::svg::tests::check(&picture);
        assert_eq!(picture.matches("<circle").count(), 2 * 7);
        // The ground, and two policies that have another shape.
        assert_eq!(picture.matches("<rect").count(), 1 + 2 * 2);
        assert!(
            picture.contains(">HPF: 9.000 ms, 90.0 %<") && picture.contains("no GPU measurement"),
            "{picture}"
        );
    }

    #[test]
    fn plot_without_a_critical_client_is_none() {
        let mut one = policy("HPF", 1.0, 1.0);
        one.clients.iter_mut().for_each(|client| client.critical = false);
        assert_eq!(svg(&figures(vec![one])), None);
        assert_eq!(svg(&figures(vec![])), None);
    }
}
