//! The workspace keeps its shape: which crate may use which (`ARCHITECTURE.md`), what every crate
//! inherits, and that no file grows into two ideas.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;

/// Each crate of the workspace, and which other crates of the workspace it may use. Nothing else.
const ARROWS: &[(&str, &[&str])] = &[
    ("hip-sys", &[]),
    ("interception", &["hip-sys"]),
    ("protocol", &[]),
    ("manual", &[]),
    ("xqueue", &[]),
    ("policies", &["protocol"]),
    ("host", &[]),
    ("hal-kfd", &["hip-sys", "host"]),
    ("hal-hip", &["xqueue", "hip-sys", "host"]),
    ("agent", &["hal-kfd", "host", "xqueue", "policies", "protocol"]),
    (
        "shim",
        &["agent", "hal-hip", "hal-kfd", "host", "xqueue", "policies", "protocol", "hip-sys", "interception"],
    ),
    ("xserver", &["policies", "hal-kfd", "host", "protocol", "hip-sys", "manual"]),
    ("xcli", &["policies", "hal-kfd", "host", "protocol", "interception", "manual"]),
    ("cuda-cpu", &[]),
    ("gpu-sim", &["hip-sys", "manual"]),
    ("hip-cuda", &["hip-sys"]),
    ("xbench", &["policies", "protocol", "hip-sys", "manual"]),
    ("tests", &[]),
];

/// Lines that a source file may have, and the files that may have more, with the reason.
const MOST_LINES: usize = 600;
const LONGER_FILES: &[(&str, &str)] = &[];

/// Returns one sentence for each use between crates (normal, build or dev) that is not allowed.
fn judge(arrows: &[(&str, &[&str])], uses: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, used) in uses {
        let Some((_, allowed)) = arrows.iter().find(|(known, _)| known == name) else {
            faults.push(format!(
                "{name} is not in the list of crates: give it its arrows in tests/tests/arrows.rs"
            ));
            continue;
        };
        for other in used {
            if !allowed.contains(&other.as_str()) {
                faults.push(format!("{name} must not use {other}"));
            }
        }
    }
    faults
}

/// A name, its Cargo.toml, and the crates of the workspace that it uses.
struct Member {
    name: String,
    manifest: PathBuf,
    uses: Vec<String>,
}

fn members() -> Vec<Member> {
    let metadata = MetadataCommand::new()
        .current_dir(tests::workspace())
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo metadata");
    let names: Vec<String> =
        metadata.workspace_packages().iter().map(|package| package.name.to_string()).collect();
    metadata
        .workspace_packages()
        .iter()
        .map(|package| Member {
            name: package.name.to_string(),
            manifest: package.manifest_path.clone().into(),
            uses: package
                .dependencies
                .iter()
                .filter(|dependency| dependency.path.is_some() || names.contains(&dependency.name))
                .map(|dependency| dependency.name.clone())
                .collect(),
        })
        .collect()
}

fn uses(list: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    list.iter()
        .map(|(name, used)| ((*name).to_owned(), used.iter().map(|u| (*u).to_owned()).collect()))
        .collect()
}

#[test]
fn crates_use_only_what_the_design_allows() {
    let members = members();
    assert!(members.iter().any(|member| member.name == "tests"), "cargo metadata lists this crate");
    let faults = judge(ARROWS, &members.into_iter().map(|member| (member.name, member.uses)).collect());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_judge_sees_a_forbidden_arrow() {
    assert_eq!(judge(ARROWS, &uses(ARROWS)), [""; 0], "all the allowed arrows at once");
    assert_eq!(
        judge(ARROWS, &uses(&[("policies", &["protocol", "hal-hip"])])),
        ["policies must not use hal-hip"]
    );
    assert_eq!(judge(ARROWS, &uses(&[("xbench", &["shim"])])), ["xbench must not use shim"]);
    assert_eq!(judge(ARROWS, &uses(&[("tests", &["gpu-sim"])])), ["tests must not use gpu-sim"]);
    assert_eq!(judge(ARROWS, &uses(&[("hip-sys", &["hip-sys"])])), ["hip-sys must not use hip-sys"]);
    let unknown = judge(ARROWS, &uses(&[("xother", &[])]));
    assert!(unknown.len() == 1 && unknown[0].starts_with("xother is not in the list"), "{unknown:?}");
}

#[test]
fn the_arrows_go_only_downward() {
    // Each crate stands below all that it uses: no circle.
    let mut placed: Vec<&str> = Vec::new();
    while placed.len() < ARROWS.len() {
        let next = ARROWS
            .iter()
            .find(|(name, used)| !placed.contains(name) && used.iter().all(|other| placed.contains(other)))
            .unwrap_or_else(|| panic!("the arrows among the crates other than {placed:?} run in a circle"));
        placed.push(next.0);
    }
}

/// The keys of a manifest that read `KEY.workspace = true`, or stand so in their own section.
fn inherits(manifest: &str, key: &str) -> bool {
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
        }
        let line: String = line.split_whitespace().collect();
        let in_package = section == "package" && line == format!("{key}.workspace=true");
        if in_package || (section == key && line == "workspace=true") {
            return true;
        }
    }
    false
}

#[test]
fn every_crate_inherits_lints_licence_and_versions() {
    for member in members() {
        let text = fs::read_to_string(&member.manifest).expect("a crate's Cargo.toml");
        for key in ["lints", "license", "rust-version", "edition", "version"] {
            assert!(
                inherits(&text, key),
                "{}: Cargo.toml does not inherit `{key}` from the workspace",
                member.name
            );
        }
    }
    assert!(!inherits("[package]\nlicense = \"MIT\"\n[other]\nlicense.workspace = true\n", "license"));
    assert!(inherits("[package]\nlicense.workspace = true\n", "license"));
    assert!(inherits("[lints]\nworkspace = true\n", "lints"));
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the workspace").flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name() != Some("target".as_ref()) {
            rust_files(&path, found);
        } else if path.extension() == Some("rs".as_ref()) {
            found.push(path);
        }
    }
}

#[test]
fn no_file_is_too_long() {
    let mut files = Vec::new();
    for member in members() {
        rust_files(member.manifest.parent().expect("a manifest lies in a folder"), &mut files);
    }
    assert!(files.iter().any(|file| file.ends_with("tests/tests/arrows.rs")), "this file is among them");
    for file in files {
        let name = file.strip_prefix(tests::workspace()).unwrap_or(&file).display().to_string();
        let lines = fs::read_to_string(&file).expect("a source file").lines().count();
        let listed = LONGER_FILES.iter().any(|(longer, _reason)| *longer == name);
        assert!(
            lines <= MOST_LINES || listed,
            "{name} has {lines} lines, more than {MOST_LINES}: it holds two ideas"
        );
    }
}

/// The crates of the table in `ARCHITECTURE.md`, each with what it may use, by name.
fn table_of_architecture(text: &str) -> BTreeMap<&str, Vec<&str>> {
    let rows = text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.rsplit('|').skip(1);
        let mut uses: Vec<_> = cells.next()?.split('`').skip(1).step_by(2).collect();
        uses.sort_unstable();
        Some((line.split('`').nth(1)?.rsplit('/').next()?, uses))
    });
    rows.collect()
}

#[test]
fn architecture_lists_every_arrow() {
    let text = fs::read_to_string(tests::workspace().join("ARCHITECTURE.md")).expect("the document");
    let table = table_of_architecture(&text);
    for (name, allowed) in ARROWS {
        let mut allowed = allowed.to_vec();
        allowed.sort_unstable();
        let mut listed = table.get(name).cloned().unwrap_or_else(|| panic!("ARCHITECTURE.md lacks {name}"));
        listed.retain(|used| ARROWS.iter().any(|(known, _)| known == used));
        assert_eq!(listed, allowed, "what {name} may use: ARCHITECTURE.md and ARROWS");
    }
}

#[test]
fn table_row_is_read_with_its_uses() {
    let table = table_of_architecture(
        "| crate | purpose | may use |\n|---|---|---|\n| `lab/a` | uses `x` | `c`, `b` |\n",
    );
    assert_eq!(table, BTreeMap::from([("a", vec!["b", "c"])]));
}
