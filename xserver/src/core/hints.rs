//! Hints from outside about clients, beside the hints of the clients themselves: the latest one counts.

use super::{ClientPage, Core, gangs};
use crate::access::{Asker, Grant};
use crate::error::Refusal;
use protocol::bounds::Priority;
use protocol::control::{HintUpdate, Target};
use protocol::hint::table::Scope;
use protocol::ids::{ClientId, QueueId};
use protocol::status::Gang;
use protocol::time::Time;

impl<P: ClientPage> Core<P> {
    /// Notes what a person says, for the next step.
    ///
    /// # Errors
    /// The target matches no client that this person may change, or more than one, the hint does not apply to it, or the
    /// person may not give it. Nothing has changed.
    pub fn hint(&mut self, asker: &Asker, of: Target, said: &[HintUpdate], now: Time) -> Result<(), Refusal> {
        let places = self.meant(asker, of)?;
        if said.is_empty() {
            return Err(Refusal::NoHint);
        }
        let of_nobody = of.pid.is_none() && of.queue.is_none();
        if of_nobody && said.iter().any(|said| said.spec().scope != Scope::AnyProcess) {
            return Err(Refusal::NoTarget);
        }
        let queues = |place: &usize| self.gangs()[*place].queues.len();
        if said.iter().any(|said| concerns_queues(*said, of)) && places.iter().map(queues).sum::<usize>() == 0
        {
            return Err(Refusal::NoQueues(of));
        }
        self.refuse_to_wake(of, said, &places)?;
        self.check_rights(asker, of_nobody, said, &places)?;
        for said in said {
            if let (true, HintUpdate::Timeslice(slice)) = (of_nobody, said) {
                self.timeslice = Some(*slice);
            }
            if let HintUpdate::Window = said {
                gangs(&mut self.status).iter_mut().for_each(|gang| gang.hints.window = false);
            }
            for &place in &places {
                let (state, gang) = (&mut self.clients[place], &mut gangs(&mut self.status)[place]);
                if let HintUpdate::Window = said {
                    gang.hints.window = true;
                } else if concerns_queues(*said, of) {
                    for slot in state.slots.iter_mut().filter(|slot| of.includes(slot.queue)) {
                        slot.words.note(*said, now, asker.grant.administers);
                    }
                } else {
                    state.words.note(*said, now, asker.grant.administers);
                }
            }
        }
        for place in places {
            let (state, gang) = (&self.clients[place], &mut gangs(&mut self.status)[place]);
            match of_nobody {
                true => state.show_process(&mut gang.hints, &self.limits),
                false => state.show_hints(gang, &self.limits),
            }
        }
        Ok(())
    }

    /// Returns the clients that are meant, each with its queues that are meant.
    pub fn meant_queues(&self, asker: &Asker, of: Target) -> Result<Vec<(ClientId, Vec<QueueId>)>, Refusal> {
        if of == Target::default() {
            return Err(Refusal::NoTarget);
        }
        let of_place = |place: usize| {
            let gang = &self.gangs()[place];
            let queues = gang.queues.iter().map(|status| status.queue);
            (gang.client, queues.filter(|queue| of.includes(*queue)).collect())
        };
        let meant: Vec<(_, Vec<_>)> = self.meant(asker, of)?.into_iter().map(of_place).collect();
        match meant.iter().all(|(_, queues)| queues.is_empty()) {
            true => Err(Refusal::NoQueues(of)),
            false => Ok(meant),
        }
    }

    /// The places of the clients that are meant.
    fn meant(&self, asker: &Asker, of: Target) -> Result<Vec<usize>, Refusal> {
        let has =
            |gang: &Gang| of.queue.is_none() || gang.queues.iter().any(|status| of.includes(status.queue));
        let named: Vec<(usize, &Gang)> = self
            .seen_by(asker)
            .filter(|(_, (state, _))| asker.changes(state.uid, &state.grant))
            .filter(|(_, (_, gang))| of.pid.is_none_or(|pid| gang.pid == pid))
            .map(|(place, (_, gang))| (place, gang))
            .collect();
        let places: Vec<_> = named.iter().filter(|(_, gang)| has(gang)).map(|(place, _)| *place).collect();
        match (of.pid, of.queue) {
            (None, None) => Ok(places),
            (Some(pid), _)
                if named.is_empty() && self.seen_by(asker).any(|(_, (_, gang))| gang.pid == pid) =>
            {
                Err(Refusal::OnlySeen { pid, rule: asker.grant.rule.to_string() })
            }
            (Some(pid), _) if named.is_empty() => Err(Refusal::NotConnected(pid)),
            (Some(pid), Some(queue)) if places.is_empty() => {
                let queues = named.iter().flat_map(|(_, gang)| gang.queues.iter());
                let queues = queues.map(|queue| queue.queue).collect();
                Err(Refusal::NoSuchQueue { pid, queue, queues })
            }
            (None, Some(queue)) if places.is_empty() => Err(Refusal::UnknownQueue(queue)),
            (None, Some(queue)) if places.len() > 1 => {
                let clients = places.iter().map(|&place| self.whose(place)).collect();
                Err(Refusal::AmbiguousQueue { queue, clients })
            }
            _ => Ok(places),
        }
    }

    /// Refuses hints that the person may not give: a priority or a share above the limit of the person or of the program, and
    /// what concerns programs of others.
    fn check_rights(
        &self,
        asker: &Asker,
        of_nobody: bool,
        said: &[HintUpdate],
        places: &[usize],
    ) -> Result<(), Refusal> {
        if asker.grant.administers {
            return Ok(());
        }
        let is_for_all = |said: &HintUpdate| matches!(said, HintUpdate::Window | HintUpdate::Timeslice(_));
        if of_nobody || said.iter().any(is_for_all) {
            Self::check_administers(asker)?;
        }
        let grants = || places.iter().map(|&place| &self.clients[place].grant).chain([&asker.grant]);
        for said in said {
            match *said {
                HintUpdate::Priority(priority) => {
                    let lowest = grants().min_by_key(|grant| grant.max_priority);
                    if let Some(Grant { max_priority: most, rule, .. }) =
                        lowest.filter(|grant| priority > grant.max_priority)
                    {
                        let (most, rule) = (*most, rule.to_string());
                        return Err(Refusal::AboveLimit { priority, most, rule });
                    }
                }
                HintUpdate::Utilization(share) => {
                    let lowest = grants().min_by_key(|grant| grant.max_share);
                    if let Some(Grant { max_share: most, rule, .. }) =
                        lowest.filter(|grant| share > grant.max_share)
                    {
                        let (most, rule) = (*most, rule.to_string());
                        return Err(Refusal::ShareAboveLimit { share, most, rule });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses to let a queue count that its program holds. The program would launch nothing for it, and
    /// others would wait for that. Nothing is kept for later either: when the program changes the priority,
    /// it is the last that speaks of it.
    fn refuse_to_wake(&self, of: Target, said: &[HintUpdate], places: &[usize]) -> Result<(), Refusal> {
        let wakes = |said: &HintUpdate| matches!(said, HintUpdate::Priority(priority) if *priority != Priority::NO_EXECUTE);
        if !said.iter().any(wakes) {
            return Ok(());
        }
        for &place in places {
            let slots = &self.clients[place].slots;
            let mut meant = slots.iter().filter(|slot| of.includes(slot.queue));
            if let Some(held) = meant.find(|slot| slot.is_held()) {
                return Err(Refusal::HeldByProgram {
                    pid: self.gangs()[place].pid,
                    queue: held.queue,
                    priority: held.own_priority,
                    has_others: of.queue.is_none() && !slots.iter().all(|slot| slot.is_held()),
                });
            }
        }
        Ok(())
    }

    /// A client for people.
    fn whose(&self, place: usize) -> String {
        format!("{} {}", self.gangs()[place].pid, self.clients[place].name)
    }
}

fn concerns_queues(said: HintUpdate, of: Target) -> bool {
    match said.spec().scope {
        Scope::Queue => true,
        Scope::QueueOrProcess => of.queue.is_some(),
        Scope::Process | Scope::AnyProcess => false,
    }
}
