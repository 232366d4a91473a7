//! What a client may not do, and how much there may be of everything.

use super::*;

#[test]
fn rules_are_kept() {
    let mut stage = Stage::new(Settings::default(), &[&[(1, 0)]]);
    let client = stage.clients[0];
    let mut apply = |message| stage.core.apply(client, &message).unwrap_err();
    let hello = ToServer::Hello { pid: 1, name: String::new() };
    assert_eq!(apply(hello), Fault::Hello);
    assert_eq!(apply(created(1, 1, 1, 0)), Fault::Queue(StatusError::QueueExists(QueueId(1))));
    assert_eq!(apply(created(2, 0, 1, 0)), Fault::Slot(0));
    assert_eq!(apply(created(2, SLOTS as u32, 1, 0)), Fault::Slot(SLOTS as u32));
    let unknown = StatusError::UnknownQueue(QueueId(2));
    assert_eq!(apply(ToServer::QueueDestroyed { queue: QueueId(2) }), Fault::Queue(unknown));
    assert_eq!(stage.core.queues(), 1);
    assert!(stage.core.leave(client).is_some() && stage.core.leave(client).is_none());
    assert_eq!(stage.core.apply(client, &created(1, 0, 1, 0)), Err(Fault::Client));
}

#[test]
fn queues_are_bounded_all_together() {
    let mut stage = Stage::new(Settings::default(), &[&[] as Queues<'_>; 17]);
    let mut left = QUEUES;
    for client in stage.clients.clone() {
        for slot in 0..SLOTS as u32 {
            let result = stage.core.apply(client, &created(slot.into(), slot, 1, 0));
            assert_eq!(result, if left > 0 { Ok(()) } else { Err(Fault::Full) });
            if left == 0 {
                return;
            }
            left -= 1;
        }
    }
    unreachable!("17 clients can have more");
}

#[test]
fn devices_are_bounded_all_together() {
    let mut stage = Stage::new(Settings::default(), &[&[] as Queues<'_>; 2]);
    let [one, other] = stage.clients[..] else { unreachable!() };
    for number in 0..DEVICES as u32 {
        assert_eq!(stage.core.apply(one, &created(number.into(), number, number, 0)), Ok(()));
    }
    let core = &mut stage.core;
    let new = DEVICES as u32;
    assert_eq!(core.apply(other, &created(1, 1, new, 0)), Err(Fault::Devices));
    assert_eq!(core.apply(other, &created(1, 1, 7, 0)), Ok(()), "one that is there already");
    // A device is forgotten with its last queue, and not before.
    core.apply(one, &ToServer::QueueDestroyed { queue: QueueId(7) }).unwrap();
    assert_eq!(core.apply(other, &created(2, 2, new, 0)), Err(Fault::Devices));
    core.apply(one, &ToServer::QueueDestroyed { queue: QueueId(8) }).unwrap();
    assert_eq!(core.apply(other, &created(2, 2, new, 0)), Ok(()));
    core.leave(one);
    assert_eq!(core.devices(), [DeviceId(7), DeviceId(new)]);
}
