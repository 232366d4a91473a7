//! A key of all conditions that the costs depend on: two programs with the same key have the same costs.

use crate::capabilities::Facts;
use crate::kernel::Kfd;
use crate::mechanism::MechanismKind;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroU64;
use std::path::Path;

/// The file with an id that changes with each start of the machine and is the same in all containers
/// (random(4)).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The file with the kernel's release, as `uname -r` prints it.
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// The files in `/sys/module/amdgpu` that identify the driver: AMD's packages have a version, modules of the
/// kernel's tree a checksum of their source, drivers built into the kernel neither.
const MODULE: [&str; 2] = ["version", "srcversion"];

/// Returns the key of the costs on the device `gpu_id` by this mechanism. It is the same in all programs
/// until the machine restarts or its driver changes. `sys` is `/sys`. Returns `None` if the start of the
/// machine cannot be identified.
///
/// The hash is that of the standard library, so that two builds of this library can differ in it. Each
/// measures then.
pub fn key(kernel: &Kfd, sys: &Path, facts: &Facts, gpu_id: u32, kind: MechanismKind) -> Option<NonZeroU64> {
    let boot = fs::read_to_string(BOOT).ok()?;
    let release = fs::read_to_string(RELEASE).ok()?;
    let module = MODULE.map(|name| fs::read_to_string(sys.join("module/amdgpu").join(name)).ok());
    Some(number(&boot, &release, &module, kernel.device()?, facts, gpu_id, kind))
}

fn number(
    boot: &str,
    release: &str,
    module: &[Option<String>],
    device: u64,
    facts: &Facts,
    gpu_id: u32,
    kind: MechanismKind,
) -> NonZeroU64 {
    let mut hasher = DefaultHasher::new();
    (boot.trim(), release.trim(), module, device, facts, gpu_id, kind).hash(&mut hasher);
    NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_changes_with_each_condition_of_the_costs() {
        let facts = crate::fake::FACTS;
        let none = [None, None];
        let version = [Some("6.8.5".to_owned()), None];
        let key = |boot, release: &str, module: &[Option<String>], device, facts, gpu_id, kind| {
            number(boot, release, module, device, &facts, gpu_id, kind)
        };
        let keys = [
            key("a", "6.1", &none, 1, facts, 7, MechanismKind::UpdateQueue),
            key("b", "6.1", &none, 1, facts, 7, MechanismKind::UpdateQueue),
            key("a", "6.2", &none, 1, facts, 7, MechanismKind::UpdateQueue),
            key("a", "6.1", &version, 1, facts, 7, MechanismKind::UpdateQueue),
            key("a", "6.1", &none, 2, facts, 7, MechanismKind::UpdateQueue),
            key("a", "6.1", &none, 1, Facts { cwsr: Some(false), ..facts }, 7, MechanismKind::UpdateQueue),
            key("a", "6.1", &none, 1, Facts { simulated: true, ..facts }, 7, MechanismKind::UpdateQueue),
            key("a", "6.1", &none, 1, facts, 8, MechanismKind::UpdateQueue),
            key("a", "6.1", &none, 1, facts, 7, MechanismKind::DebugTrap),
        ];
        let different: std::collections::BTreeSet<_> = keys.into_iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(
            keys[0],
            key("a\n", "6.1\n", &none, 1, facts, 7, MechanismKind::UpdateQueue),
            "equal conditions, equal keys"
        );
    }

    #[test]
    fn release_of_this_kernel_is_read() {
        assert!(fs::read_to_string(RELEASE).is_ok_and(|release| release.contains('.')));
    }
}
