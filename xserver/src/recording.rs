//! The file of decisions (`xserver --decisions`): JSON Lines, one for each record of the core.
//!
//! A thread writes it, so that a slow disk loses lines but does not delay clients. The thread looks for records
//! now and then: to wake it would cost the deciding thread a system call in each step.

use crate::core::Record;
use anyhow::Context;
use protocol::time::Time;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;
use tracing::warn;

/// The most records that wait for the thread.
const RECORDS: usize = 16_384;
/// The interval at which the thread looks for records.
const INTERVAL: Duration = Duration::from_millis(5);
/// The longest time that the end of the server waits for the file.
const PATIENCE: Duration = Duration::from_secs(2);

/// The last line of a complete file.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "kind", rename = "end")]
struct End {
    #[serde(rename = "at_ns")]
    at: Time,
    /// The number of lines that are missing, because the thread was too slow.
    dropped: u64,
}

/// The handle of the thread.
#[derive(Debug)]
pub(crate) struct Recording {
    records: SyncSender<Record>,
    dropped: u64,
    end: Arc<OnceLock<End>>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
    thread: Thread,
}

impl Recording {
    /// Creates the file, or empties it, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened, or no thread is left.
    pub fn start(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let file = File::create(path).with_context(|| format!("cannot write decisions to {name}"))?;
        Self::write_to(file, name).context("cannot start the thread that writes decisions")
    }

    fn write_to(file: impl Write + Send + 'static, name: String) -> io::Result<Self> {
        let (records, all) = sync_channel(RECORDS);
        let (alive, ended) = channel::<()>();
        let end = Arc::new(OnceLock::new());
        let last = end.clone();
        let thread = thread::Builder::new().name("decisions".to_owned()).spawn(move || {
            let _alive = alive;
            if let Err(error) = write_all(&all, &last, BufWriter::new(file)) {
                warn!(%error, "cannot write {name}; no further decisions are recorded");
            }
        })?;
        Ok(Self { records, dropped: 0, end, ended, thread: thread.thread().clone() })
    }

    /// Hands a record to the thread, or counts it as dropped. Never blocks. Returns false if the thread has given
    /// up.
    pub fn write(&mut self, record: Record) -> bool {
        match self.records.try_send(record) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.dropped = self.dropped.saturating_add(1);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }

    /// Writes the last line, and waits for the file for a limited time.
    pub fn finish(self, at: Time) {
        let Self { records, dropped, end, ended, thread } = self;
        // Set once.
        let _ = end.set(End { at, dropped });
        drop(records);
        thread.unpark();
        if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            warn!("the file of decisions is incomplete, because its disk is too slow");
        }
    }
}

/// Writes all records, and the end if it is known.
fn write_all(records: &Receiver<Record>, end: &OnceLock<End>, mut file: impl Write) -> io::Result<()> {
    loop {
        match records.try_recv() {
            Ok(record) => write_line(&mut file, &record)?,
            Err(TryRecvError::Empty) => {
                file.flush()?;
                thread::park_timeout(INTERVAL);
            }
            Err(TryRecvError::Disconnected) => {
                if let Some(end) = end.get() {
                    write_line(&mut file, end)?;
                }
                return file.flush();
            }
        }
    }
}

fn write_line(mut file: impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut file, line)?;
    file.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Change;
    use std::sync::{Condvar, Mutex};

    const RECORD: Record = Record { at: Time(5), change: Change::Guard { on: true } };

    /// A disk that writes nothing until it is told to, and then fails or not.
    #[derive(Debug, Default, Clone)]
    struct Disk {
        fails: Arc<(Mutex<Option<bool>>, Condvar)>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Disk {
        fn go_on(&self, fails: bool) {
            *self.fails.0.lock().unwrap() = Some(fails);
            self.fails.1.notify_all();
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (fails, changed) = &*self.fails;
            let fails = changed.wait_while(fails.lock().unwrap(), |fails| fails.is_none()).unwrap();
            if *fails == Some(true) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn slow_disk_loses_lines_which_the_last_one_counts() {
        let disk = Disk::default();
        let mut recording = Recording::write_to(disk.clone(), "f".to_owned()).unwrap();
        let mut said = 0_u64;
        while recording.dropped < 3 {
            assert!(recording.write(RECORD));
            said += 1;
        }
        disk.go_on(false);
        recording.finish(Time(9));
        let written = String::from_utf8(disk.written.lock().unwrap().clone()).unwrap();
        let lines: Vec<_> = written.lines().collect();
        assert_eq!(lines[0], r#"{"at_ns":5,"kind":"guard","on":true}"#);
        assert_eq!(lines.last(), Some(&r#"{"kind":"end","at_ns":9,"dropped":3}"#));
        assert_eq!(lines.len() as u64, said - 3 + 1);
    }

    #[test]
    fn failing_disk_ends_the_recording() {
        let disk = Disk::default();
        disk.go_on(true);
        let mut recording = Recording::write_to(disk.clone(), "f".to_owned()).unwrap();
        let start = std::time::Instant::now();
        while recording.write(RECORD) {
            assert!(start.elapsed() < Duration::from_secs(30), "the thread goes on");
            thread::yield_now();
        }
        recording.finish(Time(9));
        assert_eq!(*disk.written.lock().unwrap(), b"");
    }
}
