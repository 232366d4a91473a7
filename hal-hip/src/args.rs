//! An owned copy of a launch's arguments. Knows neither the kernel nor the real call.

use crate::layout::{Layout, MAX_BYTES};
use hip_sys::types::{HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END};
use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;

/// The most bytes that are kept in place, without an allocation.
pub const IN_PLACE: usize = 256;

/// The most arguments that are passed on without an allocation.
const FEW: usize = 64;

/// The unit of storage, which aligns an argument as in the kernel's segment.
type Block = u128;

const BLOCK: usize = size_of::<Block>();

/// The copied arguments of one launch. The value can be reused for another launch and then keeps its storage.
pub struct KernelArgs {
    form: Form,
    /// The number of bytes that the caller passed.
    bytes: usize,
    in_place: [MaybeUninit<Block>; IN_PLACE / BLOCK],
    /// The storage of arguments that do not fit in place.
    large: Vec<Block>,
}

/// The form in which the caller passed the arguments, and in which they are passed on.
#[derive(Clone, Copy)]
enum Form {
    Nothing,
    Params(&'static Layout),
    Extra,
}

/// The reason why a launch's arguments cannot be copied. The call is then made with the caller's own, so that
/// the runtime gives its own answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyError {
    /// Both `kernelParams` and `extra` are given.
    Both,
    /// Neither is given, and the kernel has arguments.
    Neither,
    /// An argument's pointer is null.
    NullArgument,
    /// `extra` does not hold the three entries in the order that the runtime accepts.
    ExtraForm,
    /// The buffer of `extra` is smaller than the kernel's arguments.
    ExtraTooSmall,
    /// The buffer of `extra` exceeds [`MAX_BYTES`].
    ExtraTooLarge,
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "kernelParams and extra are both given",
            Self::Neither => "the kernel has arguments and none are given",
            Self::NullArgument => "an argument's pointer is null",
            Self::ExtraForm => "extra is not in the form that the runtime accepts",
            Self::ExtraTooSmall => "the buffer in extra is smaller than the kernel's arguments",
            Self::ExtraTooLarge => "the buffer in extra is larger than 4096 bytes",
        })
    }
}

impl fmt::Debug for KernelArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelArgs").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Default for KernelArgs {
    fn default() -> Self {
        Self::new()
    }
}

impl KernelArgs {
    /// Creates a value without arguments.
    #[inline]
    pub const fn new() -> Self {
        let in_place = [const { MaybeUninit::uninit() }; IN_PLACE / BLOCK];
        Self { form: Form::Nothing, bytes: 0, in_place, large: Vec::new() }
    }

    /// Replaces the arguments by copies of a launch's. After an error there are none.
    ///
    /// # Safety
    ///
    /// `params` and `extra` satisfy the launch functions for a kernel of this layout: `params` is null or an
    /// array of one pointer for each argument, each null or to that argument; `extra` is null or an array
    /// that ends with its first `HIP_LAUNCH_PARAM_END` at an even index.
    pub unsafe fn copy(
        &mut self,
        layout: &'static Layout,
        params: *const *mut c_void,
        extra: *const *mut c_void,
    ) -> Result<(), CopyError> {
        self.form = Form::Nothing;
        self.bytes = 0;
        match (params.is_null(), extra.is_null()) {
            (false, false) => Err(CopyError::Both),
            (true, true) if layout.args().is_empty() => Ok(()),
            (true, true) => Err(CopyError::Neither),
            // SAFETY: not null, so the caller guarantees a pointer for each argument.
            (false, true) => unsafe { self.copy_params(layout, params) },
            // SAFETY: not null, so the caller guarantees an array with an end.
            (true, false) => unsafe { self.copy_extra(layout, extra) },
        }
    }

    /// Copies arguments given by `kernelParams`.
    ///
    /// # Safety
    ///
    /// `params` is an array of one pointer for each argument, each null or to that argument.
    unsafe fn copy_params(
        &mut self,
        layout: &'static Layout,
        params: *const *mut c_void,
    ) -> Result<(), CopyError> {
        let bytes = layout.bytes();
        let to = self.room(bytes);
        for (index, slot) in layout.args().iter().enumerate() {
            // SAFETY: the array has a pointer for each argument of the layout.
            let from = unsafe { params.add(index).read() }.cast::<u8>().cast_const();
            if from.is_null() {
                return Err(CopyError::NullArgument);
            }
            // SAFETY: `Layout::new` ends all slots within `bytes`, for which there is room at `to`.
            let to = unsafe { to.add(slot.offset as usize) };
            #[cfg(feature = "broken-order")]
            if index + 1 == layout.args().len() && xqueue::broken::is_now(xqueue::broken::Fault::Argument) {
                // SAFETY: the slot lies within the room, which only this value refers to.
                unsafe { ptr::write_bytes(to, 0, slot.size as usize) };
                continue;
            }
            // SAFETY: the caller's pointer leads to an argument of this size; the slot lies within our own
            // storage.
            unsafe { copy_bytes(from, to, slot.size as usize) };
        }
        self.form = Form::Params(layout);
        self.bytes = bytes;
        Ok(())
    }

    /// Copies arguments given by `extra`.
    ///
    /// # Safety
    ///
    /// `extra` is an array that ends with its first `HIP_LAUNCH_PARAM_END` at an even index.
    unsafe fn copy_extra(
        &mut self,
        layout: &'static Layout,
        extra: *const *mut c_void,
    ) -> Result<(), CopyError> {
        // SAFETY: the calls below read no entry behind the end: each comparison fails at the latest at the
        // end entry.
        let at = |index: usize| unsafe { extra.add(index).read() };
        if at(0) != HIP_LAUNCH_PARAM_BUFFER_POINTER
            || at(2) != HIP_LAUNCH_PARAM_BUFFER_SIZE
            || at(4) != HIP_LAUNCH_PARAM_END
        {
            return Err(CopyError::ExtraForm);
        }
        let (buffer, size) = (at(1).cast::<u8>().cast_const(), at(3).cast::<usize>().cast_const());
        if buffer.is_null() || size.is_null() {
            return Err(CopyError::ExtraForm);
        }
        // SAFETY: the entry behind `HIP_LAUNCH_PARAM_BUFFER_SIZE` leads to the size, which may be unaligned.
        let size = unsafe { size.read_unaligned() };
        // The runtime reads as many bytes as the kernel takes, whatever the size says.
        if size < layout.bytes() {
            return Err(CopyError::ExtraTooSmall);
        }
        if size > MAX_BYTES {
            return Err(CopyError::ExtraTooLarge);
        }
        let to = self.room(size);
        // SAFETY: the caller's buffer has this size, and there is room for it in our own storage.
        unsafe { copy_bytes(buffer, to, size) };
        self.form = Form::Extra;
        self.bytes = size;
        Ok(())
    }

    /// Returns the number of bytes that were copied.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if the storage is an allocation of its own.
    pub fn is_large(&self) -> bool {
        self.bytes > IN_PLACE
    }

    /// Makes the real call: `call` gets `kernelParams` and `extra`, which lead to the copies and are valid
    /// while it runs. The one that was null in the copied call is null.
    pub fn pass<R>(&mut self, call: impl FnOnce(*mut *mut c_void, *mut *mut c_void) -> R) -> R {
        let storage = self.storage();
        match self.form {
            Form::Nothing => call(ptr::null_mut(), ptr::null_mut()),
            Form::Extra => {
                let mut size = self.bytes;
                let mut extra = [
                    HIP_LAUNCH_PARAM_BUFFER_POINTER,
                    storage.cast(),
                    HIP_LAUNCH_PARAM_BUFFER_SIZE,
                    (&raw mut size).cast(),
                    HIP_LAUNCH_PARAM_END,
                ];
                call(ptr::null_mut(), extra.as_mut_ptr())
            }
            Form::Params(layout) => {
                let slots = layout.args().iter();
                // Slots lie within the storage, at the offsets where `copy` put them.
                let pointers = slots.map(|slot| storage.wrapping_add(slot.offset as usize).cast::<c_void>());
                let mut few = [const { MaybeUninit::<*mut c_void>::uninit() }; FEW];
                if layout.args().len() <= FEW {
                    few.iter_mut().zip(pointers).for_each(|(entry, pointer)| {
                        entry.write(pointer);
                    });
                    call(few.as_mut_ptr().cast(), ptr::null_mut())
                } else {
                    let mut many: Vec<*mut c_void> = pointers.collect();
                    call(many.as_mut_ptr(), ptr::null_mut())
                }
            }
        }
    }

    /// Returns storage for so many bytes: the same that [`KernelArgs::storage`] returns once `self.bytes` is
    /// this number.
    fn room(&mut self, bytes: usize) -> *mut u8 {
        if bytes <= IN_PLACE {
            return self.in_place.as_mut_ptr().cast();
        }
        let blocks = bytes.div_ceil(BLOCK);
        if self.large.len() < blocks {
            self.large = vec![0; blocks];
        }
        self.large.as_mut_ptr().cast()
    }

    fn storage(&mut self) -> *mut u8 {
        if self.is_large() { self.large.as_mut_ptr().cast() } else { self.in_place.as_mut_ptr().cast() }
    }
}

/// Copies an argument. Constant sizes make the common cases of four and eight bytes single moves.
///
/// # Safety
///
/// `size` bytes can be read at `from` and written at `to`, which do not overlap.
#[inline(always)]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, size: usize) {
    // SAFETY: each arm copies exactly `size` bytes, for which the caller guarantees both pointers.
    unsafe {
        match size {
            8 => ptr::copy_nonoverlapping(from, to, 8),
            4 => ptr::copy_nonoverlapping(from, to, 4),
            _ => ptr::copy_nonoverlapping(from, to, size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::ArgSlot;
    use proptest::prelude::*;

    fn layout(slots: &[(u32, u32)]) -> &'static Layout {
        let args: Vec<ArgSlot> = slots.iter().map(|&(offset, size)| ArgSlot { offset, size }).collect();
        let end = slots.last().map_or(0, |(offset, size)| offset + size);
        Box::leak(Box::new(Layout::new(args, end).unwrap()))
    }

    /// Returns a layout with slots of these sizes, each behind a gap.
    fn spaced(sizes: &[(u32, u32)]) -> &'static Layout {
        let mut end = 0;
        let slots: Vec<_> = sizes
            .iter()
            .map(|&(gap, size)| {
                let offset = end + gap;
                end = offset + size;
                (offset, size)
            })
            .collect();
        layout(&slots)
    }

    fn pointers(values: &mut [Vec<u8>]) -> Vec<*mut c_void> {
        values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect()
    }

    /// Returns the arguments that a call with `kernelParams` receives, by the layout.
    fn received(args: &mut KernelArgs, layout: &Layout) -> Vec<Vec<u8>> {
        args.pass(|params, extra| {
            assert!(extra.is_null());
            let read = |(index, slot): (usize, &ArgSlot)| {
                // SAFETY: `params` has a pointer for each argument, to as many bytes as the layout gives it.
                unsafe {
                    let at = params.add(index).read();
                    std::slice::from_raw_parts(at.cast::<u8>(), slot.size as usize).to_vec()
                }
            };
            layout.args().iter().enumerate().map(read).collect()
        })
    }

    fn copy(args: &mut KernelArgs, layout: &'static Layout, params: &[*mut c_void]) -> Result<(), CopyError> {
        assert_eq!(params.len(), layout.args().len());
        // SAFETY: one pointer for each argument, null or to as many bytes as the layout gives it.
        unsafe { args.copy(layout, params.as_ptr(), ptr::null()) }
    }

    fn copy_extra(
        args: &mut KernelArgs,
        layout: &'static Layout,
        extra: &[*mut c_void],
    ) -> Result<(), CopyError> {
        // SAFETY: the tests end the array, and pass sizes that the buffers have.
        unsafe { args.copy(layout, ptr::null(), extra.as_ptr()) }
    }

    proptest! {
        #[test]
        fn copy_in_any_layout_equals_the_callers_arguments(
            sizes in prop::collection::vec((0_u32..9, prop_oneof![Just(4_u32), Just(8), 1_u32..300]), 0..100),
            again in any::<bool>(),
        ) {
            let mut total = 0;
            let sizes: Vec<_> = sizes.into_iter().take_while(|(gap, size)| {
                total += gap + size;
                total as usize <= MAX_BYTES
            }).collect();
            let layout = spaced(&sizes);
            let mut args = KernelArgs::new();
            if again {
                let mut before = vec![vec![0xee; 2000]; 2];
                copy(&mut args, spaced(&[(0, 2000), (0, 2000)]), &pointers(&mut before)).unwrap();
            }
            let mut values: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(index, &(_, size))| vec![index as u8 + 1; size as usize]).collect();
            let expected = values.clone();
            copy(&mut args, layout, &pointers(&mut values)).unwrap();
            // The caller may change its own arguments now.
            values.iter_mut().for_each(|value| value.fill(0));
            drop(values);
            // The copy can be moved to another thread, and passed several times.
            let mut args = std::thread::spawn(move || args).join().unwrap();
            prop_assert_eq!(received(&mut args, layout), &expected[..]);
            prop_assert_eq!(received(&mut args, layout), expected);
            prop_assert_eq!(args.bytes(), layout.bytes());
        }
    }

    #[test]
    fn arguments_up_to_the_bound_are_copied() {
        for size in [1, 255, 256, 257, 4095, 4096] {
            let layout = layout(&[(0, size)]);
            let mut args = KernelArgs::new();
            let mut value = [vec![7; size as usize]];
            copy(&mut args, layout, &pointers(&mut value)).unwrap();
            assert_eq!(received(&mut args, layout), value);
            assert_eq!(args.is_large(), size > 256);
        }
    }

    #[test]
    fn kernel_without_arguments_copies_nothing() {
        let none = layout(&[]);
        let mut args = KernelArgs::new();
        // SAFETY: there are no arguments.
        assert_eq!(unsafe { args.copy(none, ptr::null(), ptr::null()) }, Ok(()));
        args.pass(|params, extra| assert!(params.is_null() && extra.is_null()));
        // Nothing is read through a pointer to no arguments.
        let nowhere = ptr::without_provenance::<*mut c_void>(8);
        // SAFETY: there are no arguments, so the pointer is not followed.
        assert_eq!(unsafe { args.copy(none, nowhere, ptr::null()) }, Ok(()));
        args.pass(|params, extra| assert!(!params.is_null() && extra.is_null()));
    }

    #[test]
    fn invalid_arguments_are_left_to_the_runtime() {
        let layout = layout(&[(0, 4), (8, 8)]);
        let mut args = KernelArgs::new();
        let mut values = [vec![1; 4], vec![2; 8]];
        let mut params = pointers(&mut values);
        copy(&mut args, layout, &params).unwrap();
        let mut extra = [HIP_LAUNCH_PARAM_END];
        // SAFETY: both arrays are valid for this layout.
        let both = unsafe { args.copy(layout, params.as_ptr(), extra.as_mut_ptr()) };
        assert_eq!(both, Err(CopyError::Both));
        // SAFETY: nothing is given.
        assert_eq!(unsafe { args.copy(layout, ptr::null(), ptr::null()) }, Err(CopyError::Neither));
        params[1] = ptr::null_mut();
        assert_eq!(copy(&mut args, layout, &params), Err(CopyError::NullArgument));
        assert_eq!(args.bytes(), 0, "nothing of the earlier copy is left");
    }

    #[test]
    fn buffer_of_extra_is_passed_on_as_a_buffer() {
        let layout = layout(&[(0, 4), (8, 8)]);
        let mut args = KernelArgs::new();
        // Larger than needed too, because some programs include the hidden arguments.
        for length in [16, 24, 256, 257, 4096] {
            let mut buffer: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let expected = buffer.clone();
            let mut size = buffer.len();
            let extra = [
                HIP_LAUNCH_PARAM_BUFFER_POINTER,
                buffer.as_mut_ptr().cast(),
                HIP_LAUNCH_PARAM_BUFFER_SIZE,
                (&raw mut size).cast(),
                HIP_LAUNCH_PARAM_END,
            ];
            copy_extra(&mut args, layout, &extra).unwrap();
            buffer.fill(0);
            size = 0;
            assert_eq!(size, 0, "the caller's own size");
            args.pass(|params, extra| {
                assert!(params.is_null());
                // SAFETY: five entries were copied.
                let extra = unsafe { std::slice::from_raw_parts(extra, 5) };
                assert_eq!(
                    [extra[0], extra[2], extra[4]],
                    [HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END]
                );
                // SAFETY: the fourth entry leads to the size of the buffer, to which the second one leads.
                let bytes = unsafe {
                    let size = extra[3].cast::<usize>().read();
                    std::slice::from_raw_parts(extra[1].cast::<u8>(), size)
                };
                assert_eq!(bytes, expected);
            });
        }
    }

    #[test]
    fn invalid_extra_is_left_to_the_runtime() {
        let layout = layout(&[(0, 4), (8, 8)]);
        let mut buffer = [0_u64; 600];
        let data = buffer.as_mut_ptr().cast::<c_void>();
        let mut size = 16_usize;
        let at = (&raw mut size).cast::<c_void>();
        let (pointer, length, end) =
            (HIP_LAUNCH_PARAM_BUFFER_POINTER, HIP_LAUNCH_PARAM_BUFFER_SIZE, HIP_LAUNCH_PARAM_END);
        let mut args = KernelArgs::new();
        for extra in [
            &[end][..],
            &[pointer, data, end],
            &[length, at, pointer, data, end],
            &[pointer, data, length, at, ptr::null_mut()],
            &[pointer, ptr::null_mut(), length, at, end],
            &[pointer, data, length, ptr::null_mut(), end],
        ] {
            assert_eq!(copy_extra(&mut args, layout, extra), Err(CopyError::ExtraForm), "{extra:?}");
        }
        let extra = [pointer, data, length, at, end];
        for (bytes, expected) in [
            (0, Err(CopyError::ExtraTooSmall)),
            (15, Err(CopyError::ExtraTooSmall)),
            (16, Ok(())),
            (4096, Ok(())),
            (4097, Err(CopyError::ExtraTooLarge)),
            (usize::MAX, Err(CopyError::ExtraTooLarge)),
        ] {
            // SAFETY: `at` points to `size`.
            unsafe { at.cast::<usize>().write(bytes) };
            assert_eq!(copy_extra(&mut args, layout, &extra), expected, "{bytes}");
        }
    }
}
