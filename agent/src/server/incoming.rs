//! Reads the messages that the server sends after its welcome: about traces, and settings of queues.

use super::End;
use super::connection::receive;
use super::names::Names;
use crate::descriptor::CheckedFd;
use crate::host::Host;
use crate::link::ServerLink;
use protocol::codes::PreemptLevel;
use protocol::frame::{Decoder, REQUEST_LIMIT};
use protocol::message::ToClient;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use xqueue::Domain;

/// A connection's input that is not handled yet.
pub(super) struct Incoming {
    decoder: Decoder,
    files: Vec<OwnedFd>,
    clock_offset: u64,
    /// The names that the trace has.
    pub(super) names: Names,
}

impl Incoming {
    /// The state of a new connection, with the difference of the server's clock.
    pub(super) fn new(clock_offset: u64) -> Self {
        let (decoder, files, names) = (Decoder::new(REQUEST_LIMIT), Vec::new(), Names::default());
        Self { decoder, files, clock_offset, names }
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// The connection has ended, or the server sends something else.
    pub(super) fn read(
        &mut self,
        socket: &CheckedFd,
        domain: &Domain,
        link: &ServerLink,
        host: &dyn Host,
    ) -> Result<(), End> {
        let mut bytes = [0; 64];
        match receive(socket, &mut bytes, &mut self.files) {
            Ok(0) => return Err(End::Lost("it has closed the connection".to_owned())),
            Ok(length) => self.decoder.push(&bytes[..length]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let unexpected = || End::Lost("it sends an unexpected message".to_owned());
        while let Some(frame) = self.decoder.next_frame().map_err(|_| unexpected())? {
            match ToClient::decode(&frame).map_err(|_| unexpected())? {
                ToClient::Trace {} => self.begin(domain, link),
                ToClient::TraceEnd {} => link.tracer.end(domain),
                ToClient::Configure { queue, level, threshold, batch_size } => {
                    let given = |number: u32| (number != 0).then_some(number);
                    host.configure(
                        queue.0,
                        PreemptLevel::from_number(level.into()),
                        given(threshold),
                        given(batch_size),
                    );
                }
                // It accepts this process no longer, and closes the connection next.
                ToClient::Refused { reason } => {
                    return Err(End::Lost(format!("it refuses this process: {reason}")));
                }
                ToClient::Welcome { .. } => return Err(unexpected()),
            }
        }
        Ok(())
    }

    fn begin(&mut self, domain: &Domain, link: &ServerLink) {
        self.names = Names::default();
        // The kernel leaves the file out if this process has no descriptor left.
        let file = self.files.pop();
        self.files.clear();
        let Some(file) = file else {
            return tracing::warn!("no trace is written: this program has no file descriptor left");
        };
        if let Err(error) = link.tracer.begin(domain, &file, self.clock_offset) {
            tracing::warn!(%error, "no trace is written");
        }
    }
}
