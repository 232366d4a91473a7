//! Random numbers that are the same on every machine: ChaCha8 from a crate of the Rust project's `rand`, and
//! logarithms in software, because those of the machines' own libraries differ in the last bit.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// The purpose of random numbers. Each has its own sequence, so that a program's arrivals and its work do not
/// depend on scheduling or on other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The arrivals of requests.
    Arrivals,
    /// The contents of requests.
    Work,
}

#[derive(Debug, Clone)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// Creates the sequence of a program, by its number among those of this seed, for a purpose.
    pub fn new(seed: u64, program: usize, purpose: Purpose) -> Self {
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(program as u64 * 2 + purpose as u64);
        Self(generator)
    }

    /// Draws uniformly above 0 and up to 1, in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Draws from an exponential distribution with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -libm::log(self.unit())
    }

    /// Draws from a normal distribution with mean 0 and variance 1, by Marsaglia's polar method.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (x, y) = (2.0 * self.unit() - 1.0, 2.0 * self.unit() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                return x * (-2.0 * libm::log(square) / square).sqrt();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_fixed_and_apart() {
        let of = |seed, client, purpose| {
            let mut random = Random::new(seed, client, purpose);
            [random.unit(), random.unit()]
        };
        // Written down so that another machine, or another version of the generator, is seen to differ.
        assert_eq!(of(1, 0, Purpose::Arrivals), [0.40248566366484817, 0.08038370892978208]);
        let mut random = Random::new(1, 0, Purpose::Arrivals);
        assert_eq!([random.exponential(), random.normal()], [0.9100958009818427, -0.7535284603802243]);
        let all = [
            of(1, 0, Purpose::Arrivals),
            of(1, 0, Purpose::Work),
            of(1, 1, Purpose::Arrivals),
            of(2, 0, Purpose::Arrivals),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b));
        }
    }

    #[test]
    fn normal_has_its_moments() {
        let mut random = Random::new(3, 0, Purpose::Work);
        let n = 200_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let x = random.normal();
            sum += x;
            squares += x * x;
        }
        let n = f64::from(n);
        assert!((sum / n).abs() < 0.01 && (squares / n - 1.0).abs() < 0.02, "{} {}", sum / n, squares / n);
    }
}
