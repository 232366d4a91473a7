//! The state of the simulated machine: its GPUs, the processes that use them, and the device memory.
//!
//! One lock guards it. Calls and the passing of time change it: `ioctl.rs`, `driver/`, `packets/`, put in
//! order by `engine/`.

mod debug;
mod events;
mod faults;
mod process;
mod queue;
mod scheduler;
mod shared;
mod state;
mod stats;
mod sysfs;
mod timeline;
mod waits;

pub use debug::{Awaited, Batch, Blocked, Parked};
pub use faults::{Failure, Faults};
pub use process::{Allocation, Process, Unusable};
pub use queue::{AQL_KERNEL_DISPATCH, Kind, Queue, State};
pub use scheduler::{ActiveOperation, Change, Follow, Operation, Settings, Stage};
pub use state::{DriverState, Execution, Gpu, Machine, Move, Outbox, Then};
pub use sysfs::Sysfs;
pub use timeline::Timeline;
