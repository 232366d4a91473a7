//! `xcli hooks`: the table of HIP functions in `interception`, as text or JSON.

use crate::table::{self, Column, Line};
use interception::{Class, FUNCTIONS, Function, Release, Rule};
use serde_json::{Value, json};

const COLUMNS: &[Column] = &[
    Column::names("FUNCTION"),
    Column::words("CLASS"),
    Column::words("HANDLER"),
    Column::words("RELEASES"),
    Column::words("REASON"),
];

/// Formats all functions, or only those with the conservative handler.
pub fn text(conservative: bool, terminal: Option<usize>) -> String {
    let lines: Vec<Line> = shown(conservative).map(|function| Line::Row(row(function))).collect();
    let count = |rule| FUNCTIONS.iter().filter(|function| function.rule == rule).count();
    format!(
        "{}{} functions: {} with their own handler, {} conservative (the work they affect is launched first), \
         {} translated, {} without handler\n",
        table::text(COLUMNS, &lines, terminal),
        FUNCTIONS.len(),
        count(Rule::Direct),
        count(Rule::Drain),
        count(Rule::Translate),
        count(Rule::Forward),
    )
}

/// The same as JSON: `functions`, and the names of the `conservative` functions.
pub fn json(conservative: bool) -> Value {
    let functions: Vec<Value> = shown(conservative)
        .map(|function| {
            json!({
                "name": function.name,
                "class": class(function.class),
                "handler": handler(function.rule),
                "releases": function.releases.iter().map(Release::as_str).collect::<Vec<_>>(),
                "reason": (!function.reason.is_empty()).then_some(function.reason),
            })
        })
        .collect();
    let names: Vec<&str> = shown(true).map(|function| function.name).collect();
    json!({ "functions": functions, "conservative": names })
}

fn shown(conservative: bool) -> impl Iterator<Item = &'static Function> {
    FUNCTIONS.iter().filter(move |function| !conservative || function.rule == Rule::Drain)
}

fn row(function: &Function) -> Vec<String> {
    [function.name, class(function.class), handler(function.rule), &releases(function), function.reason]
        .map(str::to_owned)
        .to_vec()
}

/// Formats the releases of a function; consecutive ones as a range.
fn releases(function: &Function) -> String {
    let releases: Vec<Release> = function.releases.iter().collect();
    let all = Release::ALL.iter().copied();
    let is_range = all
        .skip_while(|release| Some(release) != releases.first())
        .take(releases.len())
        .eq(releases.iter().copied());
    match releases.as_slice() {
        _ if releases.len() == Release::ALL.len() => "all".to_owned(),
        [first, .., last] if is_range => format!("{} to {}", first.as_str(), last.as_str()),
        some => some.iter().map(|release| release.as_str()).collect::<Vec<_>>().join(", "),
    }
}

fn class(class: Class) -> &'static str {
    match class {
        Class::Launch => "launch",
        Class::Copy => "copy",
        Class::Memset => "memset",
        Class::Memory => "memory",
        Class::Event => "event",
        Class::Sync => "sync",
        Class::Query => "query",
        Class::Capture => "capture",
        Class::Graph => "graph",
        Class::Lifecycle => "lifecycle",
        Class::Resolve => "resolve",
        Class::Error => "error",
        Class::Passthrough => "passthrough",
    }
}

fn handler(rule: Rule) -> &'static str {
    match rule {
        Rule::Direct => "own",
        Rule::Drain => "conservative",
        Rule::Translate => "translated",
        Rule::Forward => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_a_line_for_each_function() {
        let all = text(false, None);
        for function in FUNCTIONS {
            assert!(
                all.lines().any(|line| line.split(' ').next() == Some(function.name)),
                "{}",
                function.name
            );
        }
        let value = json(false);
        assert_eq!(value["functions"].as_array().unwrap().len(), FUNCTIONS.len());
        let named = value["conservative"].as_array().unwrap();
        assert!(named.iter().any(|name| name == "hipFree"));
        assert!(!named.iter().any(|name| name == "hipLaunchKernel"));
        // Headings, rows, and the summary.
        assert_eq!(text(true, None).lines().count(), named.len() + 2);
    }

    #[test]
    fn only_passthrough_and_conservative_functions_have_a_reason() {
        for function in json(false)["functions"].as_array().unwrap() {
            let has_reason = function["class"] == "passthrough" || function["handler"] == "conservative";
            assert_eq!(has_reason, function["reason"].is_string(), "{function}");
        }
    }

    #[test]
    fn consecutive_releases_are_a_range() {
        let of = |name: &str| releases(interception::find(name).unwrap());
        assert_eq!(of("hipFree"), "all");
        assert_eq!(of("hipDestroySurfaceObject"), "5.7.1 to 7.2.4");
        assert_eq!(of("_Z23hipDestroySurfaceObjectP13__hip_surface"), "5.2.3");
    }
}
