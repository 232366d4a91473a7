//! The documents that are printed from tables: `docs/env.md`, and the table in `docs/hints.md`.

use std::path::Path;

/// Compares a document with the wanted text; writes it anew if the variable `GIVEWAY_REGENERATE` is set.
fn check(name: &str, table: &str, wanted: impl Fn(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let wanted = wanted(&found);
    if std::env::var_os("GIVEWAY_REGENERATE").is_some() {
        std::fs::write(&path, &wanted).expect("the document can be written");
        return;
    }
    assert!(
        found == wanted,
        "docs/{name} differs from the table in {table}; write it anew with\n\
         GIVEWAY_REGENERATE=1 cargo test -p protocol --test env_doc"
    );
}

#[test]
fn env_doc_is_what_the_table_prints() {
    check("env.md", "protocol/src/config/variables.rs", |_| protocol::config::markdown());
}

#[test]
fn hints_doc_contains_the_table_of_hints() {
    const BEGIN: &str =
        "<!-- Generated from HINTS in protocol/src/hint/table.rs; the test `env_doc` says how. -->\n\n";
    const END: &str = "\n<!-- End of the generated table. -->";
    check("hints.md", "protocol/src/hint/table.rs", |found| {
        let (before, rest) = found.split_once(BEGIN).expect("docs/hints.md has the mark before its table");
        let (_, after) = rest.split_once(END).expect("docs/hints.md has the mark after its table");
        [before, BEGIN, &protocol::hint::table::markdown(), END, after].concat()
    });
}
