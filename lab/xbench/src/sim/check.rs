//! Checks, before any measurement, that the device computes: one that drops kernels would look fast.

use crate::hip::{DeviceBuffer, Hip, Stream};
use crate::kernels::{Kernels, mix_step};
use anyhow::{Result, bail};

/// The number of elements: several work-groups, of which the last is not full.
const COUNT: u32 = 5_000;
/// The values of a chain of `mix` kernels, whose result depends on their order and number.
const CHAIN: [u64; 3] = [3, 1, 2];

/// Runs the kernels on device memory, with copies to and from it, and compares the results with the host's.
pub(super) fn check(hip: &Hip, kernels: &Kernels, stream: &Stream) -> Result<()> {
    check_vector_add(hip, kernels, stream)?;
    check_mix(hip, kernels, stream)
}

fn check_vector_add(hip: &Hip, kernels: &Kernels, stream: &Stream) -> Result<()> {
    // Whole numbers below 2^24: the sums are exact.
    let a: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..COUNT).map(|i| (3 * i + 1) as f32).collect();
    let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let (on_a, on_b) = (upload(hip, &bytes(&a))?, upload(hip, &bytes(&b))?);
    let on_c = upload(hip, &vec![0xff; size_of_val(a.as_slice())])?;
    kernels.vector_add(stream, &on_a, &on_b, &on_c, COUNT)?;
    stream.synchronize()?;
    let mut c = vec![0; size_of_val(a.as_slice())];
    hip.copy_from_device(&mut c, &on_c, 0)?;
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    compare("vector_add", &c, &bytes(&expected))
}

fn check_mix(hip: &Hip, kernels: &Kernels, stream: &Stream) -> Result<()> {
    let mut words: Vec<u64> = (0..u64::from(COUNT)).map(|i| i * i).collect();
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
    let memory = upload(hip, &bytes(&words))?;
    for value in CHAIN {
        kernels.mix(stream, &memory, &memory, COUNT, value)?;
        for (i, word) in words.iter_mut().enumerate() {
            *word = mix_step(*word, *word, i as u32, value);
        }
    }
    stream.synchronize()?;
    let mut result = vec![0; size_of_val(words.as_slice())];
    hip.copy_from_device(&mut result, &memory, 0)?;
    compare("mix", &result, &bytes(&words))
}

fn upload(hip: &Hip, bytes: &[u8]) -> Result<DeviceBuffer> {
    let buffer = hip.malloc(bytes.len())?;
    hip.copy_to_device(&buffer, 0, bytes)?;
    Ok(buffer)
}

fn compare(kernel: &str, result: &[u8], expected: &[u8]) -> Result<()> {
    match result.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => bail!(
            "the device computes wrong results: kernel `{kernel}` left {:#04x} at byte {at} of {}, where {:#04x} is right",
            result[at],
            expected.len(),
            expected[at]
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compare_names_the_first_wrong_byte() {
        assert!(compare("mix", &[1, 2, 3], &[1, 2, 3]).is_ok());
        let error = compare("mix", &[1, 9, 9], &[1, 2, 3]).unwrap_err().to_string();
        let expected =
            "the device computes wrong results: kernel `mix` left 0x09 at byte 1 of 3, where 0x02 is right";
        assert_eq!(error, expected);
    }
}
