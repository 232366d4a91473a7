//! Reads the configuration file again, on SIGHUP or `xcli reload`. A thread reads the file and the databases of users,
//! which can take a while. What it has read counts as a whole or, if there is a mistake, not at all.

use super::{Access, End, Server};
use crate::configuration::Configuration;
use crate::connection::Connection;
use crate::error::Refusal;
use policies::named;
use protocol::control::{ConfigInForce, ConfigOrigin, EventKind, Reply};
use tracing::{info, warn};

impl Server {
    /// Handles SIGHUP.
    pub(super) fn hang_up(&mut self) {
        let Some(reload) = &mut self.reload else { return };
        if let Some(signals) = &reload.hang_up {
            // One read for each pending signal; the contents do not matter.
            let _ = rustix::io::read(signals, &mut [0; 1024]);
        }
        if reload.reads {
            reload.again = true;
        } else if let Err(error) = reload.start() {
            warn!(%error, "cannot read the configuration again");
        }
    }

    /// Handles a request to read the file. The reply comes later.
    pub(super) fn ask_reload(&mut self, number: u64, connection: &mut Connection) -> Result<(), End> {
        let started = match &mut self.reload {
            None => Err(Refusal::NoConfiguration),
            Some(reload) if reload.reads => Err(Refusal::Reloading),
            Some(reload) => {
                let started = reload.start().map_err(|error| Refusal::BadConfiguration(error.to_string()));
                if started.is_ok() {
                    reload.waiting.push(number);
                }
                started
            }
        };
        match started {
            Ok(()) => {
                connection.awaits_reply = true;
                Ok(())
            }
            Err(refusal) => self.refuse(connection, &refusal),
        }
    }

    /// Takes what the thread has read.
    pub(super) fn finish_reload(&mut self) {
        let Some(reload) = &mut self.reload else { return };
        let _ = rustix::io::read(&*reload.notifier, &mut [0; 8]);
        let Ok(read) = reload.result.try_recv() else { return };
        reload.reads = false;
        let waiting = std::mem::take(&mut reload.waiting);
        let file = reload.file.display().to_string();
        let applied = read.and_then(|configuration| self.apply(configuration));
        let error = applied.as_ref().err().map(|error| format!("{error:#}"));
        self.note(EventKind::Reloaded { error });
        let reply = match applied {
            Ok(()) => {
                info!(file, "configuration read again");
                Reply::Done
            }
            Err(error) => {
                warn!("the configuration has not changed: {error:#}");
                Reply::Error(Refusal::BadConfiguration(format!("{error:#}")).to_string())
            }
        };
        for number in waiting {
            self.reply_later(number, &reply);
        }
        if self.reload.as_mut().is_some_and(|reload| std::mem::take(&mut reload.again)) {
            self.hang_up();
        }
    }

    /// Puts a configuration in force.
    fn apply(&mut self, configuration: Configuration) -> anyhow::Result<()> {
        let Some(reload) = &mut self.reload else { return Ok(()) };
        if reload.in_force.listen != configuration.listen {
            anyhow::bail!("[[listen]] has changed, which needs a new start of the server");
        }
        self.core.follow(Some(&reload.in_force), &configuration)?;
        self.access = Access::shared(configuration.rules.clone());
        self.limits = configuration.limits;
        reload.in_force = configuration;
        self.core.set_limits(self.limits);
        let mut refused = Vec::new();
        for (number, connection) in &mut self.connections {
            match self.access.judge(&connection.who) {
                Ok(grant) if grant == connection.grant => {}
                Ok(grant) => {
                    connection.grant = grant.clone();
                    self.events.set_asker(*number, connection.asker());
                    self.traces.set_asker(*number, connection.asker());
                    if let Some(client) = connection.client() {
                        self.core.set_grant(client, grant);
                    }
                }
                Err(why) => refused.push((*number, why)),
            }
        }
        for (number, why) in refused {
            if let Some(connection) = self.connections.get(&number) {
                connection.refuse_for(&why);
            }
            self.close(number, &End::Refused(why));
        }
        self.decide(crate::clock::now());
        Ok(())
    }

    /// The configuration in force.
    pub(super) fn configuration(&self) -> ConfigInForce {
        let Some(reload) = &self.reload else { return ConfigInForce { file: None, keys: Vec::new() } };
        let mut keys = reload.in_force.keys.clone();
        let configured = named::ruling(None, &reload.in_force.policy);
        let policy = self.core.choices().next().map(|(_, choice)| named::ruling(None, choice));
        if let Some(policy) = policy.filter(|policy| *policy != configured) {
            for key in &mut keys {
                match key.name.as_str() {
                    "policy.name" => key.value = format!("{:?}", policy.policy),
                    "policy.parameters" => {
                        let values = policy.values.iter().map(|(name, value)| format!("{name} = {value}"));
                        key.value = format!("{{ {} }}", values.collect::<Vec<_>>().join(", "));
                    }
                    _ => continue,
                }
                key.from = ConfigOrigin::Request;
            }
        }
        ConfigInForce { file: Some(reload.file.clone()), keys }
    }
}
