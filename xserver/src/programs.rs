//! Hints that the configuration gives to programs by their names.

use crate::access::{is_same, matches};
use protocol::control::HintUpdate;
use std::sync::Arc;

/// An entry of the configuration: hints for the programs that it matches, as far as those have not set them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// A pattern for the name of the program, in which `*` stands for any text.
    pub name: Arc<str>,
    /// The users whose programs it matches; all if empty.
    pub users: Vec<u32>,
    /// The hints, each once.
    pub hints: Vec<HintUpdate>,
}

impl Program {
    /// Returns true if it matches a program of this name and user.
    pub fn is_for(&self, name: &str, uid: u32) -> bool {
        matches(&self.name, name)
            && (self.users.is_empty() || self.users.iter().any(|user| is_same(*user, uid)))
    }
}
