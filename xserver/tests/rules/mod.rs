//! The decisions of the server, for models. Permissions come from a real policy, event masks from the real
//! rules. Unlike `Core` this code writes nothing, so that a model can write in steps.

use policies::Engine;
use protocol::operation::Permit;
use protocol::status::{Gang, Status};
use protocol::time::Time;
use xserver::core::event_mask::{self, Rules};

/// Returns the permission and the event mask of each gang. The masks have no `EVENT_PROGRESS`.
pub fn decide(engine: &mut Engine, gangs: Vec<Gang>, now: Time) -> (Vec<Permit>, Vec<u32>) {
    let status = Status::Global { gangs };
    let permits: Vec<_> =
        engine.decide(&status, now).operations.iter().map(|operation| operation.permit).collect();
    let Status::Global { gangs } = status else { unreachable!("the status is global") };
    let mut contests = Vec::new();
    event_mask::note(&mut contests, engine, permits.iter().map(|permit| (permit.run, None)));
    let rules = Rules::new(engine, &contests, now);
    let clients = gangs.iter().zip(&permits).enumerate();
    let wanted = clients.map(|(place, (gang, permit))| rules.of(place, &gang.queues, permit, false));
    let wanted = wanted.collect();
    (permits, wanted)
}
