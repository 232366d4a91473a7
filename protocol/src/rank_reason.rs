//! The reason for a rank, as it crosses the wire: a name and numbers. Its meaning and text are the policies'.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The reason for a rank: a name, and the numbers that belong to it.
///
/// In JSON it has the shape of its value: `"NoDeadline"`, `{"Priority":5}`, `{"Window":true}`,
/// `{"ClassTurn":{"class":1,"us":3100}}`. Every name is accepted, so a new policy can have reasons of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Json", into = "Json")]
pub struct RankReason {
    /// The name.
    pub name: Label<16>,
    /// The numbers.
    pub value: RankValue,
}

/// The numbers of a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RankValue {
    /// The name says it all.
    None,
    /// A truth value.
    Flag(bool),
    /// One number.
    Number(i64),
    /// Two numbers with names.
    Pair([(Label<8>, i64); 2]),
}

/// A name of at most `N` bytes without a zero byte, stored in place so that a decision allocates nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label<const N: usize>([u8; N]);

impl<const N: usize> Label<N> {
    /// A name that is known when the program is built.
    ///
    /// # Panics
    /// The name is too long. Used in a constant, this fails the build.
    pub const fn new(name: &str) -> Self {
        let mut bytes = [0; N];
        let mut index = 0;
        while index < name.len() {
            bytes[index] = name.as_bytes()[index];
            index += 1;
        }
        Self(bytes)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(N);
        // Only whole names are stored, and those are text.
        std::str::from_utf8(&self.0[..end]).unwrap_or_default()
    }

    fn parse(name: &str) -> Result<Self, String> {
        let fits = name.len() <= N && !name.contains('\0');
        fits.then(|| Self::new(name)).ok_or_else(|| format!("{name:?} is not a name of at most {N} bytes"))
    }
}

impl<const N: usize> fmt::Debug for Label<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The shapes of a reason in JSON, in the order in which they are tried.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Json {
    None(String),
    Flag(BTreeMap<String, bool>),
    Number(BTreeMap<String, i64>),
    Pair(BTreeMap<String, BTreeMap<String, i64>>),
}

impl From<RankReason> for Json {
    fn from(RankReason { name, value }: RankReason) -> Self {
        let name = name.as_str().to_owned();
        match value {
            RankValue::None => Self::None(name),
            RankValue::Flag(flag) => Self::Flag(BTreeMap::from([(name, flag)])),
            RankValue::Number(number) => Self::Number(BTreeMap::from([(name, number)])),
            RankValue::Pair(pair) => {
                let pair = pair.map(|(name, number)| (name.as_str().to_owned(), number));
                Self::Pair(BTreeMap::from([(name, BTreeMap::from(pair))]))
            }
        }
    }
}

impl TryFrom<Json> for RankReason {
    type Error = String;

    fn try_from(json: Json) -> Result<Self, String> {
        let (name, value) = match json {
            Json::None(name) => (name, RankValue::None),
            Json::Flag(map) => only(map, RankValue::Flag)?,
            Json::Number(map) => only(map, RankValue::Number)?,
            Json::Pair(map) => {
                let (name, pair) = only(map, |pair| pair)?;
                let pair = pair.into_iter().map(|(name, number)| Ok((Label::parse(&name)?, number)));
                let pair = pair.collect::<Result<Vec<_>, String>>()?;
                let pair = pair.try_into().map_err(|_| format!("{name} does not have two numbers"))?;
                (name, RankValue::Pair(pair))
            }
        };
        Ok(Self { name: Label::parse(&name)?, value })
    }
}

/// Returns the only entry of a map.
fn only<T, V>(map: BTreeMap<String, T>, value: impl Fn(T) -> V) -> Result<(String, V), String> {
    let mut entries = map.into_iter();
    match (entries.next(), entries.next()) {
        (Some((name, entry)), None) => Ok((name, value(entry))),
        _ => Err("a reason has exactly one name".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Result<RankReason, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn reasons_of_each_shape_keep_their_bytes() {
        let shapes = [
            r#""NoDeadline""#,
            r#""Uninterrupted""#,
            r#"{"Window":true}"#,
            r#"{"Priority":-256}"#,
            r#"{"Starved":9223372036854775807}"#,
            r#"{"ClassTurn":{"class":1,"us":3100}}"#,
            r#"{"ClassWaits":{"class":-3,"others":0}}"#,
            r#"{"OfAnotherBuild":5}"#,
        ];
        for json in shapes {
            assert_eq!(serde_json::to_string(&parsed(json).unwrap()).unwrap(), json);
        }
    }

    #[test]
    fn reason_of_another_shape_is_refused() {
        let shapes = [
            "5",
            "{}",
            "[]",
            r#"{"Level":1,"Credit":2}"#,
            r#"{"Level":0.5}"#,
            r#"{"Class":{"class":1}}"#,
            r#"{"Class":{"class":1,"us":2,"others":3}}"#,
            r#"{"Class":{"class":1,"far-too-long":2}}"#,
            r#"{"ANameOfSeventeen_":5}"#,
            r#""a\u0000b""#,
        ];
        for json in shapes {
            assert!(parsed(json).is_err(), "{json}");
        }
    }
}
