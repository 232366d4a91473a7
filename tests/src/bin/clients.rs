//! `make test-clients`: programs of others natively and with the library, compared (docs/newer-runtimes.md).

use std::path::PathBuf;
use std::process::ExitCode;

use tests::clients::{CLIENTS, Client, Clients};

const USAGE: &str = "usage: clients --python FILE [--env NAME=VALUE]... [NAME...]
FILE is a Python that has what the clients import; scripts/test-clients makes one.";

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
    if names.is_empty() {
        names = CLIENTS.iter().map(|client| client.name.to_owned()).collect();
    }
    for name in &names {
        Client::find(name)?;
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
