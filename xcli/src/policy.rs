//! The policies of a server: shown, and chosen while programs run.

use crate::ask::{self, Cause};
use crate::place::{self, Place};
use crate::say;
use crate::table::{self, Column, Line, plain};
use crate::usage::usage;
use anyhow::bail;
use clap::Parser as _;
use policies::registry::{self, Row};
use policies::{ParameterError, named};
use protocol::control::{InForce, Parameter, Policies, Policy, Reply, Request, Ruling};
use protocol::ids::DeviceId;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

const COLUMNS: &[Column] = &[
    Column { title: "POLICY", words: true, gives_way: false },
    Column { title: "NUMBER", words: false, gives_way: false },
    Column { title: "WHAT IT DOES", words: true, gives_way: false },
];

/// `xcli policy`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: Option<PolicyCommand>,
    /// Show only which policy is in force, as XSched's xcli does
    #[arg(short = 'q', long, conflicts_with = "set")]
    query: bool,
    /// Let the policy of -n decide, as `xcli policy set` does
    #[arg(short = 's', long, requires = "name")]
    set: bool,
    /// The policy of -s
    #[arg(short = 'n', long, requires = "set", value_name = "POLICY")]
    name: Option<String>,
    /// Print JSON, as `xcli policy list --json`
    #[arg(long, conflicts_with = "set")]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    /// Show the policies, what can be set of each, and which are in force
    List {
        /// Print JSON: `policies` with `name`, `long_name`, `number`, `description`, `advice`, `parameters` (`name`, `meaning`,
        /// `min`, `max`, `default`), `goes_by_priority`, `conserves_work`; `in_force` with `policy`, `values`, `device` (null
        /// for all that have none of their own) and `counted` (by name, since it began); the `devices` that programs use
        #[arg(long)]
        json: bool,
    },
    /// Let a policy decide from now on
    ///
    /// Its parameters follow as `--NAME VALUE`, such as `xcli policy set EDF --slack-ms 5`; those that are not named have their
    /// defaults. No program is stopped and nothing that it has submitted is lost. Exit code 2 if there is no such policy,
    /// parameter or value.
    #[command(after_help = parameters_help())]
    Set {
        /// The policy
        policy: String,
        /// Only on this device, by its number in `xcli list` [default: all devices that have no policy of their own]
        #[arg(long, value_name = "ID")]
        device: Option<u32>,
        /// The policy's parameters, as `--NAME VALUE`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PARAMETERS")]
        words: Vec<String>,
    },
    /// Take a device's own policy away, so that the one of all devices decides there
    Reset {
        /// The device, by its number in `xcli list`
        #[arg(long, value_name = "ID")]
        device: u32,
    },
}

/// What may stand between a policy's parameters.
#[derive(Debug, clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Between {
    #[arg(long)]
    device: Option<u32>,
    #[arg(short = 'p', long, value_parser = place::instance)]
    instance: Option<String>,
    #[arg(short = 'a', long, value_parser = place::address)]
    address: Option<place::Address>,
}

/// Does it.
///
/// # Errors
/// Wrong usage, or the server cannot be asked or refuses.
pub fn run(args: &PolicyArgs, place: &Place) -> anyhow::Result<()> {
    match &args.command {
        Some(PolicyCommand::List { json }) => list(place, *json),
        Some(PolicyCommand::Set { policy, device, words }) => set(place, policy, *device, words),
        Some(PolicyCommand::Reset { device }) => reset(place, DeviceId(*device)),
        None => match &args.name {
            Some(name) => set(place, name, None, &[]),
            None if args.query && !args.json => {
                let policies = ask_policies(place)?;
                Ok(say(&in_force(&policies.in_force, true))?)
            }
            None => list(place, args.json),
        },
    }
}

fn ask_policies(place: &Place) -> anyhow::Result<Policies> {
    match ask::ask(place, &Request::Policies)? {
        Reply::Policies(policies) => Ok(policies),
        other => bail!("the server answers something else than its policies: {other:?}"),
    }
}

fn list(place: &Place, json: bool) -> anyhow::Result<()> {
    let policies = match ask::ask(place, &Request::Policies) {
        Err(failure) if matches!(failure.cause, Cause::Absent) => {
            eprintln!("xcli: no xserver runs here; these are the policies that one would have");
            Policies { policies: named::all(), in_force: Vec::new(), devices: Vec::new() }
        }
        Err(failure) => return Err(failure.into()),
        Ok(Reply::Policies(policies)) => policies,
        Ok(other) => bail!("the server answers something else than its policies: {other:?}"),
    };
    Ok(say(&match json {
        true => serde_json::to_string_pretty(&policies)? + "\n",
        false => text(&policies, table::terminal_width(io::stdout())),
    })?)
}

fn text(policies: &Policies, terminal: Option<usize>) -> String {
    let line = |policy: &Policy| {
        let row = vec![plain(&policy.name), policy.number.to_string(), plain(&policy.description)];
        std::iter::once(Line::Row(row))
            .chain(policy.parameters.iter().map(parameter).map(Line::Remark))
            .collect()
    };
    let lines: Vec<Line> =
        policies.policies.iter().flat_map(|policy| -> Vec<Line> { line(policy) }).collect();
    in_force(&policies.in_force, true) + &table::text(COLUMNS, &lines, terminal)
}

fn parameter(parameter: &Parameter) -> String {
    let Parameter { name, meaning, min, max, default } = parameter;
    format!("--{} {min}..{max}, default {default}: {}", plain(name), plain(meaning))
}

/// Which policy decides where, a line each, and, if that is asked for, what it has counted, if it counts.
fn in_force(all: &[InForce], counts: bool) -> String {
    let mut text = String::new();
    for InForce { ruling, counted } in all {
        let policy = plain(&named::text(ruling));
        // Writing to a String cannot fail.
        let _ = match ruling.device {
            None => writeln!(text, "in force: {policy}"),
            Some(device) => writeln!(text, "in force on device {device}: {policy}"),
        };
        if counts && !counted.is_empty() {
            let counts: Vec<_> =
                counted.iter().map(|(name, count)| format!("{} {count}", plain(name))).collect();
            let _ = writeln!(text, "  counted: {}", counts.join(", "));
        }
    }
    text
}

fn set(place: &Place, policy: &str, device: Option<u32>, words: &[String]) -> anyhow::Result<()> {
    let row = match registry::by_name(policy) {
        Ok(row) => row,
        Err(error) => return usage(error),
    };
    let (values, between) = split(row, words)?;
    if device.is_some() && between.device.is_some() {
        return usage("--device stands there twice");
    }
    let other = between.address.is_some() || between.instance.is_some();
    let other = if other { Some(Place::new(between.address, between.instance.as_deref())?) } else { None };
    let place = other.as_ref().unwrap_or(place);
    let device = device.or(between.device).map(DeviceId);
    let ruling = Ruling { policy: row.kind.name().to_owned(), values, device };
    order(place, &Request::SetPolicy(ruling))?;
    show(place, device)
}

fn reset(place: &Place, device: DeviceId) -> anyhow::Result<()> {
    order(place, &Request::ResetPolicy { device })?;
    show(place, None)
}

fn order(place: &Place, request: &Request) -> anyhow::Result<()> {
    match ask::ask(place, request)? {
        Reply::Done => Ok(()),
        other => bail!("the server answers something that makes no sense here: {other:?}"),
    }
}

/// What is in force now, and whether that can be seen anywhere yet.
fn show(place: &Place, device: Option<DeviceId>) -> anyhow::Result<()> {
    let policies = ask_policies(place)?;
    say(&in_force(&policies.in_force, false))?;
    if let Some(device) = device.filter(|device| !policies.devices.contains(device)) {
        eprintln!(
            "xcli: no connected program uses device {device} yet; `xcli list` shows those that are used"
        );
    }
    Ok(())
}

/// The policy's parameters, and whatever else stands between them.
fn split(row: &Row, words: &[String]) -> anyhow::Result<(BTreeMap<String, f64>, Between)> {
    let mut values = BTreeMap::new();
    let mut others = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word.as_str(), None),
        };
        let of_xcli = ["--device", "--instance", "--address", "-p", "-a"].contains(&name);
        let Some(parameter) = name.strip_prefix("--").filter(|_| !of_xcli) else {
            others.push(word.clone());
            if of_xcli && value.is_none() {
                others.extend(words.next().cloned());
            }
            continue;
        };
        let Some(known) = row.parameters.iter().find(|known| known.name == parameter) else {
            let names = row.parameters.iter().map(|known| known.name).collect();
            return usage(format!(
                "policy {}: {}",
                row.kind,
                ParameterError::Unknown(parameter.to_owned(), names)
            ));
        };
        let value = value.or_else(|| words.next().map(String::as_str)).unwrap_or_default();
        let refused = || format!("policy {}: {}", row.kind, ParameterError::Range(*known, value.to_owned()));
        match value.parse::<f64>() {
            Ok(number) if (known.range.0..=known.range.1).contains(&number) => {
                if values.insert(parameter.to_owned(), number).is_some() {
                    return usage(format!("--{parameter} stands there twice"));
                }
            }
            _ => return usage(refused()),
        }
    }
    match Between::try_parse_from(&others) {
        Ok(between) => Ok((values, between)),
        Err(_) => usage(format!(
            "policy {}: parameters are written as --NAME VALUE, not as {:?}",
            row.kind,
            others.join(" ")
        )),
    }
}

/// The parameters of all policies, for `xcli policy set --help`.
fn parameters_help() -> String {
    let mut text = String::from("Policies and their parameters:\n");
    for policy in named::all() {
        let _ = writeln!(text, "  {}", policy.name);
        for one in &policy.parameters {
            let _ = writeln!(text, "    {}", parameter(one));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list;
    use crate::usage::Usage;

    /// HPF with something to set.
    fn row() -> Row {
        let slack =
            policies::Parameter { name: "slack-ms", meaning: "how much", range: (0.0, 1e3), default: 5.0 };
        let share = policies::Parameter { name: "share", meaning: "of it", range: (0.0, 1.0), default: 0.5 };
        let parameters: &'static [_] = Box::leak(Box::new([slack, share]));
        Row { parameters, ..*registry::DEFAULT }
    }

    fn split_line(line: &str) -> Result<(BTreeMap<String, f64>, Between), String> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        split(&row(), &words).map_err(|error| error.downcast::<Usage>().expect("wrong usage").0)
    }

    #[test]
    fn parameters_stand_in_any_order_and_form() {
        let (values, between) = split_line("--slack-ms 2.5 --device 7 --share=1 -p night").unwrap();
        assert_eq!(values.into_iter().collect::<Vec<_>>(), [("share".into(), 1.0), ("slack-ms".into(), 2.5)]);
        assert_eq!((between.device, between.instance.as_deref()), (Some(7), Some("night")));
        assert!(split_line("").unwrap().0.is_empty());
    }

    #[test]
    fn what_is_wrong_is_named_with_what_there_is() {
        for (line, want) in [
            ("--slack 5", "policy HPF: no parameter \"slack\": this policy has slack-ms, share"),
            ("--slack-ms five", "policy HPF: slack-ms \"five\" is not a number in 0..1000"),
            ("--slack-ms -1", "policy HPF: slack-ms \"-1\" is not a number in 0..1000"),
            ("--slack-ms", "policy HPF: slack-ms \"\" is not a number in 0..1000"),
            ("--share nan", "policy HPF: share \"nan\" is not a number in 0..1"),
            ("--share 1 --share 0", "--share stands there twice"),
            ("slack-ms 5", "policy HPF: parameters are written as --NAME VALUE, not as \"slack-ms 5\""),
            ("--device x", "policy HPF: parameters are written as --NAME VALUE, not as \"--device x\""),
        ] {
            assert_eq!(split_line(line).unwrap_err(), want, "{line}");
        }
    }

    #[test]
    fn a_list_says_what_is_in_force_and_what_there_is() {
        let slack = Parameter {
            name: "slack-ms".to_owned(),
            meaning: "How much.".to_owned(),
            min: 0.0,
            max: 1e3,
            default: 5.0,
        };
        let mut all = named::all();
        all.truncate(1);
        all[0].parameters = vec![slack];
        all[0].description = "One.".to_owned();
        let mut in_force =
            vec![list::tests::in_force("HPF", None), list::tests::in_force("HPF", Some(51_234))];
        in_force[0].counted = [("hit".to_owned(), 3), ("missed".to_owned(), 1)].into();
        in_force[1].ruling.values = [("slack-ms".to_owned(), 0.5)].into();
        let policies = Policies { policies: all, in_force, devices: vec![] };
        let want = "\
in force: HPF
  counted: hit 3, missed 1
in force on device 51234: HPF slack-ms=0.5
POLICY  NUMBER  WHAT IT DOES
HPF          1  One.
  --slack-ms 0..1000, default 5: How much.
";
        assert_eq!(text(&policies, None), want);
    }
}
