//! A policy as the command line names it: its parameters, and what the programs do under it.

use crate::WrongInput;
use crate::policy_sim::Policy;
use std::str::FromStr;

/// A word behind a policy: programs with preparations announce each request when it arrives.
const HINT: &str = "+hint";
/// A word behind a policy, followed by T/B: every program has at most T commands in flight, and synchronizes
/// every B.
const WINDOW: &str = "+window=";
/// The parameter for the latency target of a policy.
const TARGET: &str = "target-ms=";

/// A policy with its parameters, such as `SLO target-ms=50 +hint +window=16/8`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PolicyWords {
    pub(crate) text: String,
    /// The policy and its options on the server's command line.
    pub(crate) server: Vec<String>,
    /// True if programs announce requests.
    pub(crate) hint: bool,
    /// The fixed launch window: the most commands in flight, and the commands between two synchronization
    /// points.
    pub(crate) window: Option<(u32, u32)>,
    /// The latency target that the words give the policy, in milliseconds.
    pub(crate) target_ms: Option<f64>,
    /// The policy for simulation.
    pub(crate) policy: Policy,
}

impl FromStr for PolicyWords {
    type Err = WrongInput;

    fn from_str(text: &str) -> Result<Self, WrongInput> {
        let (ours, words): (Vec<_>, Vec<_>) = text.split_whitespace().partition(|word| word.starts_with('+'));
        let (mut hint, mut window) = (false, None);
        for word in ours {
            match word.strip_prefix(WINDOW) {
                Some(numbers) => window = Some(parse_window(numbers)?),
                None if word == HINT => hint = true,
                None => {
                    return Err(WrongInput(format!(
                        "{word}: a policy can be followed by {HINT} and {WINDOW}T/B"
                    )));
                }
            }
        }
        let policy = Policy::by_name(&words.join(" "))?;
        let target_ms = words.iter().rev().find_map(|word| word.strip_prefix(TARGET)?.parse().ok());
        let mut words = words.into_iter().map(str::to_owned);
        let mut server = Vec::from_iter(words.next());
        server.extend(words.flat_map(|word| ["--set".to_owned(), word]));
        Ok(Self { text: text.to_owned(), server, hint, window, target_ms, policy })
    }
}

fn parse_window(text: &str) -> Result<(u32, u32), WrongInput> {
    let numbers =
        text.split_once('/').and_then(|(most, batch)| Some((most.parse().ok()?, batch.parse().ok()?)));
    numbers.filter(|(most, batch)| (1..=*most).contains(batch)).ok_or_else(|| {
        WrongInput(format!("{WINDOW}{text}: it needs two numbers, the second not above the first"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_with_parameters_is_the_servers_command_line() {
        let parse = |text: &str| text.parse::<PolicyWords>();
        let server = |text: &str| parse(text).unwrap().server;
        assert_eq!(server("HPF"), ["HPF"]);
        assert_eq!(server("LCBE +hint learn=0 +window=4/2"), ["LCBE", "--set", "learn=0"]);
        assert_eq!(server("SLO target-ms=50 +hint"), ["SLO", "--set", "target-ms=50"]);
        let words = parse("LCBE +hint").unwrap();
        assert_eq!((words.hint, words.window), (true, None));
        let words = parse("UP +window=16/8").unwrap();
        assert_eq!((words.hint, words.window), (false, Some((16, 8))));
    }

    #[test]
    fn latency_target_is_known() {
        let target = |text: &str| text.parse::<PolicyWords>().unwrap().target_ms;
        assert_eq!(target("SLO window=100 target-ms=2.5 +hint"), Some(2.5));
        assert_eq!(target("SLO"), None);
    }

    #[test]
    fn wrong_words_are_named() {
        let error = |text: &str| text.parse::<PolicyWords>().unwrap_err().0;
        for wrong in ["UP +window=16", "UP +window=8/16", "UP +window=0/0", "UP +window=a/b"] {
            assert!(error(wrong).contains("two numbers"), "{wrong}");
        }
        assert_eq!(
            error("HPF x=1"),
            "HPF: no parameter \"x\": this policy has gaps, share-percent, slowdown-percent, queues-first, \
             stream-priorities"
        );
        assert_eq!(error("HPF x"), "\"x\" is not a name=number");
        assert_eq!(error("HPF +hints"), "+hints: a policy can be followed by +hint and +window=T/B");
    }
}
