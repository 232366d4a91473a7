//! `xcli policy`: lists the policies and changes the one in force.

use crate::ask::{self, Cause, policies as ask_policies};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::output::{self, print, warn};
use crate::table::{self, Column, Line, plain};
use clap::{Arg, ArgMatches, Command, value_parser};
use policies::{named, registry};
use protocol::control::{Parameter, Policies, Policy, PolicyInForce, PolicyOrder, Request};
use protocol::ids::DeviceId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;

const COLUMNS: &[Column] =
    &[Column::words("POLICY"), Column::number("NUMBER"), Column::words("WHAT IT DOES")];

/// The arguments of `xcli policy`.
#[derive(Debug, clap::Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: Option<PolicyCommand>,
    /// Show only the policy in force, as XSched's xcli does
    #[arg(short = 'q', long, conflicts_with = "set")]
    query: bool,
    /// Put the policy of -n in force, as `xcli policy set` does
    #[arg(short = 's', long, requires = "name")]
    set: bool,
    /// The policy for -s
    #[arg(short = 'n', long, requires = "set", value_name = "POLICY")]
    name: Option<String>,
    /// Print JSON, as `xcli policy list --json`
    #[arg(long, conflicts_with = "set")]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    /// Show the policies, their parameters, and the policies in force
    List {
        /// Print JSON: `policies` with `name`, `long_name`, `number`, `description`, `advice`, `parameters`
        /// (`name`, `meaning`, `min`, `max`, `default`), `goes_by_priority`, `conserves_work`; `in_force`
        /// with `policy`, `values`, `device` (null for all devices without their own policy) and `counted`
        /// (by name, since it is in force); the `devices` that programs use
        #[arg(long)]
        json: bool,
    },
    /// Put a policy in force
    ///
    /// Parameters follow as `--NAME VALUE`, such as `xcli policy set EDF --slack-ms 5`; the others have their
    /// defaults. Programs keep running, and submitted work is not lost. Exit code 2 if the policy or
    /// parameter does not exist or a value is out of range.
    #[command(after_help = parameters_help())]
    Set {
        /// The policy
        policy: String,
        /// Only on this device, as `xcli list` names it [default: all devices without their own policy]
        #[arg(long, value_name = "ID")]
        device: Option<DeviceId>,
        #[command(flatten)]
        parameters: Parameters,
    },
    /// Remove a device's own policy, so that the policy of all devices applies to it
    Reset {
        /// The device, as `xcli list` names it
        #[arg(long, value_name = "ID")]
        device: DeviceId,
    },
}

/// The values of the options for parameters. The command line accepts the parameters of all policies.
#[derive(Debug, Default)]
struct Parameters(BTreeMap<String, f64>);

impl Parameters {
    fn names() -> BTreeSet<&'static str> {
        registry::POLICIES.iter().flat_map(|row| row.parameters).map(|parameter| parameter.name).collect()
    }
}

impl clap::FromArgMatches for Parameters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |name: &str| Some((name.to_owned(), *matches.get_one(name)?));
        Ok(Self(Self::names().into_iter().filter_map(value).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Parameters {
    fn augment_args(command: Command) -> Command {
        // The help lists them below the options, by policy.
        let option = |name| Arg::new(name).long(name).value_name("VALUE").hide(true);
        let number = |name| option(name).value_parser(value_parser!(f64)).allow_negative_numbers(true);
        command.args(Self::names().into_iter().map(number))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Runs the command.
///
/// # Errors
/// Wrong usage, or the server does not answer or refuses.
pub fn run(args: &PolicyArgs, endpoint: &Endpoint) -> anyhow::Result<()> {
    match &args.command {
        // clap cannot check this without refusing the global options as well.
        Some(_) if args.query || args.set => {
            Err(Error::Usage("-q and -s cannot be combined with a command: leave one of them out").into())
        }
        Some(PolicyCommand::List { json }) => list(endpoint, *json || args.json),
        Some(PolicyCommand::Set { policy, device, parameters }) => set(endpoint, policy, *device, parameters),
        Some(PolicyCommand::Reset { device }) => reset(endpoint, *device),
        None => match &args.name {
            Some(name) => set(endpoint, name, None, &Parameters::default()),
            None if args.query && !args.json => {
                let policies = ask_policies(endpoint)?;
                Ok(print(&in_force(&policies.in_force, true))?)
            }
            None => list(endpoint, args.json),
        },
    }
}

fn list(endpoint: &Endpoint, json: bool) -> anyhow::Result<()> {
    let policies = ask_policies(endpoint).or_else(|error| match error.downcast_ref::<ask::Failure>() {
        Some(failure) if matches!(failure.cause, Cause::Absent) => {
            warn(format_args!("no xserver runs; the policies of this build are:"));
            Ok(Policies { policies: named::all(), in_force: Vec::new(), devices: Vec::new() })
        }
        _ => Err(error),
    })?;
    output::show(json, &policies, || text(&policies, table::terminal_width(io::stdout())))
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

/// Formats each policy in force on a line, optionally followed by its counters.
fn in_force(all: &[PolicyInForce], counts: bool) -> String {
    let mut text = String::new();
    for PolicyInForce { ruling, counted } in all {
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

fn set(
    endpoint: &Endpoint,
    policy: &str,
    device: Option<DeviceId>,
    parameters: &Parameters,
) -> anyhow::Result<()> {
    let ruling = PolicyOrder { policy: policy.to_owned(), values: parameters.0.clone(), device };
    let choice = match named::choice(&ruling) {
        Ok(choice) => choice,
        Err(error) => return Err(Error::Policy(error).into()),
    };
    if let Some(remark) = named::remark(&choice) {
        warn(remark);
    }
    ask::order(
        endpoint,
        &Request::SetPolicy(PolicyOrder { policy: choice.row.kind.name().to_owned(), ..ruling }),
    )?;
    show(endpoint, device)
}

fn reset(endpoint: &Endpoint, device: DeviceId) -> anyhow::Result<()> {
    ask::order(endpoint, &Request::ResetPolicy { device })?;
    show(endpoint, None)
}

/// Prints the policies in force, and a warning if no program uses the device.
fn show(endpoint: &Endpoint, device: Option<DeviceId>) -> anyhow::Result<()> {
    let policies = ask_policies(endpoint)?;
    print(&in_force(&policies.in_force, false))?;
    if let Some(device) = device.filter(|device| !policies.devices.contains(device)) {
        let list = plain(&endpoint.command("list"));
        warn(format_args!(
            "no connected program uses device {device} yet; `{list}` shows the devices in use"
        ));
    }
    Ok(())
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

    #[test]
    fn list_shows_policies_in_force_and_available() {
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
