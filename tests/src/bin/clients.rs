//! `make test-clients`: programs of others natively and with the library, compared (docs/newer-runtimes.md).

use std::path::PathBuf;
use std::process::ExitCode;

use tests::clients::{CLIENTS, Client, Clients};
use tests::hip_major;

const USAGE: &str = "usage: clients --python FILE [--env NAME=VALUE]... [NAME...]
FILE is a Python that has what the clients import; scripts/test-clients makes one. Without names it compares the clients
for the HIP that is installed.";

fn compare() -> Result<bool, String> {
    let (mut python, mut env, mut names) = (None, Vec::new(), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        match word.as_str() {
            "--python" => python = arguments.next().map(PathBuf::from),
            "--env" => {
                let pair = arguments.next().ok_or(USAGE)?;
                let (name, value) = pair.split_once('=').ok_or(USAGE)?;
                env.push((name.to_owned(), value.to_owned()));
            }
            _ if word.starts_with("--") => return Err(USAGE.to_owned()),
            _ => names.push(word),
        }
    }
    let hip = hip_major();
    if names.is_empty() {
        let here = CLIENTS.iter().filter(|client| client.runs_on(hip));
        names = here.map(|client| client.name.to_owned()).collect();
    }
    for name in &names {
        if !Client::find(name)?.runs_on(hip) {
            return Err(format!("{name} needs another HIP than {hip}; scripts/test-clients {name} has it"));
        }
    }
    let clients = Clients::new(python.ok_or(USAGE)?, env)?;
    let (mut passed, mut failed) = (0, 0);
    for name in names {
        let (well, badly) = clients.compare(&name, |line| println!("{line}"))?;
        passed += well;
        failed += badly;
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}

fn main() -> ExitCode {
    match compare() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}
