//! Wrong usage that the parser of the command line cannot see.

use std::fmt;

/// What is wrong, one line. It ends xcli with the exit code of wrong usage.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The same for `?`.
pub fn usage<T>(text: impl Into<String>) -> anyhow::Result<T> {
    Err(Usage(text.into()).into())
}
