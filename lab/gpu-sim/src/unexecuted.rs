//! Kernels that took time on the device but were not executed. They are counted for each launcher, which
//! lists them at the end.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use cpp_demangle::{DemangleOptions, Symbol};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The largest number of kernels that are counted by name for one launcher.
const MOST_NAMES: usize = 256;
/// The largest number of bytes of a name that are kept; a longer name is not demangled.
const LONGEST_NAME: usize = 256;
/// The number of kernels that the message names.
const SHOWN: usize = 5;
/// The largest number of bytes of a kernel's name in the message: 257 mangled bytes can stand for 59 MB.
const LONGEST_SHOWN: usize = 200;

/// The counts of kernels that a launcher's programs launched and that were not executed.
#[derive(Debug, Default)]
pub struct LaunchCounts(Mutex<Kernels>);

#[derive(Debug, Default)]
struct Kernels {
    /// The names and numbers of launches, by a hash of the whole name.
    named: HashMap<u64, (String, u64)>,
    /// Launches of kernels without a name.
    unnamed: u64,
    /// Launches of kernels that were new when `named` was full.
    beyond: u64,
}

impl LaunchCounts {
    pub fn note(&self, name: Option<&str>) {
        let mut kernels = self.0.lock();
        let Some(name) = name else {
            kernels.unnamed += 1;
            return;
        };
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish();
        let full = kernels.named.len() >= MOST_NAMES;
        match kernels.named.get_mut(&hash) {
            Some((_, launches)) => *launches += 1,
            None if full => kernels.beyond += 1,
            None => drop(kernels.named.insert(hash, (cut(name, LONGEST_NAME), 1))),
        }
    }

    pub fn summary(&self) -> Summary {
        let kernels = self.0.lock();
        let named = kernels.named.values().cloned().collect();
        Summary { named, unnamed: kernels.unnamed, beyond: kernels.beyond }
    }
}

/// The launchers that have joined, by process id.
#[derive(Debug, Default)]
pub struct Launches(Mutex<Vec<(i32, Arc<LaunchCounts>)>>);

impl Launches {
    /// Adds a launcher; `pid` is the peer of its connection.
    pub fn join(&self, pid: i32) -> Arc<LaunchCounts> {
        let counts = Arc::<LaunchCounts>::default();
        self.0.lock().push((pid, Arc::clone(&counts)));
        counts
    }

    pub fn leave(&self, counts: &Arc<LaunchCounts>) {
        self.0.lock().retain(|(_, other)| !Arc::ptr_eq(other, counts));
    }

    /// Returns the counts of the nearest launcher above a process; `ancestors` begins with the process.
    pub fn nearest(&self, ancestors: &[i32]) -> Option<Arc<LaunchCounts>> {
        let launches = self.0.lock();
        let of = |pid: &i32| launches.iter().find(|(launcher, _)| launcher == pid);
        ancestors.iter().find_map(of).map(|(_, counts)| Arc::clone(counts))
    }
}

/// The counts of a [`LaunchCounts`], to be sent over the socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The names in the code objects, with their numbers of launches.
    named: Vec<(String, u64)>,
    /// Launches of kernels without a name.
    unnamed: u64,
    /// Launches of further kernels, which are not counted by name.
    beyond: u64,
}

impl Summary {
    /// Returns the message for the user, at most 2 KiB; `None` if every kernel was executed.
    pub fn line(mut self) -> Option<String> {
        let launches = |n: u64| format!("({n} launch{})", if n == 1 { "" } else { "es" });
        self.named.sort_by(|(a, m), (b, n)| n.cmp(m).then_with(|| a.cmp(b)));
        let others = self.named.split_off(self.named.len().min(SHOWN));
        let mut parts: Vec<String> =
            self.named.iter().map(|(name, n)| format!("{} {}", plain(name), launches(*n))).collect();
        if self.unnamed > 0 {
            parts.push(format!("unnamed kernels {}", launches(self.unnamed)));
        }
        let left = others.iter().fold(self.beyond, |sum, (_, n)| sum.saturating_add(*n));
        match (others.len(), self.beyond) {
            (0, 0) => {}
            (1, 0) => parts.push(format!("1 other kernel {}", launches(left))),
            (n, 0) => parts.push(format!("{n} other kernels {}", launches(left))),
            (n, _) => parts.push(format!("more than {n} other kernels {}", launches(left))),
        }
        let last = parts.pop()?;
        let list = match parts.len() {
            0 => last,
            1 => format!("{} and {last}", parts[0]),
            _ => format!("{}, and {last}", parts.join(", ")),
        };
        Some(format!(
            "gpu-sim: the simulated device did not execute these kernels, so their results are missing: {list}. They took time \
             but did not change memory: the device executes only the kernels of the HIP runtime and of this project \
             (docs/gpu-model.md, \"Kernels that are not executed\"). `gpu-sim run --quiet` omits this message."
        ))
    }
}

/// Returns at most `most` bytes of a text, with an ellipsis if it was cut.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    const MARK: &str = "…";
    format!("{}{MARK}", &text[..text.floor_char_boundary(most - MARK.len())])
}

/// Returns a kernel's name as in its source, without parameters, in at most [`LONGEST_SHOWN`] bytes and
/// without control characters.
fn plain(name: &str) -> String {
    let shown = demangled(name).unwrap_or_else(|| name.to_owned());
    cut(&shown.replace(char::is_control, "?"), LONGEST_SHOWN)
}

fn demangled(name: &str) -> Option<String> {
    let mangled = |byte: u8| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte);
    if !name.starts_with("_Z") || name.len() > LONGEST_NAME || !name.bytes().all(mangled) {
        return None;
    }
    let symbol = Symbol::new(name).ok()?;
    let mut out = Bounded::default();
    let whole = symbol.structured_demangle(&mut out, &DemangleOptions::new().no_params().no_return_type());
    (whole.is_ok() || out.0.len() > LONGEST_SHOWN).then_some(out.0)
}

/// A text that accepts nothing more once it is longer than [`LONGEST_SHOWN`].
#[derive(Debug, Default)]
struct Bounded(String);

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        // A few bytes more than are shown, so that the cut is detected.
        let room = (LONGEST_SHOWN + 4).saturating_sub(self.0.len());
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if self.0.len() > LONGEST_SHOWN { Err(std::fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the list in the message for kernels of these names and numbers of launches.
    fn list(kernels: &[(Option<&str>, u64)]) -> Option<String> {
        let counts = LaunchCounts::default();
        for (name, launches) in kernels {
            (0..*launches).for_each(|_| counts.note(*name));
        }
        let line = counts.summary().line()?;
        let (_, list) = line.split_once("missing: ").unwrap();
        Some(list.split_once(". They").unwrap().0.to_owned())
    }

    #[test]
    fn most_launched_kernels_are_named_and_others_counted() {
        assert_eq!(list(&[]), None);
        assert_eq!(list(&[(Some("gemm"), 1)]).unwrap(), "gemm (1 launch)");
        assert_eq!(list(&[(None, 3)]).unwrap(), "unnamed kernels (3 launches)");
        let two = list(&[(Some("gemm"), 1), (Some("_Z10vector_addPfS_S_i"), 12)]);
        assert_eq!(two.unwrap(), "vector_add (12 launches) and gemm (1 launch)");
        let many: Vec<_> = ["a", "b", "c", "d", "e", "f", "g"].map(|name| (Some(name), 2)).into();
        let five = "a (2 launches), b (2 launches), c (2 launches), d (2 launches), e (2 launches)";
        assert_eq!(list(&many[..6]).unwrap(), format!("{five}, and 1 other kernel (2 launches)"));
        assert_eq!(list(&many).unwrap(), format!("{five}, and 2 other kernels (4 launches)"));
    }

    #[test]
    fn kept_names_and_message_are_bounded() {
        let counts = LaunchCounts::default();
        let long = "x".repeat(1 << 20);
        for i in 0..1000 {
            counts.note(Some(&format!("{long}{i}")));
            counts.note(Some(&format!("{long}0")));
        }
        let summary = counts.summary();
        assert_eq!((summary.named.len(), summary.beyond), (MOST_NAMES, 1000 - MOST_NAMES as u64));
        assert!(summary.named.iter().all(|(name, _)| name.len() <= LONGEST_NAME));
        // Names that differ only beyond the kept bytes are different kernels.
        assert_eq!(summary.named.iter().map(|(_, n)| *n).max(), Some(1001));
        let line = summary.line().unwrap();
        assert!(line.contains("and more than 251 other kernels (995 launches)"), "{line}");
        assert!(line.len() < 2048, "{}", line.len());
    }

    #[test]
    fn names_are_shown_as_in_the_source() {
        let template = "_Z4gemmIfLi16EEvPKT_S2_PS0_";
        assert_eq!(plain(template), "gemm<float, 16>");
        assert_eq!(plain("_ZN2nn4reluEPf"), "nn::relu");
        for other in ["gemm", "_Z", "_Znonsense", "_Z4gem\u{e9}"] {
            assert_eq!(plain(other), other);
        }
        assert_eq!(plain("ge\u{1b}[2Jmm\n"), "ge?[2Jmm?");
        assert_eq!(plain(&"ä".repeat(150)), format!("{}…", "ä".repeat(98)));
    }

    /// Each argument is twice as long as the one before it.
    #[test]
    fn demangling_of_a_huge_name_is_cut() {
        let doubled =
            |i: u8| format!("S0_IS{0}_S{0}_E", char::from_digit(i.into(), 36).unwrap().to_ascii_uppercase());
        let name = format!("_Z1fI1AIiiE{}EvT_", (1..21).map(doubled).collect::<String>());
        assert!(name.len() <= LONGEST_NAME, "{}", name.len());
        let written = demangled(&name).unwrap();
        assert!(written.starts_with("f<A<int, int>, A<A<int, int>, A<int, int> >, A<A<A<int"), "{written}");
        assert!((LONGEST_SHOWN + 1..LONGEST_SHOWN + 5).contains(&written.len()), "{}", written.len());
        assert!(plain(&name).len() <= LONGEST_SHOWN && plain(&name).ends_with('…'));
    }

    #[test]
    fn process_belongs_to_the_nearest_launcher() {
        let launches = Launches::default();
        let (outer, inner) = (launches.join(1), launches.join(20));
        let is =
            |ancestors: &[i32], counts| launches.nearest(ancestors).is_some_and(|t| Arc::ptr_eq(&t, counts));
        assert!(is(&[30, 20, 10, 1], &inner));
        assert!(is(&[11, 10, 1], &outer));
        assert!(launches.nearest(&[30, 31]).is_none());
        launches.leave(&inner);
        assert!(is(&[30, 20, 10, 1], &outer));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn shown_name_is_short_and_printable(
            name in prop_oneof![
                any::<String>(),
                "_Z[0-9A-Za-z_]{0,250}",
                "_Z(1[a-z]|N|I|E|S_|S0_|T_|K|P|J|i|f|Dp|sZ|L|X){0,100}",
            ],
        ) {
            let shown = plain(&name);
            prop_assert!(shown.len() <= LONGEST_SHOWN && !shown.contains(char::is_control));
        }
    }
}
