//! Names of processes, queues and devices.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($int:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A process id as whoever reports it sees it: a server in another pid namespace sees another number, or 0 for a
    /// process that has none there. For people; [`ClientId`] is what tells processes apart.
    Pid(u32);
    /// A connection of the server, counted from 1 and never used again: it names a gang (a process on all its devices)
    /// although process ids are used again and differ between pid namespaces.
    ClientId(u64);
    /// An XQueue in its process, counted from 1 and never used again. The C interface's `XQueueHandle` is this number;
    /// its 0 is no queue.
    QueueId(u64);
    /// A device: its KFD `gpu_id`, which is the same in every process whatever the HIP index there is.
    DeviceId(u32);
}
