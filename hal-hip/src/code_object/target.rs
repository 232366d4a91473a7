//! The runtime's choice among the entries of a bundle, for a device.
//!
//! The runtime's rule (ROCm/clr `hipamd/src/hip_fatbin.cpp` and `hip_code_object.cpp`, COMGR's
//! `comgr-metadata.cpp`; read in 5.2 to 6.2, October 2024, and 2026): code for the device's own processor
//! whose features, where it names any, are those of the device; otherwise, in runtimes that know generic
//! targets, the generic one that covers the processor; otherwise SPIR-V, which the runtime compiles itself.
//! Compilers refuse a bundle in which two entries are for the same device (clang's
//! `getConflictTargetIDCombination`), so the order of entries means nothing.

use super::bundle;

/// The generic targets and the processors for which the runtime takes them (`TargetGenericMap` in
/// `hip_fatbin.cpp`, 2026).
const GENERIC: &[(&str, &[&str])] = &[
    ("gfx9-generic", &["gfx900", "gfx902", "gfx904", "gfx906", "gfx909", "gfx90c"]),
    ("gfx9-4-generic", &["gfx942", "gfx950"]),
    ("gfx10-1-generic", &["gfx1010", "gfx1011", "gfx1012", "gfx1013"]),
    ("gfx10-3-generic", &["gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"]),
    (
        "gfx11-generic",
        &["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"],
    ),
    ("gfx12-generic", &["gfx1200", "gfx1201"]),
];

/// A processor with its features, of a device or of the code for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    processor: Box<str>,
    /// The features, as in `xnack-`. Code that does not name a feature runs with any setting of the device.
    features: Box<[Box<str>]>,
}

/// The fit of code for a device; the best comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// Made for its processor, or outside a bundle, so that there is no choice.
    Own,
    /// Made for a generic target that covers its processor.
    Generic,
    /// Machine code for others, or SPIR-V.
    None,
}

impl Target {
    /// Parses the name of an entry, or the runtime's name of a device's architecture.
    pub(crate) fn parse(name: &str) -> Self {
        let features = name.split(':').skip(1).map(Into::into).collect();
        Self { processor: bundle::processor(name).into(), features }
    }

    /// Returns the fit of code of this target for a device.
    pub(crate) fn fit(&self, device: &Self) -> Fit {
        if !self.features.iter().all(|feature| device.features.contains(feature)) {
            return Fit::None;
        }
        if self.processor == device.processor {
            return Fit::Own;
        }
        let covers = |(name, covered): &(&str, &[&str])| {
            *name == &*self.processor && covered.contains(&&*device.processor)
        };
        if GENERIC.iter().any(covers) { Fit::Generic } else { Fit::None }
    }
}

/// The architectures of the devices that a program can use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processors {
    /// The kinds, each once; empty if they are not known.
    kinds: Vec<Target>,
    /// The kind of each device, in the runtime's order.
    devices: Vec<usize>,
}

impl Processors {
    /// Unknown devices: a kernel counts as known only if all code agrees on it.
    pub const ANY: Self = Self { kinds: Vec::new(), devices: Vec::new() };

    /// Creates the value from the runtime's names of the devices' architectures (`gfx90a:sramecc+:xnack-`),
    /// in its order.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut this = Self::ANY;
        for name in names {
            let target = Target::parse(name);
            let kind = this.kinds.iter().position(|kind| *kind == target).unwrap_or_else(|| {
                this.kinds.push(target);
                this.kinds.len() - 1
            });
            this.devices.push(kind);
        }
        this
    }

    pub(crate) fn kinds(&self) -> &[Target] {
        &self.kinds
    }

    /// Returns the index of the device's kind; that of the first kind if there is no such device.
    pub(crate) fn kind_of(&self, device: u32) -> usize {
        self.devices.get(device as usize).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fit(code: &str, device: &str) -> Fit {
        Target::parse(code).fit(&Target::parse(device))
    }

    #[test]
    fn code_fits_only_a_device_with_its_features() {
        const MI200: &str = "gfx90a:sramecc+:xnack-";
        for (code, expected) in [
            ("hipv4-amdgcn-amd-amdhsa--gfx90a", Fit::Own),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-", Fit::Own),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", Fit::Own),
            ("hip-amdgcn-amd-amdhsa-gfx90a", Fit::Own),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+", Fit::None),
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:sramecc-:xnack-", Fit::None),
            ("hipv4-amdgcn-amd-amdhsa--gfx90", Fit::None),
            ("hipv4-amdgcn-amd-amdhsa--gfx942", Fit::None),
            ("hip-spirv64-amd-amdhsa--amdgcnspirv", Fit::None),
            ("hip-spirv64-amd-amdhsa-unknown-amdgcnspirv", Fit::None),
            ("", Fit::None),
        ] {
            assert_eq!(fit(code, MI200), expected, "{code}");
        }
        assert_eq!(fit("gfx1100:xnack-", "gfx1100"), Fit::None, "the device has no such feature");
    }

    #[test]
    fn generic_code_fits_the_processors_that_it_covers() {
        for (code, device, expected) in [
            ("hipv4-amdgcn-amd-amdhsa--gfx9-4-generic", "gfx942:sramecc+:xnack-", Fit::Generic),
            ("hipv4-amdgcn-amd-amdhsa--gfx9-4-generic:xnack-", "gfx950:sramecc+:xnack-", Fit::Generic),
            ("hipv4-amdgcn-amd-amdhsa--gfx9-4-generic:xnack+", "gfx942:sramecc+:xnack-", Fit::None),
            ("hipv4-amdgcn-amd-amdhsa--gfx9-generic", "gfx90a:sramecc+:xnack-", Fit::None),
            ("hipv4-amdgcn-amd-amdhsa--gfx11-generic", "gfx1151", Fit::Generic),
            ("hipv4-amdgcn-amd-amdhsa--gfx11-generic", "gfx1201", Fit::None),
            ("hipv4-amdgcn-amd-amdhsa--gfx1100", "gfx1101", Fit::None),
        ] {
            assert_eq!(fit(code, device), expected, "{code} on {device}");
        }
    }

    #[test]
    fn equal_devices_share_a_kind() {
        let processors = Processors::new(["gfx90a:xnack-", "gfx1100", "gfx90a:xnack-", "gfx90a:xnack+"]);
        assert_eq!(processors.kinds().len(), 3);
        assert_eq!([0, 1, 2, 3, 99].map(|device| processors.kind_of(device)), [0, 1, 0, 2, 0]);
        assert_eq!((Processors::ANY.kinds().len(), Processors::ANY.kind_of(3)), (0, 0));
    }

    proptest! {
        #[test]
        fn random_code_fits_exactly_with_the_devices_features(
            features in prop::collection::vec(any::<bool>(), 0..3),
            named in prop::collection::vec(any::<bool>(), 3),
            processor in prop::sample::select(vec!["gfx906", "gfx942", "gfx1100", "gfx1201"]),
        ) {
            let words: Vec<String> = features
                .iter()
                .zip(["sramecc", "xnack", "other"])
                .map(|(on, name)| format!(":{name}{}", if *on { '+' } else { '-' }))
                .collect();
            let device = format!("{processor}{}", words.concat());
            let some: String =
                words.iter().zip(&named).filter(|(_, named)| **named).map(|(word, _)| word.as_str()).collect();
            let code = format!("hipv4-amdgcn-amd-amdhsa--{processor}{some}");
            prop_assert_eq!(fit(&code, &device), Fit::Own);
            let generic = GENERIC.iter().find(|(_, covered)| covered.contains(&processor)).unwrap().0;
            prop_assert_eq!(fit(&format!("{generic}{some}"), &device), Fit::Generic);
            if some.contains(['+', '-']) {
                let flip = |c| match c { '+' => '-', '-' => '+', c => c };
                let wrong: String = some.chars().map(flip).collect();
                prop_assert_eq!(fit(&format!("{processor}{wrong}"), &device), Fit::None);
            }
        }
    }
}
