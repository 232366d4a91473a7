use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::function::{ALL, TO_6_4};
use hip_sys::pfn::{self, Prototype};

const LISTS: [(Release, &str); 4] = [
    (Release::V5_2_3, include_str!("../../hip-sys/data/hip_symbols_5.2.3.txt")),
    (Release::V5_7_1, include_str!("../../hip-sys/data/hip_symbols_5.7.1.txt")),
    (Release::V6_4_3, include_str!("../../hip-sys/data/hip_symbols_6.4.3.txt")),
    (Release::V7_2_4, include_str!("../../hip-sys/data/hip_symbols_7.2.4.txt")),
];

/// Functions whose prototype has a stream argument, and that the library leaves alone all the same.
const REVIEWED_STREAM_FUNCTIONS: &[&str] = &[
    // Only stores the stream for the launch that the compiler generates next, which gets it as an argument.
    "__hipPushCallConfiguration",
    // The same for hipLaunchByPtr, which launches through hipModuleLaunchKernel.
    "hipConfigureCall",
    // For tools: a kernel's name; the stream only says on which device.
    "hipKernelNameRefByPtr",
];

/// Names of functions in a list of symbols (`name@@node TYPE BINDING VISIBILITY INDEX`).
fn functions(list: &str) -> BTreeSet<&str> {
    list.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let symbol = fields.next()?;
            (fields.next()? == "FUNC").then(|| symbol.split('@').next().unwrap_or(symbol))
        })
        .collect()
}

fn prototypes() -> impl Iterator<Item = &'static Prototype> {
    [pfn::DIRECT, pfn::DRAIN, pfn::EMBEDDED, pfn::TRANSLATE, pfn::FORWARD].into_iter().flatten()
}

#[test]
fn rows_equal_the_exports_of_each_release() {
    for (release, list) in LISTS {
        let exported = functions(list);
        assert!(exported.len() > 380, "{}: {} functions read", release.as_str(), exported.len());
        let rows: BTreeSet<&str> = FUNCTIONS
            .iter()
            .filter(|function| function.releases.contains(release))
            .map(|function| function.name)
            .collect();
        let missing: Vec<_> = exported.difference(&rows).collect();
        let extra: Vec<_> = rows.difference(&exported).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{}: missing {missing:?}, extra {extra:?}",
            release.as_str()
        );
    }
}

#[test]
fn symbol_lists_contain_only_functions_and_version_nodes() {
    for (release, list) in LISTS {
        for line in list.lines() {
            let mut fields = line.split_whitespace();
            let (name, kind) = (fields.next().unwrap_or(""), fields.next().unwrap_or(""));
            assert!(
                kind == "FUNC" || (kind == "OBJECT" && name.starts_with("hip_")),
                "{}: {line}",
                release.as_str()
            );
        }
    }
}

#[test]
fn row_without_a_release_does_not_exist() {
    for function in FUNCTIONS {
        assert_ne!(function.releases, Releases::NONE, "{}", function.name);
    }
}

#[test]
fn rows_are_sorted_and_unique() {
    assert!(FUNCTIONS.windows(2).all(|pair| pair[0].name < pair[1].name));
}

#[test]
fn find_returns_the_row_of_a_name_and_nothing_for_others() {
    for (index, function) in FUNCTIONS.iter().enumerate() {
        assert_eq!(index_of(function.name.as_bytes()), Some(index));
        assert_eq!(find(function.name).map(|found| found.name), Some(function.name));
    }
    for absent in ["", "hip", "hipLaunchKernel_", "hipLaunchKerne", "zzz", "cuLaunchKernel"] {
        assert!(find(absent).is_none(), "{absent}");
    }
    assert!(index_of(b"hip\xff").is_none());
}

#[test]
fn rows_have_a_reason_exactly_if_they_pass_or_are_conservative() {
    for function in FUNCTIONS {
        let passes = function.class == Class::Passthrough;
        assert_eq!(passes, function.rule == Rule::Forward, "{}", function.name);
        assert_eq!(passes, reason::ALL.contains(&function.reason), "{}", function.name);
        let conservative = function.rule == Rule::Drain;
        assert_eq!(conservative, reason::CONSERVATIVE.contains(&function.reason), "{}", function.name);
        assert_eq!(passes || conservative, !function.reason.is_empty(), "{}", function.name);
        assert_eq!(passes, !function.is_exported(), "{}", function.name);
    }
}

#[test]
fn reasons_are_different_and_used() {
    for (index, reason) in reason::ALL.iter().chain(reason::CONSERVATIVE).enumerate() {
        let all = reason::ALL.iter().chain(reason::CONSERVATIVE);
        assert_eq!(all.take(index).filter(|other| *other == reason).count(), 0, "twice: {reason}");
        assert!(FUNCTIONS.iter().any(|function| function.reason == *reason), "unused: {reason}");
    }
}

#[test]
fn prototypes_agree_with_rules() {
    let mut rules: BTreeMap<&str, Rule> = BTreeMap::new();
    for (list, rule) in [
        (pfn::DIRECT, Rule::Direct),
        (pfn::DRAIN, Rule::Drain),
        (pfn::EMBEDDED, Rule::Direct),
        (pfn::TRANSLATE, Rule::Translate),
        (pfn::FORWARD, Rule::Forward),
    ] {
        for prototype in list {
            assert_eq!(rules.insert(prototype.name, rule), None, "{} has two prototypes", prototype.name);
        }
    }
    for function in FUNCTIONS {
        let rule = rules.remove(function.name);
        if function.rule == Rule::Forward {
            assert!(rule.is_none_or(|rule| rule == Rule::Forward), "{}", function.name);
        } else {
            assert_eq!(rule, Some(function.rule), "{}", function.name);
        }
    }
    assert!(rules.is_empty(), "prototypes without a row: {rules:?}");
}

#[test]
fn stream_functions_pass_only_if_reviewed() {
    let names: BTreeSet<&str> = include_str!("../../hip-sys/data/stream_functions.txt").lines().collect();
    for name in &names {
        let function = find(name).unwrap_or_else(|| panic!("{name} has no row"));
        let reviewed = REVIEWED_STREAM_FUNCTIONS.contains(name);
        assert_eq!(function.rule == Rule::Forward, reviewed, "{name}");
    }
    // What the prototypes say about themselves agrees with the list, so that neither can fall behind.
    for prototype in prototypes() {
        assert_eq!(!prototype.streams.is_empty(), names.contains(prototype.name), "{}", prototype.name);
    }
    // A name that looks like work on a stream is in the list, or was looked at.
    for function in FUNCTIONS.iter().filter(|function| function.rule == Rule::Forward) {
        let name = function.name;
        let like_work = [
            "Async",
            "Launch",
            "Stream",
            "Memcpy",
            "Memset",
            "Synchronize",
            "Free",
            "Destroy",
            "Unload",
            "Unmap",
            "Unregister",
            "Release",
            "Close",
        ]
        .iter()
        .any(|part| name.contains(part));
        let template = function.reason == reason::GRAPH_TEMPLATE || function.reason == reason::COMPILES;
        let looked_at =
            ["hipDeviceGetStreamPriorityRange", "hipThreadExchangeStreamCaptureMode"].contains(&name);
        assert!(!like_work || template || looked_at, "{name} passes: {}", function.reason);
    }
}

#[test]
fn twins_follow_the_plain_function() {
    for function in FUNCTIONS.iter().filter(|function| function.is_per_thread()) {
        let plain = find(function.name.trim_end_matches("_spt")).expect("a twin has a plain function");
        assert_eq!((function.class, function.rule), (plain.class, plain.rule), "{}", function.name);
    }
    for (mangled, plain) in [
        (
            "_Z24hipExtModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_j",
            "hipExtModuleLaunchKernel",
        ),
        (
            "_Z24hipHccModuleLaunchKernelP18ihipModuleSymbol_tjjjjjjmP12ihipStream_tPPvS4_P11ihipEvent_tS6_",
            "hipHccModuleLaunchKernel",
        ),
        ("_Z23hipDestroySurfaceObjectP13__hip_surface", "hipDestroySurfaceObject"),
    ] {
        assert_eq!(
            find(mangled).map(|function| function.rule),
            find(plain).map(|function| function.rule),
            "{mangled}"
        );
    }
}

#[test]
fn functions_with_their_own_handler_are_those_listed() {
    for name in [
        "hipLaunchKernel",
        "hipModuleLaunchKernel",
        "hipExtLaunchKernel",
        "hipMemcpyAsync",
        "hipMemset",
        "hipEventRecord",
        "hipStreamWaitEvent",
        "hipStreamSynchronize",
        "hipDeviceSynchronize",
        "hipStreamDestroy",
        "hipLaunchHostFunc",
        "hipGetProcAddress",
        "hipGetLastError",
        "hipFreeAsync",
        "hipGraphLaunch",
        "hipGraphExecDestroy",
        "hipLaunchCooperativeKernel",
        "hipMemcpy2DAsync",
        "hipStreamWaitValue32",
    ] {
        assert_eq!(find(name).map(|function| function.rule), Some(Rule::Direct), "{name}");
    }
    for name in ["hipFree", "hipMemcpy2D", "hipStreamBeginCapture", "hipDeviceReset"] {
        assert_eq!(find(name).map(|function| function.rule), Some(Rule::Drain), "{name}");
    }
}

#[test]
fn releases_print_as_versions() {
    assert_eq!(format!("{TO_6_4:?}"), r#"{"5.2.3", "5.7.1", "6.4.3"}"#);
    assert_eq!(ALL.iter().count(), 4);
}
