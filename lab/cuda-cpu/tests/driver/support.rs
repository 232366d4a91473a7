//! The library's functions, and helpers for all tests.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;

/// Declares functions and looks all of them up.
macro_rules! functions {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        /// The library's functions by their names.
        #[allow(non_snake_case, reason = "they have the names of CUDA's interface")]
        pub struct Driver {
            $($name: unsafe extern "C" fn($($type),*) -> c_uint,)*
            _library: Library,
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "they are those of CUDA's interface")]
        impl Driver {
            fn load() -> Driver {
                // Cargo builds the library into the folder of this test.
                let path = std::env::current_exe().expect("the path of this test").with_file_name("libcuda_cpu.so");
                // SAFETY: the library's initialisers have no preconditions, and the types are the documented
                // ones.
                unsafe {
                    let library = Library::new(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                    $(let $name = *library
                        .get::<unsafe extern "C" fn($($type),*) -> c_uint>(concat!(stringify!($name), "\0").as_bytes())
                        .expect(stringify!($name));)*
                    Driver { $($name,)* _library: library }
                }
            }

            $(
                /// The function of this name. The tests pass pointers that are valid or null.
                pub fn $name(&self, $($arg: $type),*) -> c_uint {
                    // SAFETY: the type is the documented one, and the tests pass pointers that the function
                    // accepts.
                    unsafe { (self.$name)($($arg),*) }
                }
            )*
        }
    };
}

/// `CUipcMemHandle` and `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u8; 64]);

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
pub struct KernelNode {
    pub func: usize,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub params: *const *const c_void,
    pub extra: *const *const c_void,
}

pub type HostFunction = unsafe extern "C" fn(*mut c_void);

functions! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(to: *mut c_int);
    cuDevicePrimaryCtxRetain(to: *mut usize, device: c_int);
    cuDevicePrimaryCtxReset_v2(device: c_int);
    cuCtxSetCurrent(context: usize);
    cuCtxSynchronize();
    cuGetErrorName(error: c_uint, to: *mut *const c_char);
    cuGetProcAddress_v2(name: *const c_char, to: *mut usize, version: c_int, flags: u64, result: *mut c_uint);
    cuMemAlloc_v2(to: *mut usize, size: usize);
    cuMemFree_v2(at: usize);
    cuMemHostAlloc(to: *mut usize, size: usize, flags: c_uint);
    cuMemFreeHost(at: usize);
    cuMemHostRegister_v2(at: usize, size: usize, flags: c_uint);
    cuMemHostUnregister(at: usize);
    cuMemAllocManaged(to: *mut usize, size: usize, flags: c_uint);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuPointerGetAttribute(to: *mut c_void, which: c_uint, at: usize);
    cuMemcpy(dst: usize, src: usize, len: usize);
    cuMemcpyAsync(dst: usize, src: usize, len: usize, stream: usize);
    cuMemcpy2DUnaligned_v2(copy: *const [usize; 16]);
    cuMemsetD8Async(dst: usize, value: u8, n: usize, stream: usize);
    cuMemsetD32_v2(dst: usize, value: c_uint, n: usize);
    cuMemAllocAsync(to: *mut usize, size: usize, stream: usize);
    cuMemFreeAsync(at: usize, stream: usize);
    cuDeviceGetDefaultMemPool(to: *mut usize, device: c_int);
    cuMemPoolGetAttribute(pool: usize, which: c_uint, to: *mut c_void);
    cuMemPoolSetAttribute(pool: usize, which: c_uint, from: *mut c_void);
    cuStreamCreate(to: *mut usize, flags: c_uint);
    cuStreamDestroy_v2(stream: usize);
    cuStreamQuery(stream: usize);
    cuStreamSynchronize(stream: usize);
    cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint);
    cuStreamWaitValue32_v2(stream: usize, at: usize, value: c_uint, flags: c_uint);
    cuStreamWriteValue32_v2(stream: usize, at: usize, value: c_uint, flags: c_uint);
    cuLaunchHostFunc(stream: usize, function: Option<HostFunction>, user: *mut c_void);
    cuStreamAddCallback(
        stream: usize, function: Option<unsafe extern "C" fn(usize, c_uint, *mut c_void)>, user: *mut c_void,
        flags: c_uint
    );
    cuEventCreate(to: *mut usize, flags: c_uint);
    cuEventDestroy_v2(event: usize);
    cuEventRecord(event: usize, stream: usize);
    cuEventQuery(event: usize);
    cuEventSynchronize(event: usize);
    cuEventElapsedTime(to: *mut f32, start: usize, end: usize);
    cuModuleLoadData(to: *mut usize, image: *const c_void);
    cuModuleUnload(module: usize);
    cuModuleGetFunction(to: *mut usize, module: usize, name: *const c_char);
    cuModuleGetGlobal_v2(to: *mut usize, size: *mut usize, module: usize, name: *const c_char);
    cuFuncGetParamInfo(function: usize, index: usize, offset: *mut usize, size: *mut usize);
    cuLaunchKernel(
        function: usize, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: usize, params: *const *const c_void, extra: *const *const c_void
    );
    cuLaunchCooperativeKernel(
        function: usize, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: usize, params: *const *const c_void
    );
    cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int, block: *mut c_int, function: usize, by_block: *const c_void, shared: usize, limit: c_int
    );
    cuStreamBeginCapture_v2(stream: usize, mode: c_uint);
    cuStreamEndCapture(stream: usize, graph: *mut usize);
    cuStreamIsCapturing(stream: usize, to: *mut c_uint);
    cuStreamGetCaptureInfo_v2(
        stream: usize, status: *mut c_uint, id: *mut u64, graph: *mut usize, nodes: *mut *const usize,
        count: *mut usize
    );
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);
    cuGraphCreate(to: *mut usize, flags: c_uint);
    cuGraphDestroy(graph: usize);
    cuGraphClone(to: *mut usize, graph: usize);
    cuGraphNodeFindInClone(to: *mut usize, node: usize, clone: usize);
    cuGraphGetNodes(graph: usize, to: *mut usize, count: *mut usize);
    cuGraphGetEdges(graph: usize, from: *mut usize, to: *mut usize, count: *mut usize);
    cuGraphAddKernelNode(to: *mut usize, graph: usize, after: *const usize, count: usize, params: *const KernelNode);
    cuGraphAddEventRecordNode(to: *mut usize, graph: usize, after: *const usize, count: usize, event: usize);
    cuGraphAddChildGraphNode(to: *mut usize, graph: usize, after: *const usize, count: usize, child: usize);
    cuGraphAddDependencies(graph: usize, from: *const usize, to: *const usize, count: usize);
    cuGraphKernelNodeGetParams(node: usize, to: *mut KernelNode);
    cuGraphInstantiateWithFlags(to: *mut usize, graph: usize, flags: u64);
    cuGraphExecUpdate(exec: usize, graph: usize, node: *mut usize, result: *mut c_uint);
    cuGraphExecKernelNodeSetParams(exec: usize, node: usize, params: *const KernelNode);
    cuGraphExecDestroy(exec: usize);
    cuGraphLaunch(exec: usize, stream: usize);
    cuIpcGetMemHandle(to: *mut IpcHandle, at: usize);
    cuIpcOpenMemHandle_v2(to: *mut usize, handle: IpcHandle, flags: c_uint);
    cuIpcCloseMemHandle(at: usize);
    cuIpcGetEventHandle(to: *mut IpcHandle, event: usize);
    cuIpcOpenEventHandle(to: *mut usize, handle: IpcHandle);
}

/// A module as a compiler writes it.
pub const PTX: &std::ffi::CStr = cr#"
.version 7.5
.target sm_75
.address_size 64
.visible .global .align 4 .u32 module_table[4] = {1, 1, 2, 3};
.visible .entry mix(.param .u64 mix_0, .param .u64 mix_1, .param .u32 mix_2, .param .u64 mix_3) { ret; }
.visible .entry busy(.param .u64 busy_0, .param .u32 busy_1) { ret; }
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; }
.visible .entry _Z6narrowPy(.param .u64 a) .maxntid 64, 1, 1 { ret; }
.visible .entry foreign(.param .u64 a) { ret; }
"#;

/// One test's use of the library. Tests take turns, because captures and contexts affect the whole process.
pub struct Session {
    pub driver: &'static Driver,
    pub context: usize,
    pub module: usize,
    _turn: MutexGuard<'static, ()>,
}

/// The library, loaded once.
pub fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(Driver::load)
}

/// Begins a test: makes the primary context current, and loads the module.
pub fn begin() -> Session {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = driver();
    let (mut context, mut module) = (0, 0);
    assert_eq!(driver.cuInit(0), 0);
    // Removes what an earlier test has left.
    assert_eq!(driver.cuDevicePrimaryCtxReset_v2(0), 0);
    assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut context, 0), 0);
    assert_eq!(driver.cuCtxSetCurrent(context), 0);
    assert_eq!(driver.cuModuleLoadData(&mut module, PTX.as_ptr().cast()), 0);
    Session { driver, context, module, _turn: turn }
}

/// `gw_mix_step` of the kernels' header.
pub fn step(dst: u64, src: u64, i: u64, value: u64) -> u64 {
    let mut x = dst.wrapping_add(src.rotate_left(17)).wrapping_add(value);
    x = x.wrapping_add(i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A word of page-locked memory that holds a stream until it is opened.
pub struct Gate {
    pub at: usize,
}

impl Gate {
    pub fn open(&self) {
        // SAFETY: `gate` has allocated the word, no test frees it while the gate lives, and all accesses are
        // atomic.
        unsafe { AtomicU32::from_ptr(self.at as *mut u32) }.store(1, Ordering::Release);
    }
}

/// The arguments of `mix`, with the addresses that a launch takes.
pub struct Mix {
    dst: usize,
    src: usize,
    n: u32,
    value: u64,
    list: [*const c_void; 4],
}

/// Arguments for `n` elements of one buffer.
pub fn mixing(at: usize, n: u32, value: u64) -> Box<Mix> {
    let mut mix = Box::new(Mix { dst: at, src: at, n, value, list: [ptr::null(); 4] });
    let (dst, src, n, value) =
        (&raw const mix.dst, &raw const mix.src, &raw const mix.n, &raw const mix.value);
    mix.list = [dst.cast(), src.cast(), n.cast(), value.cast()];
    mix
}

impl Mix {
    pub fn params(&self) -> *const *const c_void {
        self.list.as_ptr()
    }

    /// A node that launches it.
    pub fn node(&self, function: usize) -> KernelNode {
        let (grid, block) = ([4, 1, 1], [64, 1, 1]);
        KernelNode { func: function, grid, block, shared: 0, params: self.params(), extra: ptr::null() }
    }
}

impl Session {
    pub fn stream(&self, flags: c_uint) -> usize {
        let mut stream = 0;
        assert_eq!(self.driver.cuStreamCreate(&mut stream, flags), 0);
        stream
    }

    pub fn event(&self, flags: c_uint) -> usize {
        let mut event = 0;
        assert_eq!(self.driver.cuEventCreate(&mut event, flags), 0);
        event
    }

    pub fn function(&self, name: &std::ffi::CStr) -> usize {
        let mut function = 0;
        assert_eq!(self.driver.cuModuleGetFunction(&mut function, self.module, name.as_ptr()), 0);
        function
    }

    /// Device memory of `n` words, all zero.
    pub fn words(&self, n: usize) -> usize {
        let mut at = 0;
        assert_eq!(self.driver.cuMemAlloc_v2(&mut at, n * 8), 0);
        assert_eq!(self.driver.cuMemsetD32_v2(at, 0, 2 * n), 0);
        assert_eq!(self.driver.cuCtxSynchronize(), 0);
        at
    }

    /// Returns the contents of device memory after the stream's earlier work.
    pub fn read(&self, at: usize, n: usize, stream: usize) -> Vec<u64> {
        let mut words = vec![0_u64; n];
        assert_eq!(self.driver.cuMemcpyAsync(words.as_mut_ptr() as usize, at, n * 8, stream), 0);
        words
    }

    /// Holds a stream until the gate is opened.
    pub fn gate(&self, stream: usize) -> Gate {
        let mut at = 0;
        assert_eq!(self.driver.cuMemHostAlloc(&mut at, 4, 0), 0);
        // Equal to 1.
        assert_eq!(self.driver.cuStreamWaitValue32_v2(stream, at, 1, 1), 0);
        Gate { at }
    }

    /// Launches `mix` on up to 256 words.
    pub fn mix(&self, stream: usize, at: usize, n: u32, value: u64) -> c_uint {
        let mix = mixing(at, n, value);
        let function = self.function(c"mix");
        self.driver.cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, mix.params(), ptr::null())
    }
}
