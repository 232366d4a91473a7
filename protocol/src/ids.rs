//! Identifiers of processes, clients, queues and devices.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);
    )*};
}

macro_rules! numbers {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A process id as the process that reports it sees it. A server in another pid namespace sees another
    /// number, or 0 for a process that has none there. Shown to users; [`ClientId`] identifies a process.
    Pid(u32);
    /// A connection of the server, counted from 1 and never reused. It identifies a gang (a process on all
    /// its devices), whereas process ids are reused and differ between pid namespaces.
    ClientId(u64);
    /// An XQueue. The C interface's `XQueueHandle` is this number; 0 is no queue. It is the number of its process times
    /// [`QueueId::PER_PROCESS`], plus its number within the process, counted from 1. The number of a process is its process
    /// id in the initial pid namespace; elsewhere it is above all of these and random, so that a queue's number is unique on
    /// the machine. Displayed as the number within the process. Libraries before 0.1.0 sent only that.
    QueueId(u64);
    /// A device: its KFD `gpu_id`, which is the same in every process, unlike the HIP index. Where the
    /// driver's topology does not provide one, the library derives an id from the device's PCI address
    /// ([`MADE_UP`](DeviceId::MADE_UP)). Displayed and parsed as the number, or as that address.
    DeviceId(u32);
}

numbers! { Pid ClientId }

impl QueueId {
    /// The number of queues that a process can number before it needs another number.
    pub const PER_PROCESS: u64 = 1_000_000;

    /// Returns the number within the process.
    pub fn within_process(self) -> u64 {
        self.0 % Self::PER_PROCESS
    }

    /// Returns true if a user who types this number means the queue: its whole number, or the one within its process.
    pub fn is_meant_by(self, typed: Self) -> bool {
        self == typed || self.within_process() == typed.0
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.within_process().fmt(f)
    }
}

impl DeviceId {
    /// The bit that marks a derived id. Below it are 15 bits of the PCI domain, 8 of the bus, 5 of the
    /// device, and 3 zero bits. The KFD's own ids are shorter.
    pub const MADE_UP: u32 = 1 << 31;

    /// Returns the PCI address of a derived id: domain, bus and device. Bus 0 of the first domain stands for
    /// a device of unknown address.
    pub fn address(self) -> Option<(u32, u32, u32)> {
        let (domain, bus) = (self.0 >> 16 & 0x7fff, self.0 >> 8 & 0xff);
        let known = self.0 & Self::MADE_UP != 0 && (domain, bus) != (0, 0) && self.0 & 7 == 0;
        known.then_some((domain, bus, self.0 >> 3 & 0x1f))
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some((domain, bus, device)) => f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.0")),
            None if self.0 & Self::MADE_UP != 0 => f.pad(&format!("unknown-{}", self.0 & !Self::MADE_UP)),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for DeviceId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no device: a number, or a PCI address as 0000:c3:00.0");
        if let Some(index) = text.strip_prefix("unknown-") {
            let index: u32 = index.parse().map_err(|_| wrong())?;
            return Ok(Self(Self::MADE_UP | index));
        }
        if let Ok(number) = text.parse() {
            return Ok(Self(number));
        }
        let parts: Vec<&str> = text.split([':', '.']).collect();
        let hexadecimal = |text: &str, most: u32| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            u32::from_str_radix(text, 16).ok().filter(|number| digits && *number <= most)
        };
        let address = match parts[..] {
            [domain, bus, device, "0"] => {
                (|| Some((hexadecimal(domain, 0x7fff)?, hexadecimal(bus, 0xff)?, hexadecimal(device, 0x1f)?)))(
                )
            }
            _ => None,
        };
        let (domain, bus, device) = address.ok_or_else(wrong)?;
        Ok(Self(Self::MADE_UP | domain << 16 | bus << 8 | device << 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_named_by_its_whole_number_or_within_its_process() {
        let queue = QueueId(4242 * QueueId::PER_PROCESS + 7);
        assert_eq!((queue.to_string().as_str(), queue.within_process()), ("7", 7));
        for (typed, meant) in
            [(7, true), (4_242_000_007, true), (8, false), (4_243_000_007, false), (0, false)]
        {
            assert_eq!(queue.is_meant_by(QueueId(typed)), meant, "{typed}");
        }
        assert!(QueueId(7).is_meant_by(QueueId(7)), "of an older library");
    }

    #[test]
    fn device_id_is_shown_and_parsed_as_number_or_address() {
        let cases = [
            (51_234, "51234"),
            (0, "0"),
            (DeviceId::MADE_UP | 0xc300, "0000:c3:00.0"),
            (DeviceId::MADE_UP | 1 << 16 | 0x64 << 8 | 0x1f << 3, "0001:64:1f.0"),
            (DeviceId::MADE_UP | 1 << 16, "0001:00:00.0"),
            (DeviceId::MADE_UP | 3, "unknown-3"),
        ];
        for (number, text) in cases {
            assert_eq!(DeviceId(number).to_string(), text);
            assert_eq!(text.parse(), Ok(DeviceId(number)));
        }
        // The form of earlier versions of the library is still accepted.
        assert_eq!("2147508480".parse(), Ok(DeviceId(2_147_508_480)));
        assert_eq!(DeviceId(2_147_508_480).to_string(), "0000:61:00.0");
        for wrong in
            ["", "x", "0000:c3:00", "0000:c3:00.1", "0000:+3:00.0", "8000:c3:00.0", "0000:c3:20.0", "-1"]
        {
            assert!(wrong.parse::<DeviceId>().is_err(), "{wrong}");
        }
        assert_eq!(format!("{:>8}|{:<6}|", DeviceId(7), Pid(7)), "       7|7     |");
    }
}
