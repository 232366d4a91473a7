//! Values of the configuration file that have forms of their own.

use protocol::bounds::Priority;
use protocol::codes::PreemptLevel;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// A user or a group, by name or by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a name or a number")]
pub enum Account {
    /// The number.
    Number(u32),
    /// The name.
    Name(String),
}

/// A priority, by number or by a name of `[priorities]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum NamedPriority {
    /// The number.
    Number(Priority),
    /// The name.
    Name(String),
}

impl<'de> Deserialize<'de> for NamedPriority {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = NamedPriority;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a priority or its name")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<NamedPriority, E> {
                Priority::try_from(number).map(NamedPriority::Number).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<NamedPriority, E> {
                Ok(NamedPriority::Name(name.to_owned()))
            }
        }

        from.deserialize_any(Either)
    }
}

/// A preemption level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Level(#[serde(with = "protocol::codes::level_number")] pub PreemptLevel);
