//! Reads cubins: ELF files for the machine `EM_CUDA`. It does not read their code.
//!
//! Sources: the ELF specification; NVIDIA, "CUDA Binary Utilities", for the names of sections (`.text.`,
//! `.nv.info.`, `.nv.shared.`, `.nv.global`, `.nv.constant3` and their kernels). NVIDIA does not document the
//! records of `.nv.info`; their layout below is what `cuobjdump -elf` prints for them.

use crate::kernels::Param;
use crate::ptx::{Entry, Image, Variable};

/// `EM_CUDA`.
const MACHINE: u16 = 190;
/// `SHT_NOBITS`: a section that has no bytes in the file.
const NO_BITS: u32 = 8;
/// `SHT_SYMTAB`.
const SYMBOLS: u32 = 2;
/// `STT_OBJECT`.
const OBJECT: u8 = 1;

/// `EIATTR_MAX_THREADS`, `EIATTR_REQNTID` and `EIATTR_KPARAM_INFO`, and the format of records with a size
/// (`EIFMT_SVAL`).
const MAX_THREADS: u8 = 0x05;
const REQUIRED_THREADS: u8 = 0x10;
const PARAMETER: u8 = 0x17;
const SIZED: u8 = 0x04;

/// The shared memory that the driver reserves before a kernel's own, from compute capability 8.0 on, in
/// bytes.
const RESERVED: usize = 1 << 10;

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?) as usize)
}

/// Returns the C string at an offset.
fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    std::str::from_utf8(&rest[..rest.iter().position(|byte| *byte == 0)?]).ok()
}

/// Returns an ELF file's length from its first 64 bytes, because compilers put the header tables last.
pub fn length(header: &[u8]) -> Option<usize> {
    let table = |begin: usize, size: usize, count: usize| {
        let bytes = usize::from(u16_at(header, size)?) * usize::from(u16_at(header, count)?);
        u64_at(header, begin)?.checked_add(bytes)
    };
    Some(table(0x20, 0x36, 0x38)?.max(table(0x28, 0x3A, 0x3C)?))
}

/// A section.
#[derive(Clone, Copy)]
struct Section<'a> {
    name: &'a str,
    kind: u32,
    bytes: &'a [u8],
    size: usize,
    link: usize,
}

fn sections(file: &[u8]) -> Option<Vec<Section<'_>>> {
    let (begin, size) = (u64_at(file, 0x28)?, usize::from(u16_at(file, 0x3A)?));
    let header = |index: usize| {
        let at = begin.checked_add(index.checked_mul(size)?)?;
        file.get(at..at.checked_add(64)?)
    };
    let content = |header: &[u8]| {
        let (at, len) = (u64_at(header, 0x18)?, u64_at(header, 0x20)?);
        file.get(at..at.checked_add(len)?)
    };
    let names = content(header(usize::from(u16_at(file, 0x3E)?))?)?;
    let one = |index: usize| {
        let header = header(index)?;
        let kind = u32_at(header, 4)?;
        let bytes = if kind == NO_BITS { &[] } else { content(header)? };
        let name = text(names, u32_at(header, 0)? as usize)?;
        Some(Section { name, kind, bytes, size: u64_at(header, 0x20)?, link: u32_at(header, 0x28)? as usize })
    };
    (0..usize::from(u16_at(file, 0x3C)?)).map(one).collect()
}

/// Reads the records about a kernel. Returns its parameters in order, and the maximum number of threads in a
/// block.
fn records(bytes: &[u8]) -> Option<(Vec<Param>, u32)> {
    let (mut params, mut threads) = (std::collections::BTreeMap::new(), 0);
    let mut at = 0;
    while at < bytes.len() {
        let (format, attribute) = (bytes[at], *bytes.get(at + 1)?);
        let value = usize::from(u16_at(bytes, at + 2)?);
        at += 4;
        if format != SIZED {
            continue;
        }
        let payload = bytes.get(at..at + value)?;
        at += value;
        match attribute {
            PARAMETER => {
                let (number, offset) = (u16_at(payload, 4)?, usize::from(u16_at(payload, 6)?));
                params.insert(number, Param { offset, size: (u32_at(payload, 8)? >> 18) as usize });
            }
            MAX_THREADS | REQUIRED_THREADS => {
                let sizes = [u32_at(payload, 0)?, u32_at(payload, 4)?, u32_at(payload, 8)?];
                threads = sizes.iter().fold(1_u32, |product, size| product.saturating_mul(*size));
            }
            _ => {}
        }
    }
    Some((params.into_values().collect(), threads))
}

/// The maximum size of a variable in bytes.
const MOST: usize = 1 << 30;

fn variables(sections: &[Section<'_>]) -> Option<Vec<Variable>> {
    let mut variables = Vec::new();
    for table in sections.iter().filter(|section| section.kind == SYMBOLS) {
        let names = sections.get(table.link)?.bytes;
        for symbol in table.bytes.chunks_exact(24) {
            let Some(section) = sections.get(usize::from(u16_at(symbol, 6)?)) else { continue };
            let data = section.name.starts_with(".nv.global") || section.name == ".nv.constant3";
            if symbol[4] & 0xF != OBJECT || !data {
                continue;
            }
            let (at, size) = (u64_at(symbol, 8)?, u64_at(symbol, 16)?);
            if size > MOST || at.checked_add(size)? > section.size {
                return None;
            }
            let bytes = if section.kind == NO_BITS {
                vec![0; size]
            } else {
                section.bytes.get(at..at + size)?.to_vec()
            };
            variables.push(Variable { name: text(names, u32_at(symbol, 0)? as usize)?.to_owned(), bytes });
        }
    }
    Some(variables)
}

/// Reads a module. `None`: it is not a valid cubin.
pub fn read(file: &[u8]) -> Option<Image> {
    if !file.starts_with(b"\x7fELF\x02\x01") || u16_at(file, 0x12)? != MACHINE {
        return None;
    }
    let sections = sections(file)?;
    // The low byte of the flags is ten times the compute capability.
    let reserved = if u32_at(file, 0x30)? & 0xFF >= 80 { RESERVED } else { 0 };
    let mut entries = Vec::new();
    for section in &sections {
        let Some(name) = section.name.strip_prefix(".text.") else { continue };
        let of = |prefix: &str| sections.iter().find(|other| other.name.strip_prefix(prefix) == Some(name));
        let (params, threads) = of(".nv.info.").map_or(Some((Vec::new(), 0)), |info| records(info.bytes))?;
        let shared = of(".nv.shared.").map_or(0, |shared| shared.size.saturating_sub(reserved));
        entries.push(Entry { name: name.to_owned(), params, threads, shared });
    }
    Some(Image { entries, variables: variables(&sections)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes an ELF file with these sections (name, type, bytes, link), and adds the section of names.
    fn elf(parts: &[(&str, u32, Vec<u8>, u32)]) -> Vec<u8> {
        let mut names = vec![0];
        let mut headers = Vec::new();
        let mut body = vec![0; 64];
        let all = parts.iter().cloned().chain([(".shstrtab", 3, Vec::new(), 0)]);
        for (name, kind, mut bytes, link) in all {
            let at = names.len() as u32;
            names.extend(name.bytes().chain([0]));
            if name == ".shstrtab" {
                bytes.clone_from(&names);
            }
            let mut header = vec![0; 64];
            header[..4].copy_from_slice(&at.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[0x18..0x20].copy_from_slice(&(body.len() as u64).to_le_bytes());
            header[0x20..0x28].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            header[0x28..0x2C].copy_from_slice(&link.to_le_bytes());
            body.extend(bytes);
            headers.push(header);
        }
        let begin = body.len() as u64;
        body[..6].copy_from_slice(b"\x7fELF\x02\x01");
        body[0x12..0x14].copy_from_slice(&MACHINE.to_le_bytes());
        body[0x28..0x30].copy_from_slice(&begin.to_le_bytes());
        body[0x3A..0x3C].copy_from_slice(&64_u16.to_le_bytes());
        body[0x3C..0x3E].copy_from_slice(&(headers.len() as u16).to_le_bytes());
        body[0x3E..0x40].copy_from_slice(&(headers.len() as u16 - 1).to_le_bytes());
        body.extend(headers.concat());
        body
    }

    fn parameter(number: u16, offset: u16, size: u32) -> Vec<u8> {
        let mut record = vec![SIZED, PARAMETER, 12, 0, 0, 0, 0, 0];
        record.extend(number.to_le_bytes());
        record.extend(offset.to_le_bytes());
        record.extend((size << 18 | 0x1f000).to_le_bytes());
        record
    }

    fn file() -> Vec<u8> {
        let info = [
            vec![SIZED, MAX_THREADS, 12, 0, 64, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0],
            vec![0x03, 0x1b, 0xff, 0],
            // The compiler writes the last parameter first.
            parameter(1, 8, 4),
            parameter(0, 0, 8),
        ];
        let mut symbol = vec![0; 24];
        symbol[..8].copy_from_slice(&[1, 0, 0, 0, 0x10 | OBJECT, 0, 3, 0]);
        symbol[8] = 4;
        symbol[16] = 8;
        elf(&[
            (".strtab", 3, b"\0table\0".to_vec(), 0),
            (".symtab", SYMBOLS, symbol, 0),
            (".text.narrow", 1, vec![0; 16], 0),
            (".nv.global.init", 1, (0..16).collect(), 0),
            (".nv.info.narrow", 0x7000_0000, info.concat(), 0),
            (".nv.shared.narrow", 1, vec![0; 100], 0),
        ])
    }

    #[test]
    fn kernels_and_variables_are_found() {
        let file = file();
        assert_eq!(length(&file), Some(file.len()));
        let image = read(&file).unwrap();
        let params = vec![Param { offset: 0, size: 8 }, Param { offset: 8, size: 4 }];
        assert_eq!(image.entries, [Entry { name: "narrow".into(), params, threads: 64, shared: 100 }]);
        assert_eq!(image.variables, [Variable { name: "table".into(), bytes: (4..12).collect() }]);
    }

    #[test]
    fn damaged_files_do_not_panic() {
        let whole = file();
        for at in 0..whole.len() {
            let _ = read(&whole[..at]);
            let mut damaged = whole.clone();
            damaged[at] = 0xFF;
            let _ = read(&damaged);
        }
    }
}
