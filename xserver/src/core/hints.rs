//! What a person says of clients, beside what they say of themselves: whoever speaks last of something counts.

use super::{Core, Peer, gangs};
use protocol::bounds::Priority;
use protocol::control::{Said, Target};
use protocol::hint::Hints;
use protocol::hint::table::Scope;
use protocol::ids::Pid;
use protocol::status::Gang;
use protocol::time::Time;

impl<P: Peer> Core<P> {
    /// Notes what a person says, for the next step.
    ///
    /// # Errors
    /// Nobody is meant, or several are and one was meant, or something cannot be said of them; why, one line. Nothing has
    /// changed.
    pub fn hint(&mut self, of: Target, said: &[Said], now: Time) -> Result<(), String> {
        let places = self.meant(of)?;
        if said.is_empty() {
            return Err("nothing is said".to_owned());
        }
        let of_nobody = of.pid.is_none() && of.queue.is_none();
        if of_nobody && said.iter().any(|said| said.spec().scope != Scope::AnyProcess) {
            return Err("the target is missing: specify a process, or a queue".to_owned());
        }
        let queues = |place: &usize| self.gangs()[*place].queues.len();
        if said.iter().any(|said| concerns_queues(*said, of)) && places.iter().map(queues).sum::<usize>() == 0
        {
            return Err(format!("{of} has no queue of which that could be said"));
        }
        self.refuse_to_wake(of, said, &places)?;
        for said in said {
            if let (true, Said::Timeslice(slice)) = (of_nobody, said) {
                self.timeslice = Some(*slice);
            }
            if let Said::Window = said {
                gangs(&mut self.status).iter_mut().for_each(|gang| gang.hints.window = false);
            }
            for &place in &places {
                let gang = &mut gangs(&mut self.status)[place];
                if concerns_queues(*said, of) {
                    gang.queues.hint(of.queue, *said, now);
                } else {
                    let mut hints = Hints { process: gang.hints, ..Hints::default() };
                    said.apply(&mut hints, now);
                    gang.hints = hints.process;
                }
            }
        }
        Ok(())
    }

    /// The places of the clients that are meant.
    fn meant(&self, of: Target) -> Result<Vec<usize>, String> {
        let has = |gang: &Gang| of.queue.is_none_or(|id| gang.queues.iter().any(|queue| queue.queue == id));
        let named = |gang: &Gang| of.pid.is_none_or(|pid| gang.pid == pid);
        let gangs = self.gangs();
        let places = gangs.iter().enumerate().filter(|(_, gang)| named(gang) && has(gang));
        let places: Vec<_> = places.map(|(place, _)| place).collect();
        match (of.pid, of.queue) {
            (None, None) => Ok(places),
            (Some(pid), _) if !gangs.iter().any(named) => Err(not_connected(pid)),
            (Some(pid), Some(queue)) if places.is_empty() => {
                Err(format!("process {pid} has no queue {queue} (it has {})", names(gangs, pid)))
            }
            (None, Some(queue)) if places.is_empty() => {
                Err(format!("no connected program has a queue {queue}; `xcli list` shows which there are"))
            }
            (None, Some(queue)) if places.len() > 1 => {
                let whose: Vec<_> = places.iter().map(|&place| self.whose(place)).collect();
                Err(format!("several programs have a queue {queue}: --pid says which ({})", whose.join(", ")))
            }
            _ => Ok(places),
        }
    }

    /// Refuses to let a queue count that its program holds. The program would launch nothing for it, and others would wait for
    /// that. Nothing is kept for later either: when the program changes the priority, it is the last that speaks of it.
    fn refuse_to_wake(&self, of: Target, said: &[Said], places: &[usize]) -> Result<(), String> {
        let wakes =
            |said: &Said| matches!(said, Said::Priority(priority) if *priority != Priority::NO_EXECUTE);
        if !said.iter().any(wakes) {
            return Ok(());
        }
        for &place in places {
            let slots = &self.members[place].slots;
            let mut meant = slots.iter().filter(|slot| of.queue.is_none_or(|queue| queue == slot.queue));
            if let Some(held) = meant.find(|slot| slot.is_held()) {
                let others = if of.queue.is_none() && !slots.iter().all(|slot| slot.is_held()) {
                    "; -x names one of the others"
                } else {
                    ""
                };
                return Err(format!(
                    "queue {} of pid {} is held by its program, whose own priority for it is {}: only the program can change that{others}",
                    held.queue,
                    self.gangs()[place].pid,
                    held.own_priority
                ));
            }
        }
        Ok(())
    }

    /// A client for people.
    fn whose(&self, place: usize) -> String {
        format!("{} {}", self.gangs()[place].pid, self.members[place].name)
    }
}

fn not_connected(pid: Pid) -> String {
    format!("process {pid} is not connected; `xcli doctor {pid}` says why")
}

fn names(gangs: &[Gang], pid: Pid) -> String {
    let own = gangs.iter().filter(|gang| gang.pid == pid).flat_map(|gang| gang.queues.iter());
    let names: Vec<_> = own.map(|queue| queue.queue.to_string()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn concerns_queues(said: Said, of: Target) -> bool {
    match said.spec().scope {
        Scope::Queue => true,
        Scope::QueueOrProcess => of.queue.is_some(),
        Scope::Process | Scope::AnyProcess => false,
    }
}
