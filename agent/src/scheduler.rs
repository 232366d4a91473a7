//! The scheduler in force: the program itself, a policy in this process (`local.rs`), or a server for all
//! processes (`server.rs`).
//!
//! A policy or a server works on one thread, the agent, which is made when it is first needed. Program
//! threads only set the decider and report changes. The agent sets a permission only while it holds the lock
//! of the shared state and its decider is still in force.

use crate::evictor::EvictionPause;
use crate::host::Host;
use crate::preemption::Preemption;
use crate::shared::{Decider, Shared};
use crate::{chaos, local, server};
use policies::registry;
use protocol::config::{SchedulerKind, TestMode};
use protocol::cost::{CostKey, EvictCost};
use protocol::hint::ProcessHints;
use std::sync::Arc;
use xqueue::{Domain, Observer, Permission, Window};

/// The scheduler of a process.
#[derive(Debug)]
pub struct Scheduler {
    shared: Arc<Shared>,
}

impl Scheduler {
    /// Makes a scheduler under which the program itself decides.
    pub fn new(preemption: &'static Preemption) -> Self {
        Self { shared: Arc::new(Shared::new(preemption)) }
    }

    /// Returns the observer for the process's domain.
    ///
    /// # Safety
    ///
    /// Every queue of the domain has the tag of a [`crate::QueueSlot`].
    pub unsafe fn observer(&self) -> Arc<dyn Observer> {
        self.shared.clone()
    }

    fn host(&self) -> &'static dyn Host {
        self.shared.preemption.host()
    }

    /// Starts the scheduler that the configuration names, when the process has its first queue.
    pub fn begin(&self, domain: &'static Domain) {
        let Some(config) = self.host().config() else { return };
        if config.auto.enabled {
            *self.shared.hints.lock() = config.auto.hints.process;
        }
        match config.scheduler_in_force() {
            SchedulerKind::AppManaged => {
                if let Some(TestMode::Chaos(seed)) = config.test
                    && config.auto.level > 1
                {
                    chaos::start(domain, &self.shared, seed);
                }
            }
            SchedulerKind::Local => {
                let row = config.policy.and_then(registry::find).unwrap_or(registry::DEFAULT);
                self.set_decider(domain, Decider::Policy(row));
            }
            SchedulerKind::Global => self.set_decider(domain, Decider::Server),
        }
    }

    /// Sets the decider. The permissions of the previous one end at once: everything runs within its window
    /// until the new one has decided.
    pub fn set_decider(&self, domain: &'static Domain, decider: Decider) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        if matches!((state.decider, decider), (Decider::Server, Decider::Server)) {
            return;
        }
        state.decider = decider;
        state.changes += 1;
        state.epoch += 1;
        shared.mode.set(decider);
        let by_server = matches!(decider, Decider::Server);
        self.reset_permissions(domain, by_server);
        let start = !matches!(decider, Decider::Program) && !state.has_agent;
        state.has_agent |= start;
        drop(state);
        shared.changed.notify_all();
        shared.link.agent.notify();
        if !by_server {
            shared.preemption.stop_waiting_for_server();
        }
        if start {
            let theirs = shared.clone();
            let agent = std::thread::Builder::new().name("giveway-agent".into());
            if let Err(error) = agent.spawn(move || run(domain, &theirs)) {
                tracing::error!(%error, "cannot start the agent thread: queues run unscheduled");
                let mut state = shared.state.lock();
                state.has_agent = false;
                state.decider = Decider::Program;
                shared.mode.set(Decider::Program);
            }
        }
    }

    /// Takes back the permissions that a policy or a server has set. A queue's window is limited by its own
    /// permission or, under a server, by the process's: the limit is set in the one before it is taken out of
    /// the other.
    fn reset_permissions(&self, domain: &Domain, by_server: bool) {
        domain.end_policy_lease();
        if by_server {
            domain.store_permission(Permission::limited());
        }
        self.host().for_each_queue(&mut |queue| {
            queue.set_policy_limit(Some(Window::DEFAULT));
            queue.set_policy_run(true);
        });
        if !by_server {
            domain.store_permission(Permission::unlimited());
        }
    }

    /// Returns true if a server is to decide.
    pub fn expects_server(&self) -> bool {
        self.shared.mode.is_global()
    }

    /// Returns the cost of an eviction as the server's page shows it.
    pub fn cost_from_server(&self, key: CostKey) -> Option<EvictCost> {
        let page = self.shared.link.reserved_pages()?.server();
        page.costs.iter().find_map(|words| words.load(key))
    }

    /// Restores all queues for a call of the program that must find none evicted. None is evicted until the
    /// result is dropped.
    pub fn pause_evictions<'a>(&'a self, domain: &'a Domain) -> Option<EvictionPause<'a>> {
        self.shared.evictor.pause(domain, &self.shared.link)
    }

    /// Restores all queues at the end of the process. Returns how often queues were evicted.
    pub fn end_evictions(&self) -> u64 {
        self.shared.evictor.end()
    }

    /// Changes the hints for this process.
    pub fn hint(&self, change: impl FnOnce(&mut ProcessHints)) {
        change(&mut self.shared.hints.lock());
        self.changed();
    }

    /// Reports that a queue came, went, or got another priority, level or hint, or that the process got a
    /// hint.
    pub fn changed(&self) {
        if !self.shared.mode.is_program() {
            self.shared.wake();
        }
    }
}

/// Runs the agent; returns when the process is not the domain's any more.
fn run(domain: &'static Domain, shared: &Arc<Shared>) {
    let host = shared.preemption.host();
    host.adopt_thread();
    host::signals::block_all();
    let mut client = None;
    loop {
        let state = shared.state.lock();
        let (seen, decider, epoch) = (state.changes, state.decider, state.epoch);
        drop(state);
        if !host.is_current(domain) {
            return;
        }
        match decider {
            Decider::Program => {
                let mut state = shared.state.lock();
                if state.changes == seen {
                    shared.changed.wait(&mut state);
                }
            }
            Decider::Policy(row) => local::run(domain, shared, row, epoch),
            Decider::Server => {
                let client = client.get_or_insert_with(|| server::Client::new(domain, shared));
                client.run(epoch);
            }
        }
    }
}
