//! The programs of `tests/programs`, and what each says in its first line about how it is built and run.
//!
//! ```text
//! // run: plain
//! // run: --gpus 2 --vram 64 | args 0 5 | env MALLOC_ARENA_MAX=1
//! // loaded: code object
//! ```
//! Behind `run:` stand items between ` | `, each at most once:
//!
//! | item | meaning |
//! |---|---|
//! | `plain` | nothing special; stands alone |
//! | `--gpus 2 --vram 64` | options of `gpu-sim run` with their values |
//! | `args WORD...` | arguments, behind the paths of what it loads |
//! | `env NAME=VALUE...` | its environment |
//! | `loads NAME...` | the paths of these built files are its first arguments |
//! | `build FLAG...` | further options of the compiler |
//! | `unlinked` | not linked against the HIP runtime, nor with the kernels |
//! | `exit CODE` | ends with this code (128 + signal for a killed one) instead of 0 and "ok" |
//! | `killed` | says "ready" and is killed then |
//! | `no-work` | submits nothing to a stream, so that nothing can be deferred |
//! | `holds` | takes queues off the hardware itself, and is not compared in the mode that does so |
//! | `from-hip MAJOR` | left out where the runtime is older |
//! | `every-mode` | compared in the [modes](crate::conformance::MODES) that only some programs are run in, too |
//! | `slow-path` | it is about launches that cannot be deferred: some of its launches wait for their turn |
//! | `logs TEXT` | the library writes a line with this text when it defers everything |
//!
//! Behind `loaded:` stands what the file is when it is built, and perhaps `| build FLAG...`: `code object`
//! (`hipcc --genco`, for hipModuleLoad) or `library` (for dlopen).
//!
//! A `.hip` file holds kernels of its own (or needs `hip_ext.h`) and is compiled by hipcc; a `.cpp` or `.c` file is host code, compiled by g++ or
//! gcc in a third of the time, and linked with one object that holds the project's kernels, for four architectures whose launch bounds differ.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::tree::workspace;

/// The kind of file that a source is built into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A program to run.
    Executable,
    /// A file for hipModuleLoad.
    CodeObject,
    /// A file for dlopen.
    Library,
}

/// How a run comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program says "ok" and exits with 0.
    Ok,
    /// It exits with this code, as a shell reports it.
    Code(i32),
    /// It says "ready" and is killed; it has then counted, but cannot say so.
    Killed,
}

/// The directions in the first line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directions {
    /// The kind of file that it is built into.
    pub kind: Kind,
    /// Options of `gpu-sim run`.
    pub sim: Vec<String>,
    /// Arguments, behind the paths of what it loads.
    pub args: Vec<String>,
    /// Names and values.
    pub env: Vec<(String, String)>,
    /// Names of files in the same folder that it is given the paths of.
    pub loads: Vec<String>,
    /// Options of the compiler.
    pub build: Vec<String>,
    /// Without the HIP runtime.
    pub unlinked: bool,
    /// Its end.
    pub end: End,
    /// Nothing is ever submitted to a stream.
    pub no_work: bool,
    /// It takes queues off the hardware itself.
    pub holds: bool,
    /// The first major version of HIP that it is for; 0 if all.
    pub from_hip: u32,
    /// Compared in all modes.
    pub every_mode: bool,
    /// Some of its launches cannot be deferred.
    pub slow_path: bool,
    /// A text that the library's log contains when everything is deferred.
    pub logs: Option<String>,
}

impl Directions {
    fn of(kind: Kind) -> Directions {
        Directions {
            kind,
            sim: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            loads: Vec::new(),
            build: Vec::new(),
            unlinked: false,
            end: End::Ok,
            no_work: false,
            holds: false,
            from_hip: 0,
            every_mode: false,
            slow_path: false,
            logs: None,
        }
    }

    /// Understands a first line. The error says what is wrong with it.
    pub fn parse(line: &str) -> Result<Directions, String> {
        let said = line.strip_prefix("// ").unwrap_or_default();
        let (kind, items) = if let Some(items) = said.strip_prefix("run: ") {
            (Kind::Executable, items)
        } else if let Some(items) = said.strip_prefix("loaded: ") {
            match items.split(" | ").next().unwrap_or_default() {
                "code object" => (Kind::CodeObject, items),
                "library" => (Kind::Library, items),
                other => return Err(format!("`{other}` is neither `code object` nor `library`")),
            }
        } else {
            return Err("it does not begin with `// run: ` or `// loaded: `".to_owned());
        };
        let mut directions = Directions::of(kind);
        let mut seen: Vec<&str> = Vec::new();
        for (index, item) in items.split(" | ").enumerate() {
            if kind != Kind::Executable && index == 0 {
                continue;
            }
            let word = if item.starts_with("--") { "--" } else { item.split(' ').next().unwrap_or_default() };
            if seen.contains(&word) {
                return Err(format!("`{word}` stands there twice"));
            }
            seen.push(word);
            directions.add(item).map_err(|reason| format!("`{item}`: {reason}"))?;
        }
        match seen[..] {
            [] if kind == Kind::Executable => Err("it says nothing: `// run: plain`".to_owned()),
            [_, ..] if seen.contains(&"plain") && seen.len() > 1 => Err("`plain` stands alone".to_owned()),
            _ => Ok(directions),
        }
    }

    fn add(&mut self, item: &str) -> Result<(), String> {
        let mut words = item.split(' ');
        let word = words.next().unwrap_or_default();
        let rest: Vec<String> = words.map(str::to_owned).collect();
        if item.split(' ').any(str::is_empty) {
            return Err("one space between two words".to_owned());
        }
        if self.kind != Kind::Executable && word != "build" {
            return Err("a loaded file is only built".to_owned());
        }
        let alone = || if rest.is_empty() { Ok(true) } else { Err("it takes no words".to_owned()) };
        let some = || if rest.is_empty() { Err("what?".to_owned()) } else { Ok(rest.clone()) };
        match word {
            "plain" => drop(alone()?),
            "args" => self.args = some()?,
            "loads" => self.loads = some()?,
            "build" => self.build = some()?,
            "logs" => self.logs = Some(some()?.join(" ")),
            "env" => {
                let pair = |setting: &String| {
                    setting.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
                };
                let pairs: Option<Vec<_>> = some()?.iter().map(pair).collect();
                self.env = pairs.ok_or("a setting is NAME=VALUE")?;
            }
            "unlinked" => self.unlinked = alone()?,
            "no-work" => self.no_work = alone()?,
            "holds" => self.holds = alone()?,
            "from-hip" => {
                let major = (rest.len() == 1).then(|| rest[0].parse().ok()).flatten();
                self.from_hip = major.ok_or("a number")?;
            }
            "slow-path" => self.slow_path = alone()?,
            "every-mode" => self.every_mode = alone()?,
            "killed" => alone().and_then(|_| self.ends(End::Killed))?,
            "exit" => {
                let code = (rest.len() == 1).then(|| rest[0].parse().ok()).flatten();
                self.ends(End::Code(code.ok_or("a number")?))?;
            }
            _ if word.starts_with("--") => {
                self.sim = item.split(' ').map(str::to_owned).collect();
                let pairs = self
                    .sim
                    .chunks(2)
                    .all(|pair| pair.len() == 2 && pair[0].starts_with("--") && !pair[1].starts_with("--"));
                if !pairs {
                    return Err("each option has one value".to_owned());
                }
            }
            _ => return Err("no such item".to_owned()),
        }
        Ok(())
    }

    fn ends(&mut self, end: End) -> Result<(), String> {
        if self.end != End::Ok {
            return Err("it has one end".to_owned());
        }
        self.end = end;
        Ok(())
    }
}

/// One file of `tests/programs`.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file's name without its extension; no two have the same.
    pub name: String,
    /// Its path from the workspace's root.
    pub source: PathBuf,
    /// The directions in its first line.
    pub directions: Directions,
}

/// The folder of the programs, from the workspace's root: shared headers, and one folder for each area.
pub const FOLDER: &str = "tests/programs";
const EXTENSIONS: [&str; 3] = ["hip", "cpp", "c"];

/// Lists a folder of the workspace by name.
fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let listed = std::fs::read_dir(workspace().join(folder)).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| folder.join(entry.file_name()))).collect::<Result<Vec<_>, _>>()
    });
    let mut paths = listed.map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    paths.sort();
    Ok(paths)
}

/// The files of all areas, by program name. The error is one sentence for each file that is wrong.
fn sources() -> Result<BTreeMap<String, PathBuf>, String> {
    let (mut found, mut errors) = (BTreeMap::<String, PathBuf>::new(), Vec::new());
    for area in list(Path::new(FOLDER))? {
        let is_header = area.extension().is_some_and(|extension| extension == "h");
        if !workspace().join(&area).is_dir() {
            if !is_header {
                errors.push(format!(
                    "{} is no header: a program lies in the folder of its area",
                    area.display()
                ));
            }
            continue;
        }
        for path in list(&area)? {
            let part = |part: Option<&std::ffi::OsStr>| part.and_then(|p| p.to_str()).map(str::to_owned);
            match (part(path.file_stem()), part(path.extension())) {
                (Some(name), Some(kind)) if EXTENSIONS.contains(&kind.as_str()) => {
                    if let Some(other) = found.insert(name, path.clone()) {
                        errors.push(format!("{} and {} have the same name", other.display(), path.display()));
                    }
                }
                _ => errors.push(format!("{} is not a program", path.display())),
            }
        }
    }
    if errors.is_empty() { Ok(found) } else { Err(errors.join("\n")) }
}

impl Program {
    /// Finds the program of this name. The error is one sentence.
    pub fn find(name: &str) -> Result<Program, String> {
        let source = sources()?.remove(name);
        let source = source.ok_or_else(|| format!("there is no {name} with .hip, .cpp or .c in {FOLDER}"))?;
        Program::read(&source)
    }

    /// Reads all programs, by name. The error is one sentence for each file that is wrong.
    pub fn all() -> Result<Vec<Program>, String> {
        let (programs, errors): (Vec<_>, Vec<_>) =
            sources()?.values().map(|source| Program::read(source)).partition(Result::is_ok);
        if errors.is_empty() {
            return Ok(programs.into_iter().flatten().collect());
        }
        Err(errors.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("\n"))
    }

    fn read(source: &Path) -> Result<Program, String> {
        let text = std::fs::read_to_string(workspace().join(source))
            .map_err(|error| format!("cannot read {}: {error}", source.display()))?;
        let line = text.lines().next().unwrap_or_default();
        let directions = Directions::parse(line).map_err(|reason| {
            format!(
                "{}: its first line says how it is run (tests/src/program.rs): {reason}",
                source.display()
            )
        })?;
        let name = source.file_stem().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        Ok(Program { name, source: source.to_owned(), directions })
    }

    /// Returns true if it is HIP with kernels of its own, which only hipcc compiles.
    pub fn has_kernels(&self) -> bool {
        self.source.extension().is_some_and(|extension| extension == "hip")
    }

    /// Returns true if it is C.
    pub fn is_c(&self) -> bool {
        self.source.extension().is_some_and(|extension| extension == "c")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_with_directions_is_parsed() {
        let plain = Directions::parse("// run: plain").unwrap();
        assert_eq!(plain, Directions::of(Kind::Executable));
        let full = "// run: --gpus 2 --vram 64 | loads module_kernels | args 0 5 | env A=1 B=x=y | killed | no-work | \
                    build -DX -fY | unlinked | from-hip 6 | every-mode | slow-path | logs of kernel mix";
        let full = Directions::parse(full).unwrap();
        assert_eq!(full.sim, ["--gpus", "2", "--vram", "64"]);
        assert_eq!(
            (&full.loads[..], &full.args[..]),
            (&["module_kernels".into()][..], &["0".into(), "5".into()][..])
        );
        assert_eq!(full.env, [("A".into(), "1".into()), ("B".into(), "x=y".into())]);
        assert_eq!((full.end, full.no_work, full.unlinked, full.every_mode), (End::Killed, true, true, true));
        assert_eq!((full.from_hip, full.slow_path), (6, true));
        assert_eq!((full.build, full.logs), (vec!["-DX".into(), "-fY".into()], Some("of kernel mix".into())));
        assert_eq!(Directions::parse("// run: exit 134").unwrap().end, End::Code(134));
        assert_eq!(Directions::parse("// loaded: code object").unwrap().kind, Kind::CodeObject);
        let library = Directions::parse("// loaded: library | build -DA").unwrap();
        assert_eq!((library.kind, library.build), (Kind::Library, vec!["-DA".into()]));
    }

    #[test]
    fn a_wrong_first_line_is_an_error() {
        for (line, reason) in [
            ("", "does not begin"),
            ("/* Copies. */", "does not begin"),
            ("// run:", "does not begin"),
            ("// run: ", "one space"),
            ("// run: plan", "no such item"),
            ("// run: plain | args 1", "stands alone"),
            ("// run: plain 1", "takes no words"),
            ("// run: args", "what?"),
            ("// run: args 1 | args 2", "twice"),
            ("// run: args 1  2", "one space"),
            ("// run: env A", "NAME=VALUE"),
            ("// run: --gpus", "one value"),
            ("// run: --gpus --vram 8", "one value"),
            ("// run: exit x", "a number"),
            ("// run: exit 3 | killed", "one end"),
            ("// run: unlinked now", "takes no words"),
            ("// loaded: nothing", "neither"),
            ("// loaded: library | args 1", "only built"),
        ] {
            let error = Directions::parse(line).expect_err(line);
            assert!(error.contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn every_program_says_how_it_is_run() {
        let programs = Program::all().unwrap_or_else(|reasons| panic!("{reasons}"));
        for program in &programs {
            for name in &program.directions.loads {
                let kind =
                    programs.iter().find(|other| &other.name == name).map(|other| other.directions.kind);
                assert!(kind.is_some_and(|kind| kind != Kind::Executable), "{} loads {name}", program.name);
            }
        }
        assert!(programs.iter().any(|program| program.directions.every_mode));
    }
}
