//! The container of code for several processors (`__CLANG_OFFLOAD_BUNDLE__`): its entries and their
//! positions. The code itself is not read here.

use super::source::{MAX_EXTENT, Part};
use crate::layout::Unknown;
use object::read::ReadRef;

const BUNDLE: &[u8; 24] = b"__CLANG_OFFLOAD_BUNDLE__";
const ELF: &[u8] = b"\x7fELF";

/// The most entries, and the longest name of a target, of a valid header.
const MAX_ENTRIES: u64 = 4096;
const MAX_TARGET: u64 = 4096;

/// The code for one processor.
pub(crate) struct Code<R> {
    /// The target, as in `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-`; none for a code object outside a bundle.
    pub(crate) target: Option<Box<str>>,
    pub(crate) data: Part<R>,
}

/// Returns the device code in a bundle, or the code object outside a bundle.
pub(crate) fn open<'a, R: ReadRef<'a>>(data: R) -> Result<Vec<Code<R>>, Unknown> {
    let magic = data.read_bytes_at(0, 4).map_err(|()| Unknown::UnknownFormat)?;
    if magic == ELF {
        let size = data.len().map_err(|()| Unknown::Malformed)?;
        return Ok(vec![Code { target: None, data: Part::new(data, 0, size) }]);
    }
    // Word by word: data that is no bundle may end after the first word that differs.
    for (word, at) in BUNDLE.chunks(4).zip((0..).step_by(4)) {
        if data.read_bytes_at(at, 4) != Ok(word) {
            return Err(Unknown::UnknownFormat);
        }
    }
    entries(data).map_err(|()| Unknown::Malformed)
}

/// Reads the entries behind the magic number: a count, then for each entry offset, size, length of the
/// target, target.
fn entries<'a, R: ReadRef<'a>>(data: R) -> Result<Vec<Code<R>>, ()> {
    let mut at = BUNDLE.len() as u64;
    let count = number(data, &mut at)?;
    if count > MAX_ENTRIES {
        return Err(());
    }
    let mut codes = Vec::new();
    for _ in 0..count {
        let (offset, size) = (number(data, &mut at)?, number(data, &mut at)?);
        let length = number(data, &mut at)?;
        if length > MAX_TARGET || offset.checked_add(size).is_none_or(|end| end > MAX_EXTENT) {
            return Err(());
        }
        let target = std::str::from_utf8(data.read_bytes(&mut at, length)?).map_err(drop)?;
        // The host's entry is a placeholder; an empty one has no kernels.
        if size != 0 && !target.starts_with("host-") {
            codes.push(Code { target: Some(target.into()), data: Part::new(data, offset, size) });
        }
    }
    Ok(codes)
}

fn number<'a, R: ReadRef<'a>>(data: R, at: &mut u64) -> Result<u64, ()> {
    let bytes = data.read_bytes(at, 8)?;
    Ok(u64::from_le_bytes(bytes.try_into().map_err(drop)?))
}

/// Returns the processor of a target: `gfx90a` of `hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-`, of the
/// older `hip-amdgcn-amd-amdhsa-gfx90a`, and of `gfx90a:sramecc+:xnack-`, as the runtime names a device.
pub(crate) fn processor(target: &str) -> &str {
    // A feature can end with a minus, and a processor's name can contain one (`gfx9-4-generic`).
    let plain = target.split(':').next().unwrap_or(target);
    match plain.rsplit_once("--").or_else(|| plain.split_once("-amdhsa-")) {
        Some((_, processor)) => processor,
        None => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::bundle;

    #[test]
    fn target_of_any_form_has_its_processor() {
        for (target, expected) in [
            ("hipv4-amdgcn-amd-amdhsa--gfx90a", "gfx90a"),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", "gfx90a"),
            ("hip-amdgcn-amd-amdhsa-gfx906", "gfx906"),
            ("hipv4-amdgcn-amd-amdhsa--gfx9-4-generic:xnack-", "gfx9-4-generic"),
            ("hip-spirv64-amd-amdhsa--amdgcnspirv", "amdgcnspirv"),
            ("gfx942:sramecc+:xnack-", "gfx942"),
            ("gfx1100", "gfx1100"),
            ("", ""),
        ] {
            assert_eq!(processor(target), expected, "{target}");
        }
    }

    #[test]
    fn bundle_has_its_device_entries() {
        let bytes = bundle(&[
            ("host-x86_64-unknown-linux", b""),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a", b"first"),
            ("hipv4-amdgcn-amd-amdhsa--gfx1100", b"second"),
        ]);
        let codes = open(&bytes[..]).unwrap();
        let read: Vec<_> = codes
            .iter()
            .map(|code| {
                (code.target.as_deref().map(processor).unwrap(), code.data.read_bytes_at(0, 5).unwrap())
            })
            .collect();
        assert_eq!(read, [("gfx90a", &b"first"[..]), ("gfx1100", &b"secon"[..])]);
    }

    #[test]
    fn other_formats_are_refused_with_a_reason() {
        assert_eq!(open(&b"CCOB\x02"[..]).err(), Some(Unknown::UnknownFormat));
        assert_eq!(open(&b""[..]).err(), Some(Unknown::UnknownFormat));
        assert_eq!(open(&b"__CLANG_OFFLOAD"[..]).err(), Some(Unknown::UnknownFormat));
        assert_eq!(open(&b"BC\xc0\xde"[..]).err(), Some(Unknown::UnknownFormat));
        let whole = bundle(&[("hip-amdgcn-amd-amdhsa-gfx906", b"")]);
        for length in BUNDLE.len()..whole.len() {
            assert_eq!(open(&whole[..length]).err(), Some(Unknown::Malformed), "{length}");
        }
        let mut absurd = whole.clone();
        absurd[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(open(&absurd[..]).err(), Some(Unknown::Malformed));
        let mut absurd = whole;
        absurd[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        absurd[40] = 1;
        assert_eq!(open(&absurd[..]).err(), Some(Unknown::Malformed));
    }
}
