//! What the server makes of a status, for models of it: permissions by the real policy, and what each client shall tell
//! by the real rules. `Core` does the same; here nothing is written, so that a model can write it in steps.

use policies::{Engine, Unit};
use protocol::operation::Permit;
use protocol::status::{Gang, Status};
use protocol::time::Time;
use std::time::Duration;
use xserver::core::wants;

/// For each of the gangs what it may do and what is wanted of it, without `WANTS_PROGRESS`.
pub fn decide(engine: &mut Engine, gangs: Vec<Gang>, now: Time, linger: Duration) -> (Vec<Permit>, Vec<u32>) {
    let status = Status::Global { gangs };
    let permits: Vec<_> =
        engine.decide(&status, now).operations.iter().map(|operation| operation.permit).collect();
    let Status::Global { gangs } = status else { unreachable!("made so above") };
    let units = engine.units();
    let runs = |client: usize| permits[client].run;
    let on = |unit: &Unit, test: &dyn Fn(usize) -> bool, busy: bool| {
        units.uses(unit).iter().any(|used| (used.busy || !busy) && test(engine.contest(used.device)))
    };
    let wanted = units.all().iter().enumerate().map(|(client, unit)| {
        let others = || units.all().iter().enumerate().filter(move |other| other.0 != client);
        let waits_on = |device: usize| {
            others()
                .any(|(other, unit)| unit.ready && !runs(other) && on(unit, &|used| used == device, false))
        };
        let runs_on = |device: usize| {
            others().any(|(other, unit)| unit.ready && runs(other) && on(unit, &|used| used == device, true))
        };
        let awaited = unit.ready && runs(client) && on(unit, &waits_on, true);
        let queues = &gangs[client].queues;
        let may_fall = wants::may_fall(unit, queues) && on(unit, &runs_on, false);
        let ready = wants::ready(unit, units.uses(unit), units.devices(), queues, now, linger);
        let counted = engine.hears_idle() && unit.ready;
        wants::word(ready, awaited || may_fall || counted, false)
    });
    let wanted = wanted.collect();
    (permits, wanted)
}
