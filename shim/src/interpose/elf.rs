//! Loaded objects: their definitions and references, read from their dynamic sections.
//!
//! The library exports `dlsym` and `dlvsym`, so it cannot call either to find the real ones: it would find
//! itself. Also, an auditor (`LD_AUDIT`) may change the dynamic linker's answers for the runtime's functions.
//! Nothing here allocates, takes a lock of the library, or needs a constructor to have run.

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

/// Finds the first definition of `name` in the objects after this library in the order of look-up.
pub(crate) fn find_after_us(name: &CStr) -> Option<NonNull<c_void>> {
    find_after_us_if(name, &|_| true)
}

/// Finds the definition of a function of libc: the first one after this library, or the first one of all if this library was
/// loaded last, by `dlopen`.
pub(crate) fn find_of_libc(name: &CStr) -> Option<NonNull<c_void>> {
    find_after_us(name).or_else(|| {
        let mut found = None;
        for_each_object(|info, headers| {
            if !contains(info.dlpi_addr, headers, find_after_us as *const () as u64) {
                found = definition_in(info.dlpi_addr, headers, name);
            }
            found.is_some()
        });
        found
    })
}

/// Finds the first definition of `name` that `accepts` accepts in the objects after this library.
pub(crate) fn find_after_us_if(
    name: &CStr,
    accepts: &dyn Fn(NonNull<c_void>) -> bool,
) -> Option<NonNull<c_void>> {
    // Asked behind the iteration, because `accepts` may call the dynamic linker.
    (0..).map_while(|skipped| definition_after_us(name, skipped)).find(|&found| accepts(found))
}

/// Finds a definition of `name` in the objects after this library, behind so many others.
fn definition_after_us(name: &CStr, mut skipped: usize) -> Option<NonNull<c_void>> {
    let (mut past_us, mut found) = (false, None);
    for_each_object(|info, headers| {
        if !past_us {
            past_us = contains(info.dlpi_addr, headers, find_after_us as *const () as u64);
            return false;
        }
        found = definition_in(info.dlpi_addr, headers, name);
        if found.is_some() && skipped != 0 {
            (found, skipped) = (None, skipped - 1);
        }
        found.is_some()
    });
    found
}

fn definition_in(bias: u64, headers: &[Elf64_Phdr], name: &CStr) -> Option<NonNull<c_void>> {
    definitions_in(bias, headers)?.find(name)
}

pub(crate) fn definitions_in(bias: u64, headers: &[Elf64_Phdr]) -> Option<Definitions> {
    Definitions::at(bias, dynamic_section(bias, headers)?)
}

/// Calls `visit` with the description and the program headers of each loaded object, until it returns true.
///
/// The dynamic linker holds a lock meanwhile that `dlopen` takes behind another one. `visit` must not call a function that
/// takes that other one, such as `dladdr`, `dlsym` or `dlopen`: a thread inside `dlopen` and this one would wait for each
/// other.
pub(crate) fn for_each_object<F: FnMut(&dl_phdr_info, &[Elf64_Phdr]) -> bool>(mut visit: F) {
    unsafe extern "C" fn call<F: FnMut(&dl_phdr_info, &[Elf64_Phdr]) -> bool>(
        info: *mut dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: libc passes a valid description for the time of the call, whose headers are null or an
        // array of this length that stays mapped. `data` is `visit` below, which nothing else uses during the
        // iteration.
        unsafe {
            let (info, visit) = (&*info, &mut *data.cast::<F>());
            let headers = match info.dlpi_phdr.is_null() {
                true => &[],
                false => slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
            };
            c_int::from(visit(info, headers))
        }
    }
    // SAFETY: the callback has the type that libc wants, and `visit` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(call::<F>), ptr::from_mut(&mut visit).cast()) };
}

/// Returns true if one of the object's segments contains the address.
pub(crate) fn contains(bias: u64, headers: &[Elf64_Phdr], address: u64) -> bool {
    headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
        let start = bias.wrapping_add(header.p_vaddr);
        (start..start.wrapping_add(header.p_memsz)).contains(&address)
    })
}

fn dynamic_section(bias: u64, headers: &[Elf64_Phdr]) -> Option<*const Dyn> {
    let header = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    Some(bias.wrapping_add(header.p_vaddr) as *const Dyn)
}

/// Visits the words of the initial data of the object that contains this address, with their addresses. A
/// constant that has an address of the object is among them, because the dynamic linker writes it.
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
                // SAFETY: the word is aligned, in a segment that stays mapped for reading as long as the
                // object is loaded. The program may write it meanwhile, but callers use only constants.
                visit(place, unsafe { place.read_volatile() });
            }
        }
    });
}

pub(crate) fn contains_both(one: *const c_void, other: *const c_void) -> bool {
    let mut both = false;
    with_headers(one, &mut |bias, headers| both = contains(bias, headers, other.addr() as u64));
    both
}

/// Calls `body` with the load address and the headers of the object that contains this address.
fn with_headers(inside: *const c_void, body: &mut dyn FnMut(u64, &[Elf64_Phdr])) {
    for_each_object(|info, headers| {
        let is_it = contains(info.dlpi_addr, headers, inside.addr() as u64);
        if is_it {
            body(info.dlpi_addr, headers);
        }
        is_it
    });
}

/// Returns the number of objects that the process has loaded since its beginning.
pub(crate) fn loaded_so_far() -> u64 {
    let mut loaded = 0;
    for_each_object(|info, _| {
        loaded = info.dlpi_adds;
        true
    });
    loaded
}

/// The public part of the dynamic linker's description of a loaded object (`struct link_map`).
#[repr(C)]
struct LinkMap {
    bias: u64,
    _name: *const c_char,
    dynamic: *const Dyn,
    _next: *mut c_void,
    previous: *mut c_void,
}

/// Returns the description of the object before this one. Only for the libraries that the process was started
/// with.
pub(crate) fn previous(map: *const c_void) -> Option<*mut c_void> {
    // SAFETY: the first members of a link map are public, and the objects before a library of the start are
    // never unloaded.
    let previous = unsafe { (*map.cast::<LinkMap>()).previous };
    (!previous.is_null()).then_some(previous)
}

/// A reference of a loaded object to a symbol: the word that has the symbol's address.
pub(crate) struct Reference<'a> {
    pub(crate) name: &'a CStr,
    /// The object's own definition of the symbol.
    pub(crate) own: Option<*const c_void>,
    slot: *mut *const c_void,
}

impl Reference<'_> {
    fn word(&self) -> &AtomicPtr<c_void> {
        // SAFETY: the slot lies in an object that stays loaded during the visit, and other threads only read
        // it.
        unsafe { AtomicPtr::from_ptr(self.slot.cast()) }
    }

    /// Returns the address to which it leads.
    pub(crate) fn value(&self) -> *const c_void {
        self.word().load(Ordering::Acquire)
    }

    /// Makes it lead to another address, for all threads at once. The page may be read-only.
    pub(crate) fn set(&self, address: *const c_void) {
        // SAFETY: the call takes and returns a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let start = (self.slot.addr() & !(page - 1)) as *mut c_void;
        let Some(protection) = protection_of(self.slot.addr()) else { return };
        let writable = protection | libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the page is mapped, and gets more access rights until they are restored below.
        if protection & libc::PROT_WRITE == 0 && unsafe { libc::mprotect(start, page, writable) } != 0 {
            return;
        }
        self.word().store(address.cast_mut(), Ordering::Release);
        if protection & libc::PROT_WRITE == 0 {
            // SAFETY: the page is mapped, and gets its former access rights.
            unsafe { libc::mprotect(start, page, protection) };
        }
    }
}

/// Returns the access rights of the page at an address.
fn protection_of(address: usize) -> Option<c_int> {
    protection_in(&std::fs::read_to_string("/proc/self/maps").ok()?, address)
}

/// Returns the access rights at an address in a list of mappings: each line has a range, rights, and perhaps
/// a path.
fn protection_in(maps: &str, address: usize) -> Option<c_int> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let bound = |text| usize::from_str_radix(text, 16).ok();
        if !(bound(start)?..bound(end)?).contains(&address) {
            return None;
        }
        let letters = rest.split(' ').next()?.as_bytes();
        let rights = [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)];
        Some(rights.iter().filter(|(letter, _)| letters.contains(letter)).map(|(_, right)| right).sum())
    })
}

const DT_PLTRELSZ: i64 = 2;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;
/// The relocations of an address with an addend, of the global offset table, and of the procedure linkage
/// table.
const R_X86_64_64: u64 = 1;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

/// Visits the references of an object to symbols. `map` is the dynamic linker's description of a loaded
/// object.
pub(crate) fn for_each_reference(map: *const c_void, mut visit: impl FnMut(Reference<'_>)) {
    // SAFETY: the first members of a link map are public, and the object stays loaded during the visit.
    let &LinkMap { bias, dynamic, .. } = unsafe { &*map.cast::<LinkMap>() };
    if dynamic.is_null() {
        return;
    }
    let value_of = |wanted| dynamic_value(dynamic, wanted);
    let address_of = |tag| value_of(tag).map(|value| relocated(bias, value));
    let (Some(symbols), Some(strings)) = (address_of(DT_SYMTAB), address_of(DT_STRTAB)) else { return };
    for (table, size) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
        let (Some(table), Some(size)) = (address_of(table), value_of(size)) else { continue };
        // SAFETY: the dynamic section has the table's address and its size in bytes; the object is mapped.
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
            // SAFETY: a relocation has an index into the symbol table, and a symbol's name is an offset into
            // the string table, which ends every string with a NUL. Both are mapped as long as the object is
            // loaded.
            let (symbol, name) = unsafe {
                let symbol = &*(symbols as *const Elf64_Sym).add(index as usize);
                (symbol, CStr::from_ptr((strings as *const c_char).add(symbol.st_name as usize)))
            };
            let own = (symbol.st_shndx != 0).then(|| bias.wrapping_add(symbol.st_value) as *const c_void);
            visit(Reference {
                name,
                own,
                slot: bias.wrapping_add(relocation.r_offset) as *mut *const c_void,
            });
        }
    }
}

/// Returns the value of a tag in a loaded object's dynamic section.
fn dynamic_value(dynamic: *const Dyn, wanted: i64) -> Option<u64> {
    let mut entry = dynamic;
    loop {
        // SAFETY: the dynamic section of a loaded object is mapped and ends with DT_NULL, at which this loop
        // stops.
        let Dyn { tag, value } = unsafe { entry.read() };
        if tag == DT_NULL || tag == wanted {
            return (tag == wanted).then_some(value);
        }
        entry = entry.wrapping_add(1);
    }
}

/// Returns the address of a value in a dynamic section. glibc has relocated these values in place, except in
/// objects that it does not write to, such as the vDSO.
fn relocated(bias: u64, value: u64) -> u64 {
    if value < bias { bias.wrapping_add(value) } else { value }
}

#[derive(Clone, Copy)]
pub(crate) struct Definitions {
    bias: u64,
    symbols: *const Elf64_Sym,
    strings: *const c_char,
    gnu_hash: Option<GnuHash>,
    /// The older hash table: the numbers of buckets and symbols, then both.
    hash: Option<*const u32>,
    /// The version of each symbol.
    versions: Option<*const u16>,
    /// The names of versions.
    version_names: Option<*const VersionDefinition>,
}

/// `Elf64_Verdef`: a version that an object defines. Its names follow at an offset of `first_name` bytes.
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

/// The flag of the version that denotes the object itself.
const VER_FLG_BASE: u16 = 1;
/// The bit in the version of a definition that is found only by that version.
const HIDDEN: u16 = 0x8000;
/// The type of a symbol whose value is the address of a function that returns the symbol's address.
const STT_GNU_IFUNC: u8 = 10;

impl Definitions {
    /// Returns the definitions of a loaded object, from the dynamic linker's description.
    pub(crate) fn of(map: *const c_void) -> Option<Self> {
        // SAFETY: the first members of a link map are public, and the caller has checked that the object is
        // loaded.
        let &LinkMap { bias, dynamic, .. } = unsafe { &*map.cast::<LinkMap>() };
        if dynamic.is_null() { None } else { Self::at(bias, dynamic) }
    }

    fn at(bias: u64, dynamic: *const Dyn) -> Option<Self> {
        let address =
            |tag| dynamic_value(dynamic, tag).filter(|value| *value != 0).map(|value| relocated(bias, value));
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

    /// Returns the definition of a name that a look-up without a version finds: of the default version, else
    /// of any. Ignores symbols whose address only a function returns.
    pub(crate) fn find(&self, name: &CStr) -> Option<NonNull<c_void>> {
        if let Some(table) = &self.gnu_hash {
            return self.best(table.candidates(gnu_hash(name)), name);
        }
        let count = self.hash.map_or(0, |table| {
            // SAFETY: the table begins with two numbers, and is mapped as long as the object is loaded.
            unsafe { table.add(1).read() }
        });
        // Such objects are not made any more, so this need not be fast.
        self.best(1..count, name)
    }

    fn best(&self, candidates: impl Iterator<Item = u32>, name: &CStr) -> Option<NonNull<c_void>> {
        let mut hidden = None;
        for index in candidates {
            // SAFETY: a hash table has only indices into the symbol table, which is mapped as long as the
            // object is loaded.
            let symbol = unsafe { &*self.symbols.add(index as usize) };
            if symbol.st_shndx == 0
                || symbol.st_info & 0xf == STT_GNU_IFUNC
                || self.string(symbol.st_name) != name
            {
                continue;
            }
            let found = NonNull::new(self.bias.wrapping_add(symbol.st_value) as *mut c_void);
            let version = self.versions.map_or(0, |versions| {
                // SAFETY: the table has an entry for each symbol, and is mapped as long as the object is
                // loaded.
                unsafe { versions.add(index as usize).read() }
            });
            if version & HIDDEN == 0 {
                return found;
            }
            hidden = hidden.or(found);
        }
        hidden
    }

    fn string(&self, offset: u32) -> &CStr {
        // SAFETY: a name is an offset into the string table, which ends every string with a NUL and is mapped
        // as long as the object is loaded.
        unsafe { CStr::from_ptr(self.strings.add(offset as usize)) }
    }

    /// Returns true if the object defines a version whose name begins with this prefix.
    pub(crate) fn has_version(&self, prefix: &str) -> bool {
        let mut next = self.version_names;
        while let Some(place) = next {
            let bytes = place.cast::<u8>();
            // SAFETY: the definition is one of the section's list, which is mapped as long as the object is
            // loaded. Its names follow at its offset, each of which begins with an offset into the string
            // table.
            let (definition, name) = unsafe {
                let definition = &*place;
                (definition, bytes.add(definition.first_name as usize).cast::<u32>().read())
            };
            let has_prefix = self.string(name).to_bytes().starts_with(prefix.as_bytes());
            if definition.flags & VER_FLG_BASE == 0 && has_prefix {
                return true;
            }
            // The offset of the next definition is 0 at the end.
            next = (definition.next != 0).then(|| bytes.wrapping_add(definition.next as usize).cast());
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
    /// Returns the symbols with this hash value. The lowest bit is not compared, because it ends a chain.
    fn candidates(&self, wanted: u32) -> impl Iterator<Item = u32> {
        let word = |index: usize| {
            // SAFETY: the index lies in the table, whose header has the sizes and whose chains end at a set
            // bit. The table is mapped as long as the object is loaded.
            unsafe { self.words.add(index).read() }
        };
        let (buckets, first, bloom) = (word(0), word(1), word(2));
        // The filter's words have 64 bits.
        let buckets_at = 4 + 2 * bloom as usize;
        let chains_at = buckets_at + buckets as usize;
        let mut next = match wanted.checked_rem(buckets) {
            Some(bucket) => word(buckets_at + bucket as usize),
            None => 0,
        };
        std::iter::from_fn(move || {
            // An empty bucket has 0; symbols below `first` are not hashed.
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
