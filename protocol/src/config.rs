//! The environment `XSCHED_*` as one table: the meaning of each variable, the values that it accepts, and its
//! parser.
//!
//! [`variables()`] is the only list. The parser walks it, `docs/env.md` is printed from it, and a warning about
//! a bad value quotes it. The variables that hint come from [`crate::hint::table`]. This module does not read
//! the environment itself: the caller passes a getter, so that the parser is pure. A value that cannot be
//! used leaves the default in force and yields one [`ConfigError`]. An empty value counts as not set.

mod settings;
mod values;
mod variables;

pub use crate::codes::SchedulerKind;
pub use settings::{AutoXQueue, Config, SuspendFlags};
pub use values::{KfdMechanism, KfdProbe, LogLevel, TestMode};
pub use variables::{Variable, variables};

/// The variables that `xserver` reads besides `XSCHED_SOCKET`.
pub const SERVER_VARIABLES: [&str; 3] = ["XSCHED_LOG_LEVEL", "XSCHED_STARVATION_MS", "XSCHED_TEST"];

use crate::policy::PolicyKind;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use variables::Expected;

/// Returns true if a switch such as `XSCHED_DISABLE` is on. Allocates nothing, so that it can be called at
/// any time.
///
/// ```
/// use std::ffi::OsStr;
///
/// assert!(protocol::config::is_on(OsStr::new("on")));
/// assert!(!protocol::config::is_on(OsStr::new("0")));
/// ```
pub fn is_on(value: &OsStr) -> bool {
    values::switch(value) == Some(true)
}

impl Config {
    /// Reads all [`variables()`] through `get`. `built` are the policies that this build
    /// contains.
    ///
    /// Never fails: a value that cannot be used keeps its default and yields one entry of the second result,
    /// in table order.
    ///
    /// ```
    /// use protocol::config::Config;
    ///
    /// let get = |name: &str| (name == "XSCHED_AUTO_XQUEUE_PRIORITY").then(|| "7".into());
    /// let (config, errors) = Config::read(get, &[]);
    /// assert_eq!(config.auto.hints.priority.get(), 7);
    /// assert!(errors.is_empty());
    ///
    /// let (_, errors) = Config::read(|name| (name == "XSCHED_SCHEDULER").then(|| "me".into()), &[]);
    /// assert_eq!(
    ///     errors[0].to_string(),
    ///     "XSCHED_SCHEDULER=me is not usable (expected APP, LCL, GLB); the default stays in force"
    /// );
    /// ```
    pub fn read(get: impl Fn(&str) -> Option<OsString>, built: &[PolicyKind]) -> (Self, Vec<ConfigError>) {
        let mut config = Self::default();
        let mut errors = Vec::new();
        for variable in variables() {
            let Some(value) = get(variable.name).filter(|value| !value.is_empty()) else {
                continue;
            };
            if let Err(expected) = variable.read(&mut config, &value, built) {
                let expected = match expected {
                    Expected::AsListed => variable.values.to_owned(),
                    Expected::Exactly(range) => range,
                };
                errors.push(ConfigError { var: variable.name, value, expected });
            }
        }
        (config, errors)
    }
}

/// The text of `docs/env.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Environment\n\
         \n\
         <!-- Generated from the rows in protocol/src/config/variables.rs and HINTS in protocol/src/hint/table.rs;\n\
         the test `env_doc` says how. -->\n\
         \n\
         Words are read in upper or lower case. A variable that is set but empty counts as not set. A value that\n\
         cannot be used leaves the default in force and is reported once per process, by a line that names the\n\
         variable, its value and what was expected; a process that never uses HIP reports nothing.\n\
         \n\
         | variable | values | default | meaning |\n\
         |---|---|---|---|\n",
    );
    for Variable { name, values, default, meaning, .. } in variables() {
        let first = meaning[..1].to_uppercase();
        let end = if meaning.ends_with('.') { "" } else { "." };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {values} | {default} | {first}{}{end} |", &meaning[1..]);
    }
    text
}

/// A value that cannot be used. Its text is one line that names the variable, the value and the accepted
/// values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Name of the variable.
    pub var: &'static str,
    /// The refused value.
    pub value: OsString,
    /// The accepted values.
    pub expected: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The most characters of a value that the line quotes.
        const SHOWN: usize = 80;
        write!(f, "{}=", self.var)?;
        let value = self.value.to_string_lossy();
        // Escaped, because a line break in a value would make two lines of one warning.
        for shown in value.chars().take(SHOWN) {
            write!(f, "{}", shown.escape_debug())?;
        }
        if value.chars().nth(SHOWN).is_some() {
            f.write_str("...")?;
        }
        write!(f, " is not usable (expected {}); the default stays in force", self.expected)
    }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests;
