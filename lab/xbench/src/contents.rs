//! Device memory whose contents the host knows, to check that kernels compute: a device that drops, repeats or
//! swaps them would look fast.

use crate::hip::{DeviceBuffer, Hip, Stream};
use crate::kernels::{Kernels, mix_step};
use anyhow::{Result, anyhow, bail};

/// A buffer on the device, and its expected contents.
#[derive(Debug)]
pub(crate) struct Known {
    buffer: DeviceBuffer,
    pub(crate) words: Vec<u64>,
}

impl Known {
    pub(crate) fn new(hip: &Hip, words: Vec<u64>) -> Result<Self> {
        let known = Self { buffer: hip.malloc(size_of_val(words.as_slice()))?, words };
        known.fill(hip)?;
        Ok(known)
    }

    /// Copies the expected contents to the device.
    pub(crate) fn fill(&self, hip: &Hip) -> Result<()> {
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        hip.copy_to_device(&self.buffer, &bytes)
    }

    /// Fills the first words with a byte.
    pub(crate) fn memset(&mut self, stream: &Stream, byte: u8, words: usize) -> Result<()> {
        stream.memset(&self.buffer, byte, words * size_of::<u64>())?;
        self.words[..words].fill(u64::from_ne_bytes([byte; 8]));
        Ok(())
    }

    pub(crate) fn mix(&mut self, kernels: &Kernels, stream: &Stream, value: u64) -> Result<()> {
        kernels.mix(stream, &self.buffer, &self.buffer, self.words.len() as u32, value)?;
        for (word, i) in self.words.iter_mut().zip(0..) {
            *word = mix_step(*word, *word, i, value);
        }
        Ok(())
    }

    /// Launches a `mix` of the buffer with another one of its size.
    pub(crate) fn mix_with(
        &mut self,
        kernels: &Kernels,
        stream: &Stream,
        other: &Self,
        value: u64,
    ) -> Result<()> {
        kernels.mix(stream, &self.buffer, &other.buffer, self.words.len() as u32, value)?;
        for ((word, source), i) in self.words.iter_mut().zip(&other.words).zip(0..) {
            *word = mix_step(*word, *source, i, value);
        }
        Ok(())
    }

    /// Copies the buffer back, after all work of blocking streams, and compares it.
    pub(crate) fn compare(&self, hip: &Hip) -> Result<()> {
        let mut bytes = vec![0; size_of_val(self.words.as_slice())];
        hip.copy_from_device(&mut bytes, &self.buffer)?;
        compare(&bytes, &self.words)
    }
}

fn compare(bytes: &[u8], words: &[u64]) -> Result<()> {
    let held = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
    let wrong: Vec<(usize, u64, u64)> = held
        .zip(words)
        .enumerate()
        .filter_map(|(i, (held, word))| (held != *word).then_some((i, held, *word)))
        .collect();
    match wrong.first() {
        None => Ok(()),
        Some((i, held, word)) => Err(anyhow!(
            "{} of {} words are wrong: word {i} is {held:#x} and not {word:#x}",
            wrong.len(),
            words.len()
        )),
    }
}

/// Adds two arrays of `count` floats, and the second again to each result, `steps` times in all; checks the sums.
/// The second array begins with `first`.
pub(crate) fn check_sums(
    hip: &Hip,
    kernels: &Kernels,
    stream: &Stream,
    count: usize,
    first: usize,
    steps: usize,
) -> Result<()> {
    let size = count * size_of::<f32>();
    let (mut a, b, mut c) = (hip.malloc(size)?, hip.malloc(size)?, hip.malloc(size)?);
    let bytes = |f: &dyn Fn(usize) -> usize| {
        (0..count).flat_map(|i| (f(i) as f32).to_ne_bytes()).collect::<Vec<u8>>()
    };
    hip.copy_to_device(&a, &bytes(&|i| i))?;
    hip.copy_to_device(&b, &bytes(&|i| i + first))?;
    hip.copy_to_device(&c, &vec![0xff; size])?;
    // Sums of whole numbers below 2^24 are exact in floats.
    for _ in 0..steps {
        kernels.vector_add(stream, &a, &b, &c, count as u32)?;
        std::mem::swap(&mut a, &mut c);
    }
    stream.synchronize()?;
    let mut held = vec![0; size];
    hip.copy_from_device(&mut held, &a)?;
    let sums = bytes(&|i| i + steps * (i + first));
    let wrong = held.chunks_exact(4).zip(sums.chunks_exact(4)).position(|(held, sum)| held != sum);
    wrong.map_or(Ok(()), |i| bail!("the device computes wrong results: sum {i} of vector_add is wrong"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compare_names_the_first_wrong_word() {
        let bytes: Vec<u8> = [5u64, 6, 7].into_iter().flat_map(u64::to_ne_bytes).collect();
        compare(&bytes, &[5, 6, 7]).unwrap();
        let error = compare(&bytes, &[5, 9, 8]).unwrap_err().to_string();
        assert_eq!(error, "2 of 3 words are wrong: word 1 is 0x6 and not 0x9");
    }
}
