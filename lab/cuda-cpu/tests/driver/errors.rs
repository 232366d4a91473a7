//! Errors: bad handles and arguments, faults of kernels, names.

use std::ffi::{CStr, c_uint};
use std::ptr;

use crate::support::{begin, driver, mixing};

const INVALID_HANDLE: c_uint = 400;

#[test]
fn handles_that_are_none_are_refused() {
    let s = begin();
    let stream = s.stream(0);
    for bad in [3, 0xFFFF_FFFF_FFFF_FFF0, stream + 1, s.module, 0x10_0000] {
        assert_eq!(s.driver.cuStreamQuery(bad), INVALID_HANDLE, "{bad:#x}");
        assert_eq!(s.driver.cuStreamDestroy_v2(bad), INVALID_HANDLE);
        assert_eq!(s.driver.cuEventRecord(bad, stream), INVALID_HANDLE);
        assert_eq!(s.driver.cuGraphLaunch(bad, stream), 1);
        assert_eq!(s.driver.cuGraphDestroy(bad), 1);
        assert_eq!(s.driver.cuMemFree_v2(bad), 1);
        let none = ptr::null();
        assert_eq!(
            s.driver.cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, stream, none, ptr::null()),
            INVALID_HANDLE
        );
        assert_eq!(s.driver.cuCtxSetCurrent(bad), 201);
    }
    assert_eq!(s.driver.cuStreamDestroy_v2(0), INVALID_HANDLE);
    assert_eq!(s.driver.cuStreamCreate(ptr::null_mut(), 0), 1);
    assert_eq!(s.driver.cuStreamCreate(&mut 0, 2), 1);
    assert_eq!(s.driver.cuModuleUnload(stream), INVALID_HANDLE);
}

#[test]
fn launches_that_no_device_can_run_are_refused() {
    let s = begin();
    let at = s.words(64);
    let mix = mixing(at, 1, 1);
    let launch = |function, grid, block, shared| {
        s.driver.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, 0, mix.params(), ptr::null())
    };
    let (known, narrow) = (s.function(c"mix"), s.function(c"_Z6narrowPy"));
    assert_eq!(launch(known, 0, 1, 0), 1);
    assert_eq!(launch(known, 1, 1025, 0), 1);
    assert_eq!(launch(known, 1, 1, 49153), 1);
    assert_eq!((launch(narrow, 1, 64, 0), launch(narrow, 1, 65, 0)), (0, 1));
    assert_eq!(launch(s.function(c"foreign"), 1, 1, 0), 801, "a kernel that is not known");
    let none = s.driver.cuLaunchKernel(known, 1, 1, 1, 1, 1, 1, 0, 0, ptr::null(), ptr::null());
    assert_eq!(none, 1, "no arguments");
    let (mut grid, mut block) = (0, 0);
    let fits = s.driver.cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, known, ptr::null(), 0, 256);
    assert_eq!((fits, block), (0, 256));
    let cooperative =
        |grid| s.driver.cuLaunchCooperativeKernel(known, grid, 1, 1, 256, 1, 1, 0, 0, mix.params());
    assert_eq!((cooperative(grid as c_uint), cooperative(grid as c_uint + 1)), (0, 720));
    assert_eq!(s.driver.cuCtxSynchronize(), 0);
}

#[test]
fn a_fault_of_a_kernel_ends_its_context() {
    let s = begin();
    let at = s.words(1);
    assert_eq!(s.mix(0, at, 2, 1), 0, "the launch itself is good");
    assert_eq!(s.driver.cuCtxSynchronize(), 700);
    assert_eq!(s.driver.cuMemAlloc_v2(&mut 0, 8), 700);
    assert_eq!(s.driver.cuStreamCreate(&mut 0, 0), 700);
    assert_eq!(s.driver.cuDevicePrimaryCtxReset_v2(0), 0);
    assert_eq!(s.driver.cuCtxSynchronize(), 709, "the old context is gone");
    drop(s);
    let s = begin();
    assert_eq!(s.driver.cuCtxSynchronize(), 0);
}

#[test]
fn errors_and_functions_have_names() {
    let s = begin();
    let mut name = ptr::null();
    assert_eq!(s.driver.cuGetErrorName(719, &mut name), 0);
    // SAFETY: the call has stored a C string that lives as long as the library.
    assert_eq!(unsafe { CStr::from_ptr(name) }, c"CUDA_ERROR_LAUNCH_FAILED");
    assert_eq!(s.driver.cuGetErrorName(12345, &mut name), 1);
    let (mut address, mut result) = (0, 9);
    let get = |name: &CStr, address: &mut usize, result: &mut c_uint| {
        s.driver.cuGetProcAddress_v2(name.as_ptr(), address, 12000, 0, result)
    };
    assert_eq!(get(c"cuMemAlloc", &mut address, &mut result), 0);
    assert!(address != 0 && result == 0);
    assert_eq!(get(c"cuNothing", &mut address, &mut result), 500);
    assert_eq!((address, result), (0, 1));
    let mut version = 0;
    assert_eq!(driver().cuDriverGetVersion(&mut version), 0);
    assert!(version >= 12000);
}
