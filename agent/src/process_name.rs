//! What a program is called for people: what it runs, and not what runs that.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// How an interpreter takes its command line.
struct Interpreter {
    /// How its file's name begins; digits and dots may follow.
    name: &'static str,
    /// Options, of one letter or more, whose value is the next word unless it is in the same one.
    valued: &'static [&'static str],
    /// Behind which the program itself stands, or is in the same word: there is no name.
    code: &'static [&'static str],
    /// Behind which a module stands.
    module: &'static [&'static str],
}

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        name: "python",
        valued: &["-W", "-X", "--check-hash-based-pycs"],
        code: &["-c"],
        module: &["-m"],
    },
    Interpreter { name: "pypy", valued: &["-W", "-X", "--jit"], code: &["-c"], module: &["-m"] },
    Interpreter {
        name: "node",
        valued: &["-r", "--require", "--import", "--loader", "--experimental-loader", "-C", "--conditions"],
        code: &["-e", "--eval", "-p", "--print", "-pe"],
        module: &[],
    },
    Interpreter { name: "bash", valued: SHELL_VALUED, code: &["-c", "-s"], module: &[] },
    Interpreter { name: "sh", valued: SHELL_VALUED, code: &["-c", "-s"], module: &[] },
    Interpreter { name: "dash", valued: SHELL_VALUED, code: &["-c", "-s"], module: &[] },
    Interpreter { name: "zsh", valued: SHELL_VALUED, code: &["-c", "-s"], module: &[] },
    Interpreter { name: "ksh", valued: SHELL_VALUED, code: &["-c", "-s"], module: &[] },
    Interpreter { name: "perl", valued: &["-I"], code: &["-e", "-E"], module: &[] },
    Interpreter { name: "ruby", valued: &["-I", "-r", "-C", "-E"], code: &["-e"], module: &[] },
    Interpreter {
        name: "julia",
        valued: &["-C", "-H", "-J", "-L", "-p", "-t"],
        code: &["-e", "-E"],
        module: &[],
    },
    Interpreter { name: "Rscript", valued: &[], code: &["-e"], module: &[] },
    Interpreter { name: "lua", valued: &["-l"], code: &["-e"], module: &[] },
    Interpreter { name: "php", valued: &["-c", "-d"], code: &["-r"], module: &["-f"] },
    Interpreter {
        name: "java",
        valued: &[
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--upgrade-module-path",
            "--add-modules",
            "--add-opens",
            "--add-exports",
            "--add-reads",
            "--patch-module",
            "--limit-modules",
            "--source",
        ],
        code: &[],
        module: &["-jar", "-m", "--module"],
    },
];

const SHELL_VALUED: &[&str] = &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"];

/// By the words of a command line, the first of which is the program.
pub(crate) fn of(words: &[OsString]) -> String {
    let Some((program, words)) = words.split_first() else { return String::new() };
    let own = file(program);
    let run = INTERPRETERS.iter().find(|known| known.is(&own)).and_then(|known| known.run(words));
    run.filter(|name| !name.is_empty()).unwrap_or(own)
}

/// A path's last part.
fn file(path: &OsStr) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

impl Interpreter {
    fn is(&self, name: &str) -> bool {
        // A shell that logs in has a dash in front.
        let name = name.strip_prefix('-').unwrap_or(name);
        let version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte));
        name.strip_prefix(self.name).is_some_and(version)
    }

    /// What it runs; nothing if that has no name.
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
            // Java's options have several letters behind one dash.
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

    /// Several options of a letter each in one word, as `-um` or `-Wignore`; nothing if the program itself is among them.
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
                // The rest of the word is its value.
                return Some(Cluster::Done);
            }
        }
        Some(Cluster::Done)
    }

    fn script(&self, word: &OsStr) -> String {
        // Of Java it is a class.
        if self.name == "java" { word.to_string_lossy().into_owned() } else { file(word) }
    }

    fn module(&self, word: &OsStr) -> String {
        file(word)
    }
}

/// What a word of several options leaves to be read.
enum Cluster {
    Done,
    /// The last one's value.
    Value,
    /// A module, or the word behind if this is empty.
    Module(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_called_by_what_it_runs() {
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
