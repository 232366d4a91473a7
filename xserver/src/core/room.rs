//! The limits for queues. A queue too many is refused, and its process runs unscheduled.

use super::fault::NoRoom;
use super::{ClientPage, Core, gangs};
use crate::limits::{DEVICES, QUEUES};
use protocol::ids::DeviceId;
use std::collections::BTreeSet;

impl<P: ClientPage> Core<P> {
    /// Admits queues that were refused, if there may be room for them now.
    pub(super) fn admit_refused(&mut self) {
        if !std::mem::take(&mut self.has_more_room) {
            return;
        }
        for index in 0..self.clients.len() {
            while let Some((queue, device)) = self.clients[index].first_refused() {
                if self.find_room(index, device).is_err() {
                    break;
                }
                let (state, gang) = (&mut self.clients[index], &mut gangs(&mut self.status)[index]);
                for message in state.take_refused(queue, &mut gang.queues) {
                    // Fails if the client has used the slot for another queue meanwhile. Then it has forgotten this one.
                    if self.apply_known(index, &message).is_err() {
                        break;
                    }
                }
            }
        }
    }

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
