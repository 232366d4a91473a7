//! A thread that reads the power of devices, because the driver may be slow and must not delay decisions.

use super::PowerMeter;
use protocol::ids::DeviceId;
use protocol::time::Time;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::{io, thread};

/// The power of a device in milliwatts, and the time of reading.
pub(crate) type Reading = (DeviceId, u64, Time);

/// The handle of the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Reader {
    devices: SyncSender<Vec<DeviceId>>,
    results: Receiver<Reading>,
    notifier: Arc<OwnedFd>,
}

impl Reader {
    /// Starts a thread that reads this meter.
    ///
    /// # Errors
    /// No descriptor or no thread is left.
    pub fn new(mut meter: Box<dyn PowerMeter + Send>) -> io::Result<Self> {
        let notifier = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (devices, asked) = sync_channel::<Vec<DeviceId>>(1);
        let (sender, results) = channel();
        let notify = notifier.clone();
        thread::Builder::new().name("power".to_owned()).spawn(move || {
            for devices in asked {
                for device in devices {
                    let Some(milliwatts) = meter.read(device) else { continue };
                    if sender.send((device, milliwatts, crate::clock::now())).is_err() {
                        return;
                    }
                }
                let _ = rustix::io::write(&*notify, &1_u64.to_ne_bytes());
            }
        })?;
        Ok(Self { devices, results, notifier })
    }

    /// Becomes readable when [`readings`](Self::readings) has values.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.notifier.as_fd()
    }

    /// Requests the power of these devices, unless the thread is still busy.
    pub fn ask(&self, devices: Vec<DeviceId>) {
        let _ = self.devices.try_send(devices);
    }

    /// Returns the values read so far.
    pub fn readings(&self) -> Vec<Reading> {
        let _ = rustix::io::read(&*self.notifier, &mut [0; 8]);
        self.results.try_iter().collect()
    }
}
