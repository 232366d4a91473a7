//! The configuration file of the server for all users, `/etc/giveway/giveway.toml`.
//!
//! [`Configuration::read`] reads the file, and checks everything that can be checked before it counts: a file with one
//! mistake changes nothing. [`keys`] has the tables.

pub mod keys;

use crate::access::{Rule, Rules};
use crate::limits::{CONNECTIONS, DEVICES, Limits, QUEUES};
use anyhow::{Context, Result, bail, ensure};
use host::user;
use keys::{Account, File, ListenTable, RuleTable, TABLES};
use policies::{Choice, named};
use protocol::bounds::Priority;
use protocol::control::{ConfigKey, ConfigOrigin, PolicyOrder};
use protocol::ids::DeviceId;
use protocol::socket::{LONGEST_PATH, SYSTEM_SOCKET};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that is read unless the command line names another one.
pub const FILE: &str = "/etc/giveway/giveway.toml";
/// The longest file, in bytes.
const LONGEST: u64 = 1 << 20;
/// The most entries of each kind.
const ENTRIES: usize = 1_024;

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
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
            anyhow::anyhow!("{place}{}", error.message().replace('\n', " "))
        })?;
        let written = toml::from_str(text).unwrap_or_default();
        Self::check(&file, &written, accounts)
    }

    /// Checks a file. `written` has the keys that it contains.
    fn check(file: &File, written: &toml::Table, accounts: &dyn Accounts) -> Result<Self> {
        for (header, count) in
            [("device", file.device.len()), ("listen", file.listen.len()), ("rule", file.rule.len())]
        {
            ensure!(count <= ENTRIES, "[[{header}]]: there are {count}, the most is {ENTRIES}");
        }
        let policy = choice(&file.policy.name, &file.policy.parameters, None).context("[policy]")?;
        let mut devices = Vec::new();
        for device in &file.device {
            let place = || format!("[[device]] gpu = {}", device.gpu);
            ensure!(device.gpu != 0, "[[device]]: the key gpu is missing");
            let gpu = DeviceId(device.gpu);
            ensure!(devices.iter().all(|(other, _)| *other != gpu), "{}: it appears twice", place());
            devices.push((gpu, choice(&device.policy, &device.parameters, Some(gpu)).with_context(place)?));
        }
        ensure!(devices.len() <= DEVICES, "[[device]]: at most {DEVICES} devices have their own policies");
        let mut listen = Vec::new();
        for table in &file.listen {
            listen.push(socket(table).with_context(|| format!("[[listen]] path = {:?}", table.path))?);
        }
        let paths: BTreeSet<_> = listen.iter().map(|listen: &Listen| &listen.path).collect();
        ensure!(paths.len() == listen.len(), "[[listen]]: a path appears twice");
        let caps = file.listen.iter().map(|table| (table.path.clone(), table.max_priority)).collect();
        let mut rules = Vec::new();
        for (index, table) in file.rule.iter().enumerate() {
            let name = if table.name.is_empty() { (index + 1).to_string() } else { table.name.clone() };
            let place = || format!("[[rule]] {name}");
            let unknown = table.listen.iter().find(|path| {
                path.as_path() != Path::new(SYSTEM_SOCKET)
                    && listen.iter().all(|listen| listen.path != **path)
            });
            if let Some(path) = unknown {
                bail!(
                    "{}: listen = {path:?} is neither {SYSTEM_SOCKET} nor the path of a [[listen]]",
                    place()
                );
            }
            rules.push(rule(table, &name, accounts).with_context(place)?);
        }
        let starvation = Duration::from_millis(file.server.starvation_ms);
        Ok(Self {
            policy,
            devices,
            starvation: (!starvation.is_zero()).then_some(starvation),
            listen,
            rules: Rules::new(rules, caps),
            limits: limits(file)?,
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
            limits: Limits::default(),
            keys: in_force(&file, &toml::Table::new()),
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
    let ListenTable { path, mode, max_priority } = table;
    ensure!(path.is_absolute(), "the path is not absolute");
    ensure!(path.as_os_str().as_bytes().len() <= LONGEST_PATH, "the path has more than {LONGEST_PATH} bytes");
    check_cap(*max_priority)?;
    let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777);
    let mode = mode.context("mode is not an octal number up to 0777")?;
    Ok(Listen { path: path.clone(), mode })
}

fn rule(table: &RuleTable, name: &str, accounts: &dyn Accounts) -> Result<Rule> {
    let numbers = |all: &[Account], group| -> Result<Vec<u32>> {
        let number = |account: &Account| match account {
            Account::Number(number) => Ok(*number),
            Account::Name(name) => {
                let kind = if group { "group" } else { "user" };
                let number = accounts.number(name, group).with_context(|| format!("{kind} {name:?}"))?;
                number.with_context(|| format!("there is no {kind} {name:?}"))
            }
        };
        all.iter().map(number).collect()
    };
    check_cap(table.max_priority)?;
    Ok(Rule {
        name: name.into(),
        users: numbers(&table.users, false)?,
        groups: numbers(&table.groups, true)?,
        sockets: table.listen.clone(),
        cgroups: table.cgroups.clone(),
        connects: table.connect,
        max_priority: table.max_priority,
        administers: table.administer,
        observes: table.observe,
    })
}

/// Refuses a cap that would keep every queue from running.
fn check_cap(priority: Priority) -> Result<()> {
    ensure!(
        priority >= Priority::MIN,
        "max_priority {priority} is not in {}..{}",
        Priority::MIN,
        Priority::MAX
    );
    Ok(())
}

fn limits(file: &File) -> Result<Limits> {
    let table = &file.limits;
    for (key, value, most) in [
        ("connections_per_process", table.connections_per_process, CONNECTIONS),
        ("connections_per_user", table.connections_per_user, CONNECTIONS),
        ("queues_per_user", table.queues_per_user, QUEUES),
        ("devices_per_process", table.devices_per_process, DEVICES),
    ] {
        if !(1..=most).contains(&value) {
            bail!("[limits]: {key} = {value} is not in 1..{most}");
        }
    }
    Ok(*table)
}

/// Returns every key with its value. `written` has the keys that the file contains.
fn in_force(file: &File, written: &toml::Table) -> Vec<ConfigKey> {
    let Ok(toml::Value::Table(values)) = toml::Value::try_from(file) else { return Vec::new() };
    let mut keys = Vec::new();
    for table in TABLES {
        let name = table.header.trim_matches(['[', ']']);
        let entries = |all: &toml::Table| match all.get(name).cloned() {
            Some(toml::Value::Array(entries)) => entries,
            other => other.into_iter().collect(),
        };
        let written = entries(written);
        for (index, entry) in entries(&values).iter().enumerate() {
            let place =
                if table.header.starts_with("[[") { format!("{name}[{index}]") } else { name.to_owned() };
            for key in table.keys {
                let Some(value) = entry.get(key.name) else { continue };
                let is_written = written.get(index).is_some_and(|entry| entry.get(key.name).is_some());
                let from = if is_written { ConfigOrigin::File } else { ConfigOrigin::Default };
                keys.push(ConfigKey {
                    name: format!("{place}.{}", key.name),
                    value: value.to_string(),
                    from,
                });
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    struct Some3;

    impl Accounts for Some3 {
        fn number(&self, name: &str, group: bool) -> std::io::Result<Option<u32>> {
            match (name, group) {
                ("alice", false) => Ok(Some(1000)),
                ("render", true) => Ok(Some(105)),
                ("broken", _) => Err(std::io::ErrorKind::PermissionDenied.into()),
                _ => Ok(None),
            }
        }
    }

    fn parse(text: &str) -> Result<Configuration, String> {
        Configuration::parse(text, &Some3).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn empty_file_has_the_documented_defaults() {
        let mut text = String::new();
        for table in TABLES.iter().filter(|table| !table.header.starts_with("[[")) {
            writeln!(text, "{}", table.header).unwrap();
            for key in table.keys {
                writeln!(text, "{} = {}", key.name, key.default).unwrap();
            }
        }
        assert_eq!(toml::from_str::<File>(&text).unwrap(), File::default());
        for table in TABLES.iter().filter(|table| table.header.starts_with("[[")) {
            let mut all = table.header.to_owned();
            for key in table.keys {
                write!(all, "\n{} = {}", key.name, key.default).unwrap();
            }
            assert_eq!(
                toml::from_str::<File>(&all).unwrap(),
                toml::from_str::<File>(table.header).unwrap(),
                "{all}"
            );
        }
        let configuration = parse("").unwrap();
        let default = Configuration::default();
        assert_eq!((&configuration.policy, &configuration.keys), (&default.policy, &default.keys));
        assert_eq!((configuration.starvation, configuration.limits), (default.starvation, default.limits));
        assert_eq!(configuration.limits, Limits::default());
        assert_eq!(configuration.starvation, Some(Duration::from_secs(10)));
        assert!(configuration.keys.iter().all(|key| key.from == ConfigOrigin::Default));
        assert!(
            configuration.keys.iter().any(|key| key.name == "limits.queues_per_user" && key.value == "16384")
        );
    }

    #[test]
    fn a_full_file_is_read() {
        let text = r#"
            [server]
            starvation_ms = 0
            [policy]
            name = "fair"
            [[device]]
            gpu = 51234
            policy = "HPF"
            parameters = { share-percent = 50 }
            [[listen]]
            path = "/run/giveway/batch/xserver.sock"
            mode = "0660"
            max_priority = -1
            [[rule]]
            name = "serving"
            users = ["alice", 7]
            groups = ["render"]
            cgroups = ["/system.slice/*"]
            max_priority = 100
            [limits]
            queues_per_user = 10
        "#;
        let configuration = parse(text).unwrap();
        assert_eq!(configuration.policy.row.kind.name(), "FAIR");
        assert_eq!(configuration.devices[0].0, DeviceId(51_234));
        assert_eq!(configuration.starvation, None);
        let path = PathBuf::from("/run/giveway/batch/xserver.sock");
        assert_eq!(configuration.listen, [Listen { path, mode: 0o660 }]);
        assert_eq!(configuration.limits, Limits { queues_per_user: 10, ..Limits::default() });
        let key = |name: &str| configuration.keys.iter().find(|key| key.name == name).unwrap().clone();
        assert_eq!(key("rule[0].users").value, r#"["alice", 7]"#);
        assert_eq!(key("rule[0].users").from, ConfigOrigin::File);
        assert_eq!(key("rule[0].administer").from, ConfigOrigin::Default);
        // A value that happens to be the default comes from the file as well.
        let same = parse("[policy]\nname = \"HPF\"").unwrap();
        let from = |name: &str| same.keys.iter().find(|key| key.name == name).unwrap().from;
        assert_eq!(
            (from("policy.name"), from("policy.parameters")),
            (ConfigOrigin::File, ConfigOrigin::Default)
        );
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (text, what) in [
            ("\n[limits]\nqueues = 5", "line 3: unknown field `queues`, expected one of"),
            ("[limits]\nqueues_per_user = -5", "line 2: invalid value"),
            ("[limits]\nqueues_per_user = 0", "[limits]: queues_per_user = 0 is not in 1..65536"),
            ("[policy", "line 1: "),
            ("[policy]\nname = \"FIFO\"", "[policy]: no policy \"FIFO\""),
            ("[policy]\nparameters = { x = 1 }", "[policy]: policy HPF: "),
            ("[[device]]", "[[device]]: the key gpu is missing"),
            ("[[device]]\ngpu = 5\n[[device]]\ngpu = 5", "[[device]] gpu = 5: it appears twice"),
            ("[[listen]]\npath = \"run/x\"", "[[listen]] path = \"run/x\": the path is not absolute"),
            ("[[listen]]\npath = \"/x\"\nmode = \"rw\"", "mode is not an octal number"),
            ("[[listen]]\npath = \"/x\"\nmode = \"7777\"", "mode is not an octal number"),
            ("[[listen]]\npath = \"/x\"\n[[listen]]\npath = \"/x\"", "a path appears twice"),
            ("[[rule]]\nmax_priority = 300", "line 2: priority 300 is not in -256..255"),
            ("[[rule]]\nmax_priority = -256", "[[rule]] 1: max_priority -256 is not in -255..255"),
            ("[[rule]]\nname = \"a\"\nusers = [\"bob\"]", "[[rule]] a: there is no user \"bob\""),
            ("[[rule]]\ngroups = [\"alice\"]", "[[rule]] 1: there is no group \"alice\""),
            ("[[rule]]\nusers = [\"broken\"]", "user \"broken\": permission denied"),
            (
                "[[rule]]\nlisten = [\"/x\"]",
                "[[rule]] 1: listen = \"/x\" is neither /run/giveway/xserver.sock nor",
            ),
            ("[[rule]]\nusers = [true]", "line 2: expected a name or a number"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
