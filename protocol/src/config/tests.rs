//! The parser on single cases, and on anything at all.

use super::*;
use crate::bounds::{Cap, Priority, Timeslice, Utilization};
use crate::codes::QueueClass;
use crate::hint::table::{HINTS, HintSpec, HintVariable};
use crate::hint::{Hints, Laxity, ProcessHints, QueueHints};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Reads an environment that consists of these pairs.
fn read(pairs: &[(&str, &str)], built: &[PolicyKind]) -> (Config, Vec<ConfigError>) {
    Config::read(
        |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)),
        built,
    )
}

#[test]
fn empty_environment_yields_the_default() {
    let (config, errors) = read(&[], &[]);
    assert_eq!(config, Config::default());
    assert!(errors.is_empty());
    assert_eq!(config.auto.launch_config(), None);
}

#[test]
fn variable_with_a_good_value_changes_the_configuration() {
    let good = [
        ("XSCHED_DISABLE", "1"),
        ("XSCHED_SCHEDULER", "glb"),
        ("XSCHED_POLICY", "hpf"),
        ("XSCHED_AUTO_XQUEUE", "On"),
        ("XSCHED_AUTO_XQUEUE_LEVEL", "2"),
        ("XSCHED_AUTO_XQUEUE_THRESHOLD", "4"),
        ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", "16"),
        ("XSCHED_STARVATION_MS", "500"),
        ("XSCHED_SCHEDULER_SUSPEND_SYNC_HWQ", "ON"),
        ("XSCHED_SCHEDULER_SUSPEND_WAIT_ALL", "ON"),
        ("XSCHED_SCHEDULER_SUSPEND_WAIT_IDLE", "ON"),
        ("XSCHED_HIP_LIB", "lib.so"),
        ("XSCHED_KFD_MECHANISM", "Debug-Trap"),
        ("XSCHED_KFD_PROBE", "Never"),
        ("XSCHED_SOCKET", "socket"),
        ("XSCHED_LOG_LEVEL", "TRACE"),
        ("XSCHED_LOG_FILE", "log"),
        ("XSCHED_TEST", "chaos:18446744073709551615"),
    ];
    let is_hint = |name: &str| hinted().any(|(variable, _)| variable.name == name);
    let named: Vec<_> = variables().map(|variable| variable.name).filter(|name| !is_hint(name)).collect();
    assert_eq!(named, good.map(|(name, _)| name), "one good value for each variable");
    for pair in good {
        let (config, errors) = read(&[pair], &[PolicyKind::Hpf]);
        assert_eq!(errors, [], "{pair:?}");
        assert_ne!(config, Config::default(), "{pair:?} is read");
    }
}

/// The hints that have a variable.
fn hinted() -> impl Iterator<Item = (&'static HintVariable, &'static HintSpec)> {
    HINTS.iter().filter_map(|spec| Some((spec.variable.as_ref()?, spec)))
}

#[test]
fn variable_of_a_hint_accepts_all_examples_and_one_changes_the_configuration() {
    for (variable, spec) in hinted() {
        let configured = spec.examples().into_iter().map(|word| {
            let (config, errors) = read(&[(variable.name, &word.to_uppercase())], &[]);
            assert_eq!(errors, [], "{word}");
            config
        });
        let changing = configured.filter(|config| *config != Config::default()).count();
        assert!(changing > 0, "{} is read", variable.name);
    }
}

#[test]
fn variable_of_a_hint_accepts_the_ends_of_its_range() {
    for (name, value) in [
        ("XSCHED_AUTO_XQUEUE_PRIORITY", "-256"),
        ("XSCHED_AUTO_XQUEUE_TIMESLICE", "100000"),
        ("XSCHED_AUTO_XQUEUE_DEADLINE", "1"),
        ("XSCHED_AUTO_XQUEUE_JOB", "9223372036854775807"),
        ("XSCHED_AUTO_XQUEUE_CAP", "1"),
        ("XSCHED_AUTO_XQUEUE_CLASS", "Best-Effort"),
    ] {
        let (config, errors) = read(&[(name, value)], &[]);
        assert_eq!(errors, [], "{name}={value}");
        assert_ne!(config, Config::default(), "{name}={value} is read");
    }
}

#[test]
fn table_names_the_ranges_in_force() {
    let ranges = [
        ("XSCHED_AUTO_XQUEUE_LEVEL", crate::codes::PreemptLevel::RANGE, "1".to_owned()),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", Priority::RANGE, Priority::DEFAULT.to_string()),
        ("XSCHED_AUTO_XQUEUE_UTILIZATION", Utilization::RANGE, Utilization::DEFAULT.to_string()),
        ("XSCHED_AUTO_XQUEUE_TIMESLICE", Timeslice::ENVIRONMENT, "the policy's own, 5000 in most".to_owned()),
        ("XSCHED_AUTO_XQUEUE_CAP", Cap::RANGE, "not set".to_owned()),
    ];
    for (name, range, default) in ranges {
        let row = variables().find(|variable| variable.name == name).unwrap();
        assert_eq!(row.values, format!("{}..{}", range.start(), range.end()), "{name}");
        assert_eq!(row.default, default, "{name}");
    }
    let row = variables().find(|variable| variable.name == "XSCHED_POLICY").unwrap();
    let names: Vec<_> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(row.values, names.join(", "));
}

#[test]
fn bad_value_keeps_the_default_and_is_named_with_its_range() {
    let bad = [
        ("XSCHED_DISABLE", "maybe", "ON, OFF, 1, 0"),
        ("XSCHED_SCHEDULER", "LOCAL", "APP, LCL, GLB"),
        ("XSCHED_POLICY", "HPF", "contains none yet"),
        ("XSCHED_AUTO_XQUEUE", "2", "ON, OFF, 1, 0"),
        ("XSCHED_AUTO_XQUEUE_LEVEL", "4", "1..3"),
        ("XSCHED_AUTO_XQUEUE_THRESHOLD", "0", ">= 1"),
        ("XSCHED_AUTO_XQUEUE_THRESHOLD", "9223372036854775808", ">= 1"),
        ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", "17", "1..16"),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", "256", "-256..255"),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", "-257", "-256..255"),
        ("XSCHED_AUTO_XQUEUE_UTILIZATION", "101", "0..100"),
        ("XSCHED_AUTO_XQUEUE_TIMESLICE", "99", "100..100000"),
        ("XSCHED_AUTO_XQUEUE_TIMESLICE", "5ms", "100..100000"),
        ("XSCHED_AUTO_XQUEUE_DEADLINE", "-1", ">= 1"),
        ("XSCHED_AUTO_XQUEUE_KDEADLINE", "0", ">= 1"),
        ("XSCHED_AUTO_XQUEUE_LAXITY", "-1", ">= 0"),
        ("XSCHED_AUTO_XQUEUE_LAXITY", "5000,-10,256", "or with two priorities"),
        ("XSCHED_AUTO_XQUEUE_PREEMPTIBLE", "no", "ON, OFF, 1, 0"),
        ("XSCHED_AUTO_XQUEUE_PREEMPTIBLE", "01", "ON, OFF, 1, 0"),
        ("XSCHED_AUTO_XQUEUE_JOB", "train", ">= 0"),
        ("XSCHED_AUTO_XQUEUE_CAP", "0", "1..100"),
        ("XSCHED_AUTO_XQUEUE_CAP", "101", "1..100"),
        ("XSCHED_AUTO_XQUEUE_CAP", "half", "1..100"),
        ("XSCHED_STARVATION_MS", "-1", ">= 0"),
        ("XSCHED_SCHEDULER_SUSPEND_SYNC_HWQ", "yes", "ON, OFF, 1, 0"),
        ("XSCHED_LOG_LEVEL", "verbose", "error, warn, info, debug, trace"),
        ("XSCHED_TEST", "chaos", "defer, chaos:SEED"),
        ("XSCHED_TEST", "chaos:-1", "defer, chaos:SEED"),
    ];
    for (var, value, range) in bad {
        let (config, errors) = read(&[(var, value)], &[]);
        assert_eq!(config, Config::default(), "{var}={value} changes nothing");
        let [error] = errors.as_slice() else { panic!("{var}={value}: one error, not {errors:?}") };
        let line = error.to_string();
        assert!(line.contains(&format!("{var}={value} ")), "{line}");
        assert!(line.contains(range), "{line}");
    }
}

#[test]
fn switch_is_read_without_a_configuration() {
    for (value, on) in [("ON", true), ("1", true), ("off", false), ("0", false), ("yes", false), ("", false)]
    {
        assert_eq!(is_on(OsStr::new(value)), on, "{value}");
    }
}

#[test]
fn laxity_without_priorities_has_that_of_the_queue() {
    let read = |value| {
        let pairs = [("XSCHED_AUTO_XQUEUE_LAXITY", value), ("XSCHED_AUTO_XQUEUE_PRIORITY", "7")];
        read(&pairs, &[]).0.auto.hints.queue.laxity.map(|laxity| laxity.to_string())
    };
    assert_eq!(read("5000").as_deref(), Some("5000,0,7"));
    assert_eq!(read("5000,-10,10").as_deref(), Some("5000,-10,10"));
}

#[test]
fn variables_of_hints_set_the_hints_of_queue_and_process() {
    assert_eq!(Config::default().auto.hints, Hints::default());
    let pairs = [
        ("XSCHED_AUTO_XQUEUE_PRIORITY", "7"),
        ("XSCHED_AUTO_XQUEUE_UTILIZATION", "30"),
        ("XSCHED_AUTO_XQUEUE_TIMESLICE", "700"),
        ("XSCHED_AUTO_XQUEUE_DEADLINE", "900"),
        ("XSCHED_AUTO_XQUEUE_KDEADLINE", "9223372036854775807"),
        ("XSCHED_AUTO_XQUEUE_LAXITY", "0"),
        ("XSCHED_AUTO_XQUEUE_PREEMPTIBLE", "OFF"),
        ("XSCHED_AUTO_XQUEUE_JOB", "3"),
        ("XSCHED_AUTO_XQUEUE_CAP", "40"),
        ("XSCHED_AUTO_XQUEUE_CLASS", "best-effort"),
    ];
    let (share, seven) = (Utilization::try_from(30).unwrap(), Priority::try_from(7).unwrap());
    let queue = QueueHints {
        utilization: share,
        deadline_us: NonZeroU64::new(900),
        laxity: Some(Laxity { us: 0, lax: Priority::DEFAULT, critical: seven }),
        preemptible: false,
        class: Some(QueueClass::BestEffort),
        ..QueueHints::default()
    };
    let process = ProcessHints {
        utilization: share,
        timeslice: Some(Timeslice::try_from(700).unwrap()),
        k_deadline: NonZeroU32::new(u32::MAX),
        job: NonZeroU64::new(3),
        cap: Cap::try_from(40).ok(),
        ..ProcessHints::default()
    };
    assert_eq!(read(&pairs, &[]).0.auto.hints, Hints { priority: seven, queue, process });
}

#[test]
fn empty_value_counts_as_not_set() {
    for variable in variables() {
        assert_eq!(read(&[(variable.name, "")], &[]), (Config::default(), Vec::new()));
    }
}

#[test]
fn policy_that_is_not_built_is_refused() {
    let (config, errors) = read(&[("XSCHED_POLICY", "cfs")], &[PolicyKind::Hpf, PolicyKind::Up]);
    assert_eq!(config.policy, None);
    assert_eq!(config.scheduler_in_force(), SchedulerKind::AppManaged);
    assert_eq!(
        errors[0].to_string(),
        "XSCHED_POLICY=cfs is not usable (expected a policy of this build: HPF, UP); the default stays in force"
    );
    let (config, errors) = read(&[("XSCHED_POLICY", "up"), ("XSCHED_SCHEDULER", "GLB")], &[PolicyKind::Up]);
    assert!(errors.is_empty());
    assert_eq!(config.scheduler_in_force(), SchedulerKind::Local);
}

#[test]
fn threshold_and_batch_size_complete_each_other() {
    let cases = [
        (&[("XSCHED_AUTO_XQUEUE_THRESHOLD", "32")][..], Some((32, 8))),
        (&[("XSCHED_AUTO_XQUEUE_THRESHOLD", "4")][..], Some((4, 4))),
        (&[("XSCHED_AUTO_XQUEUE_BATCH_SIZE", "2")][..], Some((16, 2))),
        (&[("XSCHED_AUTO_XQUEUE_THRESHOLD", "2"), ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", "1")][..], Some((2, 1))),
    ];
    for (pairs, expected) in cases {
        let (config, errors) = read(pairs, &[]);
        assert!(errors.is_empty());
        assert_eq!(config.auto.launch_config(), expected, "{pairs:?}");
    }
    let (_, errors) =
        read(&[("XSCHED_AUTO_XQUEUE_THRESHOLD", "2"), ("XSCHED_AUTO_XQUEUE_BATCH_SIZE", "3")], &[]);
    assert_eq!(errors[0].expected, "1..2, the threshold");
}

#[test]
fn path_may_hold_any_bytes_and_a_socket_path_has_a_limit() {
    let bytes = OsString::from_vec(vec![b'/', 0xff, b'\n']);
    let get = |name: &str| (name == "XSCHED_HIP_LIB").then(|| bytes.clone());
    let (config, errors) = Config::read(get, &[]);
    assert!(errors.is_empty());
    assert_eq!(config.hip_lib.as_deref().map(|path| path.as_os_str()), Some(bytes.as_os_str()));

    assert!(read(&[("XSCHED_SOCKET", &"s".repeat(107))], &[]).1.is_empty());
    assert_eq!(read(&[("XSCHED_SOCKET", &"s".repeat(108))], &[]).1[0].var, "XSCHED_SOCKET");
}

#[test]
fn warning_about_any_value_is_one_short_line() {
    let (_, errors) = read(&[("XSCHED_SCHEDULER", &"a\nb\u{1b}".repeat(100))], &[]);
    let line = errors[0].to_string();
    assert!(!line.chars().any(char::is_control), "{line:?}");
    assert!(line.starts_with("XSCHED_SCHEDULER=a\\nb\\u{1b}a"), "{line}");
    assert!(line.len() < 800, "{}", line.len());
}

proptest! {
    #[test]
    fn random_environment_does_not_panic(values in proptest::collection::vec(
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..40),
            "-?[0-9]{0,25}".prop_map(String::into_bytes),
            "(chaos:|defer|on|hpf)[0-9a-z]{0,4}".prop_map(String::into_bytes),
        ],
        variables().count(),
    )) {
        let get = |name: &str| {
            let index = variables().position(|variable| variable.name == name)?;
            Some(OsStr::from_bytes(&values[index]).to_owned())
        };
        let (config, errors) = Config::read(get, PolicyKind::ALL);
        prop_assert!((1..=3).contains(&config.auto.level));
        let slice = config.auto.hints.process.timeslice;
        prop_assert!(slice.is_none_or(|slice| Timeslice::ENVIRONMENT.contains(&slice.into())));
        if let Some((threshold, batch)) = config.auto.launch_config() {
            prop_assert!((1..=threshold).contains(&batch));
        }
        for error in errors {
            prop_assert!(!error.to_string().chars().any(char::is_control));
        }
    }
}
