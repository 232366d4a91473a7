//! Tests of the check of the exports: the library passes it, and it can fail. The way in which the C
//! interface gets its version works with this toolchain.

mod support;

#[path = "support/exports.rs"]
mod exports;

use exports::{Symbol, VERSION, check, names_of, read, unversioned};
use std::path::Path;
use std::process::Command;

#[test]
fn exports_of_the_library_pass_the_check() {
    let script = std::fs::read_to_string(support::root().join("version.map")).expect("version.map is there");
    let names = names_of(&script).expect("version.map is well formed");
    let checked = check(&read(support::library()).expect("readable"), unversioned(), &names);
    assert!(checked.failures.is_empty(), "{:#?}", checked.failures);
    assert_eq!(checked.passed, unversioned().count() + names.len() + 1);
}

#[test]
fn exports_that_differ_fail_the_check() {
    let symbols = |names: &[&str]| -> Vec<Symbol> {
        names
            .iter()
            .map(|name| {
                let (name, version) =
                    name.split_once('@').map_or((*name, None), |(name, version)| (name, Some(version)));
                let version = version.map(str::to_owned);
                Symbol { name: name.to_owned(), version, is_public_function: true }
            })
            .collect()
    };
    let versioned = ["XQueueCreate".to_owned()];
    let failures = |names: &[&str]| check(&symbols(names), ["hipFree", "dlsym"], &versioned).failures;
    assert!(failures(&["hipFree", "dlsym", "XQueueCreate@@XSCHED_1.0"]).is_empty());
    for (names, part) in [
        (&["hipFree", "dlsym"][..], "XQueueCreate is not exported"),
        (&["hipFree", "XQueueCreate@@XSCHED_1.0"][..], "dlsym is not exported"),
        (&["hipFree", "dlsym", "XQueueCreate"][..], "XQueueCreate is to be exported once"),
        (&["hipFree", "dlsym", "XQueueCreate@XSCHED_1.0"][..], "XQueueCreate is to be exported once"),
        (&["hipFree@@XSCHED_1.0", "dlsym", "XQueueCreate@@XSCHED_1.0"][..], "hipFree is to be exported once"),
        (&["hipFree", "dlsym", "XQueueCreate@@XSCHED_1.0", "malloc"][..], "malloc is exported"),
        (&["hipFree", "hipFree", "dlsym", "XQueueCreate@@XSCHED_1.0"][..], "hipFree is to be exported once"),
    ] {
        let failures = failures(names);
        assert!(failures.len() == 1 && failures[0].contains(part), "{names:?}: {failures:?}");
    }
    let mut data = symbols(&["hipFree", "dlsym", "XQueueCreate@@XSCHED_1.0"]);
    data[0].is_public_function = false;
    assert_eq!(check(&data, ["hipFree", "dlsym"], &versioned).failures.len(), 1);
}

#[test]
fn version_script_with_other_names_is_refused() {
    assert_eq!(names_of("# nothing yet\n"), Ok(vec![]));
    let script = "# comment { }\nXSCHED_1.0 {\n  global: XQueueCreate; HwQueueDestroy; # both\n  HipQueueCreate;\n};\n";
    assert_eq!(
        names_of(script).map(|names| names.join(" ")),
        Ok("XQueueCreate HwQueueDestroy HipQueueCreate".to_owned())
    );
    for (script, part) in [
        ("XSCHED_2.0 {\n global: XQueueCreate;\n};", "a version other than"),
        ("XSCHED_1.0 {\n global: hipFree;\n};", "hipFree is no name"),
        ("XSCHED_1.0 {\n global: X*;\n};", "X* is no name"),
        ("XSCHED_1.0 {\n local: *;\n};", "does not begin with global"),
    ] {
        assert!(names_of(script).is_err_and(|error| error.contains(part)), "{script}");
    }
}

/// A second version script gives names that rustc does not know a version, and `no_mangle` names stay without
/// one.
#[test]
fn second_version_script_versions_the_c_interface_only() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    let source = r#"
        #[unsafe(no_mangle)]
        pub extern "C" fn hipFree() -> i32 { 1 }
        extern "C" fn create() -> i32 { 2 }
        core::arch::global_asm!(
            ".pushsection .text.XQueueCreate,\"ax\",@progbits",
            ".globl XQueueCreate",
            ".type XQueueCreate,@function",
            "XQueueCreate: jmp {create}",
            ".size XQueueCreate, . - XQueueCreate",
            ".popsection",
            create = sym create,
        );
    "#;
    std::fs::write(at("library.rs"), source).expect("the source can be written");
    let build = |script: &str, library: &Path| {
        std::fs::write(at("map"), script).expect("the script can be written");
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let status = Command::new(rustc)
            .args(["--edition", "2024", "--crate-type", "cdylib", "-C", "panic=abort", "-o"])
            .arg(library)
            .arg("-Clink-arg=-fuse-ld=lld")
            .arg(format!("-Clink-arg=-Wl,--version-script={}", at("map").display()))
            .arg(at("library.rs"))
            .stderr(std::process::Stdio::null())
            .status();
        status.expect("rustc runs").success()
    };
    let library = at("library.so");
    let script = format!("{VERSION} {{\n  global: XQueueCreate;\n}};\n");
    assert!(build(&script, &library), "rustc links with both scripts");
    let names = names_of(&script).expect("well formed");
    let checked = check(&read(&library).expect("readable"), ["hipFree"], &names);
    assert!(checked.failures.is_empty() && checked.passed == 3, "{checked:?}");
    assert!(
        !build(&format!("{VERSION} {{\n  global: XQueueCreate; XMissing;\n}};\n"), &at("missing.so")),
        "a listed name that is not defined fails the link"
    );
}
