//! What the programs and users of a server for all users may do, and how that changes.

use super::{ClientPage, Core, gangs};
use crate::access::{Asker, Grant};
use crate::configuration::Configuration;
use crate::error::Refusal;
use crate::limits::DEVICES;
use crate::programs::Program;
use protocol::ids::ClientId;
use std::collections::BTreeSet;
use std::sync::Arc;

impl<P: ClientPage> Core<P> {
    /// Sets what the programs of a client may do. Priorities, shares and levels above a new limit fall to it, and those that
    /// the old limit kept low rise. What an administrator has said stays.
    pub fn set_grant(&mut self, client: ClientId, grant: Grant) {
        let Some(index) = self.find(client) else { return };
        let owner = self.owner_number(self.clients[index].uid, &grant);
        let (state, gang) = (&mut self.clients[index], &mut gangs(&mut self.status)[index]);
        gang.owner = owner;
        state.grant = grant;
        self.has_more_room = true;
        state.show_hints(gang, &self.limits);
    }

    /// Sets the hints that programs get by their names. They hold for connected programs as well.
    fn set_programs(&mut self, programs: &[Arc<Program>]) {
        self.programs = programs.to_vec();
        for (state, gang) in self.clients.iter_mut().zip(gangs(&mut self.status)) {
            state.program = programs.iter().find(|one| one.is_for(&state.name, state.uid)).cloned();
            state.show_hints(gang, &self.limits);
        }
    }

    /// A number that all programs with the same user and rights share, and no others. Their jobs are the same.
    pub(super) fn owner_number(&mut self, uid: u32, grant: &Grant) -> u32 {
        let all = self.clients.iter().zip(self.gangs());
        let mut same = all.filter(|(other, _)| {
            let (one, two) = (grant, &other.grant);
            other.uid == uid && one.within == two.within && one.max_priority == two.max_priority
        });
        if let Some((_, gang)) = same.next() {
            return gang.owner;
        }
        self.owners = self.owners.wrapping_add(1);
        self.owners
    }

    /// Refuses what only administrators may do.
    ///
    /// # Errors
    /// The person is none.
    pub fn check_administers(asker: &Asker) -> Result<(), Refusal> {
        if asker.grant.administers {
            return Ok(());
        }
        Err(Refusal::NotAdministrator { rule: asker.grant.rule.to_string() })
    }

    /// Refuses to set a policy for who may not.
    ///
    /// # Errors
    /// The person may not.
    pub fn check_sets_policies(asker: &Asker) -> Result<(), Refusal> {
        if asker.sets_policies() {
            return Ok(());
        }
        Err(Refusal::SetsNoPolicies { rule: asker.grant.rule.to_string() })
    }

    /// Follows a configuration, after another one if there was one. What the configuration says about a policy counts only
    /// if that has changed: a person may have chosen another policy since then.
    ///
    /// # Errors
    /// Too many devices have their own policies. Nothing has changed.
    pub fn follow(&mut self, before: Option<&Configuration>, now: &Configuration) -> Result<(), Refusal> {
        let old =
            |device| before?.devices.iter().find(|(other, _)| *other == device).map(|(_, choice)| choice);
        let changed = || now.devices.iter().filter(|(device, choice)| old(*device) != Some(choice));
        let own = self.choices().filter_map(|(device, _)| device);
        let all: BTreeSet<_> = own.chain(changed().map(|(device, _)| *device)).collect();
        if all.len() > DEVICES {
            return Err(Refusal::TooManyPolicies(DEVICES));
        }
        let gone = before.iter().flat_map(|before| &before.devices).map(|(device, _)| *device);
        for device in gone.filter(|device| now.devices.iter().all(|(other, _)| other != device)) {
            self.reset_policy(device);
        }
        for (device, choice) in changed() {
            self.set_policy(Some(*device), choice.clone())?;
        }
        if before.is_none_or(|before| before.policy != now.policy) {
            self.set_policy(None, now.policy.clone())?;
        }
        self.engine.set_starvation_limit(now.starvation);
        self.set_programs(&now.programs);
        Ok(())
    }
}
