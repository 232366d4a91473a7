//! Tests with the loaded objects of this process, compared with the real look-up, and with images made by
//! hand, which lack or have parts that no linker makes.

use super::*;

const BIND: u64 = 0x40;

#[test]
fn finds_what_dlsym_finds() {
    for name in [c"dlvsym", c"dlsym", c"malloc", c"pthread_create"] {
        // SAFETY: the handle is a pseudo handle, and the name is a C string.
        let expected = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        let found = find_after_us(name).map_or(ptr::null_mut(), NonNull::as_ptr);
        assert!(!expected.is_null());
        assert_eq!(found, expected, "{name:?}");
    }
    assert_eq!(find_after_us(c"no_such_function_anywhere"), None);
}

#[test]
fn hashes_as_the_dynamic_linker_does() {
    assert_eq!(gnu_hash(c""), 5381);
    assert_eq!(gnu_hash(c"printf"), 0x156b_2bb8);
}

/// An object's memory, with everything at an offset from its start.
struct Image {
    words: Vec<u64>,
    dynamic: Vec<(i64, u64)>,
    /// True if the dynamic section has absolute addresses, as glibc leaves them, and not offsets, as in the
    /// vDSO.
    relocated: bool,
}

const DYNAMIC: usize = 0;
const SYMBOLS: usize = 256;
const STRINGS: usize = 384;
const HASH: usize = 448;
const PLT: usize = 512;
const RELA: usize = 544;
const SLOTS: usize = 768;

impl Image {
    /// `imported` is undefined; `first` and `second` are defined at 0x40 and 0x48.
    fn new() -> Self {
        let (addresses, numbers) = (
            [
                (DT_SYMTAB, SYMBOLS),
                (DT_STRTAB, STRINGS),
                (DT_GNU_HASH, HASH),
                (DT_JMPREL, PLT),
                (DT_RELA, RELA),
            ],
            [(DT_PLTRELSZ, 24), (DT_RELASZ, 5 * 24)],
        );
        let dynamic = addresses.into_iter().chain(numbers).map(|(tag, value)| (tag, value as u64));
        let mut image = Self { words: vec![0; 128], dynamic: dynamic.collect(), relocated: true };
        for (index, (name, section, value)) in
            [(0, 0, 0), (1, 0, 0), (10, 1, BIND), (16, 1, BIND + 8)].into_iter().enumerate()
        {
            // The name, with the section from the 48th bit on, and the value.
            image.put(SYMBOLS + 24 * index, name | section << 48);
            image.put(SYMBOLS + 24 * index + 8, value);
        }
        for (place, byte) in b"\0imported\0first\0second\0".iter().enumerate() {
            image.words[(STRINGS + place) / 8] |= u64::from(*byte) << (8 * (place % 8));
        }
        image.hash([1, 2, 1, 0], &[2], &[gnu_hash(c"first") & !1, gnu_hash(c"second") | 1]);
        image.relocation(PLT, 0, R_X86_64_JUMP_SLOT, 1, 0);
        image.relocation(RELA, 1, R_X86_64_GLOB_DAT, 2, 0);
        image.relocation(RELA + 24, 2, R_X86_64_64, 1, 0);
        // An address with an addend, one without a symbol, and a relocation that is no address.
        image.relocation(RELA + 48, 3, R_X86_64_64, 1, 8);
        image.relocation(RELA + 72, 4, 8, 0, 0);
        image.relocation(RELA + 96, 5, 18, 1, 0);
        image
    }

    fn put(&mut self, offset: usize, word: u64) {
        self.words[offset / 8] = word;
    }

    /// Writes a header, one word of a bloom filter, buckets and chains.
    fn hash(&mut self, header: [u32; 4], buckets: &[u32], chains: &[u32]) {
        let words: Vec<u32> =
            header.iter().chain(&[0, 0]).chain(buckets).chain(chains).copied().chain([0]).collect();
        for (index, pair) in words.chunks_exact(2).enumerate() {
            self.put(HASH + 8 * index, u64::from(pair[0]) | u64::from(pair[1]) << 32);
        }
    }

    fn relocation(&mut self, offset: usize, slot: u64, kind: u64, symbol: u64, addend: u64) {
        self.put(offset, SLOTS as u64 + 8 * slot);
        self.put(offset + 8, kind | symbol << 32);
        self.put(offset + 16, addend);
    }

    fn bias(&self) -> u64 {
        self.words.as_ptr().addr() as u64
    }

    /// Writes the dynamic section without the entry of this tag.
    fn dynamic_without(&mut self, tag: i64) -> *const Dyn {
        let bias = self.bias();
        let mut offset = DYNAMIC;
        for (known, value) in self.dynamic.clone() {
            if known == tag {
                continue;
            }
            let is_address = !matches!(known, DT_PLTRELSZ | DT_RELASZ);
            self.put(offset, known as u64);
            self.put(offset + 8, if is_address && self.relocated { bias + value } else { value });
            offset += 16;
        }
        self.put(offset, DT_NULL as u64);
        self.words.as_ptr().cast()
    }

    fn find(&mut self, name: &CStr, without: i64) -> Option<u64> {
        let dynamic = self.dynamic_without(without);
        let found = Definitions::at(self.bias(), dynamic)?.find(name)?;
        Some(found.as_ptr().addr() as u64 - self.bias())
    }

    /// Returns each reference's name, own definition and slot.
    fn references(&mut self, without: i64) -> Vec<(String, Option<u64>, u64)> {
        let (dynamic, bias) = (self.dynamic_without(without), self.bias());
        let (next, previous) = (ptr::null_mut(), ptr::null_mut());
        let map = LinkMap { bias, _name: ptr::null(), dynamic, _next: next, previous };
        let mut found = Vec::new();
        for_each_reference(ptr::from_ref(&map).cast(), |reference| {
            let own = reference.own.map(|own| own.addr() as u64 - bias);
            let slot = (reference.slot.addr() as u64 - bias - SLOTS as u64) / 8;
            found.push((reference.name.to_string_lossy().into_owned(), own, slot));
        });
        found
    }
}

#[test]
fn find_returns_only_defined_symbols() {
    for relocated in [true, false] {
        let mut image = Image { relocated, ..Image::new() };
        assert_eq!(image.find(c"first", 0), Some(BIND));
        assert_eq!(image.find(c"second", 0), Some(BIND + 8));
        for name in [c"imported", c"third", c"", c"firs", c"first2"] {
            assert_eq!(image.find(name, 0), None, "{name:?}");
        }
    }
}

#[test]
fn find_without_a_table_returns_none() {
    for tag in [DT_SYMTAB, DT_STRTAB, DT_GNU_HASH] {
        assert_eq!(Image::new().find(c"first", tag), None, "{tag}");
    }
    for tag in [DT_SYMTAB, DT_STRTAB] {
        assert_eq!(Image::new().references(tag), [], "{tag}");
    }
}

#[test]
fn find_copes_with_empty_or_wrong_hash_tables() {
    let first = gnu_hash(c"first");
    for (what, header, bucket, chain) in [
        ("no buckets", [0, 2, 1, 0], 2, first | 1),
        ("an empty bucket", [1, 2, 1, 0], 0, first | 1),
        ("a bucket below the hashed symbols", [1, 3, 1, 0], 2, first | 1),
        ("another name's hash", [1, 2, 1, 0], 2, first ^ 2 | 1),
    ] {
        let mut image = Image::new();
        image.hash(header, &[bucket], &[chain, 1]);
        assert_eq!(image.find(c"first", 0), None, "{what}");
    }
    // The right hash, but an undefined symbol, and a symbol of another name.
    for (index, name) in [(1, c"imported"), (3, c"first")] {
        let mut image = Image::new();
        image.hash([1, index, 1, 0], &[index], &[gnu_hash(name) | 1, 1]);
        assert_eq!(image.find(name, 0), None, "{name:?}");
    }
}

#[test]
fn references_of_an_image_are_its_slots() {
    let (imported, first) = ("imported".to_owned(), "first".to_owned());
    let all = [(imported.clone(), None, 0), (first.clone(), Some(BIND), 1), (imported.clone(), None, 2)];
    for relocated in [true, false] {
        let mut image = Image { relocated, ..Image::new() };
        assert_eq!(image.references(0), all);
    }
    assert_eq!(Image::new().references(DT_JMPREL), all[1..]);
    assert_eq!(Image::new().references(DT_PLTRELSZ), all[1..]);
    assert_eq!(Image::new().references(DT_RELA), all[..1]);
    // The table ends within an entry.
    let mut image = Image::new();
    image.dynamic.iter_mut().filter(|(tag, _)| *tag == DT_RELASZ).for_each(|(_, size)| *size = 47);
    assert_eq!(image.references(0), all[..2]);
    image.dynamic.iter_mut().filter(|(tag, _)| *tag == DT_RELASZ).for_each(|(_, size)| *size = 0);
    assert_eq!(image.references(0), all[..1]);
}

#[test]
fn references_without_dynamic_section_are_none() {
    let (dynamic, next, previous) = (ptr::null(), ptr::null_mut(), ptr::null_mut());
    let map = LinkMap { bias: 0, _name: ptr::null(), dynamic, _next: next, previous };
    for_each_reference(ptr::from_ref(&map).cast(), |_| panic!("a reference of nothing"));
    assert_eq!(super::previous(ptr::from_ref(&map).cast()), None);
    assert!(dynamic_section(0, &[]).is_none() && !contains(0, &[], 0));
}

#[test]
fn contains_covers_a_segment() {
    // SAFETY: a header consists of numbers, for which zeros are valid.
    let mut header: Elf64_Phdr = unsafe { std::mem::zeroed() };
    (header.p_type, header.p_vaddr, header.p_memsz) = (libc::PT_LOAD, 0x1000, 0x20);
    let contains = |bias, address| contains(bias, &[header], address);
    assert!(contains(0x7000, 0x8000) && contains(0x7000, 0x801f));
    assert!(!contains(0x7000, 0x7fff) && !contains(0x7000, 0x8020));
    // A segment at the end of the address space does not overflow.
    assert!(!contains(u64::MAX - 0xfff, 0x7000));
}

#[test]
fn set_keeps_a_slot_read_only() {
    // SAFETY: the call makes a new mapping.
    let page = unsafe {
        libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    assert_ne!(page, libc::MAP_FAILED);
    let reference = Reference { name: c"any", own: None, slot: page.cast::<*const c_void>().wrapping_add(3) };
    assert!(reference.value().is_null());
    reference.set(page);
    assert_eq!(reference.value(), page.cast_const());
    assert_eq!(protection_of(page.addr()), Some(libc::PROT_READ));
    // SAFETY: the page was mapped above, and nothing uses it any more.
    assert_eq!(unsafe { libc::munmap(page, 4096) }, 0);
    // An address at which nothing is ever mapped: another test's thread may have mapped the page by now.
    let nowhere = Reference { name: c"any", own: None, slot: ptr::without_provenance_mut(1 << 63) };
    assert_eq!(protection_of(nowhere.slot.addr()), None, "what is not mapped has no rights");
    nowhere.set(page);
}

#[test]
fn protection_in_returns_the_pages_rights() {
    let (on_stack, code) = (0_u8, protection_in_returns_the_pages_rights as *const () as usize);
    assert_eq!(protection_of(ptr::from_ref(&on_stack).addr()), Some(libc::PROT_READ | libc::PROT_WRITE));
    assert_eq!(protection_of(code), Some(libc::PROT_READ | libc::PROT_EXEC));
    assert_eq!(protection_of(0), None);
    // Letters of the path do not count.
    let maps = "1000-2000 ---p 00000000 fe:00 1\n2000-3000 r--p 00001000 fe:00 77 /lib/rwx/libwx.so\n\
                3000-4000 rw-p 00002000 fe:00 77 /lib/rwx/libwx.so (deleted)\nnonsense\n5000 rw-p\n6000-x r\n";
    assert_eq!(protection_in(maps, 0x1fff), Some(0));
    assert_eq!(protection_in(maps, 0x2000), Some(libc::PROT_READ));
    assert_eq!(protection_in(maps, 0x3fff), Some(libc::PROT_READ | libc::PROT_WRITE));
    assert_eq!(protection_in(maps, 0x4000), None);
    assert_eq!(protection_in("", 0x4000), None);
}
