//! Links between the documents: each leads to a file that exists and to a heading that the file has, and every page
//! of `docs/` is in the book's table of contents, `docs/SUMMARY.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Folders whose Markdown files are checked, besides the root itself. Subfolders belong to them.
const FOLDERS: [&str; 4] = ["docs", "examples", "include", ".github"];
const CONTENTS: &str = "docs/SUMMARY.md";

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
