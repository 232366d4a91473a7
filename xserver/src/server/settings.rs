//! Settings of queues that people change (`xcli config -x`): the server passes them on to the programs.

use super::Server;
use crate::connection::{Connection, End};
use crate::core::ClientPage as _;
use crate::error::Refusal;
use crate::pages::send_files;
use protocol::control::{EventKind, QueueSettings, Reply, Target};
use protocol::ids::Pid;
use protocol::message::ToClient;
use protocol::page::TAKES_CONFIGURATION;
use std::num::NonZeroU32;
use tracing::info;

impl Server {
    /// Sends the settings to the programs, or to none of them if the library of one is too old.
    pub(super) fn ask_configure(
        &mut self,
        connection: &mut Connection,
        of: Target,
        settings: QueueSettings,
    ) -> Result<(), End> {
        let meant = match self.core.meant_queues(&connection.asker(), of) {
            Ok(meant) => meant,
            Err(refusal) => return self.refuse(connection, &refusal),
        };
        let too_old = self.core.pages().find(|(client, pages)| {
            pages.takes() & TAKES_CONFIGURATION == 0 && meant.iter().any(|(other, _)| other == client)
        });
        if let Some((_, pages)) = too_old {
            let refusal = Refusal::TakesNoSettings(pages.pid());
            return self.refuse(connection, &refusal);
        }
        info!(pid = connection.pid, "settings for {of}: {settings}");
        let (by, target) = (Pid(connection.pid), of.to_string());
        let noted = EventKind::Configured { by, target, settings: settings.to_string() };
        self.note_about(connection, of, noted);
        let number = |value: Option<NonZeroU32>| value.map_or(0, NonZeroU32::get);
        let mut unread = None;
        for (client, queues) in meant {
            let program = self.connections.values().find(|other| other.client() == Some(client));
            let Some(program) = program else { continue };
            for queue in queues {
                let message = ToClient::Configure {
                    queue,
                    level: settings.level.map_or(0, i32::from),
                    threshold: number(settings.threshold),
                    batch_size: number(settings.batch_size),
                };
                // The server does not wait for a program. A Unix socket takes so few bytes as a whole or not at all.
                if program.has_output() || send_files(&program.socket, &message.encode(), &[]).is_err() {
                    unread = Some(Pid(program.pid));
                }
            }
        }
        match unread {
            Some(pid) => self.refuse(connection, &Refusal::DoesNotRead(pid)),
            None => self.answer(connection, &Reply::Done),
        }
    }
}
