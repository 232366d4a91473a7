//! The properties of each device that launches depend on: which code the runtime loads for it, and how large
//! a launch may be.

use hal_hip::code_object::Processors;
use hip_sys::pfn;
use hip_sys::types::{dim3, hipDeviceProp_tR0000, hipDeviceProp_tR0600, hipError_t, hipSuccess};
use std::ffi::{CStr, c_char, c_int};
use std::mem::MaybeUninit;

/// The function that returns a device's properties: release 6.0 changed the structure and the function's
/// name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ask {
    R0600(pfn::hipGetDevicePropertiesR0600),
    R0000(pfn::hipGetDeviceProperties),
}

/// The properties of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Architecture {
    /// The name, such as `gfx90a:sramecc+:xnack-`.
    name: String,
    limits: Limits,
}

/// The sizes of a launch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// The number of blocks, or of threads if `work_items`.
    pub(crate) grid: dim3,
    pub(crate) block: dim3,
    /// The bytes of dynamic local memory.
    pub(crate) shared: usize,
    /// True if the grid counts threads.
    pub(crate) work_items: bool,
}

impl Sizes {
    /// Returns true if the runtime of this major version certainly refuses the launch on any device, before
    /// it looks at the stream: the launch is empty, a block has more threads or local memory than any device,
    /// or the threads of a dimension need more than 32 bits. `of_module` is true for hipModuleLaunchKernel
    /// and similar functions. Before 7.0 these check only the first dimension for the latter, and 7.2.4
    /// launches some (docs/newer-runtimes.md).
    pub(crate) fn are_refused(&self, of_module: bool, major: u32) -> bool {
        let [x, y, z] = self.overflow();
        self.are_impossible() || major < 7 && (x || (y || z) && !of_module)
    }

    fn are_impossible(&self) -> bool {
        let block = self.block;
        let threads = u64::from(block.x) * u64::from(block.y) * u64::from(block.z);
        let empty = self.dimensions().into_iter().any(|(grid, _)| grid == 0);
        empty || !(1..=MOST_THREADS).contains(&threads) || self.shared >= TOO_MUCH_SHARED
    }

    /// Returns for each dimension true if it has more than 2^32 - 1 threads.
    fn overflow(&self) -> [bool; 3] {
        self.dimensions().map(|(grid, block)| {
            let factor = if self.work_items { 1 } else { u64::from(block) };
            u64::from(grid) * factor > u64::from(u32::MAX)
        })
    }

    /// Returns grid and block of each dimension.
    fn dimensions(&self) -> [(u32, u32); 3] {
        let Self { grid, block, .. } = self;
        [(grid.x, block.x), (grid.y, block.y), (grid.z, block.z)]
    }
}

/// The most threads of a block; every runtime refuses more.
const MOST_THREADS: u64 = 1024;
/// More local memory than any compute unit has.
const TOO_MUCH_SHARED: usize = 1 << 20;

/// The largest launch that a device accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The bytes of local memory: `hipDeviceProp_t::sharedMemPerBlock`, against which every release checks
    /// launches (as `localMemSizePerCU_`, `hip_module.cpp` in ROCm/clr).
    shared: usize,
    /// The blocks of each dimension: `maxGridSize`. Some releases refuse larger grids (from 5.7 to 7.x more
    /// and more of them, by more and more functions), and others launch them.
    grid: [u32; 3],
}

impl Limits {
    /// The launch that every device accepts, for a device whose properties are unknown.
    const LEAST: Self = Self { shared: 64 << 10, grid: [i32::MAX as u32, 65_535, 65_535] };

    /// Returns true if the sizes do not make the runtime refuse the launch.
    fn admit(&self, sizes: &Sizes) -> bool {
        !sizes.are_impossible()
            && sizes.overflow() == [false; 3]
            && sizes.shared <= self.shared
            && self.admit_grid(sizes)
    }

    fn admit_grid(&self, sizes: &Sizes) -> bool {
        let blocks =
            |(grid, block): (u32, u32)| if sizes.work_items { grid.div_ceil(block.max(1)) } else { grid };
        sizes.dimensions().into_iter().map(blocks).zip(self.grid).all(|(blocks, most)| blocks <= most)
    }
}

/// Converts the largest grid of a device.
fn grid(most: [c_int; 3]) -> [u32; 3] {
    most.map(|most| u32::try_from(most).unwrap_or(0))
}

impl Ask {
    fn about(self, device: c_int) -> Option<Architecture> {
        macro_rules! ask {
            ($function:ident, $properties:ty) => {{
                // SAFETY: the function writes a structure of this type.
                let found = properties::<$properties>(|place| unsafe { $function(place, device) })?;
                let limits = Limits { shared: found.shared_mem_per_block, grid: grid(found.max_grid_size) };
                Some(Architecture { name: text(&found.gcn_arch_name)?, limits })
            }};
        }
        match self {
            Self::R0600(function) => ask!(function, hipDeviceProp_tR0600),
            Self::R0000(function) => ask!(function, hipDeviceProp_tR0000),
        }
    }
}

/// Returns the structure that a call writes; `None` if the call fails.
pub(super) fn properties<T>(call: impl FnOnce(*mut T) -> hipError_t) -> Option<Box<T>> {
    let mut properties = Box::new(MaybeUninit::<T>::zeroed());
    // SAFETY: every field of the structures that this is used with is a number or an array of numbers, for
    // which zeros are valid.
    (call(properties.as_mut_ptr()) == hipSuccess).then(|| unsafe { properties.assume_init() })
}

fn text(bytes: &[c_char; 256]) -> Option<String> {
    let bytes = bytes.map(|byte| byte as u8);
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// The devices that the process sees; `None` for one whose properties are unknown.
#[derive(Debug)]
pub(crate) struct Architectures(Vec<Option<Architecture>>);

impl Architectures {
    /// Asks the runtime for the properties of its devices.
    pub(crate) fn of(ask: Option<Ask>, devices: u32) -> Self {
        let about = |device| ask?.about(c_int::try_from(device).ok()?);
        Self((0..devices).map(about).collect())
    }

    fn limits(&self, device: u32) -> Option<Limits> {
        Some(self.0.get(device as usize)?.as_ref()?.limits)
    }

    /// Returns true if the sizes do not make the runtime refuse the launch on this device.
    pub(crate) fn admit(&self, device: u32, sizes: &Sizes) -> bool {
        self.limits(device).unwrap_or(Limits::LEAST).admit(sizes)
    }

    /// Returns true if the runtime of this major version certainly refuses a launch for its sizes, before it
    /// looks at the stream. `of_module` is true for `hipModuleLaunchKernel` and similar functions.
    pub(crate) fn refuse(&self, device: u32, sizes: &Sizes, of_module: bool, major: u32) -> bool {
        let refuse = |limits: Limits| {
            // Tested on 7.2.4 with hipModuleLaunchKernel. Older releases launch some of these.
            let by_grid = of_module && !sizes.work_items && major >= 7 && !limits.admit_grid(sizes);
            by_grid || sizes.shared > limits.shared
        };
        sizes.are_refused(of_module, major) || self.limits(device).is_some_and(refuse)
    }

    /// Returns which code the runtime loads for the devices. Nothing is known if it did not name all of them,
    /// or always compiles SPIR-V (`HIP_FORCE_SPIRV_CODEOBJECT`, `hip_fatbin.cpp` in 7.x).
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

    const LIMITS: Limits = Limits { shared: 160 << 10, grid: [i32::MAX as u32, 65_536, 65_536] };
    const NAMES: [&CStr; 2] = [c"gfx90a:sramecc+:xnack-", c"gfx1100"];

    fn write(to: &mut [c_char; 256], name: &CStr) {
        for (to, from) in to.iter_mut().zip(name.to_bytes()) {
            *to = *from as c_char;
        }
    }

    macro_rules! answers {
        ($($name:ident: $properties:ty;)*) => {$(
            unsafe extern "C" fn $name(prop: *mut $properties, device: c_int) -> hipError_t {
                let Some(name) = NAMES.get(device as usize) else { return hipErrorInvalidDevice };
                // SAFETY: the tested code passes a valid structure.
                let prop = unsafe { &mut *prop };
                write(&mut prop.gcn_arch_name, name);
                (prop.shared_mem_per_block, prop.max_grid_size) = (160 << 10, [i32::MAX, 65_536, 65_536]);
                hipSuccess
            }
        )*};
    }

    answers! {
        newer: hipDeviceProp_tR0600;
        older: hipDeviceProp_tR0000;
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

    fn sizes(grid: [u32; 3], shared: usize) -> Sizes {
        let grid = dim3::new(grid[0], grid[1], grid[2]);
        Sizes { grid, block: dim3::new(1, 1, 1), shared, work_items: false }
    }

    #[test]
    fn a_launch_is_measured_by_the_devices_own_limits() {
        const X: u32 = i32::MAX as u32;
        for ask in [Ask::R0600(newer), Ask::R0000(older)] {
            let known = Architectures::of(Some(ask), 1);
            assert_eq!(known.limits(0), Some(LIMITS));
            let unknown = Architectures::of(None, 1);
            // Grid, local memory; whether it is admitted, the same where nothing is known, refused by 6 and 7
            // as a module's.
            for (grid, shared, admitted, least, refused) in [
                ([1, 1, 1], 0, true, true, [false, false]),
                ([X, 1, 1], 64 << 10, true, true, [false, false]),
                ([1, 1, 1], 160 << 10, true, false, [false, false]),
                ([1, 1, 1], (160 << 10) + 1, false, false, [true, true]),
                ([X + 1, 1, 1], 0, false, false, [false, true]),
                ([1, 65_536, 1], 0, true, false, [false, false]),
                ([1, 65_537, 1], 0, false, false, [false, true]),
                ([1, 1, 65_537], 0, false, false, [false, true]),
                ([1, 0, 1], 0, false, false, [true, true]),
            ] {
                let sizes = sizes(grid, shared);
                assert_eq!(known.admit(0, &sizes), admitted, "{sizes:?}");
                assert_eq!(unknown.admit(0, &sizes), least, "{sizes:?}");
                let refuse = |major| known.refuse(0, &sizes, true, major);
                assert_eq!([refuse(6), refuse(7)], refused, "{sizes:?}");
                let certain = shared > LIMITS.shared || grid.contains(&0);
                assert_eq!(known.refuse(0, &sizes, false, 7), certain, "by the host's function: {sizes:?}");
                assert_eq!(unknown.refuse(0, &sizes, true, 7), grid.contains(&0), "{sizes:?}");
            }
        }
    }

    #[test]
    fn threads_are_counted_in_32_bits() {
        let known = Architectures::of(Some(Ask::R0600(newer)), 1);
        let of = |grid: dim3, block: dim3, work_items| {
            let sizes = Sizes { grid, block, shared: 0, work_items };
            (known.admit(0, &sizes), known.refuse(0, &sizes, true, 7))
        };
        let line = |x| dim3::new(x, 1, 1);
        assert_eq!(of(line(1 << 21), line(1024), false), (true, false));
        assert_eq!(
            of(line(1 << 22), line(1024), false),
            (false, false),
            "2^32 threads, which 7.2.4 may launch"
        );
        assert_eq!(of(line(u32::MAX), line(1024), true), (true, false));
        assert_eq!(of(dim3::new(1, 65_537, 1), dim3::new(1, 2, 1), true), (true, false));
        assert_eq!(of(dim3::new(1, 131_073, 1), dim3::new(1, 2, 1), true), (false, false), "more blocks");
        assert_eq!(of(line(1), line(1025), false), (false, true));
        let (x, y) = (dim3::new(1 << 22, 1, 1), dim3::new(1, 1 << 22, 1));
        for (grid, of_module, refused) in
            [(x, true, true), (x, false, true), (y, true, false), (y, false, true)]
        {
            let sizes = Sizes { grid, block: dim3::new(1024, 1, 1), shared: 0, work_items: false };
            let sizes = if grid == y { Sizes { block: dim3::new(1, 1024, 1), ..sizes } } else { sizes };
            assert_eq!((sizes.are_refused(of_module, 6), sizes.are_refused(of_module, 7)), (refused, false));
        }
        assert_eq!(of(line(1), line(0), false), (false, true));
    }
}
