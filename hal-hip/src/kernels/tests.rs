//! Handles that come and go: their kernels, the time at which code is read, and the absence of stale entries.

use super::*;
use crate::sample::{bundle, code};
use proptest::prelude::*;
use std::ptr;

/// A fat binary as a program holds it: a wrapper that points to the payload.
struct Binary {
    _payload: Vec<u8>,
    wrapper: [u64; 3],
}

impl Binary {
    fn new(kernels: &[(&str, &[u32])]) -> Self {
        Self::of(bundle(&[("hipv4-amdgcn-amd-amdhsa--gfx90a", &code(kernels))]))
    }

    fn of(payload: Vec<u8>) -> Self {
        // Magic and version, payload, nothing.
        let wrapper = [1 << 32 | 0x4849_5046, payload.as_ptr().addr() as u64, 0];
        // The address is stored as a number, as in a program's data.
        let _ = payload.as_ptr().expose_provenance();
        Self { _payload: payload, wrapper }
    }

    fn register(&self, kernels: &Kernels, modules: usize) {
        // SAFETY: the tests remove the binary, or make no further look-up, before they drop it.
        unsafe { kernels.add_binary(handle(modules), self.wrapper.as_ptr().cast()) };
    }
}

fn handle(number: usize) -> *const c_void {
    ptr::without_provenance(number)
}

fn host_function(kernels: &Kernels, modules: usize, function: usize, name: &CStr) {
    // SAFETY: a C string.
    unsafe { kernels.add_host_function(handle(modules), handle(function), name.as_ptr()) };
}

fn function(kernels: &Kernels, module: usize, function: usize, name: &CStr) {
    let (module, function) = (hipModule_t::from_raw(module), hipFunction_t::from_raw(function));
    // SAFETY: a C string.
    unsafe { kernels.add_function(module, function, name.as_ptr()) };
}

fn module(kernels: &Kernels, module: usize, code: &[u8]) {
    // SAFETY: the code is complete, so every range that its headers name can be read.
    let image = unsafe { kernels.image_of_data(code.as_ptr().cast()) };
    kernels.add_module(hipModule_t::from_raw(module), image);
}

fn sizes(kernels: &Kernels, function: usize) -> Result<Vec<u32>, Unknown> {
    sizes_on(kernels, function, 0)
}

fn sizes_on(kernels: &Kernels, function: usize, device: u32) -> Result<Vec<u32>, Unknown> {
    let found = kernels.find(handle(function), device);
    assert_eq!(found, kernels.find(handle(function), device), "second look-up");
    found.map(|kernel| kernel.layout.args().iter().map(|slot| slot.size).collect())
}

#[test]
fn host_functions_have_the_kernels_of_their_binary() {
    let kernels = Kernels::new();
    let (one, other) = (Binary::new(&[("a", &[4]), ("b", &[8, 8])]), Binary::new(&[("a", &[1, 2])]));
    one.register(&kernels, 16);
    other.register(&kernels, 32);
    host_function(&kernels, 16, 0x1000, c"a");
    host_function(&kernels, 16, 0x1001, c"b");
    host_function(&kernels, 32, 0x2000, c"a");
    host_function(&kernels, 32, 0x2001, c"nowhere");
    host_function(&kernels, 48, 0x3000, c"a");
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![4]));
    assert_eq!(sizes(&kernels, 0x1001), Ok(vec![8, 8]));
    assert_eq!(sizes(&kernels, 0x2000), Ok(vec![1, 2]));
    assert_eq!(sizes(&kernels, 0x2001), Err(Unknown::NoSuchKernel));
    assert_eq!(sizes(&kernels, 0x3000), Err(Unknown::NotRegistered), "no such binary");
    assert_eq!(sizes(&kernels, 0), Err(Unknown::NotRegistered));
    assert_eq!(&*kernels.find(handle(0x1001), 0).unwrap().name, "b");
    // Registered later, when the binary has been read.
    host_function(&kernels, 16, 0x1002, c"b");
    assert_eq!(sizes(&kernels, 0x1002), Ok(vec![8, 8]));
}

#[test]
fn registration_reads_nothing() {
    let kernels = Kernels::new();
    // SAFETY: the address is invalid, but no kernel is looked up while it is registered.
    unsafe { kernels.add_binary(handle(16), handle(0x1_0000)) };
    host_function(&kernels, 16, 0x1000, c"a");
    kernels.remove_binary(handle(16));
    assert_eq!(sizes(&kernels, 0x1000), Err(Unknown::NotRegistered));
}

#[test]
fn code_of_several_wrappers_is_read_once() {
    let kernels = Kernels::new();
    let mut payload = bundle(&[("hipv4-amdgcn-amd-amdhsa--gfx90a", &code(&[("a", &[4]), ("b", &[8])]))]);
    let place = payload.as_mut_ptr();
    let other = bundle(&[("hipv4-amdgcn-amd-amdhsa--gfx90a", &code(&[("a", &[1]), ("b", &[2])]))]);
    assert_eq!(payload.len(), other.len());
    // SAFETY: the payload has this length, and nobody else uses it during the call.
    let replace = || unsafe { ptr::copy_nonoverlapping(other.as_ptr(), place, other.len()) };
    let first = Binary::of(payload);
    let wrapper = first.wrapper;
    let [second, past_one] = [wrapper; 2];
    first.register(&kernels, 16);
    // SAFETY: the wrappers and their payload live until the end of the test.
    unsafe { kernels.add_binary(handle(32), second.as_ptr().cast()) };
    host_function(&kernels, 16, 0x1000, c"a");
    host_function(&kernels, 32, 0x2000, c"b");
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![4]));
    // A change, which real programs must not make, shows whether the code is read again.
    replace();
    assert_eq!(sizes(&kernels, 0x2000), Ok(vec![8]));
    // SAFETY: as above.
    assert!(unsafe { kernels.add_unseen(handle(0x3000), c"b", &[past_one.as_ptr().cast()]) });
    assert_eq!(sizes(&kernels, 0x3000), Ok(vec![8]));
    // With the last of them the code is forgotten, and the address may get other code.
    kernels.remove_binary(handle(16));
    kernels.remove_binary(handle(32));
    kernels.remove_binary(handle(48));
    first.register(&kernels, 16);
    host_function(&kernels, 16, 0x1000, c"a");
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![1]));
}

#[test]
fn null_handles_of_failed_calls_are_ignored() {
    let kernels = Kernels::new();
    let binary = Binary::new(&[("a", &[4])]);
    binary.register(&kernels, 0);
    host_function(&kernels, 0, 0x1000, c"a");
    assert_eq!(sizes(&kernels, 0x1000), Err(Unknown::NotRegistered));
    binary.register(&kernels, 16);
    // SAFETY: a null name is permitted.
    unsafe {
        kernels.add_host_function(handle(16), handle(0x1000), ptr::null());
        kernels.add_function(hipModule_t::NULL, hipFunction_t::NULL, ptr::null());
    }
    kernels.remove_binary(ptr::null());
    kernels.remove_module(hipModule_t::NULL);
    assert_eq!(sizes(&kernels, 0x1000), Err(Unknown::NotRegistered));
}

#[test]
fn modules_keep_no_memory_of_the_program() {
    let kernels = Kernels::new();
    let mut bytes = code(&[("a", &[4, 4]), ("b", &[])]);
    module(&kernels, 16, &bytes);
    bytes.fill(0xff);
    drop(bytes);
    function(&kernels, 16, 0x100, c"a");
    function(&kernels, 16, 0x100, c"a");
    function(&kernels, 16, 0x101, c"b");
    assert_eq!(sizes(&kernels, 0x100), Ok(vec![4, 4]));
    assert_eq!(sizes(&kernels, 0x101), Ok(vec![]));
    function(&kernels, 16, 0x100, c"a");
    assert_eq!(sizes(&kernels, 0x100), Ok(vec![4, 4]));
}

#[test]
fn reused_address_has_the_new_kernel() {
    let kernels = Kernels::new();
    let (first, second) = (code(&[("a", &[4])]), code(&[("a", &[8]), ("b", &[2])]));
    module(&kernels, 16, &first);
    function(&kernels, 16, 0x100, c"a");
    assert_eq!(sizes(&kernels, 0x100), Ok(vec![4]));
    kernels.remove_module(hipModule_t::from_raw(16));
    assert_eq!(sizes(&kernels, 0x100), Err(Unknown::NotRegistered));
    module(&kernels, 16, &second);
    assert_eq!(sizes(&kernels, 0x100), Err(Unknown::NotRegistered));
    function(&kernels, 16, 0x100, c"a");
    assert_eq!(sizes(&kernels, 0x100), Ok(vec![8]));
    // The unloading of the next one was not seen.
    module(&kernels, 16, &first);
    assert_eq!(sizes(&kernels, 0x100), Err(Unknown::NotRegistered));
    function(&kernels, 16, 0x100, c"a");
    assert_eq!(sizes(&kernels, 0x100), Ok(vec![4]));
    // The loading of the module that has this function now was not seen either.
    function(&kernels, 32, 0x100, c"a");
    assert_eq!(sizes(&kernels, 0x100), Err(Unknown::NotRegistered));
    function(&kernels, 16, 0x100, c"a");
    kernels.remove_modules();
    assert_eq!(sizes(&kernels, 0x100), Err(Unknown::NotRegistered));
}

#[test]
fn host_function_of_several_binaries_is_known_if_they_agree() {
    let kernels = Kernels::new();
    let (one, same, differs) =
        (Binary::new(&[("a", &[4])]), Binary::new(&[("a", &[4]), ("b", &[1])]), Binary::new(&[("a", &[8])]));
    one.register(&kernels, 16);
    host_function(&kernels, 16, 0x1000, c"a");
    host_function(&kernels, 16, 0x1000, c"a");
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![4]));
    same.register(&kernels, 32);
    host_function(&kernels, 32, 0x1000, c"a");
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![4]));
    differs.register(&kernels, 48);
    host_function(&kernels, 48, 0x1000, c"a");
    host_function(&kernels, 48, 0x1000, c"a");
    assert_eq!(sizes(&kernels, 0x1000), Err(Unknown::EntriesDiffer));
    kernels.remove_binary(handle(48));
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![4]));
    kernels.remove_binary(handle(16));
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![4]));
    kernels.remove_binary(handle(32));
    assert_eq!(sizes(&kernels, 0x1000), Err(Unknown::NotRegistered));
}

/// Adds a host function that was registered without the library's knowledge, by these binaries.
fn past(kernels: &Kernels, function: usize, name: &CStr, binaries: &[&Binary]) -> bool {
    let wrappers: Vec<_> = binaries.iter().map(|binary| binary.wrapper.as_ptr().cast()).collect();
    // SAFETY: the tests remove the binaries, or make no further look-up, before they drop them.
    unsafe { kernels.add_unseen(handle(function), name, &wrappers) }
}

#[test]
fn binaries_added_past_are_known_until_an_unknown_one_is_removed() {
    let kernels = Kernels::new();
    let (one, other, differs) = (
        Binary::new(&[("a", &[4])]),
        Binary::new(&[("b", &[8, 8])]),
        Binary::new(&[("a", &[1]), ("c", &[2])]),
    );
    let ours = Binary::new(&[("d", &[4, 4, 4])]);
    ours.register(&kernels, 16);
    host_function(&kernels, 16, 0x4000, c"d");
    assert_eq!(sizes(&kernels, 0x1000), Err(Unknown::NotRegistered));
    assert!(past(&kernels, 0x1000, c"a", &[&one, &other]));
    assert!(past(&kernels, 0x2000, c"b", &[&one, &other]));
    assert!(!past(&kernels, 0x3000, c"nowhere", &[&one, &other]));
    assert!(!past(&kernels, 0x3000, c"a", &[]));
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![4]));
    assert_eq!(sizes(&kernels, 0x2000), Ok(vec![8, 8]));
    assert_eq!(sizes(&kernels, 0x3000), Err(Unknown::NotRegistered));
    // The runtime's choice between the two is not known.
    assert!(past(&kernels, 0x5000, c"a", &[&one, &differs]));
    assert_eq!(sizes(&kernels, 0x5000), Err(Unknown::EntriesDiffer));
    kernels.remove_binary(handle(16));
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![4]), "another binary was removed");
    kernels.remove_binary(handle(32));
    for function in [0x1000, 0x2000, 0x4000, 0x5000] {
        assert_eq!(sizes(&kernels, function), Err(Unknown::NotRegistered), "{function:#x}");
    }
    assert!(past(&kernels, 0x1000, c"c", &[&differs]));
    assert_eq!(sizes(&kernels, 0x1000), Ok(vec![2]), "another library at the same address");
}

#[test]
fn function_of_a_symbol_has_its_kernel_while_it_is_registered() {
    let kernels = Kernels::new();
    let (one, other) = (Binary::new(&[("a", &[4])]), Binary::new(&[("a", &[8])]));
    let alias = |function, symbol| kernels.add_alias(hipFunction_t::from_raw(function), handle(symbol));
    one.register(&kernels, 16);
    host_function(&kernels, 16, 0x1000, c"a");
    assert!(alias(0x100, 0x1000) && alias(0x100, 0x1000));
    assert!(!alias(0x200, 0x2000));
    assert_eq!(sizes(&kernels, 0x100), Ok(vec![4]));
    assert_eq!(sizes(&kernels, 0x200), Err(Unknown::NotRegistered));
    other.register(&kernels, 32);
    host_function(&kernels, 32, 0x2000, c"a");
    assert!(alias(0x100, 0x2000));
    assert_eq!(sizes(&kernels, 0x100), Ok(vec![8]), "the address was used again");
    kernels.remove_binary(handle(16));
    assert_eq!(sizes(&kernels, 0x100), Ok(vec![8]));
    assert!(!alias(0x100, 0x1000), "nobody knows that one any more");
    assert_eq!(sizes(&kernels, 0x100), Err(Unknown::NotRegistered));
    assert!(alias(0x100, 0x2000));
    kernels.remove_binary(handle(32));
    assert_eq!(sizes(&kernels, 0x100), Err(Unknown::NotRegistered));
}

#[test]
fn devices_have_the_kernels_of_their_own_code() {
    let kernels = Kernels::new();
    let (first, second) = (code(&[("a", &[4]), ("same", &[2])]), code(&[("a", &[8]), ("same", &[2])]));
    let fat = || {
        bundle(&[
            ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-", &first),
            ("hipv4-amdgcn-amd-amdhsa--gfx1100", &second),
            ("hip-spirv64-amd-amdhsa--amdgcnspirv", b"\x03\x02\x23\x07"),
        ])
    };
    let binary = Binary::of(fat());
    binary.register(&kernels, 16);
    host_function(&kernels, 16, 0x1000, c"a");
    host_function(&kernels, 16, 0x1001, c"same");
    // A module that is loaded before the devices are known.
    module(&kernels, 32, &fat());
    kernels.set_processors(Processors::new([
        "gfx90a:sramecc+:xnack-",
        "gfx1100",
        "gfx90a:sramecc+:xnack-",
        "gfx942",
    ]));
    module(&kernels, 48, &fat());
    function(&kernels, 32, 0x2000, c"a");
    function(&kernels, 48, 0x3000, c"a");
    for a in [0x1000, 0x2000, 0x3000] {
        let on = |device| sizes_on(&kernels, a, device);
        assert_eq!([on(0), on(1), on(2)], [Ok(vec![4]), Ok(vec![8]), Ok(vec![4])]);
        assert_eq!(on(3), Err(Unknown::NoEntry), "no code for this one");
    }
    assert_eq!(sizes_on(&kernels, 0x1001, 1), Ok(vec![2]));
    assert_eq!(sizes_on(&kernels, 0x1001, 3), Err(Unknown::NoEntry));
}

#[test]
fn equal_kernels_are_kept_once() {
    let kernels = Kernels::new();
    let code = code(&[("a", &[4])]);
    let mut seen = Vec::new();
    for round in 1..100 {
        module(&kernels, 16, &code);
        function(&kernels, 16, 0x100 * round, c"a");
        seen.push(kernels.find(handle(0x100 * round), 0).unwrap());
        kernels.remove_module(hipModule_t::from_raw(16));
    }
    assert!(seen.iter().all(|kernel| ptr::eq(*kernel, seen[0])));
    let state = kernels.state.lock();
    assert_eq!((state.images.len(), state.owners.len(), state.kept.len()), (1, 0, 1));
}

#[derive(Clone, Debug)]
enum Step {
    Load { module: usize, code: usize },
    Unload { module: usize },
    Get { module: usize, function: usize },
    Find { function: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1_usize..4, 0_usize..3).prop_map(|(module, code)| Step::Load { module, code }),
        (1_usize..4).prop_map(|module| Step::Unload { module }),
        (1_usize..4, 10_usize..16).prop_map(|(module, function)| Step::Get { module, function }),
        (10_usize..16).prop_map(|function| Step::Find { function }),
    ]
}

proptest! {
    #[test]
    fn random_changes_leave_each_handle_its_last_kernel(steps in prop::collection::vec(step(), 0..60)) {
        let kernels = Kernels::new();
        let codes = [code(&[("a", &[1])]), code(&[("a", &[2])]), code(&[("a", &[3])])];
        let mut modules: HashMap<usize, usize> = HashMap::new();
        // The module of each function.
        let mut functions: HashMap<usize, usize> = HashMap::new();
        for step in steps {
            match step {
                Step::Load { module: number, code } => {
                    module(&kernels, number, &codes[code]);
                    modules.insert(number, code);
                    functions.retain(|_, owner| *owner != number);
                }
                Step::Unload { module } => {
                    kernels.remove_module(hipModule_t::from_raw(module));
                    modules.remove(&module);
                    functions.retain(|_, owner| *owner != module);
                }
                Step::Get { module, function: number } => {
                    function(&kernels, module, number, c"a");
                    functions.remove(&number);
                    if modules.contains_key(&module) {
                        functions.insert(number, module);
                    }
                }
                Step::Find { function } => {
                    let expected = functions.get(&function).map(|module| vec![modules[module] as u32 + 1]);
                    prop_assert_eq!(sizes(&kernels, function), expected.ok_or(Unknown::NotRegistered));
                }
            }
        }
    }
}

#[test]
fn threads_find_kernels_beside_changes_of_others() {
    let kernels = Kernels::new();
    let binary = Binary::new(&[("a", &[4]), ("b", &[8])]);
    binary.register(&kernels, 16);
    for index in 0..200 {
        host_function(&kernels, 16, 0x1000 + index, if index % 2 == 0 { c"a" } else { c"b" });
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for index in (0..200).cycle().take(20_000) {
                    let expected = if index % 2 == 0 { 4 } else { 8 };
                    assert_eq!(sizes(&kernels, 0x1000 + index), Ok(vec![expected]));
                }
            });
        }
        scope.spawn(|| {
            let code = code(&[("a", &[4])]);
            for round in 0..500 {
                module(&kernels, 32, &code);
                function(&kernels, 32, 0x10_0000 + round * 16, c"a");
                assert_eq!(sizes(&kernels, 0x10_0000 + round * 16), Ok(vec![4]));
                kernels.remove_module(hipModule_t::from_raw(32));
            }
        });
    });
}
