//! Memory and events that processes share. A handle identifies a memory file by its process, its descriptor
//! there, its inode, and the range. As with CUDA, the exporting process must live when another one opens the
//! handle.

use std::ffi::c_uint;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::abi::{
    Answer, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, Handle, INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE,
    IpcHandle, OPERATING_SYSTEM,
};
use crate::allocate::drain;
use crate::device;
use crate::gate::{Out, enter};
use crate::ipc_event::SharedEvent;
use crate::memory::{self, Block, Kind, Mapping};
use crate::state::Event;

/// The first word of a handle, which tells its kind.
const MEMORY: u64 = 0x6d65_6d2d_7570_632d;
const EVENT: u64 = 0x6576_742d_7570_632d;

/// The words of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    kind: u64,
    process: u64,
    descriptor: u64,
    inode: u64,
    offset: u64,
    len: u64,
    size: u64,
    device: u64,
}

impl Words {
    fn pack(self) -> IpcHandle {
        let Words { kind, process, descriptor, inode, offset, len, size, device } = self;
        let mut bytes = [0; 64];
        let words = [kind, process, descriptor, inode, offset, len, size, device];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        IpcHandle { bytes }
    }

    /// Reads a handle of this kind.
    fn unpack(handle: &IpcHandle, kind: u64) -> Answer<Words> {
        let word = |index: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&handle.bytes[index * 8..index * 8 + 8]);
            u64::from_le_bytes(bytes)
        };
        let [process, descriptor, inode, offset, len, size, device] = [1, 2, 3, 4, 5, 6, 7].map(word);
        let words = Words { kind: word(0), process, descriptor, inode, offset, len, size, device };
        if words.kind == kind { Ok(words) } else { Err(INVALID_VALUE) }
    }

    /// Opens the other process's file, if the descriptor still refers to the handle's file and the file has
    /// the range.
    fn open(&self) -> Answer<OwnedFd> {
        if self.process == u64::from(std::process::id()) {
            // A process cannot open its own memory (documentation of cuIpcOpenMemHandle).
            return Err(INVALID_CONTEXT);
        }
        let path = format!("/proc/{}/fd/{}", self.process, self.descriptor);
        let file = std::fs::File::options().read(true).write(true).open(path).map_err(|_| INVALID_VALUE)?;
        let data = file.metadata().map_err(|_| OPERATING_SYSTEM)?;
        let end = self.offset.checked_add(self.len).ok_or(INVALID_VALUE)?;
        let page = crate::arena::PAGE as u64;
        let whole = self.offset.is_multiple_of(page) && self.len.is_multiple_of(page) && self.len > 0;
        if data.ino() != self.inode || end > data.len() || !whole || self.size > self.len {
            return Err(INVALID_VALUE);
        }
        Ok(OwnedFd::from(file))
    }
}

/// Returns an open file's inode number.
fn inode(descriptor: i32) -> Answer<u64> {
    let path = format!("/proc/self/fd/{descriptor}");
    std::fs::metadata(path).map(|data| data.ino()).map_err(|_| OPERATING_SYSTEM)
}

crate::api! {
    fn cuIpcGetMemHandle(to: Out<IpcHandle>, address: usize) {
        enter()?;
        let mapping = memory::find(address).filter(|mapping| mapping.kind == Kind::Device && mapping.pool == 0);
        let mapping = mapping.ok_or(INVALID_VALUE)?;
        let (offset, len) = mapping.block.in_file().ok_or(INVALID_VALUE)?;
        let descriptor = device::arena(mapping.device)?.file().as_raw_fd();
        let words = Words {
            kind: MEMORY,
            process: u64::from(std::process::id()),
            descriptor: descriptor as u64,
            inode: inode(descriptor)?,
            offset: offset as u64,
            len: len as u64,
            size: mapping.size as u64,
            device: mapping.device as u64,
        };
        to.set(words.pack())
    }

    /// Opens the whole allocation, even if the handle was made from an address inside it.
    fn cuIpcOpenMemHandle_v2(to: Out<usize>, handle: IpcHandle, flags: c_uint) {
        let mut call = enter()?;
        call.may_disturb()?;
        // `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS` is required.
        if flags != 1 || to.is_null() {
            return Err(INVALID_VALUE);
        }
        let words = Words::unpack(&handle, MEMORY)?;
        let file = words.open()?;
        let block = Block::import(&file, words.offset as usize, words.len as usize)?;
        let (id, size) = (call.state.number(), words.size as usize);
        let device = device::index(words.device as i32)?;
        let mapping = Mapping { block, size, kind: Kind::Imported, device, flags: 0, pool: 0, id };
        to.set(memory::insert(mapping).base())
    }

    fn cuIpcCloseMemHandle(address: usize) {
        let mut call = enter()?;
        call.may_disturb()?;
        let imported = |mapping: &Arc<Mapping>| mapping.kind == Kind::Imported && mapping.base() == address;
        memory::find(address).filter(imported).ok_or(INVALID_VALUE)?;
        drain(&mut call);
        memory::remove(address).map(|_| ()).ok_or(INVALID_VALUE)
    }

    fn cuIpcGetEventHandle(to: Out<IpcHandle>, event: Handle) {
        let call = enter()?;
        let known = call.state.events.get(&event).ok_or(INVALID_HANDLE)?;
        let Some((page, false)) = &known.shared else { return Err(INVALID_HANDLE) };
        let words = Words {
            kind: EVENT,
            process: u64::from(std::process::id()),
            descriptor: page.descriptor() as u64,
            inode: inode(page.descriptor())?,
            offset: 0,
            len: crate::arena::PAGE as u64,
            size: 0,
            device: call.device as u64,
        };
        to.set(words.pack())
    }

    fn cuIpcOpenEventHandle(to: Out<Handle>, handle: IpcHandle) {
        let mut call = enter()?;
        if to.is_null() {
            return Err(INVALID_VALUE);
        }
        let page = SharedEvent::open(Words::unpack(&handle, EVENT)?.open()?)?;
        let (own, context) = (call.state.handle(), call.context);
        let flags = EVENT_DISABLE_TIMING | EVENT_INTERPROCESS;
        let shared = Some((Arc::new(page), true));
        call.state.events.insert(own, Event { context, flags, record: None, captured: None, shared });
        to.set(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_keep_their_words_and_foreign_bytes_are_refused() {
        let words = Words {
            kind: EVENT,
            process: 1,
            descriptor: 2,
            inode: 3,
            offset: 4096,
            len: 8192,
            size: 5000,
            device: 0,
        };
        assert_eq!(Words::unpack(&words.pack(), EVENT), Ok(words));
        assert_eq!(Words::unpack(&words.pack(), MEMORY), Err(INVALID_VALUE));
        assert_eq!(Words::unpack(&IpcHandle { bytes: [0; 64] }, MEMORY), Err(INVALID_VALUE));
        assert!(words.open().is_err(), "no such file");
    }
}
