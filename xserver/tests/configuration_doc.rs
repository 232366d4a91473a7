//! `docs/operate/configuration.md` is made from the tables of `xserver/src/configuration/keys.rs`.
//! `GIVEWAY_REGENERATE=1 cargo test --test configuration_doc` writes it anew.

use std::fmt::Write;
use std::path::Path;
use xserver::configuration::{Configuration, Machine, keys::TABLES};

const HEAD: &str = "# The configuration file
Written by `GIVEWAY_REGENERATE=1 cargo test --test configuration_doc` from `xserver/src/configuration/keys.rs`.

The [server for all users](system.md) reads `/etc/giveway/giveway.toml`, or the file of `--config`. The format is TOML. Every key has a
default, and the file can be missing. An unknown key is a mistake, and a file with a mistake does not count at all:

    xserver --check               # prints what is wrong, with its line; exit code 1
    xcli reload                   # reads the file again; so does SIGHUP (`systemctl reload giveway`)
    xcli config                   # what is in force, and where it comes from

Rules and limits of a new file hold at once, also for programs that are connected. A policy of the file counts if it differs from
that of the file before, so that `xcli policy set` holds until then. Changed sockets need a new start of the server: a file that changes
them is refused. SIGHUP cannot say so; the log does.

## Example

```toml
";

const EXAMPLE: &str = r#"[policy]
name = "HPF"

# A socket for the batch containers, whatever runs in them.
[[listen]]
path = "/run/giveway/batch.sock"
max_priority = -1

# The service that answers requests.
[[rule]]
name = "serving"
cgroups = ["/system.slice/inference.service"]
max_priority = 100

# Everybody in this group administers.
[[rule]]
name = "operators"
groups = [0]
max_priority = 255
administer = true

# The others keep the default: priority 0 at most, and their own programs only.

[limits]
queues_per_user = 4096
"#;

fn document() -> String {
    let mut text = format!("{HEAD}{EXAMPLE}```\n");
    for table in TABLES {
        write!(
            text,
            "\n## `{}`\n{}\n\n| key | values | default | meaning |\n|---|---|---|---|\n",
            table.header, table.meaning
        )
        .unwrap();
        for key in table.keys {
            writeln!(text, "| `{}` | {} | `{}` | {} |", key.name, key.values, key.default, key.meaning)
                .unwrap();
        }
    }
    text + AFTER
}

const AFTER: &str = "
## For users of GPreempt
The published description of GPreempt's scheduler has these keys. What they become here:

| there | here |
|---|---|
| `enabled` | `xcli on`, `xcli off`; a program without the library is not scheduled |
| priorities with names | `[[rule]]` with a `name` and `max_priority`; a program asks by `xcli run --priority N` |
| `min_prep_time_us` | no key: how long before its arrival work is announced is the hint of an arrival (`xcli hint`, `XHintArrival`) |
| `safety_margin_us` | no key: lingers and windows are learnt ([ADR 20](../adr/0020-lingers-are-learnt.md)) |
| `min_timeslice_us`, `max_timeslice_us` | no key for the range, which is fixed (100 µs to 10 s); the slice itself is the parameter `slice-ms` of the policies that have one, or `xcli hint --timeslice` |
| `be_task_us` | no key: the window of a best-effort program follows the measured times of its kernels, or `--threshold` and `--batch` fix it |
| `fair_share_enabled` | `[policy] name = \"FAIR\"` or `\"UP\"` |
| `max_concurrent_contexts` | `[limits] connections_per_user`, `queues_per_user` |
| `max_context_memory_mb` | none: giveway schedules time, and the driver hands out memory |
| `export_interval_sec` | none: Prometheus asks (`scrape_interval`) |
| `prometheus_port` | none: `xcli metrics --listen 127.0.0.1:PORT` serves Prometheus, as a program of its own ([Run the server](README.md#metrics)) |
";

#[test]
fn document_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate/configuration.md");
    let wanted = document();
    if std::env::var_os("GIVEWAY_REGENERATE").is_some() {
        std::fs::write(&path, wanted).expect("the document can be written");
        return;
    }
    assert!(
        std::fs::read_to_string(&path).unwrap_or_default() == wanted,
        "docs/operate/configuration.md is out of date: GIVEWAY_REGENERATE=1 cargo test --test configuration_doc"
    );
}

#[test]
fn example_of_the_document_is_valid() {
    let configuration = Configuration::parse(EXAMPLE, &Machine).unwrap();
    assert_eq!((configuration.listen.len(), configuration.limits.queues_per_user), (1, 4096));
}
