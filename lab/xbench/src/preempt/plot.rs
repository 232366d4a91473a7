//! The plot: the time until an urgent launch runs, over the length of the low program's kernels.

use super::figures::{Figures, Quantiles, Row};
use crate::svg::{Axis, COLOURS, Panel, Picture, Place, points};
use std::fmt::Write as _;

const SIZE: [f64; 2] = [1150.0, 470.0];
/// The panels of p50 and p99.
const PANELS: [Place; 2] = [[70.0, 96.0, 430.0, 400.0], [500.0, 96.0, 860.0, 400.0]];
/// Dashes, one for each save cost.
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "10 3 2 3"];

/// The quantile that a panel shows.
type Part = fn(&Quantiles) -> f64;

pub(super) fn svg(figures: &Figures) -> String {
    let remark = if figures.rows.iter().any(|row| row.save_us.is_some()) {
        "; save costs and kernels are modelled; no GPU measurement"
    } else {
        ""
    };
    let note =
        format!("{}, {} arrivals in each of {} runs{remark}", figures.device, figures.samples, figures.runs);
    let title = "From an urgent launch until its kernel runs";
    let mut picture = Picture::new(SIZE, PANELS[0][0], title, &[], &note);

    let all = || figures.rows.iter().flat_map(|row| [row.to_started_us.p50, row.to_started_us.p99]);
    // 0 has no position on a logarithmic axis.
    let (low, high) = (all().fold(f64::MAX, f64::min).max(1.0), all().fold(1.0, f64::max));
    let lengths = || figures.rows.iter().map(|row| f64::from(row.kernel_us));
    let (short, long) = (lengths().fold(f64::MAX, f64::min), lengths().fold(1.0, f64::max));
    let (across, up) = (&Axis::logarithmic(short, long), &Axis::logarithmic(low, high));
    let curves = curves(&figures.rows);
    let parts: [(&str, Part); 2] = [("median", |q| q.p50), ("99th percentile", |q| q.p99)];
    for ((name, part), place) in parts.into_iter().zip(PANELS) {
        let panel = Panel { place, across, up };
        panel.frame(&mut picture, &format!("{name}, µs"), "length of the low program's kernels, µs");
        curves.iter().for_each(|curve| curve.draw(&mut picture, &panel, part));
    }
    for (index, curve) in curves.iter().enumerate() {
        let [x, y] = [PANELS[1][2] + 24.0, PANELS[1][1] + 12.0 + 22.0 * index as f64];
        picture.line([x, y - 4.0], [x + 30.0, y - 4.0], &curve.style());
        picture.text([x + 38.0, y], "start", "", &curve.name());
    }
    picture.finish()
}

/// The rows of one level and save cost, by kernel length.
struct Curve<'a> {
    rows: &'a [Row],
    dash: &'static str,
}

fn curves(rows: &[Row]) -> Vec<Curve<'_>> {
    let mut costs: Vec<Option<u32>> = rows.iter().map(|row| row.save_us).collect();
    costs.sort_unstable();
    costs.dedup();
    let dash = |save| DASHES[costs.iter().position(|cost| *cost == save).unwrap_or(0) % DASHES.len()];
    let same = |a: &Row, b: &Row| (a.level, a.save_us) == (b.level, b.save_us);
    rows.chunk_by(same).map(|rows| Curve { rows, dash: dash(rows[0].save_us) }).collect()
}

impl Curve<'_> {
    fn colour(&self) -> &'static str {
        COLOURS[usize::from(self.rows[0].level).saturating_sub(1) % COLOURS.len()]
    }

    fn style(&self) -> String {
        format!("stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\"", self.colour(), self.dash)
    }

    /// Returns the level, the level in force if that differs, and the cost.
    fn name(&self) -> String {
        let Row { level, save_us, .. } = self.rows[0];
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

    fn draw(&self, picture: &mut Picture, panel: &Panel<'_>, part: Part) {
        let point = |row: &Row| [panel.x(row.kernel_us.into()), panel.y(part(&row.to_started_us))];
        let all: Vec<[f64; 2]> = self.rows.iter().map(point).collect();
        picture.push(&format!("<polyline points=\"{}\" fill=\"none\" {}/>", points(&all), self.style()));
        for [x, y] in all {
            picture
                .push(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{}\"/>", self.colour()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::figures;
    use super::*;

    #[test]
    fn level_and_cost_make_a_curve_in_both_panels() {
        let picture = svg(&figures());
        crate::svg::tests::check(&picture);
        assert_eq!(picture.matches("<polyline").count(), 2 * 4);
        assert!(picture.contains(">level 3, save 5000<"), "{picture}");
        assert!(picture.contains("simulated GPU, 2 arrivals") && picture.contains("no GPU measurement"));
    }

    #[test]
    fn level_that_is_not_in_force_is_labelled() {
        let mut figures = figures();
        figures.rows.iter_mut().filter(|row| row.level == 3).for_each(|row| row.in_force = 1);
        figures.rows.iter_mut().for_each(|row| row.save_us = None);
        let picture = svg(&figures);
        assert!(picture.contains(">level 3 (in force: 1)<"), "{picture}");
        assert!(!picture.contains("no GPU measurement"), "{picture}");
    }
}
