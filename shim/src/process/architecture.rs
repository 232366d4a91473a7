//! What the runtime says of each device that launches need to know: which code it takes for it, and how large a launch may be.

use hal_hip::code_object::Processors;
use hip_sys::pfn;
use hip_sys::types::{dim3, hipDeviceProp_tR0000, hipDeviceProp_tR0600, hipError_t, hipSuccess};
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
    limits: Limits,
}

/// How large a launch is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Blocks, or threads if they are counted.
    pub(crate) grid: dim3,
    pub(crate) block: dim3,
    /// Bytes of dynamic local memory.
    pub(crate) shared: usize,
    /// The grid counts threads and not blocks.
    pub(crate) work_items: bool,
}

impl Sizes {
    /// Whether the runtime (of this major version) is certain to refuse it on any device, before it looks at the stream: there
    /// is nothing to run, a block has more threads or local memory than any device has, or the threads of a dimension need more
    /// than 32 bits. (Of the last, hipModuleLaunchKernel and its kind look at the first dimension only before 7, and 7.2.4
    /// launches some: docs/newer-runtimes.md.) `of_module`: by one of those.
    pub(crate) fn are_refused(&self, of_module: bool, major: u32) -> bool {
        let [x, y, z] = self.overflow();
        self.are_nonsense() || major < 7 && (x || (y || z) && !of_module)
    }

    fn are_nonsense(&self) -> bool {
        let block = self.block;
        let threads = u64::from(block.x) * u64::from(block.y) * u64::from(block.z);
        let empty = self.dimensions().into_iter().any(|(grid, _)| grid == 0);
        empty || !(1..=MOST_THREADS).contains(&threads) || self.shared >= HOPELESS_SHARED
    }

    /// Of each dimension whether its threads are more than 2^32 - 1.
    fn overflow(&self) -> [bool; 3] {
        self.dimensions().map(|(grid, block)| {
            let factor = if self.work_items { 1 } else { u64::from(block) };
            u64::from(grid) * factor > u64::from(u32::MAX)
        })
    }

    /// Of each dimension the grid and the block.
    fn dimensions(&self) -> [(u32, u32); 3] {
        let Self { grid, block, .. } = self;
        [(grid.x, block.x), (grid.y, block.y), (grid.z, block.z)]
    }
}

/// More threads in a block than this is the runtime's to refuse.
const MOST_THREADS: u64 = 1024;
/// More local memory than any compute unit has.
const HOPELESS_SHARED: usize = 1 << 20;

/// The largest launch that a device takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of local memory: `hipDeviceProp_t::sharedMemPerBlock`, by which launches are measured in every release (as
    /// `localMemSizePerCU_`, `hip_module.cpp` in ROCm/clr).
    shared: usize,
    /// Blocks in each dimension: `maxGridSize`. What is larger some releases refuse, from 5.7 to 7.x ever more of it and by
    /// ever more functions, and others launch.
    grid: [u32; 3],
}

impl Limits {
    /// What every device takes; for one of which nothing is known.
    const LEAST: Self = Self { shared: 64 << 10, grid: [i32::MAX as u32, 65_535, 65_535] };

    /// Whether the runtime takes these sizes, as far as they alone decide.
    fn admit(&self, sizes: &Sizes) -> bool {
        !sizes.are_nonsense()
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

/// The grid that a device says it takes.
fn grid(most: [c_int; 3]) -> [u32; 3] {
    most.map(|most| u32::try_from(most).unwrap_or(0))
}

macro_rules! architecture {
    ($properties:expr) => {
        Architecture {
            name: text(&$properties.gcn_arch_name)?,
            limits: Limits {
                shared: $properties.shared_mem_per_block,
                grid: grid($properties.max_grid_size),
            },
        }
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

    fn limits(&self, device: u32) -> Option<Limits> {
        Some(self.0.get(device as usize)?.as_ref()?.limits)
    }

    /// Whether a device takes a launch, as far as its sizes alone decide.
    pub(crate) fn admit(&self, device: u32, sizes: &Sizes) -> bool {
        self.limits(device).unwrap_or(Limits::LEAST).admit(sizes)
    }

    /// Whether the runtime (of this major version) is certain to refuse a launch by its sizes, before it looks at the
    /// stream. `of_module`: by `hipModuleLaunchKernel` or one of its kind.
    pub(crate) fn refuse(&self, device: u32, sizes: &Sizes, of_module: bool, major: u32) -> bool {
        let refuse = |limits: Limits| {
            // 7.2.4 tested, both by hipModuleLaunchKernel; older releases launch some of it.
            let by_grid = of_module && !sizes.work_items && major >= 7 && !limits.admit_grid(sizes);
            by_grid || sizes.shared > limits.shared
        };
        sizes.are_refused(of_module, major) || self.limits(device).is_some_and(refuse)
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

    const LIMITS: Limits = Limits { shared: 160 << 10, grid: [i32::MAX as u32, 65_536, 65_536] };
    const NAMES: [&CStr; 2] = [c"gfx90a:sramecc+:xnack-", c"gfx1100"];

    fn write(to: &mut [c_char; 256], name: &CStr) {
        for (to, from) in to.iter_mut().zip(name.to_bytes()) {
            *to = *from as c_char;
        }
    }

    unsafe extern "C" fn newer(prop: *mut hipDeviceProp_tR0600, device: c_int) -> hipError_t {
        let Some(name) = NAMES.get(device as usize) else { return hipErrorInvalidDevice };
        // SAFETY: the tested code gives a structure.
        let prop = unsafe { &mut *prop };
        write(&mut prop.gcn_arch_name, name);
        (prop.shared_mem_per_block, prop.max_grid_size) = (160 << 10, [i32::MAX, 65_536, 65_536]);
        hipSuccess
    }

    unsafe extern "C" fn older(prop: *mut hipDeviceProp_tR0000, device: c_int) -> hipError_t {
        let Some(name) = NAMES.get(device as usize) else { return hipErrorInvalidDevice };
        // SAFETY: as above.
        let prop = unsafe { &mut *prop };
        write(&mut prop.gcn_arch_name, name);
        (prop.shared_mem_per_block, prop.max_grid_size) = (160 << 10, [i32::MAX, 65_536, 65_536]);
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
            // Grid, local memory; whether it is admitted, the same where nothing is known, refused by 6 and 7 as a module's.
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
