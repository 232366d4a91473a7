//! The identity of devices across processes: the KFD's `gpu_id`.
//!
//! HIP numbers the devices that a process sees, which `HIP_VISIBLE_DEVICES`, `ROCR_VISIBLE_DEVICES` and
//! containers change. HIP returns the PCI address of a device, and the KFD's topology in sysfs has the
//! `gpu_id` at that address. Several nodes at one address are partitions of one device. They are told apart
//! by the number of the partition, which newer runtimes write as the function of the address, or by their own
//! ids (`unique_id`), if the driver assigns them. If neither is known, the n-th HIP device at an address is
//! taken for the n-th node there.

use super::architecture;
use hal_hip::real::RuntimeFunctions;
use hal_kfd::topology::{self, Device, Pci};
use hip_sys::pfn;
use hip_sys::types::{hipDeviceProp_tR0600, hipSuccess};
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::OnceLock;

/// The bit of an id that is derived from the PCI address, if the topology has no node there: the KFD's own
/// ids are shorter.
const MADE_UP: u32 = 1 << 31;

/// The path of the KFD's topology.
const KFD: &str = "/sys/class/kfd/kfd";

/// A PCI address without its function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Address {
    domain: u32,
    bus: u32,
    device: u32,
}

impl Address {
    /// Parses `DDDD:BB:DD.F`, in hexadecimal digits.
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

    /// Returns an id that is unique to this address.
    fn made_up(self) -> u32 {
        MADE_UP | (self.domain & 0x7fff) << 16 | (self.bus & 0xff) << 8 | (self.device & 0x1f) << 3
    }
}

/// A device as HIP describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HipDevice {
    address: Address,
    /// The function of the address: the number of a partition if there are several.
    function: u32,
    /// The driver's `unique_id`, if the runtime returns it.
    unique: Option<u64>,
}

/// A device as the topology describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    address: Address,
    /// The number of the partition.
    partition: u32,
    unique: Option<u64>,
    id: u32,
}

/// The devices that this process sees.
#[derive(Debug)]
pub(crate) struct Devices {
    told: Vec<Option<HipDevice>>,
    ids: OnceLock<Vec<u32>>,
}

impl Devices {
    /// Asks the runtime for the addresses and ids of its devices.
    pub(crate) fn of(
        real: &RuntimeFunctions,
        address: Option<pfn::hipDeviceGetPCIBusId>,
        properties: Option<pfn::hipGetDevicePropertiesR0600>,
    ) -> Self {
        let told = |device| {
            let mut text: [c_char; 64] = [0; 64];
            let (device, length) = (c_int::try_from(device).ok()?, c_int::try_from(text.len() - 1).ok()?);
            // SAFETY: the length is less than the buffer's, so its last byte stays zero and ends the string.
            let (code, text) =
                unsafe { (address?(text.as_mut_ptr(), length, device), CStr::from_ptr(text.as_ptr())) };
            let text = text.to_str().ok()?;
            if code != hipSuccess {
                return None;
            }
            let unique = properties.and_then(|properties| {
                // SAFETY: the function writes a structure of this type.
                let ask = |place: *mut hipDeviceProp_tR0600| unsafe { properties(place, device) };
                unique(&architecture::properties(ask)?.uuid)
            });
            Some(HipDevice { address: Address::parse(text)?, function: function(text), unique })
        };
        Self { told: (0..real.devices).map(told).collect(), ids: OnceLock::new() }
    }

    /// Returns the id of the device with this HIP index. The first call reads the topology.
    pub(crate) fn id(&self, index: u32) -> u32 {
        let ids = self.ids.get_or_init(|| match_nodes(&self.told, &nodes(topology::devices(Path::new(KFD)))));
        ids.get(index as usize).copied().unwrap_or(MADE_UP | index)
    }
}

/// Parses the function of an address.
fn function(text: &str) -> u32 {
    text.rsplit_once('.').and_then(|(_, digits)| u32::from_str_radix(digits, 16).ok()).unwrap_or(0)
}

/// Parses a `unique_id`, which the runtime writes as the 16 bytes of a uuid, in hexadecimal digits.
fn unique(uuid: &[u8; 16]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(uuid).ok()?, 16).ok().filter(|id| *id != 0)
}

/// Returns the GPUs of the topology, in its order.
fn nodes(devices: Vec<Device>) -> Vec<Node> {
    let node = |device: &Device| {
        let partition = device.property("location_id").map_or(0, partition);
        let unique = device.property("unique_id").filter(|id| *id != 0);
        Some(Node { address: Address::of(device.pci()?), partition, unique, id: device.gpu_id })
    };
    devices.iter().filter_map(node).collect()
}

/// Returns the number of the partition in a `location_id`. AMD's packaged driver stores it above the address,
/// Linux in place of the function (`kfd_topology_add_device`).
fn partition(location: u64) -> u32 {
    match (location >> 28 & 0xf, location & 7) {
        (0, function) => function as u32,
        (number, _) => number as u32,
    }
}

fn match_nodes(told: &[Option<HipDevice>], nodes: &[Node]) -> Vec<u32> {
    let id = |(index, told_of): (usize, &Option<HipDevice>)| {
        let Some(this) = told_of else { return MADE_UP | index as u32 };
        let there: Vec<&Node> = nodes.iter().filter(|node| node.address == this.address).collect();
        let one = |fits: &dyn Fn(&Node) -> bool| {
            let mut fitting = there.iter().filter(|node| fits(node));
            fitting.next().filter(|_| fitting.next().is_none()).map(|node| node.id)
        };
        let same = |other: &&HipDevice| other.address == this.address;
        let others = told[..index].iter().flatten().filter(same);
        // If one function is not 0, all of them are numbers of partitions.
        let numbered = told.iter().flatten().filter(same).any(|other| other.function != 0);
        one(&|node| this.unique.is_some() && node.unique == this.unique)
            .or_else(|| one(&|node| numbered && node.partition == this.function))
            .or_else(|| there.get(others.count()).map(|node| node.id))
            .unwrap_or_else(|| this.address.made_up())
    };
    told.iter().enumerate().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bus: u32) -> Address {
        Address { domain: 0, bus, device: 0 }
    }

    #[test]
    fn address_parses_hips_and_the_kfds_form() {
        assert_eq!(Address::parse("0000:64:00.0"), Some(at(0x64)));
        assert_eq!(Address::parse("0001:c1:1f.3"), Some(Address { domain: 1, bus: 0xc1, device: 0x1f }));
        assert_eq!(Address::of(Pci { domain: 0, bus: 0x64, device: 0, function: 2 }), at(0x64));
        for bad in ["", "0000", "0000:64", "x:64:00.0"] {
            assert_eq!(Address::parse(bad), None, "{bad:?}");
        }
    }

    fn told(bus: u32, function: u32, unique: Option<u64>) -> Option<HipDevice> {
        Some(HipDevice { address: at(bus), function, unique })
    }

    fn node(bus: u32, partition: u32, unique: Option<u64>, id: u32) -> Node {
        Node { address: at(bus), partition, unique, id }
    }

    #[test]
    fn match_nodes_is_independent_of_order() {
        let nodes = [(0x64, 11), (0x65, 12), (0x66, 13), (0x66, 14)].map(|(bus, id)| node(bus, 0, None, id));
        let ids = |buses: &[u32]| {
            match_nodes(&buses.iter().map(|&bus| told(bus, 0, None)).collect::<Vec<_>>(), &nodes)
        };
        assert_eq!(ids(&[0x64, 0x65]), [11, 12]);
        assert_eq!(ids(&[0x65, 0x64]), [12, 11]);
        assert_eq!(ids(&[0x66, 0x65, 0x66]), [13, 12, 14], "partitions in their order");
        let made_up = ids(&[0x67, 0x66, 0x66, 0x66]);
        assert_eq!(made_up, [MADE_UP | 0x6700, 13, 14, MADE_UP | 0x6600]);
        assert_eq!(match_nodes(&[None, told(0x64, 0, None)], &[]), [MADE_UP, MADE_UP | 0x6400]);
    }

    #[test]
    fn match_nodes_identifies_partitions_by_id_or_number() {
        let partitions = |unique: fn(u32) -> Option<u64>| -> Vec<Node> {
            (0..4).map(|number| node(0x64, number, unique(number), 20 + number)).collect()
        };
        let own = partitions(|number| Some(0xa0 + u64::from(number)));
        let shared = partitions(|_| Some(0xa0));
        // The fourth of four alone, as with HIP_VISIBLE_DEVICES=3 and =3,1.
        assert_eq!(match_nodes(&[told(0x64, 0, Some(0xa3))], &own), [23]);
        assert_eq!(match_nodes(&[told(0x64, 0, Some(0xa3)), told(0x64, 0, Some(0xa1))], &own), [23, 21]);
        assert_eq!(match_nodes(&[told(0x64, 3, Some(0xa0)), told(0x64, 0, Some(0xa0))], &shared), [23, 20]);
        // The driver has the numbers, and the runtime returns none.
        assert_eq!(match_nodes(&[told(0x64, 0, None), told(0x64, 0, None)], &shared), [20, 21]);
    }

    #[test]
    fn partition_parses_both_drivers_forms() {
        assert_eq!((partition(0x6400), partition(0x6403), partition(0x3000_6400)), (0, 3, 3));
    }

    #[test]
    fn unique_and_function_parse_the_runtimes_form() {
        assert_eq!(unique(b"00000000000000a3"), Some(0xa3));
        assert_eq!(unique(b"3f7d8b20c41e9a55"), Some(0x3f7d_8b20_c41e_9a55));
        assert_eq!((unique(&[0; 16]), unique(b"0000000000000000")), (None, None));
        assert_eq!((function("0000:64:00.3"), function("0000:64:00")), (3, 0));
    }
}
