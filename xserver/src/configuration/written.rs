//! The keys that a configuration file contains, with their lines.

use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct Written<'a> {
    text: &'a str,
    tables: DeTable<'a>,
}

impl<'a> Written<'a> {
    /// The contents of a valid text; none of another one.
    pub fn new(text: &'a str) -> Self {
        let tables = DeTable::parse(text).map(Spanned::into_inner).unwrap_or_default();
        Self { text, tables }
    }

    /// The entry of a table, such as the third `[[rule]]`, with its place. Other tables have one entry.
    fn entry(&self, table: &str, index: usize) -> Option<(Range<usize>, &DeTable<'a>)> {
        let (key, value) = find(&self.tables, table)?;
        let (place, value) = match value.get_ref() {
            DeValue::Array(entries) => entries.get(index).map(|entry| (entry.span(), entry.get_ref()))?,
            value => (key.span(), value),
        };
        match value {
            DeValue::Table(entry) => Some((place, entry)),
            _ => None,
        }
    }

    /// Returns true if the file has this key in this entry.
    pub fn has(&self, table: &str, index: usize, key: &str) -> bool {
        self.entry(table, index).is_some_and(|(_, entry)| find(entry, key).is_some())
    }

    /// The text before a message about a key: its line, or that of its entry if the key is missing. Empty without both.
    pub fn line(&self, table: &str, index: usize, key: &str) -> String {
        let Some((place, entry)) = self.entry(table, index) else { return String::new() };
        let at = find(entry, key).map_or(place, |(key, _)| key.span()).start;
        format!("line {}: ", line_of(self.text, at))
    }
}

/// The line of a place in a text, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

type Entry<'t, 'a> = (&'t Spanned<std::borrow::Cow<'a, str>>, &'t Spanned<DeValue<'a>>);

fn find<'t, 'a>(table: &'t DeTable<'a>, key: &str) -> Option<Entry<'t, 'a>> {
    table.iter().find(|(name, _)| name.get_ref() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_key_or_of_its_entry() {
        let text = "[limits]\nx = 1\n\n[[rule]]\n\n[[rule]]\na = \"b\"\nc = 5\n";
        let written = Written::new(text);
        let line = |table, index, key| written.line(table, index, key);
        assert_eq!(line("limits", 0, "x"), "line 2: ");
        assert_eq!(line("rule", 0, "c"), "line 4: ");
        assert_eq!(line("rule", 1, "c"), "line 8: ");
        assert_eq!(line("rule", 1, "d"), "line 6: ");
        assert_eq!((line("rule", 2, "a"), line("device", 0, "gpu")), (String::new(), String::new()));
        assert!(written.has("rule", 1, "a") && !written.has("rule", 0, "a"));
        assert!(!Written::new("[limits").has("limits", 0, "x"));
    }
}
