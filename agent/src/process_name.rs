//! The name of a program for users: that of the script that it runs, and not of the interpreter.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The command line of an interpreter.
struct Interpreter {
    /// The prefix of its file name; digits, dots and dashes may follow.
    name: &'static str,
    /// The options whose value is the rest of the word, or else the next word.
    valued: &'static [&'static str],
    /// The options whose value is the code to run, which has no name.
    code: &'static [&'static str],
    /// The options whose value is a module.
    module: &'static [&'static str],
}

const fn interpreter(
    name: &'static str,
    valued: &'static [&'static str],
    code: &'static [&'static str],
    module: &'static [&'static str],
) -> Interpreter {
    Interpreter { name, valued, code, module }
}

const INTERPRETERS: &[Interpreter] = &[
    interpreter("python", &["-W", "-X", "--check-hash-based-pycs"], &["-c"], &["-m"]),
    interpreter("pypy", &["-W", "-X", "--jit"], &["-c"], &["-m"]),
    interpreter("node", NODE_VALUED, &["-e", "--eval", "-p", "--print", "-pe"], &[]),
    interpreter("bash", SHELL_VALUED, &["-c", "-s"], &[]),
    interpreter("sh", SHELL_VALUED, &["-c", "-s"], &[]),
    interpreter("dash", SHELL_VALUED, &["-c", "-s"], &[]),
    interpreter("zsh", SHELL_VALUED, &["-c", "-s"], &[]),
    interpreter("ksh", SHELL_VALUED, &["-c", "-s"], &[]),
    interpreter("perl", &["-I"], &["-e", "-E"], &[]),
    interpreter("ruby", &["-I", "-r", "-C", "-E"], &["-e"], &[]),
    interpreter("julia", &["-C", "-H", "-J", "-L", "-p", "-t"], &["-e", "-E"], &[]),
    interpreter("Rscript", &[], &["-e"], &[]),
    interpreter("lua", &["-l"], &["-e"], &[]),
    interpreter("php", &["-c", "-d"], &["-r"], &["-f"]),
    interpreter("java", JAVA_VALUED, &[], &["-jar", "-m", "--module"]),
];

const NODE_VALUED: &[&str] =
    &["-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions"];
#[rustfmt::skip]
const JAVA_VALUED: &[&str] = &[
    "-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path", "--add-modules",
    "--add-opens", "--add-exports", "--add-reads", "--patch-module", "--limit-modules", "--source",
];
const SHELL_VALUED: &[&str] = &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"];

/// Returns the name of the program with this command line.
pub(crate) fn of(words: &[OsString]) -> String {
    let Some((program, words)) = words.split_first() else { return String::new() };
    let own = file(program);
    let run = INTERPRETERS.iter().find(|known| known.is(&own)).and_then(|known| known.run(words));
    run.filter(|name| !name.is_empty()).unwrap_or(own)
}

/// Returns the last part of a path.
fn file(path: &OsStr) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Interpreter {
    fn is(&self, name: &str) -> bool {
        // A login shell's name begins with a dash.
        let name = name.strip_prefix('-').unwrap_or(name);
        let version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
        name.strip_prefix(self.name).is_some_and(version)
    }

    /// Returns the name of the script or module that it runs; `None` if that has no name.
    fn run(&self, words: &[OsString]) -> Option<String> {
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let bytes = word.as_bytes();
            match bytes {
                b"-" => return None,
                b"--" => return words.next().map(|script| file(script)),
                [b'-' | b'+', ..] => {}
                _ => return Some(self.script(word)),
            }
            let text = word.to_string_lossy();
            let is = |options: &[&str]| options.contains(&&*text);
            // Java's options have several letters after one dash.
            let letters = !text.starts_with("--") && self.name != "java";
            if is(self.code) {
                return None;
            } else if is(self.module) {
                return words.next().map(|module| self.module(module));
            } else if is(self.valued) {
                words.next();
            } else if letters {
                match self.cluster(&text)? {
                    Cluster::Done => {}
                    Cluster::Value => drop(words.next()),
                    Cluster::Module(rest) if rest.is_empty() => {
                        return words.next().map(|module| self.module(module));
                    }
                    Cluster::Module(rest) => return Some(self.module(OsStr::new(&rest))),
                }
            }
        }
        None
    }

    /// Reads options of one letter each in one word, such as `-um` or `-Wignore`; `None` if the code to run
    /// follows.
    fn cluster(&self, text: &str) -> Option<Cluster> {
        let sign = &text[..1];
        for (at, letter) in text.char_indices().skip(1) {
            let option = format!("{sign}{letter}");
            let is = |options: &[&str]| options.contains(&option.as_str());
            let rest = &text[at + letter.len_utf8()..];
            if is(self.code) {
                return None;
            } else if is(self.module) {
                return Some(Cluster::Module(rest.to_owned()));
            } else if is(self.valued) {
                return Some(if rest.is_empty() { Cluster::Value } else { Cluster::Done });
            } else if self.name == "perl" && "CDFMVdimx".contains(letter) {
                // The rest of the word is the value.
                return Some(Cluster::Done);
            }
        }
        Some(Cluster::Done)
    }

    fn script(&self, word: &OsStr) -> String {
        // Java runs a class.
        if self.name == "java" { word.to_string_lossy().into_owned() } else { file(word) }
    }

    fn module(&self, word: &OsStr) -> String {
        file(word)
    }
}

/// The rest to read after a word of options.
enum Cluster {
    Done,
    /// The next word is the last option's value.
    Value,
    /// A module; the next word if this is empty.
    Module(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_returns_the_script_of_an_interpreter() {
        let cases = [
            ("/opt/llama-server --port 80", "llama-server"),
            ("python3 train.py --epochs 3", "train.py"),
            ("/usr/bin/python3.12 -u -X dev -W ignore /home/x/train.py -m no", "train.py"),
            ("python -Wignore -Xdev train.py", "train.py"),
            ("python -m pkg.mod --x", "pkg.mod"),
            ("python3 -um pkg.mod", "pkg.mod"),
            ("python3 -mpkg.mod x.py", "pkg.mod"),
            ("python3 -OO -- train.py", "train.py"),
            ("python3 -c code train.py", "python3"),
            ("python3 -Ic code", "python3"),
            ("python3", "python3"),
            ("python3 -", "python3"),
            ("python3 --check-hash-based-pycs always train.py", "train.py"),
            ("python3-config --x", "python3-config"),
            ("pythonic x.py", "pythonic"),
            ("pypy3 bench.py", "bench.py"),
            ("node --max-old-space-size=4096 -r dotenv/config server.js", "server.js"),
            ("node -e code x.js", "node"),
            ("bash -x run.sh a", "run.sh"),
            ("bash -o pipefail -eu run.sh", "run.sh"),
            ("bash -euo pipefail run.sh", "run.sh"),
            ("-bash", "-bash"),
            ("sh -c code", "sh"),
            ("sh -ec code", "sh"),
            ("perl -w -Ilib -I lib -MPOSIX job.pl", "job.pl"),
            ("perl -ne code file", "perl"),
            ("perl -0777 -lne code file", "perl"),
            ("ruby -rjson -r set job.rb", "job.rb"),
            ("java -Xmx4g -cp a.jar:b.jar com.foo.Main x", "com.foo.Main"),
            ("java -Dx=y --add-opens java.base/x=ALL -jar /opt/app/app.jar -x", "app.jar"),
            ("julia -t 8 -p 2 sim.jl", "sim.jl"),
            ("shred x", "shred"),
            ("", ""),
        ];
        for (line, name) in cases {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(of(&words), name, "{line}");
        }
        assert_eq!(of(&[]), "");
        let bytes = |word: &[u8]| OsStr::from_bytes(word).to_owned();
        assert_eq!(of(&[bytes(b"python3"), bytes(b"-\xff"), bytes(b"\xfe.py")]), "\u{fffd}.py");
    }
}
