//! Kernels and variables by name. Whatever code object a program has, this library runs the kernels of the
//! PTX that is linked into it. There is one PTX text for each source file, because several files may use the
//! same name. A text is loaded as a CUDA module when a program first uses one of its kernels or variables.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::{Mutex, OnceLock, PoisonError};

use hip_sys::types::*;

use crate::driver::{DevicePointer, Opaque};
use crate::errors::Answer;
use crate::memory::{self, Kind};
use crate::state::started;
use crate::{blobs, captures};

/// Which text defines a name.
#[derive(Debug, Default)]
struct Index {
    texts: Vec<&'static CStr>,
    /// The first text that defines a kernel: many texts include the same header. True if the kernel uses dynamic
    /// shared memory.
    kernels: HashMap<String, (usize, bool)>,
    /// The texts that define a variable, each with the variable's size in bytes.
    variables: HashMap<String, Vec<(usize, usize)>>,
}

/// Returns the name and the size in bytes of the variable that a line of PTX declares, such as
/// `.visible .global .align 8 .b8 table[4096];`.
fn variable(line: &str) -> Option<(&str, usize)> {
    let rest = line.strip_prefix(".visible .global ").or_else(|| line.strip_prefix(".visible .const "))?;
    let mut words = rest.split(' ');
    let word =
        words.find(|word| word.starts_with(".b") || word.starts_with(".u") || word.starts_with(".f"))?;
    let size = word.trim_start_matches(|letter: char| !letter.is_ascii_digit()).parse::<usize>().ok()? / 8;
    let declared = words.next()?.trim_end_matches(';');
    match declared.split_once('[') {
        Some((name, count)) => Some((name, size * count.strip_suffix(']')?.parse::<usize>().ok()?)),
        None => Some((declared, size)),
    }
}

/// Returns the name of the dynamic shared memory that a line of PTX declares, such as
/// `.extern .shared .align 8 .b8 words[];`.
fn dynamic_shared(line: &str) -> Option<&str> {
    line.strip_prefix(".extern .shared ")?.strip_suffix("[];")?.split(' ').next_back()
}

impl Index {
    fn of(sources: Vec<(&'static str, &'static CStr)>) -> Index {
        let mut index = Index::default();
        for (_, text) in sources {
            let number = index.texts.len();
            // The names of dynamic shared memory, and the kernel whose lines follow.
            let (mut dynamic, mut current) = (Vec::new(), String::new());
            for line in text.to_str().unwrap_or_default().lines() {
                if let Some(rest) = line.strip_prefix(".visible .entry ") {
                    rest.split('(').next().unwrap_or_default().clone_into(&mut current);
                    index.kernels.entry(current.clone()).or_insert((number, false));
                } else if let Some(name) = dynamic_shared(line) {
                    dynamic.push(name);
                } else if line.split(|letter| ", ;[]+".contains(letter)).any(|word| dynamic.contains(&word)) {
                    if let Some((text, uses)) = index.kernels.get_mut(&current) {
                        *uses |= *text == number;
                    }
                } else if let Some((name, size)) = variable(line) {
                    index.variables.entry(name.to_owned()).or_default().push((number, size));
                }
            }
            index.texts.push(text);
        }
        index
    }
}

fn index() -> &'static Index {
    static INDEX: OnceLock<Index> = OnceLock::new();
    INDEX.get_or_init(|| Index::of(blobs::sources()))
}

/// Returns true if the kernel of this name uses dynamic shared memory.
pub(crate) fn uses_dynamic_shared(name: &str) -> bool {
    index().kernels.get(name).is_some_and(|&(_, uses)| uses)
}

/// The CUDA modules behind one HIP module or program, by device and text.
#[derive(Debug, Default)]
pub(crate) struct Image {
    parts: Mutex<HashMap<(c_int, usize), Opaque>>,
}

impl Image {
    /// A number that no other image has at the same time.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn part(&self, device: c_int, text: usize) -> Answer<Opaque> {
        // Before the lock: entering may prepare kernels that were registered since, and they may be of this image.
        let driver = started()?.enter(device)?;
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&part) = parts.get(&(device, text)) {
            return Ok(part);
        }
        // The program did not ask to load a module, so loading must not disturb a capture.
        let mut module = Opaque::NULL;
        captures::relaxed(driver, || {
            driver.module_load(&mut module, index().texts[text].as_ptr().cast::<c_void>())
        })?;
        parts.insert((device, text), module);
        Ok(module)
    }

    /// Returns the kernel of this name on a device.
    ///
    /// # Errors
    /// `hipErrorNotFound` if no source file defines it.
    pub(crate) fn kernel(&self, device: c_int, name: &str) -> Answer<Opaque> {
        let (text, _) = *index().kernels.get(name).ok_or(hipErrorNotFound)?;
        let part = self.part(device, text)?;
        let name = CString::new(name).map_err(|_| hipErrorNotFound)?;
        let mut function = Opaque::NULL;
        started()?.enter(device)?.module_function(&mut function, part, name.as_ptr())?;
        Ok(function)
    }

    /// Returns a variable's address and size on a device. `size` selects one if several files define the
    /// name.
    ///
    /// # Errors
    /// `hipErrorNotFound` if no source file defines it.
    pub(crate) fn variable(
        &self,
        device: c_int,
        name: &str,
        size: Option<usize>,
    ) -> Answer<(DevicePointer, usize)> {
        let found = index().variables.get(name).ok_or(hipErrorNotFound)?;
        let &(text, _) =
            found.iter().find(|(_, bytes)| size.is_none_or(|size| size == *bytes)).ok_or(hipErrorNotFound)?;
        let part = self.part(device, text)?;
        let name = CString::new(name).map_err(|_| hipErrorNotFound)?;
        let (mut place, mut bytes) = (0, 0);
        started()?.enter(device)?.module_global(&mut place, &mut bytes, part, name.as_ptr())?;
        memory::keep_on(device, place, bytes, Kind::Variable, 0);
        Ok((place, bytes))
    }

    /// Unloads all modules.
    pub(crate) fn unload(&self) -> Answer {
        let parts = std::mem::take(&mut *self.parts.lock().unwrap_or_else(PoisonError::into_inner));
        parts.into_iter().try_for_each(|((device, text), module)| {
            let driver = started()?.enter(device)?;
            // The module's variables end with it.
            index().variables.iter().filter(|(_, found)| found.iter().any(|&(at, _)| at == text)).for_each(
                |(name, _)| {
                    let (mut place, mut bytes) = (0, 0);
                    let name = CString::new(name.as_str()).unwrap_or_default();
                    if driver.module_global(&mut place, &mut bytes, module, name.as_ptr()).is_ok() {
                        memory::forget(std::ptr::without_provenance(place), &[Kind::Variable]);
                    }
                },
            );
            driver.module_unload(module)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_the_first_text_that_has_them() {
        let first = c".visible .entry mix(\n\t.param .u64 mix_param_0\n)\n.visible .global .align 8 .b8 table[4096];\n";
        let second = c".visible .entry mix(\n.visible .entry _Z7nothingv()\t// comment\n.visible .global .align 8 .b8 table[512];\n.visible .const .align 4 .f32 one = 0f3F800000;\n";
        let index = Index::of(vec![("a", first), ("b", second)]);
        assert_eq!((index.kernels["mix"], index.kernels["_Z7nothingv"]), ((0, false), (1, false)));
        assert_eq!(index.variables["table"], [(0, 4096), (1, 512)]);
        assert_eq!(index.variables["one"], [(1, 4)]);
        assert_eq!(index.kernels.len(), 2);
    }

    #[test]
    fn kernels_that_use_dynamic_shared_memory_are_known() {
        let text = c".extern .shared .align 8 .b8 words[];\n.visible .entry a()\n\tmov.u64 \t%rd2, words;\n.visible .entry b()\n\tmov.u64 \t%rd2, words2;\n";
        let index = Index::of(vec![("a", text)]);
        assert_eq!((index.kernels["a"], index.kernels["b"]), ((0, true), (0, false)));
    }

    #[test]
    fn lines_that_declare_no_variable_are_none() {
        for line in ["", "\t.reg .b32 %r<2>;", ".visible .entry mix(", ".visible .global .align 4"] {
            assert_eq!(variable(line), None, "{line}");
        }
    }
}
