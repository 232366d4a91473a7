//! The plot: how long an urgent launch waits, over the length of the low program's kernels.

use super::figures::{Figures, Quantiles, Row};
use crate::svg::{Axis, line, text};
use std::fmt::Write as _;

const WIDTH: f64 = 1150.0;
const HEIGHT: f64 = 470.0;
/// The panels of p50 and p99: left, top, right, bottom.
const PANELS: [[f64; 4]; 2] = [[70.0, 96.0, 430.0, 400.0], [500.0, 96.0, 860.0, 400.0]];
/// Colours that people with any colour vision tell apart (Okabe and Ito), one a level.
const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#009e73"];
/// Dashes, one a save cost.
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "10 3 2 3"];
const GREY: &str = "#999999";

/// Which figure a panel shows.
type Part = fn(&Quantiles) -> f64;

/// The whole picture.
pub(super) fn svg(figures: &Figures) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let title = "From an urgent launch until its kernel runs";
    text(&mut out, [PANELS[0][0], 28.0], "start", "font-size=\"17\" font-weight=\"bold\"", title);
    let remark = if figures.rows.iter().any(|row| row.save_us.is_some()) {
        "; save costs and kernels are modelled; no GPU measurement"
    } else {
        ""
    };
    let note =
        format!("{}, {} arrivals in each of {} runs{remark}", figures.device, figures.samples, figures.runs);
    text(&mut out, [PANELS[0][0], 48.0], "start", &format!("fill=\"{GREY}\""), &note);

    let all = || figures.rows.iter().flat_map(|row| [row.to_started_us.p50, row.to_started_us.p99]);
    // What began at once has no place on a logarithmic axis.
    let (low, high) = (all().fold(f64::MAX, f64::min).max(1.0), all().fold(1.0, f64::max));
    let lengths = || figures.rows.iter().map(|row| f64::from(row.kernel_us));
    let (short, long) = (lengths().fold(f64::MAX, f64::min), lengths().fold(1.0, f64::max));
    let (across, up) = (Axis::around(short, long), Axis::around(low, high));
    let parts: [(&str, Part); 2] = [("median", |q| q.p50), ("99th percentile", |q| q.p99)];
    for ((name, part), place) in parts.into_iter().zip(PANELS) {
        panel(&mut out, place, name, [&across, &up]);
        for curve in curves(&figures.rows) {
            curve.draw(&mut out, place, part, [&across, &up]);
        }
    }
    for (index, curve) in curves(&figures.rows).iter().enumerate() {
        let at = [PANELS[1][2] + 24.0, PANELS[1][1] + 12.0 + 22.0 * index as f64];
        line(&mut out, [at[0], at[1] - 4.0], [at[0] + 30.0, at[1] - 4.0], &curve.style());
        text(&mut out, [at[0] + 38.0, at[1]], "start", "", &curve.name());
    }
    out.push_str("</svg>\n");
    out
}

/// Frame, ticks and words of one panel.
fn panel(out: &mut String, place: [f64; 4], name: &str, [across, up]: [&Axis; 2]) {
    let [left, top, right, bottom] = place;
    text(out, [left, top - 16.0], "start", "font-weight=\"bold\"", &format!("{name}, µs"));
    for tick in across.ticks() {
        let x = left + across.share(tick) * (right - left);
        line(out, [x, top], [x, bottom], "stroke=\"#e5e5e5\"");
        text(out, [x, bottom + 18.0], "middle", "", &format!("{tick}"));
    }
    for tick in up.ticks() {
        let y = bottom - up.share(tick) * (bottom - top);
        line(out, [left, y], [right, y], "stroke=\"#e5e5e5\"");
        text(out, [left - 8.0, y + 4.0], "end", "", &format!("{tick}"));
    }
    let words = "length of the low program's kernels, µs";
    text(out, [(left + right) / 2.0, bottom + 40.0], "middle", "", words);
}

/// The rows of one level and save cost, by length.
struct Curve<'a> {
    rows: Vec<&'a Row>,
    dash: &'static str,
}

fn curves(rows: &[Row]) -> Vec<Curve<'_>> {
    let mut costs: Vec<Option<u32>> = rows.iter().map(|row| row.save_us).collect();
    costs.sort_unstable();
    costs.dedup();
    let dash = |save| DASHES[costs.iter().position(|cost| *cost == save).unwrap_or(0) % DASHES.len()];
    let same = |a: &Row, b: &Row| (a.level, a.save_us) == (b.level, b.save_us);
    rows.chunk_by(same)
        .map(|rows| Curve { rows: rows.iter().collect(), dash: dash(rows[0].save_us) })
        .collect()
}

impl Curve<'_> {
    fn colour(&self) -> &'static str {
        COLOURS[usize::from(self.rows[0].level).saturating_sub(1) % COLOURS.len()]
    }

    fn style(&self) -> String {
        format!("stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"", self.colour(), self.dash)
    }

    /// The level, the one in force if that is another, and the cost.
    fn name(&self) -> String {
        let Row { level, save_us, .. } = *self.rows[0];
        let least = self.rows.iter().map(|row| row.in_force).min().unwrap_or_default();
        let mut name = format!("level {level}");
        if least != i32::from(level) {
            let _ = write!(name, " (in force: {least})");
        }
        if let Some(save) = save_us {
            let _ = write!(name, ", save {save}");
        }
        name
    }

    fn draw(&self, out: &mut String, place: [f64; 4], part: Part, [across, up]: [&Axis; 2]) {
        let [left, top, right, bottom] = place;
        let point = |row: &&Row| {
            let x = left + across.share(row.kernel_us.into()) * (right - left);
            (x, bottom - up.share(part(&row.to_started_us)) * (bottom - top))
        };
        let points: Vec<(f64, f64)> = self.rows.iter().map(point).collect();
        let words: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(out, "<polyline points=\"{}\" fill=\"none\" {}/>", words.join(" "), self.style());
        for (x, y) in points {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/>", self.colour());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;

    #[test]
    fn each_level_and_cost_is_a_curve_in_both_panels() {
        let picture = svg(&figures());
        assert_eq!(picture.matches("<polyline").count(), 2 * 4);
        assert!(picture.contains(">level 3, save 5000<"), "{picture}");
        assert!(picture.contains("simulated GPU, 2 arrivals") && picture.contains("no GPU measurement"));
        assert!(!picture.contains("NaN") && !picture.contains("inf"), "{picture}");
    }

    #[test]
    fn what_is_not_in_force_says_so() {
        let mut figures = figures();
        figures.rows.iter_mut().filter(|row| row.level == 3).for_each(|row| row.in_force = 1);
        figures.rows.iter_mut().for_each(|row| row.save_us = None);
        let picture = svg(&figures);
        assert!(picture.contains(">level 3 (in force: 1)<"), "{picture}");
        assert!(!picture.contains("no GPU measurement"), "{picture}");
    }
}
