//! `xcli config`: the configuration in force, and settings of queues.

use crate::ask::{ask, order, unexpected};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::hint::queue;
use crate::output;
use crate::table::{self, Column, Line, plain};
use protocol::control::{ConfigInForce, ConfigOrigin, QueueSettings, Reply, Request, Target};
use protocol::ids::{Pid, QueueId};
use std::io;
use std::num::NonZeroU32;

/// The arguments of `xcli config`.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// A queue by its number in `xcli list`; needs --pid if several programs have a queue of that number
    #[arg(short = 'x', long = "queue", visible_alias = "xqueue", value_name = "QUEUE", value_parser = queue)]
    queue: Option<u64>,
    /// A process. Without -x, the settings apply to all queues that the process has now
    #[arg(long)]
    pid: Option<u32>,
    /// The requested preemption level, 1 to 3. A level that is not possible on the machine is logged by the program's
    /// library and stays as it was
    #[arg(short, long, value_parser = setting, allow_hyphen_values = true)]
    level: Option<Setting>,
    /// The most commands in flight, from 1 on. The window of the queue no longer adapts
    #[arg(short, long, value_parser = setting, allow_hyphen_values = true)]
    threshold: Option<Setting>,
    /// Commands from one point at which completion is observed to the next, from 1 on; one above the threshold counts as
    /// the threshold. For all three, 0 and -1 keep the present value
    #[arg(short, long = "batch-size", visible_alias = "batch", value_name = "BATCH", value_parser = setting, allow_hyphen_values = true)]
    batch_size: Option<Setting>,
    /// Print JSON: `file`, and the `keys` with `name`, `value` and `from`
    #[arg(long, conflicts_with_all = ["queue", "pid", "level", "threshold", "batch_size"])]
    json: bool,
}

/// A number that is given, or `None` to keep the present one.
#[derive(Debug, Clone, Copy)]
struct Setting(Option<NonZeroU32>);

/// Parses a setting. XSched's users write 0 or -1 to keep a value.
fn setting(word: &str) -> Result<Setting, String> {
    match word.parse::<i64>() {
        Ok(-1..=0) => Ok(Setting(None)),
        Ok(number @ 1..=0x7fff_ffff) => Ok(Setting(u32::try_from(number).ok().and_then(NonZeroU32::new))),
        _ => Err("expected a number from 1 to 2147483647, or 0 to keep the present value".to_owned()),
    }
}

impl ConfigArgs {
    /// Returns the settings for queues; none if the command is to show the configuration.
    fn settings(&self) -> anyhow::Result<Option<(Target, QueueSettings)>> {
        let of = Target { pid: self.pid.map(Pid), queue: self.queue.map(QueueId) };
        let number = |setting: Option<Setting>| setting.and_then(|Setting(number)| number);
        let level = match number(self.level).map(NonZeroU32::get) {
            None => None,
            Some(level @ 1..=3) => u8::try_from(level).ok(),
            Some(_) => return Err(Error::Usage("a preemption level is 1, 2 or 3").into()),
        };
        let (threshold, batch_size) = (number(self.threshold), number(self.batch_size));
        let settings = QueueSettings { level, threshold, batch_size };
        let is_given = [self.level, self.threshold, self.batch_size].iter().any(Option::is_some);
        match (of == Target::default(), is_given) {
            (true, false) => Ok(None),
            (true, true) => Err(Error::Usage("specify a target: -x QUEUE or --pid PID").into()),
            (false, _) if settings == QueueSettings::default() => {
                Err(Error::Usage("specify a setting: --level, --threshold or --batch-size").into())
            }
            (false, _) => Ok(Some((of, settings))),
        }
    }
}

/// Shows the configuration, or changes settings of queues.
///
/// # Errors
/// Wrong usage; the server does not answer or refuses.
pub fn run(args: &ConfigArgs, endpoint: &Endpoint) -> anyhow::Result<()> {
    let Some((of, settings)) = args.settings()? else { return show(endpoint, args.json) };
    order(endpoint, &Request::Configure { of, settings })?;
    Ok(output::print(&format!("configured: {of}; `{}` shows its level\n", endpoint.command("list")))?)
}

/// Prints the configuration.
fn show(endpoint: &Endpoint, json: bool) -> anyhow::Result<()> {
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
    fn settings_are_parsed_as_xscheds_users_write_them() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: ConfigArgs,
        }
        let settings = |words: &[&str]| {
            let line = <Line as clap::Parser>::try_parse_from([&["config"], words].concat());
            line.map_err(anyhow::Error::from).and_then(|line| line.args.settings())
        };
        assert!(settings(&[]).unwrap().is_none() && settings(&["--json"]).unwrap().is_none());
        let (of, given) = settings(&["-x", "0x10", "-l", "3", "-t", "-1", "-b", "0"]).unwrap().unwrap();
        assert_eq!(of, Target { pid: None, queue: Some(QueueId(16)) });
        assert_eq!(given, QueueSettings { level: Some(3), ..QueueSettings::default() });
        let (of, given) =
            settings(&["--pid", "4", "--threshold", "8", "--batch-size", "4"]).unwrap().unwrap();
        assert_eq!(of, Target { pid: Some(Pid(4)), queue: None });
        assert_eq!(
            given,
            QueueSettings { level: None, threshold: NonZeroU32::new(8), batch_size: NonZeroU32::new(4) }
        );
        for wrong in [
            &["-t", "8"][..],
            &["-x", "1"],
            &["-x", "1", "-t", "0"],
            &["-x", "1", "-l", "4"],
            &["-x", "1", "-t", "-2"],
            &["-x", "1", "-b", "x"],
            &["-x", "1", "--json"],
        ] {
            assert!(settings(wrong).is_err(), "{wrong:?}");
        }
    }

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
