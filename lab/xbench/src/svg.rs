//! Plots as SVG: a picture with its title, panels with their axes, and shapes.

use std::fmt::Write as _;

/// Colours that people with any colour vision tell apart (Okabe and Ito).
pub(crate) const COLOURS: [&str; 7] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
pub(crate) const GREY: &str = "#999999";
pub(crate) const BOLD: &str = "font-weight=\"bold\"";
const GRID: &str = "stroke=\"#e5e5e5\"";

#[derive(Debug)]
pub(crate) struct Picture(String);

impl Picture {
    /// Starts a picture with its title, lines below that, and a grey note, all at `left`.
    pub(crate) fn new(size: [f64; 2], left: f64, title: &str, lines: &[&str], note: &str) -> Self {
        let [width, height] = size;
        let mut picture = Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ));
        picture.text([left, 28.0], "start", "font-size=\"17\" font-weight=\"bold\"", title);
        let mut y = 48.0;
        for line in lines {
            picture.text([left, y], "start", "", line);
            y += 18.0;
        }
        picture.text([left, y], "start", &format!("fill=\"{GREY}\""), note);
        picture
    }

    /// Adds an element as it stands in the file.
    pub(crate) fn push(&mut self, element: &str) {
        self.0.push_str(element);
        self.0.push('\n');
    }

    /// Adds text; `style` holds further attributes.
    pub(crate) fn text(&mut self, at: [f64; 2], anchor: &str, style: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let [x, y] = at;
        self.push(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{text}</text>"));
    }

    pub(crate) fn line(&mut self, from: [f64; 2], to: [f64; 2], style: &str) {
        let ([x1, y1], [x2, y2]) = (from, to);
        self.push(&format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {style}/>"));
    }

    pub(crate) fn rectangle(&mut self, at: [f64; 2], size: [f64; 2], style: &str) {
        let ([x, y], [width, height]) = (at, size);
        self.push(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {style}/>"
        ));
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// An axis from its first tick to its end.
#[derive(Debug)]
pub(crate) struct Axis {
    ticks: Vec<f64>,
    end: f64,
    logarithmic: bool,
    unit: &'static str,
}

impl Axis {
    /// Returns a logarithmic axis around two positive values, between 1, 2 or 5 times powers of ten.
    pub(crate) fn logarithmic(low: f64, high: f64) -> Self {
        let decades = low.log10().floor() as i32 - 1..=high.log10().ceil() as i32 + 1;
        // By division, so that 0.05 is printed as that.
        let power = |n: i32| if n < 0 { (1.0, 10f64.powi(-n)) } else { (10f64.powi(n), 1.0) };
        let steps: Vec<f64> =
            decades.map(power).flat_map(|(up, down)| [1.0, 2.0, 5.0].map(|m| m * up / down)).collect();
        let first = steps.partition_point(|tick| *tick <= low).saturating_sub(1);
        let last = steps.partition_point(|tick| *tick < high).min(steps.len() - 1).max(first + 1);
        Self { ticks: steps[first..=last].to_vec(), end: steps[last], logarithmic: true, unit: "" }
    }

    /// Returns a linear axis from 0, which is the first tick, to `end`.
    pub(crate) fn linear(ticks: Vec<f64>, end: f64, unit: &'static str) -> Self {
        Self { ticks, end, logarithmic: false, unit }
    }

    /// Returns the position of a value, 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        if !self.logarithmic {
            return value / self.end;
        }
        let (first, last) = (self.ticks[0].ln(), self.end.ln());
        (value.max(self.ticks[0]).ln() - first) / (last - first)
    }
}

/// The left, top, right and bottom edge of a part of a picture.
pub(crate) type Place = [f64; 4];

#[derive(Debug)]
pub(crate) struct Panel<'a> {
    pub(crate) place: Place,
    pub(crate) across: &'a Axis,
    pub(crate) up: &'a Axis,
}

impl Panel<'_> {
    pub(crate) fn x(&self, value: f64) -> f64 {
        let [left, _, right, _] = self.place;
        left + self.across.share(value) * (right - left)
    }

    pub(crate) fn y(&self, value: f64) -> f64 {
        let [_, top, _, bottom] = self.place;
        bottom - self.up.share(value) * (bottom - top)
    }

    /// Draws grid, ticks, a heading, and a label below.
    pub(crate) fn frame(&self, picture: &mut Picture, heading: &str, label: &str) {
        let [left, top, right, bottom] = self.place;
        picture.text([left, top - 16.0], "start", BOLD, heading);
        for tick in &self.across.ticks {
            let x = self.x(*tick);
            picture.line([x, top], [x, bottom], GRID);
            picture.text([x, bottom + 18.0], "middle", "", &format!("{tick}{}", self.across.unit));
        }
        for tick in &self.up.ticks {
            let y = self.y(*tick);
            picture.line([left, y], [right, y], GRID);
            picture.text([left - 8.0, y + 4.0], "end", "", &format!("{tick}{}", self.up.unit));
        }
        picture.text([(left + right) / 2.0, bottom + 40.0], "middle", "", label);
    }
}

/// Returns points as SVG writes them.
pub(crate) fn points(points: &[[f64; 2]]) -> String {
    let mut text = String::new();
    for [x, y] in points {
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks what holds of every picture.
    pub(crate) fn check(picture: &str) {
        for wrong in ["NaN", "=\"inf", "=\"-inf", "Hinf", "Vinf", ",inf"] {
            assert!(!picture.contains(wrong), "{picture}");
        }
        assert_eq!(picture.matches("<text").count(), picture.matches("</text>").count());
        assert!(picture.ends_with("</svg>\n"));
    }

    #[test]
    fn logarithmic_axis_holds_both_ends() {
        assert_eq!(Axis::logarithmic(4.2, 170.0).ticks, [2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]);
        assert_eq!(Axis::logarithmic(0.05, 0.05).ticks, [0.05, 0.1]);
        let axis = Axis::logarithmic(1.0, 100.0);
        assert_eq!([axis.share(1.0), axis.share(10.0), axis.share(100.0)], [0.0, 0.5, 1.0]);
        assert_eq!(Axis::linear(vec![0.0, 25.0], 50.0, " %").share(25.0), 0.5);
    }
}
