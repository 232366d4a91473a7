//! Figures with limits, as a table and as JSON.
//!
//! A [`Figure`] is a measured number. With a [`Limit`] it is judged, without one it is information. A
//! [`Report`] is met when every judged figure is met.

use crate::table::{Table, verdict};
use serde::Serialize;
use std::fmt;

/// The range in which a figure is met, ends included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Limit {
    /// Smallest value that is still met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// Largest value that is still met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

impl Limit {
    pub fn within(min: f64, max: f64) -> Self {
        Self { min: Some(min), max: Some(max) }
    }

    pub fn at_most(max: f64) -> Self {
        Self { min: None, max: Some(max) }
    }

    /// Returns true if `value` is inside, which NaN never is.
    pub fn is_met(&self, value: f64) -> bool {
        let above = self.min.is_none_or(|min| value >= min);
        let below = self.max.is_none_or(|max| value <= max);
        above && below && !value.is_nan()
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{} .. {}", short(min), short(max)),
            (None, Some(max)) => write!(f, "<= {}", short(max)),
            (Some(min), None) => write!(f, ">= {}", short(min)),
            (None, None) => Ok(()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Stable name for programs: lower case, words joined by underscores.
    pub name: &'static str,
    /// The description for people.
    pub what: String,
    /// The value in `unit`.
    pub value: f64,
    /// Unit of `value` and of the limit; empty for a ratio.
    pub unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// True if the limit is met; absent without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

/// All figures of one command, in the order in which they are shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Report {
    figures: Vec<Figure>,
}

impl Report {
    pub fn push(
        &mut self,
        name: &'static str,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        limit: Option<Limit>,
    ) {
        let met = limit.map(|limit| limit.is_met(value));
        self.figures.push(Figure { name, what: what.into(), value, unit, limit, met });
    }

    pub fn judged(
        &mut self,
        name: &'static str,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        limit: Limit,
    ) {
        self.push(name, what, value, unit, Some(limit));
    }

    pub fn info(&mut self, name: &'static str, what: impl Into<String>, value: f64, unit: &'static str) {
        self.push(name, what, value, unit, None);
    }

    pub fn figures(&self) -> &[Figure] {
        &self.figures
    }

    pub fn missed(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|f| f.met == Some(false))
    }

    pub fn is_met(&self) -> bool {
        self.missed().next().is_none()
    }
}

/// Writes the table: description, value with unit, limit, verdict.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::without_header([false, true, false, false]);
        for figure in &self.figures {
            let verdict = figure.met.map_or("", verdict);
            let limit = figure.limit.map(|l| l.to_string()).unwrap_or_default();
            let value = format!("{} {:<2}", short(figure.value), figure.unit);
            table.push([figure.what.clone(), value, limit, verdict.to_owned()]);
        }
        table.fmt(f)
    }
}

/// Returns a number with about four significant digits, without exponent or trailing zeros.
fn short(value: f64) -> String {
    let magnitude = value.abs();
    let digits = match magnitude {
        m if m >= 1000.0 => 0,
        m if m >= 100.0 => 1,
        m if m >= 10.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_include_their_ends() {
        let limit = Limit::within(475.0, 525.0);
        assert!(limit.is_met(475.0) && limit.is_met(525.0));
        assert!(!limit.is_met(474.9) && !limit.is_met(525.1));
        assert!(Limit::at_most(1.0).is_met(-3.0));
        assert!(!Limit::at_most(1.0).is_met(f64::NAN));
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (10123.4, "10123"),
            (505.25, "505.2"),
            (99.0, "99"),
            (12.345, "12.35"),
            (1.0, "1"),
            (0.0123, "0.012"),
            (-4.0, "-4"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn report_is_met_when_every_judged_figure_is() {
        let mut report = Report::default();
        assert!(report.is_met());
        report.info("a", "for information", 9.0, "us");
        report.judged("b", "small enough", 1.0, "%", Limit::at_most(1.0));
        assert!(report.is_met());
        report.judged("c", "too late", 101.0, "us", Limit::at_most(100.0));
        assert!(!report.is_met());
        assert_eq!(report.missed().map(|f| f.name).collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn table_lines_up() {
        let mut report = Report::default();
        report.judged("k", "500 us kernel", 505.2, "us", Limit::within(475.0, 525.0));
        report.judged("i", "idle", 3.0, "%", Limit::at_most(1.0));
        report.info("n", "info", 1.05, "");
        let expected = "500 us kernel  505.2 us  475 .. 525  met\n\
                        idle               3 %   <= 1        MISSED\n\
                        info            1.05\n";
        assert_eq!(report.to_string(), expected);
    }

    #[test]
    fn json_carries_limits_and_verdicts() {
        let mut report = Report::default();
        report.judged("i", "idle", 3.0, "%", Limit::at_most(1.0));
        report.info("n", "info", 1.5, "");
        let json = serde_json::to_value(&report).unwrap();
        let expected = serde_json::json!({"figures": [
            {"name": "i", "what": "idle", "value": 3.0, "unit": "%", "limit": {"max": 1.0}, "met": false},
            {"name": "n", "what": "info", "value": 1.5, "unit": ""},
        ]});
        assert_eq!(json, expected);
    }
}
