//! `xcli doctor`: checks the machine, and finds out why a process is scheduled or not.
//!
//! [`machine`], [`system`] and [`view`] collect facts; the `judge` functions turn them into findings without
//! further look-ups.

pub mod finding;
mod machine;
mod process;
mod system;
mod view;

use crate::ask;
use crate::endpoint::Endpoint;
pub use finding::Findings;
use finding::{bad, good, note};
pub use machine::{Gpu, Machine};
use protocol::control::List;

/// Checks the machine, or a process.
pub fn look(endpoint: &Endpoint, pid: Option<u32>) -> Findings {
    let answer = ask::list(endpoint);
    let mut findings = Findings::default();
    let view = match pid.map(view::View::look).transpose() {
        Ok(view) => view,
        Err(error) => {
            findings.add("process", bad(error.to_string()));
            server(endpoint, &answer, &mut findings);
            return findings;
        }
    };
    let system = pid.is_none().then(system::System::look);
    let machine = machine::Machine::look(pid);
    machine::judge(&machine, system.as_ref().and_then(system::System::group), &mut findings);
    server(endpoint, &answer, &mut findings);
    let list = answer.as_ref().ok();
    if let Some(system) = system {
        let clients: Option<Vec<u32>> =
            list.map(|list| list.clients.iter().map(|client| client.pid.0).collect());
        let server = list.zip(clients.as_deref()).map(|(list, clients)| (list.server.pid.0, clients));
        system::judge(&system, machine.device.is_ok(), server, &mut findings);
    }
    if let Some(view) = view {
        let client = list.and_then(|list| list.clients.iter().find(|client| Some(client.pid.0) == pid));
        let held = list.and_then(|list| list.held.iter().find(|held| Some(held.pid.0) == pid));
        let server = process::Server {
            endpoint: endpoint.clone(),
            is_there: list.is_some(),
            is_on: list.is_some_and(|list| list.server.on),
            held: held.cloned(),
        };
        process::judge(&view, &server, client, &mut findings);
    }
    findings
}

fn server(endpoint: &Endpoint, answer: &anyhow::Result<List>, findings: &mut Findings) {
    match answer {
        Ok(list) => {
            let state = match list.server.on {
                true => "on".to_owned(),
                false => {
                    format!("off, so that every program runs (`{}` switches it on)", endpoint.command("on"))
                }
            };
            let text = format!(
                "xserver {} answers at {}: policy {}, {state}, {} connected",
                list.server.pid,
                endpoint.socket.display(),
                list.server.policy,
                list.clients.len()
            );
            findings.add("server", good(text));
        }
        Err(error) => {
            let absent = error
                .downcast_ref::<ask::Failure>()
                .is_some_and(|failure| matches!(failure.cause, ask::Cause::Absent));
            // Not every program needs a server; the findings about a process say if it does.
            let text = error.to_string();
            findings.add("server", if absent { note(text) } else { bad(text) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_server_is_a_note_and_missing_process_is_bad() {
        let folder = tempfile::tempdir().unwrap();
        let endpoint = Endpoint { socket: folder.path().join("xserver.sock"), ..Endpoint::default() };
        let mut findings = Findings::default();
        server(&endpoint, &ask::list(&endpoint), &mut findings);
        let text = findings.text();
        assert!(findings.ok && text.starts_with("note  server    no xserver runs: "), "{text}");
        // The device is not checked for a process that does not exist.
        let findings = look(&endpoint, Some(u32::MAX));
        let text = findings.text();
        assert!(text.starts_with("BAD   process   there is no process 4294967295\nnote  server"), "{text}");
        assert_eq!((findings.ok, text.lines().count()), (false, 2));
    }
}
