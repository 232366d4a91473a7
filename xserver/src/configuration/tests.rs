//! Tests of the configuration file.

use super::*;
use keys::UNSET;
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
    // A table of names has none by default.
    assert_eq!(toml::from_str::<File>(&text).unwrap(), File::default());
    for table in TABLES.iter().filter(|table| table.header.starts_with("[[")) {
        let mut all = table.header.to_owned();
        for key in table.keys.iter().filter(|key| key.default != UNSET) {
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
    assert_eq!((from("policy.name"), from("policy.parameters")), (ConfigOrigin::File, ConfigOrigin::Default));
}

#[test]
fn names_stand_for_priorities_and_programs_get_hints() {
    let text = r#"
        [priorities]
        realtime = 200
        batch = -50
        [[listen]]
        path = "/box"
        max_priority = "batch"
        [[rule]]
        users = ["alice"]
        max_priority = "realtime"
        max_share = 40
        max_level = 1
        set_policy = true
        [[program]]
        name = "train*"
        users = ["alice", 7]
        priority = "batch"
        share = 20
        timeslice_us = 2000
        deadline_us = 5000
        preemptible = false
        class = "best-effort"
        cap = 30
        [[program]]
        name = "*"
    "#;
    let configuration = parse(text).unwrap();
    let identity = |uid, socket: &str| crate::access::Identity {
        uid,
        groups: Vec::new(),
        cgroup: None,
        socket: Path::new(socket).into(),
    };
    let access = crate::access::Access::shared(configuration.rules.clone());
    let judge = |uid, socket| access.judge(&identity(uid, socket)).unwrap();
    let grant = judge(1000, "/s");
    assert_eq!((grant.max_priority.get(), grant.max_share.get()), (200, 40));
    assert_eq!((grant.max_level.number(), grant.sets_policies, grant.administers), (1, true, false));
    let boxed = judge(1000, "/box");
    assert_eq!((boxed.max_priority.get(), boxed.max_share.get(), boxed.sets_policies), (-50, 40, false));
    let [train, rest] = &configuration.programs[..] else { panic!("{configuration:?}") };
    let hints: Vec<_> = train.hints.iter().map(|hint| (hint.spec().name, hint.text().unwrap())).collect();
    let expected = [
        ("priority", "-50"),
        ("utilization", "20"),
        ("cap", "30"),
        ("timeslice", "2000"),
        ("deadline", "5000"),
        ("preemptible", "OFF"),
        ("class", "best-effort"),
    ];
    assert_eq!(hints, expected.map(|(name, text)| (name, text.to_owned())));
    assert!(train.is_for("train.py", 1000) && train.is_for("train", 7));
    assert!(!train.is_for("train", 8) && !train.is_for("my-train", 7) && rest.is_for("train", 8));
    assert!(rest.hints.is_empty());
    let key = |name: &str| {
        let key = configuration.keys.iter().find(|key| key.name == name);
        key.map(|key| (key.value.as_str(), key.from))
    };
    assert_eq!(key("priorities.batch"), Some(("-50", ConfigOrigin::File)));
    assert_eq!(key("rule[0].max_priority"), Some(("\"realtime\"", ConfigOrigin::File)));
    assert_eq!(key("rule[0].max_level"), Some(("1", ConfigOrigin::File)));
    assert_eq!(key("program[0].share"), Some(("20", ConfigOrigin::File)));
    assert_eq!(key("program[1].share"), None, "not set");
    assert_eq!(key("program[1].users"), Some(("[]", ConfigOrigin::Default)));
    assert_eq!(key("limits.requests_per_second_per_user"), Some(("200", ConfigOrigin::Default)));
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
        ("[[rule]]\nmax_priority = -256", "line 2: [[rule]] max_priority: priority -256 is not in -255..255"),
        (
            "[[rule]]\nmax_priority = \"high\"",
            "line 2: [[rule]] max_priority: [priorities] has no name \"high\"",
        ),
        (
            "[[rule]]\nmax_priority = true",
            "line 2: invalid type: boolean `true`, expected a priority or its name",
        ),
        ("[[listen]]\npath = \"/x\"\nmax_priority = \"x\"", "line 3: [[listen]] max_priority: [priorities]"),
        ("[priorities]\nhigh = 300", "line 2: priority 300 is not in -256..255"),
        ("[priorities]\n\nhigh = -256", "line 3: [priorities] high: priority -256 is not in -255..255"),
        ("[priorities]\na = 1\n5 = 1", "line 3: [priorities] 5: a name begins with a letter"),
        ("[priorities]\n\"a b\" = 1", "line 2: [priorities] a b: a name begins with a letter"),
        ("[[rule]]\nmax_share = 101", "line 2: utilization 101 is not in 0..100"),
        ("[[rule]]\nmax_level = 4", "line 2: there is no level 4"),
        ("[[rule]]\nset_policy = 1", "line 2: invalid type"),
        ("[[rule]]\n[[program]]\npriority = 1", "line 2: [[program]]: the key name is missing"),
        (
            "[[program]]\nname = \"a\"\npriority = \"low\"",
            "line 3: [[program]] priority: [priorities] has no name \"low\"",
        ),
        ("[[program]]\nname = \"a\"\nusers = [\"bob\"]", "line 3: [[program]] a: there is no user \"bob\""),
        (
            "[[program]]\nname = \"a\"\n\nclass = \"fast\"",
            "line 4: [[program]] a: \"fast\" is not one of latency-critical",
        ),
        ("[[program]]\nname = \"a\"\ntimeslice_us = 5", "line 3: timeslice 5 is not in 100..10000000"),
        ("[[program]]\nname = \"a\"\nlevel = 3", "line 3: unknown field `level`"),
        (
            "[limits]\nrequests_per_second_per_user = 9",
            "line 2: [limits]: requests_per_second_per_user = 9 is not in 10..1000000",
        ),
        (
            "[limits]\nmin_timeslice_us = 5000\nmax_timeslice_us = 4000",
            "line 2: [limits]: min_timeslice_us = 5000 is above max_timeslice_us = 4000",
        ),
        ("[[rule]]\nname = \"a\"\nusers = [\"bob\"]", "line 3: [[rule]] a: there is no user \"bob\""),
        ("[[rule]]\ngroups = [\"alice\"]", "line 2: [[rule]] 1: there is no group \"alice\""),
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
