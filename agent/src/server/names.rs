//! The names of what a trace is about: kernels and queues. The agent adds them behind the events, so that no launching thread has to
//! know them.

use crate::host::Host;
use crate::tracer::Tracer;
use protocol::trace::{TextKind, TraceKind, TraceReader};
use std::collections::HashSet;
use std::time::Duration;
use xqueue::QueueId;

/// The interval at which the agent adds names.
pub(super) const INTERVAL: Duration = Duration::from_millis(50);
/// Subjects below this are no kernels. They have names from the begin on, because a program can end at once after its first copy.
const COMMANDS: u64 = 16;

/// The kernels and queues that have a name in the trace.
#[derive(Debug, Default)]
pub(super) struct Names {
    reader: TraceReader,
    subjects: HashSet<u64>,
    queues: HashSet<u32>,
}

impl Names {
    /// Adds the names of what was written since the last call, if somebody records.
    pub(super) fn add(&mut self, tracer: &Tracer, host: &dyn Host) {
        let Some(trace) = tracer.trace().filter(|_| tracer.is_on()) else { return };
        let (mut subjects, mut queues) = (Vec::new(), Vec::new());
        let Self { reader, subjects: known, queues: known_queues } = self;
        if known.is_empty() {
            subjects.extend(0..COMMANDS);
            known.extend(0..COMMANDS);
        }
        reader.events(trace, |_, event| {
            let has_subject = matches!(
                event.kind,
                TraceKind::Direct | TraceKind::Deferred | TraceKind::InOrder | TraceKind::Submitted
            );
            if has_subject && known.insert(event.value) {
                subjects.push(event.value);
            }
            if event.queue != 0 && known_queues.insert(event.queue) {
                queues.push(event.queue);
            }
        });
        for subject in subjects {
            if let Some(name) = host.name_of_subject(subject) {
                trace.add_text(TextKind::Subject, subject, &name);
            }
        }
        if queues.is_empty() {
            return;
        }
        let managed = host.queues();
        for queue in queues {
            let is_it = |id: QueueId| id.0 & 0xff_ffff == u64::from(queue);
            if let Some(found) = managed.iter().find(|other| is_it(other.queue.id())) {
                let name =
                    format!("queue {} on device {}", protocol::ids::QueueId(found.handle), found.device);
                trace.add_text(TextKind::Queue, queue.into(), &name);
            }
        }
    }
}
