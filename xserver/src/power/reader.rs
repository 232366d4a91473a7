//! A thread that asks what devices draw: the driver may take its time, and the thread that decides waits for nobody.

use super::PowerMeter;
use protocol::ids::DeviceId;
use protocol::time::Time;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::{io, thread};

/// What a device drew, in milliwatts, and when that was read.
pub(crate) type Reading = (DeviceId, u64, Time);

/// The thread, as the one that decides sees it. It ends with this.
#[derive(Debug)]
pub(crate) struct Reader {
    devices: SyncSender<Vec<DeviceId>>,
    readings: Receiver<Reading>,
    bell: Arc<OwnedFd>,
}

impl Reader {
    /// One that reads this meter.
    ///
    /// # Errors
    /// There is no descriptor or no thread left.
    pub fn new(mut meter: Box<dyn PowerMeter + Send>) -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (devices, asked) = sync_channel::<Vec<DeviceId>>(1);
        let (tell, readings) = channel();
        let ring = bell.clone();
        thread::Builder::new().name("power".to_owned()).spawn(move || {
            for devices in asked {
                for device in devices {
                    let Some(milliwatts) = meter.read(device) else { continue };
                    if tell.send((device, milliwatts, crate::now())).is_err() {
                        return;
                    }
                }
                // It lasts as long as this thread.
                let _ = rustix::io::write(&*ring, &1_u64.to_ne_bytes());
            }
        })?;
        Ok(Self { devices, readings, bell })
    }

    /// Becomes readable when [`hear`](Self::hear) has something.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Has these devices read, unless the thread is behind.
    pub fn ask(&self, devices: Vec<DeviceId>) {
        let _ = self.devices.try_send(devices);
    }

    /// What was read.
    pub fn hear(&self) -> Vec<Reading> {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.readings.try_iter().collect()
    }
}
