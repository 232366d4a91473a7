//! Manual pages and shell completions of a program, made from the definition of its command line.
//!
//! Packages contain them. Each program of giveway writes its manual when called with `--write-manual DIR`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Error, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

/// The option that makes a program write its manual to a directory. No other argument is allowed with it.
const OPTION: &str = "--write-manual";

/// Writes the manual if the program was called with `--write-manual DIR`, and returns the exit code then. The
/// option is hidden, because only package builds use it.
pub fn asked<Cli: CommandFactory>() -> Option<ExitCode> {
    let directory = directory(std::env::args_os())?;
    let command = Cli::command();
    let name = command.get_name().to_owned();
    Some(match write(command, &directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{name}: cannot write the manual: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Returns the directory if the arguments are exactly the option and a directory.
fn directory(arguments: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    let words: Vec<OsString> = arguments.skip(1).collect();
    match words.as_slice() {
        [option, directory] if option == OPTION => Some(directory.into()),
        _ => None,
    }
}

/// Writes the manual pages of `command` and of its subcommands that are not hidden, and its completions for
/// three shells, to where they stand below a prefix's `share`: `man/man1`, `bash-completion/completions`,
/// `zsh/site-functions` and `fish/vendor_completions.d` in `directory`.
///
/// # Errors
/// A directory or a file cannot be written. The text names it.
pub fn write(mut command: Command, directory: &Path) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let create = |below: &str| {
        let path = directory.join(below);
        fs::create_dir_all(&path).map_err(|error| at(&path, &error))?;
        Ok::<PathBuf, Error>(path)
    };
    // Before the completions, which add `help` to the command.
    let pages = create("man/man1")?;
    clap_mangen::generate_to(without_help(command.clone()), &pages).map_err(|error| at(&pages, &error))?;
    for (shell, below, file) in [
        (Shell::Bash, "bash-completion/completions", name.clone()),
        (Shell::Zsh, "zsh/site-functions", format!("_{name}")),
        (Shell::Fish, "fish/vendor_completions.d", format!("{name}.fish")),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, &name, &mut text);
        let file = create(below)?.join(file);
        fs::write(&file, text).map_err(|error| at(&file, &error))?;
    }
    Ok(())
}

/// Removes the `help` commands, which need no manual page.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn at(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn option_is_accepted_only_alone() {
        let directory = |line: &str| directory(line.split(' ').map(OsString::from));
        assert_eq!(directory("xcli --write-manual /tmp/x"), Some("/tmp/x".into()));
        assert_eq!(directory("xcli --write-manual"), None);
        assert_eq!(directory("xcli run -- x --write-manual /tmp/x"), None);
        assert_eq!(directory("xcli --write-manual /tmp/x run"), None);
    }

    /// A program.
    #[derive(Parser)]
    #[command(name = "example", version)]
    enum Example {
        /// Shown to everybody
        Shown {
            /// How often
            #[arg(long)]
            times: u32,
        },
        /// Has subcommands
        #[command(subcommand)]
        Group(Group),
        /// For itself
        #[command(hide = true)]
        Hidden,
    }

    #[derive(clap::Subcommand)]
    enum Group {
        /// One of them
        Member,
    }

    #[test]
    fn pages_and_completions_describe_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        write(Example::command(), directory.path()).unwrap();
        let read = |file: &str| fs::read_to_string(directory.path().join(file)).unwrap();
        assert!(read("man/man1/example.1").contains("A program"));
        assert!(read("man/man1/example-shown.1").contains("How often"));
        let mut pages: Vec<_> = fs::read_dir(directory.path().join("man/man1"))
            .unwrap()
            .map(|page| page.unwrap().file_name().into_string().unwrap())
            .collect();
        pages.sort();
        assert_eq!(pages, ["example-group-member.1", "example-group.1", "example-shown.1", "example.1"]);
        for file in [
            "bash-completion/completions/example",
            "zsh/site-functions/_example",
            "fish/vendor_completions.d/example.fish",
        ] {
            assert!(read(file).contains("times"), "{file}");
        }
    }

    #[test]
    fn error_names_the_path() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = write(Example::command(), file.path()).unwrap_err();
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    }
}
