//! Questions to `xserver`.

use anyhow::{Context, Result, bail};
use protocol::control::{List, Preemption, Reply, Request};
use protocol::frame::{Decoder, Frame, REPLY_LIMIT};
use protocol::message::{REPLY, REQUEST};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The time between two parts of a reply, which takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to the server, for one question after the other.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    decoder: Decoder,
}

impl Connection {
    pub(crate) fn open(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).context("cannot connect to xserver")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream, decoder: Decoder::new(REPLY_LIMIT) })
    }

    /// Returns the preemption level of process `pid` and its counts.
    pub(crate) fn preemption(&mut self, pid: u32) -> Result<Preemption> {
        let list = self.list()?;
        preemption(&list, pid).cloned().with_context(|| format!("xserver knows no process {pid}"))
    }

    pub(crate) fn list(&mut self) -> Result<List> {
        match self.ask(&Request::List)? {
            Reply::List(list) => Ok(list),
            other => bail!("xserver answers {other:?} to a request for its list"),
        }
    }

    /// Lets a program write a trace for as long as this connection exists. Returns when it has been told to.
    pub(crate) fn trace_one(&mut self) -> Result<()> {
        match self.ask(&Request::Trace)? {
            Reply::Traced(program) if program.missing.is_none() => Ok(()),
            other => bail!("xserver answers {other:?} to a request for traces"),
        }
    }

    /// Sends a request and reads a reply. A file that comes with it is closed.
    fn ask(&mut self, request: &Request) -> Result<Reply> {
        let payload = serde_json::to_vec(request)?;
        self.stream.write_all(&Frame::encode(REQUEST, &payload)).context("cannot ask xserver")?;
        let mut part = [0; 16 * 1024];
        let frame = loop {
            if let Some(frame) = self.decoder.next_frame().context("the reply of xserver is damaged")? {
                break frame;
            }
            match self.stream.read(&mut part).context("xserver does not answer")? {
                0 => bail!("xserver closed the connection"),
                n => self.decoder.push(&part[..n]),
            }
        };
        if frame.kind != REPLY {
            bail!("xserver answers with a frame of kind {:#x}, which is no reply", frame.kind);
        }
        serde_json::from_slice(&frame.payload).context("the reply of xserver is malformed")
    }
}

/// Returns the preemption state of process `pid`; `None` if the server knows no such process.
pub(crate) fn preemption(list: &List, pid: u32) -> Option<&Preemption> {
    list.clients.iter().find(|client| client.pid.0 == pid).map(|client| &client.preemption)
}
