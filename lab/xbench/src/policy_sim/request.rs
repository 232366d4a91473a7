//! Requests: their kernels, and the host's work around them.

use super::distribution::{Distribution, nanos};
use super::hints::Announce;
use super::workload::{Client, RequestKind};
use crate::WrongInput;
use crate::hip::Dims;
use crate::random::Random;
use crate::trace::{Command, GAP_FACTOR, Trace, Work};
use std::path::Path;
use std::rc::Rc;

/// The width of a kernel that fills a device.
pub(super) const WHOLE: u32 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// The host's time before the launch, nanoseconds.
    pub(super) gap: u64,
    /// The duration alone, nanoseconds.
    pub(super) duration: u64,
    /// The share of a device that it needs, in 1024ths.
    pub(super) width: u32,
}

/// The kernels of a request, in their order; at least one.
#[derive(Debug, Clone)]
pub(super) enum Steps {
    One(Step),
    Many(Rc<[Step]>),
}

impl std::ops::Deref for Steps {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        match self {
            Self::One(step) => std::slice::from_ref(step),
            Self::Many(steps) => steps,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Request {
    /// The arrival, nanoseconds.
    pub(super) arrived: u64,
    /// The host's time before the first kernel, nanoseconds.
    pub(super) prepare: u64,
    /// The announced time from the begin of the preparation to the first launch, nanoseconds.
    pub(super) announced: Option<u64>,
    pub(super) steps: Steps,
}

/// The generator of a client's requests.
#[derive(Debug, Clone)]
pub(super) struct Recipe {
    prepare: Option<Distribution>,
    announce: Option<Announce>,
    kinds: Vec<Kind>,
    /// The sum of the weights.
    weights: f64,
}

#[derive(Debug, Clone)]
struct Kind {
    weight: f64,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Recorded(Rc<[Step]>),
    Drawn { kernels: u32, duration: Distribution, gap: Option<Distribution>, width: u32 },
}

impl Recipe {
    /// Creates the generator of a client. Files lie in `folder`; devices hold `slots` waves, unless that is
    /// 0.
    pub(super) fn new(client: &Client, slots: u32, folder: &Path) -> Result<Self, WrongInput> {
        let kinds: Vec<Kind> =
            client.requests.iter().map(|kind| Kind::new(kind, slots, folder)).collect::<Result<_, _>>()?;
        let weights = kinds.iter().map(|kind| kind.weight).sum();
        Ok(Self { prepare: client.prepare, announce: client.announce, kinds, weights })
    }

    /// Draws a request with all its times, so that later requests do not depend on when this one is served.
    pub(super) fn draw(&self, arrived: u64, random: &mut Random) -> Request {
        let prepare = self.prepare.map_or(0, |span| span.draw(random));
        let steps = self.pick(random).draw(random);
        let announced = self.announce.and_then(|Announce { error_us, missing }| {
            let (told, error) = (random.unit() > missing, (2.0 * random.unit() - 1.0) * error_us);
            told.then(|| nanos(prepare as f64 / 1e3 + error))
        });
        Request { arrived, prepare, announced, steps }
    }

    fn pick(&self, random: &mut Random) -> &Content {
        let [first, others @ ..] = &self.kinds[..] else {
            unreachable!("a workload is checked for requests")
        };
        if others.is_empty() {
            return &first.content;
        }
        let mut left = random.unit() * self.weights;
        let found = self.kinds.iter().find(|kind| {
            left -= kind.weight;
            left <= 0.0
        });
        &found.unwrap_or(first).content
    }
}

impl Kind {
    fn new(kind: &RequestKind, slots: u32, folder: &Path) -> Result<Self, WrongInput> {
        let width = (kind.width * f64::from(WHOLE)).round() as u32;
        let content = match (&kind.trace, kind.duration) {
            (Some(name), _) => Content::Recorded(recorded(&trace(name, folder)?, kind, slots, width)),
            (None, Some(duration)) => {
                Content::Drawn { kernels: kind.kernels.unwrap_or(1), duration, gap: kind.gap, width }
            }
            (None, None) => return Err(WrongInput("a request needs a trace or a duration".to_owned())),
        };
        Ok(Self { weight: kind.weight, content })
    }
}

impl Content {
    fn draw(&self, random: &mut Random) -> Steps {
        match self {
            Self::Recorded(steps) => Steps::Many(Rc::clone(steps)),
            Self::Drawn { kernels, duration, gap, width } => {
                let mut step = |first: bool| {
                    let gap = gap.filter(|_| !first).map_or(0, |gap| gap.draw(random));
                    Step { gap, duration: duration.draw(random), width: *width }
                };
                match kernels {
                    1 => Steps::One(step(true)),
                    _ => Steps::Many((0..*kernels).map(|index| step(index == 0)).collect()),
                }
            }
        }
    }
}

/// Returns the kernels of a recorded model; their width follows from `slots` waves, or is `width`.
fn recorded(trace: &Trace, kind: &RequestKind, slots: u32, width: u32) -> Rc<[Step]> {
    let step = |command: &Command| Step {
        gap: nanos(command.gap_us * GAP_FACTOR * kind.gap_scale),
        duration: nanos(command.duration_us * kind.scale),
        width: match (slots, command.work) {
            (0, _) | (_, Work::Memset { .. }) => width,
            (slots, Work::Kernel { dims, .. }) => width_of(&dims, slots),
        },
    };
    trace.commands.iter().map(step).collect()
}

/// Returns the share of a device with so many wave slots that a grid fills, by its waves or by the slots that
/// its local memory blocks. A compute unit has 32 slots and 64 KiB of local memory, as in gpu-sim
/// (docs/gpu-model.md).
fn width_of(dims: &Dims, slots: u32) -> u32 {
    let count = |numbers: [u32; 3]| numbers.iter().map(|n| u64::from(*n)).fold(1, u64::saturating_mul);
    let waves = count(dims.block).div_ceil(64).max((u64::from(dims.shared_bytes) * 32).div_ceil(64 << 10));
    let filled = count(dims.grid).saturating_mul(waves).saturating_mul(u64::from(WHOLE)) / u64::from(slots);
    filled.clamp(1, u64::from(WHOLE)) as u32
}

pub(super) const TRACES: [(&str, &str); 7] = [
    ("bert_bs8", include_str!("../../../../examples/traces/bert_bs8.json")),
    ("elementwise_bs1", include_str!("../../../../examples/traces/elementwise_bs1.json")),
    ("matmul_bs1", include_str!("../../../../examples/traces/matmul_bs1.json")),
    ("resnet18_bs1", include_str!("../../../../examples/traces/resnet18_bs1.json")),
    ("resnet50_bs1", include_str!("../../../../examples/traces/resnet50_bs1.json")),
    ("resnet50_bs256", include_str!("../../../../examples/traces/resnet50_bs256.json")),
    ("token_step_bs1", include_str!("../../../../examples/traces/token_step_bs1.json")),
];

fn trace(name: &str, folder: &Path) -> Result<Trace, WrongInput> {
    match TRACES.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Trace::parse(text).map_err(|why| why.within(format!("{name} is no trace"))),
        None => Trace::load(&folder.join(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Workload;
    use super::*;
    use crate::random::Purpose;

    fn recipe(requests: &str) -> Result<Recipe, WrongInput> {
        let text = format!(
            "duration_s = 1\n[[client]]\nname = \"a\"\narrivals = {{ kind = \"closed\" }}\nrequests = [{requests}]\n\
             prepare = {{ dist = \"constant\", us = 7 }}"
        );
        Recipe::new(&Workload::from_toml(&text).unwrap().client[0], 0, Path::new("/no/such"))
    }

    #[test]
    fn traces_become_kernels_with_gaps() {
        let mut random = Random::new(1, 0, Purpose::Work);
        for (name, text) in TRACES {
            let trace = Trace::parse(text).unwrap();
            let recipe = recipe(&format!("{{ trace = \"{name}\", scale = 2, gap_scale = 0 }}")).unwrap();
            let request = recipe.draw(5, &mut random);
            assert_eq!(
                (request.arrived, request.prepare, request.steps.len()),
                (5, 7_000, trace.commands.len())
            );
            let all: u64 = request.steps.iter().map(|step| step.duration).sum();
            assert!((all as f64 / 1e3 - 2.0 * trace.device_us()).abs() < 1.0);
            assert!(request.steps.iter().all(|step| step.gap == 0 && step.width == WHOLE));
        }
        let request = recipe("{ trace = \"resnet18_bs1\" }").unwrap().draw(0, &mut random);
        let host: u64 = request.steps.iter().map(|step| step.gap).sum();
        assert!((host as f64 / 1e3 - 2030.332 * GAP_FACTOR).abs() < 1.0, "{host}");
        let missing = recipe("{ trace = \"other.json\" }").unwrap_err().to_string();
        assert!(missing.starts_with("cannot read the trace /no/such/other.json: "), "{missing}");
    }

    #[test]
    fn width_is_the_share_of_waves_or_local_memory() {
        let dims = |groups: u32, threads: u32, shared_bytes: u32| Dims {
            grid: [groups, 1, 1],
            block: [threads, 1, 1],
            shared_bytes,
        };
        // Four waves a work-group.
        assert_eq!(width_of(&dims(416, 256, 0), 3328), WHOLE / 2);
        // Half of a unit's local memory keeps 16 waves out.
        assert_eq!(width_of(&dims(104, 256, 32 << 10), 3328), WHOLE / 2);
        assert_eq!(width_of(&dims(100_000, 1024, 0), 3328), WHOLE);
        assert_eq!(width_of(&dims(1, 1, 0), 3328), 1);
    }

    #[test]
    fn announcements_have_their_error_and_their_misses() {
        let mut recipe = recipe("{ trace = \"resnet18_bs1\" }").unwrap();
        let mut random = Random::new(1, 0, Purpose::Work);
        assert_eq!(recipe.draw(0, &mut random).announced, None);
        recipe.announce = Some(Announce { error_us: 2.0, missing: 0.25 });
        let told: Vec<_> = (0..4_000).filter_map(|_| recipe.draw(0, &mut random).announced).collect();
        // The standard deviation is 27.
        assert!((2_850..3_150).contains(&told.len()), "{}", told.len());
        assert!(told.iter().all(|at| (5_000..=9_000).contains(at)));
        assert!(told.iter().any(|at| *at < 5_200) && told.iter().any(|at| *at > 8_800));
    }

    #[test]
    fn kinds_are_drawn_by_their_weights() {
        let constant = |us: u32| format!("duration = {{ dist = \"constant\", us = {us} }}");
        let recipe = recipe(&format!(
            "{{ {}, weight = 3 }}, {{ {}, kernels = 2, width = 0.5 }}",
            constant(1),
            constant(2)
        ))
        .unwrap();
        let mut random = Random::new(1, 0, Purpose::Work);
        let requests: Vec<_> = (0..10_000).map(|_| recipe.draw(0, &mut random)).collect();
        let two = requests.iter().filter(|request| request.steps.len() == 2).count();
        // The standard deviation is 43.
        assert!((2_300..2_700).contains(&two), "{two}");
        let double = requests.iter().find(|request| request.steps.len() == 2).unwrap();
        assert_eq!(double.steps[1], Step { gap: 0, duration: 2_000, width: WHOLE / 2 });
    }
}
