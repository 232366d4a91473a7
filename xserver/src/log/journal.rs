//! Lines of the log as entries of systemd's journal, with their fields. The thread that writes the log sends them: a journal that
//! does not answer loses entries and delays nobody.
//!
//! The protocol is <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>: a datagram for each entry, with `NAME=value` lines. A value
//! with a line break has its length in front.

use serde_json::Value;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// The socket of the journal.
pub(super) const SOCKET: &str = "/run/systemd/journal/socket";

/// A writer of lines in JSON, as `tracing_subscriber` makes them.
#[derive(Debug)]
pub(super) struct Journal {
    datagram: UnixDatagram,
    socket: PathBuf,
}

impl Journal {
    /// Connects to a journal.
    ///
    /// # Errors
    /// There is none.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let datagram = UnixDatagram::unbound()?;
        datagram.connect(socket)?;
        Ok(Self { datagram, socket: socket.to_owned() })
    }
}

impl Write for Journal {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(entry) = entry(line) {
            // The journal can have been started again. An entry that it does not take is lost.
            let _ = self.datagram.send_to(&entry, &self.socket);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the entry of a line: the message, its priority, and each field with the prefix `GIVEWAY_`.
fn entry(line: &[u8]) -> Option<Vec<u8>> {
    let line: Value = serde_json::from_slice(line).ok()?;
    // Priorities of syslog.
    let priority = match line["level"].as_str()? {
        "ERROR" => 3,
        "WARN" => 4,
        "INFO" => 6,
        _ => 7,
    };
    let mut entry = Vec::new();
    add(&mut entry, "SYSLOG_IDENTIFIER", "xserver");
    add(&mut entry, "PRIORITY", &priority.to_string());
    for (name, value) in line["fields"].as_object()? {
        let name = match name.as_str() {
            "message" => "MESSAGE".to_owned(),
            other => {
                format!("GIVEWAY_{}", other.to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_"))
            }
        };
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        add(&mut entry, &name, &value);
    }
    Some(entry)
}

fn add(entry: &mut Vec<u8>, name: &str, value: &str) {
    entry.extend(name.as_bytes());
    if value.contains('\n') {
        entry.push(b'\n');
        entry.extend((value.len() as u64).to_le_bytes());
    } else {
        entry.push(b'=');
    }
    entry.extend(value.as_bytes());
    entry.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Form;
    use tracing::{info, warn};

    #[test]
    fn lines_are_entries_with_fields() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let journal = UnixDatagram::bind(&path).unwrap();
        let connected = std::sync::Mutex::new(Journal::connect(&path).unwrap());
        let subscriber = super::super::subscriber(tracing::Level::INFO, connected, Form::Journal);
        tracing::subscriber::with_default(subscriber, || {
            info!(pid = 7, name = "a model", "client connected");
            warn!("two\nlines");
        });
        let received = || {
            let mut bytes = [0; 1_000];
            let length = journal.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let first = received();
        let mut lines: Vec<_> = first.lines().collect();
        lines.sort_unstable();
        let want = [
            "GIVEWAY_NAME=a model",
            "GIVEWAY_PID=7",
            "MESSAGE=client connected",
            "PRIORITY=6",
            "SYSLOG_IDENTIFIER=xserver",
        ];
        assert_eq!(lines, want);
        assert!(received().contains("PRIORITY=4\nMESSAGE\n\t\0\0\0\0\0\0\0two\nlines\n"));
    }

    #[test]
    fn absent_journal_is_an_error_and_a_restarted_one_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(Journal::connect(&path).is_err());
        let bound = UnixDatagram::bind(&path).unwrap();
        let mut journal = Journal::connect(&path).unwrap();
        drop(bound);
        let line = br#"{"level":"INFO","fields":{"message":"m"}}"#;
        assert_eq!(journal.write(line).unwrap(), line.len());
        std::fs::remove_file(&path).unwrap();
        let again = UnixDatagram::bind(&path).unwrap();
        assert_eq!(journal.write(line).unwrap(), line.len());
        assert!(again.recv(&mut [0; 100]).unwrap() > 10);
        assert_eq!(journal.write(b"no line").unwrap(), 7);
    }
}
