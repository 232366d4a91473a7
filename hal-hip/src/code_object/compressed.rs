//! The compressed container of a bundle (`CCOB`, `hipcc --offload-compress`), as clang's `OffloadBundler.cpp`
//! writes it (`CompressedOffloadBundle`). Its header, by version:
//!
//! | | magic | version, method | whole size | unpacked size | hash |
//! |---|---|---|---|---|---|
//! | 1 | 4 bytes | 2 × u16 | – | u32 | u64 |
//! | 2 | 4 bytes | 2 × u16 | u32 | u32 | u64 |
//! | 3 | 4 bytes | 2 × u16 | u64 | u64 | u64 |
//!
//! Version 1 does not state its size, so it is read from files and slices only.

use super::source::MAX_EXTENT;
use crate::layout::Unknown;
use miniz_oxide::inflate::TINFLStatus;
use object::read::ReadRef;
use std::io::Read as _;

const MAGIC: &[u8] = b"CCOB";
const ZLIB: u16 = 0;
const ZSTD: u16 = 1;
/// The largest bundle that is unpacked, in bytes, because it is held in memory while it is read.
const MAX_UNPACKED: u64 = 2 << 30;
/// The bytes that are unpacked first. They have the headers of every usual bundle.
const START: usize = 64 << 10;

/// Unpacks a compressed bundle; none if the data is not compressed. `extent` gets its first bytes and returns how
/// many are needed; all are unpacked if it does not know.
pub(super) fn open<'a, R: ReadRef<'a>>(
    data: R,
    extent: impl FnOnce(&[u8]) -> Option<u64>,
) -> Result<Option<Vec<u8>>, Unknown> {
    if data.read_bytes_at(0, 4) != Ok(MAGIC) {
        return Ok(None);
    }
    let (method, packed, size) = parts(data).map_err(|()| Unknown::Malformed)?.ok_or(Unknown::Compressed)?;
    if size > MAX_UNPACKED {
        return Err(Unknown::Compressed);
    }
    unpack(method, packed, size as usize, extent)?.map(Some).ok_or(Unknown::Malformed)
}

/// Returns method, compressed bytes and unpacked size; none if the version is unknown or the size cannot be
/// determined.
#[allow(clippy::type_complexity, reason = "a triple, with two reasons for its absence")]
fn parts<'a, R: ReadRef<'a>>(data: R) -> Result<Option<(u16, &'a [u8], u64)>, ()> {
    let mut at = 4;
    let mut number = |size: u64| {
        let bytes = data.read_bytes(&mut at, size)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let (version, method) = (number(2)?, number(2)? as u16);
    let whole = match version {
        1 => data.len()?,
        2 => number(4)?,
        3 => number(8)?,
        _ => return Ok(None),
    };
    let size = number(if version == 3 { 8 } else { 4 })?;
    number(8)?;
    if version == 1 && whole == MAX_EXTENT {
        return Ok(None);
    }
    let packed = data.read_bytes_at(at, whole.checked_sub(at).ok_or(())?)?;
    Ok(Some((method, packed, size)))
}

/// Unpacks the bytes as far as `extent` asks for; none if they are damaged.
fn unpack(
    method: u16,
    packed: &[u8],
    size: usize,
    extent: impl FnOnce(&[u8]) -> Option<u64>,
) -> Result<Option<Vec<u8>>, Unknown> {
    let extent = |start: &[u8]| {
        let end = extent(start).and_then(|end| usize::try_from(end).ok());
        end.map_or(size, |end| end.clamp(start.len().min(size), size))
    };
    let unpacked = match method {
        ZLIB => inflate(packed, size.min(START), size).and_then(|start| {
            let end = extent(&start);
            Some((inflate(packed, end, size)?, end))
        }),
        ZSTD => ruzstd::decoding::StreamingDecoder::new(packed).ok().and_then(|mut frames| {
            let mut plain = Vec::new();
            frames.by_ref().take(size.min(START) as u64).read_to_end(&mut plain).ok()?;
            let end = extent(&plain);
            // Reads one byte more than a whole, to detect a wrong size in the header.
            let more = end - plain.len() + usize::from(end == size);
            frames.take(more as u64).read_to_end(&mut plain).ok()?;
            Some((plain, end))
        }),
        _ => return Err(Unknown::Compressed),
    };
    Ok(unpacked.and_then(|(plain, end)| (plain.len() == end).then_some(plain)))
}

/// Unpacks a zlib stream up to `end`; none if it is damaged or larger than `size`.
fn inflate(packed: &[u8], end: usize, size: usize) -> Option<Vec<u8>> {
    match miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(packed, end) {
        Ok(plain) => Some(plain),
        Err(error) => (error.status == TINFLStatus::HasMoreOutput && end < size).then_some(error.output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_object::{Image, Processors};
    use crate::sample::{bundle, code};

    fn open(data: &[u8]) -> Result<Option<Vec<u8>>, Unknown> {
        super::open(data, |_| None)
    }

    /// Returns a container of this version around bytes packed by zlib.
    fn packed(version: u16, plain: &[u8]) -> Vec<u8> {
        container(version, ZLIB, &miniz_oxide::deflate::compress_to_vec_zlib(plain, 6), plain.len())
    }

    fn container(version: u16, method: u16, packed: &[u8], size: usize) -> Vec<u8> {
        let mut bytes = [MAGIC, &version.to_le_bytes(), &method.to_le_bytes()].concat();
        let header: usize = match version {
            1 => 20,
            2 => 24,
            _ => 32,
        };
        let whole = (header + packed.len()) as u64;
        match version {
            1 => {}
            2 => bytes.extend((whole as u32).to_le_bytes()),
            _ => bytes.extend(whole.to_le_bytes()),
        }
        bytes.extend(if version >= 3 {
            (size as u64).to_le_bytes().to_vec()
        } else {
            (size as u32).to_le_bytes().to_vec()
        });
        bytes.extend([0; 8]);
        assert_eq!(bytes.len(), header);
        bytes.extend(packed);
        bytes
    }

    /// Returns these bytes as a Zstandard frame (RFC 8878) of one raw block.
    fn raw_zstd(plain: &[u8]) -> Vec<u8> {
        let mut bytes = 0xFD2F_B528u32.to_le_bytes().to_vec();
        // One segment; the content's size in one byte.
        bytes.extend([0x20, plain.len() as u8]);
        bytes.extend(&(((plain.len() as u32) << 3 | 1).to_le_bytes())[..3]);
        bytes.extend(plain);
        bytes
    }

    #[test]
    fn container_of_every_version_and_method_is_unpacked() {
        let plain: Vec<u8> = (0..100_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        for version in 1..=3 {
            let mut bytes = packed(version, &plain);
            assert_eq!(open(&bytes[..]), Ok(Some(plain.clone())), "version {version}");
            if version > 1 {
                // The following bytes belong to something else.
                bytes.extend([0xEE; 64]);
                assert_eq!(open(&bytes[..]), Ok(Some(plain.clone())), "version {version}");
            }
            let zstd = container(version, ZSTD, &raw_zstd(b"bundle"), 6);
            assert_eq!(open(&zstd[..]), Ok(Some(b"bundle".to_vec())), "version {version}");
        }
        assert_eq!(open(&b"__CLANG_OFFLOAD_BUNDLE__"[..]), Ok(None));
    }

    #[test]
    fn container_is_unpacked_as_far_as_its_start_asks_for() {
        let plain: Vec<u8> = (0..100_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        // Zstandard has blocks of at most 128 KiB.
        let short = &plain[..250];
        for (bytes, plain) in
            [(packed(3, &plain), &plain[..]), (container(3, ZSTD, &raw_zstd(short), short.len()), short)]
        {
            for end in [plain.len() / 2, plain.len() - 1, plain.len(), plain.len() + 1] {
                let extent = |start: &[u8]| {
                    assert_eq!(start, &plain[..plain.len().min(START)]);
                    Some(end as u64)
                };
                let unpacked = super::open(&bytes[..], extent).unwrap().unwrap();
                let expected = if plain.len() < START && bytes[6] == ZSTD as u8 { plain.len() } else { end };
                assert_eq!(unpacked, &plain[..expected.min(plain.len())], "{end}");
            }
        }
        // What follows may be damaged.
        let mut bytes = packed(3, &plain);
        let packed = bytes.len();
        bytes[packed - 8..].fill(0xEE);
        assert_eq!(open(&bytes), Err(Unknown::Malformed));
        assert_eq!(super::open(&bytes[..], |_| Some(70_000)), Ok(Some(plain[..70_000].to_vec())));
    }

    #[test]
    fn image_needs_its_devices_code_only() {
        let [ours, filler] = [code(&[("k", &[4])]), (0..100_000u32).flat_map(u32::to_le_bytes).collect()];
        let plain = bundle(&[
            ("hipv4-amdgcn-amd-amdhsa--gfx900", &filler),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a", &ours),
            ("hipv4-amdgcn-amd-amdhsa--gfx942", &filler),
        ]);
        let mut bytes = packed(3, &plain);
        // The end of what the last processor has.
        let end = bytes.len();
        bytes[end - 1000..].fill(0xEE);
        let kernel = |device: &str| {
            let mut image = Image::of_bytes(&bytes, &Processors::new([device]));
            image.kernel(b"k", Some(device)).map(|kernel| kernel.layout.args().len())
        };
        assert_eq!(kernel("gfx90a"), Ok(1));
        assert_eq!(kernel("gfx1100"), Err(Unknown::NoEntry), "the header is enough");
        assert_eq!(kernel("gfx942"), Err(Unknown::Malformed), "its code is damaged");
    }

    #[test]
    fn unknown_or_damaged_container_is_refused_with_a_reason() {
        assert_eq!(open(&packed(4, b"x")[..]), Err(Unknown::Compressed));
        assert_eq!(open(&container(2, 7, b"x", 1)[..]), Err(Unknown::Compressed));
        assert_eq!(open(&container(3, ZSTD, &raw_zstd(b"x"), 3 << 30)[..]), Err(Unknown::Compressed));
        for wrong in [5, 7] {
            assert_eq!(open(&container(2, ZSTD, &raw_zstd(b"bundle"), wrong)[..]), Err(Unknown::Malformed));
            let zlib = miniz_oxide::deflate::compress_to_vec_zlib(b"bundle", 6);
            assert_eq!(open(&container(2, ZLIB, &zlib, wrong)[..]), Err(Unknown::Malformed));
        }
        let whole = packed(3, b"something longer than a header");
        for length in 4..whole.len() {
            assert_eq!(open(&whole[..length]), Err(Unknown::Malformed), "{length}");
        }
    }

    proptest::proptest! {
        #[test]
        fn damaged_container_does_not_panic(at in 0usize..60, byte: u8, zstd: bool) {
            let plain = b"something that is longer than the header of a container";
            let mut bytes = if zstd { container(2, ZSTD, &raw_zstd(plain), plain.len()) } else { packed(2, plain) };
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = open(&bytes[..]);
        }
    }
}
