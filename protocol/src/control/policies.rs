//! Which policies a server has, and which of them decides where.

use crate::ids::DeviceId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A policy with its parameters, and what it rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ruling {
    /// Its short name, upper or lower case.
    pub policy: String,
    /// Its parameters by name. In an order, those that are missing have their defaults; in an answer none is missing.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
    /// The device that it decides on, which has a policy of its own by that; without one, all devices that have none.
    #[serde(default)]
    pub device: Option<DeviceId>,
}

/// A policy that decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// Which one, where.
    #[serde(flatten)]
    pub ruling: Ruling,
    /// What it has counted since it began to decide; names by policy, see docs/policies.md.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
}

/// What there is to choose from, and what is chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// Every policy of the server's build, in the order of their numbers.
    pub policies: Vec<Policy>,
    /// That of all devices, then those of single ones by their numbers.
    pub in_force: Vec<InForce>,
    /// The devices on which connected programs have queues, by their numbers.
    pub devices: Vec<DeviceId>,
}

/// A policy of the server's build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Its short name.
    pub name: String,
    /// Its name in the C interface.
    pub long_name: String,
    /// Its number there.
    pub number: u32,
    /// What it does, one sentence.
    pub description: String,
    /// When to use it, and when not.
    pub advice: String,
    /// What can be set of it.
    pub parameters: Vec<Parameter>,
    /// Whether somebody may wait for ever under it, unless the guard against starvation is on.
    pub goes_by_priority: bool,
    /// Whether a device with work is always used, with the default of each parameter.
    pub conserves_work: bool,
}

/// Something that can be set of a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name, the unit last.
    pub name: String,
    /// What it is, one sentence.
    pub meaning: String,
    /// The least that it can be.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// What it is if nobody sets it.
    pub default: f64,
}
