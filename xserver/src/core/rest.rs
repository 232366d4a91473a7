//! Rest: a state in which a step would find nothing new, so that a heartbeat need not make one.

use super::client::ClientState;
use super::{ClientPage, Core};
use protocol::status::Activity;
use protocol::time::Time;

impl<P: ClientPage> Core<P> {
    /// Returns true if a step would change nothing, provided that the last one has asked for no further one and that nothing
    /// was applied or set since then: all clients run, none has work, and no page has changed.
    pub fn is_at_rest(&self) -> bool {
        !self.has_more_room && self.guard.until.is_none() && self.clients.iter().all(ClientState::is_at_rest)
    }

    /// The same at a heartbeat. This reads all pages, so the next step need not.
    pub fn rests(&mut self, now: Time) -> bool {
        let rests = self.is_at_rest();
        if rests {
            self.all_read = Some(now);
        }
        rests
    }
}

impl<P: ClientPage> ClientState<P> {
    fn is_at_rest(&self) -> bool {
        let is_idle = |activity| matches!(activity, Activity::Idle { .. });
        self.permit.run
            && self.decided.run
            && !self.yielded
            && self.slots.iter().all(|slot| is_idle(slot.activity) && !slot.has_changed(&self.page))
    }
}
