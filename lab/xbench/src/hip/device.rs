//! The properties of a device.

use std::ffi::CStr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The marketing name; empty where the runtime has none.
    pub name: String,
    /// The full target id, such as `gfx90a:sramecc+:xnack-`.
    pub arch: String,
    pub compute_units: u32,
    /// The device memory in bytes.
    pub memory: u64,
    /// The highest clock of the compute units in MHz; 0 where the runtime does not know it.
    pub clock_mhz: u32,
    /// The highest clock of the memory in MHz; 0 where the runtime does not know it.
    pub memory_clock_mhz: u32,
    /// The width of the memory's bus in bits; 0 where the runtime does not know it.
    pub memory_bus_bits: u32,
}

impl Device {
    /// Returns the title for people: `AMD Instinct MI210 (gfx90a:sramecc+:xnack-)`.
    pub fn title(&self) -> String {
        match self.name.as_str() {
            "" => self.arch.clone(),
            name => format!("{name} ({})", self.arch),
        }
    }

    /// Returns the highest bandwidth of the device memory in bytes per microsecond: two transfers in each cycle of its
    /// clock, over the whole bus. `None` where the runtime does not know the clock or the bus.
    pub fn memory_bytes_per_us(&self) -> Option<u64> {
        let bytes = u64::from(self.memory_clock_mhz) * 2 * u64::from(self.memory_bus_bits) / 8;
        Some(bytes).filter(|bytes| *bytes > 0)
    }
}

/// Returns the text of a fixed-size C string field.
pub(super) fn text_of(field: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|c| c.cast_unsigned()).collect();
    let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_bytes).unwrap_or(&bytes);
    String::from_utf8_lossy(text).into_owned()
}
