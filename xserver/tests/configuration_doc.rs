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

Rules, hints for programs and limits of a new file hold at once, also for programs that are connected. A policy of the file counts if it differs from
that of the file before, so that `xcli policy set` holds until then. Changed sockets need a new start of the server: a file that changes
them is refused. SIGHUP cannot say so; the log does.

## Example

```toml
";

const EXAMPLE: &str = r#"[policy]
name = "HPF"

# Names that stand for priorities, here and in `xcli hint --priority NAME`.
[priorities]
serving = 100
batch = -50

# A socket for the batch containers, whatever runs in them.
[[listen]]
path = "/run/giveway/batch.sock"
max_priority = "batch"

# The service that answers requests.
[[rule]]
name = "serving"
cgroups = ["/system.slice/inference.service"]
max_priority = "serving"

# Everybody in this group administers.
[[rule]]
name = "operators"
groups = [0]
max_priority = 255
administer = true

# The others get priority 0 and a share of 50 % at most, and are never evicted. A rule without conditions holds for everybody.
[[rule]]
name = "everybody"
max_share = 50
max_level = 1

# Training runs behind everything else, unless its user says otherwise.
[[program]]
name = "train*"
priority = "batch"
share = 20

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
        if table.keys.is_empty() {
            text.truncate(text.rfind("\n| key |").unwrap_or(text.len()));
        }
        for key in table.keys {
            writeln!(text, "| `{}` | {} | `{}` | {} |", key.name, key.values, key.default, key.meaning)
                .unwrap();
        }
    }
    text + AFTER
}

const AFTER: &str = "
## What is in force
A hint has layers: the library's default; above it the `[[program]]`; above that the latest word of the program itself or of `xcli hint`. The
limits of the rule hold for all of them, except for what an administrator says by `xcli hint`. `xcli list` and `xcli explain` show what comes from a `[[program]]`.

* The server cannot tell a program that asks for the library's default (priority 0, share 100, preemptible) from one that asks for nothing. So a
  `[[program]]` counts for both. To keep such a program at priority 0, give it an entry of its own before, or use `xcli hint -p 0`.
* A program whose rule has a `max_share` has that share at most, also if it sets none. Shares only say how programs divide a device: one with 20 has
  all of it while it is alone (`cap` limits that under CREDIT). A user with several programs gets the share of each.
* There is no key for the level of a program: its library must prepare for levels 2 and 3 before it uses the device (`xcli run --level`), and the
  server can only lower the level. `max_level` does that: the server tells the library at which level to suspend. A program can lie about what
  it does then, as it can leave the server altogether ([Security](../security.md)).
* There is no right for a single policy. A policy decides for all programs of a device, so who may set one may set all (`set_policy`).
* Deadlines, laxity, classes and jobs have no limits by rule: policies that go by them are for users who trust each other.
* A name for a priority is looked up when it is used. A changed name changes the rules and entries of the file that use it, not hints that `xcli` has
  given.
* Requests beyond `requests_per_second_per_user` wait instead of being refused: while one waits, the server does not read its connection, and a
  refusal would cost as much as most answers. `xcli` notices nothing but a delay, of 1.7 s at most.

## For users of GPreempt
The published description of GPreempt's scheduler has these keys. What they become here:

| there | here |
|---|---|
| `enabled` | `xcli on`, `xcli off`; a program without the library is not scheduled |
| priorities with names | `[priorities]`; a program asks by `xcli run --priority NAME`, and a `[[rule]]` says how high its user may go |
| `min_prep_time_us` | no key: how long before its arrival work is announced is the hint of an arrival (`xcli hint`, `XHintArrival`) |
| `safety_margin_us` | no key: lingers and windows are learnt from each program, and a fixed margin would be wrong for most ([ADR 20](../adr/0020-lingers-are-learnt.md)) |
| `min_timeslice_us`, `max_timeslice_us` | `[limits] min_timeslice_us`, `max_timeslice_us`, for slices that a hint or a `[[program]]` sets; the slice itself is a parameter of the policies that have one, `timeslice_us` of a `[[program]]`, or `xcli hint --timeslice` |
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
    assert_eq!((configuration.programs.len(), configuration.priorities.len()), (1, 2));
}
