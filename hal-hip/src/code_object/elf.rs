//! The metadata note of an AMDGPU code object (ELF). What the note says is read in [`super::metadata`].

use crate::layout::Unknown;
use object::LittleEndian;
use object::elf::{EM_AMDGPU, FileHeader64, NoteType};
use object::read::ReadRef;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};

type Header = FileHeader64<LittleEndian>;

/// Type of the note; its name is `AMDGPU`. (Type 10 of `AMD` is the text format of code objects before version 3, which
/// no supported runtime loads.)
const NT_AMDGPU_METADATA: NoteType = NoteType(32);

/// The metadata of a large library's code object has some megabytes.
const MAX_NOTE: usize = 64 << 20;

/// A header count of this value means that the true one stands elsewhere; no code object has so many.
const COUNT_ELSEWHERE: u16 = 0xffff;

/// The bytes of the metadata note.
pub(crate) fn metadata_note<'a, R: ReadRef<'a>>(data: R) -> Result<&'a [u8], Unknown> {
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
    let segments = header.program_headers(endian, data).map_err(|_| Unknown::Malformed)?;
    for segment in segments {
        if let Some(notes) = segment.notes(endian, data).map_err(|_| Unknown::Malformed)?
            && let Some(note) = find(notes, endian)?
        {
            return Ok(note);
        }
    }
    // A code object that was not linked has no segments.
    for section in header.section_headers(endian, data).map_err(|_| Unknown::Malformed)? {
        if let Some(notes) = section.notes(endian, data).map_err(|_| Unknown::Malformed)?
            && let Some(note) = find(notes, endian)?
        {
            return Ok(note);
        }
    }
    Err(Unknown::NoMetadata)
}

fn find<'a>(mut notes: NoteIterator<'a, Header>, endian: LittleEndian) -> Result<Option<&'a [u8]>, Unknown> {
    while let Some(note) = notes.next().map_err(|_| Unknown::Malformed)? {
        if note.n_type(endian) == NT_AMDGPU_METADATA && note.name() == b"AMDGPU" {
            return if note.desc().len() > MAX_NOTE { Err(Unknown::TooLarge) } else { Ok(Some(note.desc())) };
        }
    }
    Ok(None)
}
