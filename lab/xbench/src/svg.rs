//! Pieces of a plot.

use std::fmt::Write as _;

/// Words at a place; `style` is more attributes.
pub(crate) fn text(out: &mut String, at: [f64; 2], anchor: &str, style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let [x, y] = at;
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{words}</text>");
}

/// A straight line.
pub(crate) fn line(out: &mut String, from: [f64; 2], to: [f64; 2], style: &str) {
    let ([x1, y1], [x2, y2]) = (from, to);
    let _ = writeln!(out, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>");
}

/// A logarithmic axis that begins and ends at one of 1, 2, 5 times a power of ten.
#[derive(Debug)]
pub(crate) struct Axis {
    ticks: Vec<f64>,
}

impl Axis {
    /// Holds both ends, which are positive.
    pub(crate) fn around(low: f64, high: f64) -> Self {
        let decades = low.log10().floor() as i32 - 1..=high.log10().ceil() as i32 + 1;
        // By division, so that 0.05 is printed as that.
        let power = |n: i32| if n < 0 { (1.0, 10f64.powi(-n)) } else { (10f64.powi(n), 1.0) };
        let steps: Vec<f64> =
            decades.map(power).flat_map(|(up, down)| [1.0, 2.0, 5.0].map(|m| m * up / down)).collect();
        let first = steps.partition_point(|tick| *tick <= low).saturating_sub(1);
        let last = steps.partition_point(|tick| *tick < high).min(steps.len() - 1).max(first + 1);
        Self { ticks: steps[first..=last].to_vec() }
    }

    /// Where it is labelled.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = f64> {
        self.ticks.iter().copied()
    }

    /// Where a value lies, 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let (first, last) = (self.ticks[0].ln(), self.ticks[self.ticks.len() - 1].ln());
        (value.max(self.ticks[0]).ln() - first) / (last - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_both_ends() {
        assert_eq!(Axis::around(4.2, 170.0).ticks, [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(Axis::around(0.05, 0.05).ticks, [0.05, 0.1]);
        let axis = Axis::around(1.0, 100.0);
        assert_eq!([axis.share(1.0), axis.share(10.0), axis.share(100.0)], [0.0, 0.5, 1.0]);
    }
}
