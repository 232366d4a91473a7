//! What the server says.

use anyhow::{Context, Result, bail};
use protocol::control::{List, Preemption, Reply, Request};
use protocol::frame::{Decoder, Frame, REPLY_LIMIT};
use protocol::message::{REPLY, REQUEST};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Between two parts of an answer, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to the server, for questions one after the other.
#[derive(Debug)]
pub(crate) struct Server {
    stream: UnixStream,
    decoder: Decoder,
}

impl Server {
    /// # Errors
    /// Nobody listens there.
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).context("cannot connect to xserver")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, decoder: Decoder::new(REPLY_LIMIT) })
    }

    /// How deep suspensions of process `pid` reach, and what became of them.
    ///
    /// # Errors
    /// The server does not answer, or knows no such process.
    pub(crate) fn preemption(&mut self, pid: u32) -> Result<Preemption> {
        let list = self.list()?;
        preemption(&list, pid).cloned().with_context(|| format!("xserver knows no process {pid}"))
    }

    /// Everything that it knows.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) fn list(&mut self) -> Result<List> {
        let payload = serde_json::to_vec(&Request::List)?;
        self.stream.write_all(&Frame::encode(REQUEST, &payload)).context("cannot ask xserver")?;
        let mut part = [0; 16 * 1024];
        let frame = loop {
            if let Some(frame) = self.decoder.next_frame().context("xserver's answer")? {
                break frame;
            }
            match self.stream.read(&mut part).context("xserver does not answer")? {
                0 => bail!("xserver closed the connection"),
                n => self.decoder.push(&part[..n]),
            }
        };
        if frame.kind != REPLY {
            bail!("xserver answers by a frame of kind {:#x}", frame.kind);
        }
        match serde_json::from_slice(&frame.payload).context("xserver's answer makes no sense")? {
            Reply::List(list) => Ok(list),
            other => bail!("xserver answers {other:?}"),
        }
    }
}

/// What the server says of the preemption of process `pid`; nothing if it knows no such process.
pub(crate) fn preemption(list: &List, pid: u32) -> Option<&Preemption> {
    list.clients.iter().find(|client| client.pid.0 == pid).map(|client| &client.preemption)
}
