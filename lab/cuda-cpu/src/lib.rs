//! `libcuda_cpu.so`: the CUDA driver's interface on threads of the CPU, for tests on machines without an NVIDIA GPU.
//! It stands in for `libcuda.so.1`: streams are asynchronous, memory effects are exact, and times are those that busy
//! kernels are told. What it cannot do it refuses.
//!
//! * [`abi`]: types, values and layouts of the interface.
//! * [`gate`], [`start`]: what each function checks first, and the types of its arguments; [`status`]: names of errors;
//!   [`procaddress`]: functions by name.
//! * [`arena`]: the memory of a device; [`memory`]: the table of allocations; [`host`]: memory of the program.
//! * [`turns`]: the time of the device, shared by processes; [`kernels`]: the kernels; [`work`]: what a command does;
//!   [`graph`]: graphs as data.
//! * [`state`]: all tables and the lock; [`engine`]: queues and threads of streams; [`capture`]: commands as nodes.
//! * The interface by its areas: [`device`], [`context`], [`allocate`], [`pool`], [`copy`], [`fill`], [`stream`],
//!   [`event`], [`module`] (with [`ptx`] and [`cubin`]), [`launch`], [`capture_api`], [`graph_api`], [`graph_nodes`],
//!   [`graph_exec`], [`ipc`] (with [`ipc_event`]).

mod abi;
mod allocate;
mod arena;
mod capture;
mod capture_api;
mod context;
mod copy;
mod cubin;
mod device;
mod engine;
mod event;
mod fill;
mod gate;
mod graph;
mod graph_api;
mod graph_exec;
mod graph_nodes;
mod host;
mod ipc;
mod ipc_event;
mod kernels;
mod launch;
mod memory;
mod module;
mod pool;
mod procaddress;
mod ptx;
mod start;
mod state;
mod status;
mod stream;
mod turns;
mod work;
