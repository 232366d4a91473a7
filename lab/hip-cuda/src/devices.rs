//! Devices: their number, their properties, and peer access.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::OnceLock;

use hip_sys::types::*;

use crate::blobs;
use crate::driver::{Driver, Opaque};
use crate::errors::Answer;
use crate::modules::text;
use crate::state::{self, api, check_device, enter, put, required, started};

/// Attributes of CUDA (`CU_DEVICE_ATTRIBUTE_*`).
pub(crate) const MULTIPROCESSORS: c_int = 16;
const MAX_SHARED_OPTIN: c_int = 97;

/// The limit of shared memory in a block of AMD's gfx90a, in bytes. Devices with more report this limit too,
/// because programs for AMD expect it.
const SHARED: c_int = 64 << 10;

/// Returns the maximum shared memory of a block, in bytes.
pub(crate) fn shared_memory(device: c_int) -> Answer<c_int> {
    let mut most = 0;
    started()?.driver.device_attribute(&mut most, MAX_SHARED_OPTIN, device)?;
    Ok(most.min(SHARED))
}

/// The architecture that the library reports: `HIP_CUDA_ARCH`, or `gfx90a`. Programs then load code for AMD,
/// from which the library in front reads the sizes of arguments.
fn architecture() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| std::env::var("HIP_CUDA_ARCH").unwrap_or_else(|_| "gfx90a".to_owned()))
}

/// HIP's attributes (`hipDeviceAttribute_t`, the same in 5.2, 6.4 and 7.2) and their CUDA equivalents.
const ATTRIBUTES: &[(u32, c_int)] = &[
    (0, 32),  // ECC
    (2, 40),  // asynchronous engines
    (3, 19),  // maps host memory
    (5, 13),  // clock rate
    (6, 20),  // compute mode
    (8, 31),  // concurrent kernels
    (9, 89),  // concurrent managed access
    (10, 95), // cooperative launch
    (11, 96), // the same on several devices
    (16, 18), // integrated
    (18, 17), // time limit of kernels
    (19, 38), // bytes of L2 cache
    (23, 75), // compute capability
    (24, 83), // managed memory
    (26, 2),  // most threads of a block in each dimension
    (27, 3),
    (28, 4),
    (29, 5), // most blocks of a grid
    (30, 6),
    (31, 7),
    (56, 1),  // most threads of a block
    (57, 39), // of a multiprocessor
    (58, 11), // most bytes of a pitch
    (59, 37), // memory bus
    (60, 36), // memory clock
    (61, 76), // compute capability, minor
    (63, MULTIPROCESSORS),
    (65, 88), // pageable memory
    (67, 33), // PCI bus, device, domain
    (68, 34),
    (69, 50),
    (71, 12),     // registers of a block
    (72, 82),     // of a multiprocessor
    (78, 78),     // stream priorities
    (83, 9),      // constant memory
    (85, 41),     // unified addressing
    (87, 10),     // threads of a warp
    (88, 115),    // pools
    (10_000, 13), // clock of the instruction
    (10_002, 81), // shared memory of a multiprocessor
    (10_015, MULTIPROCESSORS),
];
/// `hipDeviceAttributeMaxSharedMemoryPerBlock`.
const SHARED_PER_BLOCK: u32 = 74;
/// `hipDeviceAttributeCanUseStreamWaitValue`: true for every supported device.
const CAN_WAIT: u32 = 10_013;

fn attribute(which: u32, device: c_int) -> Answer<c_int> {
    match which {
        SHARED_PER_BLOCK => shared_memory(device),
        CAN_WAIT => Ok(1),
        _ => {
            let &(_, cuda) = ATTRIBUTES.iter().find(|(hip, _)| *hip == which).ok_or(hipErrorInvalidValue)?;
            let mut value = 0;
            started()?.driver.device_attribute(&mut value, cuda, device)?;
            Ok(value)
        }
    }
}

/// The numeric fields of `hipDeviceProp_t`: the attribute, the offset in 5.x, and the offset in 6.0 and
/// later.
const NUMBERS: &[(u32, usize, usize)] = &[
    (71, 272, 304),
    (87, 276, 308),
    (56, 280, 320),
    (26, 284, 324),
    (27, 288, 328),
    (28, 292, 332),
    (29, 296, 336),
    (30, 300, 340),
    (31, 304, 344),
    (5, 308, 348),
    (60, 312, 608),
    (59, 316, 612),
    (23, 328, 360),
    (61, 332, 364),
    (63, 336, 388),
    (19, 340, 616),
    (57, 344, 624),
    (6, 348, 404),
    (10_000, 352, 1424),
    (8, 360, 576),
    (69, 364, 592),
    (67, 368, 584),
    (68, 372, 588),
    (3, 388, 400),
    (16, 652, 396),
    (10, 656, 688),
    (11, 660, 692),
    (18, 736, 392),
    (0, 740, 580),
    (24, 772, 652),
    (9, 780, 676),
    (65, 784, 672),
];
/// The same for fields of eight bytes.
const WIDE_NUMBERS: &[(u32, usize, usize)] =
    &[(SHARED_PER_BLOCK, 264, 296), (83, 320, 352), (10_002, 376, 1416)];

/// Fills a release's property structure; `newer` selects that of 6.0 and later.
fn properties(bytes: &mut [u8], device: c_int, newer: bool) -> Answer {
    let driver = &check_device(device)?.driver;
    let at = |older: usize, later: usize| if newer { later } else { older };
    let mut set = |place: usize, value: &[u8]| bytes[place..place + value.len()].copy_from_slice(value);
    let mut memory = 0_usize;
    driver.device_memory(&mut memory, device)?;
    set(at(256, 288), &memory.to_ne_bytes());
    let mut name = [0; 256];
    driver.device_name(name.as_mut_ptr(), 256, device)?;
    set(0, &name.map(c_char::cast_unsigned));
    for &(which, older, later) in NUMBERS {
        set(at(older, later), &attribute(which, device)?.to_ne_bytes());
    }
    for &(which, older, later) in WIDE_NUMBERS {
        set(at(older, later), &i64::from(attribute(which, device)?).to_ne_bytes());
    }
    set(at(396, 1160), architecture().as_bytes().get(..255).unwrap_or(architecture().as_bytes()));
    if newer {
        let mut uuid = [0; 16];
        driver.device_uuid(&mut uuid, device)?;
        set(256, &uuid);
    }
    Ok(())
}

fn older(place: *mut hipDeviceProp_tR0000, device: c_int) -> Answer {
    required(place)?;
    let mut bytes = [0; size_of::<hipDeviceProp_tR0000>()];
    properties(&mut bytes, device, false)?;
    put(place.cast(), bytes)
}

/// Writes a text into a program's buffer, and cuts it to the buffer's length.
fn put_text(
    place: *mut c_char,
    length: c_int,
    write: impl FnOnce(&Driver, *mut c_char, c_int) -> Answer,
) -> Answer {
    required(place)?;
    if length <= 0 {
        return Err(hipErrorInvalidValue);
    }
    let mut whole = [0; 256];
    write(enter()?, whole.as_mut_ptr(), 256)?;
    let text = CStr::from_bytes_until_nul(&whole.map(c_char::cast_unsigned))
        .map_err(|_| hipErrorUnknown)?
        .to_owned();
    let bytes = text.to_bytes();
    let room = usize::try_from(length).unwrap_or(0) - 1;
    for (index, byte) in bytes.iter().take(room).chain(&[0]).enumerate() {
        put(place.wrapping_add(index), byte.cast_signed())?;
    }
    Ok(())
}

fn peer(device: c_int) -> Answer<Opaque> {
    if device == state::device() {
        return Err(hipErrorInvalidDevice);
    }
    check_device(device)?.context(device)
}

api! {
    [pfn] fn hipInit(flags: c_uint) {
        if flags != 0 {
            return Err(hipErrorInvalidValue);
        }
        started().map(drop)
    }
    [pfn] fn hipGetDeviceCount(place: *mut c_int) {
        required(place)?;
        let started = started();
        put(place, started.map_or(0, |started| started.devices))?;
        started.map(drop)
    }
    [pfn] fn hipGetDevice(place: *mut c_int) {
        required(place)?;
        started()?;
        put(place, state::device())
    }
    [pfn] fn hipSetDevice(device: c_int) { state::set_device(device) }
    [pfn] fn hipSetDeviceFlags(flags: c_uint) {
        // How to wait (0, 1, 2 or 4), and two further flags. None has an effect on CUDA's primary context.
        if flags & !0x1F != 0 || !matches!(flags & 7, 0 | 1 | 2 | 4) {
            return Err(hipErrorInvalidValue);
        }
        started().map(drop)
    }
    [own] fn hipGetDeviceFlags(place: *mut c_uint) {
        required(place)?;
        started()?;
        put(place, 0)
    }
    [pfn] fn hipDeviceGet(place: *mut hipDevice_t, ordinal: c_int) {
        required(place)?;
        check_device(ordinal)?;
        put(place, ordinal)
    }
    [pfn] fn hipDeviceGetName(name: *mut c_char, length: c_int, device: hipDevice_t) {
        check_device(device)?;
        put_text(name, length, |driver, place, room| driver.device_name(place, room, device))
    }
    [pfn] fn hipDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: c_int) {
        check_device(device)?;
        put_text(id, length, |driver, place, room| driver.device_pci(place, room, device))
    }
    [pfn] fn hipDeviceGetByPCIBusId(place: *mut c_int, id: *const c_char) {
        required(place)?;
        let wanted = text(id)?;
        let started = started()?;
        for device in 0..started.devices {
            let mut found = [0; 64];
            started.driver.device_pci(found.as_mut_ptr(), 64, device)?;
            let found = text(found.as_ptr())?;
            if found.eq_ignore_ascii_case(&wanted) {
                return put(place, device);
            }
        }
        Err(hipErrorInvalidValue)
    }
    [pfn] fn hipDeviceTotalMem(bytes: *mut usize, device: hipDevice_t) {
        required(bytes)?;
        let mut found = 0;
        check_device(device)?.driver.device_memory(&mut found, device)?;
        put(bytes, found)
    }
    [pfn] fn hipDeviceGetAttribute(place: *mut c_int, which: hipDeviceAttribute_t, device: c_int) {
        required(place)?;
        check_device(device)?;
        put(place, attribute(which.0, device)?)
    }
    [pfn] fn hipGetDeviceProperties(place: *mut hipDeviceProp_tR0000, device: c_int) { older(place, device) }
    [pfn] fn hipGetDevicePropertiesR0000(place: *mut hipDeviceProp_tR0000, device: c_int) { older(place, device) }
    [pfn] fn hipGetDevicePropertiesR0600(place: *mut hipDeviceProp_tR0600, device: c_int) {
        required(place)?;
        let mut bytes = [0; size_of::<hipDeviceProp_tR0600>()];
        properties(&mut bytes, device, true)?;
        put(place.cast(), bytes)
    }
    [pfn] fn hipRuntimeGetVersion(place: *mut c_int) { put(place, blobs::version()) }
    [pfn] fn hipDriverGetVersion(place: *mut c_int) { put(place, blobs::version()) }
    [pfn] fn hipDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) {
        let (mut low, mut high) = (0, 0);
        enter()?.priority_range(&mut low, &mut high)?;
        let _ = (put(least, low), put(greatest, high));
        Ok(())
    }
    [pfn] fn hipDeviceCanAccessPeer(can: *mut c_int, device: c_int, other: c_int) {
        required(can)?;
        check_device(other)?;
        let mut found = 0;
        let driver = &check_device(device)?.driver;
        if device != other {
            driver.can_access_peer(&mut found, device, other)?;
        }
        put(can, found)
    }
    [pfn] fn hipDeviceEnablePeerAccess(device: c_int, flags: c_uint) {
        if flags != 0 {
            return Err(hipErrorInvalidValue);
        }
        let peer = peer(device)?;
        enter()?.peer_enable(peer, 0)
    }
    [pfn] fn hipDeviceDisablePeerAccess(device: c_int) {
        let peer = peer(device)?;
        enter()?.peer_disable(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_an_attribute_and_lies_in_its_structure() {
        let known = |which: u32| which == SHARED_PER_BLOCK || ATTRIBUTES.iter().any(|(hip, _)| *hip == which);
        for (fields, width) in [(NUMBERS, 4), (WIDE_NUMBERS, 8)] {
            for &(which, older, newer) in fields {
                assert!(known(which), "{which}");
                assert!(older + width <= size_of::<hipDeviceProp_tR0000>(), "{which}");
                assert!(newer + width <= size_of::<hipDeviceProp_tR0600>(), "{which}");
            }
        }
        let mut all: Vec<u32> = ATTRIBUTES.iter().map(|(hip, _)| *hip).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), ATTRIBUTES.len(), "each is listed once");
    }
}
