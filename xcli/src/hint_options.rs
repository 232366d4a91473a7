//! The options for hints, of a running program (`xcli hint`) and of a program to start (`xcli run`). They follow from the
//! table of hints.
//!
//! A priority can be given by a name, which only the server knows ([`HintOptions::resolve`]).

use crate::ask::{self, Cause, Failure, unexpected};
use crate::endpoint::Endpoint;
use anyhow::{Context as _, bail};
use clap::builder::{PossibleValuesParser, TypedValueParser as _, ValueParser};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches};
use protocol::bounds::Priority;
use protocol::control::{HintUpdate, Reply, Request};
use protocol::hint::table::{HINTS, HintKind, HintSpec, Values};
use std::collections::BTreeMap;

/// The hints of a command line, in the order of the table. A program to start takes only the hints that have a variable
/// (`RUNNING` is false).
#[derive(Debug)]
pub struct HintOptions<const RUNNING: bool> {
    words: Vec<Word>,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Hint(HintUpdate),
    /// The name of a priority.
    Name(String),
}

impl Word {
    /// Reads a priority or the name of one.
    fn priority(word: &str) -> Result<Self, String> {
        match word.trim() {
            name if name.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                Ok(Self::Name(name.to_owned()))
            }
            number => HintKind::Priority.spec().parse(number).map(Self::Hint),
        }
    }
}

impl<const RUNNING: bool> HintOptions<RUNNING> {
    fn specs() -> impl Iterator<Item = &'static HintSpec> {
        HINTS.iter().filter(|spec| RUNNING || spec.variable.is_some())
    }

    /// Returns the hints. The server tells the number of a priority that is given by its name.
    ///
    /// # Errors
    /// The server does not answer, or has no such name.
    pub fn resolve(&self, endpoint: &Endpoint) -> anyhow::Result<Vec<HintUpdate>> {
        let hint = |word: &Word| match word {
            Word::Hint(hint) => Ok(*hint),
            Word::Name(name) => {
                let names =
                    priorities(endpoint).with_context(|| format!("the priority {name:?} is a name"))?;
                number(name, &names).map(HintUpdate::Priority)
            }
        };
        self.words.iter().map(hint).collect()
    }

    /// Returns true if a priority is given by its name.
    pub fn has_name(&self) -> bool {
        self.words.iter().any(|word| matches!(word, Word::Name(_)))
    }

    /// Returns true if all hints are of this kind.
    pub fn all(&self, is: impl Fn(&HintSpec) -> bool) -> bool {
        self.words.iter().all(|word| match word {
            Word::Hint(hint) => is(hint.spec()),
            Word::Name(_) => is(HintKind::Priority.spec()),
        })
    }
}

impl<const RUNNING: bool> clap::FromArgMatches for HintOptions<RUNNING> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let of_row = |spec: &HintSpec| match spec.values {
            Values::Flag => {
                matches.get_flag(spec.name).then(|| spec.from_number(1)).flatten().map(Word::Hint)
            }
            _ => matches.get_one::<Word>(spec.name).cloned(),
        };
        Ok(Self { words: Self::specs().filter_map(of_row).collect() })
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

/// Returns for each hint its option, its variable and the variable's value, which is missing if the hint is taken back.
pub fn variables(hints: &[HintUpdate]) -> Vec<(String, &'static str, Option<String>)> {
    let variable = |said: &HintUpdate| {
        let spec = said.spec();
        Some((format!("--{}", spec.name), spec.variable.as_ref()?.name, said.text()))
    };
    hints.iter().filter_map(variable).collect()
}

/// Asks the server for the names of priorities.
fn priorities(endpoint: &Endpoint) -> anyhow::Result<BTreeMap<String, Priority>> {
    match ask::ask(endpoint, &Request::Priorities) {
        Ok(Reply::Priorities(names)) => Ok(names),
        Ok(other) => Err(unexpected(&other)),
        // A server without this request.
        Err(Failure { cause: Cause::Refused(why), .. }) if why.starts_with("invalid request") => {
            bail!("this server is older than xcli and has no names for priorities: type a number")
        }
        Err(failure) => Err(failure.into()),
    }
}

/// The number behind a name.
fn number(name: &str, names: &BTreeMap<String, Priority>) -> anyhow::Result<Priority> {
    if let Some(priority) = names.get(name) {
        return Ok(*priority);
    }
    let known: Vec<_> = names.iter().map(|(name, priority)| format!("{name} ({priority})")).collect();
    match &known[..] {
        [] => bail!(
            "no priority is named {name:?}: the server has no names for priorities ([priorities] of the configuration of a server \
             for all users); type a number from -256 to 255"
        ),
        _ => bail!("no priority is named {name:?}; the server has {}", known.join(", ")),
    }
}

fn option(spec: &'static HintSpec) -> Arg {
    let back = match spec.name == HintKind::Priority.spec().name {
        true => ". A name of the server's configuration is a priority as well".to_owned(),
        false => spec.take_back_text(),
    };
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
            .try_map(|word| spec.parse(&word).map(Word::Hint))
            .into(),
        _ if spec.name == HintKind::Priority.spec().name => ValueParser::from(Word::priority),
        _ => ValueParser::from(|word: &str| spec.parse(word).map(Word::Hint)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_for_a_priority_is_a_number_or_a_name() {
        let priority = |number: i64| Priority::try_from(number).unwrap();
        assert_eq!(Word::priority("-5"), Ok(Word::Hint(HintUpdate::Priority(priority(-5)))));
        assert_eq!(Word::priority("real-time_2"), Ok(Word::Name("real-time_2".to_owned())));
        for wrong in ["300", "1.5", "", "-x"] {
            assert!(Word::priority(wrong).is_err(), "{wrong}");
        }
        let names = [("batch".to_owned(), priority(-50)), ("realtime".to_owned(), priority(200))].into();
        assert_eq!(number("batch", &names).unwrap(), priority(-50));
        let unknown = number("urgent", &names).unwrap_err().to_string();
        assert_eq!(unknown, "no priority is named \"urgent\"; the server has batch (-50), realtime (200)");
        let unknown = number("urgent", &BTreeMap::new()).unwrap_err().to_string();
        assert!(unknown.contains("has no names for priorities"), "{unknown}");
    }
}
