//! The configuration file of the server for all users, `/etc/giveway/giveway.toml`.
//!
//! [`Configuration::read`] reads the file, and checks everything that can be checked before it counts: a file with one
//! mistake changes nothing. [`keys`] has the tables.

pub mod keys;
#[cfg(test)]
mod tests;
pub mod values;
mod written;

use crate::access::{Rule, Rules};
use crate::limits::{CONNECTIONS, DEVICES, Limits, QUEUES, REQUEST_RATES};
use crate::programs::Program;
use anyhow::{Context, Result, bail, ensure};
use host::user;
use keys::{File, ListenTable, PRIORITIES, ProgramTable, RuleTable, TABLES};
use policies::{Choice, named};
use protocol::bounds::Priority;
use protocol::control::{ConfigKey, ConfigOrigin, HintUpdate, PolicyOrder};
use protocol::hint::table::HintKind;
use protocol::ids::DeviceId;
use protocol::socket::{LONGEST_PATH, SYSTEM_SOCKET};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use values::{Account, NamedPriority};
use written::{Written, line_of};

/// The file that is read unless the command line names another one.
pub const FILE: &str = "/etc/giveway/giveway.toml";
/// The longest file, in bytes.
const LONGEST: u64 = 1 << 20;
/// The most entries of each kind.
const ENTRIES: usize = 1_024;
/// The longest name of a priority, in bytes.
const LONGEST_NAME: usize = 32;

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The policy of all devices.
    pub policy: Choice,
    /// Devices with their own policies.
    pub devices: Vec<(DeviceId, Choice)>,
    /// The time after which a waiting program runs for a moment; none for never.
    pub starvation: Option<Duration>,
    /// The sockets beside the server's own one.
    pub listen: Vec<Listen>,
    /// Who may do what.
    pub rules: Rules,
    /// Hints for programs by their names.
    pub programs: Vec<Arc<Program>>,
    /// Names for priorities.
    pub priorities: BTreeMap<String, Priority>,
    /// How much one program or user can take.
    pub limits: Limits,
    /// All keys, for users.
    pub keys: Vec<ConfigKey>,
}

/// A socket beside the server's own one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Its absolute path.
    pub path: PathBuf,
    /// The permissions of its file.
    pub mode: u32,
}

/// The databases of users and groups.
pub trait Accounts {
    /// Returns the number of a user or, with `group`, of a group; `None` if there is none of this name.
    ///
    /// # Errors
    /// The database cannot be read.
    fn number(&self, name: &str, group: bool) -> std::io::Result<Option<u32>>;
}

/// The databases of this machine.
#[derive(Debug)]
pub struct Machine;

impl Accounts for Machine {
    fn number(&self, name: &str, group: bool) -> std::io::Result<Option<u32>> {
        if group { user::gid_of(name) } else { user::uid_of(name) }
    }
}

impl Configuration {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read or has a mistake. The text is one line with the place.
    pub fn read(path: &Path) -> Result<Self> {
        let mut text = String::new();
        let file = fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        file.take(LONGEST + 1)
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(text.len() as u64 <= LONGEST, "{} is longer than {LONGEST} bytes", path.display());
        Self::parse(&text, &Machine).with_context(|| path.display().to_string())
    }

    /// Checks the contents of a file.
    ///
    /// # Errors
    /// It has a mistake.
    pub fn parse(text: &str, accounts: &dyn Accounts) -> Result<Self> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            anyhow::anyhow!("{place}{}", error.message().replace('\n', " "))
        })?;
        Self::check(&file, &Written::new(text), accounts)
    }

    /// Checks a file. `written` has the keys that it contains.
    fn check(file: &File, written: &Written<'_>, accounts: &dyn Accounts) -> Result<Self> {
        for (header, count) in [
            ("[[device]]", file.device.len()),
            ("[[listen]]", file.listen.len()),
            ("[[rule]]", file.rule.len()),
            ("[[program]]", file.program.len()),
            (PRIORITIES.header, file.priorities.len()),
        ] {
            ensure!(count <= ENTRIES, "{header}: there are {count}, the most is {ENTRIES}");
        }
        for (name, priority) in &file.priorities {
            check_name(name, *priority)
                .with_context(|| format!("{}[priorities] {name}", written.line("priorities", 0, name)))?;
        }
        let priority = |of: &NamedPriority, table, index, key| {
            resolve(of, &file.priorities)
                .with_context(|| format!("{}[[{table}]] {key}", written.line(table, index, key)))
        };
        let policy = choice(&file.policy.name, &file.policy.parameters, None)
            .with_context(|| format!("{}[policy]", written.line("policy", 0, "name")))?;
        let mut devices = Vec::new();
        for (index, device) in file.device.iter().enumerate() {
            let line = written.line("device", index, "gpu");
            let place = || format!("{line}[[device]] gpu = {}", device.gpu);
            ensure!(device.gpu != 0, "{line}[[device]]: the key gpu is missing");
            let gpu = DeviceId(device.gpu);
            ensure!(devices.iter().all(|(other, _)| *other != gpu), "{}: it appears twice", place());
            devices.push((gpu, choice(&device.policy, &device.parameters, Some(gpu)).with_context(place)?));
        }
        ensure!(devices.len() <= DEVICES, "[[device]]: at most {DEVICES} devices have their own policies");
        let mut listen = Vec::new();
        let mut caps = BTreeMap::new();
        for (index, table) in file.listen.iter().enumerate() {
            let line = written.line("listen", index, "path");
            listen.push(socket(table).with_context(|| format!("{line}[[listen]] path = {:?}", table.path))?);
            caps.insert(table.path.clone(), priority(&table.max_priority, "listen", index, "max_priority")?);
        }
        let paths: BTreeSet<_> = listen.iter().map(|listen: &Listen| &listen.path).collect();
        ensure!(paths.len() == listen.len(), "[[listen]]: a path appears twice");
        let mut rules = Vec::new();
        for (index, table) in file.rule.iter().enumerate() {
            let name = if table.name.is_empty() { (index + 1).to_string() } else { table.name.clone() };
            let place = |key| format!("{}[[rule]] {name}", written.line("rule", index, key));
            let unknown = table.listen.iter().find(|path| {
                path.as_path() != Path::new(SYSTEM_SOCKET)
                    && listen.iter().all(|listen| listen.path != **path)
            });
            if let Some(path) = unknown {
                bail!(
                    "{}: listen = {path:?} is neither {SYSTEM_SOCKET} nor the path of a [[listen]]",
                    place("listen")
                );
            }
            let numbers = |all, group, key| numbers(all, group, accounts).with_context(|| place(key));
            let max_priority = priority(&table.max_priority, "rule", index, "max_priority")?;
            let (users, groups) =
                (numbers(&table.users, false, "users")?, numbers(&table.groups, true, "groups")?);
            rules.push(Rule { name: name.into(), users, groups, ..rule(table, max_priority) });
        }
        let mut programs = Vec::new();
        for (index, table) in file.program.iter().enumerate() {
            let place = |key| format!("{}[[program]] {}", written.line("program", index, key), table.name);
            ensure!(!table.name.is_empty(), "{}: the key name is missing", place("name").trim_end());
            let of_table = table.priority.as_ref();
            let priority = of_table.map(|of| priority(of, "program", index, "priority")).transpose()?;
            let users = numbers(&table.users, false, accounts).with_context(|| place("users"))?;
            let hints = hints(table, priority).with_context(|| place("class"))?;
            programs.push(Arc::new(Program { name: table.name.as_str().into(), users, hints }));
        }
        let starvation = Duration::from_millis(file.server.starvation_ms);
        Ok(Self {
            policy,
            devices,
            starvation: (!starvation.is_zero()).then_some(starvation),
            listen,
            rules: Rules::new(rules, caps),
            programs,
            priorities: file.priorities.clone(),
            limits: limits(file, written)?,
            keys: in_force(file, written),
        })
    }
}

impl Default for Configuration {
    /// The configuration of an empty file.
    fn default() -> Self {
        let file = File::default();
        Self {
            policy: Choice::new(policies::registry::DEFAULT),
            devices: Vec::new(),
            starvation: Some(Duration::from_millis(file.server.starvation_ms)),
            listen: Vec::new(),
            rules: Rules::default(),
            programs: Vec::new(),
            priorities: BTreeMap::new(),
            limits: Limits::default(),
            keys: in_force(&file, &Written::default()),
        }
    }
}

fn choice(
    policy: &str,
    parameters: &std::collections::BTreeMap<String, f64>,
    device: Option<DeviceId>,
) -> Result<Choice> {
    let order = PolicyOrder { policy: policy.to_owned(), values: parameters.clone(), device };
    named::choice(&order).map_err(anyhow::Error::msg)
}

fn socket(table: &ListenTable) -> Result<Listen> {
    let ListenTable { path, mode, .. } = table;
    ensure!(path.is_absolute(), "the path is not absolute");
    ensure!(path.as_os_str().as_bytes().len() <= LONGEST_PATH, "the path has more than {LONGEST_PATH} bytes");
    let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777);
    let mode = mode.context("mode is not an octal number up to 0777")?;
    Ok(Listen { path: path.clone(), mode })
}

/// The numbers of users or, with `group`, of groups.
fn numbers(all: &[Account], group: bool, accounts: &dyn Accounts) -> Result<Vec<u32>> {
    let number = |account: &Account| match account {
        Account::Number(number) => Ok(*number),
        Account::Name(name) => {
            let kind = if group { "group" } else { "user" };
            let number = accounts.number(name, group).with_context(|| format!("{kind} {name:?}"))?;
            number.with_context(|| format!("there is no {kind} {name:?}"))
        }
    };
    all.iter().map(number).collect()
}

/// A rule without its name, users and groups.
fn rule(table: &RuleTable, max_priority: Priority) -> Rule {
    Rule {
        name: "".into(),
        users: Vec::new(),
        groups: Vec::new(),
        sockets: table.listen.clone(),
        cgroups: table.cgroups.clone(),
        connects: table.connect,
        max_priority,
        max_share: table.max_share,
        max_level: table.max_level.0,
        administers: table.administer,
        sets_policies: table.set_policy,
        observes: table.observe,
    }
}

/// The hints of a program.
fn hints(table: &ProgramTable, priority: Option<Priority>) -> Result<Vec<HintUpdate>> {
    let class = |word: &String| HintKind::Class.spec().parse(word).map_err(anyhow::Error::msg);
    let all = [
        priority.map(HintUpdate::Priority),
        table.share.map(HintUpdate::Utilization),
        table.cap.map(|cap| HintUpdate::Cap(Some(cap))),
        table.timeslice_us.map(HintUpdate::Timeslice),
        table.deadline_us.map(|deadline| HintUpdate::Deadline(Some(deadline))),
        table.preemptible.map(HintUpdate::Preemptible),
        table.class.as_ref().map(class).transpose()?,
    ];
    Ok(all.into_iter().flatten().collect())
}

/// Checks a name for a priority.
fn check_name(name: &str, priority: Priority) -> Result<()> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    // A word that begins otherwise could be a number.
    ensure!(
        name.len() <= LONGEST_NAME
            && name.bytes().all(is_word)
            && name.starts_with(|first: char| first.is_ascii_alphabetic()),
        "a name begins with a letter and has at most {LONGEST_NAME} letters, digits, - and _"
    );
    check_cap(priority)
}

/// The number of a priority.
fn resolve(of: &NamedPriority, names: &BTreeMap<String, Priority>) -> Result<Priority> {
    let priority = match of {
        NamedPriority::Number(priority) => *priority,
        NamedPriority::Name(name) => {
            *names.get(name).with_context(|| format!("[priorities] has no name {name:?}"))?
        }
    };
    check_cap(priority)?;
    Ok(priority)
}

/// Refuses a priority that would keep every queue from running.
fn check_cap(priority: Priority) -> Result<()> {
    ensure!(priority >= Priority::MIN, "priority {priority} is not in {}..{}", Priority::MIN, Priority::MAX);
    Ok(())
}

fn limits(file: &File, written: &Written<'_>) -> Result<Limits> {
    let table = &file.limits;
    let place = |key| format!("{}[limits]", written.line("limits", 0, key));
    for (key, value, range) in [
        ("connections_per_process", table.connections_per_process, 1..=CONNECTIONS),
        ("connections_per_user", table.connections_per_user, 1..=CONNECTIONS),
        ("queues_per_user", table.queues_per_user, 1..=QUEUES),
        ("devices_per_process", table.devices_per_process, 1..=DEVICES),
        ("requests_per_second_per_user", table.requests_per_second_per_user, REQUEST_RATES),
    ] {
        if !range.contains(&value) {
            bail!("{}: {key} = {value} is not in {}..{}", place(key), range.start(), range.end());
        }
    }
    let (min, max) = (table.min_timeslice_us, table.max_timeslice_us);
    if min > max {
        bail!("{}: min_timeslice_us = {min} is above max_timeslice_us = {max}", place("min_timeslice_us"));
    }
    Ok(*table)
}

/// Returns every key with its value, except for keys without one. `written` has the keys that the file contains.
fn in_force(file: &File, written: &Written<'_>) -> Vec<ConfigKey> {
    let Ok(toml::Value::Table(values)) = toml::Value::try_from(file) else { return Vec::new() };
    let mut keys = Vec::new();
    for table in TABLES {
        let name = table.header.trim_matches(['[', ']']);
        let entries = match values.get(name).cloned() {
            Some(toml::Value::Array(entries)) => entries,
            other => other.into_iter().collect(),
        };
        for (index, entry) in entries.iter().enumerate() {
            let place =
                if table.header.starts_with("[[") { format!("{name}[{index}]") } else { name.to_owned() };
            // The keys of a table of names are not known before.
            let names: Vec<&str> = match entry {
                toml::Value::Table(entry) if table.keys.is_empty() => {
                    entry.keys().map(String::as_str).collect()
                }
                _ => table.keys.iter().map(|key| key.name).collect(),
            };
            for key in names {
                let Some(value) = entry.get(key) else { continue };
                let from =
                    if written.has(name, index, key) { ConfigOrigin::File } else { ConfigOrigin::Default };
                keys.push(ConfigKey { name: format!("{place}.{key}"), value: value.to_string(), from });
            }
        }
    }
    keys
}
