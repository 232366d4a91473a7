//! Files for traces that a server sends.

use super::client::{Bed, synchronize};
use super::endpoint::{Faults, mapped, memory_file, seal};
use super::until;
use protocol::message::ToClient;
use protocol::page::TAKES_TRACES;
use protocol::trace::{Text, TextKind, Trace, TraceEvent, TraceKind, TraceReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use xqueue::{CommandSpec, CostKey, Direct, Subject, XQueue};

const SIZES: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

fn file() -> (OwnedFd, &'static Trace) {
    let file = memory_file(size_of::<Trace>());
    let trace = mapped::<Trace>(&file, size_of::<Trace>());
    seal(&file, SIZES).unwrap();
    (file, trace)
}

fn events(reader: &mut TraceReader, trace: &Trace) -> Vec<TraceEvent> {
    let mut events = Vec::new();
    assert_eq!(reader.events(trace, |_, event| events.push(event)), 0);
    events
}

fn launch(queue: &XQueue) -> bool {
    let spec = CommandSpec::new(CostKey(1)).about(Subject(900));
    matches!(queue.try_direct(&spec, || Ok(())), Direct::Launched(_, Ok(())))
}

#[test]
fn program_writes_while_it_is_recorded() {
    let bed = Bed::new();
    let queue = bed.queue(5, 0);
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    until("it says that it takes traces", || shared.client.takes.load(Ordering::SeqCst) & TAKES_TRACES != 0);
    end.next();
    for round in 0..2 {
        let ((file, trace), mut reader) = (file(), TraceReader::default());
        end.send(&ToClient::Trace {}.encode(), &[file.as_raw_fd()]);
        drop(file);
        until("it writes", || !events(&mut reader.clone(), trace).is_empty());
        shared.renew();
        until("the queue is free", || launch(&queue));
        synchronize(&queue);
        shared.permit(false, false);
        let has = |kind, value| {
            let all = events(&mut reader.clone(), trace);
            all.iter().any(|event| (event.kind, event.value) == (kind, value))
        };
        until("the suspension is written", || has(TraceKind::Permission, 0));
        shared.permit(true, false);
        until("the resumption is written", || has(TraceKind::Permission, 1));
        let all = events(&mut reader, trace);
        let of_queue: Vec<_> = all.iter().filter(|event| event.queue != 0).map(|event| event.kind).collect();
        for kind in [TraceKind::Ready, TraceKind::Direct, TraceKind::Completed, TraceKind::Idle] {
            assert!(of_queue.contains(&kind), "{round}: no {kind:?} in {all:?}");
        }
        let mut texts = Vec::new();
        let named = [
            Text { kind: TextKind::Subject, key: 900, text: "kernel 900".to_owned() },
            Text { kind: TextKind::Queue, key: queue.id().0, text: "queue 5 on device 42".to_owned() },
        ];
        until("kernel and queue have names", || {
            shared.renew();
            texts.extend(reader.texts(trace));
            named.iter().all(|text| texts.contains(text))
        });
        assert_eq!(texts.len(), 2, "each has one name: {texts:?}");
        end.send(&ToClient::TraceEnd {}.encode(), &[]);
        until("it stops", || !bed.shared.link.tracer.is_on());
        events(&mut reader, trace);
        until("the queue is free", || launch(&queue));
        synchronize(&queue);
        assert_eq!(events(&mut reader, trace), [], "nothing is written any more");
        shared.renew();
    }
    // The loss of the server ends a trace as well.
    let (file, _trace) = file();
    end.send(&ToClient::Trace {}.encode(), &[file.as_raw_fd()]);
    until("it writes again", || bed.shared.link.tracer.is_on());
    drop(end);
    until("it stops without a server", || !bed.shared.link.tracer.is_on());
    assert!(launch(&queue));
}

#[test]
fn unfit_files_are_refused_and_change_nothing() {
    let bed = Bed::new();
    let queue = bed.queue(5, 0);
    let mut end = bed.accept();
    let shared = end.welcome(Faults::default());
    end.next();
    let (short, unsealed) = (memory_file(4096), memory_file(size_of::<Trace>()));
    seal(&short, SIZES).unwrap();
    let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let (fit, trace) = file();
    for files in [&[][..], &[short.as_raw_fd()], &[unsealed.as_raw_fd()], &[null.as_raw_fd()]] {
        end.send(&ToClient::Trace {}.encode(), files);
    }
    // Behind them, so that they are read before it.
    end.send(&ToClient::Trace {}.encode(), &[fit.as_raw_fd()]);
    until("the fit one is written", || !events(&mut TraceReader::default(), trace).is_empty());
    shared.renew();
    assert!(launch(&queue));
}
