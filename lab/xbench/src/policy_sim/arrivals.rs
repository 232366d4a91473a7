//! Arrival times of requests.

use super::distribution::{Distribution, MOST_US, nanos};
use crate::random::Random;
use crate::{WrongInput, ensure_in};
use serde::Deserialize;

/// The arrival process of a client's requests. In a file it is a table with `kind` and the fields of the
/// variant, for example `{ kind = "poisson", per_s = 20 }`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Arrivals {
    /// Requests arrive independently of each other.
    Poisson {
        /// The mean number a second.
        per_s: f64,
    },
    /// A request arrives in each period, the first at a random moment of the first period.
    Periodic {
        /// The number a second.
        per_s: f64,
        /// The largest deviation from the regular moment, microseconds; at most half of the period.
        #[serde(default)]
        jitter_us: f64,
    },
    /// Requests arrive in bursts, with exponential breaks from the last request of a burst to the first of
    /// the next.
    Bursty {
        /// The mean length of the breaks, microseconds.
        every_us: f64,
        /// The requests of a burst, 1 to 100000.
        size: u32,
        /// The time between two requests of a burst, microseconds.
        #[serde(default)]
        spacing_us: f64,
    },
    /// Requests arrive at recorded moments.
    Recorded {
        /// The moments in milliseconds from the start, in ascending order.
        at_ms: Vec<f64>,
        /// The period in milliseconds after which the moments repeat, not before the last moment; `None` if
        /// they do not repeat.
        repeat_ms: Option<f64>,
    },
    /// Closed loop: a request arrives when the one before it is done and the client has thought.
    Closed {
        /// The time from the end of a request to the next.
        think: Option<Distribution>,
    },
}

impl Arrivals {
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    pub fn check(&self) -> Result<(), WrongInput> {
        let rate = |per_s: f64| ensure_in("per_s", per_s, 1e-3, 1e6);
        let time = |name: &str, us: f64, most: f64| ensure_in(name, us, 0.0, most);
        let wrong = |why: String| Err(WrongInput(why));
        match self {
            Self::Poisson { per_s } => rate(*per_s),
            Self::Periodic { per_s, jitter_us } => {
                rate(*per_s)?;
                time("jitter_us", *jitter_us, 0.5e6 / per_s)
            }
            Self::Bursty { every_us, size, spacing_us } => {
                time("every_us", *every_us, MOST_US)?;
                time("spacing_us", *spacing_us, MOST_US)?;
                ensure_in("size", *size, 1, 100_000)?;
                // Otherwise no time would ever pass in the simulation.
                if every_us + spacing_us < 1e-3 { wrong("every_us is 0".to_owned()) } else { Ok(()) }
            }
            Self::Recorded { at_ms, repeat_ms } => {
                let mut last = 0.0;
                for at in at_ms {
                    if !(last..=MOST_US / 1e3).contains(at) {
                        return wrong(format!("at_ms has {at} after {last}"));
                    }
                    last = *at;
                }
                match repeat_ms {
                    None => Ok(()),
                    Some(repeat) if *repeat >= last && (1e-3..=MOST_US / 1e3).contains(repeat) => Ok(()),
                    Some(repeat) => {
                        wrong(format!("repeat_ms = {repeat} comes before the last of at_ms, {last}"))
                    }
                }
            }
            Self::Closed { think } => think.map_or(Ok(()), |think| think.check()),
        }
    }

    /// Starts a sequence of arrivals with `random`.
    pub(super) fn start(&self, mut random: Random) -> Source<'_> {
        let base = match self {
            // Whole periods of exact length follow from here.
            Self::Periodic { per_s, .. } => nanos(random.unit() * 1e6 / per_s),
            _ => 0,
        };
        Source { arrivals: self, random, base, count: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Source<'a> {
    arrivals: &'a Arrivals,
    random: Random,
    /// The base of the next arrival, nanoseconds.
    base: u64,
    /// The number of arrivals since the base.
    count: u64,
}

impl Source<'_> {
    /// Returns the next arrival, nanoseconds from the start and not before the last one; `None` if no request
    /// arrives by itself.
    pub(super) fn next(&mut self) -> Option<u64> {
        let Self { arrivals, random, base, count } = self;
        match arrivals {
            Arrivals::Poisson { per_s } => {
                *base += nanos(random.exponential() * 1e6 / per_s);
                Some(*base)
            }
            Arrivals::Periodic { per_s, jitter_us } => {
                let at = *base + nanos(*count as f64 * 1e6 / per_s);
                *count += 1;
                // At most half a period, so that arrivals stay in order.
                let early = nanos(*jitter_us);
                Some((at + nanos(random.unit() * 2.0 * jitter_us)).saturating_sub(early))
            }
            Arrivals::Bursty { every_us, size, spacing_us } => {
                if *count == 0 {
                    *base += nanos(random.exponential() * every_us);
                } else {
                    *base += nanos(*spacing_us);
                }
                *count = (*count + 1) % u64::from(*size);
                Some(*base)
            }
            Arrivals::Recorded { at_ms, repeat_ms } => {
                let position = usize::try_from(*count).ok().filter(|position| *position < at_ms.len());
                let position = match position {
                    Some(position) => position,
                    None => {
                        *base += nanos((*repeat_ms)? * 1e3);
                        *count = 0;
                        0
                    }
                };
                let at = *base + nanos(at_ms.get(position)? * 1e3);
                *count += 1;
                Some(at)
            }
            Arrivals::Closed { .. } => None,
        }
    }

    /// Returns the time that a client thinks after a request, nanoseconds; `None` unless the loop is closed.
    pub(super) fn think(&mut self) -> Option<u64> {
        match self.arrivals {
            Arrivals::Closed { think } => Some(think.map_or(0, |think| think.draw(&mut self.random))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    const SECOND: u64 = 1_000_000_000;

    fn until(arrivals: &Arrivals, end: u64) -> Vec<u64> {
        arrivals.check().unwrap();
        let mut source = arrivals.start(Random::new(5, 0, Purpose::Arrivals));
        let list: Vec<u64> = std::iter::from_fn(|| source.next().filter(|at| *at < end)).collect();
        assert!(list.is_sorted(), "{arrivals:?}");
        list
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_exponential_gaps() {
        let list = until(&Arrivals::Poisson { per_s: 1000.0 }, 100 * SECOND);
        // The standard deviation of the number is 316.
        assert!((99_000..101_000).contains(&list.len()), "{}", list.len());
        let gaps: Vec<f64> = list.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
        assert!((variance / (mean * mean) - 1.0).abs() < 0.03, "{}", variance / (mean * mean));
    }

    #[test]
    fn periodic_arrivals_keep_their_period_and_their_jitter() {
        let list = until(&Arrivals::Periodic { per_s: 20.0, jitter_us: 0.0 }, 10 * SECOND);
        assert_eq!(list.len(), 200);
        assert!(list.windows(2).all(|pair| pair[1] - pair[0] == SECOND / 20));
        let list = until(&Arrivals::Periodic { per_s: 20.0, jitter_us: 5_000.0 }, 10 * SECOND);
        assert!((199..=201).contains(&list.len()));
        let gap = |pair: &[u64]| (pair[1] - pair[0]) as f64 / 1e6;
        assert!(list.windows(2).all(|pair| (40.0..=60.0).contains(&gap(pair))));
        assert!(list.windows(2).any(|pair| gap(pair) < 47.0) && list.windows(2).any(|pair| gap(pair) > 53.0));
    }

    #[test]
    fn bursts_come_together() {
        let list = until(&Arrivals::Bursty { every_us: 1e5, size: 5, spacing_us: 10.0 }, 100 * SECOND);
        // A thousand breaks of 0.1 s.
        assert!((4_500..5_500).contains(&list.len()), "{}", list.len());
        for burst in list.chunks_exact(5) {
            assert!(burst.windows(2).all(|pair| pair[1] - pair[0] == 10_000));
        }
    }

    #[test]
    fn recorded_arrivals_come_as_they_were_and_again() {
        let mut arrivals = Arrivals::Recorded { at_ms: vec![1.0, 2.5, 2.5], repeat_ms: Some(10.0) };
        assert_eq!(
            until(&arrivals, 20_000_000),
            [1, 2, 2, 11, 12, 12].map(|ms: u64| ms * 1_000_000 + ms % 10 / 2 * 500_000)
        );
        if let Arrivals::Recorded { repeat_ms, .. } = &mut arrivals {
            *repeat_ms = None;
        }
        assert_eq!(until(&arrivals, SECOND).len(), 3);
        assert!(until(&Arrivals::Recorded { at_ms: vec![], repeat_ms: Some(1.0) }, SECOND).is_empty());
    }

    #[test]
    fn closed_loop_has_no_arrivals_by_itself() {
        let closed = Arrivals::Closed { think: Some(Distribution::Constant { us: 2.0 }) };
        let mut source = closed.start(Random::new(1, 0, Purpose::Arrivals));
        assert_eq!((source.next(), source.think()), (None, Some(2_000)));
        assert!(closed.is_closed());
        let open = Arrivals::Poisson { per_s: 1.0 };
        assert_eq!(open.start(Random::new(1, 0, Purpose::Arrivals)).think(), None);
    }

    #[test]
    fn check_names_the_invalid_number() {
        let recorded = |at_ms: &[f64], repeat_ms| Arrivals::Recorded { at_ms: at_ms.to_vec(), repeat_ms };
        let cases = [
            (Arrivals::Poisson { per_s: 0.0 }, "per_s = 0 is not in 0.001..1000000"),
            (Arrivals::Periodic { per_s: 100.0, jitter_us: 5001.0 }, "jitter_us = 5001 is not in 0..5000"),
            (Arrivals::Bursty { every_us: 0.0, size: 1, spacing_us: 0.0 }, "every_us is 0"),
            (Arrivals::Bursty { every_us: 1.0, size: 0, spacing_us: 0.0 }, "size = 0 is not in 1..100000"),
            (recorded(&[2.0, 1.0], None), "at_ms has 1 after 2"),
            (recorded(&[2.0], Some(1.0)), "repeat_ms = 1 comes before the last of at_ms, 2"),
            (
                Arrivals::Closed { think: Some(Distribution::Constant { us: -1.0 }) },
                "us = -1 is not in 0..86400000000",
            ),
        ];
        for (arrivals, words) in cases {
            assert_eq!(arrivals.check().unwrap_err().0, words);
        }
    }
}
