//! The interface to the shared pages of one client.

use protocol::control::Preemption;
use protocol::slow::SlowPath;
use protocol::status::Counts;
use protocol::time::Time;

/// The shared pages of one client. Everything read from them is untrusted.
pub trait ClientPage {
    /// The readiness of a queue.
    fn activity(&self, slot: u32) -> u64;
    /// The counters of a queue.
    fn counts(&self, slot: u32) -> Counts;
    /// The device time of a queue's completed commands as far as the client knows it, in nanoseconds.
    fn worked_ns(&self, slot: u32) -> u64;
    /// The number of completed commands.
    fn completed(&self) -> u64;
    /// The number of packets that the devices have taken from the client's hardware queues
    /// ([`protocol::page::ClientHeader::taken`]).
    fn taken(&self) -> u64;
    /// The time until which a command of known length runs.
    fn busy_until(&self) -> Time;
    /// The results of evictions. The level in force is not included.
    fn preemption(&self) -> Preemption;
    /// The number of launches that blocked the calling thread for this reason.
    fn slow_path(&self, reason: SlowPath) -> u64;
    /// The messages that the client takes ([`protocol::page::ClientHeader::takes`]).
    fn takes(&self) -> u32;
    /// Returns true if the process is stopped, traced or suspended by `xcli suspend`, and so cannot make
    /// progress.
    fn is_stopped(&self) -> bool;
    /// Stores the mask of events that the client reports. Sequentially consistent with
    /// [`ClientPage::activity`].
    fn set_event_mask(&self, mask: u32);
    /// Stores the permission. Launching threads of the client see it at once, sleeping ones after
    /// [`ClientPage::wake`].
    fn set_permission(&self, word: u64);
    /// Makes the client's agent read its page.
    fn wake(&self);
}
