//! What the server makes of a status, for models of it: permissions by the real policy, and what each client shall tell
//! by the real rules. `Core` does the same; here nothing is written, so that a model can write it in steps.

use policies::Engine;
use protocol::operation::Permit;
use protocol::status::{Gang, Status};
use protocol::time::Time;
use xserver::core::wants::{self, Rules};

/// For each of the gangs what it may do and what is wanted of it, without `WANTS_PROGRESS`.
pub fn decide(engine: &mut Engine, gangs: Vec<Gang>, now: Time) -> (Vec<Permit>, Vec<u32>) {
    let status = Status::Global { gangs };
    let permits: Vec<_> =
        engine.decide(&status, now).operations.iter().map(|operation| operation.permit).collect();
    let Status::Global { gangs } = status else { unreachable!("made so above") };
    let mut contests = Vec::new();
    wants::note(&mut contests, engine, permits.iter().map(|permit| (permit.run, None)));
    let rules = Rules::new(engine, &contests, now);
    let clients = gangs.iter().zip(&permits).enumerate();
    let wanted = clients.map(|(place, (gang, permit))| rules.of(place, &gang.queues, permit.run, false));
    let wanted = wanted.collect();
    (permits, wanted)
}
