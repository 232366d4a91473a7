//! The tables of the configuration file. Each key has one row, from which the type that reads it, its default and its
//! documentation are made.

use super::values::{Account, Level, NamedPriority};
use protocol::bounds::{Cap, Priority, Timeslice, Utilization};
use protocol::codes::PreemptLevel;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;

/// A table of the file.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Its header, such as `[limits]`; `[[rule]]` can appear several times.
    pub header: &'static str,
    /// What it is about.
    pub meaning: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// A key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The accepted values.
    pub values: &'static str,
    /// The value if the key is missing, as TOML; [`UNSET`] if there is none.
    pub default: &'static str,
    /// Its effect.
    pub meaning: &'static str,
}

/// Stands for the default of a key that is not set.
pub const UNSET: &str = "not set";

/// The table of names for priorities, whose keys are those names.
pub const PRIORITIES: Table = Table {
    header: "[priorities]",
    meaning: "Names for priorities, such as `realtime = 200`. A name can stand wherever a priority of this file stands, and users type it \
              in `xcli hint --priority NAME` and `xcli run --priority NAME`. A name begins with a letter and has at most 32 letters, \
              digits, `-` and `_`; its priority is -255 to 255. A name gives no right to its priority.",
    keys: &[],
};

macro_rules! tables {
    ($($(#[$more:meta])* $name:ident $header:literal $about:literal {
        $($key:ident: $type:ty = $default:expr, $shown:literal, $values:literal, $meaning:literal;)*
    })*) => {
        $(
            #[doc = $about]
            $(#[$more])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[serde(deny_unknown_fields, default)]
            pub struct $name {
                $(#[doc = $meaning] pub $key: $type,)*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self { $($key: $default,)* }
                }
            }
        )*

        /// All tables, in the order of the documentation.
        pub const TABLES: &[Table] = &[PRIORITIES, $(Table {
            header: $header,
            meaning: $about,
            keys: &[$(Key { name: stringify!($key), values: $values, default: $shown, meaning: $meaning },)*],
        },)*];
    };
}

tables! {
    ServerTable "[server]" "The server as a whole." {
        starvation_ms: u64 = 10_000, "10000", "milliseconds, 0 for never",
            "A program that has waited for this long runs for a moment, whatever its priority. Counts under the policies by \
             priority. A program says itself when its commands are complete, so without a limit one that lies keeps the device.";
    }
    PolicyTable "[policy]" "The policy of all devices, until `xcli policy set`." {
        name: String = "HPF".to_owned(), "\"HPF\"", "a name of `xcli policy list`", "The policy.";
        parameters: BTreeMap<String, f64> = BTreeMap::new(), "{}", "names and numbers of `xcli policy list`",
            "Its parameters, such as `{ share-percent = 50 }`. Those that are missing have their defaults.";
    }
    DeviceTable "[[device]]" "A device with its own policy." {
        gpu: u32 = 0, "0", "the KFD id of the device, as `xcli list` shows it", "The device.";
        policy: String = "HPF".to_owned(), "\"HPF\"", "a name of `xcli policy list`", "Its policy.";
        parameters: BTreeMap<String, f64> = BTreeMap::new(), "{}", "names and numbers of `xcli policy list`",
            "The parameters of the policy.";
    }
    ListenTable "[[listen]]" "An additional socket, for example one that is mounted into a container. Its clients cannot administer the server, and that includes root of the container. They see and change only programs of the same user that connected through the same socket. The limits count all its clients as one user. Only root can create such a socket; with the systemd service, a socket unit creates it." {
        path: PathBuf = PathBuf::new(), "\"\"", "an absolute path of at most 107 bytes", "The socket.";
        mode: String = "0666".to_owned(), "\"0666\"", "an octal number", "The permissions of the socket's file. Who may not write to it cannot connect.";
        max_priority: NamedPriority = NamedPriority::Number(Priority::MAX), "255", "-255 to 255, or a name",
            "The highest priority of the socket's clients. A rule cannot raise it.";
    }
    RuleTable "[[rule]]" "What some programs may do. The first rule counts whose conditions all hold; a condition that is empty holds. For a program without a rule the priority is at most 0." {
        name: String = String::new(), "\"\"", "a text", "The name of the rule, which messages and `xcli list --json` show.";
        users: Vec<Account> = Vec::new(), "[]", "names or numbers", "Condition: the user of the program is one of these.";
        groups: Vec<Account> = Vec::new(), "[]", "names or numbers", "Condition: the program is in one of these groups.";
        listen: Vec<PathBuf> = Vec::new(), "[]", "paths", "Condition: the program connected through one of these sockets: `/run/giveway/xserver.sock` or the path of a `[[listen]]`.";
        cgroups: Vec<String> = Vec::new(), "[]", "patterns with `*`",
            "Condition: the control group of the program when it connects matches one of these, such as `/system.slice/docker-*`. `*` stands for any text, `/` included: begin with the slice, because users name groups below their own. A group that the server cannot see (`/proc` with `hidepid`) matches nothing.";
        connect: bool = true, "true", "true, false", "False refuses the programs: they run unscheduled.";
        max_priority: NamedPriority = NamedPriority::Number(Priority::DEFAULT), "0", "-255 to 255, or a name", "The highest priority that the program and its user can set.";
        max_share: Utilization = Utilization::MAX, "100", "0 to 100",
            "The largest share that the program and its user can set (`xcli hint -u`), for the policies that divide the device by shares. It holds for each program, and for each of its queues.";
        max_level: Level = Level(PreemptLevel::Interrupt), "3", "1 to 3",
            "The deepest preemption level at which the program is suspended, whatever it asks for. With 1 its queues are never evicted. Between 2 and 3 there is a difference only where the driver lets running kernels complete ([Preemption levels](../levels.md)).";
        administer: bool = false, "false", "true, false",
            "True lets the user see and change everything: all programs, the policy, `xcli off`, `xcli reload`. Root always may.";
        set_policy: bool = false, "false", "true, false",
            "True lets the user set and reset policies (`xcli policy set`), without the other rights of an administrator.";
        observe: bool = false, "false", "true, false",
            "True lets the user see all programs, such as a monitoring account. The user of the server always may.";
    }
    ProgramTable "[[program]]" "Hints for programs by their names, as far as they have not set them. The first entry that matches counts. A program's own hints win, and so do those of `xcli hint`; the limits of the program's rule hold for these hints as well. A program says its name itself, so an entry is no right." {
        name: String = String::new(), "\"\"", "a pattern with `*`", "The name of the program, as `xcli list` shows it. `*` stands for any text.";
        users: Vec<Account> = Vec::new(), "[]", "names or numbers", "The users whose programs are meant; all if it is empty.";
        priority: Option<NamedPriority> = None, "not set", "-255 to 255, or a name", "The priority of its queues.";
        share: Option<Utilization> = None, "not set", "0 to 100", "The share of the program and of its queues in percent, for the policies that divide the device by shares.";
        cap: Option<Cap> = None, "not set", "1 to 100", "The most in percent that the program gets of a device, for CREDIT.";
        timeslice_us: Option<Timeslice> = None, "not set", "100 to 10,000,000", "The slice in microseconds, for the policies that take turns. The shortest that any program has counts.";
        deadline_us: Option<NonZeroU64> = None, "not set", "a whole number from 1", "The deadline in microseconds from the moment when a queue becomes ready, for KEDF, EDF and SLO.";
        preemptible: Option<bool> = None, "not set", "true, false", "False: its queues are not suspended while they have work, for LCBE.";
        class: Option<String> = None, "not set", "`latency-critical`, `best-effort`", "The class of its queues, for LCBE.";
    }
    #[derive(Copy, Eq)]
    Limits "[limits]" "How much one program or one user can take. Administrators have no limit for a user." {
        connections_per_process: usize = 64, "64", "1 to 1,024", "Connections of one process, of `xcli` included.";
        connections_per_user: usize = 256, "256", "1 to 1,024", "Connections of one user. The server has 1,024, of which the last 32 are for administrators.";
        queues_per_user: usize = 16_384, "16384", "1 to 65,536",
            "Queues of one user; the server has 65,536, and a process 4,096. A program with one queue more runs unscheduled.";
        devices_per_process: usize = 64, "64", "1 to 256", "Devices on which one process has queues; the server has 256.";
        requests_per_second_per_user: usize = 200, "200", "10 to 1,000,000",
            "Requests of `xcli` of one user in a second. Further ones wait for their turn. At most 16 requests of a user can wait; the next one is refused.";
        min_timeslice_us: Timeslice = Timeslice::MIN, "100", "100 to 10,000,000",
            "The shortest slice in microseconds that a hint or a `[[program]]` can set; a shorter one counts as this. Only administrators hint slices.";
        max_timeslice_us: Timeslice = Timeslice::MAX, "10000000", "100 to 10,000,000", "The longest such slice.";
    }
}

/// The whole file.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are named after the tables")]
pub struct File {
    pub server: ServerTable,
    pub policy: PolicyTable,
    pub device: Vec<DeviceTable>,
    pub priorities: BTreeMap<String, Priority>,
    pub listen: Vec<ListenTable>,
    pub rule: Vec<RuleTable>,
    pub program: Vec<ProgramTable>,
    pub limits: Limits,
}
