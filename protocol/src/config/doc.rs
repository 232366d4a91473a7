//! `docs/env.md`, printed from the table.

use super::VARIABLES;
use std::fmt::Write as _;

/// The text of `docs/env.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Environment\n\
         \n\
         <!-- Generated from VARIABLES in protocol/src/config/variables.rs; the test `env_doc` says how. -->\n\
         \n\
         Words are read in upper or lower case. A variable that is set but empty counts as not set. A value that\n\
         cannot be used leaves the default in force and is reported once per process, by a line that names the\n\
         variable, its value and what was expected; a process that never uses HIP reports nothing.\n\
         \n\
         | variable | values | default | meaning |\n\
         |---|---|---|---|\n",
    );
    for variable in VARIABLES {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            variable.name, variable.values, variable.default, variable.meaning
        );
    }
    text
}
