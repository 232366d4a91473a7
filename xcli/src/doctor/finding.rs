//! The findings of the doctor.

use crate::table::plain;
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// Worth knowing.
    Note,
    /// Something does not work because of it.
    Bad,
}

pub fn good(text: impl Into<String>) -> (Verdict, String) {
    (Verdict::Good, text.into())
}

pub fn note(text: impl Into<String>) -> (Verdict, String) {
    (Verdict::Note, text.into())
}

pub fn bad(text: impl Into<String>) -> (Verdict, String) {
    (Verdict::Bad, text.into())
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub verdict: Verdict,
    /// The subject, one word.
    pub about: &'static str,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// True if no finding is bad.
    pub ok: bool,
    pub findings: Vec<Finding>,
}

impl Default for Findings {
    fn default() -> Self {
        Self { ok: true, findings: Vec::new() }
    }
}

impl Findings {
    /// Adds a finding. Control characters in names and paths are replaced.
    pub fn add(&mut self, about: &'static str, (verdict, text): (Verdict, String)) {
        let text = plain(&text);
        self.findings.push(Finding { verdict, about, text });
        self.ok &= verdict != Verdict::Bad;
    }

    /// Formats each finding on a line.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let mark = match finding.verdict {
                Verdict::Good => "ok  ",
                Verdict::Note => "note",
                Verdict::Bad => "BAD ",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{mark}  {:9} {}", finding.about, finding.text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_finding_makes_the_result_bad() {
        let mut findings = Findings::default();
        findings.add("device", good("there"));
        findings.add("server", note("none"));
        assert!(findings.ok);
        findings.add("process", bad("gone\x1b[2J"));
        assert!(!findings.ok);
        let text = findings.text();
        assert_eq!(text.lines().count(), 3);
        assert!(text.starts_with("ok    device    there\n"), "{text}");
        assert!(!text.contains('\x1b'), "control characters are replaced");
        let json = serde_json::to_value(&findings).unwrap();
        assert_eq!((&json["ok"], &json["findings"][2]["verdict"]), (&false.into(), &"bad".into()));
    }
}
