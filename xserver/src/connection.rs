//! One connection: frames in, frames out, never waiting.
//!
//! What it keeps is bounded: one frame of at most [`REQUEST_LIMIT`] bytes and what one read brings, and one answer.
//! While an answer is not taken, nothing more is read.

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
use std::fmt;

/// Bytes of one read.
const READ: usize = 4096;
/// Reads in one go: whoever sends more waits until the others have had their turn.
const READS: usize = 4;

/// What somebody turned out to be.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Nothing was said yet.
    New,
    /// A preloaded program. The eventfd is what it wakes the server with.
    Client { client: ClientId, eventfd: OwnedFd },
    /// A person, through `xcli`.
    Person,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub socket: OwnedFd,
    /// Tells of the process's end.
    pub process: Option<Handle>,
    /// Its process, as seen here.
    pub pid: u32,
    /// Who runs that.
    pub uid: u32,
    pub stage: Stage,
    /// Until then it must have said something, or taken its answer.
    pub deadline: Option<Time>,
    /// An answer is being gathered.
    pub waits: bool,
    /// What the server hears of its socket.
    pub hears: EventFlags,
    decoder: Decoder,
    out: Vec<u8>,
    sent: usize,
}

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The other side has closed it.
    Closed,
    /// Its process has ended, whoever holds the socket now.
    Exited,
    /// It said nothing for too long, or did not take its answer.
    Silent,
    /// What comes are no frames.
    Frame(FrameError),
    /// A frame is not the message that it should be.
    Message(MessageError),
    /// A message is none that may come now.
    Unexpected(u16),
    /// A message breaks a rule.
    Fault(Fault),
    /// It cannot take part; it has been told why.
    Refused(String),
    /// The socket is broken, or there is no memory for it.
    Broken(Errno),
}

impl End {
    /// Whether the other side did what nobody should.
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Closed | Self::Exited | Self::Broken(Errno::PIPE | Errno::CONNRESET))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("it has closed its connection"),
            Self::Exited => f.write_str("its process has ended"),
            Self::Silent => f.write_str("it said nothing, or did not take what it asked for"),
            Self::Frame(error) => error.fmt(f),
            Self::Message(error) => error.fmt(f),
            Self::Unexpected(kind) => write!(f, "a frame of kind {kind:#x} may not come now"),
            Self::Fault(fault) => fault.fmt(f),
            Self::Refused(reason) => f.write_str(reason),
            Self::Broken(error) => error.fmt(f),
        }
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
            waits: false,
            hears: EventFlags::IN,
            decoder: Decoder::new(REQUEST_LIMIT),
            out: Vec::new(),
            sent: 0,
        }
    }

    /// Takes what has come, as long as `take` wants more of it.
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

    /// Begins to send an answer.
    pub fn answer(&mut self, frame: Vec<u8>) -> Result<(), End> {
        self.out = frame;
        self.sent = 0;
        self.flush()
    }

    /// Sends what there is to send and can be.
    pub fn flush(&mut self) -> Result<(), End> {
        while self.has_output() {
            match send(&self.socket, &self.out[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(End::Broken(error)),
            }
        }
        // Whatever it took.
        self.out = Vec::new();
        self.sent = 0;
        Ok(())
    }

    /// Whether an answer has not been taken yet.
    pub fn has_output(&self) -> bool {
        self.sent < self.out.len()
    }

    /// Whether nothing more is read for the time being.
    pub fn is_busy(&self) -> bool {
        self.waits || self.has_output()
    }

    /// What to hear of its socket from now on. That it was closed is heard in any case.
    pub fn interest(&self) -> EventFlags {
        if self.has_output() {
            EventFlags::OUT
        } else if self.waits {
            EventFlags::empty()
        } else {
            EventFlags::IN
        }
    }

    /// Says a last word, if there is room for it.
    pub fn refuse(&self, frame: &[u8]) {
        let _ = send(&self.socket, frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}
