//! The policies of a server, and the devices that they control.

use crate::ids::DeviceId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A policy with its parameters and its device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyOrder {
    /// Short name, in upper or lower case.
    pub policy: String,
    /// Parameters by name. In a request, missing parameters have their defaults. An answer contains all
    /// parameters.
    #[serde(default)]
    pub values: BTreeMap<String, f64>,
    /// The device that gets its own policy; without one, all devices that have no policy of their own.
    #[serde(default)]
    pub device: Option<DeviceId>,
}

/// A policy in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// The policy and its device.
    #[serde(flatten)]
    pub ruling: PolicyOrder,
    /// Counters since the policy is in force. Their names depend on the policy; see docs/policies.md.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
}

/// The available policies, and those in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policies {
    /// Every policy of the server's build, in ascending order of their numbers.
    pub policies: Vec<Policy>,
    /// The policy of all devices, then those of single devices in ascending order.
    pub in_force: Vec<PolicyInForce>,
    /// The devices on which connected programs have queues, in ascending order.
    pub devices: Vec<DeviceId>,
}

/// A policy of the server's build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Short name.
    pub name: String,
    /// Name in the C interface.
    pub long_name: String,
    /// Number in the C interface.
    pub number: u32,
    /// Description, one sentence.
    pub description: String,
    /// Advice when to use the policy, and when not.
    pub advice: String,
    /// Parameters.
    pub parameters: Vec<Parameter>,
    /// True if a program may wait forever under the policy, unless the guard against starvation is on.
    pub goes_by_priority: bool,
    /// True if the policy, with its default parameters, always uses a device that has work.
    pub conserves_work: bool,
}

/// A parameter of a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Name, ending with the unit.
    pub name: String,
    /// Meaning, one sentence.
    pub meaning: String,
    /// Least value.
    pub min: f64,
    /// Greatest value.
    pub max: f64,
    /// Default value.
    pub default: f64,
}
