//! The power draw of the devices, for policies that read it.

use super::{POWER, Server, watch};
use crate::power::Reader;
use protocol::time::Time;
use rustix::event::epoll::EventFlags;
use std::time::Duration;
use tracing::warn;

impl Server {
    /// Requests the power of the devices when due.
    pub(super) fn ask_power(&mut self, now: Time) {
        let Some(interval) = self.reads_power() else { return };
        if now < self.power_at {
            return;
        }
        self.power_at = now.after(interval);
        if let Some(meter) = self.meter.take() {
            let reader = Reader::new(meter).and_then(|reader| {
                watch(&self.epoll, reader.descriptor(), POWER, EventFlags::IN)?;
                Ok(reader)
            });
            match reader {
                Ok(reader) => self.power = Some(reader),
                Err(error) => warn!(%error, "cannot start the thread that reads power"),
            }
        }
        if let Some(reader) = &self.power {
            reader.ask(self.core.devices());
        }
    }

    /// The interval at which a policy reads power; none while no client has a queue.
    pub(super) fn reads_power(&self) -> Option<Duration> {
        self.core.reads_power().filter(|_| self.core.queues() > 0)
    }

    pub(super) fn handle_power(&mut self) {
        let readings = self.power.as_ref().map(Reader::readings).unwrap_or_default();
        for (device, milliwatts, at) in readings {
            self.core.set_power(device, milliwatts, at);
            self.step = Some(Time(0));
        }
    }
}
