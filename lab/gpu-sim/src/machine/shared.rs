//! Memory that several processes share by a name: `kfd_ipc.c` of AMD's packaged driver (amdgpu-dkms).
//!
//! The memory is freed when its last process frees it or ends. Until then it counts once, and its name is
//! valid.

use std::collections::HashMap;

use super::process::Allocation;

/// The names of shared memory.
#[derive(Debug, Default)]
pub struct Shared {
    /// The shared memory, by offset in the arena.
    memory: HashMap<u64, Entry>,
    offsets: HashMap<Name, u64>,
}

/// The name of memory: random, so that a process can import only memory whose name it was given.
type Name = [u32; 4];

#[derive(Debug)]
struct Entry {
    name: Name,
    allocation: Allocation,
    flags: u32,
    users: usize,
}

impl Shared {
    /// Returns the name of the memory at this offset; `flags` are for the importing processes. `None` if the
    /// system has no random numbers.
    pub fn export(&mut self, offset: u64, allocation: Allocation, flags: u32) -> Option<Name> {
        if let Some(entry) = self.memory.get(&offset) {
            return Some(entry.name);
        }
        let name = random_name()?;
        self.memory.insert(offset, Entry { name, allocation, flags, users: 1 });
        self.offsets.insert(name, offset);
        Some(name)
    }

    /// Returns offset, allocation and flags of the memory with this name.
    pub fn find(&self, name: Name) -> Option<(u64, Allocation, u32)> {
        let offset = *self.offsets.get(&name)?;
        let entry = self.memory.get(&offset)?;
        Some((offset, entry.allocation, entry.flags))
    }

    /// Records another allocation at this offset.
    pub fn add_user(&mut self, offset: u64) {
        if let Some(entry) = self.memory.get_mut(&offset) {
            entry.users += 1;
        }
    }

    /// Removes an allocation at this offset. Returns true if it was the last one.
    pub fn remove_user(&mut self, offset: u64) -> bool {
        let Some(entry) = self.memory.get_mut(&offset) else { return true };
        entry.users -= 1;
        let last = entry.users == 0;
        if last {
            self.offsets.remove(&entry.name);
            self.memory.remove(&offset);
        }
        last
    }
}

fn random_name() -> Option<Name> {
    let mut name = Name::default();
    let size = size_of::<Name>();
    // SAFETY: the call writes at most `size` bytes to `name`, which has that size and accepts any bytes.
    let got = unsafe { libc::getrandom(name.as_mut_ptr().cast(), size, 0) };
    (got == size.cast_signed()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_valid_until_the_last_process_frees_the_memory() {
        let mut shared = Shared::default();
        let memory =
            Allocation { gpu: 0, va: 0x1000, size: 4096, offset: Some(8192), vram: true, imported: false };
        let name = shared.export(8192, memory, 7).unwrap();
        assert_eq!(shared.export(8192, memory, 9), Some(name), "a second export returns the same name");
        let other = Allocation { offset: Some(0), ..memory };
        assert_ne!(shared.export(0, other, 0), Some(name));
        shared.add_user(8192);
        assert!(!shared.remove_user(8192), "the exporter frees it first");
        let (offset, found, flags) = shared.find(name).unwrap();
        assert_eq!((offset, found.size, flags), (8192, 4096, 7));
        assert!(shared.remove_user(8192));
        assert!(shared.find(name).is_none());
        assert!(shared.remove_user(8192), "memory that was never exported has one user");
    }
}
