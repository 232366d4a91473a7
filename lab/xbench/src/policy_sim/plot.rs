//! The plot: what best-effort clients get against the p99 of the critical ones, one point a policy.

use super::figures::Figures;
use crate::svg::{Axis, line, text};
use std::fmt::Write as _;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 490.0;
/// Left, top, right, bottom.
const PLACE: [f64; 4] = [80.0, 104.0, 620.0, 420.0];
/// Colours that people with any colour vision tell apart (Okabe and Ito); with each round another shape.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
const GREY: &str = "#999999";
/// The smallest time that has a place on a logarithmic axis, milliseconds.
const LEAST_MS: f64 = 1e-4;

/// The whole picture; nothing if the workload has no critical client or no other one that got something done.
pub(super) fn svg(figures: &Figures) -> Option<String> {
    let points: Vec<_> = figures
        .policies
        .iter()
        .filter_map(|policy| {
            let p99 = policy.critical_p99_ms()?.max(LEAST_MS);
            Some((&policy.policy, p99, policy.best_effort_of_alone()?))
        })
        .collect();
    let p99s = || points.iter().map(|(_, p99, _)| *p99);
    let across = Axis::around(p99s().reduce(f64::min)?, p99s().reduce(f64::max)?);
    let most = points.iter().map(|(_, _, of_alone)| *of_alone).fold(1.0, f64::max);

    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let [left, top, right, bottom] = PLACE;
    let bold = "font-size=\"17\" font-weight=\"bold\"";
    text(&mut out, [left, 28.0], "start", bold, &figures.workload);
    text(&mut out, [left, 48.0], "start", "", &figures.about);
    let note = format!(
        "simulated, {} s, seed {}, level {}; no GPU measurement",
        figures.duration_s, figures.seed, figures.model.level
    );
    text(&mut out, [left, 66.0], "start", &format!("fill=\"{GREY}\""), &note);
    let words = "best-effort throughput, % of alone (mean over clients)";
    text(&mut out, [left, top - 12.0], "start", "font-weight=\"bold\"", words);
    for tick in across.ticks() {
        let x = left + across.share(tick) * (right - left);
        line(&mut out, [x, top], [x, bottom], "stroke=\"#e5e5e5\"");
        text(&mut out, [x, bottom + 18.0], "middle", "", &format!("{tick}"));
    }
    let up = |share: f64| bottom - share / most * (bottom - top);
    for percent in (0..=(most * 100.0) as u32).step_by(20) {
        let y = up(f64::from(percent) / 100.0);
        line(&mut out, [left, y], [right, y], "stroke=\"#e5e5e5\"");
        text(&mut out, [left - 8.0, y + 4.0], "end", "", &format!("{percent}"));
    }
    text(
        &mut out,
        [(left + right) / 2.0, bottom + 40.0],
        "middle",
        "",
        "longest p99 of a critical client, ms",
    );
    for (index, (policy, p99, of_alone)) in points.iter().enumerate() {
        let (x, y) = (left + across.share(*p99) * (right - left), up(*of_alone));
        mark(&mut out, [x, y], index);
        let row = [right + 24.0, top + 12.0 + 20.0 * index as f64];
        mark(&mut out, [row[0], row[1] - 4.0], index);
        let words = format!("{policy}: {p99:.3} ms, {:.1} %", of_alone * 100.0);
        text(&mut out, [row[0] + 12.0, row[1]], "start", "", &words);
    }
    out.push_str("</svg>\n");
    Some(out)
}

/// The mark of a policy: a circle, a square or a diamond.
fn mark(out: &mut String, [x, y]: [f64; 2], index: usize) {
    let colour = COLOURS[index % COLOURS.len()];
    let style = format!("fill=\"{colour}\" fill-opacity=\"0.8\"");
    let _ = match index / COLOURS.len() {
        0 => writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" {style}/>"),
        turn => {
            let (x, y, turned) = (x - 4.5, y - 4.5, if turn == 1 { 0 } else { 45 });
            let about = format!("rotate({turned} {:.1} {:.1})", x + 4.5, y + 4.5);
            writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"9\" height=\"9\" transform=\"{about}\" {style}/>"
            )
        }
    };
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::{figures, policy};
    use super::*;

    #[test]
    fn each_policy_is_a_point_and_a_line_of_the_legend() {
        let policies = (1..=9).map(|n| policy("HPF", f64::from(n), 0.1 * f64::from(n))).collect();
        let picture = svg(&figures(policies)).unwrap();
        assert_eq!(picture.matches("<circle").count(), 2 * 7);
        // The ground, and two policies that have another shape.
        assert_eq!(picture.matches("<rect").count(), 1 + 2 * 2);
        assert!(
            picture.contains(">HPF: 9.000 ms, 90.0 %<") && picture.contains("no GPU measurement"),
            "{picture}"
        );
        assert!(!picture.contains("NaN"), "{picture}");
    }

    #[test]
    fn without_a_critical_client_there_is_nothing_to_plot() {
        let mut one = policy("HPF", 1.0, 1.0);
        one.clients.iter_mut().for_each(|client| client.critical = false);
        assert_eq!(svg(&figures(vec![one])), None);
        assert_eq!(svg(&figures(vec![])), None);
    }
}
