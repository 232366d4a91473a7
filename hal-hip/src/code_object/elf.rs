//! The metadata notes of an AMDGPU code object (ELF). [`super::metadata`] parses their content.

use crate::layout::Unknown;
use object::LittleEndian;
use object::elf::{EM_AMDGPU, FileHeader64, NoteType};
use object::read::ReadRef;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};

type Header = FileHeader64<LittleEndian>;

/// The type of the note, whose name is `AMDGPU`. (Type 10 of `AMD` is the text format of code objects before
/// version 3, which no supported runtime loads.)
const NT_AMDGPU_METADATA: NoteType = NoteType(32);

/// The most bytes of all notes together. The metadata of a large library's code object has some megabytes.
const MAX_NOTES: usize = 64 << 20;

/// The header count which means that the true count is elsewhere; no code object has so many.
const COUNT_ELSEWHERE: u16 = 0xffff;

/// The metadata notes found so far.
#[derive(Default)]
struct Found<'a> {
    notes: Vec<&'a [u8]>,
    /// The length of all notes together, in bytes.
    length: usize,
}

/// Returns the bytes of each metadata note. A code object that was linked from several (rocBLAS's and
/// Tensile's are; `ld -r` and `lld` concatenate their note sections) has one note for each of them.
pub(crate) fn metadata_notes<'a, R: ReadRef<'a>>(data: R) -> Result<Vec<&'a [u8]>, Unknown> {
    if data.read_bytes_at(0, 4) != Ok(b"\x7fELF") {
        return Err(Unknown::UnknownFormat);
    }
    let header = Header::parse(data).map_err(|_| Unknown::Malformed)?;
    let endian = header.endian().map_err(|_| Unknown::Malformed)?;
    if header.e_machine(endian) != EM_AMDGPU {
        return Err(Unknown::UnknownFormat);
    }
    if header.e_phnum(endian) == COUNT_ELSEWHERE {
        return Err(Unknown::Malformed);
    }
    let mut found = Found::default();
    let segments = header.program_headers(endian, data).map_err(|_| Unknown::Malformed)?;
    for segment in segments {
        if let Some(notes) = segment.notes(endian, data).map_err(|_| Unknown::Malformed)? {
            collect(notes, endian, &mut found)?;
        }
    }
    // A code object that was not linked has no segments.
    if found.notes.is_empty() {
        for section in header.section_headers(endian, data).map_err(|_| Unknown::Malformed)? {
            if let Some(notes) = section.notes(endian, data).map_err(|_| Unknown::Malformed)? {
                collect(notes, endian, &mut found)?;
            }
        }
    }
    if found.notes.is_empty() { Err(Unknown::NoMetadata) } else { Ok(found.notes) }
}

fn collect<'a>(
    mut notes: NoteIterator<'a, Header>,
    endian: LittleEndian,
    found: &mut Found<'a>,
) -> Result<(), Unknown> {
    while let Some(note) = notes.next().map_err(|_| Unknown::Malformed)? {
        if note.n_type(endian) == NT_AMDGPU_METADATA && note.name() == b"AMDGPU" {
            found.length += note.desc().len();
            if found.length > MAX_NOTES {
                return Err(Unknown::TooLarge);
            }
            found.notes.push(note.desc());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::elf_of;

    #[test]
    fn notes_of_every_linked_object_are_found() {
        let notes: [&[u8]; 3] = [b"one", b"the second", b"3"];
        assert_eq!(metadata_notes(&elf_of(&notes)[..]), Ok(notes.to_vec()));
        assert_eq!(metadata_notes(&elf_of(&[])[..]), Err(Unknown::NoMetadata));
    }
}
