//! Runs commands: each stream has a thread that runs its commands in order, each after the commands that it
//! waits for.

use std::sync::Arc;

use parking_lot::{Condvar, MutexGuard};

use crate::abi::{Answer, Handle, INVALID_HANDLE, OUT_OF_MEMORY, STREAM_NON_BLOCKING};
use crate::state::{Pending, STATE, State};
use crate::work::Work;

/// The capacity of a stream's queue, in commands. A call that adds one more waits for room, as CUDA's calls
/// do.
pub const DEPTH: usize = 1024;

/// The lock, held.
pub type Held = MutexGuard<'static, State>;

/// Adds a command to a stream, and returns the command's number. The command waits for `after`, and for those
/// that the rules of the legacy stream add. While the queue is full the call waits and releases the lock.
///
/// # Errors
/// `INVALID_HANDLE`: there is no such stream. `OUT_OF_MEMORY`: its thread cannot be started.
pub fn submit(state: &mut Held, handle: Handle, work: Work, after: &[u64]) -> Answer<u64> {
    loop {
        let stream = state.streams.get(&handle).ok_or(INVALID_HANDLE)?;
        if stream.queue.len() < DEPTH {
            break;
        }
        let room = stream.room.clone();
        room.wait(state);
    }
    let stream = &state.streams[&handle];
    let context = stream.context;
    let mut before: Vec<u64> = after.to_vec();
    if stream.legacy {
        before.extend(state.blocking(context).map(|other| other.last));
    } else if stream.flags & STREAM_NON_BLOCKING == 0
        && let Some(legacy) = state.contexts.get(&context).and_then(|c| state.streams.get(&c.legacy))
    {
        before.push(legacy.last);
    }
    before.sort_unstable();
    before.dedup();
    before.retain(|command| !state.done(*command));
    let number = state.number();
    for command in &before {
        if let Some(pending) = state.commands.get_mut(command) {
            pending.followers.push(number);
        }
    }
    let pending = Pending {
        stream: handle,
        missing: before.len(),
        followers: Vec::new(),
        waiters: Vec::new(),
        work: Some(work),
    };
    let stream = state.streams.get_mut(&handle).ok_or(INVALID_HANDLE)?;
    if !stream.started {
        let thread = std::thread::Builder::new().name("cuda-cpu".into());
        if thread.spawn(move || serve(handle)).is_err() {
            eprintln!("cuda-cpu: no thread for a stream: the process or the machine has too many");
            return Err(OUT_OF_MEMORY);
        }
        stream.started = true;
    }
    stream.queue.push_back(number);
    stream.last = number;
    stream.wake.notify_one();
    state.commands.insert(number, pending);
    Ok(number)
}

/// Waits until these commands have completed, and releases the lock meanwhile.
pub fn wait(state: &mut Held, commands: &[u64]) {
    let waiter = Arc::new(Condvar::new());
    for command in commands {
        if let Some(pending) = state.commands.get_mut(command) {
            pending.waiters.push(waiter.clone());
        }
    }
    while commands.iter().any(|command| !state.done(*command)) {
        waiter.wait(state);
    }
}

/// Returns the commands whose completion means that a stream is idle. For the legacy stream they include
/// those of the blocking streams.
pub fn ends(state: &State, handle: Handle) -> Answer<Vec<u64>> {
    let stream = state.streams.get(&handle).ok_or(INVALID_HANDLE)?;
    let mut ends = vec![stream.last];
    if stream.legacy {
        ends.extend(state.blocking(stream.context).map(|other| other.last));
    }
    ends.retain(|command| !state.done(*command));
    Ok(ends)
}

/// Like [`ends`], for all streams of a context.
pub fn all_ends(state: &State, context: Handle) -> Vec<u64> {
    let of = state.streams.values().filter(|stream| stream.context == context);
    of.map(|stream| stream.last).filter(|command| !state.done(*command)).collect()
}

/// Runs a stream's commands, in a thread of its own.
fn serve(handle: Handle) {
    // Signals of the program are for its own threads.
    // SAFETY: all zero bytes are a valid signal set, and `sigfillset` fills it before it is read; `prctl`
    // takes numbers.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
        // By default a sleep may end 50 us late, and a kernel with it.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
    }
    let mut state = STATE.lock();
    loop {
        let Some(stream) = state.streams.get(&handle) else { return };
        let (ready, closing) = (stream.queue.front().copied(), stream.closing);
        match ready.and_then(|number| state.commands.get_mut(&number).map(|pending| (number, pending))) {
            Some((number, pending)) if pending.missing == 0 => {
                let work = pending.work.take();
                let context = state.streams[&handle].context;
                let error = state.contexts.get(&context).map_or(0, |context| context.error);
                // The command is dropped, with the memory that it holds, before any waiter learns that it has
                // completed.
                let result = match work {
                    None | Some(Work::Nothing) => Ok(()),
                    Some(work) => MutexGuard::unlocked(&mut state, move || work.run(error)),
                };
                if let (Err(error), Some(context)) = (result, state.contexts.get_mut(&context)) {
                    context.error = error;
                }
                complete(&mut state, handle, number);
            }
            None if closing => {
                state.streams.remove(&handle);
                return;
            }
            _ => {
                let wake = state.streams[&handle].wake.clone();
                wake.wait(&mut state);
            }
        }
    }
}

/// Removes a stream's first command and wakes those that wait for it.
fn complete(state: &mut State, handle: Handle, number: u64) {
    if let Some(stream) = state.streams.get_mut(&handle) {
        stream.queue.pop_front();
        stream.room.notify_one();
    }
    let Some(pending) = state.commands.remove(&number) else { return };
    for waiter in pending.waiters {
        waiter.notify_all();
    }
    for follower in pending.followers {
        let Some(other) = state.commands.get_mut(&follower) else { continue };
        other.missing -= 1;
        let stream = other.stream;
        if other.missing == 0
            && let Some(stream) = state.streams.get(&stream)
            && stream.queue.front() == Some(&follower)
        {
            stream.wake.notify_one();
        }
    }
}
