//! What the runtime says of each device that launches need to know: which code it takes for it.

use hal_hip::code_object::Processors;
use hip_sys::pfn;
use hip_sys::types::{hipDeviceProp_tR0000, hipDeviceProp_tR0600, hipError_t, hipSuccess};
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

/// The two shapes of the call: release 6.0 changed the structure and gave the function a new name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    R0600(pfn::hipGetDevicePropertiesR0600),
    R0000(pfn::hipGetDeviceProperties),
}

/// What is said of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Architecture {
    /// As in `gfx90a:sramecc+:xnack-`.
    name: String,
}

macro_rules! architecture {
    ($properties:expr) => {
        Architecture { name: text(&$properties.gcn_arch_name)? }
    };
}

impl Ask {
    fn about(self, device: c_int) -> Option<Architecture> {
        match self {
            Self::R0600(function) => {
                // SAFETY: the function writes a structure of its type.
                let properties =
                    properties::<hipDeviceProp_tR0600>(|place| unsafe { function(place, device) })?;
                Some(architecture!(properties))
            }
            Self::R0000(function) => {
                // SAFETY: as above.
                let properties =
                    properties::<hipDeviceProp_tR0000>(|place| unsafe { function(place, device) })?;
                Some(architecture!(properties))
            }
        }
    }
}

/// What a call writes; nothing if it fails.
fn properties<T>(call: impl FnOnce(*mut T) -> hipError_t) -> Option<Box<T>> {
    let mut properties = Box::new(MaybeUninit::<T>::zeroed());
    // SAFETY: only used with structures of which every field is a number or an array of numbers: zeroed is a value.
    (call(properties.as_mut_ptr()) == hipSuccess).then(|| unsafe { properties.assume_init() })
}

fn text(bytes: &[c_char; 256]) -> Option<String> {
    let bytes = bytes.map(|byte| byte as u8);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Every device that the process sees; nothing where the runtime did not say.
#[derive(Debug)]
pub(crate) struct Architectures(Vec<Option<Architecture>>);

impl Architectures {
    /// Asks the runtime about its devices, of which there are so many.
    pub(crate) fn of(ask: Option<Ask>, devices: u32) -> Self {
        let about = |device| ask?.about(c_int::try_from(device).ok()?);
        Self((0..devices).map(about).collect())
    }

    /// Which code the runtime takes for them. Nothing is known if it did not name them all, or was told to compile SPIR-V
    /// whatever else there is (`HIP_FORCE_SPIRV_CODEOBJECT`, `hip_fatbin.cpp` in 7.x).
    pub(crate) fn processors(&self) -> Processors {
        let forced = std::env::var_os("HIP_FORCE_SPIRV_CODEOBJECT").is_some_and(|value| value != "0");
        let names: Option<Vec<&str>> =
            self.0.iter().map(|each| each.as_ref().map(|each| each.name.as_str())).collect();
        names.filter(|_| !forced).map_or(Processors::ANY, Processors::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hip_sys::types::hipErrorInvalidDevice;

    const NAMES: [&CStr; 2] = [c"gfx90a:sramecc+:xnack-", c"gfx1100"];

    fn write(to: &mut [c_char; 256], name: &CStr) {
        for (to, from) in to.iter_mut().zip(name.to_bytes()) {
            *to = *from as c_char;
        }
    }

    unsafe extern "C" fn newer(prop: *mut hipDeviceProp_tR0600, device: c_int) -> hipError_t {
        let Some(name) = NAMES.get(device as usize) else { return hipErrorInvalidDevice };
        // SAFETY: the tested code gives a structure.
        write(unsafe { &mut (*prop).gcn_arch_name }, name);
        hipSuccess
    }

    unsafe extern "C" fn older(prop: *mut hipDeviceProp_tR0000, device: c_int) -> hipError_t {
        let Some(name) = NAMES.get(device as usize) else { return hipErrorInvalidDevice };
        // SAFETY: as above.
        write(unsafe { &mut (*prop).gcn_arch_name }, name);
        hipSuccess
    }

    #[test]
    fn both_shapes_name_the_devices() {
        let want = Processors::new(["gfx90a:sramecc+:xnack-", "gfx1100"]);
        for ask in [Ask::R0600(newer), Ask::R0000(older)] {
            assert_eq!(Architectures::of(Some(ask), 2).processors(), want);
            assert_eq!(Architectures::of(Some(ask), 3).processors(), Processors::ANY, "one is not known");
        }
        assert_eq!(Architectures::of(None, 2).processors(), Processors::ANY);
    }
}
