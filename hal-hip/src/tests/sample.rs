//! Hand-made code objects for tests and benchmarks: notes, the ELF files around them, bundles.

use rmpv::Value;

/// Returns an argument as compilers describe it, with an unused key.
pub(crate) fn arg(offset: u64, size: u64, kind: &str) -> Value {
    let text = Value::from;
    Value::Map(vec![
        (text(".address_space"), text("global")),
        (text(".offset"), offset.into()),
        (text(".size"), size.into()),
        (text(".value_kind"), text(kind)),
    ])
}

/// Returns a kernel, with unused keys and types of values around it.
pub(crate) fn kernel_value(name: &str, size: u64, args: Option<Vec<Value>>) -> Value {
    let text = Value::from;
    let mut map = vec![(text(".agpr_count"), 0.into())];
    map.extend(args.map(|args| (text(".args"), Value::Array(args))));
    map.push((text(".kernarg_segment_size"), size.into()));
    map.push((text(".language_version"), Value::Array(vec![2.into(), 0.into()])));
    map.push((text(".max_flat_workgroup_size"), 256.into()));
    map.push((text(".name"), text(name)));
    map.push((text(".extension"), Value::Ext(3, vec![0; 16])));
    map.push((text(".other"), Value::Map(vec![(1.into(), Value::Binary(vec![1; 300]))])));
    Value::Map(map)
}

/// Returns the content of a metadata note.
pub(crate) fn note(kernels: Vec<Value>) -> Vec<u8> {
    let text = Value::from;
    let root = Value::Map(vec![
        (text("amdhsa.printf"), Value::Array(vec![text("1:0:%d"), Value::F64(0.5), Value::Nil])),
        (text("amdhsa.kernels"), Value::Array(kernels)),
        (text("amdhsa.version"), Value::Array(vec![1.into(), (-1).into()])),
    ]);
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, &root).expect("a vector takes all");
    bytes
}

/// Returns notes in their frames, each behind an unrelated one.
fn framed(notes: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let both = |&note| [(1_u32, b"GNU\0\0\0\0\0", &b"other"[..]), (32, b"AMDGPU\0\0", note)];
    for (kind, name, content) in notes.iter().flat_map(both) {
        let name_size = name.iter().position(|&byte| byte == 0).unwrap_or(8) as u32 + 1;
        for number in [name_size, content.len() as u32, kind] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(&name[..(name_size as usize).next_multiple_of(4)]);
        bytes.extend(content);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

fn header(segments: (u64, u16), sections: (u64, u16)) -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x40");
    elf[16] = 3;
    elf[18] = 224;
    elf[20] = 1;
    elf[32..40].copy_from_slice(&segments.0.to_le_bytes());
    elf[40..48].copy_from_slice(&sections.0.to_le_bytes());
    for (at, value) in [(52, 64), (54, 56), (56, segments.1), (58, 64), (60, sections.1)] {
        elf[at..at + 2].copy_from_slice(&u16::to_le_bytes(value));
    }
    elf
}

/// Returns a code object with this note in a segment, at its end and behind segments of other types.
pub(crate) fn elf(note: &[u8]) -> Vec<u8> {
    elf_of(&[note])
}

/// Returns a code object linked from several, with their notes one behind the other.
pub(crate) fn elf_of(notes: &[&[u8]]) -> Vec<u8> {
    let note = framed(notes);
    let mut elf = header((64, 3), (0, 0));
    for (kind, offset, size) in [(6_u32, 64_u64, 168_u64), (1, 0, 232), (4, 232, note.len() as u64)] {
        let mut segment = [0; 56];
        segment[..4].copy_from_slice(&kind.to_le_bytes());
        segment[8..16].copy_from_slice(&offset.to_le_bytes());
        segment[32..40].copy_from_slice(&size.to_le_bytes());
        segment[48] = 4;
        elf.extend(segment);
    }
    elf.extend(note);
    elf
}

/// Returns a code object without segments: the note is in a section, and the section headers are at the end.
pub(crate) fn unlinked(note: &[u8]) -> Vec<u8> {
    let note = framed(&[note]);
    let mut elf = header((0, 0), (64 + note.len() as u64, 2));
    elf.extend(&note);
    let mut section = [0; 64];
    elf.extend(section);
    section[4] = 7;
    section[24] = 64;
    section[32..40].copy_from_slice(&(note.len() as u64).to_le_bytes());
    section[48] = 4;
    elf.extend(section);
    elf
}

/// Returns a bundle of these targets and their code, one directly after the other.
pub(crate) fn bundle(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    bytes.extend((entries.len() as u64).to_le_bytes());
    let mut at = 32 + entries.iter().map(|(target, _)| 24 + target.len()).sum::<usize>();
    for (target, code) in entries {
        for number in [at, code.len(), target.len()] {
            bytes.extend((number as u64).to_le_bytes());
        }
        bytes.extend(target.as_bytes());
        at += code.len();
    }
    entries.iter().for_each(|(_, code)| bytes.extend(*code));
    bytes
}

/// Returns a code object with kernels of these names and packed arguments of these sizes.
pub(crate) fn code(kernels: &[(&str, &[u32])]) -> Vec<u8> {
    let values = kernels.iter().map(|(name, sizes)| {
        let mut end = 0_u64;
        let args = sizes.iter().map(|&size| {
            end += u64::from(size);
            arg(end - u64::from(size), size.into(), "by_value")
        });
        let args = args.collect();
        kernel_value(name, end, Some(args))
    });
    elf(&note(values.collect()))
}
