//! The subjects of commands in a trace: the address of a kernel's handle, or a small number for other commands.

use hal_hip::kernels::Kernels;
use std::ffi::c_void;
use std::ptr;
use xqueue::Subject;

pub(crate) const COPY: Subject = Subject(1);
pub(crate) const FILL: Subject = Subject(2);
pub(crate) const EVENT: Subject = Subject(3);
pub(crate) const GRAPH: Subject = Subject(4);
pub(crate) const HOST_FUNCTION: Subject = Subject(5);
pub(crate) const VALUE: Subject = Subject(6);
pub(crate) const MEMORY: Subject = Subject(7);

/// No handle lies below this address, because Linux maps nothing there.
const FIRST_ADDRESS: u64 = 4096;

/// The kernel that a launch function got.
#[inline]
pub(crate) fn kernel(handle: *const c_void) -> Subject {
    Subject(handle.addr() as u64)
}

/// Returns the name of a subject: that of a kernel as its code has it (mangled). `None` if the kernel's code has been unloaded
/// or is not known.
pub(crate) fn name(kernels: &Kernels, subject: u64) -> Option<String> {
    let name = match Subject(subject) {
        COPY => "copy",
        FILL => "fill",
        EVENT => "event",
        GRAPH => "graph",
        HOST_FUNCTION => "host function",
        VALUE => "stream value",
        MEMORY => "memory pool",
        Subject(0) => "other call",
        Subject(address) if address >= FIRST_ADDRESS => {
            let handle = ptr::without_provenance(usize::try_from(address).ok()?);
            // All devices have a kernel of this name, if they have it at all.
            return kernels.find(handle, 0).ok().map(|kernel| kernel.name.to_string());
        }
        _ => return None,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_names_and_unknown_kernels_have_none() {
        let kernels = Kernels::new();
        let all = [COPY, FILL, EVENT, GRAPH, HOST_FUNCTION, VALUE, MEMORY, Subject(0)];
        let names: std::collections::BTreeSet<_> =
            all.iter().filter_map(|one| name(&kernels, one.0)).collect();
        assert_eq!(names.len(), all.len());
        assert_eq!(name(&kernels, 4095), None);
        assert_eq!(name(&kernels, kernel(ptr::from_ref(&kernels).cast()).0), None);
    }
}
