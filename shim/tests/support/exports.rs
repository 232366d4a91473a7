//! The check of a library's exports, read by readelf. The tests use it, and the example that
//! `scripts/check-exports` runs.

use protocol::hint::table::HINTS;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The version of the C interface.
pub(crate) const VERSION: &str = "XSCHED_1.0";

/// The pattern in the version script for the hints, which the table in `protocol` names.
const HINTS_PATTERN: &str = "XHint*";

/// The names of libc that the library interposes.
pub(crate) const LIBC: [&str; 4] = ["dlsym", "dlvsym", "dlopen", "ioctl"];

/// A defined dynamic symbol, as readelf writes it: `name`, `name@@VERSION` or `name@VERSION`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    /// True if it is a global function with default visibility.
    pub(crate) is_public_function: bool,
}

impl Symbol {
    /// Parses a line of `readelf --dyn-syms`; `None` if it has no symbol, or an undefined one.
    fn of(line: &str) -> Option<Self> {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [number, _value, _size, kind, binding, visibility, section, name, ..] = fields.as_slice() else {
            return None;
        };
        number.strip_suffix(':')?.parse::<u32>().ok()?;
        // readelf lists a defined version as an absolute object of its name.
        if *section == "UND" || (*section == "ABS" && *kind == "OBJECT") {
            return None;
        }
        let (name, version) = match name.split_once('@') {
            Some((name, version)) => (name, Some(version.to_owned())),
            None => (*name, None),
        };
        let is_public_function =
            *kind == "FUNC" && matches!(*binding, "GLOBAL" | "WEAK") && *visibility == "DEFAULT";
        Some(Self { name: name.to_owned(), version, is_public_function })
    }
}

/// Reads the defined dynamic symbols of a library.
pub(crate) fn read(library: &Path) -> Result<Vec<Symbol>, String> {
    let output = Command::new("readelf")
        .args(["--wide", "--dyn-syms"])
        .arg(library)
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| format!("readelf: {error}; it comes with binutils"))?;
    if !output.status.success() || !output.stderr.is_empty() {
        return Err(format!("{}: {}", library.display(), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(Symbol::of).collect())
}

/// Returns the names to which a version script gives [`VERSION`].
pub(crate) fn names_of(script: &str) -> Result<Vec<String>, String> {
    let text: String =
        script.lines().map(|line| line.split('#').next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let mut names = Vec::new();
    for node in
        text.split('}').map(|node| node.trim_start_matches([';', ' '])).filter(|node| !node.trim().is_empty())
    {
        let (version, body) = node.split_once('{').ok_or_else(|| format!("not a version: {node}"))?;
        if version.trim() != VERSION {
            return Err(format!("a version other than {VERSION}: {}", version.trim()));
        }
        let body = body
            .trim()
            .strip_prefix("global:")
            .ok_or_else(|| format!("{VERSION} does not begin with global:"))?;
        names.extend(body.split(';').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned));
    }
    if let Some(at) = names.iter().position(|name| name == HINTS_PATTERN) {
        names.swap_remove(at);
        names.extend(["XHintSetScheduler", "XHintSlo", "XHintBegin", "XHintEnd"].map(str::to_owned));
        names.extend(HINTS.iter().filter_map(|spec| spec.function).map(|(name, _)| name.to_owned()));
    }
    match names.iter().find(|name| !is_of_the_interface(name)) {
        Some(name) => Err(format!("{name} is no name of the C interface")),
        None => Ok(names),
    }
}

/// Returns true if only the C interface may have this name.
fn is_of_the_interface(name: &str) -> bool {
    let second_is_upper = |prefix: &str| {
        name.strip_prefix(prefix).and_then(|rest| rest.chars().next()).is_some_and(char::is_uppercase)
    };
    name == "HipQueueCreate" || second_is_upper("X") || second_is_upper("Hw")
}

/// The result of the check.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) passed: usize,
    pub(crate) failures: Vec<String>,
}

/// Compares symbols with the names to export without a version and with [`VERSION`].
pub(crate) fn check<'a>(
    symbols: &[Symbol],
    unversioned: impl IntoIterator<Item = &'a str>,
    versioned: &[String],
) -> Checked {
    let mut wanted: BTreeMap<&str, Option<String>> =
        unversioned.into_iter().map(|name| (name, None)).collect();
    wanted.extend(versioned.iter().map(|name| (name.as_str(), Some(format!("@{VERSION}")))));
    let mut checked = Checked::default();
    for (name, version) in &wanted {
        let found: Vec<_> = symbols.iter().filter(|symbol| symbol.name == *name).collect();
        match found.as_slice() {
            [symbol] if symbol.is_public_function && symbol.version == *version => checked.passed += 1,
            [] => checked.failures.push(format!("{name} is not exported")),
            found => checked.failures.push(format!(
                "{name} is to be exported once, as a function {}, and not as {found:?}",
                if version.is_some() { VERSION } else { "without a version" }
            )),
        }
    }
    let more: Vec<_> = symbols.iter().filter(|symbol| !wanted.contains_key(symbol.name.as_str())).collect();
    if more.is_empty() {
        checked.passed += 1;
    }
    checked.failures.extend(more.iter().map(|symbol| format!("{} is exported and must not be", symbol.name)));
    checked
}

/// Returns the names that `libshimhip.so` exports without a version.
pub(crate) fn unversioned() -> impl Iterator<Item = &'static str> {
    let functions = interception::FUNCTIONS.iter().filter(|function| function.is_exported());
    functions.map(|function| function.name).chain(LIBC)
}
