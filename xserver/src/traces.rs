//! The people who record programs (`xcli trace record`), and the memory files into which the programs write
//! ([`protocol::trace`]). The server makes the files and passes them on. It never reads them.

use crate::access::Asker;
use crate::pages::{memory_file, send_files};
use protocol::ids::ClientId;
use protocol::message::ToClient;
use protocol::trace::Trace;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, open};
use rustix::io;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;

/// A person who records.
#[derive(Debug)]
struct Recorder {
    asker: Asker,
    /// The programs about which the person was told.
    told: BTreeSet<ClientId>,
}

/// A program that writes a trace.
#[derive(Debug)]
struct Program {
    /// The file, read-only.
    file: OwnedFd,
    /// The connections of those who read it.
    readers: BTreeSet<u64>,
}

/// All recorders and programs.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    /// By connection.
    recorders: BTreeMap<u64, Recorder>,
    programs: BTreeMap<ClientId, Program>,
}

impl Traces {
    /// Notes that the person of a connection records from now on.
    pub fn record(&mut self, connection: u64, asker: Asker) {
        self.recorders.insert(connection, Recorder { asker, told: BTreeSet::new() });
    }

    /// Returns true if the connection records.
    pub fn has(&self, connection: u64) -> bool {
        self.recorders.contains_key(&connection)
    }

    /// The connections that record, with their persons.
    pub fn recorders(&self) -> Vec<(u64, Asker)> {
        self.recorders.iter().map(|(number, recorder)| (*number, recorder.asker.clone())).collect()
    }

    /// Returns true if the connection was told about the program, and notes that it is now.
    pub fn tell(&mut self, connection: u64, client: ClientId) -> bool {
        self.recorders.get_mut(&connection).is_none_or(|recorder| !recorder.told.insert(client))
    }

    /// Returns true if the connection was told about the program.
    pub fn was_told(&self, connection: u64, client: ClientId) -> bool {
        self.recorders.get(&connection).is_none_or(|recorder| recorder.told.contains(&client))
    }

    /// Changes what the person of a connection may see. What the person reads already is read on.
    pub fn set_asker(&mut self, connection: u64, asker: Asker) {
        if let Some(recorder) = self.recorders.get_mut(&connection) {
            recorder.asker = asker;
        }
    }

    /// Forgets a connection.
    pub fn forget(&mut self, connection: u64) {
        self.recorders.remove(&connection);
        self.programs.values_mut().for_each(|program| {
            program.readers.remove(&connection);
        });
    }

    /// Forgets a program that has left.
    pub fn forget_program(&mut self, client: ClientId) {
        self.programs.remove(&client);
        self.recorders.values_mut().for_each(|recorder| {
            recorder.told.remove(&client);
        });
    }

    /// Lets a program write a trace, if it does not yet. Returns the file for the reader on this connection.
    ///
    /// # Errors
    /// No descriptor or no memory is left, or the program does not take the message.
    pub fn read(&mut self, client: ClientId, socket: &OwnedFd, connection: u64) -> io::Result<OwnedFd> {
        let program = match self.programs.entry(client) {
            std::collections::btree_map::Entry::Occupied(there) => there.into_mut(),
            std::collections::btree_map::Entry::Vacant(room) => {
                let (writing, file) = new_file()?;
                send_files(socket, &ToClient::Trace {}.encode(), &[writing.as_fd()])?;
                room.insert(Program { file, readers: BTreeSet::new() })
            }
        };
        let file = program
            .file
            .try_clone()
            .map_err(|error| io::Errno::from_io_error(&error))
            .map_err(|error| error.unwrap_or(io::Errno::MFILE));
        // A program without a reader is told to stop.
        file.inspect(|_| {
            program.readers.insert(connection);
        })
    }

    /// The programs that nobody reads.
    pub fn unread(&self) -> Vec<ClientId> {
        let unread = self.programs.iter().filter(|(_, program)| program.readers.is_empty());
        unread.map(|(client, _)| *client).collect()
    }

    /// Tells a program to stop writing. If it does not take the message now, it is told later.
    pub fn end(&mut self, client: ClientId, socket: &OwnedFd) {
        if send_files(socket, &ToClient::TraceEnd {}.encode(), &[]).is_ok() {
            self.programs.remove(&client);
        }
    }
}

/// Makes a file. The first descriptor is for the program, the other one to read.
fn new_file() -> io::Result<(OwnedFd, OwnedFd)> {
    let file = memory_file(c"xserver-trace", size_of::<Trace>())?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let reading = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    // A reader must not open it again to write.
    fchmod(&file, Mode::RUSR)?;
    Ok((file, reading))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Grant;
    use rustix::fs::{fstat, ftruncate};
    use std::os::unix::net::UnixStream;

    fn asker() -> Asker {
        Asker { uid: 7, grant: Grant::all("r") }
    }

    #[test]
    fn file_has_a_sealed_size_and_readers_cannot_write() {
        let (writing, reading) = new_file().unwrap();
        assert_eq!(usize::try_from(fstat(&reading).unwrap().st_size), Ok(size_of::<Trace>()));
        assert!(ftruncate(&writing, 0).is_err() && ftruncate(&writing, 1 << 30).is_err());
        assert!(io::write(&writing, &[1]).is_ok() && io::write(&reading, &[1]).is_err());
        assert_eq!(fstat(&reading).unwrap().st_mode & 0o777, 0o400);
    }

    #[test]
    fn program_writes_as_long_as_somebody_reads() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (socket, theirs) = (OwnedFd::from(ours), OwnedFd::from(theirs));
        let frames = || {
            let mut bytes = [0; 256];
            match rustix::net::recv(&theirs, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT) {
                Ok((_, length)) => bytes[..length].to_vec(),
                Err(_) => Vec::new(),
            }
        };
        let mut traces = Traces::default();
        let client = ClientId(3);
        traces.record(1, asker());
        traces.record(2, asker());
        assert!(!traces.was_told(1, client) && !traces.tell(1, client) && traces.tell(1, client));
        traces.read(client, &socket, 1).unwrap();
        traces.read(client, &socket, 2).unwrap();
        assert_eq!(frames(), ToClient::Trace {}.encode(), "it is told once");
        traces.forget(1);
        assert!(traces.unread().is_empty() && !traces.has(1) && traces.has(2));
        traces.forget(2);
        assert_eq!(traces.unread(), [client]);
        traces.end(client, &socket);
        assert_eq!(frames(), ToClient::TraceEnd {}.encode());
        assert!(traces.unread().is_empty());
    }

    #[test]
    fn program_that_takes_no_message_is_told_later() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let socket = OwnedFd::from(ours);
        let mut traces = Traces::default();
        traces.record(1, asker());
        traces.read(ClientId(3), &socket, 1).unwrap();
        traces.forget(1);
        let fills =
            |count: usize| rustix::net::send(&socket, &vec![0; count][..], rustix::net::SendFlags::DONTWAIT);
        while fills(4096).is_ok() {}
        while fills(1).is_ok() {}
        traces.end(ClientId(3), &socket);
        assert_eq!(traces.unread(), [ClientId(3)], "it writes still");
        assert!(traces.read(ClientId(4), &socket, 1).is_err() && traces.unread().len() == 1);
        let mut bytes = vec![0; 1 << 20];
        while rustix::net::recv(&theirs, &mut bytes[..], rustix::net::RecvFlags::DONTWAIT).is_ok() {}
        traces.end(ClientId(3), &socket);
        assert!(traces.unread().is_empty());
    }
}
