//! `docs/env.md` is what the table prints.

use std::path::Path;

#[test]
fn env_doc_is_what_the_table_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/env.md");
    let wanted = protocol::config::markdown();
    if std::env::var_os("GIVEWAY_REGENERATE").is_some() {
        std::fs::write(&path, &wanted).expect("docs/env.md can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/env.md differs from the table in protocol/src/config/variables.rs; write it anew with\n\
         GIVEWAY_REGENERATE=1 cargo test -p protocol --test env_doc"
    );
}
