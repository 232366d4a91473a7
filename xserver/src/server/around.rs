//! What no event tells: whether clients find the server, and the end of processes on old kernels.

use super::{LISTENER, LOOK_AROUND, Server, watch};
use crate::place::Fate;
use host::handle::Handle;
use protocol::time::Time;
use rustix::event::epoll::EventFlags;
use rustix::fd::AsFd as _;
use tracing::{info, warn};

impl Server {
    /// Looks for what no event tells.
    pub(super) fn look_around(&mut self, now: Time) {
        self.look_at = now.after(LOOK_AROUND);
        self.look_for_ends();
        self.look_after_place();
        self.costs.save();
        self.note_use();
    }

    /// Processes of which the kernel is too old to tell the end.
    fn look_for_ends(&mut self) {
        let ended = |process: &Handle| process.descriptor().is_none() && process.has_ended();
        let connected = self.connections.iter();
        let connected = connected.filter_map(|(number, other)| Some((*number, other.process.as_ref()?)));
        let expected = self.expected.iter().map(|(number, process)| (*number, process));
        let gone = connected.chain(expected).filter(|(_, process)| ended(process)).map(|(number, _)| number);
        for number in gone.collect::<Vec<_>>() {
            self.note_end(number);
        }
        self.attachments.look();
    }

    /// Clients that are connected stay so whatever becomes of the socket, and new ones have to find it.
    fn look_after_place(&mut self) {
        let was_unreachable = std::mem::take(&mut self.unreachable);
        match self.listener.look() {
            Fate::Kept if was_unreachable => info!("new clients find the server again"),
            Fate::Kept => {}
            Fate::Renewed => {
                // The old one has left the epoll with its end.
                let watched = watch(&self.epoll, self.listener.socket.as_fd(), LISTENER, EventFlags::IN);
                self.exhausted = false;
                match watched {
                    Ok(()) => warn!("the socket was gone and is made anew"),
                    Err(error) => {
                        warn!(%error, "the socket was made anew and cannot be listened to");
                        self.stopping = true;
                    }
                }
            }
            Fate::Lost => {
                // Its clients come to the other one: two that decide would know nothing of each other's.
                warn!("another server has taken this place: this one ends");
                self.costs.abandon();
                self.stopping = true;
            }
            Fate::Unreachable(why) => {
                if !was_unreachable {
                    warn!(why, "new clients do not find the server; those that it has stay");
                }
                self.unreachable = true;
            }
        }
    }
}
