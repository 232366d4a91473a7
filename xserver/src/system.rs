//! What a server for all users has besides what every server has: sockets that the service manager passes, and a
//! configuration that can be read again.

use crate::configuration::Configuration;
use crate::endpoint::{Endpoint, Listener};
use anyhow::{Context, ensure};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What a server for all users has.
#[derive(Debug)]
pub struct System {
    /// The file of the configuration.
    pub file: PathBuf,
    /// The configuration. It decides about the policy, instead of [`crate::Options::policy`].
    pub configuration: Configuration,
    /// Sockets that the service manager has made.
    pub sockets: Vec<OwnedFd>,
    /// Becomes readable when the file must be read again. A signalfd.
    pub hang_up: Option<OwnedFd>,
}

/// Listens on all sockets of a server. The first is its own one.
///
/// # Errors
/// Another server uses one of them, or it cannot be created.
pub(crate) fn listen(endpoint: &Endpoint, system: Option<&mut System>) -> anyhow::Result<Vec<Listener>> {
    let Some(system) = system else { return Ok(vec![Listener::new(endpoint)?]) };
    let further = &system.configuration.listen;
    let adopted = std::mem::take(&mut system.sockets).into_iter().map(Listener::adopt);
    let mut listeners = adopted.collect::<anyhow::Result<Vec<_>>>()?;
    for listener in &listeners {
        let path = &*listener.path;
        ensure!(
            path == endpoint.socket() || further.iter().any(|listen| listen.path == path),
            "the service manager passes the socket {}, which has no [[listen]] in the configuration and so no limit: add one",
            path.display()
        );
    }
    // A service manager that passes sockets has made the server's own one as well.
    let own = listeners.is_empty().then(|| endpoint.clone());
    let more = further.iter().map(|listen| Endpoint::open(listen.path.clone(), listen.mode));
    for endpoint in own.into_iter().chain(more) {
        if listeners.iter().any(|listener| *listener.path == *endpoint.socket()) {
            continue;
        }
        ensure!(
            rustix::process::geteuid().is_root(),
            "programs trust the server for all users at {} only if root has made the socket: make a socket unit for it, or start \
             the server as root",
            endpoint.socket().display()
        );
        listeners.push(Listener::new(&endpoint)?);
    }
    let own = listeners.iter().position(|listener| *listener.path == *endpoint.socket());
    listeners.swap(0, own.unwrap_or(0));
    Ok(listeners)
}

/// The configuration file of a server for all users.
#[derive(Debug)]
pub(crate) struct Reload {
    pub file: PathBuf,
    pub in_force: Configuration,
    /// A signalfd of SIGHUP.
    pub hang_up: Option<OwnedFd>,
    /// True while a thread reads the file.
    pub reads: bool,
    /// True if the file must be read once more, because it may have changed since the thread started.
    pub again: bool,
    /// The connections that wait for it.
    pub waiting: Vec<u64>,
    pub result: Receiver<anyhow::Result<Configuration>>,
    send: Sender<anyhow::Result<Configuration>>,
    /// Becomes readable when the thread has finished.
    pub notifier: Arc<OwnedFd>,
}

impl Reload {
    /// The file from which this configuration was read.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(file: PathBuf, in_force: Configuration, hang_up: Option<OwnedFd>) -> anyhow::Result<Self> {
        let notifier =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("cannot wait for events")?;
        let (send, result) = channel();
        let notifier = Arc::new(notifier);
        Ok(Self {
            file,
            in_force,
            hang_up,
            reads: false,
            again: false,
            waiting: Vec::new(),
            result,
            send,
            notifier,
        })
    }

    /// Starts to read the file.
    pub fn start(&mut self) -> std::io::Result<()> {
        let (file, send, notifier) = (self.file.clone(), self.send.clone(), self.notifier.clone());
        std::thread::Builder::new().name("configuration".to_owned()).spawn(move || {
            // Sending fails only while the server ends.
            let _ = send.send(Configuration::read(&file));
            let _ = rustix::io::write(&*notifier, &1_u64.to_ne_bytes());
        })?;
        self.reads = true;
        Ok(())
    }
}
