//! Finding a symbol in a loaded object by reading its dynamic section.
//!
//! The shim exports `dlsym` and `dlvsym`, so that it cannot ask either for the real ones: the name would lead back to
//! itself. And what the dynamic linker says of the runtime's functions may not be where they are: an auditor (`LD_AUDIT`)
//! changes the answer of `dlsym` too. Nothing here allocates, takes a lock of ours, or needs a constructor to have run.

use libc::{Elf64_Phdr, Elf64_Rela, Elf64_Sym, dl_phdr_info};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering};

/// An entry of the dynamic section (`Elf64_Dyn`).
#[repr(C)]
#[derive(Clone, Copy)]
struct Dyn {
    tag: i64,
    value: u64,
}

const DT_NULL: i64 = 0;
const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const DT_VERSYM: i64 = 0x6fff_fff0;
const DT_VERDEF: i64 = 0x6fff_fffc;

/// What the search carries from object to object.
struct Search<'a> {
    name: &'a CStr,
    /// Whether the object that contains this code has been passed.
    past_us: bool,
    /// Whether a definition is one to be found.
    counts: &'a dyn Fn(NonNull<c_void>) -> bool,
    found: Option<NonNull<c_void>>,
}

/// The first definition of `name` in the objects that come after this library in the order of look-up.
pub(crate) fn find_after_us(name: &CStr) -> Option<NonNull<c_void>> {
    find_after_us_if(name, &|_| true)
}

/// The same of those that count.
pub(crate) fn find_after_us_if(
    name: &CStr,
    counts: &dyn Fn(NonNull<c_void>) -> bool,
) -> Option<NonNull<c_void>> {
    let mut search = Search { name, past_us: false, counts, found: None };
    // SAFETY: the callback has the type that libc wants, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_into), ptr::from_mut(&mut search).cast()) };
    search.found
}

unsafe extern "C" fn look_into(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: libc passes a valid object description for the time of the call.
    let info = unsafe { &*info };
    // SAFETY: `data` is what `find_after_us` passed, and nothing else uses it during the iteration.
    let search = unsafe { &mut *data.cast::<Search<'_>>() };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: a loaded object's program headers are an array of this length that stays mapped.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    if !search.past_us {
        search.past_us = contains(info.dlpi_addr, headers, look_into as *const () as u64);
        return 0;
    }
    search.found = dynamic_section(info.dlpi_addr, headers)
        .and_then(|dynamic| Definitions::at(info.dlpi_addr, dynamic))
        .and_then(|definitions| definitions.find(search.name))
        .filter(|&found| (search.counts)(found));
    c_int::from(search.found.is_some())
}

/// Whether one of the object's segments contains the address.
fn contains(bias: u64, headers: &[Elf64_Phdr], address: u64) -> bool {
    headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
        let start = bias.wrapping_add(header.p_vaddr);
        (start..start.wrapping_add(header.p_memsz)).contains(&address)
    })
}

fn dynamic_section(bias: u64, headers: &[Elf64_Phdr]) -> Option<*const Dyn> {
    let header = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    Some(bias.wrapping_add(header.p_vaddr) as *const Dyn)
}

/// Visits the words of the data that the object containing this address was loaded with, with their addresses, until `visit` has
/// seen all of them. What holds an address of the object's own, a constant too, is among them: the dynamic linker writes there.
pub(crate) fn for_each_word(inside: *const c_void, visit: &mut dyn FnMut(*const u64, u64)) {
    with_headers(inside, &mut |bias, headers| {
        let is_data = |header: &&Elf64_Phdr| {
            header.p_type == libc::PT_LOAD
                && header.p_flags & (libc::PF_R | libc::PF_W) == libc::PF_R | libc::PF_W
        };
        for header in headers.iter().filter(is_data) {
            let start = bias.wrapping_add(header.p_vaddr);
            let end = start.wrapping_add(header.p_filesz);
            for address in (start.next_multiple_of(8)..end & !7).step_by(8) {
                let place = address as *const u64;
                // SAFETY: an aligned word of a segment that stays mapped for reading as long as the object is loaded. It is the
                // program's, which may write to it meanwhile; whatever value is seen counts only if it is a constant's.
                visit(place, unsafe { place.read_volatile() });
            }
        }
    });
}

/// Whether the object that contains the one address contains the other as well.
pub(crate) fn contains_both(one: *const c_void, other: *const c_void) -> bool {
    let mut both = false;
    with_headers(one, &mut |bias, headers| both = contains(bias, headers, other.addr() as u64));
    both
}

/// Calls `body` with where the object that contains this address is loaded, and its headers.
fn with_headers(inside: *const c_void, body: &mut dyn FnMut(u64, &[Elf64_Phdr])) {
    struct Wanted<'a> {
        inside: u64,
        body: &'a mut dyn FnMut(u64, &[Elf64_Phdr]),
    }
    unsafe extern "C" fn look(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: libc passes a valid object description for the time of the call.
        let info = unsafe { &*info };
        // SAFETY: `data` is the structure below, and nothing else uses it during the iteration.
        let wanted = unsafe { &mut *data.cast::<Wanted<'_>>() };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: a loaded object's program headers are an array of this length that stays mapped.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        if !contains(info.dlpi_addr, headers, wanted.inside) {
            return 0;
        }
        (wanted.body)(info.dlpi_addr, headers);
        1
    }
    let mut wanted = Wanted { inside: inside.addr() as u64, body };
    // SAFETY: the callback has the type that libc wants, and `wanted` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), ptr::from_mut(&mut wanted).cast()) };
}

/// How many objects the process has loaded since its beginning.
pub(crate) fn loaded_so_far() -> u64 {
    unsafe extern "C" fn look(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
        // SAFETY: libc passes a valid description for the time of the call.
        let adds = unsafe { (*info).dlpi_adds };
        // SAFETY: `data` is the number below.
        unsafe { *data.cast::<u64>() = adds };
        1
    }
    let mut loaded = 0_u64;
    // SAFETY: the callback has the type that libc wants, and the number outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), ptr::from_mut(&mut loaded).cast()) };
    loaded
}

/// How the dynamic linker describes a loaded object to debuggers (`struct link_map`), as far as everybody may read it.
#[repr(C)]
struct LinkMap {
    bias: u64,
    _name: *const c_char,
    dynamic: *const Dyn,
    _next: *mut c_void,
    previous: *mut c_void,
}

/// The description of the object that was loaded before this one. Only for the libraries that the process began with.
pub(crate) fn previous(map: *const c_void) -> Option<*mut c_void> {
    // SAFETY: the first members of a link map are public, and what comes before a library that stays was loaded with it.
    let previous = unsafe { (*map.cast::<LinkMap>()).previous };
    (!previous.is_null()).then_some(previous)
}

/// The place of an address in a loaded object that the dynamic linker has filled in: what a symbol was bound to.
pub(crate) struct Reference<'a> {
    pub(crate) name: &'a CStr,
    /// The object's own definition of the symbol.
    pub(crate) own: Option<*const c_void>,
    slot: *mut *const c_void,
}

impl Reference<'_> {
    fn word(&self) -> &AtomicPtr<c_void> {
        // SAFETY: the slot is one of a loaded object, which stays so during the visit, and other threads only read it.
        unsafe { AtomicPtr::from_ptr(self.slot.cast()) }
    }

    /// What it leads to now.
    pub(crate) fn value(&self) -> *const c_void {
        self.word().load(Ordering::Acquire)
    }

    /// Makes it lead somewhere else, for all threads at once. The page may have been made read-only after it was filled.
    pub(crate) fn set(&self, address: *const c_void) {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let start = (self.slot.addr() & !(page - 1)) as *mut c_void;
        let Some(protection) = protection_of(self.slot.addr()) else { return };
        let writable = protection | libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapped page of a loaded object; it gets back what it had below, and more rights harm nobody meanwhile.
        if protection & libc::PROT_WRITE == 0 && unsafe { libc::mprotect(start, page, writable) } != 0 {
            return;
        }
        self.word().store(address.cast_mut(), Ordering::Release);
        if protection & libc::PROT_WRITE == 0 {
            // SAFETY: as above.
            unsafe { libc::mprotect(start, page, protection) };
        }
    }
}

/// The rights of the page at an address, as the kernel lists them.
fn protection_of(address: usize) -> Option<c_int> {
    protection_in(&std::fs::read_to_string("/proc/self/maps").ok()?, address)
}

/// The same in such a list: lines of a range, its rights, and perhaps a path at the end.
fn protection_in(maps: &str, address: usize) -> Option<c_int> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        if !(bound(start)?..bound(end)?).contains(&address) {
            return None;
        }
        let said = rest.split(' ').next()?;
        let rights = [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)];
        Some(
            rights
                .iter()
                .filter(|(letter, _)| said.as_bytes().contains(letter))
                .map(|(_, right)| right)
                .sum(),
        )
    })
}

const DT_PLTRELSZ: i64 = 2;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
/// An address with an addend, a slot of the global offset table, and one of the procedure linkage table.
const R_X86_64_64: u64 = 1;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

/// Visits the references of an object to functions by name. `map` is its description by the dynamic linker.
pub(crate) fn for_each_reference(map: *const c_void, mut visit: impl FnMut(Reference<'_>)) {
    // SAFETY: the first members of a link map are public, and the object stays loaded during the visit.
    let &LinkMap { bias, dynamic, .. } = unsafe { &*map.cast::<LinkMap>() };
    if dynamic.is_null() {
        return;
    }
    let value_of = |wanted: i64| {
        let mut entry = dynamic;
        loop {
            // SAFETY: the dynamic section of a loaded object is mapped and ends with DT_NULL, at which this loop stops.
            let Dyn { tag, value } = unsafe { *entry };
            if tag == DT_NULL || tag == wanted {
                return (tag == wanted).then_some(value);
            }
            // SAFETY: the entry was not DT_NULL, so that another one follows.
            entry = unsafe { entry.add(1) };
        }
    };
    let address_of =
        |tag| value_of(tag).map(|value| if value < bias { bias.wrapping_add(value) } else { value });
    let (Some(symbols), Some(strings)) = (address_of(DT_SYMTAB), address_of(DT_STRTAB)) else { return };
    for (table, size) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
        let (Some(table), Some(size)) = (address_of(table), value_of(size)) else { continue };
        // SAFETY: the dynamic section gives the table's place and its size in bytes; it is mapped as the object is.
        let relocations = unsafe {
            slice::from_raw_parts(table as *const Elf64_Rela, size as usize / size_of::<Elf64_Rela>())
        };
        for relocation in relocations {
            let (kind, index) = (relocation.r_info & 0xffff_ffff, relocation.r_info >> 32);
            let plain = matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT)
                || kind == R_X86_64_64 && relocation.r_addend == 0;
            if !plain || index == 0 {
                continue;
            }
            // SAFETY: a relocation names an index of the symbol table.
            let symbol = unsafe { (symbols as *const Elf64_Sym).add(index as usize) };
            // SAFETY: as above, and the table is mapped as long as the object is.
            let symbol = unsafe { &*symbol };
            // SAFETY: a symbol's name is an offset into the string table.
            let name = unsafe { (strings as *const c_char).add(symbol.st_name as usize) };
            // SAFETY: the string table ends every string with a NUL.
            let name = unsafe { CStr::from_ptr(name) };
            let own = (symbol.st_shndx != 0).then(|| bias.wrapping_add(symbol.st_value) as *const c_void);
            visit(Reference {
                name,
                own,
                slot: bias.wrapping_add(relocation.r_offset) as *mut *const c_void,
            });
        }
    }
}

/// What a loaded object defines: where its dynamic section says that its tables are.
#[derive(Clone, Copy)]
pub(crate) struct Definitions {
    bias: u64,
    symbols: *const Elf64_Sym,
    strings: *const c_char,
    gnu_hash: Option<GnuHash>,
    /// The older table of the same: how many buckets and symbols, then both.
    hash: Option<*const u32>,
    /// Each symbol's version.
    versions: Option<*const u16>,
    /// The names of versions.
    version_names: Option<*const VersionDefinition>,
}

/// `Elf64_Verdef`: a version that an object defines. Its names follow, `first_name` bytes behind it.
#[repr(C)]
struct VersionDefinition {
    _format: u16,
    flags: u16,
    _index: u16,
    _names: u16,
    _hash: u32,
    first_name: u32,
    next: u32,
}

/// The version that stands for the object itself.
const VER_FLG_BASE: u16 = 1;
/// Set in the version of a definition that is only there for who asks for that version.
const HIDDEN: u16 = 0x8000;
/// A symbol whose value is the address of a function that says where the function is.
const STT_GNU_IFUNC: u8 = 10;

impl Definitions {
    /// Those of an object, by its description by the dynamic linker, as long as it is loaded.
    pub(crate) fn of(map: *const c_void) -> Option<Self> {
        // SAFETY: the first members of a link map are public, and the caller asks about an object that is loaded.
        let &LinkMap { bias, dynamic, .. } = unsafe { &*map.cast::<LinkMap>() };
        if dynamic.is_null() { None } else { Self::at(bias, dynamic) }
    }

    fn at(bias: u64, dynamic: *const Dyn) -> Option<Self> {
        // glibc has relocated these values in place, except in objects that it does not write to, such as the vDSO.
        let relocate = |value: u64| if value < bias { bias.wrapping_add(value) } else { value };
        let address = |wanted: i64| {
            let mut entry = dynamic;
            loop {
                // SAFETY: the dynamic section of a loaded object is mapped and ends with DT_NULL, at which this loop stops.
                let Dyn { tag, value } = unsafe { *entry };
                if tag == DT_NULL || tag == wanted {
                    return (tag == wanted && value != 0).then(|| relocate(value));
                }
                // SAFETY: the entry was not DT_NULL, so that another one follows.
                entry = unsafe { entry.add(1) };
            }
        };
        Some(Self {
            bias,
            symbols: address(DT_SYMTAB)? as *const Elf64_Sym,
            strings: address(DT_STRTAB)? as *const c_char,
            gnu_hash: address(DT_GNU_HASH).map(|table| GnuHash { words: table as *const u32 }),
            hash: address(DT_HASH).map(|table| table as *const u32),
            versions: address(DT_VERSYM).map(|table| table as *const u16),
            version_names: address(DT_VERDEF).map(|table| table as *const VersionDefinition),
        })
    }

    /// Where this name is defined, as who asks for no version finds it: by the version that is in force for new programs, else
    /// by any. Nothing where only calling something would tell.
    pub(crate) fn find(&self, name: &CStr) -> Option<NonNull<c_void>> {
        if let Some(table) = &self.gnu_hash {
            return self.best(table.candidates(gnu_hash(name)), name);
        }
        let count = self.hash.map_or(0, |table| {
            // SAFETY: the table begins with two numbers, the second one that of all symbols.
            let place = unsafe { table.add(1) };
            // SAFETY: as above, and mapped as long as the object is.
            unsafe { place.read() }
        });
        // Nobody makes such objects any more, so this need not be fast.
        self.best(1..count, name)
    }

    fn best(&self, candidates: impl Iterator<Item = u32>, name: &CStr) -> Option<NonNull<c_void>> {
        let mut hidden = None;
        for index in candidates {
            // SAFETY: a hash table names only indices of the symbol table.
            let symbol = unsafe { self.symbols.add(index as usize) };
            // SAFETY: as above, and the table is mapped as long as the object is.
            let symbol = unsafe { &*symbol };
            if symbol.st_shndx == 0
                || symbol.st_info & 0xf == STT_GNU_IFUNC
                || self.string(symbol.st_name) != name
            {
                continue;
            }
            let found = NonNull::new(self.bias.wrapping_add(symbol.st_value) as *mut c_void);
            let version = self.versions.map_or(0, |versions| {
                // SAFETY: the table has an entry for each symbol.
                let place = unsafe { versions.add(index as usize) };
                // SAFETY: as above, and mapped as long as the object is.
                unsafe { place.read() }
            });
            if version & HIDDEN == 0 {
                return found;
            }
            hidden = hidden.or(found);
        }
        hidden
    }

    fn string(&self, offset: u32) -> &CStr {
        // SAFETY: a name is an offset into the string table.
        let string = unsafe { self.strings.add(offset as usize) };
        // SAFETY: the string table ends every string with a NUL, and is mapped as long as the object is.
        unsafe { CStr::from_ptr(string) }
    }

    /// Whether the object defines a version whose name begins so.
    pub(crate) fn has_version(&self, prefix: &str) -> bool {
        let mut next = self.version_names;
        while let Some(place) = next {
            // SAFETY: the section's list, mapped as long as the object is; each entry says where the next one is.
            let definition = unsafe { &*place };
            let bytes = place.cast::<u8>();
            // SAFETY: the names follow their definition.
            let name = unsafe { bytes.add(definition.first_name as usize) };
            // SAFETY: as above; a name begins with an offset into the string table.
            let name = self.string(unsafe { name.cast::<u32>().read() });
            if definition.flags & VER_FLG_BASE == 0 && name.to_bytes().starts_with(prefix.as_bytes()) {
                return true;
            }
            // SAFETY: as above.
            next = (definition.next != 0).then(|| unsafe { bytes.add(definition.next as usize) }.cast());
        }
        false
    }
}

/// The hash table of an object (`DT_GNU_HASH`): four words, a bloom filter, buckets, chains.
#[derive(Clone, Copy)]
struct GnuHash {
    words: *const u32,
}

impl GnuHash {
    /// The symbols whose hash value is this one, up to the lowest bit, which ends a chain.
    fn candidates(&self, wanted: u32) -> impl Iterator<Item = u32> {
        let word = |index: usize| {
            // SAFETY: callers stay inside the table: its header gives the sizes, and a chain ends at a set bit.
            let place = unsafe { self.words.add(index) };
            // SAFETY: as above, and the table is mapped as long as the object is.
            unsafe { place.read() }
        };
        let (buckets, first, bloom) = (word(0), word(1), word(2));
        // Words of the filter are 64 bits wide.
        let buckets_at = 4 + 2 * bloom as usize;
        let chains_at = buckets_at + buckets as usize;
        let mut next = match wanted.checked_rem(buckets) {
            Some(bucket) => word(buckets_at + bucket as usize),
            None => 0,
        };
        std::iter::from_fn(move || {
            // A bucket that is empty holds 0; symbols below `first` are not hashed.
            while next >= first && next != 0 {
                let index = next;
                let hash = word(chains_at + (index - first) as usize);
                next = if hash & 1 == 1 { 0 } else { index + 1 };
                if hash | 1 == wanted | 1 {
                    return Some(index);
                }
            }
            None
        })
    }
}

fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
}

#[cfg(test)]
mod tests;
