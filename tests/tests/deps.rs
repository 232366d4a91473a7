//! `scripts/deps` with stub commands that only note their arguments: the packages that it installs, and those that it leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const HIP: &str = "libamdhip64-dev hipcc libhsa-runtime64-1 libhsakmt1 rocminfo";

/// A machine with these packages: a folder of commands, and the file in which `apt-get` notes its words.
struct Machine {
    folder: TempDir,
}

/// The result of a run of the script.
struct Said {
    ok: bool,
    text: String,
    /// The arguments that `apt-get` was given.
    asked: String,
}

impl Machine {
    fn with(packages: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = Self { folder };
        machine.command(
            "dpkg-query",
            &format!("case \" {packages} \" in *\" ${{@: -1}} \"*) printf installed ;; *) exit 1 ;; esac"),
        );
        machine.command("apt-get", &format!("echo \"$@\" >> {}", machine.path("asked").display()));
        machine.command("sudo", "exec \"$@\"");
        machine.command("cargo", "exit 0");
        machine
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, name: &str, body: &str) {
        let bin = self.path("bin");
        fs::create_dir_all(&bin).expect("a folder");
        let file = bin.join(name);
        fs::write(&file, format!("#!/bin/bash\n{body}\n")).expect("a script");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a script");
    }

    fn deps(&self, env: &[(&str, &Path)]) -> Said {
        let mut command = Command::new("bash");
        command.arg(tests::workspace().join("scripts/deps"));
        command.env("PATH", format!("{}:/usr/bin:/bin", self.path("bin").display()));
        command.env("ROCM_PATH", self.path("nothing")).env_remove("PYTHONPATH").envs(env.iter().copied());
        let output = command.output().expect("bash");
        let text = [output.stdout, output.stderr].concat();
        Said {
            ok: output.status.success(),
            text: String::from_utf8_lossy(&text).into_owned(),
            asked: fs::read_to_string(self.path("asked")).unwrap_or_default(),
        }
    }
}

/// It names what is missing and where AMD's is, and installs nothing.
fn refuses(said: &Said, place: &str) {
    assert!(!said.ok && said.asked.is_empty(), "{}\n{}", said.text, said.asked);
    assert!(said.text.contains(place) && said.text.contains("hipcc"), "{}", said.text);
}

/// This machine's own, which no test can take away.
fn has_rocm() -> bool {
    let has = Path::new("/opt/rocm").exists();
    if has {
        println!("this machine has /opt/rocm: that HIP would be installed without one is not tested here");
    }
    has
}

#[test]
fn missing_packages_without_rocm_are_installed() {
    if has_rocm() {
        return;
    }
    let said = Machine::with("build-essential").deps(&[]);
    assert!(
        said.ok && said.asked.contains(&format!("cmake libjemalloc2 systemd tmux xvfb {HIP}")),
        "{}\n{}",
        said.text,
        said.asked
    );
}

#[test]
fn nothing_of_the_distributions_hip_is_put_beside_amds() {
    refuses(&Machine::with("amdgpu-dkms build-essential").deps(&[]), "the package amdgpu-dkms");
    let machine = Machine::with("");
    fs::create_dir(machine.path("rocm")).expect("a folder");
    refuses(&machine.deps(&[("ROCM_PATH", &machine.path("rocm"))]), "/rocm");
    if has_rocm() {
        return;
    }
    if !["/usr/bin/python3", "/bin/python3"].iter().any(|python| Path::new(python).exists()) {
        println!("there is no python3 here: a runtime in a wheel is not tested");
        return;
    }
    let wheel = machine.path("site/torch/lib");
    fs::create_dir_all(&wheel).expect("a folder");
    fs::write(wheel.join("libamdhip64.so"), "").expect("a file");
    refuses(&machine.deps(&[("PYTHONPATH", &machine.path("site"))]), "torch/lib/libamdhip64.so");
}

#[test]
fn where_all_is_there_rocm_does_not_matter() {
    let machine =
        Machine::with(&format!("amdgpu-dkms build-essential cmake libjemalloc2 systemd tmux xvfb {HIP}"));
    let said = machine.deps(&[]);
    assert!(
        said.ok && said.asked.is_empty() && said.text.contains("everything is installed"),
        "{}",
        said.text
    );
}

#[test]
fn building_installs_nothing() {
    let made = Command::new("make").args(["-n", "build"]).current_dir(tests::workspace()).output();
    let commands = String::from_utf8(made.expect("make").stdout).expect("text");
    assert!(commands.contains("cargo build --release") && !commands.contains("deps"), "{commands}");
}
