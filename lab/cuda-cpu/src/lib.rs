//! `libcuda_cpu.so`: the CUDA driver's interface on threads of the CPU, for tests on machines without an
//! NVIDIA GPU. It stands in for `libcuda.so.1`: streams are asynchronous, kernels have exact effects on
//! memory, and busy kernels take the time that their arguments say. It refuses what it does not support.
//!
//! * [`abi`]: types, values and layouts of the interface.
//! * [`gate`], [`start`]: the checks at the start of each function, and the types of arguments; [`status`]:
//!   names of errors; [`procaddress`]: functions by name.
//! * [`arena`]: the memory of a device; [`memory`]: the table of allocations; [`host`]: memory of the
//!   program.
//! * [`turns`]: how processes share the device's time; [`kernels`]: the kernels; [`work`]: the commands;
//!   [`graph`]: graphs as data.
//! * [`state`]: all tables and the lock; [`engine`]: queues and threads of streams; [`capture`]: commands as
//!   nodes.
//! * The interface by its areas: [`device`], [`context`], [`allocate`], [`pool`], [`copy`], [`fill`],
//!   [`stream`], [`event`], [`module`] (with [`ptx`] and [`cubin`]), [`launch`], [`capture_api`],
//!   [`graph_api`], [`graph_nodes`], [`graph_exec`], [`ipc`] (with [`ipc_event`]).

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
