//! A server under POWER with a fake meter.

mod support;

use policies::registry;
use protocol::ids::DeviceId;
use protocol::operation::{Reason, Throttle};
use protocol::policy::PolicyKind;
use rustix::event::{EventfdFlags, eventfd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{Client, ask, wait_for};
use xserver::core::Settings;
use xserver::limits::Limits;
use xserver::{Endpoint, Options, PowerMeter, Server};

/// The power of device 1 in milliwatts; that of other devices is unknown.
#[derive(Debug)]
struct Meter(Arc<AtomicU64>);

impl PowerMeter for Meter {
    fn read(&mut self, device: DeviceId) -> Option<u64> {
        (device == DeviceId(1)).then(|| self.0.load(Ordering::SeqCst))
    }
}

#[test]
fn low_client_is_suspended_while_a_device_exceeds_its_budget() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let stop = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let endpoint = Endpoint::new("test".as_ref(), Some(path.clone())).unwrap();
    let mut choice = policies::Choice::new(registry::find(PolicyKind::Power).unwrap());
    choice.values.set("budget-w", 200.0).unwrap();
    let options = Options {
        policy: choice,
        settings: Settings::default(),
        unused: None,
        decisions: None,
        limits: Limits::of_one_user(),
        system: None,
    };
    let mut server = Server::new(&endpoint, options, stop.try_clone().unwrap()).unwrap();
    let drawn = Arc::new(AtomicU64::new(100_000));
    server.set_meter(Box::new(Meter(drawn.clone())));
    let thread = std::thread::spawn(move || server.run());

    let mut low = Client::with_queue(&path, "low", 0);
    low.ready(0);
    wait_for("the client runs", || low.runs());
    drawn.store(600_000, Ordering::SeqCst);
    wait_for("the client is suspended", || !low.runs());
    let list = |path| match ask(path, &protocol::control::Request::List) {
        protocol::control::Reply::List(list) => list,
        other => panic!("{other:?}"),
    };
    // The client first runs for a decreasing part of each period.
    wait_for("the list shows the budget as the reason", || {
        let reason = list(&path).clients[0].permit.reason;
        reason == Reason::Throttled(Throttle::Power { milliwatts: 600_000, budget: 200_000 })
    });
    drawn.store(100_000, Ordering::SeqCst);
    wait_for("the client may run all the time again", || {
        let permit = list(&path).clients[0].permit;
        permit.run && permit.reason == Reason::Unrivalled
    });
    drop(low);
    rustix::io::write(&stop, &1u64.to_ne_bytes()).unwrap();
    thread.join().unwrap().unwrap();
}
