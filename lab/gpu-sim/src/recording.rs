//! A file of binary records that another thread writes: the caller holds the machine's lock and must not wait
//! for a disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

/// The bytes that are handed over at once.
const CHUNK: usize = 64 << 10;
/// The number of chunks that can wait for the disk (64 MiB).
const MOST_WAITING: usize = 1024;

/// The first bytes of the file.
const HEADER: &[u8; 8] = b"GWTIME01";
/// The size of a record, bytes.
const RECORD: usize = 32;

/// The meaning of a record: the values of its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// Work-groups of the process ran.
    Ran = 1,
    /// Kernel dispatch packets arrived.
    Arrived = 2,
    /// Kernels ended.
    Ended = 3,
    /// Running work was saved or restored.
    Switching = 4,
    /// A compute queue of the process was off the hardware.
    Evicted = 5,
    /// The sum of the times alone of kernels that ended.
    KernelTime = 6,
}

/// A record; `docs/simulate.md` has its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub event: Event,
    pub pid: i32,
    /// The index of the GPU.
    pub gpu: usize,
    pub count: u32,
    /// Nanoseconds of the monotonic clock, as is `to` except in a [`Event::KernelTime`].
    pub from: u64,
    pub to: u64,
}

impl Record {
    fn bytes(&self) -> [u8; RECORD] {
        let mut bytes = [0; RECORD];
        bytes[..4].copy_from_slice(&(self.event as u32).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.pid.to_le_bytes());
        bytes[8..12].copy_from_slice(&(self.gpu as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.from.to_le_bytes());
        bytes[24..].copy_from_slice(&self.to.to_le_bytes());
        bytes
    }
}

/// Makes the file of a recording, without records.
///
/// # Errors
/// The system refuses the file.
pub fn create(path: &Path) -> io::Result<File> {
    let mut file = File::create(path)?;
    file.write_all(HEADER)?;
    Ok(file)
}

#[derive(Debug)]
enum Message {
    Bytes(Vec<u8>),
    /// All before it must be written.
    Flush(Sender<()>),
}

/// The records that are not written yet, and the way to the thread that writes them.
#[derive(Debug)]
pub struct Recording {
    buffer: Vec<u8>,
    /// `None` once the recording has failed.
    writer: Option<SyncSender<Message>>,
    too_slow: Arc<AtomicBool>,
}

impl Recording {
    /// Starts the thread that writes to `file`. If that fails, the recording ends, and `failed` gets the reason.
    ///
    /// # Errors
    /// The system refuses the thread.
    pub fn start(
        mut file: impl Write + Send + 'static,
        failed: impl FnOnce(String) + Send + 'static,
    ) -> io::Result<Self> {
        let (writer, messages) = mpsc::sync_channel(MOST_WAITING);
        let too_slow = Arc::new(AtomicBool::new(false));
        let slow = Arc::clone(&too_slow);
        std::thread::Builder::new().spawn(move || {
            for message in messages {
                match message {
                    Message::Bytes(bytes) => {
                        if let Err(error) = file.write_all(&bytes) {
                            failed(error.to_string());
                            return;
                        }
                    }
                    Message::Flush(done) => _ = done.send(()),
                }
            }
            if slow.load(Ordering::Acquire) {
                failed("the disk is too slow".to_owned());
            }
        })?;
        Ok(Self { buffer: Vec::new(), writer: Some(writer), too_slow })
    }

    /// Adds a record. It never waits.
    pub fn add(&mut self, record: &Record) {
        if self.writer.is_none() {
            return;
        }
        if self.buffer.is_empty() {
            self.buffer.reserve_exact(CHUNK);
        }
        self.buffer.extend_from_slice(&record.bytes());
        if self.buffer.len() + RECORD > CHUNK {
            self.hand_over();
        }
    }

    /// Hands all records to the thread. The result gets a message once they are written, or loses its sender if
    /// they cannot be. It never waits; `None` if the recording has failed.
    pub fn flush(&mut self) -> Option<Receiver<()>> {
        self.hand_over();
        let (done, written) = mpsc::channel();
        self.send(Message::Flush(done));
        self.writer.as_ref().map(|_| written)
    }

    fn hand_over(&mut self) {
        let bytes = std::mem::take(&mut self.buffer);
        if !bytes.is_empty() {
            self.send(Message::Bytes(bytes));
        }
    }

    fn send(&mut self, message: Message) {
        let Some(writer) = &self.writer else { return };
        match writer.try_send(message) {
            Ok(()) => {}
            Err(error) => {
                let full = matches!(error, mpsc::TrySendError::Full(_));
                self.too_slow.store(full, Ordering::Release);
                self.writer = None;
            }
        }
    }
}

/// Recordings of unit tests.
#[cfg(test)]
pub mod testing {
    use super::*;

    /// A file that passes on what is written, and fails once nobody takes it.
    pub struct To(pub Sender<Vec<u8>>);

    impl Write for To {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(|_| io::Error::other("broken"))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The bytes that a recording has written.
    pub struct Tape(Receiver<Vec<u8>>);

    /// Makes a recording that must not fail.
    pub fn record() -> (Recording, Tape) {
        let (file, written) = mpsc::channel();
        (Recording::start(To(file), |why| panic!("{why}")).unwrap(), Tape(written))
    }

    impl Tape {
        /// Returns the words of each record that was flushed since the last call: event, process, count, begin and
        /// end. All are of the first GPU.
        pub fn take(&self) -> Vec<(u32, i32, u32, u64, u64)> {
            let bytes: Vec<u8> = self.0.try_iter().flatten().collect();
            assert_eq!(bytes.len() % RECORD, 0);
            let record = |record: &[u8]| {
                let word = |i: usize| u32::from_le_bytes(record[4 * i..4 * i + 4].try_into().unwrap());
                let time = |i: usize| u64::from(word(i)) | u64::from(word(i + 1)) << 32;
                assert_eq!(word(2), 0);
                (word(0), word(1).cast_signed(), word(3), time(4), time(6))
            };
            bytes.chunks(RECORD).map(record).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{To, record};
    use super::*;
    use std::sync::mpsc::channel;

    const ENDED: Record = Record { event: Event::Ended, pid: -2, gpu: 3, count: 4, from: 5, to: 6 };

    #[test]
    fn flushed_records_are_written_as_32_bytes_each() {
        let (mut recording, tape) = record();
        let long = Record { event: Event::Ran, gpu: 0, to: 7 << 40, ..ENDED };
        for record in [long, Record { gpu: 0, ..ENDED }] {
            recording.add(&record);
        }
        recording.flush().unwrap().recv().unwrap();
        assert_eq!(tape.take(), [(1, -2, 4, 5, 7 << 40), (3, -2, 4, 5, 6)]);
        assert_eq!(ENDED.bytes()[8..12], [3, 0, 0, 0]);
    }

    #[test]
    fn full_chunk_is_written_without_a_flush() {
        let (file, written) = channel();
        let mut recording = Recording::start(To(file), |why| panic!("{why}")).unwrap();
        (0..CHUNK / RECORD).for_each(|_| recording.add(&ENDED));
        assert_eq!(written.recv().unwrap().len(), CHUNK);
    }

    #[test]
    fn failing_disk_ends_the_recording_with_one_reason() {
        let (file, written) = channel();
        drop(written);
        let (failed, reasons) = channel();
        let mut recording = Recording::start(To(file), move |why| failed.send(why).unwrap()).unwrap();
        recording.add(&ENDED);
        // The thread may take the flush before it has ended, or not.
        assert!(recording.flush().is_none_or(|done| done.recv().is_err()));
        assert_eq!(reasons.iter().collect::<Vec<_>>(), ["broken"]);
        assert!(recording.flush().is_none());
        recording.add(&ENDED);
        assert!(recording.buffer.is_empty(), "nothing is kept for a file that has failed");
    }

    /// Takes nothing until it is let go.
    struct Stopped(Receiver<()>);

    impl Write for Stopped {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn disk_that_is_too_slow_ends_the_recording() {
        let (go, stopped) = channel();
        let (failed, reasons) = channel();
        let mut recording = Recording::start(Stopped(stopped), move |why| failed.send(why).unwrap()).unwrap();
        // One flush can be with the thread.
        assert!((0..MOST_WAITING + 3).any(|_| {
            recording.add(&ENDED);
            recording.flush().is_none()
        }));
        drop(go);
        assert_eq!(reasons.recv().unwrap(), "the disk is too slow");
    }
}
