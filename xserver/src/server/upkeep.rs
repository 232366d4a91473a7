//! Checks once a second for what causes no event: can clients find the server, which other programs use the GPU, and have
//! processes ended (on old kernels).

use super::{LISTENERS, Server, UPKEEP, watch};
use crate::endpoint::EndpointStatus;
use host::handle::Handle;
use protocol::time::Time;
use rustix::event::epoll::EventFlags;
use rustix::fd::AsFd as _;
use tracing::{info, warn};

impl Server {
    /// Runs the checks.
    pub(super) fn upkeep(&mut self, now: Time) {
        self.upkeep_at = now.after(UPKEEP);
        self.check_processes();
        self.check_endpoint();
        let core = &self.core;
        self.outsiders.look(|pid| core.pages().any(|(_, pages)| pages.pid() == pid));
        self.costs.save();
        self.note_use();
    }

    /// Closes connections of processes that have ended, on kernels without pidfds.
    fn check_processes(&mut self) {
        let ended = |process: &Handle| process.descriptor().is_none() && process.has_ended();
        let connected = self.connections.iter();
        let connected = connected.filter_map(|(number, other)| Some((*number, other.process.as_ref()?)));
        let expected = self.expected.iter().map(|(number, (process, _))| (*number, process));
        let gone = connected.chain(expected).filter(|(_, process)| ended(process)).map(|(number, _)| number);
        for number in gone.collect::<Vec<_>>() {
            self.note_end(number);
        }
        self.attachments.check_processes();
    }

    /// Checks that new clients can find the socket. Connected clients do not depend on it.
    fn check_endpoint(&mut self) {
        let was_unreachable = std::mem::take(&mut self.unreachable);
        for index in 0..self.listeners.len() {
            self.check_listener(index, was_unreachable);
        }
        if was_unreachable && !self.unreachable {
            info!("new clients can connect again");
        }
    }

    fn check_listener(&mut self, index: usize, was_unreachable: bool) {
        let listener = &mut self.listeners[index];
        match listener.check() {
            EndpointStatus::Kept => {}
            EndpointStatus::Renewed => {
                // Closing the old socket has removed it from the epoll.
                let token = LISTENERS + index as u64;
                let watched = watch(&self.epoll, listener.socket.as_fd(), token, EventFlags::IN);
                match watched {
                    Ok(()) => {
                        warn!(socket = %listener.path.display(), "the socket was removed; created it again")
                    }
                    Err(error) => {
                        warn!(%error, "cannot listen on the new socket; the server ends");
                        self.stopping = true;
                    }
                }
            }
            EndpointStatus::Lost if index > 0 => {
                // The others do not depend on it.
                if !was_unreachable {
                    let socket = listener.path.display();
                    warn!(%socket, "another process holds the lock of this socket; new clients cannot connect there");
                }
                self.unreachable = true;
            }
            EndpointStatus::Lost => {
                // Two servers would schedule independently; the clients connect to the other one.
                warn!("another server listens on this socket; this server ends");
                self.costs.abandon();
                self.stopping = true;
            }
            EndpointStatus::Unreachable(why) => {
                if !was_unreachable {
                    warn!(why, "new clients cannot connect; connected clients stay");
                }
                self.unreachable = true;
            }
        }
    }
}
