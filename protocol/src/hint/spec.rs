//! The specification of a hint, and the parsers that follow from it.

use super::laxity::Laxity;
use super::table::{HintUpdate, Hints};
use crate::bounds::Priority;
use std::fmt;
use std::ops::RangeInclusive;

/// The target of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A queue; if only a process is named, each queue that it has now.
    Queue,
    /// A queue if one is named, else the process.
    QueueOrProcess,
    /// A process.
    Process,
    /// A process; if none is named, all processes that are connected or will connect.
    AnyProcess,
}

/// The values that a hint accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Values {
    /// A whole number.
    Number(RangeInclusive<i128>),
    /// A word, which stands for a number.
    Word(&'static [(&'static str, i128)]),
    /// Microseconds and two priorities, such as `5000,-10,10`.
    Laxity,
    /// No value: the option itself is the hint.
    Flag,
}

/// The variable that gives a hint to a program at its start.
#[derive(Debug)]
pub struct HintVariable {
    /// Name.
    pub name: &'static str,
    /// The accepted values, for documents and error messages.
    pub values: &'static str,
    /// The range of numbers, where it is narrower than that of the hint.
    pub range: Option<RangeInclusive<i128>>,
    /// The value in force if the variable is not set.
    pub default: &'static str,
}

/// A code in messages to the server, and the function that returns the number to send while the hint is
/// given.
pub type WireCode = (u32, fn(&Hints) -> Option<i64>);

/// One row of the table.
#[derive(Debug)]
pub struct HintSpec {
    /// Name of the hint and of its option: `deadline` for `--deadline`.
    pub name: &'static str,
    /// Letter of the option.
    pub short: Option<char>,
    /// Placeholder for the value in the option's help.
    pub placeholder: &'static str,
    /// Meaning of the hint, a phrase without a final period. Help texts and documents quote it.
    pub meaning: &'static str,
    /// The target.
    pub scope: Scope,
    /// The accepted values, except the one that takes the hint back.
    pub values: Values,
    /// The number that takes the hint back, and the update that it stands for.
    pub take_back: Option<(i128, HintUpdate)>,
    /// The update for an accepted number.
    pub update: fn(i128) -> Option<HintUpdate>,
    /// Function of the C interface and the types of its arguments.
    pub function: Option<(&'static str, &'static str)>,
    /// Variable of the environment.
    pub variable: Option<HintVariable>,
    /// Code in messages. The hints of the first version have none: they have fixed places in the messages.
    pub wire: Option<WireCode>,
}

impl HintSpec {
    /// Returns the update for a number, as the C interface passes it, or `None` if the number is out of
    /// range.
    ///
    /// ```
    /// use protocol::hint::table::{HintKind, HintUpdate};
    ///
    /// let cap = HintKind::Cap.spec();
    /// assert!(matches!(cap.from_number(30), Some(HintUpdate::Cap(Some(_)))));
    /// assert_eq!(cap.from_number(-1), Some(HintUpdate::Cap(None)));
    /// assert_eq!(cap.from_number(101), None);
    /// ```
    pub fn from_number(&self, number: impl Into<i128>) -> Option<HintUpdate> {
        let number = number.into();
        match (self.take_back, &self.values) {
            (Some((none, update)), _) if number == none => Some(update),
            (_, Values::Number(range)) if !range.contains(&number) => None,
            _ => (self.update)(number),
        }
    }

    /// Returns the accepted number that is nearest to a number, which may be the one that takes the hint back. `None` if the
    /// hint has no numbers.
    ///
    /// ```
    /// use protocol::hint::table::HintKind;
    ///
    /// let cap = HintKind::Cap.spec();
    /// assert_eq!([30, 101, 0, -7].map(|number| cap.nearest(number)), [30, 100, 1, -1].map(Some));
    /// ```
    pub fn nearest(&self, number: i128) -> Option<i128> {
        let Values::Number(range) = &self.values else { return None };
        let within = number.clamp(*range.start(), *range.end());
        let back = self.take_back.map(|(back, _)| back);
        Some(back.filter(|back| number.abs_diff(*back) < number.abs_diff(within)).unwrap_or(within))
    }

    /// Parses the value of the option.
    ///
    /// # Errors
    /// One line that names the value and the accepted ones.
    ///
    /// ```
    /// use protocol::hint::table::{HintKind, HintUpdate};
    ///
    /// let preemptible = HintKind::Preemptible.spec();
    /// assert_eq!(preemptible.parse("off"), Ok(HintUpdate::Preemptible(false)));
    /// assert_eq!(preemptible.parse("maybe").unwrap_err(), "\"maybe\" is not one of on, off");
    /// ```
    pub fn parse(&self, word: &str) -> Result<HintUpdate, String> {
        let number = word.trim().parse::<i128>();
        match (self.take_back, &number) {
            (Some((none, update)), Ok(number)) if *number == none => return Ok(update),
            _ => {}
        }
        let back = self.take_back_text();
        match &self.values {
            Values::Number(range) => {
                let number = number.map_err(|_| format!("{word:?} is not a whole number"))?;
                let wanted = Wanted(range);
                self.from_number(number)
                    .ok_or_else(|| format!("{} {number} is not {wanted}{back}", self.name))
            }
            Values::Word(words) => self.word(words, word).ok_or_else(|| {
                let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                format!("{word:?} is not one of {}{back}", words.join(", "))
            }),
            Values::Laxity => match word.parse() {
                Ok(laxity) => Ok(HintUpdate::Laxity(Some(laxity))),
                Err(error) => Err(format!("{error}{back}")),
            },
            Values::Flag => (self.update)(1).ok_or_else(|| format!("{} takes no value", self.name)),
        }
    }

    /// Parses the value of the variable, after the hints of earlier rows. Words may be in upper or lower
    /// case.
    pub(crate) fn read(&self, value: &str, hints: &Hints) -> Option<HintUpdate> {
        let number = value.parse::<i128>().ok();
        match &self.values {
            Values::Number(range) => {
                let variable = self.variable.as_ref()?;
                let range = variable.range.as_ref().unwrap_or(range);
                number.filter(|number| range.contains(number)).and_then(self.update)
            }
            Values::Word(words) => {
                let of_number = words.iter().find(|(_, number)| number.to_string() == value);
                of_number.map_or_else(
                    || self.word(words, &value.to_lowercase()),
                    |(_, number)| self.from_number(*number),
                )
            }
            Values::Laxity => {
                let laxity = match number {
                    // The default of XSched.
                    Some(us) => {
                        let us = u64::try_from(us).ok().filter(|us| i64::try_from(*us).is_ok())?;
                        Laxity { us, lax: Priority::DEFAULT, critical: hints.priority }
                    }
                    None => value.parse().ok()?,
                };
                Some(HintUpdate::Laxity(Some(laxity)))
            }
            Values::Flag => None,
        }
    }

    fn word(&self, words: &[(&str, i128)], word: &str) -> Option<HintUpdate> {
        words.iter().find(|(known, _)| *known == word).and_then(|(_, number)| self.from_number(*number))
    }

    /// Returns the end of a sentence that names the value with which the option takes the hint back; empty if
    /// there is none.
    pub fn take_back_text(&self) -> String {
        let Some((none, _)) = self.take_back else { return String::new() };
        let word = match self.values {
            Values::Word(words) => {
                words.iter().find(|(_, number)| *number == none).map(|(word, _)| (*word).to_owned())
            }
            _ => None,
        };
        format!("; {} removes the setting", word.unwrap_or_else(|| none.to_string()))
    }

    /// Returns words that the option and the variable accept: of a range both ends, of words all; none
    /// without a variable.
    #[cfg(test)]
    pub(crate) fn examples(&self) -> Vec<String> {
        let Some(variable) = &self.variable else { return Vec::new() };
        match &self.values {
            Values::Number(range) => {
                let range = variable.range.as_ref().unwrap_or(range);
                vec![range.start().to_string(), range.end().to_string()]
            }
            Values::Word(words) => words.iter().map(|(word, _)| (*word).to_owned()).collect(),
            Values::Laxity => vec!["5000,-10,10".to_owned()],
            Values::Flag => Vec::new(),
        }
    }

    /// The option as a user writes it, such as `-u PERCENT`.
    pub(super) fn usage(&self) -> String {
        let name = match self.short {
            Some(letter) => format!("-{letter}"),
            None => format!("--{}", self.name),
        };
        if self.placeholder.is_empty() { name } else { format!("{name} {}", self.placeholder) }
    }
}

/// A range in an error message.
struct Wanted<'a>(&'a RangeInclusive<i128>);

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.0.start(), self.0.end());
        if *high >= i64::MAX.into() {
            write!(f, "a whole number >= {low}")
        } else {
            write!(f, "in {low}..{high}")
        }
    }
}
