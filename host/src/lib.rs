//! Processes, users and threads as the operating system knows them.
//!
//! * [`handle`]: identifies one process, even if the kernel gives its pid to another one later.
//! * [`process`]: the status of a process, and the reason why a process may not be traced.
//! * [`signals`]: keeps the program's signals from the library's threads.
//! * [`user`]: tells whether two user ids belong to one user.
//! * [`thread_qos`]: asks the kernel for early wake-ups of a thread.

pub mod handle;
pub mod process;
pub mod signals;
pub mod thread_qos;
pub mod user;
