//! Running variants side by side: the same work in several modes, interleaved so that a drift of the machine
//! (clock rate, temperature, a neighbour) meets all of them alike, and the figures that a comparison is
//! judged by.

use crate::stats::Samples;

/// Runs every mode once per round and returns the results by mode, in the order of `modes`.
///
/// Even rounds go through the modes forwards, odd ones backwards (A B, B A, A B, ...): over each pair of
/// rounds every mode has the same mean position, so a linear drift cancels. The first error ends the run.
pub fn interleave<M, T, E>(
    modes: &[M],
    rounds: usize,
    mut run: impl FnMut(usize, &M) -> Result<T, E>,
) -> Result<Vec<Vec<T>>, E> {
    let mut results: Vec<Vec<T>> = modes.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for step in 0..modes.len() {
            let index = if round % 2 == 0 { step } else { modes.len() - 1 - step };
            results[index].push(run(round, &modes[index])?);
        }
    }
    Ok(results)
}

/// Balanced median of the differences `with[i] - without[i]` of runs that were made next to each other. A disturbance
/// that lasts longer than one round cancels in its own pair. `None` if the two are empty or not equally long.
pub fn median_difference(with: &[f64], without: &[f64]) -> Option<f64> {
    if with.len() != without.len() {
        return None;
    }
    balanced_median(with.iter().zip(without).map(|(a, b)| a - b))
}

/// Median of the rounds of [`interleave`], from which the order of the modes cancels: the mean of the medians of
/// the even rounds and of the odd ones. Where the mode that runs first is slower by more than the noise, a median
/// of all rounds would be that of one order. `None` without rounds.
pub fn balanced_median(rounds: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut orders = [Vec::new(), Vec::new()];
    for (number, value) in rounds.into_iter().enumerate() {
        orders[number % 2].push(value);
    }
    let known = orders.into_iter().filter(|order| !order.is_empty());
    let medians = known.map(|order| Some(Samples::new(order)?.median())).collect::<Option<Vec<f64>>>()?;
    Some(Samples::new(medians)?.mean())
}

/// Largest over smallest of one figure taken in several blocks: how far the blocks agree (1 = exactly).
/// `None` without blocks, or if one of them is not a positive number.
pub fn spread(figure_of_blocks: &[f64]) -> Option<f64> {
    let blocks = Samples::new(figure_of_blocks.to_vec())?;
    (blocks.min() > 0.0).then(|| blocks.max() / blocks.min())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn goes_forwards_then_backwards() {
        let mut order = Vec::new();
        let results = interleave(&["a", "b", "c"], 2, |round, mode| {
            order.push(*mode);
            Ok::<_, ()>(format!("{mode}{round}"))
        });
        assert_eq!(order, ["a", "b", "c", "c", "b", "a"]);
        let expected = [["a0", "a1"], ["b0", "b1"], ["c0", "c1"]];
        assert_eq!(results.unwrap(), expected);
    }

    #[test]
    fn stops_at_the_first_error() {
        let mut calls = 0;
        let result = interleave(&[1, 2], 5, |_, mode| {
            calls += 1;
            if *mode == 2 { Err("broken") } else { Ok(()) }
        });
        assert_eq!(result, Err("broken"));
        assert_eq!(calls, 2);
    }

    #[test]
    fn no_modes_or_no_rounds() {
        assert_eq!(interleave(&[] as &[u8], 3, |_, _| Ok::<(), ()>(())), Ok(vec![]));
        assert_eq!(interleave(&[1], 0, |_, _| Ok::<(), ()>(())), Ok(vec![vec![]]));
    }

    #[test]
    fn difference_is_taken_pair_by_pair() {
        // One pair was disturbed by 1000 on both sides, another only on one side.
        let with = [510.0, 1510.0, 512.0, 900.0, 511.0, 509.0];
        let without = [10.0, 1010.0, 11.0, 10.0, 12.0, 9.0];
        assert_eq!(median_difference(&with, &without), Some(500.0));
        assert_eq!(median_difference(&with, &without[1..]), None);
        assert_eq!(median_difference(&[], &[]), None);
    }

    #[test]
    fn order_of_the_modes_cancels() {
        let ratios = [1.25, 0.75].repeat(12);
        assert_eq!(balanced_median(ratios), Some(1.0));
        assert_eq!(balanced_median([3.0]), Some(3.0));
        assert_eq!(balanced_median([]), None);
        assert_eq!(balanced_median([1.0, f64::NAN]), None);
    }

    #[test]
    fn spread_is_largest_over_smallest() {
        assert_eq!(spread(&[2.0, 3.0, 2.5]), Some(1.5));
        assert_eq!(spread(&[2.0]), Some(1.0));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[0.0, 1.0]), None);
    }

    proptest! {
        /// A linear drift of the machine adds the same to every mode's sum over an even number of rounds.
        #[test]
        fn linear_drift_cancels(modes in 1usize..6, pairs in 1usize..20) {
            let ids: Vec<usize> = (0..modes).collect();
            let mut clock = 0u64;
            let results = interleave(&ids, 2 * pairs, |_, _| { clock += 1; Ok::<_, ()>(clock) }).unwrap();
            let sums: Vec<u64> = results.iter().map(|r| r.iter().sum()).collect();
            prop_assert!(sums.iter().all(|s| *s == sums[0]));
        }
    }
}
