//! Memory that two processes share.

use super::*;
use crate::machine::Sysfs;

const SIZE: u64 = 8192;
const MINE: u64 = 0x100_0000;
const THEIRS: u64 = 0x200_0000;

fn vram(va_addr: u64) -> kfd::AllocMemoryOfGpu {
    kfd::AllocMemoryOfGpu { va_addr, size: SIZE, gpu_id: 1, flags: kfd::ALLOC_VRAM, ..Default::default() }
}

fn map(bench: &mut Bench, pid: i32, handle: u64) {
    // The fake process cannot make requests that read its memory.
    let va = bench.machine.processes[&pid].allocations[&handle].va;
    bench.machine.processes.get_mut(&pid).unwrap().space.get_mut(va).unwrap().gpus = 1;
}

#[test]
fn shared_memory_is_the_same_in_two_processes_and_outlives_its_exporter() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let made = bench.now(0, me(), &vram(MINE)).unwrap().1;
    let export = kfd::IpcExportHandle { handle: made.handle, gpu_id: 1, flags: 5, ..Default::default() };
    let name = bench.now(0, me(), &export).unwrap().1.share_handle;
    assert_eq!(bench.now(0, me(), &export).unwrap().1.share_handle, name);
    let import =
        kfd::IpcImportHandle { va_addr: THEIRS, share_handle: name, gpu_id: 1, ..Default::default() };
    let got = bench.now(0, OTHER, &import).unwrap().1;
    assert_eq!((got.flags, got.mmap_offset), (5, made.mmap_offset));
    assert_eq!(bench.machine.gpus[0].used, SIZE, "the memory counts once");

    map(&mut bench, me(), made.handle);
    bench.view(me()).write(MINE, &[1, 2, 3, 4]).unwrap();
    assert!(bench.view(OTHER).load_u32(THEIRS).is_err(), "the memory is not mapped yet");
    map(&mut bench, OTHER, got.handle);
    assert_eq!(bench.view(OTHER).load_u32(THEIRS), Ok(0x0403_0201));

    bench.now(0, me(), &kfd::FreeMemoryOfGpu { handle: made.handle }).unwrap();
    assert_eq!(bench.view(OTHER).load_u32(THEIRS), Ok(0x0403_0201));
    assert_eq!(bench.machine.gpus[0].used, SIZE);
    let again = kfd::IpcImportHandle { va_addr: MINE, ..import };
    let again = bench.now(0, me(), &again).unwrap().1;
    engine::remove_process(&mut bench.machine, 0, OTHER);
    assert_eq!(bench.machine.gpus[0].used, SIZE, "the exporter has imported it again");
    bench.now(0, me(), &kfd::FreeMemoryOfGpu { handle: again.handle }).unwrap();
    assert_eq!(bench.machine.gpus[0].used, 0);
    assert_eq!(
        bench.now(0, me(), &import).err(),
        Some(libc::EINVAL),
        "the name is invalid after the memory was freed"
    );
}

#[test]
fn sysfs_counts_the_memory_that_a_process_has_allocated_itself() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let folder = tempfile::tempdir().unwrap();
    bench.machine.driver.sysfs = Sysfs::at(folder.path()).unwrap();
    let used = |pid: i32| {
        let text = std::fs::read_to_string(folder.path().join(format!("{pid}/vram_1"))).ok()?;
        text.trim().parse::<u64>().ok()
    };
    let first = bench.now(0, me(), &vram(MINE)).unwrap().1;
    let second = bench.now(0, me(), &vram(THEIRS)).unwrap().1;
    let host = kfd::AllocMemoryOfGpu { flags: kfd::ALLOC_GTT, ..vram(MINE + 16 * SIZE) };
    bench.now(0, me(), &host).unwrap();
    assert_eq!(used(me()), Some(2 * SIZE));
    let export = kfd::IpcExportHandle { handle: first.handle, gpu_id: 1, ..Default::default() };
    let share_handle = bench.now(0, me(), &export).unwrap().1.share_handle;
    let import = kfd::IpcImportHandle { va_addr: THEIRS, share_handle, gpu_id: 1, ..Default::default() };
    bench.now(0, OTHER, &import).unwrap();
    assert_eq!(used(OTHER), None, "memory of another process does not count");
    bench.now(0, me(), &kfd::FreeMemoryOfGpu { handle: second.handle }).unwrap();
    assert_eq!(used(me()), Some(SIZE));
    engine::remove_process(&mut bench.machine, 0, me());
    assert_eq!(used(me()), None);
}

#[test]
fn invalid_export_and_import_are_refused() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    let made = bench.now(0, me(), &vram(MINE)).unwrap().1;
    let export = kfd::IpcExportHandle { handle: made.handle, gpu_id: 1, ..Default::default() };
    for wrong in [
        kfd::IpcExportHandle { gpu_id: 7, ..export },
        kfd::IpcExportHandle { handle: made.handle + 1, ..export },
    ] {
        assert_eq!(bench.now(0, me(), &wrong).err(), Some(libc::EINVAL), "{wrong:?}");
    }
    assert_eq!(bench.now(0, OTHER, &export).err(), Some(libc::EINVAL), "handles belong to one process");
    let own = vec![0_u8; 4096];
    let userptr = kfd::AllocMemoryOfGpu {
        mmap_offset: own.as_ptr().addr() as u64,
        size: 1024,
        flags: kfd::ALLOC_USERPTR,
        ..vram(THEIRS)
    };
    let userptr = bench.now(0, me(), &userptr).unwrap().1;
    let of_userptr = kfd::IpcExportHandle { handle: userptr.handle, ..export };
    assert_eq!(bench.now(0, me(), &of_userptr).err(), Some(libc::EPERM));

    let name = bench.now(0, me(), &export).unwrap().1.share_handle;
    let import =
        kfd::IpcImportHandle { va_addr: THEIRS, share_handle: name, gpu_id: 1, ..Default::default() };
    for wrong in [
        kfd::IpcImportHandle { share_handle: [0; 4], ..import },
        kfd::IpcImportHandle { gpu_id: 7, ..import },
        kfd::IpcImportHandle { va_addr: 0, ..import },
        kfd::IpcImportHandle { va_addr: 1 << 48, ..import },
        kfd::IpcImportHandle { va_addr: RINGS, ..import },
    ] {
        assert_eq!(bench.now(0, OTHER, &wrong).err(), Some(libc::EINVAL), "{wrong:?}");
    }
    bench.now(0, me(), &kfd::FreeMemoryOfGpu { handle: made.handle }).unwrap();
    assert_eq!(bench.machine.gpus[0].used, 0, "refused requests allocate nothing");
}

#[test]
fn request_that_is_not_simulated_is_reported_once() {
    let mut bench = Bench::new("gfx90a", Settings::default());
    for _ in 0..3 {
        assert_eq!(bench.now(0, me(), &kfd::ExportDmabuf::default()).err(), Some(libc::EINVAL));
        assert_eq!(bench.now(0, me(), &kfd::GetDmabufInfo::default()).err(), Some(libc::EINVAL));
    }
    assert_eq!(bench.machine.outbox.remarks.len(), 1, "{:?}", bench.machine.outbox.remarks);
    assert!(bench.machine.outbox.remarks[0].1.contains("dma-buf is not simulated"));
}
