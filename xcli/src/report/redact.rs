//! What must not be in a report, taken out of every text in it.
//!
//! No part asks for names or paths; but sentences of others, such as a loader's or a runtime's, may hold them. What is known
//! (home, host, users, the server's socket) is replaced wherever it stands, and every path outside of the system's own
//! folders, known or not. What the program itself says, from a vocabulary of its own, stays: a user may be called `hold`.

use crate::place::Place;
use crate::table::plain;
use serde_json::Value;
use std::path::Path;

/// Folders whose paths say nothing about a person.
const PLAIN: [&str; 13] = [
    "/dev/kfd",
    "/dev/dri",
    "/sys",
    "/proc",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/share",
    "/lib",
    "/lib64",
    "/etc/os-release",
];
/// Where AMD's own packages are, each release in a folder of its own, such as `/opt/rocm-6.1.0`.
const ROCM: &str = "/opt/rocm";
/// Names below /proc/PID from which any other file is reached.
const DOORS: [&str; 4] = ["root", "cwd", "exe", "map_files"];
/// Files of giveway, whose names are kept where their folders are not.
const OURS: [&str; 6] = ["libshimhip.so", "xcli", "xbench", "xserver", "gpu-sim", "libamdhip64.so"];
/// Names that everybody has.
const COMMON: [&str; 3] = ["root", "localhost", "localhost.localdomain"];

/// Words of ours, which stay where a user or a host is called so: they tell nothing, and without them no sentence does.
const VOCABULARY: [&str; 37] = [
    "a", "amd", "amdgpu", "auto", "chaos", "debug", "default", "defer", "driver", "events", "forward",
    "giveway", "gpu", "hip", "hold", "holds", "kernel", "kfd", "launch", "library", "linux", "native", "no",
    "off", "on", "path", "process", "queue", "queues", "rocm", "server", "sim", "trap", "update", "window",
    "x86_64", "yes",
];
/// What stands for a path in a text that has been through here.
const PATH_MARKS: [&str; 4] = ["<home>", "<folder>", "<path>", "<socket>"];
/// Fields that the program itself fills or a list of its own, by the nearest field around them: nothing of a person gets
/// in there, and a user who is called `hold` or `ubuntu` would take something out of them that a reader needs.
const OWN: [(&str, &str); 16] = [
    ("result", "giveway"),
    ("result", "machine"),
    ("result", "distribution"),
    ("result", "distribution_version"),
    ("result", "kfd"),
    ("gpus", "target"),
    ("gpus", "scheduler"),
    ("findings", "verdict"),
    ("findings", "about"),
    ("devices", "arch"),
    ("figures", "name"),
    ("figures", "what"),
    ("figures", "unit"),
    ("mechanisms", "mechanism"),
    ("modes", "name"),
    ("programs", "name"),
];

/// What is replaced, by what.
#[derive(Debug, Default)]
pub struct Secrets {
    /// Wherever they stand, letter by letter, before all else; the longest first.
    exact: Vec<(String, &'static str)>,
    /// Wherever they stand, the longest first.
    paths: Vec<(String, &'static str)>,
    /// Where they stand as words of their own.
    words: Vec<(String, String)>,
    /// A word that is none of them, whoever is called so.
    distribution: Option<String>,
}

impl Secrets {
    /// Those of this process: its home, working and temporary folders, host and users.
    pub fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let uid = rustix::process::getuid().as_raw().to_string();
        let mine = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mine = mine.filter(|fields| fields.get(2) == Some(&uid.as_str()));
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let mut secrets = Self { distribution: super::versions::field(&release, "ID"), ..Self::default() };
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
        for folder in
            folders.iter().map(|folder| folder.to_string_lossy()).filter(|folder| !is_plain(&normal(folder)))
        {
            secrets.folder(&folder, "<folder>");
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for host in [Some(host), variable("HOSTNAME"), std::fs::read_to_string("/etc/hostname").ok()] {
            secrets.host(host.unwrap_or_default().trim());
        }
        secrets
    }

    /// Where the server is, and what the command line said of it.
    pub fn place(&mut self, place: &Place) {
        // As a sentence has it, and as the doctor makes it fit for a terminal.
        for (secret, instead) in
            [(place.socket.to_string_lossy(), "<socket>"), ((&*place.said).into(), "<server>")]
        {
            for text in [plain(&secret), secret.into_owned()] {
                if !text.is_empty() && text != "/" {
                    self.exact.push((text, instead));
                }
            }
        }
        self.exact.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
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
        let said_anyway = COMMON.contains(&word)
            || VOCABULARY.contains(&word)
            || self.distribution.as_deref() == Some(word);
        if !word.is_empty() && !said_anyway {
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
        for (exact, instead) in &self.exact {
            text = text.replace(exact, instead);
        }
        for (path, instead) in &self.paths {
            // What is left of a path is no name either.
            text = replace_path(&text, path, instead);
        }
        // Before the words, whose marks would cut a path in two.
        text = without_paths(&text);
        for (word, instead) in &self.words {
            text = replace_word(&text, word, instead);
        }
        without_ids(&text)
    }

    /// All texts of a value but those of [`OWN`]; names of fields stay.
    pub fn clean(&self, value: &mut Value) {
        self.clean_below("", value);
    }

    /// `around` is the nearest field around the value.
    fn clean_below(&self, around: &str, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.without(text),
            Value::Array(list) => list.iter_mut().for_each(|value| self.clean_below(around, value)),
            Value::Object(map) => {
                for (name, value) in map {
                    if !(value.is_string() && OWN.contains(&(around, name.as_str()))) {
                        self.clean_below(name, value);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Whether a path, which has no `..` in it, is the system's own.
fn is_plain(path: &str) -> bool {
    if let Some(rest) = path.strip_prefix(ROCM) {
        let release = rest.split('/').next().unwrap_or_default();
        let number = release.strip_prefix('-').unwrap_or("no");
        return release.is_empty() || number.chars().all(|c| c == '.' || c.is_ascii_digit());
    }
    if path.starts_with("/proc/") && path.split('/').skip(2).any(|name| DOORS.contains(&name)) {
        return false;
    }
    let below =
        |folder: &str| path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    PLAIN.iter().any(|folder| below(folder))
}

/// The path without `.`, `..` and empty names.
fn normal(path: &str) -> String {
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// Where a path in a sentence ends, if nothing shows that it goes on.
fn ends_path(c: char) -> bool {
    c.is_whitespace() || ":;,\"'`()<>=[]{}|".contains(c)
}

/// How long the path is with which the text begins, or the rest of one. A name may have spaces and signs in it: where
/// a name and a slash follow in the same sentence they are taken for a part of it. Rather too much goes than too little.
fn path_length(text: &str) -> usize {
    let first_end = |from: usize| text[from..].find(ends_path).map_or(text.len(), |at| from + at);
    let mut end = first_end(0);
    while let Some(slash) = text[end..].find('/').map(|at| end + at) {
        let between = &text[end..slash];
        let last = between.chars().next_back();
        // Another path begins there, or a new sentence.
        let begins = last.is_none_or(|c| c.is_whitespace() || ":;,=\"'`".contains(c));
        let marked = PATH_MARKS.iter().any(|mark| between.ends_with(mark));
        let stops = [": ", "; ", ", ", ". ", "\"", "'", "`", "\n"].iter().any(|stop| between.contains(stop));
        let ratio = last.is_some_and(|c| c.is_ascii_digit())
            && between.starts_with(' ')
            && text[slash + 1..].starts_with(|c: char| c.is_ascii_digit());
        if begins || marked || stops || ratio || between.split(' ').count() > 5 {
            break;
        }
        end = first_end(slash + 1);
    }
    end
}

/// Whether a slash after this text begins a path.
fn begins_path(before: &str) -> bool {
    let Some(last) = before.chars().next_back() else { return true };
    if last.is_alphanumeric() {
        // As in "-I/srv/x".
        let option = before.split(|c: char| c.is_whitespace() || "\"'`(,=".contains(c)).next_back();
        return option.is_some_and(|word| word.len() == 2 && word.starts_with('-'));
    }
    !PATH_MARKS.iter().any(|mark| before.ends_with(mark))
}

/// How long the path is with which the text begins: up to the quote, if it stands between two.
fn whole_length(before: &str, text: &str) -> usize {
    let quote = before.chars().next_back().filter(|c| "\"'`".contains(*c));
    let quoted = quote.and_then(|quote| text.find(quote)).filter(|end| !text[..*end].contains('\n'));
    quoted.unwrap_or_else(|| path_length(text))
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
            let tail = &found[path.len()..whole_length(&out, found).max(path.len())];
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
        let (before, found) = rest.split_at(at);
        out.push_str(before);
        let short = &found[..found.find(ends_path).unwrap_or(found.len())];
        // "1/2" and "<folder>/libshimhip.so" are no paths from the root.
        if !begins_path(&out) || short.len() == 1 {
            out.push_str(short);
            rest = &found[short.len()..];
        } else if is_plain(&normal(short)) {
            out.push_str(&normal(short));
            rest = &found[short.len()..];
        } else {
            let (path, after) = found.split_at(whole_length(&out, found));
            out.push_str("<path>");
            out.push_str(&kept_name(path));
            rest = after;
        }
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
    fn a_path_goes_as_a_whole_whatever_signs_are_in_it() {
        let without = |text: &str| secrets().without(text);
        assert_eq!(without("opens /home/ann/My Client/x.sock: no"), "opens <home>: no");
        assert_eq!(without("'/srv/Acme Secret' is no folder"), "'<path>' is no folder");
        assert_eq!(without("/srv/Acme Secret/x.sock is gone"), "<path> is gone");
        assert_eq!(without("/srv/a=b/x, /srv/a,b/x, /srv/a(b)/x"), "<path>, <path>, <path>");
        assert_eq!(without("/srv/ann/x and <home>/xcli"), "<path> and <home>/xcli");
        // A path is no reason to lose another sentence.
        assert_eq!(without("no /srv/x: 3 kernels/s"), "no <path>: 3 kernels/s");
        assert_eq!(without("/srv/x 1/2"), "<path> 1/2");
    }

    #[test]
    fn a_path_begins_after_any_sign() {
        for sign in ["[", "{", "|", "@", "->", "!", "#", "-", "cc -I", "<other>", "\u{ab}"] {
            let text = secrets().without(&format!("{sign}/srv/acme/x"));
            assert_eq!(text, format!("{sign}<path>"));
        }
        for text in ["<home>/xcli", "<folder>/libshimhip.so", "and/or", "GB/s"] {
            assert_eq!(secrets().without(text), text);
        }
    }

    #[test]
    fn only_the_systems_own_folders_are_plain() {
        let others = [
            "/dev/shm/acme/x.sock",
            "/usr/local/acme/x",
            "/usr/../srv/x",
            "/usr/lib/../../srv/x",
            "/opt/rocm-acme/x",
            "/opt/rocmacme/x",
            "/opt/rocm/../acme",
            "/proc/self/root/srv/x",
            "/proc/1/task/2/cwd/x",
            "/usr",
        ];
        for path in others {
            assert_eq!(secrets().without(path), "<path>", "{path}");
        }
        assert_eq!(secrets().without("/opt/rocm-6.1.0/lib/../lib/x.so"), "/opt/rocm-6.1.0/lib/x.so");
        let plain = "/dev/dri/renderD128 /opt/rocm/lib /proc/42/maps /sys/module/amdgpu";
        assert_eq!(secrets().without(plain), plain);
    }

    #[test]
    fn the_server_is_not_named() {
        let place = |socket: &str, said: &str| {
            let mut secrets = secrets();
            secrets.place(&Place { socket: socket.into(), said: said.to_owned() });
            secrets
        };
        let named = place("/srv/Acme: Secret, x/s.sock", "");
        assert_eq!(
            named.without("nobody listens on /srv/Acme: Secret, x/s.sock"),
            "nobody listens on <socket>"
        );
        let escape = place("/srv/a\u{1b}: b", "");
        assert_eq!(escape.without("at /srv/a?: b, or /srv/a\u{1b}: b"), "at <socket>, or <socket>");
        let night = place("/run/user/7/xsched/acme-night.sock", "-p acme-night");
        assert_eq!(night.without("off (`xcli -p acme-night on`)"), "off (`xcli <server> on`)");
        let path = place("/srv/a b", "-a '/srv/a b'");
        assert_eq!(path.without("off (`xcli -a '/srv/a b' on`)"), "off (`xcli <server> on`)");
    }

    #[test]
    fn what_the_program_says_itself_stays_whoever_is_called_so() {
        let mut secrets = Secrets { distribution: Some("debian".to_owned()), ..Secrets::default() };
        for user in ["hold", "native", "update", "acme"] {
            secrets.user(user);
        }
        secrets.user("copies");
        secrets.host("gpu.lab");
        secrets.host("debian");
        assert_eq!(secrets.without("gpu-sim on debian: hold of acme"), "gpu-sim on debian: hold of <user>");
        assert_eq!(secrets.without("ask gpu.lab"), "ask <host>");
        let own = serde_json::json!({
            "modes": {"result": {"modes": [{"name": "hold", "programs": [{"name": "copies"}]}]}},
            "figures": [{"name": "copies", "what": "copies", "unit": "ns"}],
            "findings": [{"about": "copies", "verdict": "copies"}],
            "versions": {"result": {"distribution": "acme"}},
        });
        let mut cleaned = own.clone();
        secrets.clean(&mut cleaned);
        assert_eq!(cleaned, own);
        let mut others = serde_json::json!({
            "devices": [{"name": "copies"}], "result": {"kernel": "6-acme"}, "findings": [{"text": "copies"}]
        });
        secrets.clean(&mut others);
        assert_eq!(
            others,
            serde_json::json!({
                "devices": [{"name": "<user>"}], "result": {"kernel": "6-<user>"}, "findings": [{"text": "<user>"}]
            })
        );
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
