//! `xcli doctor`: what this machine offers, and why a process is scheduled or is not, in sentences that are true.
//!
//! What there is to see is collected first ([`machine`], [`system`], [`view`]), and judged by functions that look at nothing else.

mod machine;
mod process;
mod system;
mod view;

use crate::ask::{self, Failure};
use crate::place::Place;
use crate::table::plain;
pub use machine::{Gpu, Machine};
use protocol::control::{List, Reply, Request};
use serde::Serialize;
use std::fmt::Write as _;

/// How good a finding is.
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

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    verdict: Verdict,
    /// What it is about, one word.
    about: &'static str,
    text: String,
}

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Report {
    /// Whether nothing is bad.
    ok: bool,
    findings: Vec<Finding>,
}

impl Report {
    fn add(&mut self, verdict: Verdict, about: &'static str, text: impl Into<String>) {
        // Names and paths come from outside.
        let text = plain(&text.into());
        self.findings.push(Finding { verdict, about, text });
        self.ok = self.findings.iter().all(|finding| finding.verdict != Verdict::Bad);
    }

    /// Whether nothing is bad.
    pub fn is_ok(&self) -> bool {
        self.ok
    }

    /// One line for each finding.
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

/// Looks at the machine, and at a process if one is named.
pub fn look(place: &Place, pid: Option<u32>) -> Report {
    let answer = ask::ask(place, &Request::List).map(|reply| match reply {
        Reply::List(list) => Some(list),
        _ => None,
    });
    let answer = match answer {
        Ok(Some(list)) => Ok(list),
        Ok(None) => Err(None),
        Err(failure) => Err(Some(failure)),
    };
    let mut report = Report { ok: true, findings: Vec::new() };
    // Of one that is not there nothing else can be said.
    let view = match pid.map(view::View::look).transpose() {
        Ok(view) => view,
        Err(why) => {
            report.add(Verdict::Bad, "process", why);
            server(place, &answer, &mut report);
            return report;
        }
    };
    let system = pid.is_none().then(system::System::look);
    let machine = machine::Machine::look(pid);
    machine::judge(&machine, system.as_ref().and_then(system::System::group), &mut report);
    server(place, &answer, &mut report);
    if let Some(system) = system {
        let clients: Option<Vec<u32>> =
            answer.as_ref().ok().map(|list| list.clients.iter().map(|client| client.pid.0).collect());
        let server = answer.as_ref().ok().zip(clients.as_deref());
        let server = server.map(|(list, clients)| (list.server.pid.0, clients));
        system::judge(&system, machine.device.is_ok(), server, &mut report);
    }
    if let Some(view) = view {
        let list = answer.as_ref().ok();
        let client = list.and_then(|list| list.clients.iter().find(|client| Some(client.pid.0) == pid));
        let held = list.and_then(|list| list.held.iter().find(|held| Some(held.pid.0) == pid));
        let server = process::Server {
            place: place.clone(),
            is_there: list.is_some(),
            is_on: list.is_some_and(|list| list.server.on),
            held: held.cloned(),
        };
        process::judge(&view, &server, client, &mut report);
    }
    report
}

fn server(place: &Place, answer: &Result<List, Option<Failure>>, report: &mut Report) {
    match answer {
        Ok(list) => report.add(
            Verdict::Good,
            "server",
            format!(
                "xserver {} at {} answers: policy {}, {}, {} connected",
                list.server.pid,
                place.socket.display(),
                list.server.policy,
                if list.server.on {
                    "on".to_owned()
                } else {
                    format!("switched off, so that everybody runs (`{}`)", place.command("on"))
                },
                list.clients.len()
            ),
        ),
        Err(Some(failure)) => {
            let absent = matches!(failure.cause, ask::Cause::Absent);
            // There need be none; what is said of a process says whether it needs one.
            let verdict = if absent { Verdict::Note } else { Verdict::Bad };
            report.add(verdict, "server", failure.to_string());
        }
        Err(None) => report.add(Verdict::Bad, "server", "the server answers something else than a list"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_not_there_is_only_noted() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { socket: folder.path().join("xserver.sock"), ..Place::default() };
        let mut report = Report { ok: true, ..Report::default() };
        let Err(failure) = ask::ask(&place, &Request::List) else { panic!("nobody is there") };
        server(&place, &Err(Some(failure)), &mut report);
        let text = report.text();
        assert!(report.is_ok() && text.starts_with("note  server    no xserver runs here"), "{text}");
        // But a process that is not there is bad, and nothing is said of a device that it would see.
        let report = look(&place, Some(u32::MAX));
        let text = report.text();
        assert!(text.starts_with("BAD   process   there is no process 4294967295\nnote  server"), "{text}");
        assert_eq!((report.is_ok(), text.lines().count()), (false, 2));
    }

    #[test]
    fn a_report_is_bad_if_anything_is() {
        let mut report = Report { ok: true, ..Report::default() };
        report.add(Verdict::Good, "device", "there");
        report.add(Verdict::Note, "server", "none");
        assert!(report.is_ok());
        report.add(Verdict::Bad, "process", "gone\x1b[2J");
        assert!(!report.is_ok());
        let text = report.text();
        assert_eq!(text.lines().count(), 3);
        assert!(text.starts_with("ok    device    there\n"), "{text}");
        assert!(!text.contains('\x1b'), "nothing that a name holds does anything to the terminal");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["ok"], &json["findings"][2]["verdict"]), (&false.into(), &"bad".into()));
    }
}
