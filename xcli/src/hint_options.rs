//! The options for hints, of a running program (`xcli hint`) and of a program to start (`xcli run`). They follow from the
//! table of hints.

use clap::builder::{PossibleValuesParser, TypedValueParser as _, ValueParser};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches};
use protocol::control::HintUpdate;
use protocol::hint::table::{HINTS, HintSpec, Values};

/// The hints of a command line, in the order of the table. A program to start takes only the hints that have a variable
/// (`RUNNING` is false).
#[derive(Debug)]
pub struct HintOptions<const RUNNING: bool> {
    pub hints: Vec<HintUpdate>,
}

impl<const RUNNING: bool> HintOptions<RUNNING> {
    fn specs() -> impl Iterator<Item = &'static HintSpec> {
        HINTS.iter().filter(|spec| RUNNING || spec.variable.is_some())
    }

    /// Returns for each hint its option, its variable and the variable's value, which is missing if the hint is taken back.
    pub fn variables(&self) -> Vec<(String, &'static str, Option<String>)> {
        let variable = |said: &HintUpdate| {
            let spec = said.spec();
            Some((format!("--{}", spec.name), spec.variable.as_ref()?.name, said.text()))
        };
        self.hints.iter().filter_map(variable).collect()
    }
}

impl<const RUNNING: bool> clap::FromArgMatches for HintOptions<RUNNING> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let of_row = |spec: &HintSpec| match spec.values {
            Values::Flag => matches.get_flag(spec.name).then(|| spec.from_number(1)).flatten(),
            _ => matches.get_one::<HintUpdate>(spec.name).copied(),
        };
        Ok(Self { hints: Self::specs().filter_map(of_row).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<const RUNNING: bool> clap::Args for HintOptions<RUNNING> {
    fn group_id() -> Option<clap::Id> {
        Some("hints".into())
    }

    fn augment_args(command: clap::Command) -> clap::Command {
        let group =
            ArgGroup::new("hints").multiple(true).required(RUNNING).args(Self::specs().map(|spec| spec.name));
        Self::specs().fold(command, |command, spec| command.arg(option(spec))).group(group)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

fn option(spec: &'static HintSpec) -> Arg {
    let back = spec.take_back_text();
    let first = spec.meaning[..1].to_uppercase();
    let arg = Arg::new(spec.name).long(spec.name).help(format!("{first}{}{back}", &spec.meaning[1..]));
    let arg = match spec.short {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    let parser: ValueParser = match &spec.values {
        Values::Flag => return arg.action(ArgAction::SetTrue),
        // The words are shown by shell completions.
        Values::Word(words) => PossibleValuesParser::new(words.iter().map(|(word, _)| *word))
            .try_map(|word| spec.parse(&word))
            .into(),
        _ => ValueParser::from(|word: &str| spec.parse(word)),
    };
    let negative = match &spec.values {
        Values::Number(range) => *range.start() < 0 || spec.take_back.is_some(),
        _ => spec.take_back.is_some(),
    };
    arg.value_name(spec.placeholder)
        .value_parser(parser)
        .allow_hyphen_values(negative)
        .hide_possible_values(true)
}
