//! Links between the documents: each leads to a file that exists and to a heading that the file has, and every page
//! of `docs/` is in the book's table of contents, `docs/SUMMARY.md`. Each test that `docs/security.md` names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Folders whose Markdown files are checked, besides the root itself. Subfolders belong to them.
const FOLDERS: [&str; 4] = ["docs", "examples", "include", ".github"];
const CONTENTS: &str = "docs/SUMMARY.md";
/// The page that names the test of each claim, as `module::test`.
const CLAIMS: &str = "docs/security.md";

/// The Markdown files below `folder`, relative to `root`; those of `folder` itself only, unless `deep`.
fn markdown(root: &Path, folder: &str, deep: bool, found: &mut BTreeSet<PathBuf>) {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return };
    for entry in entries {
        let entry = entry.expect("a folder can be listed");
        let path = Path::new(folder).join(entry.file_name());
        if entry.path().is_dir() && deep {
            markdown(root, path.to_str().expect("names are UTF-8"), true, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.insert(path);
        }
    }
}

/// The text without fenced code blocks and without inline code, in which nothing is a link.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // Every second part stands between backquotes.
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    prose
}

/// The targets of all inline links and pictures.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
}

/// The anchors of a page's headings, by the rule that GitHub and mdBook share.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if !fenced && line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter(|sign| sign.is_alphanumeric() || " -_".contains(*sign));
            anchors.insert(kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect());
        }
    }
    anchors
}

/// `path` without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// One sentence for each link that leads nowhere, and for each page that the book lacks.
fn problems(root: &Path) -> Vec<String> {
    let mut files = BTreeSet::new();
    markdown(root, "", false, &mut files);
    for folder in FOLDERS {
        markdown(root, folder, true, &mut files);
    }
    let read = |file: &Path| fs::read_to_string(root.join(file)).unwrap_or_default();
    let target = |file: &Path, link: &str| normal(&file.parent().unwrap_or(Path::new("")).join(link));
    let contents = Path::new(CONTENTS);
    let book: BTreeSet<_> = links(&read(contents)).iter().map(|link| target(contents, link)).collect();
    let mut problems = Vec::new();
    for file in &files {
        if file.starts_with("docs") && file != contents && !book.contains(file) {
            problems.push(format!("{}: not in {CONTENTS}", file.display()));
        }
        let text = read(file);
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let to = if path.is_empty() { file.clone() } else { target(file, path) };
            let mut problem = |what: &str| problems.push(format!("{}: {link}: {what}", file.display()));
            if !root.join(&to).is_file() {
                problem("no such file");
            } else if book.contains(file)
                && !book.contains(&to)
                && to.extension().is_none_or(|end| end != "svg")
            {
                problem("a page of the book can only link to pages of the book and to pictures");
            } else if !anchor.is_empty() && !anchors(&read(&to)).contains(anchor) {
                problem("no such heading");
            }
        }
    }
    problems
}

/// A test that a page names.
#[derive(Debug)]
struct Named<'a> {
    /// The module or file in which it is, then its function.
    path: Vec<&'a str>,
    /// The crate, if the page says it.
    member: Option<&'a str>,
}

/// The tests that a page names: inline code of the form `module::test`, perhaps followed by the crate in parentheses.
fn named_tests<'a>(text: &'a str) -> Vec<Named<'a>> {
    let is_name = |part: &str| {
        let is_part = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_';
        !part.is_empty() && part.chars().all(is_part)
    };
    let parts: Vec<&str> = text.split('`').collect();
    let named = |pair: &[&'a str]| {
        let path: Vec<_> = pair[0].split("::").collect();
        let member = pair[1].strip_prefix(" (").and_then(|rest| rest.split(')').next());
        (path.len() > 1 && path.iter().all(|part| is_name(part)))
            .then_some(Named { path, member: member.filter(|member| is_name(member)) })
    };
    parts[1..].chunks_exact(2).filter_map(named).collect()
}

/// Returns true if this source file, with a path relative to the root, is the module `module` or has its tests.
fn is_module(file: &Path, module: &[&str]) -> bool {
    let file = file.with_extension("");
    let mut parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    while !parts.ends_with(module) {
        if !parts.pop().is_some_and(|last| ["lib", "main", "mod", "tests"].contains(&last)) {
            return false;
        }
    }
    true
}

/// Returns true if a source has a test of this name.
fn has_test(source: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let is_test = |place: usize| {
        let attributes =
            lines[..place].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        attributes.copied().any(|line| line == "#[test]")
    };
    lines.iter().enumerate().any(|(place, line)| line.starts_with(&head) && is_test(place))
}

fn sources(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder can be listed").flatten() {
        let path = folder.join(entry.file_name());
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        if entry.path().is_dir() && !is_hidden && entry.file_name() != "target" {
            sources(root, &path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// One sentence for each test that a page names and that its file does not have.
fn missing_tests(root: &Path, page: &str) -> Vec<String> {
    let text = fs::read_to_string(root.join(page)).expect("the page");
    let mut files = Vec::new();
    sources(root, Path::new(""), &mut files);
    let exists = |named: &Named<'_>| {
        let (name, module) = named.path.split_last().expect("it has two parts");
        let is_its = |file: &&PathBuf| {
            is_module(file, module) && named.member.is_none_or(|member| file.starts_with(member))
        };
        files
            .iter()
            .filter(is_its)
            .any(|file| has_test(&fs::read_to_string(root.join(file)).expect("a source can be read"), name))
    };
    let missing = named_tests(&text).into_iter().filter(|named| !exists(named));
    missing.map(|named| format!("{page}: {}: no such test", named.path.join("::"))).collect()
}

/// A tree with these files.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    root
}

#[test]
fn links_of_all_documents_lead_somewhere() {
    let root = tests::workspace();
    let mut files = BTreeSet::new();
    markdown(root, "docs", true, &mut files);
    assert!(files.len() > 30, "the documents were found: {files:?}");
    let problems = problems(root);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// `docs/performance.md` is written from the figures in its folder.
#[test]
fn the_page_about_performance_is_what_its_figures_say() {
    let script = tests::workspace().join("scripts/performance");
    let output = std::process::Command::new(script).arg("--check").output().expect("python3 is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn tree_without_faults_has_no_problems() {
    let tree = tree(&[
        (
            "README.md",
            "[a](docs/a.md#two-words) ![p](docs/p.svg) [web](https://example.org/x.md) `[code](gone.md)`",
        ),
        ("docs/SUMMARY.md", "[r](../README.md) [a](a.md)"),
        (
            "docs/a.md",
            "# Title\n## Two words\n```\n[fenced](gone.md)\n```\n[up](../README.md) [here](#title)",
        ),
        ("docs/p.svg", ""),
    ]);
    assert_eq!(problems(tree.path()), [""; 0]);
}

#[test]
fn each_kind_of_broken_link_is_reported() {
    let tree = tree(&[
        ("README.md", "[a](docs/gone.md) [b](docs/a.md#gone) [c](LICENSE)"),
        ("LICENSE", ""),
        ("docs/SUMMARY.md", "[r](../README.md) [a](a.md)"),
        ("docs/a.md", "# Title"),
        ("docs/lost.md", ""),
    ]);
    let expected = [
        "README.md: docs/gone.md: no such file",
        "README.md: docs/a.md#gone: no such heading",
        "README.md: LICENSE: a page of the book can only link to pages of the book and to pictures",
        "docs/lost.md: not in docs/SUMMARY.md",
    ];
    assert_eq!(problems(tree.path()), expected);
}

#[test]
fn tests_that_the_page_about_security_names_exist() {
    let root = tests::workspace();
    let text = fs::read_to_string(root.join(CLAIMS)).expect("the page");
    assert!(named_tests(&text).len() > 60, "the names were found: {:?}", named_tests(&text));
    let missing = missing_tests(root, CLAIMS);
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn each_wrong_name_of_a_test_is_reported() {
    let tree = tree(&[
        ("one/src/peer.rs", "#[test]\nfn is_read() {}\nfn helper() {}\n"),
        ("one/src/core/tests/mod.rs", "    #[test]\n    /// Why.\n    fn steps() {}\n"),
        ("two/tests/outer/main.rs", "#[test]\n#[ignore]\nfn any(bytes in vec(0)) {}\n"),
        (
            "page.md",
            "`peer::is_read` (one), `core::tests::steps`, `outer::any`, `peer.rs`, `std::io::Error`\n\
             `peer::is_written`, `peer::helper`, `peer::is_read` (two), `mod::is_read`, `core::users::steps`",
        ),
    ]);
    let names = ["peer::is_written", "peer::helper", "peer::is_read", "mod::is_read", "core::users::steps"];
    assert_eq!(
        missing_tests(tree.path(), "page.md"),
        names.map(|name| format!("page.md: {name}: no such test"))
    );
}
