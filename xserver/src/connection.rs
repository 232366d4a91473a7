//! One connection with non-blocking input and output of frames.
//!
//! Its memory is bounded: one frame of at most [`REQUEST_LIMIT`] bytes, the bytes of one read, and one reply.
//! While a reply is not taken, nothing is read.

use crate::access::{Asker, Grant, Identity};
use crate::core::Fault;
use crate::pages::send_files;
use host::handle::Handle;
use protocol::frame::{Decoder, Frame, FrameError, REQUEST_LIMIT};
use protocol::ids::ClientId;
use protocol::message::{MessageError, ToClient};
use protocol::time::Time;
use rustix::event::epoll::EventFlags;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::sync::Arc;
use std::time::Duration;

/// The bytes of one read.
const READ: usize = 4096;
/// The most reads before other connections are served.
const READS: usize = 4;

/// The kind of a connection.
#[derive(Debug)]
pub(crate) enum Stage {
    /// No frame has come yet.
    New,
    /// A preloaded program, which wakes the server with the eventfd.
    Client { client: ClientId, eventfd: OwnedFd },
    /// Requests of `xcli`.
    Control,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub socket: OwnedFd,
    /// The handle for the end of the process.
    pub process: Option<Handle>,
    /// Its process id; 0 if it has none in this namespace.
    pub pid: u32,
    pub who: Identity,
    /// What it may do.
    pub grant: Grant,
    pub stage: Stage,
    /// The time by which it must send a frame or take its reply.
    pub deadline: Option<Time>,
    /// The time of its last request.
    pub asked_at: Time,
    /// True while a reply is being prepared.
    pub awaits_reply: bool,
    /// True if there was no room for one of its queues.
    pub was_refused_a_queue: bool,
    /// The events of its socket that the server has registered.
    pub registered: EventFlags,
    decoder: Decoder,
    /// The reply, which others may share.
    out: Arc<[u8]>,
    sent: usize,
    /// The file that goes with the first byte of the reply.
    file: Option<OwnedFd>,
}

/// The reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("the client closed the connection")]
    Closed,
    /// Another process may still hold the socket.
    #[error("the process has ended")]
    Exited,
    /// Another request needs the room.
    #[error("the connection was idle, and there was no room for another one")]
    MadeRoom,
    #[error("the client sent nothing, or did not take its reply, in time")]
    Silent,
    /// The bytes are not valid frames.
    #[error("{0}")]
    Frame(FrameError),
    /// A frame is not a valid message.
    #[error("{0}")]
    Message(MessageError),
    /// A message is not allowed in this state.
    #[error("unexpected frame of kind {0:#x}")]
    Unexpected(u16),
    /// A message breaks a rule.
    #[error("{0}")]
    Fault(Fault),
    /// The server has refused it, and sent the reason.
    #[error("{0}")]
    Refused(String),
    /// The socket failed.
    #[error("{0}")]
    Broken(Errno),
}

impl End {
    /// Returns true if the peer broke a rule.
    pub fn is_fault(&self) -> bool {
        !matches!(
            self,
            Self::Closed
                | Self::Exited
                | Self::MadeRoom
                | Self::Refused(_)
                | Self::Broken(Errno::PIPE | Errno::CONNRESET)
        )
    }
}

impl Connection {
    pub fn new(socket: OwnedFd, pid: u32, who: Identity, grant: Grant, now: Time, limit: Duration) -> Self {
        Self {
            socket,
            process: None,
            pid,
            who,
            grant,
            stage: Stage::New,
            deadline: Some(now.after(limit)),
            asked_at: now,
            awaits_reply: false,
            was_refused_a_queue: false,
            registered: EventFlags::IN,
            decoder: Decoder::new(REQUEST_LIMIT),
            out: Arc::default(),
            sent: 0,
            file: None,
        }
    }

    /// Reads frames and passes them to `take`, until a reply is pending.
    pub fn receive(&mut self, mut take: impl FnMut(&mut Self, Frame) -> Result<(), End>) -> Result<(), End> {
        let mut bytes = [0; READ];
        for _ in 0..READS {
            self.take_frames(&mut take)?;
            if self.is_busy() {
                return Ok(());
            }
            match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(End::Closed),
                Ok((_, count)) => self.decoder.push(&bytes[..count.min(READ)]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(End::Broken(error)),
            }
        }
        self.take_frames(&mut take)
    }

    fn take_frames(&mut self, take: &mut impl FnMut(&mut Self, Frame) -> Result<(), End>) -> Result<(), End> {
        while !self.is_busy() {
            match self.decoder.next_frame().map_err(End::Frame)? {
                Some(frame) => take(self, frame)?,
                None => break,
            }
        }
        Ok(())
    }

    /// The person who asks on this connection.
    pub fn asker(&self) -> Asker {
        Asker { uid: self.who.uid, grant: self.grant.clone() }
    }

    /// Returns true if both are one for the limits.
    pub fn is_one_with(&self, other: &Self) -> bool {
        self.grant.is_one_with(self.who.uid, other.who.uid, &other.grant)
    }

    /// The client, if it is one.
    pub fn client(&self) -> Option<ClientId> {
        match self.stage {
            Stage::Client { client, .. } => Some(client),
            Stage::New | Stage::Control => None,
        }
    }

    /// Returns true if it is one of xcli that waits for nothing.
    pub fn is_idle_control(&self) -> bool {
        matches!(self.stage, Stage::Control) && !self.is_busy()
    }

    /// Starts to send a reply.
    pub fn answer(&mut self, frame: impl Into<Arc<[u8]>>) -> Result<(), End> {
        self.answer_with(frame, None)
    }

    /// Starts to send a reply, with a file.
    pub fn answer_with(&mut self, frame: impl Into<Arc<[u8]>>, file: Option<OwnedFd>) -> Result<(), End> {
        self.out = frame.into();
        (self.sent, self.file) = (0, file);
        self.flush()
    }

    /// Sends as much as the socket accepts.
    pub fn flush(&mut self) -> Result<(), End> {
        while self.has_output() {
            let files: Vec<_> = self.file.iter().map(AsFd::as_fd).collect();
            match send_files(&self.socket, &self.out[self.sent..], &files) {
                Ok(count) => {
                    self.sent += count;
                    self.file = None;
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(End::Broken(error)),
            }
        }
        // Frees the memory.
        self.out = Arc::default();
        self.sent = 0;
        Ok(())
    }

    /// Returns true if a part of the reply has not been sent.
    pub fn has_output(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Returns true while nothing is read.
    pub fn is_busy(&self) -> bool {
        self.awaits_reply || self.has_output()
    }

    /// The events of the socket to register. Its end is always reported.
    pub fn interest(&self) -> EventFlags {
        if self.has_output() {
            EventFlags::OUT
        } else if self.awaits_reply {
            EventFlags::empty()
        } else {
            EventFlags::IN
        }
    }

    /// Sends the reason of a refusal, if the socket accepts it.
    pub fn refuse_for(&self, reason: &str) {
        self.refuse(&ToClient::Refused { reason: reason.to_owned() }.encode());
    }

    /// Sends a last frame, if the socket accepts it.
    pub fn refuse(&self, frame: &[u8]) {
        let _ = send(&self.socket, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}
