//! Tests of the layers of hints: the configuration, the program, people, and the limits of a rule.

use super::users::{grant, person};
use super::*;
use crate::configuration::Configuration;
use crate::programs::Program;
use protocol::bounds::{Cap, Utilization};
use protocol::control::{HintUpdate, Target};
use std::num::NonZeroU64;

fn priority(number: i64) -> Priority {
    Priority::try_from(number).unwrap()
}

fn share(percent: i64) -> Utilization {
    Utilization::try_from(percent).unwrap()
}

fn program(name: &str, hints: &[HintUpdate]) -> Arc<Program> {
    Arc::new(Program { name: name.into(), users: Vec::new(), hints: hints.to_vec() })
}

const OF: Target = Target { pid: Some(Pid(100)), queue: None };

impl Fixture {
    /// Puts entries for programs in force, as a configuration that is read again does.
    fn reload(&mut self, programs: &[Arc<Program>]) {
        let before = Configuration::default();
        let now = Configuration { programs: programs.to_vec(), ..before.clone() };
        self.core.follow(Some(&before), &now).unwrap();
    }

    fn first(&self) -> protocol::control::Client {
        self.core.clients(&root()).next().unwrap()
    }

    fn say(&mut self, message: &ToServer) {
        assert_eq!(self.core.apply(self.clients[0], message), Ok(None));
    }

    fn hint(&mut self, asker: &Asker, update: HintUpdate) {
        self.core.hint(asker, OF, &[update], Time(1)).unwrap();
    }
}

#[test]
fn program_has_the_hints_of_its_name_until_somebody_sets_them() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    let slice = Timeslice::try_from(700).unwrap();
    let hints = [
        HintUpdate::Priority(priority(-50)),
        HintUpdate::Utilization(share(20)),
        HintUpdate::Timeslice(slice),
        HintUpdate::Preemptible(false),
        HintUpdate::Deadline(NonZeroU64::new(5_000)),
        HintUpdate::Cap(Cap::try_from(30).ok()),
    ];
    fixture.reload(&[program("of 7", &hints), program("of*", &[HintUpdate::Priority(priority(-9))])]);
    fixture.enter(7, grant(5), 0);
    fixture.enter(8, grant(5), 0);
    let queue = |fixture: &Fixture| fixture.first().queues[0].status;
    let expected = QueueHints {
        utilization: share(20),
        preemptible: false,
        deadline_us: NonZeroU64::new(5_000),
        ..QueueHints::default()
    };
    assert_eq!((queue(&fixture).priority, queue(&fixture).hints), (priority(-50), expected));
    let process = fixture.first().hints;
    assert_eq!((process.timeslice, process.utilization), (Some(slice), share(20)));
    assert_eq!(process.cap, Cap::try_from(30).ok());
    assert_eq!(fixture.core.clients(&root()).nth(1).unwrap().queues[0].status.priority, priority(-9));
    let given = |fixture: &Fixture| {
        let given = fixture.first().given;
        given.map(|given| given.hints.into_keys().collect::<Vec<_>>()).unwrap_or_default()
    };
    assert_eq!(given(&fixture), ["cap", "deadline", "preemptible", "priority", "timeslice", "utilization"]);
    assert_eq!(fixture.first().given.unwrap().program, "of 7");
    // The program's own hints win, also those that it had before the file was read; then those of people.
    let own = QueueHints { utilization: share(60), ..QueueHints::default() };
    fixture.say(&ToServer::QueueHints { queue: QueueId(1), hints: own });
    fixture.say(&ToServer::Priority { queue: QueueId(1), priority: priority(3) });
    assert_eq!(queue(&fixture).priority, priority(3));
    assert_eq!(queue(&fixture).hints, QueueHints { utilization: share(60), ..expected });
    assert_eq!(
        given(&fixture),
        ["cap", "deadline", "preemptible", "timeslice", "utilization"],
        "of the process"
    );
    fixture.hint(&person(7, 5), HintUpdate::Preemptible(true));
    fixture.hint(&person(7, 5), HintUpdate::Priority(Priority::DEFAULT));
    assert!(queue(&fixture).hints.preemptible && queue(&fixture).priority == Priority::DEFAULT);
    // A hint that the program takes back comes from the configuration again.
    fixture.say(&ToServer::Priority { queue: QueueId(1), priority: Priority::DEFAULT });
    fixture.say(&ToServer::QueueHints { queue: QueueId(1), hints: QueueHints::default() });
    assert_eq!((queue(&fixture).priority, queue(&fixture).hints.utilization), (priority(-50), share(20)));
    assert!(queue(&fixture).hints.preemptible, "of that the program has said nothing since");
    // A file without the entries.
    fixture.reload(&[]);
    assert_eq!((queue(&fixture).priority, queue(&fixture).hints), (Priority::DEFAULT, QueueHints::default()));
    assert_eq!((fixture.first().hints, fixture.first().given), (ProcessHints::default(), None));
    // And with others, for a program that is connected.
    fixture.reload(&[program("*7", &[HintUpdate::Priority(priority(200))])]);
    assert_eq!(queue(&fixture).priority, priority(5), "the limit of the rule holds");
}

#[test]
fn share_never_exceeds_the_limit_of_the_rule() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    let limited = |most| Grant { max_share: share(most), ..grant(5) };
    let client = fixture.enter(7, limited(40), 0);
    let shares = |fixture: &Fixture| {
        let first = fixture.first();
        (first.queues[0].status.hints.utilization.get(), first.hints.utilization.get())
    };
    assert_eq!(shares(&fixture), (40, 40), "without a hint");
    let hints = QueueHints { utilization: share(30), ..QueueHints::default() };
    fixture.say(&ToServer::QueueHints { queue: QueueId(1), hints });
    let hints = ProcessHints { utilization: share(70), ..ProcessHints::default() };
    fixture.say(&ToServer::ProcessHints { hints });
    assert_eq!(shares(&fixture), (30, 40));
    let asker = Asker { uid: 7, grant: limited(50) };
    let refused = fixture.core.hint(&asker, OF, &[HintUpdate::Utilization(share(41))], Time(1));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("share 41 is above 40") && refused.contains("\"some\""), "{refused}");
    fixture.hint(&asker, HintUpdate::Utilization(share(35)));
    assert_eq!(shares(&fixture), (30, 35));
    fixture.core.set_grant(client, limited(10));
    assert_eq!(shares(&fixture), (10, 10));
    fixture.core.set_grant(client, limited(100));
    assert_eq!(shares(&fixture), (30, 35), "what was said counts again");
    fixture.hint(&root(), HintUpdate::Utilization(share(90)));
    fixture.core.set_grant(client, limited(10));
    assert_eq!(shares(&fixture), (10, 90), "an administrator has no limit");
    let owner = fixture.core.owner(client).unwrap();
    assert_eq!((owner.max_share, owner.max_level), (share(10), PreemptLevel::Interrupt));
}

#[test]
fn level_never_exceeds_the_limit_of_the_rule() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    let limited = |max_level| Grant { max_level, ..grant(5) };
    let client = fixture.enter(7, limited(PreemptLevel::Block), 0);
    let word = |fixture: &mut Fixture| {
        fixture.step();
        fixture.page(0).permission.get() >> 8 & 0xff
    };
    fixture.say(&ToServer::Level { queue: QueueId(1), level: PreemptLevel::Interrupt });
    let how = "update-queue".to_owned();
    fixture.say(&ToServer::Preemption { in_force: PreemptLevel::Interrupt, how });
    let levels = |fixture: &Fixture| {
        let first = fixture.first();
        [first.queues[0].status.level, first.queues[0].in_force, first.preemption.in_force]
    };
    assert_eq!((word(&mut fixture), levels(&fixture)), (1, [PreemptLevel::Block; 3]));
    fixture.core.set_grant(client, limited(PreemptLevel::Deactivate));
    assert_eq!(word(&mut fixture), 2);
    // The client can only evict in the way of level 3.
    let [level, rest @ ..] = levels(&fixture);
    assert_eq!((level, rest), (PreemptLevel::Deactivate, [PreemptLevel::Interrupt; 2]));
    fixture.core.set_grant(client, limited(PreemptLevel::Interrupt));
    assert_eq!((word(&mut fixture), levels(&fixture)), (3, [PreemptLevel::Interrupt; 3]));
}

#[test]
fn slices_stay_within_the_limits() {
    let mut fixture = Fixture::new(Settings::default(), &[]);
    fixture.enter(7, grant(5), 0);
    let slice = |us| Timeslice::try_from(us).unwrap();
    let limits =
        |min, max| Limits { min_timeslice_us: slice(min), max_timeslice_us: slice(max), ..Limits::default() };
    fixture.core.hint(&root(), Target::default(), &[HintUpdate::Timeslice(slice(500))], Time(1)).unwrap();
    fixture.core.set_limits(limits(1_000, 9_000));
    fixture.enter(8, grant(5), 0);
    let slices = |fixture: &Fixture| -> Vec<_> {
        fixture.core.clients(&root()).map(|client| client.hints.timeslice.unwrap().get()).collect()
    };
    assert_eq!(slices(&fixture), [1_000, 1_000]);
    fixture.core.set_limits(limits(100, 400));
    assert_eq!(slices(&fixture), [400, 400]);
    fixture.core.set_limits(Limits::default());
    assert_eq!(slices(&fixture), [500, 500]);
}

/// A change of one of the layers.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// The program says its priority, its share and its deadline.
    Own(i64, i64, u64),
    /// A person says a priority, a share or a deadline.
    Word(bool, u8, i64),
    /// A file gives a priority, a share and a deadline, as far as they are not 0.
    File(i64, i64, u64),
    /// A rule permits a priority and a share.
    Rule(i64, i64),
}

/// Values of which the same come often.
fn act() -> impl Strategy<Value = Act> {
    let (level, percent) = (-3..4_i64, prop_oneof![0..5_i64, Just(100)]);
    prop_oneof![
        (level.clone(), percent.clone(), 0..3_u64).prop_map(|(a, b, c)| Act::Own(a, b, c)),
        (any::<bool>(), 0..3_u8, 0..4_i64).prop_map(|(a, b, c)| Act::Word(a, b, c)),
        (level.clone(), percent.clone(), 0..3_u64).prop_map(|(a, b, c)| Act::File(a, b, c)),
        (level, percent).prop_map(|(a, b)| Act::Rule(a, b)),
    ]
}

/// One hint by its own rules, without the table of hints.
#[derive(Debug, Clone, Copy)]
struct Model {
    none: i64,
    own: i64,
    word: Option<(i64, bool)>,
    file: Option<i64>,
    most: i64,
}

impl Model {
    fn new(none: i64) -> Self {
        Self { none, own: none, word: None, file: None, most: i64::MAX }
    }

    fn own(&mut self, value: i64, always: bool) {
        if always || value != self.own {
            self.word = None;
        }
        self.own = value;
    }

    fn in_force(&self) -> i64 {
        match self.word {
            Some((value, true)) => value,
            Some((value, false)) => value.min(self.most),
            None if self.own == self.none => self.file.unwrap_or(self.none).min(self.most),
            None => self.own.min(self.most),
        }
    }
}

proptest! {
    #[test]
    fn last_word_within_the_limits_is_in_force(acts in vec(act(), 1..40)) {
        let mut fixture = Fixture::new(Settings::default(), &[]);
        let client = fixture.enter(7, grant(255), 0);
        let [mut level, mut percent, mut deadline] = [Model::new(0), Model::new(100), Model::new(0)];
        for act in acts {
            match act {
                Act::Own(own, util, us) => {
                    fixture.say(&ToServer::Priority { queue: QueueId(1), priority: priority(own) });
                    let (utilization, deadline_us) = (share(util), NonZeroU64::new(us));
                    let hints = QueueHints { utilization, deadline_us, ..QueueHints::default() };
                    fixture.say(&ToServer::QueueHints { queue: QueueId(1), hints });
                    level.own(own, true);
                    percent.own(util, false);
                    deadline.own(us as i64, false);
                }
                Act::Word(administers, kind, value) => {
                    let asker = if administers { root() } else { person(7, 255) };
                    let (model, update) = match kind {
                        0 => (&mut level, HintUpdate::Priority(priority(value))),
                        1 => (&mut percent, HintUpdate::Utilization(share(value))),
                        _ => (&mut deadline, HintUpdate::Deadline(NonZeroU64::new(value as u64))),
                    };
                    let of = Target { queue: Some(QueueId(1)), ..OF };
                    if fixture.core.hint(&asker, of, &[update], Time(1)).is_ok() {
                        model.word = Some((value, administers));
                    } else {
                        prop_assert!(!administers && value > model.most);
                    }
                }
                Act::File(own, util, us) => {
                    let hints = [
                        (own != 0).then(|| HintUpdate::Priority(priority(own))),
                        (util != 0).then(|| HintUpdate::Utilization(share(util))),
                        (us != 0).then(|| HintUpdate::Deadline(NonZeroU64::new(us))),
                    ];
                    let hints: Vec<_> = hints.into_iter().flatten().collect();
                    fixture.reload(&[program("of*", &hints)]);
                    level.file = Some(own).filter(|own| *own != 0);
                    percent.file = Some(util).filter(|util| *util != 0);
                    deadline.file = Some(us as i64).filter(|us| *us != 0);
                }
                Act::Rule(most, util) => {
                    fixture.core.set_grant(client, Grant { max_share: share(util), ..grant(most) });
                    (level.most, percent.most) = (most, util);
                }
            }
            let status = fixture.first().queues[0].status;
            let hints = status.hints;
            let shown = [
                status.priority.get().into(),
                hints.utilization.get().into(),
                hints.deadline_us.map_or(0, |us| us.get() as i64),
            ];
            prop_assert_eq!(shown, [level, percent, deadline].map(|model| model.in_force()), "{:?}", act);
        }
    }
}
