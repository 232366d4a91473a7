//! The cost of argument copying: registering a host function, finding a kernel, copying its arguments. Prints
//! nanoseconds and checks no limit.

use hal_hip::args::KernelArgs;
use hal_hip::kernels::Kernels;
use hal_hip::layout::{ArgSlot, Layout};
use std::ffi::{CString, c_void};
use std::hint::black_box;
use std::ptr;
use std::time::Instant;

#[path = "../src/tests/sample.rs"]
#[allow(dead_code)]
mod sample;

const FUNCTIONS: usize = 50_000;
const ROUNDS: usize = 200;

/// Returns the nanoseconds for each of `count` steps of `work`: the median of several rounds.
fn nanoseconds(count: usize, mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_nanos() as f64 / count as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

fn main() {
    let names: Vec<CString> = (0..FUNCTIONS)
        .map(|index| {
            CString::new(format!("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_{index:08}EEEvi"))
                .expect("no NUL")
        })
        .collect();
    let args = || (0..5).map(|index| sample::arg(index * 8, 8, "global_buffer")).collect();
    let kernels =
        names.iter().map(|name| sample::kernel_value(name.to_str().expect("ASCII"), 40, Some(args())));
    let elf = sample::elf(&sample::note(kernels.collect()));
    let wrapper = [0x1_4849_5046_u64, elf.as_ptr().addr() as u64, 0];
    let functions: Vec<*const c_void> =
        (0..FUNCTIONS).map(|at| ptr::without_provenance((at + 1) * 16)).collect();
    let modules: *const c_void = ptr::without_provenance(8);

    let start = Instant::now();
    let kernels = Kernels::new();
    // SAFETY: the wrapper and the code object live until the end of `main`.
    unsafe { kernels.add_binary(modules, wrapper.as_ptr().cast()) };
    for (function, name) in functions.iter().zip(&names) {
        // SAFETY: a C string.
        unsafe { kernels.add_host_function(modules, *function, name.as_ptr()) };
    }
    println!("register a function    {:8.1} ns", start.elapsed().as_nanos() as f64 / FUNCTIONS as f64);

    let start = Instant::now();
    kernels.find(functions[0], 0).expect("registered");
    println!(
        "first find (index)     {:8.1} ns a kernel of the binary",
        start.elapsed().as_nanos() as f64 / FUNCTIONS as f64
    );
    let start = Instant::now();
    for function in &functions {
        kernels.find(*function, 0).expect("registered");
    }
    println!("first find of each     {:8.1} ns", start.elapsed().as_nanos() as f64 / FUNCTIONS as f64);

    for used in [16, 256, FUNCTIONS] {
        let find = nanoseconds(used, || {
            for function in &functions[..used] {
                let _ = black_box(kernels.find(black_box(*function), 0));
            }
        });
        println!("find, {used:6} in use   {find:8.1} ns");
    }

    for (count, size) in [(5_u32, 8_u32), (12, 8), (2, 512)] {
        let slots: Vec<ArgSlot> = (0..count).map(|index| ArgSlot { offset: index * size, size }).collect();
        let layout: &'static Layout =
            Box::leak(Box::new(Layout::new(slots, count * size).expect("a layout")));
        let values = vec![0_u8; size as usize];
        let params = vec![values.as_ptr().cast_mut().cast::<c_void>(); count as usize];
        let mut args = KernelArgs::new();
        let copy = nanoseconds(1000, || {
            for _ in 0..1000 {
                // SAFETY: one pointer for each argument of the layout, to as many bytes.
                let _ = black_box(unsafe { args.copy(layout, black_box(params.as_ptr()), ptr::null()) });
            }
        });
        let pass = nanoseconds(1000, || {
            for _ in 0..1000 {
                args.pass(|params, extra| black_box((params, extra)));
            }
        });
        println!("{count:2} arguments of {size:3} B  {copy:8.1} ns to copy, {pass:.1} ns to pass");
    }

    let start = Instant::now();
    kernels.remove_binary(modules);
    println!("forget a function      {:8.1} ns", start.elapsed().as_nanos() as f64 / FUNCTIONS as f64);
}
