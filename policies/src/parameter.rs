//! The parameters of policies.

use crate::policy::{Linger, Manner};
use protocol::operation::Share;
use std::fmt;
use std::time::Duration;

/// A parameter of a policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// The name, as in `xcli policy set EDF --slack-ms 5`: lower case, words joined by `-`, the unit of
    /// measurement last.
    pub name: &'static str,
    /// The meaning, one sentence for a list.
    pub meaning: &'static str,
    /// The smallest and the largest value.
    pub range: (f64, f64),
    /// The default.
    pub default: f64,
}

/// One row of a policy's parameters: name, range, default and meaning of a [`Parameter`].
macro_rules! parameter {
    ($name:literal in $range:tt, default $default:expr, $meaning:literal) => {
        $crate::parameter::Parameter { name: $name, meaning: $meaning, range: $range, default: $default }
    };
}
pub(crate) use parameter;

/// The priority above which work is critical, for the policies that know such work.
pub(crate) const CRITICAL_ABOVE: Parameter = parameter!("critical-above" in (-255.0, 255.0), default 0.0,
    "entities of a higher priority are critical, the others best effort");

/// The choice between learnt and fixed lingers, for the policies by priority that have no slices.
pub(crate) const GAPS: Parameter = parameter!("gaps" in (0.0, 1.0), default 1.0,
    "1: an idle entity keeps its devices for as long as its earlier gaps suggest; 0: for 200 µs");

/// The share that outranked work keeps, for the policies by priority that have no slices.
pub(crate) const SHARE: Parameter = parameter!("share-percent" in (0.0, 75.0), default 0.0,
    "percent of the compute units on which an outranked entity goes on at level 3; 0: it is evicted");

/// The bound within which the share is found, for the policies that have [`SHARE`].
pub(crate) const SLOWDOWN: Parameter = parameter!("slowdown-percent" in (0.0, 100.0), default 5.0,
    "the share is lowered while requests of the urgent entity take more than this longer than without a share; \
     0: the share is fixed");

/// The switch that puts the hardware queues of the most urgent entity first, for the policies that have [`SHARE`].
pub(crate) const FIRST: Parameter = parameter!("queues-first" in (0.0, 1.0), default 0.0,
    "1: the hardware queues of the most urgent entity get a high priority; 0: they keep the program's own");

/// The parameters of one policy with their values.
#[derive(Debug, Clone, PartialEq)]
pub struct Values {
    parameters: &'static [Parameter],
    values: Vec<f64>,
}

/// The reason why a parameter cannot be set.
#[derive(Debug, Clone, PartialEq)]
pub enum ParameterError {
    /// The policy has no parameter of that name; the list has those that it has.
    Unknown(String, Vec<&'static str>),
    /// The value is no number in the range.
    Range(Parameter, String),
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name, names) if names.is_empty() => {
                write!(f, "no parameter {name:?}: this policy has none")
            }
            Self::Unknown(name, names) => {
                write!(f, "no parameter {name:?}: this policy has {}", names.join(", "))
            }
            Self::Range(Parameter { name, range: (low, high), .. }, value) => {
                write!(f, "{name} {value:?} is not a number in {low}..{high}")
            }
        }
    }
}

impl std::error::Error for ParameterError {}

impl Values {
    /// Returns the defaults.
    pub fn new(parameters: &'static [Parameter]) -> Self {
        Self { parameters, values: parameters.iter().map(|parameter| parameter.default).collect() }
    }

    /// Sets a parameter.
    ///
    /// # Errors
    /// The policy has no such parameter, or the value is outside its range. Nothing has changed then.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), ParameterError> {
        let Some(index) = self.parameters.iter().position(|parameter| parameter.name == name) else {
            let names = self.parameters.iter().map(|parameter| parameter.name).collect();
            return Err(ParameterError::Unknown(name.to_owned(), names));
        };
        let parameter = self.parameters[index];
        let (low, high) = parameter.range;
        // NaN lies in no range.
        if !(low..=high).contains(&value) {
            return Err(ParameterError::Range(parameter, value.to_string()));
        }
        self.values[index] = value;
        Ok(())
    }

    /// Returns the value of a parameter.
    ///
    /// # Panics
    /// The policy's row has no such parameter, which is a mistake in the policy.
    pub fn get(&self, name: &str) -> f64 {
        let index = self.parameters.iter().position(|parameter| parameter.name == name);
        self.values[index.expect("a parameter of the policy's own row")]
    }

    /// Returns the value of a parameter that counts milliseconds.
    pub fn millis(&self, name: &str) -> Duration {
        Duration::from_secs_f64(self.get(name) / 1e3)
    }

    /// Returns the value of a parameter that counts microseconds.
    pub fn micros(&self, name: &str) -> Duration {
        Duration::from_secs_f64(self.get(name) / 1e6)
    }

    /// Returns how the most urgent entity runs: the values of [`GAPS`], [`SHARE`] and [`FIRST`].
    pub(crate) fn manner(&self) -> Manner {
        let linger = if self.get(GAPS.name) >= 0.5 { Linger::Learnt } else { Linger::Fixed };
        Manner { linger, share: self.share(), queues_first: self.get(FIRST.name) >= 0.5 }
    }

    /// Returns the value of [`SHARE`].
    pub(crate) fn share(&self) -> Share {
        Share::of_percent(self.get(SHARE.name))
    }

    /// Returns the value of [`SLOWDOWN`] as a part; `None` if the share is fixed, or there is none, or the policy has no
    /// such parameter.
    pub(crate) fn slowdown(&self) -> Option<f64> {
        let slowdown = self.parameters.contains(&SLOWDOWN).then(|| self.get(SLOWDOWN.name) / 100.0);
        slowdown.filter(|slowdown| *slowdown > 0.0 && self.share() != Share::NONE)
    }

    /// Returns all parameters, in the order of the row.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'static Parameter, f64)> + use<'_> {
        self.parameters.iter().zip(self.values.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLACK: Parameter = parameter!("slack-ms" in (0.0, 1e6), default 5.0, "how much");

    #[test]
    fn share_is_none_only_at_zero() {
        let mut values = Values::new(&[SHARE]);
        assert_eq!(values.share(), Share::NONE);
        values.set(SHARE.name, 0.1).unwrap();
        assert_eq!(values.share().units(), 1);
        values.set(SHARE.name, 75.0).unwrap();
        assert_eq!(values.share().units(), 48);
        assert!(values.set(SHARE.name, 76.0).is_err());
    }

    #[test]
    fn unknown_names_and_values_out_of_range_are_refused() {
        let mut values = Values::new(&[SLACK]);
        assert_eq!(values.get("slack-ms"), 5.0);
        values.set("slack-ms", 0.5).unwrap();
        assert_eq!(values.millis("slack-ms"), Duration::from_micros(500));
        assert_eq!(values.micros("slack-ms"), Duration::from_nanos(500));
        assert_eq!(
            values.set("slack", 1.0).unwrap_err().to_string(),
            "no parameter \"slack\": this policy has slack-ms"
        );
        for value in [-1.0, 1e7, f64::NAN, f64::INFINITY] {
            let error = values.set("slack-ms", value).unwrap_err().to_string();
            assert!(error.ends_with("is not a number in 0..1000000"), "{error}");
        }
        assert_eq!(values.iter().map(|(_, value)| value).collect::<Vec<_>>(), [0.5]);
        assert_eq!(
            Values::new(&[]).set("slack", 1.0).unwrap_err().to_string(),
            "no parameter \"slack\": this policy has none"
        );
    }
}
