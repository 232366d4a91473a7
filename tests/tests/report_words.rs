//! A report keeps only listed words (`xcli/src/report/words.txt`), so the list must have the words of the messages
//! that end up in one. `GIVEWAY_REGENERATE=1` adds missing ones; read them before you commit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LIST: &str = "xcli/src/report/words.txt";
/// The code whose messages reach a report: findings of the doctor, reasons why a level is not in force, and errors of measurements.
const SOURCES: &[&str] = &[
    "agent/src/preemption",
    "agent/src/preemption.rs",
    "hal-kfd/src/capabilities.rs",
    "hal-kfd/src/problem.rs",
    "host/src/process.rs",
    "lab/xbench/src/calibrate",
    "lab/xbench/src/corun",
    "lab/xbench/src/hip/optional.rs",
    "lab/xbench/src/selftest",
    "lab/xbench/src/session",
    "policies/src/explanation.rs",
    "xcli/src/ask.rs",
    "xcli/src/doctor",
    "xcli/src/doctor.rs",
    "xcli/src/error.rs",
    "xcli/src/report.rs",
];

/// Returns the contents of a source's string literals, without its test module and comments.
fn literals(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = lines.join("\n").replace("'\"'", "").replace("b'\"'", "");
    let (mut found, mut open, mut chars) = (Vec::new(), None::<String>, code.chars().peekable());
    while let Some(c) = chars.next() {
        match (&mut open, c) {
            (Some(text), '\\') => match chars.next() {
                // A line that continues.
                Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                Some('n') => text.push(' '),
                Some(other) => text.push(other),
                None => {}
            },
            (Some(_), '"') => found.extend(open.take()),
            (Some(text), c) => text.push(c),
            (None, '"') => open = Some(String::new()),
            (None, _) => {}
        }
    }
    found
}

/// Returns the words of a message. A literal without a space is a name or a key.
fn words(message: &str) -> Vec<String> {
    let (mut plain, mut depth) = (String::new(), 0);
    for c in message.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    if !plain.trim().contains(' ') {
        return Vec::new();
    }
    let words = plain.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_ascii_alphanumeric()));
    let is_word =
        |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_alphabetic() || "'-".contains(c));
    words.filter(is_word).map(str::to_lowercase).collect()
}

fn sources(path: &Path, found: &mut Vec<PathBuf>) {
    if !path.is_dir() {
        found.push(path.to_owned());
        return;
    }
    for entry in fs::read_dir(path).expect("a folder of the workspace").flatten() {
        sources(&entry.path(), found);
    }
}

#[test]
fn words_of_a_report_cover_its_messages() {
    let mut files = Vec::new();
    for source in SOURCES {
        sources(&tests::workspace().join(source), &mut files);
    }
    let list = tests::workspace().join(LIST);
    let text = fs::read_to_string(&list).expect("the list");
    let listed: BTreeSet<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let read = |file: &PathBuf| {
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    let used: BTreeSet<String> =
        files.iter().flat_map(|file| literals(&read(file))).flat_map(|message| words(&message)).collect();
    assert!(used.contains("hardware") && used.contains("kernel"), "the messages are read: {used:?}");
    let missing: Vec<&String> = used.difference(&listed).collect();
    if std::env::var_os("GIVEWAY_REGENERATE").is_some() {
        fs::write(&list, lines(listed.union(&used))).expect("the list is written");
        return;
    }
    assert!(
        missing.is_empty(),
        "{LIST} lacks words of messages (GIVEWAY_REGENERATE=1 adds them): {missing:?}"
    );
}

/// Returns the words in lines as long as those of the code.
fn lines<'a>(words: impl Iterator<Item = &'a String>) -> String {
    let (mut text, mut width) = (String::new(), 0);
    for word in words {
        if width > 0 && width + 1 + word.len() > 110 {
            text.push('\n');
            width = 0;
        } else if width > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += word.len();
    }
    text + "\n"
}

#[test]
fn literals_and_words_are_read() {
    let source = "// \"no\"\nlet a = '\"'; let b = \"one {two} three,\\\n     four\"; let c = \"key\";\n#[cfg(test)]\nmod t { \"x y\" }";
    let found = literals(source);
    assert_eq!(found, ["one {two} three,four", "key"]);
    assert_eq!(words("{name} isn't (yet) loaded 7: \"x\""), ["isn't", "yet", "loaded"]);
    assert_eq!(words("key"), [""; 0]);
}
