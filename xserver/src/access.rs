//! Who may do what.
//!
//! A server of one user accepts this user and root, and both may do everything. A server for all users accepts everybody
//! and has rules: a user sees and changes the own programs only, and their priority has a limit.

use host::user::Namespace;
use protocol::bounds::{Priority, Utilization};
use protocol::codes::PreemptLevel;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

/// What the kernel says about the process at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its user.
    pub uid: u32,
    /// Its group and supplementary groups.
    pub groups: Vec<u32>,
    /// Its control group; none if that is unknown.
    pub cgroup: Option<String>,
    /// The socket by which it came.
    pub socket: Arc<Path>,
}

/// What a process may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The name of the rule.
    pub rule: Arc<str>,
    /// The highest priority of its queues.
    pub max_priority: Priority,
    /// The largest share of itself and of its queues.
    pub max_share: Utilization,
    /// The deepest level at which it is suspended.
    pub max_level: PreemptLevel,
    /// True if it may see and change everything.
    pub administers: bool,
    /// True if it may set policies. Who administers may in any case.
    pub sets_policies: bool,
    /// True if it may see everything. Who administers may in any case.
    pub observes: bool,
    /// The socket, if it is one of `[[listen]]`. Clients of such a socket see only each other.
    pub within: Option<Arc<Path>>,
}

/// A person who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The user.
    pub uid: u32,
    /// What the user may do.
    pub grant: Grant,
}

impl Asker {
    /// Returns true if the person may see a program of this user with this grant.
    pub fn sees(&self, uid: u32, grant: &Grant) -> bool {
        self.sees_all() || self.changes(uid, grant)
    }

    /// Returns true if the person may see all programs.
    pub fn sees_all(&self) -> bool {
        self.grant.administers || self.grant.observes
    }

    /// Returns true if the person may change a program of this user with this grant.
    pub fn changes(&self, uid: u32, grant: &Grant) -> bool {
        let is_inside = self.grant.within.is_none() || self.grant.within == grant.within;
        self.grant.administers || is_inside && is_same(self.uid, uid)
    }

    /// Returns true if the person may set policies.
    pub fn sets_policies(&self) -> bool {
        self.grant.administers || self.grant.sets_policies
    }

    /// Returns true if both persons see the same.
    pub fn sees_the_same_as(&self, other: &Self) -> bool {
        self.sees_all() && other.sees_all() || self.uid == other.uid && self.grant == other.grant
    }
}

/// A rule of the configuration. Each list is a condition unless it is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: Arc<str>,
    /// Users.
    pub users: Vec<u32>,
    /// Groups.
    pub groups: Vec<u32>,
    /// Sockets.
    pub sockets: Vec<PathBuf>,
    /// Patterns of control groups.
    pub cgroups: Vec<String>,
    /// False if the programs are refused.
    pub connects: bool,
    /// The highest priority.
    pub max_priority: Priority,
    /// The largest share.
    pub max_share: Utilization,
    /// The deepest level.
    pub max_level: PreemptLevel,
    /// True if the user may see and change everything.
    pub administers: bool,
    /// True if the user may set policies.
    pub sets_policies: bool,
    /// True if the user may see everything.
    pub observes: bool,
}

/// The rules of a server for all users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    all: Vec<Rule>,
    /// The additional sockets, each with the highest priority of its clients.
    caps: BTreeMap<PathBuf, Priority>,
}

/// The rights in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// The server of this user.
    Own(u32),
    /// The server for all users.
    Shared {
        /// The rules of the configuration.
        rules: Rules,
        /// The server's user, who may see everything: the exporter of metrics is such a program.
        own: u32,
    },
}

impl Access {
    /// Returns what a process may do.
    ///
    /// # Errors
    /// It may not connect. The text says why.
    pub fn judge(&self, who: &Identity) -> Result<Grant, String> {
        match self {
            Self::Own(own) if who.uid == 0 || is_same(*own, who.uid) => Ok(Grant::all("the server's user")),
            // All users that this namespace does not map have the same number.
            Self::Own(own) if who.uid == *own => {
                Err("this server's user namespace does not map your user".to_owned())
            }
            Self::Own(own) => Err(format!("this server belongs to user {own}, not to user {}", who.uid)),
            Self::Shared { rules, own } => rules.judge(who, *own),
        }
    }

    /// The rights at a server for all users with these rules.
    pub fn shared(rules: Rules) -> Self {
        Self::Shared { rules, own: rustix::process::geteuid().as_raw() }
    }

    /// Returns true if the server is for all users.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Shared { .. })
    }
}

impl Grant {
    /// Everything, by a rule of this name.
    pub fn all(rule: &str) -> Self {
        Self {
            rule: rule.into(),
            max_priority: Priority::MAX,
            max_share: Utilization::MAX,
            max_level: PreemptLevel::Interrupt,
            administers: true,
            sets_policies: true,
            observes: true,
            within: None,
        }
    }

    /// Returns true if the limits count both clients together: they belong to one user, or to one additional socket.
    pub fn is_one_with(&self, own: u32, other: u32, theirs: &Self) -> bool {
        self.within == theirs.within && (self.within.is_some() || own == other)
    }
}

impl Rules {
    /// The rules in their order, and the highest priority of each additional socket's clients.
    pub fn new(all: Vec<Rule>, caps: BTreeMap<PathBuf, Priority>) -> Self {
        Self { all, caps }
    }

    fn judge(&self, who: &Identity, own: u32) -> Result<Grant, String> {
        // Root of a container can have user number 0 here, and connects through an additional socket.
        let cap = self.caps.get(&*who.socket).copied();
        let is_free = cap.is_none();
        let cap = cap.unwrap_or(Priority::MAX);
        if who.uid == 0 && is_free {
            return Ok(Grant::all("root"));
        }
        let within = (!is_free).then(|| who.socket.clone());
        let is_server = is_free && is_same(own, who.uid);
        let Some(rule) = self.all.iter().find(|rule| rule.holds_for(who)) else {
            let max_priority = cap.min(Priority::DEFAULT);
            return Ok(Grant {
                rule: "default".into(),
                max_priority,
                max_share: Utilization::MAX,
                max_level: PreemptLevel::Interrupt,
                administers: false,
                sets_policies: false,
                observes: is_server,
                within,
            });
        };
        if !rule.connects {
            return Err(format!(
                "the rule {:?} of this server's configuration refuses your program",
                rule.name
            ));
        }
        Ok(Grant {
            rule: rule.name.clone(),
            max_priority: cap.min(rule.max_priority),
            max_share: rule.max_share,
            max_level: rule.max_level,
            administers: rule.administers && is_free,
            sets_policies: rule.sets_policies && is_free,
            observes: rule.observes && is_free || is_server,
            within,
        })
    }
}

impl Rule {
    fn holds_for(&self, who: &Identity) -> bool {
        let groups = || self.groups.iter().any(|group| who.groups.contains(group));
        let cgroups = || {
            let own = who.cgroup.as_deref();
            own.is_some_and(|own| self.cgroups.iter().any(|pattern| matches(pattern, own)))
        };
        (self.users.is_empty() || self.users.iter().any(|user| is_same(*user, who.uid)))
            && (self.groups.is_empty() || groups())
            && (self.sockets.is_empty() || self.sockets.iter().any(|path| **path == *who.socket))
            && (self.cgroups.is_empty() || cgroups())
    }
}

/// Returns true if both ids certainly belong to the same user. A server does not change its user namespace.
pub(crate) fn is_same(one: u32, other: u32) -> bool {
    static NAMESPACE: LazyLock<Namespace> = LazyLock::new(Namespace::read);
    NAMESPACE.is_same(one, other)
}

/// Returns true if a text matches a pattern, in which `*` stands for any text.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(uid: u32, groups: &[u32], cgroup: &str, socket: &str) -> Identity {
        let cgroup = (!cgroup.is_empty()).then(|| cgroup.to_owned());
        Identity { uid, groups: groups.to_vec(), cgroup, socket: Path::new(socket).into() }
    }

    fn rule(name: &str, max_priority: i64) -> Rule {
        Rule {
            name: name.into(),
            users: Vec::new(),
            groups: Vec::new(),
            sockets: Vec::new(),
            cgroups: Vec::new(),
            connects: true,
            max_priority: Priority::try_from(max_priority).unwrap(),
            max_share: Utilization::MAX,
            max_level: PreemptLevel::Interrupt,
            administers: false,
            sets_policies: false,
            observes: false,
        }
    }

    fn asker(uid: u32, grant: &Grant) -> Asker {
        Asker { uid, grant: grant.clone() }
    }

    #[test]
    fn server_of_one_user_accepts_this_user_and_root() {
        let judge = |own, uid| Access::Own(own).judge(&who(uid, &[], "", "/s"));
        for (own, uid) in [(1000, 1000), (1000, 0), (0, 0)] {
            assert!(judge(own, uid).unwrap().administers);
        }
        assert_eq!(judge(1000, 1001).unwrap_err(), "this server belongs to user 1000, not to user 1001");
        assert!(judge(0, 1000).is_err());
    }

    #[test]
    fn first_rule_whose_conditions_hold_counts() {
        let all = vec![
            Rule { connects: false, ..Rule { users: vec![66], ..rule("banned", 0) } },
            Rule { administers: true, groups: vec![4], ..rule("operators", 255) },
            Rule { users: vec![7, 8], cgroups: vec!["/serve/*".to_owned()], ..rule("serving", 100) },
            Rule { users: vec![7], ..rule("seven", 5) },
            Rule { sockets: vec!["/batch".into()], ..rule("batch", -1) },
        ];
        let access = Access::Shared { rules: Rules::new(all, BTreeMap::new()), own: 999 };
        let judge = |who: Identity| {
            access
                .judge(&who)
                .map(|grant| (grant.rule.to_string(), grant.max_priority.get(), grant.administers))
        };
        let granted = |name: &str, priority, administers| Ok((name.to_owned(), priority, administers));
        assert_eq!(judge(who(0, &[], "", "/s")), granted("root", 255, true));
        assert_eq!(judge(who(7, &[], "/serve/a", "/s")), granted("serving", 100, false));
        assert_eq!(judge(who(7, &[], "/other", "/s")), granted("seven", 5, false));
        assert_eq!(judge(who(7, &[], "", "/s")), granted("seven", 5, false), "the control group is unknown");
        assert_eq!(judge(who(8, &[], "", "/batch")), granted("batch", -1, false));
        assert_eq!(judge(who(8, &[], "", "/s")), granted("default", 0, false));
        assert_eq!(judge(who(9, &[3, 4], "", "/batch")), granted("operators", 255, true));
        assert!(judge(who(66, &[4], "", "/s")).unwrap_err().contains("\"banned\""));
    }

    #[test]
    fn cap_of_a_socket_is_for_everybody_behind_it() {
        let all = vec![Rule { administers: true, users: vec![7], ..rule("seven", 255) }];
        let cap = Priority::try_from(-5).unwrap();
        let rules = Rules::new(all, [("/capped".into(), cap)].into());
        for uid in [0, 7, 9] {
            let grant = rules.judge(&who(uid, &[], "", "/capped"), 999).unwrap();
            assert_eq!((grant.max_priority, grant.administers), (cap, false), "{uid}");
        }
        assert!(rules.judge(&who(7, &[], "", "/s"), 999).unwrap().administers);
        // Whoever is behind it sees nothing of the same user outside.
        let judge = |uid, socket| rules.judge(&who(uid, &[], "", socket), 999).unwrap();
        let (inside, outside) = (judge(9, "/capped"), judge(9, "/s"));
        let reaches = |uid, grant: &Grant, other, theirs: &Grant| {
            let asker = asker(uid, grant);
            assert_eq!(asker.sees(other, theirs), asker.changes(other, theirs));
            asker.sees(other, theirs)
        };
        assert!(reaches(9, &inside, 9, &inside) && reaches(9, &outside, 9, &inside));
        assert!(!reaches(9, &inside, 9, &outside) && !reaches(9, &inside, 8, &inside));
        assert!(!reaches(0, &judge(0, "/capped"), 0, &judge(0, "/s")));
        assert!(reaches(0, &judge(0, "/s"), 9, &inside));
    }

    #[test]
    fn observer_sees_all_and_changes_only_the_own_programs() {
        let all = vec![Rule { observes: true, users: vec![7], ..rule("monitoring", 0) }];
        let rules = Rules::new(all, [("/capped".into(), Priority::DEFAULT)].into());
        let judge = |uid, socket| rules.judge(&who(uid, &[], "", socket), 999).unwrap();
        let other = judge(9, "/s");
        for uid in [7, 999] {
            let observer = asker(uid, &judge(uid, "/s"));
            assert!(observer.sees(9, &other) && !observer.changes(9, &other), "{uid}");
            assert!(observer.changes(uid, &other), "{uid}");
            // The rule and the server's user do not count behind an additional socket.
            assert!(!asker(uid, &judge(uid, "/capped")).sees(9, &other), "{uid}");
        }
        assert!(asker(7, &judge(7, "/s")).sees_the_same_as(&asker(0, &judge(0, "/s"))));
        assert!(!asker(9, &other).sees_the_same_as(&asker(7, &judge(7, "/s"))));
    }

    #[test]
    fn star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("/a", "/a", true),
            ("/a", "/ab", false),
            ("/a*", "/ab", true),
            ("*", "", true),
            ("*b", "/ab", true),
            ("*b", "/abc", false),
            ("/a*c*e", "/abcde", true),
            ("/a*c*e", "/abde", false),
            ("/a*a", "/a", false),
            ("/a**e", "/ae", true),
            ("a*ab", "aab", true),
            ("a*ab", "abab", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
