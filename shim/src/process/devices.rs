//! Which device is which, whoever counts: the KFD's `gpu_id`.
//!
//! HIP counts the devices that a process sees, and `HIP_VISIBLE_DEVICES`, `ROCR_VISIBLE_DEVICES` and containers let every
//! process see others. HIP tells the PCI address of a device, and the KFD's topology in sysfs tells which `gpu_id` lies
//! at that address. Several nodes at one address are partitions of one device: the n-th device that HIP shows there is
//! taken for the n-th of them.

use hal_hip::real::Real;
use hal_kfd::topology::{self, Device, Pci};
use hip_sys::pfn;
use hip_sys::types::hipSuccess;
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

/// Set in an id that was made up from the PCI address, because the topology does not tell: the KFD's own ids are shorter.
const MADE_UP: u32 = 1 << 31;

/// Where the KFD describes its devices.
const KFD: &str = "/sys/class/kfd/kfd";

/// A PCI address without its function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address {
    domain: u32,
    bus: u32,
    device: u32,
}

impl Address {
    /// From `DDDD:BB:DD.F`, in hexadecimal digits.
    fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let device = rest.split('.').next()?;
        let number = |text: &str| u32::from_str_radix(text, 16).ok();
        Some(Self { domain: number(domain)?, bus: number(bus)?, device: number(device)? })
    }

    fn of(Pci { domain, bus, device, function: _ }: Pci) -> Self {
        Self { domain, bus, device }
    }

    /// An id that only this address has.
    fn made_up(self) -> u32 {
        MADE_UP | (self.domain & 0x7fff) << 16 | (self.bus & 0xff) << 8 | (self.device & 0x1f) << 3
    }
}

/// The devices that this process sees.
#[derive(Debug)]
pub(crate) struct Devices {
    addresses: Vec<Option<Address>>,
    ids: OnceLock<Vec<u32>>,
}

impl Devices {
    /// Asks the runtime for the addresses.
    pub(crate) fn of(real: &Real, function: Option<pfn::hipDeviceGetPCIBusId>) -> Self {
        let address = |device| {
            let mut text: [c_char; 64] = [0; 64];
            let (device, length) = (c_int::try_from(device).ok()?, c_int::try_from(text.len() - 1).ok()?);
            // SAFETY: the runtime's function gets a buffer and less than its length; the last byte stays zero.
            let code = unsafe { function?(text.as_mut_ptr(), length, device) };
            // SAFETY: the buffer ends with a zero.
            let text = unsafe { CStr::from_ptr(text.as_ptr()) };
            if code == hipSuccess { Address::parse(text.to_str().ok()?) } else { None }
        };
        Self { addresses: (0..real.devices).map(address).collect(), ids: OnceLock::new() }
    }

    /// The id of the device with this HIP index. The first call reads the topology.
    pub(crate) fn id(&self, index: u32) -> u32 {
        let ids =
            self.ids.get_or_init(|| match_nodes(&self.addresses, &nodes(topology::devices(Path::new(KFD)))));
        ids.get(index as usize).copied().unwrap_or(MADE_UP | index)
    }
}

/// The address and the id of each GPU of the topology, in its order.
fn nodes(devices: Vec<Device>) -> Vec<(Address, u32)> {
    devices.iter().filter_map(|device| Some((Address::of(device.pci()?), device.gpu_id))).collect()
}

fn match_nodes(addresses: &[Option<Address>], nodes: &[(Address, u32)]) -> Vec<u32> {
    let id = |(index, address): (usize, &Option<Address>)| {
        let Some(address) = address else { return MADE_UP | index as u32 };
        let before = addresses[..index].iter().filter(|other| other.as_ref() == Some(address)).count();
        let mut there = nodes.iter().filter(|(node, _)| node == address);
        there.nth(before).map_or(address.made_up(), |&(_, id)| id)
    };
    addresses.iter().enumerate().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bus: u32) -> Address {
        Address { domain: 0, bus, device: 0 }
    }

    #[test]
    fn addresses_are_read_as_hip_and_the_kfd_write_them() {
        assert_eq!(Address::parse("0000:64:00.0"), Some(at(0x64)));
        assert_eq!(Address::parse("0001:c1:1f.3"), Some(Address { domain: 1, bus: 0xc1, device: 0x1f }));
        assert_eq!(Address::of(Pci { domain: 0, bus: 0x64, device: 0, function: 2 }), at(0x64));
        for bad in ["", "0000", "0000:64", "x:64:00.0"] {
            assert_eq!(Address::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn devices_keep_their_ids_in_any_order() {
        let nodes = [(at(0x64), 11), (at(0x65), 12), (at(0x66), 13), (at(0x66), 14)];
        let ids =
            |buses: &[u32]| match_nodes(&buses.iter().map(|&bus| Some(at(bus))).collect::<Vec<_>>(), &nodes);
        assert_eq!(ids(&[0x64, 0x65]), [11, 12]);
        assert_eq!(ids(&[0x65, 0x64]), [12, 11]);
        assert_eq!(ids(&[0x66, 0x65, 0x66]), [13, 12, 14], "partitions in their order");
        let made_up = ids(&[0x67, 0x66, 0x66, 0x66]);
        assert_eq!(made_up, [MADE_UP | 0x6700, 13, 14, MADE_UP | 0x6600]);
        assert_eq!(match_nodes(&[None, Some(at(0x64))], &[]), [MADE_UP, MADE_UP | 0x6400]);
    }
}
