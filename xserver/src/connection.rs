//! One connection with non-blocking input and output of frames.
//!
//! Its memory is bounded: one frame of at most [`REQUEST_LIMIT`] bytes, the bytes of one read, and one reply.
//! While a reply is not taken, nothing is read.

use crate::core::Fault;
use crate::peer::Credentials;
use host::handle::Handle;
use protocol::frame::{Decoder, Frame, FrameError, REQUEST_LIMIT};
use protocol::ids::ClientId;
use protocol::message::MessageError;
use protocol::time::Time;
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

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
    /// Its user.
    pub uid: u32,
    pub stage: Stage,
    /// The time by which it must send a frame or take its reply.
    pub deadline: Option<Time>,
    /// True while a reply is being prepared.
    pub awaits_reply: bool,
    /// The events of its socket that the server has registered.
    pub registered: EventFlags,
    decoder: Decoder,
    out: Vec<u8>,
    sent: usize,
}

/// The reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    #[error("the client closed the connection")]
    Closed,
    /// Another process may still hold the socket.
    #[error("the process has ended")]
    Exited,
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
        !matches!(self, Self::Closed | Self::Exited | Self::Broken(Errno::PIPE | Errno::CONNRESET))
    }
}

impl Connection {
    pub fn new(socket: OwnedFd, who: &Credentials, deadline: Time) -> Self {
        Self {
            socket,
            process: None,
            pid: who.pid,
            uid: who.uid,
            stage: Stage::New,
            deadline: Some(deadline),
            awaits_reply: false,
            registered: EventFlags::IN,
            decoder: Decoder::new(REQUEST_LIMIT),
            out: Vec::new(),
            sent: 0,
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

    /// Starts to send a reply.
    pub fn answer(&mut self, frame: Vec<u8>) -> Result<(), End> {
        self.out = frame;
        self.sent = 0;
        self.flush()
    }

    /// Sends as much as the socket accepts.
    pub fn flush(&mut self) -> Result<(), End> {
        while self.has_output() {
            match send(&self.socket, &self.out[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(End::Broken(error)),
            }
        }
        // Frees the memory.
        self.out = Vec::new();
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

    /// Sends a last frame, if the socket accepts it.
    pub fn refuse(&self, frame: &[u8]) {
        let _ = send(&self.socket, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}
