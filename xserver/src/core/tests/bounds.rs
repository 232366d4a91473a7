//! Tests of the rules and limits for clients.

use super::*;

#[test]
fn messages_that_break_a_rule_are_refused() {
    let mut fixture = Fixture::new(Settings::default(), &[&[(1, 0)]]);
    let client = fixture.clients[0];
    let mut apply = |message| fixture.core.apply(client, &message).unwrap_err();
    let hello = ToServer::Hello { pid: 1, name: String::new() };
    assert_eq!(apply(hello), Fault::Hello);
    assert_eq!(apply(created(1, 1, 1, 0)), Fault::Queue(StatusError::QueueExists(QueueId(1))));
    assert_eq!(apply(created(2, 0, 1, 0)), Fault::Slot(0));
    assert_eq!(apply(created(2, SLOTS as u32, 1, 0)), Fault::Slot(SLOTS as u32));
    let unknown = StatusError::UnknownQueue(QueueId(2));
    assert_eq!(apply(ToServer::QueueDestroyed { queue: QueueId(2) }), Fault::Queue(unknown));
    assert_eq!(fixture.core.queues(), 1);
    assert!(fixture.core.leave(client).is_some() && fixture.core.leave(client).is_none());
    assert_eq!(fixture.core.apply(client, &created(1, 0, 1, 0)), Err(Fault::Client));
}

#[test]
fn total_number_of_queues_is_bounded() {
    let mut fixture = Fixture::new(Settings::default(), &[&[] as Queues<'_>; 17]);
    let mut left = QUEUES;
    for client in fixture.clients.clone() {
        for slot in 0..SLOTS as u32 {
            let result = fixture.core.apply(client, &created(slot.into(), slot, 1, 0));
            assert_eq!(result, Ok((left == 0).then_some(NoRoom::Queues)));
            if left == 0 {
                return;
            }
            left -= 1;
        }
    }
    unreachable!("17 clients can have more");
}

#[test]
fn total_number_of_devices_is_bounded() {
    let mut fixture = Fixture::new(Settings::default(), &[&[] as Queues<'_>; 2]);
    let [one, other] = fixture.clients[..] else { unreachable!() };
    fixture.core.set_limits(Limits { devices_per_process: DEVICES, ..Limits::of_one_user() });
    for number in 0..DEVICES as u32 {
        assert_eq!(fixture.core.apply(one, &created(number.into(), number, number, 0)), Ok(None));
    }
    let core = &mut fixture.core;
    let new = DEVICES as u32;
    assert_eq!(core.apply(other, &created(9, 9, new, 0)), Ok(Some(NoRoom::Devices)));
    assert_eq!(core.apply(other, &created(1, 1, 7, 0)), Ok(None), "a device that exists already");
    // A device counts until its last queue is destroyed.
    core.apply(one, &ToServer::QueueDestroyed { queue: QueueId(7) }).unwrap();
    assert_eq!(core.apply(other, &created(8, 8, new, 0)), Ok(Some(NoRoom::Devices)));
    core.apply(one, &ToServer::QueueDestroyed { queue: QueueId(8) }).unwrap();
    assert_eq!(core.apply(other, &created(2, 2, new, 0)), Ok(None));
    core.leave(one);
    assert_eq!(core.devices(), [DeviceId(7), DeviceId(new)]);
}
