//! The name and argument layout of a kernel, from the code object that the runtime loaded into device memory.
//!
//! The first segment of a loaded code object contains its ELF header, `.note`, `.dynsym` and `.dynstr`. A
//! backward scan can find an unrelated header, so that a name counts only if base + value of its `.kd` symbol
//! is the kernel object. A client wrote all of it, so that no value is trusted.

use rmpv::Value;

use super::names::executes;
use crate::arena::PAGE;
use crate::space::View;

/// A kernel of a loaded code object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The symbol without `.kd`.
    pub name: String,
    /// The offset and size, bytes, of each visible argument in order; empty if the kernel is not executed.
    pub args: Vec<(u64, u64)>,
}

/// The largest number of pages of a scan, of symbols, and of bytes of a note.
const MAX_SCAN: u64 = 4096;
const MAX_SYMBOLS: u64 = 1 << 16;
const MAX_NOTE: u64 = 16 << 20;

const PT_DYNAMIC: u32 = 2;
const PT_NOTE: u32 = 4;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const NT_AMDGPU_METADATA: u32 = 32;

impl Kernel {
    /// Returns the kernel whose descriptor is at `object`, or `None` if no loaded code object contains it.
    pub fn find(view: &View<'_>, object: u64) -> Option<Self> {
        let (start, _) = view.space.find(object)?;
        let mut base = object / PAGE * PAGE;
        for _ in 0..MAX_SCAN {
            if base < start {
                return None;
            }
            if let Some(kernel) = in_image(view, base, object) {
                return Some(kernel);
            }
            base = base.checked_sub(PAGE)?;
        }
        None
    }
}

fn in_image(view: &View<'_>, base: u64, object: u64) -> Option<Kernel> {
    let header = view.bytes::<64>(base).ok()?;
    if header.array(0) != [0x7f, b'E', b'L', b'F', 2] {
        return None;
    }
    let headers_at = base.checked_add(header.u64(32))?;
    let entry_size = u64::from(header.u16(54));
    let count = u64::from(header.u16(56));
    let mut dynamic = None;
    let mut notes = Vec::new();
    for i in 0..count {
        let entry = view.bytes::<56>(headers_at.checked_add(i * entry_size)?).ok()?;
        let at = base.checked_add(entry.u64(16))?;
        let size = entry.u64(40);
        match entry.u32(0) {
            PT_DYNAMIC => dynamic = Some((at, size)),
            PT_NOTE => notes.push((at, size)),
            _ => {}
        }
    }
    let name = symbol(view, base, object, dynamic?)?;
    let plain = name.strip_suffix(".kd")?.to_owned();
    // The metadata of a library takes megabytes, too much to read under the machine's lock.
    let mut layouts = notes.iter().filter(|_| executes(&plain));
    let args = layouts.find_map(|(at, size)| arguments(view, *at, *size, &name)).unwrap_or_default();
    Some(Kernel { name: plain, args })
}

/// Returns the name of the symbol whose value is `object`.
fn symbol(view: &View<'_>, base: u64, object: u64, (dynamic, size): (u64, u64)) -> Option<String> {
    let (mut symtab, mut strtab, mut hash) = (None, None, None);
    for i in 0..(size / 16).min(256) {
        let entry = view.bytes::<16>(dynamic.checked_add(i * 16)?).ok()?;
        // The loader may have relocated the entries; an offset is below the base.
        let value = entry.u64(8);
        let address = if value < base { base.checked_add(value)? } else { value };
        match entry.u64(0) {
            0 => break,
            DT_HASH => hash = Some(address),
            DT_STRTAB => strtab = Some(address),
            DT_SYMTAB => symtab = Some(address),
            _ => {}
        }
    }
    let (symtab, strtab) = (symtab?, strtab?);
    // The second word of DT_HASH is the number of symbols.
    let count = u64::from(view.load_u32(hash?.checked_add(4)?).ok()?).min(MAX_SYMBOLS);
    for i in 0..count {
        let entry = view.bytes::<24>(symtab.checked_add(i * 24)?).ok()?;
        if base.checked_add(entry.u64(8)) != Some(object) {
            continue;
        }
        let name = string(view, strtab.checked_add(u64::from(entry.u32(0)))?)?;
        if name.ends_with(".kd") {
            return Some(name);
        }
    }
    None
}

fn string(view: &View<'_>, at: u64) -> Option<String> {
    let mut bytes = Vec::new();
    for i in 0..4096 {
        match view.load::<1>(at + i).ok()?[0] {
            0 => return String::from_utf8(bytes).ok(),
            byte => bytes.push(byte),
        }
    }
    None
}

/// Returns the argument layout of the kernel with this symbol, from the metadata note.
fn arguments(view: &View<'_>, mut at: u64, size: u64, symbol: &str) -> Option<Vec<(u64, u64)>> {
    let end = at.checked_add(size.min(MAX_NOTE))?;
    while at.checked_add(12)? <= end {
        let head = view.bytes::<12>(at).ok()?;
        let (name_size, desc_size) = (u64::from(head.u32(0)), u64::from(head.u32(4)));
        let desc = at + 12 + name_size.div_ceil(4) * 4;
        if head.u32(8) == NT_AMDGPU_METADATA && desc_size <= MAX_NOTE {
            let mut bytes = vec![0; desc_size as usize];
            view.read(desc, &mut bytes).ok()?;
            return metadata(&bytes, symbol);
        }
        at = desc + desc_size.div_ceil(4) * 4;
    }
    None
}

/// Reads `amdhsa.kernels[].{.symbol, .args[].{.offset, .size, .value_kind}}`.
fn metadata(mut bytes: &[u8], symbol: &str) -> Option<Vec<(u64, u64)>> {
    let root = rmpv::decode::read_value_with_max_depth(&mut bytes, 16).ok()?;
    let kernels = get(&root, "amdhsa.kernels")?.as_array()?;
    let kernel = kernels.iter().find(|k| get(k, ".symbol").and_then(Value::as_str) == Some(symbol))?;
    let Some(args) = get(kernel, ".args") else { return Some(Vec::new()) };
    args.as_array()?
        .iter()
        .filter(|arg| {
            !get(arg, ".value_kind").and_then(Value::as_str).is_some_and(|kind| kind.starts_with("hidden_"))
        })
        .map(|arg| Some((get(arg, ".offset")?.as_u64()?, get(arg, ".size")?.as_u64()?)))
        .collect()
}

fn get<'a>(map: &'a Value, key: &str) -> Option<&'a Value> {
    map.as_map()?.iter().find(|(k, _)| k.as_str() == Some(key)).map(|(_, v)| v)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::testing::Memory;
    use proptest::prelude::*;

    /// Makes a loaded image with one kernel descriptor at 0x400 and its note.
    fn image(symbol: &str, note: &[u8]) -> Vec<u8> {
        let mut image = vec![0u8; 0x1000];
        let put =
            |image: &mut Vec<u8>, at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
        put(&mut image, 0, &[0x7f, b'E', b'L', b'F', 2]);
        put(&mut image, 32, &64u64.to_le_bytes());
        put(&mut image, 54, &56u16.to_le_bytes());
        put(&mut image, 56, &2u16.to_le_bytes());
        let segment = |kind: u32, at: u64, size: u64| {
            let mut bytes = [0u8; 56];
            bytes[..4].copy_from_slice(&kind.to_le_bytes());
            bytes[16..24].copy_from_slice(&at.to_le_bytes());
            bytes[40..48].copy_from_slice(&size.to_le_bytes());
            bytes
        };
        put(&mut image, 64, &segment(PT_DYNAMIC, 0x200, 64));
        put(&mut image, 120, &segment(PT_NOTE, 0x800, (note.len() + 20) as u64));
        for (i, (tag, value)) in
            [(DT_HASH, 0x280u64), (DT_SYMTAB, 0x2a0), (DT_STRTAB, 0x300)].into_iter().enumerate()
        {
            put(&mut image, 0x200 + i * 16, &tag.to_le_bytes());
            put(&mut image, 0x208 + i * 16, &value.to_le_bytes());
        }
        put(&mut image, 0x284, &2u32.to_le_bytes());
        put(&mut image, 0x2a0 + 24, &1u32.to_le_bytes());
        put(&mut image, 0x2a0 + 32, &0x400u64.to_le_bytes());
        put(&mut image, 0x301, symbol.as_bytes());
        put(&mut image, 0x800, &7u32.to_le_bytes());
        put(&mut image, 0x804, &(note.len() as u32).to_le_bytes());
        put(&mut image, 0x808, &NT_AMDGPU_METADATA.to_le_bytes());
        put(&mut image, 0x80c, b"AMDGPU\0\0");
        put(&mut image, 0x814, note);
        image
    }

    fn note(symbol: &str) -> Vec<u8> {
        let s = |text: &str| Value::from(text);
        let arg = |offset: u64, size: u64, kind: &str| {
            Value::Map(vec![
                (s(".offset"), offset.into()),
                (s(".size"), size.into()),
                (s(".value_kind"), s(kind)),
            ])
        };
        let args =
            vec![arg(0, 8, "global_buffer"), arg(8, 4, "by_value"), arg(16, 8, "hidden_global_offset_x")];
        let kernel = Value::Map(vec![(s(".symbol"), s(symbol)), (s(".args"), Value::Array(args))]);
        let root = Value::Map(vec![(s("amdhsa.kernels"), Value::Array(vec![kernel]))]);
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, &root).unwrap();
        bytes
    }

    fn find(image: &[u8], object: u64) -> Option<Kernel> {
        let memory = Memory::new(&[(0x10_0000, 0x3000)]);
        let view = memory.view();
        // An unrelated header before the image must be ignored.
        view.write(0x10_0000, &image[..64]).unwrap();
        view.write(0x10_1000, image).unwrap();
        Kernel::find(&view, object)
    }

    #[test]
    fn kernel_is_found_by_the_address_of_its_descriptor() {
        let image = image("mix.kd", &note("mix.kd"));
        let kernel = find(&image, 0x10_1400).unwrap();
        assert_eq!(kernel, Kernel { name: "mix".into(), args: vec![(0, 8), (8, 4)] });
        let other = find(&self::image("gemm.kd", &note("gemm.kd")), 0x10_1400);
        assert_eq!(
            other,
            Some(Kernel { name: "gemm".into(), args: vec![] }),
            "the arguments of a kernel that is not executed are not read"
        );
        assert_eq!(find(&image, 0x10_1440), None, "no kernel is at this address");
        assert_eq!(find(&image, 0x50_0000), None);
    }

    proptest! {
        #[test]
        fn corrupt_image_causes_no_panic(at in 0usize..0x900, bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            let mut image = image("mix.kd", &note("mix.kd"));
            image[at..at + bytes.len()].copy_from_slice(&bytes);
            let _ = find(&image, 0x10_1400);
        }
    }
}
