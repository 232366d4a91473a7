//! The code object of the kernel that workers register with the null runtime: an ELF file with metadata and
//! no instructions. The library reads from it how many bytes each argument has.

pub(super) const KERNEL: &str = "_Z5scalePKfPfS0_mm";

/// The number of its arguments: three addresses and two numbers.
pub(super) const ARGUMENTS: usize = 5;

const BYTES: usize = 8;

/// Returns the code object ("User Guide for AMDGPU Backend": code objects of version 4, their note and its
/// MessagePack content).
pub(super) fn object() -> Vec<u8> {
    let note = note(&metadata());
    let mut elf = vec![0; 64];
    elf[..9].copy_from_slice(b"\x7fELF\x02\x01\x01\x40\x02");
    put(&mut elf, 16, 3_u16.to_le_bytes());
    put(&mut elf, 18, 224_u16.to_le_bytes());
    put(&mut elf, 20, 1_u32.to_le_bytes());
    // The only program header describes the note.
    put(&mut elf, 32, 64_u64.to_le_bytes());
    put(&mut elf, 52, 64_u16.to_le_bytes());
    put(&mut elf, 54, 56_u16.to_le_bytes());
    put(&mut elf, 56, 1_u16.to_le_bytes());
    put(&mut elf, 58, 64_u16.to_le_bytes());
    let mut segment = vec![0; 56];
    put(&mut segment, 0, 4_u32.to_le_bytes());
    put(&mut segment, 4, 4_u32.to_le_bytes());
    put(&mut segment, 8, 120_u64.to_le_bytes());
    put(&mut segment, 32, (note.len() as u64).to_le_bytes());
    put(&mut segment, 40, (note.len() as u64).to_le_bytes());
    put(&mut segment, 48, 4_u64.to_le_bytes());
    [elf, segment, note].concat()
}

fn put<const N: usize>(bytes: &mut [u8], at: usize, value: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&value);
}

/// Returns the padded note NT_AMDGPU_METADATA of the owner "AMDGPU".
fn note(content: &[u8]) -> Vec<u8> {
    let mut note = Vec::new();
    for number in [7, content.len() as u32, 32] {
        note.extend(u32::to_le_bytes(number));
    }
    note.extend(b"AMDGPU\0\0");
    note.extend(content);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

fn metadata() -> Vec<u8> {
    let argument = |index: usize| {
        let kind = if index < 3 { "global_buffer" } else { "by_value" };
        map(&[(".offset", number(index * BYTES)), (".size", number(BYTES)), (".value_kind", text(kind))])
    };
    let kernel = map(&[
        (".args", array((0..ARGUMENTS).map(argument))),
        (".kernarg_segment_size", number(ARGUMENTS * BYTES)),
        (".name", text(KERNEL)),
        (".symbol", text(&format!("{KERNEL}.kd"))),
    ]);
    map(&[("amdhsa.kernels", array([kernel])), ("amdhsa.version", array([number(1), number(1)]))])
}

/// Returns a small map as MessagePack, as the functions below return small arrays, strings and numbers.
fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0x80 | entries.len() as u8];
    for (key, value) in entries {
        bytes.extend(text(key));
        bytes.extend(value);
    }
    bytes
}

fn array(items: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let items: Vec<_> = items.into_iter().collect();
    let mut bytes = vec![0x90 | items.len() as u8];
    bytes.extend(items.concat());
    bytes
}

fn text(text: &str) -> Vec<u8> {
    assert!(text.len() < 32, "the value does not fit the short form");
    let mut bytes = vec![0xa0 | text.len() as u8];
    bytes.extend(text.as_bytes());
    bytes
}

fn number(number: usize) -> Vec<u8> {
    assert!(number < 128, "the value does not fit the short form");
    vec![number as u8]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_lies_where_the_header_says() {
        let object = object();
        assert_eq!(object.len() % 4, 0);
        assert_eq!(&object[120 + 12..][..7], b"AMDGPU\0");
        let size = u64::from_le_bytes(object[64 + 32..][..8].try_into().unwrap());
        assert_eq!(120 + size as usize, object.len());
    }

    #[test]
    fn small_values_have_their_short_form() {
        assert_eq!(map(&[("a", number(5))]), [0x81, 0xa1, b'a', 5]);
        assert_eq!(array([text("bc"), number(127)]), [0x92, 0xa2, b'b', b'c', 127]);
    }
}
