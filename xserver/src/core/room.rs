//! The limits for queues. A queue too many is refused, and its process runs unscheduled.

use super::fault::NoRoom;
use super::{ClientPage, Core};
use crate::limits::{DEVICES, QUEUES};
use protocol::ids::DeviceId;
use std::collections::BTreeSet;

impl<P: ClientPage> Core<P> {
    /// Checks the limits for a new queue of a client.
    pub(super) fn find_room(&self, index: usize, device: DeviceId) -> Result<(), NoRoom> {
        let (gang, grant) = (&self.gangs()[index], &self.clients[index].grant);
        if self.queues() >= QUEUES {
            return Err(NoRoom::Queues);
        }
        if self.devices.len() >= DEVICES && !self.devices.contains_key(&device) {
            return Err(NoRoom::Devices);
        }
        let most = self.limits.queues_per_user;
        if !grant.administers && most < QUEUES {
            let (uid, all) = (self.clients[index].uid, self.clients.iter().zip(self.gangs()));
            let own = all.filter(|(other, _)| grant.is_one_with(uid, other.uid, &other.grant));
            if own.map(|(_, gang)| gang.queues.len()).sum::<usize>() >= most {
                return Err(NoRoom::QueuesOfUser { uid, most });
            }
        }
        let most = self.limits.devices_per_process;
        // Few programs have as many queues as that.
        if gang.queues.len() >= most && gang.queues.iter().all(|queue| queue.device != device) {
            let devices: BTreeSet<_> = gang.queues.iter().map(|queue| queue.device).collect();
            if devices.len() >= most {
                return Err(NoRoom::DevicesOfProcess(most));
            }
        }
        Ok(())
    }
}
