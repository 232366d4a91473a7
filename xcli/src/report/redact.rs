//! What must not be in a report, taken out of every text in it.
//!
//! No part asks for names or paths; but sentences of others, such as a loader's or a runtime's, may hold them. What is known
//! (home, host, users) is replaced wherever it stands, and every path outside of the system's own folders, known or not.

use serde_json::Value;
use std::path::Path;

/// Folders whose paths say nothing about a person.
const PLAIN: [&str; 7] = ["/dev", "/sys", "/proc", "/usr", "/lib", "/lib64", "/etc/os-release"];
/// Where AMD's own packages are, each release in a folder of its own.
const ROCM: &str = "/opt/rocm";
/// Files of giveway, whose names are kept where their folders are not.
const OURS: [&str; 6] = ["libshimhip.so", "xcli", "xbench", "xserver", "gpu-sim", "libamdhip64.so"];
/// Names that everybody has.
const COMMON: [&str; 3] = ["root", "localhost", "localhost.localdomain"];

/// What is replaced, by what.
#[derive(Debug, Default)]
pub struct Secrets {
    /// Wherever they stand, the longest first.
    paths: Vec<(String, &'static str)>,
    /// Where they stand as words of their own.
    words: Vec<(String, String)>,
}

impl Secrets {
    /// Those of this process: its home, working and temporary folders, host and users.
    pub fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let uid = rustix::process::getuid().as_raw().to_string();
        let mine = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mine = mine.filter(|fields| fields.get(2) == Some(&uid.as_str()));
        let mut secrets = Self::default();
        for fields in mine {
            secrets.user(fields.first().unwrap_or(&""));
            secrets.folder(fields.get(5).unwrap_or(&""), "<home>");
        }
        for name in ["USER", "LOGNAME", "SUDO_USER", "USERNAME"] {
            secrets.user(&variable(name).unwrap_or_default());
        }
        secrets.folder(&variable("HOME").unwrap_or_default(), "<home>");
        let mut folders = vec![std::env::temp_dir()];
        folders.extend(std::env::current_dir());
        folders.extend(std::env::current_exe().ok().and_then(|this| this.parent().map(Path::to_owned)));
        folders.extend(std::env::split_paths(&std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default()));
        for folder in folders.iter().map(|folder| folder.to_string_lossy()).filter(|folder| !is_plain(folder))
        {
            secrets.folder(&folder, "<folder>");
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for host in [Some(host), variable("HOSTNAME"), std::fs::read_to_string("/etc/hostname").ok()] {
            secrets.host(host.unwrap_or_default().trim());
        }
        secrets
    }

    /// A user's name.
    pub fn user(&mut self, name: &str) {
        self.word(name, "<user>");
    }

    /// A host's name, with and without its domain.
    pub fn host(&mut self, name: &str) {
        self.word(name, "<host>");
        self.word(name.split('.').next().unwrap_or_default(), "<host>");
    }

    /// A device's number, by its place among the devices.
    pub fn gpu(&mut self, gpu_id: u32, index: usize) {
        self.word(&gpu_id.to_string(), &format!("#{index}"));
    }

    fn word(&mut self, word: &str, instead: &str) {
        if !word.is_empty() && !COMMON.contains(&word) {
            self.words.push((word.to_owned(), instead.to_owned()));
            self.words.sort_by_key(|(word, _)| std::cmp::Reverse(word.len()));
        }
    }

    /// A folder; the root is none.
    pub fn folder(&mut self, path: &str, instead: &'static str) {
        let path = path.trim_end_matches('/');
        if path.len() > 1 {
            self.paths.push((path.to_owned(), instead));
            self.paths.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        }
    }

    /// The text without any of it.
    pub fn without(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (path, instead) in &self.paths {
            // What is left of a path is no name either.
            text = replace_path(&text, path, instead);
        }
        for (word, instead) in &self.words {
            text = replace_word(&text, word, instead);
        }
        without_ids(&without_paths(&text))
    }

    /// All texts of a value; names of fields stay.
    pub fn clean(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.without(text),
            Value::Array(list) => list.iter_mut().for_each(|value| self.clean(value)),
            Value::Object(map) => map.values_mut().for_each(|value| self.clean(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn is_plain(path: &str) -> bool {
    let below =
        |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    PLAIN.iter().any(|folder| below(folder)) || path.starts_with(ROCM)
}

/// Where a path in a sentence ends.
fn ends_path(c: char) -> bool {
    c.is_whitespace() || matches!(c, ':' | ';' | ',' | '"' | '\'' | '`' | ')' | '(' | '<' | '>' | '=')
}

/// A folder, and what stands below it, whose last name is kept if it is one of ours.
fn replace_path(text: &str, path: &str, instead: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(path) {
        let (before, found) = rest.split_at(at);
        let after = &found[path.len()..];
        // "/home/a" is not in "/home/abc".
        let whole = after.chars().next().is_none_or(|c| c == '/' || ends_path(c));
        out.push_str(before);
        if whole {
            let tail = &after[..after.find(ends_path).unwrap_or(after.len())];
            out.push_str(instead);
            out.push_str(&kept_name(tail));
            rest = &after[tail.len()..];
        } else {
            out.push_str(path);
            rest = after;
        }
    }
    out + rest
}

/// "/name" for a file of ours.
fn kept_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let ours = OURS.iter().any(|ours| name == *ours || name.strip_prefix(ours).is_some_and(is_release));
    if ours { format!("/{name}") } else { String::new() }
}

/// What follows the name of a library: ".5.2.3".
fn is_release(text: &str) -> bool {
    text.starts_with('.') && text.chars().all(|c| c == '.' || c.is_ascii_digit())
}

fn replace_word(text: &str, word: &str, instead: &str) -> String {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, found) = rest.split_at(at);
        let after = &found[word.len()..];
        let last = before.chars().next_back().or_else(|| out.chars().next_back());
        out.push_str(before);
        let whole = !last.is_some_and(inside) && !after.chars().next().is_some_and(inside);
        out.push_str(if whole { instead } else { word });
        rest = after;
    }
    out + rest
}

/// Every absolute path but the system's own is cut down.
fn without_paths(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, path) = rest.split_at(at);
        out.push_str(before);
        let begins = out.chars().next_back().is_none_or(ends_path);
        // "1/2" and "<folder>/libshimhip.so" are no paths from the root.
        let begins = begins && !out.ends_with('>');
        let end = path.find(ends_path).unwrap_or(path.len());
        let (path, after) = path.split_at(end);
        if begins && path.len() > 1 && !is_plain(path) {
            out.push_str("<path>");
            out.push_str(&kept_name(path));
        } else {
            out.push_str(path);
        }
        rest = after;
    }
    out + rest
}

/// Numbers that name a single device: `GPU-0123456789abcdef`, and places on the PCI bus, `0000:c3:00.0`.
fn without_ids(text: &str) -> String {
    let shape = "hhhh:hh:hh.h";
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let uuid = rest.strip_prefix("GPU-").map(|id| {
            let end = id.find(|c: char| !c.is_ascii_hexdigit() && c != '-');
            end.unwrap_or(id.len())
        });
        if let Some(length) = uuid.filter(|length| *length >= 8) {
            out.push_str("GPU-<id>");
            rest = &rest["GPU-".len() + length..];
            continue;
        }
        let head = rest.get(..shape.len()).filter(|head| {
            let mut pairs = head.chars().zip(shape.chars());
            pairs.all(|(c, s)| if s == 'h' { c.is_ascii_hexdigit() } else { c == s })
        });
        if head.is_some() {
            out.push_str("<pci>");
            rest = &rest[shape.len()..];
            continue;
        }
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let mut secrets = Secrets::default();
        secrets.folder("/home/ann lee", "<home>");
        secrets.folder("/home/ann", "<home>");
        secrets.folder("/", "<home>");
        secrets.user("ann");
        secrets.user("root");
        secrets.user("");
        secrets.host("box-7.lab.example.org");
        secrets.gpu(51234, 0);
        secrets
    }

    #[test]
    fn names_are_taken_out_where_they_are_words() {
        let without = |text: &str| secrets().without(text);
        assert_eq!(without("ann's channel of ann@box-7"), "<user>'s channel of <user>@<host>");
        assert_eq!(without("box-7.lab.example.org, box-72"), "<host>, box-72");
        assert_eq!(without("ask root"), "ask root");
        assert_eq!(without("GPU 51234 (gfx90a), 512345"), "GPU #0 (gfx90a), 512345");
        assert_eq!(without("6.1.0-ann"), "6.1.0-<user>");
        assert_eq!(without("annann ann_ann"), "annann ann_ann");
    }

    #[test]
    fn paths_are_cut_down_to_what_everybody_has() {
        let without = |text: &str| secrets().without(text);
        assert_eq!(
            without("preloads /home/ann lee/secret/libshimhip.so now"),
            "preloads <home>/libshimhip.so now"
        );
        assert_eq!(without("/home/anna/x"), "<path>");
        assert_eq!(without("cannot open /srv/project-x/run.sock: no"), "cannot open <path>: no");
        assert_eq!(without("at /srv/x/libamdhip64.so.5.2.3,"), "at <path>/libamdhip64.so.5.2.3,");
        assert_eq!(without("/srv/libamdhip64.so.mine"), "<path>");
        let plain = "/dev/kfd /usr/lib/x.so /opt/rocm-6.1.0/lib 1/2 and /";
        assert_eq!(without(plain), plain);
        assert_eq!(without("/library/x /opt/mine/x"), "<path> <path>");
        assert_eq!(without("A=/x/y:/z"), "A=<path>:<path>");
    }

    #[test]
    fn devices_are_not_named() {
        let without = |text: &str| secrets().without(text);
        assert_eq!(without("GPU-12ab34cd56ef7890,1"), "GPU-<id>,1");
        assert_eq!(without("at 0000:c3:00.0!"), "at <pci>!");
        assert_eq!(without("GPU-sim ünd GPU-1"), "GPU-sim ünd GPU-1");
    }

    #[test]
    fn every_text_of_a_value_is_cleaned() {
        let mut value = serde_json::json!({"ann": ["ann", {"x": "/home/ann/y", "n": 3}], "b": null});
        secrets().clean(&mut value);
        assert_eq!(value, serde_json::json!({"ann": ["<user>", {"x": "<home>", "n": 3}], "b": null}));
    }

    #[test]
    fn this_process_has_secrets_that_do_not_stay() {
        let secrets = Secrets::of_this_process();
        let here = std::env::current_dir().unwrap();
        let text = format!("in {}/inner", here.display());
        assert!(!secrets.without(&text).contains(&*here.to_string_lossy()));
    }
}
