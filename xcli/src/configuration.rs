//! `xcli config`: the configuration in force.

use crate::ask::{ask, unexpected};
use crate::endpoint::Endpoint;
use crate::output;
use crate::table::{self, Column, Line, plain};
use protocol::control::{ConfigInForce, ConfigOrigin, Reply, Request};
use std::io;

/// Prints the configuration.
///
/// # Errors
/// The server does not answer or refuses.
pub fn show(endpoint: &Endpoint, json: bool) -> anyhow::Result<()> {
    match ask(endpoint, &Request::Config)? {
        Reply::Config(config) => {
            output::show(json, &config, || text(&config, table::terminal_width(io::stdout())))
        }
        other => Err(unexpected(&other)),
    }
}

fn text(config: &ConfigInForce, terminal: Option<usize>) -> String {
    let Some(file) = &config.file else {
        return "this server serves one user and has no configuration file\n".to_owned();
    };
    let columns = &[Column::names("KEY"), Column::names("FROM"), Column::words("VALUE")];
    let row = |key: &protocol::control::ConfigKey| {
        let from = match key.from {
            ConfigOrigin::Default => "default",
            ConfigOrigin::File => "file",
            ConfigOrigin::Request => "request",
        };
        Line::Row(vec![plain(&key.name), from.to_owned(), plain(&key.value)])
    };
    let rows: Vec<_> = config.keys.iter().map(row).collect();
    format!(
        "configuration file {}\n{}",
        plain(&file.to_string_lossy()),
        table::text(columns, &rows, terminal)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::control::ConfigKey;

    #[test]
    fn keys_are_shown_with_their_origin() {
        let key = |name: &str, value: &str, from| ConfigKey { name: name.into(), value: value.into(), from };
        let keys = vec![
            key("policy.name", "\"FAIR\"", ConfigOrigin::Request),
            key("limits.queues_per_user", "5", ConfigOrigin::File),
        ];
        let shown = text(&ConfigInForce { file: Some("/etc/g.toml".into()), keys }, None);
        let lines: Vec<_> =
            shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "configuration file /etc/g.toml",
                "KEY FROM VALUE",
                "policy.name request \"FAIR\"",
                "limits.queues_per_user file 5"
            ]
        );
        let none = text(&ConfigInForce { file: None, keys: Vec::new() }, None);
        assert_eq!(none, "this server serves one user and has no configuration file\n");
    }
}
