//! Images from hand-made code objects: the choice among entries, the kinds of files, the reads of memory of
//! unknown length, and the absence of panics in the parser.

use super::*;
use crate::sample::{arg, bundle, code, elf, kernel_value, note, unlinked};
use proptest::prelude::*;
use std::cell::RefCell;
use std::ffi::CString;
use std::io::Write;
use std::ops::Range;
use std::ptr;

const GFX90A: &str = "hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+";
const GFX1100: &str = "hipv4-amdgcn-amd-amdhsa--gfx1100";
const SPIRV: &str = "hip-spirv64-amd-amdhsa--amdgcnspirv";
const HOST: &str = "host-x86_64-unknown-linux";

fn sizes(image: &mut Image, name: &str) -> Result<Vec<u32>, Unknown> {
    sizes_on(image, name, None)
}

fn sizes_on(image: &mut Image, name: &str, device: Option<&str>) -> Result<Vec<u32>, Unknown> {
    let kernel = image.kernel(name.as_bytes(), device)?;
    assert_eq!(&*kernel.name, name);
    Ok(kernel.layout.args().iter().map(|slot| slot.size).collect())
}

fn processors(names: &[&str]) -> Processors {
    Processors::new(names.iter().copied())
}

#[test]
fn code_object_outside_a_bundle_is_read() {
    for bytes in [code(&[("k", &[4, 8])]), unlinked(&note(vec![kernel_value("k", 0, None)]))] {
        let mut image = Image::of_bytes(&bytes, &processors(&["gfx90a"]));
        assert!(sizes(&mut image, "k").is_ok());
        assert_eq!(sizes(&mut image, "other"), Err(Unknown::NoSuchKernel));
    }
}

/// Returns the argument sizes of a kernel on a device. They must not depend on the code kept for other
/// devices.
fn on_device(bytes: &[u8], name: &str, device: &str) -> Result<Vec<u32>, Unknown> {
    let of = |devices: &[&str]| {
        let mut image = Image::of_bytes(bytes, &processors(devices));
        sizes_on(&mut image, name, Some(device))
    };
    let alone = of(&[device]);
    for others in [&[][..], &[device, "gfx1100"], &["gfx906", device], &[device, "gfx90a:sramecc+:xnack-"]] {
        assert_eq!(of(others), alone, "{name} on {device} beside {others:?}");
    }
    alone
}

#[test]
fn entry_of_the_device_decides() {
    let first = code(&[("same", &[4, 8]), ("differs", &[4]), ("first only", &[1])]);
    let second = code(&[("same", &[4, 8]), ("differs", &[8])]);
    let bytes = bundle(&[(HOST, b""), (GFX90A, &first), (GFX1100, &second)]);
    let differs = |device| on_device(&bytes, "differs", device);
    assert_eq!(differs("gfx90a:sramecc+:xnack-"), Ok(vec![4]));
    assert_eq!(differs("gfx1100"), Ok(vec![8]));
    assert_eq!(differs("gfx90a:sramecc-:xnack-"), Err(Unknown::NoEntry));
    assert_eq!(differs("gfx942"), Err(Unknown::NoEntry), "the device has no code of its own");
    assert_eq!(on_device(&bytes, "first only", "gfx1100"), Err(Unknown::NoSuchKernel));
    // Code that no device takes is not kept.
    let mut image = Image::of_bytes(&bytes, &processors(&["gfx1100", "gfx942"]));
    assert_eq!(image.entries.as_ref().map(Vec::len), Ok(1));
    assert_eq!(sizes(&mut image, "differs"), Ok(vec![8]));
    // While the device is not known all entries must agree.
    let mut any = Image::of_bytes(&bytes, &Processors::ANY);
    assert_eq!(sizes(&mut any, "same"), Ok(vec![4, 8]));
    assert_eq!(sizes(&mut any, "differs"), Err(Unknown::EntriesDiffer));
    assert_eq!(sizes(&mut any, "first only"), Ok(vec![1]));
    assert_eq!(sizes(&mut any, "none"), Err(Unknown::NoSuchKernel));
}

#[test]
fn features_and_generic_targets_decide_as_in_the_runtime() {
    let [on, off, generic, own, spirv] = [1, 2, 3, 4, 5].map(|size| code(&[("k", &[size])]));
    let bytes = bundle(&[
        ("hipv4-amdgcn-amd-amdhsa--gfx11-generic", &generic),
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+", &on),
        (SPIRV, &spirv),
        ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", &off),
        ("hipv4-amdgcn-amd-amdhsa--gfx1101", &own),
    ]);
    for (device, expected) in [
        ("gfx90a:sramecc+:xnack+", Ok(vec![1])),
        ("gfx90a:sramecc+:xnack-", Ok(vec![2])),
        ("gfx90a", Err(Unknown::NoEntry)),
        ("gfx1100", Ok(vec![3])),
        ("gfx1101", Ok(vec![4])),
        ("gfx1201", Err(Unknown::NoEntry)),
    ] {
        assert_eq!(on_device(&bytes, "k", device), expected, "{device}");
    }
    // Compilers never make two entries for one device: such entries count if they agree.
    let twice = |second: &[u8]| {
        let bytes = bundle(&[(GFX90A, &on), ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", second)]);
        on_device(&bytes, "k", "gfx90a:sramecc+:xnack-")
    };
    assert_eq!((twice(&on), twice(&off)), (Ok(vec![1]), Err(Unknown::EntriesDiffer)));
}

#[test]
fn code_that_the_runtime_compiles_counts_unless_machine_code_fits() {
    let known = code(&[("k", &[4])]);
    let bytes = bundle(&[(GFX90A, &known), (SPIRV, b"\x03\x02\x23\x07")]);
    assert_eq!(on_device(&bytes, "k", "gfx90a:sramecc+:xnack-"), Ok(vec![4]));
    assert_eq!(on_device(&bytes, "k", "gfx1100"), Err(Unknown::NoEntry));
    assert_eq!(sizes(&mut Image::of_bytes(&bytes, &Processors::ANY), "k"), Err(Unknown::UnknownFormat));
}

#[test]
fn unusable_code_gives_its_reason() {
    let reason = |bytes: &[u8]| Image::of_bytes(bytes, &Processors::ANY).kernel(b"k", None).unwrap_err();
    assert_eq!(reason(b""), Unknown::UnknownFormat);
    assert_eq!(reason(b"CCOB...."), Unknown::Compressed, "of an unknown version");
    assert_eq!(reason(b"\x7fELF"), Unknown::Malformed);
    let whole = code(&[("k", &[4])]);
    let mut other = whole.clone();
    other[18] = 62;
    assert_eq!(reason(&other), Unknown::UnknownFormat, "code for the host");
    let mut without = whole.clone();
    without[64 + 2 * 56] = 1;
    assert_eq!(reason(&without), Unknown::NoMetadata);
    for length in 5..whole.len() - 4 {
        let _ = reason(&whole[..length]);
    }
    assert_eq!(reason(&bundle(&[])), Unknown::NoSuchKernel);
}

#[test]
fn wrapper_leads_to_its_payload() {
    let payload = bundle(&[(GFX90A, &code(&[("k", &[4])]))]);
    let mut wrapper =
        Wrapper { magic: WRAPPER, version: 1, payload: payload.as_ptr(), reserved: ptr::null() };
    // SAFETY: the wrapper and its payload live until the end of the test.
    let of = |wrapper: *const Wrapper| unsafe { Image::of_wrapper(wrapper.cast(), &Processors::ANY) };
    assert_eq!(sizes(&mut of(&wrapper), "k"), Ok(vec![4]));
    wrapper.magic += 1;
    assert_eq!(sizes(&mut of(&wrapper), "k"), Err(Unknown::UnknownFormat));
    wrapper = Wrapper { magic: WRAPPER, payload: ptr::null(), ..wrapper };
    assert_eq!(sizes(&mut of(&wrapper), "k"), Err(Unknown::UnknownFormat));
    assert_eq!(sizes(&mut of(ptr::null()), "k"), Err(Unknown::UnknownFormat));
    assert_eq!(sizes(&mut of(ptr::without_provenance(1)), "k"), Err(Unknown::UnknownFormat));
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

#[test]
fn file_counts_only_if_unchanged_since_it_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("code");
    let bytes = bundle(&[(GFX90A, &code(&[("k", &[4])])), (GFX1100, &code(&[("k", &[4])]))]);
    std::fs::write(&path, &bytes).unwrap();
    let read = || Image::of_file(&c_path(&path), &processors(&["gfx1100"]));
    let mut image = read();
    image.settle();
    assert_eq!(sizes(&mut image, "k"), Ok(vec![4]));

    let mut image = read();
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    image.settle();
    assert_eq!(sizes(&mut image, "k"), Err(Unknown::Changed));

    let mut image = read();
    std::fs::remove_file(&path).unwrap();
    image.settle();
    assert_eq!(sizes(&mut image, "k"), Err(Unknown::Changed));
    assert_eq!(sizes(&mut read(), "k"), Err(Unknown::Unreadable));
    assert_eq!(
        sizes(&mut Image::of_file(&c_path(folder.path()), &Processors::ANY), "k"),
        Err(Unknown::Unreadable)
    );

    // Nothing is read from a pipe, and the open does not wait for a writer.
    let pipe = c_path(&folder.path().join("pipe"));
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    assert_eq!(sizes(&mut Image::of_file(&pipe, &Processors::ANY), "k"), Err(Unknown::Unreadable));
}

/// Memory that ends exactly at an inaccessible page.
struct Guarded {
    mapping: *mut u8,
    size: usize,
    length: usize,
}

impl Guarded {
    fn new(bytes: &[u8]) -> Self {
        const PAGE: usize = 4096;
        let size = bytes.len().next_multiple_of(PAGE) + PAGE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapping = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(mapping, libc::MAP_FAILED);
        // SAFETY: the last page of the new mapping, to which no reference exists.
        assert_eq!(unsafe { libc::mprotect(mapping.byte_add(size - PAGE), PAGE, libc::PROT_NONE) }, 0);
        let this = Self { mapping: mapping.cast(), size, length: bytes.len() };
        // SAFETY: the bytes fit in front of the guard page.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), this.start(), bytes.len()) };
        this
    }

    fn start(&self) -> *mut u8 {
        self.mapping.wrapping_add(self.size - 4096 - self.length)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping, and no reference into it is left.
        unsafe { libc::munmap(self.mapping.cast(), self.size) };
    }
}

#[test]
fn memory_is_read_up_to_its_end_only() {
    for args in 0..5 {
        let alone = code(&[("k", &vec![4; args])]);
        let sections = unlinked(&note(vec![kernel_value("k", 4, Some(vec![arg(0, 4, "by_value")]))]));
        let both = bundle(&[(GFX90A, &alone), (GFX1100, &sections[..])]);
        for bytes in [&alone, &sections, &bundle(&[(GFX90A, &alone)]), &both] {
            let memory = Guarded::new(bytes);
            // SAFETY: the code object is complete, and so are all ranges that its headers name.
            let mut image = unsafe { Image::of_memory(memory.start().cast(), &Processors::ANY) };
            let known = sizes(&mut image, "k");
            assert!(known.is_ok() || (known == Err(Unknown::EntriesDiffer) && bytes == &both), "{known:?}");
        }
    }
    for bytes in [&b"CCOB\x04\0\0\0"[..], b"none", b"BC\xc0\xde", b"__CL____", b"__CLANG_OFFLOAD_BUNDLE_\0"] {
        let memory = Guarded::new(bytes);
        // SAFETY: there are four bytes, and no header that names more than there is.
        let mut image = unsafe { Image::of_memory(memory.start().cast(), &Processors::ANY) };
        assert!(image.kernel(b"k", None).is_err());
    }
}

/// A source that records which ranges are read.
#[derive(Clone, Copy)]
struct Watched<'a> {
    bytes: &'a [u8],
    reads: &'a RefCell<Vec<Range<u64>>>,
}

impl<'a> ReadRef<'a> for Watched<'a> {
    fn len(self) -> Result<u64, ()> {
        Ok(source::MAX_EXTENT)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.reads.borrow_mut().push(offset..offset.saturating_add(size));
        self.bytes.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, _: Range<u64>, _: u8) -> Result<&'a [u8], ()> {
        panic!("nobody knows where that ends")
    }
}

fn number(bytes: &[u8], at: u64, size: usize) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let mut number = [0; 8];
    number[..size].copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
    Some(u64::from_le_bytes(number))
}

/// Collects the ranges that the headers of a code object at `base` name, by the format's specification.
fn named_by_elf(bytes: &[u8], base: u64, named: &mut Vec<Range<u64>>) -> Option<()> {
    let range = |at: u64, size: u64| at..at.saturating_add(size);
    named.push(range(base, 64));
    let field = |at: u64, size: usize| number(bytes, base.checked_add(at)?, size);
    for (at, count, size, offset_at, size_at) in [(32, 56, 56, 8, 32), (40, 60, 64, 24, 32)] {
        let (at, count) = (field(at, 8)?, field(count, 2)?);
        // The count can be in the first section.
        let count = if size == 64 && count == 0 && at != 0 {
            named.push(range(base.saturating_add(at), 64));
            field(at.checked_add(32)?, 8).unwrap_or(0)
        } else {
            count
        };
        named.push(range(base.saturating_add(at), count.saturating_mul(size)));
        for index in 0..count.min(100_000) {
            let Some(header) = at.checked_add(index * size) else { continue };
            if let (Some(offset), Some(size)) = (field(header + offset_at, 8), field(header + size_at, 8)) {
                named.push(range(base.saturating_add(offset), size));
            }
        }
    }
    Some(())
}

/// Returns the ranges that the headers of a bundle or code object name.
fn named(bytes: &[u8]) -> Vec<Range<u64>> {
    let mut named = Vec::new();
    named.push(0..4);
    if bytes.starts_with(b"\x7fELF") {
        named_by_elf(bytes, 0, &mut named);
    }
    if bytes.starts_with(b"CCOB") {
        // The header's length depends on its version; it is followed by the whole size that it names.
        named.extend([4..6, 6..8]);
        let (size, at) = if number(bytes, 4, 2) == Some(3) { (8, 16) } else { (4, 12) };
        named.extend([8..8 + size, at..at + size, at + size..at + size + 8]);
        named.push(0..number(bytes, 8, size as usize).unwrap_or(0));
    }
    for word in 0..6 {
        if bytes.get(..word * 4) == Some(&b"__CLANG_OFFLOAD_BUNDLE__"[..word * 4]) {
            named.push(0..word as u64 * 4 + 4);
        }
    }
    if bytes.starts_with(b"__CLANG_OFFLOAD_BUNDLE__") {
        named.push(24..32);
        let mut at = 32;
        for _ in 0..number(bytes, 24, 8).unwrap_or(0).min(100) {
            named.push(at..at + 24);
            let (Some(offset), Some(size), Some(length)) =
                (number(bytes, at, 8), number(bytes, at + 8, 8), number(bytes, at + 16, 8))
            else {
                break;
            };
            named.push(at + 24..(at + 24).saturating_add(length));
            named.push(offset..offset.saturating_add(size));
            at = (at + 24).saturating_add(length);
        }
    }
    named
}

fn reads_only_what_is_named(bytes: &[u8]) {
    let reads = RefCell::default();
    let mut image = Image::read(Watched { bytes, reads: &reads }, &Processors::ANY);
    let _ = image.kernel(b"k", None);
    let named = named(bytes);
    for read in reads.into_inner() {
        let covered = named.iter().any(|range| range.start <= read.start && read.end <= range.end);
        assert!(covered || read.is_empty(), "{read:?} is in none of {named:?}");
    }
}

#[test]
fn reads_of_valid_code_stay_within_the_named_ranges() {
    let alone = code(&[("k", &[4])]);
    reads_only_what_is_named(&alone);
    reads_only_what_is_named(&unlinked(&note(vec![])));
    reads_only_what_is_named(&bundle(&[(HOST, b""), (GFX90A, &alone), (SPIRV, b"abcd")]));
}

/// Generates a code object or bundle with some bytes changed.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let kernels = vec![kernel_value("k", 16, Some(vec![arg(0, 8, "by_value"), arg(8, 8, "hidden_none")]))];
    let note = note(kernels);
    let (linked, unlinked) = (elf(&note), unlinked(&note));
    let bundle = bundle(&[(HOST, b""), (GFX90A, &linked), (GFX1100, &unlinked)]);
    let change = (any::<prop::sample::Index>(), prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(1)]);
    // Most changes hit the headers at the front.
    let changes = prop::collection::vec((change, any::<bool>()), 0..8);
    (prop::sample::select(vec![linked, unlinked, bundle]), changes).prop_map(|(mut bytes, changes)| {
        for ((at, byte), front) in changes {
            let end = if front { 256 } else { bytes.len() };
            bytes[at.index(end)] = byte;
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn reads_of_damaged_code_stay_within_the_named_ranges(bytes in damaged()) {
        reads_only_what_is_named(&bytes);
    }

    #[test]
    fn damaged_code_of_known_length_is_read_up_to_its_end_only(bytes in damaged(), cut in any::<prop::sample::Index>()) {
        let memory = Guarded::new(&bytes[..cut.index(bytes.len() + 1)]);
        // SAFETY: so many bytes lie in front of the guard page.
        let bytes = unsafe { std::slice::from_raw_parts(memory.start(), memory.length) };
        let _ = Image::of_bytes(bytes, &Processors::ANY).kernel(b"k", None);
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..500), magic in 0..3) {
        let magic: &[u8] = [&b""[..], b"\x7fELF\x02\x01\x01", b"__CLANG_OFFLOAD_BUNDLE__\x02\0\0\0\0\0\0\0"][magic as usize];
        let bytes = [magic, &bytes[..]].concat();
        reads_only_what_is_named(&bytes);
    }

    /// For any bundle: the kernel of one device does not depend on the other devices, and is that of the best
    /// fitting entries.
    #[test]
    fn kernel_of_a_device_is_independent_of_other_devices_and_entries(
        entries in prop::collection::vec((prop::sample::select(TARGETS.to_vec()), 1_u32..4), 0..8),
        device in prop::sample::select(DEVICES.to_vec()),
        others in prop::collection::vec(prop::sample::select(DEVICES.to_vec()), 0..4),
    ) {
        let codes: Vec<_> = entries.iter().map(|(_, size)| code(&[("k", &[*size])])).collect();
        let named: Vec<_> = entries.iter().zip(&codes).map(|((name, _), code)| (*name, &code[..])).collect();
        let bytes = bundle(&named);
        let target = Target::parse(device);
        let fits = |wanted| {
            let fitting = entries.iter().filter(move |(name, _)| Target::parse(name).fit(&Target::parse(device)) == wanted);
            let mut sizes: Vec<u32> = fitting.map(|(_, size)| *size).collect();
            sizes.sort_unstable();
            sizes.dedup();
            sizes
        };
        let expected = match (&fits(Fit::Own)[..], &fits(Fit::Generic)[..]) {
            ([one], _) | ([], [one]) => Ok(vec![*one]),
            ([], []) => Err(Unknown::NoEntry),
            _ => Err(Unknown::EntriesDiffer),
        };
        let mut image = Image::of_bytes(&bytes, &processors(&[&[device][..], &others].concat()));
        prop_assert_eq!(sizes_on(&mut image, "k", Some(device)), expected, "{:?}", target);
    }
}

const TARGETS: &[&str] = &[
    HOST,
    SPIRV,
    GFX90A,
    GFX1100,
    "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-",
    "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-",
    "hipv4-amdgcn-amd-amdhsa--gfx9-4-generic",
    "hipv4-amdgcn-amd-amdhsa--gfx11-generic",
];
const DEVICES: &[&str] =
    &["gfx90a:sramecc+:xnack-", "gfx942:sramecc+:xnack-", "gfx942:sramecc+:xnack+", "gfx1100", "gfx1030"];
