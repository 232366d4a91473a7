//! The runtime's requests to the KFD: `ioctl`, exported, and the queues that are known by it.
//!
//! Everything that is no request about queues goes straight on to whoever comes next, as if nobody were between. A request
//! about queues is known by its number *and* by its descriptor (the type byte `K` is the console's as well), and made by
//! [`Registry::intercept`], under the lock that holds and releases take too (a destruction apart). In a forked child nobody looks: the parent's
//! registry is never used there, and a child that starts HIP itself begins with none.
//!
//! What the driver can do is measured on the first queue of each device, before its creator knows it, and only where more
//! than level 1 is asked for ([`ask`]). Each measurement may stop the queues of all processes for a moment, so where a server
//! knows from an earlier program what a hold costs, that is taken, and the first holds show whether it is right
//! (`XSCHED_KFD_PROBE`).

mod ability;
mod argument;

use crate::errno::Uncancelled;
use crate::{elf, errno, lifecycle, process};
use ability::Ability;
use argument::Argument;
use hal_kfd::kernel::Descriptor;
use hal_kfd::probe::{self, Choice, Cost, Facts, Refusal, Scheduler};
use hal_kfd::{Errno, Kernel, Kfd, Kind, Registry};
use hip_sys::kfd::{self, CreateQueue, Ioctl as _, Plain as _, debug};
use parking_lot::Mutex;
use protocol::codes::PreemptLevel;
use protocol::config::{KfdMechanism, KfdProbe};
use protocol::cost::{CostKey, CostOrigin, HoldCost};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_ulong, c_void};
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::time::Duration;

/// The longest that a hold or a release of an idle queue may take: beyond that something is wrong with the machine.
const LIMIT: Duration = Duration::from_millis(10);
/// The same of one that may have work, which is saved and restored.
const LIMIT_BUSY: Duration = Duration::from_millis(100);
/// How many queues are tried if one after the other is destroyed while it is measured.
const QUEUES_TRIED: usize = 3;
/// A failed request is made again after this.
pub(crate) const RETRY: Duration = Duration::from_millis(5);
/// How often, for somebody who must find nothing held. A driver that still fails then will not do better soon.
pub(crate) const TRIES: usize = 200;

/// The next `ioctl` in the order of look-up.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The queues of this process; null until the first one is made.
static CONTEXT: AtomicPtr<Context> = AtomicPtr::new(ptr::null_mut());
/// Held by whoever makes the context.
static MAKING: Mutex<()> = Mutex::new(());
/// The deepest level that anybody has asked for.
static ASKED: AtomicI32 = AtomicI32::new(PreemptLevel::Block.number());
/// The program has asked for a further context of its own (CREATE_PROCESS, ABI 1.19), whose queues have numbers of their own:
/// from then on nobody looks at queues, and level 1 is in force.
static FURTHER: AtomicBool = AtomicBool::new(false);
/// A server has told what it knows of the cost of holds, or is too old to know any: what it has not told is to be measured.
static TOLD: AtomicBool = AtomicBool::new(false);

type Real = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// `ioctl`, as libc declares it: its further argument, if there is one, is a word in the third register.
///
/// # Safety
///
/// That of libc's function.
#[cfg_attr(not(any(test, races)), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let command = request as u32;
    if kfd::request_number(command) == Some(kfd::CREATE_PROCESS) {
        further_context(descriptor);
    }
    if is_about_queues(command)
        && lifecycle::is_ready()
        && let Some(answer) = intercept(descriptor, command, argument)
    {
        return answer;
    }
    // SAFETY: as the caller promises.
    unsafe { pass_on(descriptor, request, argument) }
}

/// # Safety
///
/// That of libc's function.
unsafe fn pass_on(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let mut next = NEXT.load(Ordering::Acquire);
    if next.is_null() {
        next = elf::find_after_us(c"ioctl").map_or(ptr::null_mut(), ptr::NonNull::as_ptr);
        NEXT.store(next, Ordering::Release);
    }
    if next.is_null() {
        // SAFETY: as the caller promises; the kernel takes the same three words.
        return unsafe { libc::syscall(libc::SYS_ioctl, libc::c_long::from(descriptor), request, argument) }
            as c_int;
    }
    // SAFETY: a definition of `ioctl` in an object that is never unloaded has this type, its third argument apart, which
    // is a word in any case.
    let next = unsafe { std::mem::transmute::<*mut c_void, Real>(next) };
    // SAFETY: as the caller promises.
    unsafe { next(descriptor, request, argument) }
}

/// Whether a request may be one about the KFD's queues.
fn is_about_queues(command: u32) -> bool {
    matches!(
        kfd::request_number(command),
        Some(
            CreateQueue::NR
                | kfd::DestroyQueue::NR
                | kfd::UpdateQueue::NR
                | kfd::SetCuMask::NR
                | debug::RuntimeEnable::NR
        )
    )
}

/// Makes the request, if it is one of this process about its queues. The argument may be any.
#[cold]
fn intercept(descriptor: c_int, command: u32, argument: *mut c_void) -> Option<c_int> {
    let _whole = Uncancelled::begin();
    let before = errno::get();
    let answer = intercept_kept(descriptor, command, argument);
    match answer {
        Some(result) => Some(answer_of(result, before)),
        None => {
            errno::set(before);
            None
        }
    }
}

/// The same, whatever becomes of errno.
fn intercept_kept(descriptor: c_int, command: u32, argument: *mut c_void) -> Option<Result<i32, Errno>> {
    let first = kfd::request_number(command) == Some(CreateQueue::NR);
    if !context().map_or(first, |context| context.is_for(descriptor)) {
        return None;
    }
    // What the driver could not read, or not answer into, is the driver's to refuse.
    let mut bytes = Argument::copy(command, argument)?;
    let context = match context() {
        Some(context) => context,
        // Whatever comes before the first queue is not about one that could be held.
        None => make_context(descriptor, &CreateQueue::from_bytes(&bytes.copy))?,
    };
    let result = context.registry.intercept(&Descriptor(descriptor), command, &mut bytes.copy)?;
    bytes.give_back();
    if first && result.is_ok() {
        context.created(&CreateQueue::from_bytes(&bytes.copy));
    }
    Some(result)
}

/// As libc's function answers.
fn answer_of(result: Result<i32, Errno>, before: c_int) -> c_int {
    match result {
        Ok(value) => {
            errno::set(before);
            value
        }
        Err(error) => {
            errno::set(error.0);
            -1
        }
    }
}

/// A descriptor is to stand for a further context, if it is the device's. Whatever state this process is in.
#[cold]
fn further_context(descriptor: c_int) {
    let _whole = Uncancelled::begin();
    let before = errno::get();
    let ours = Kfd::recognise(descriptor).is_some();
    errno::set(before);
    if ours && !FURTHER.swap(true, Ordering::AcqRel) && lifecycle::is_ready() {
        if let Some(context) = known() {
            context.registry.abandon(Errno(libc::EOPNOTSUPP));
        }
        process::level_changed();
    }
}

/// The queues of this process. Only for calls that count as the program's own, and threads of ours.
pub(crate) fn context() -> Option<&'static Context> {
    known().filter(|_| !FURTHER.load(Ordering::Acquire))
}

fn known() -> Option<&'static Context> {
    // SAFETY: null, or leaked by `make_context`.
    unsafe { CONTEXT.load(Ordering::Acquire).as_ref() }
}

/// A process begins: the queues of the one that it was forked from are none of its own.
pub(crate) fn begin(level: u8) {
    CONTEXT.store(ptr::null_mut(), Ordering::Release);
    FURTHER.store(false, Ordering::Release);
    TOLD.store(false, Ordering::Release);
    ASKED.store(i32::from(level), Ordering::Release);
}

/// The same before anything was made.
pub(crate) fn set_asked(level: u8) {
    ASKED.store(i32::from(level), Ordering::Release);
}

/// The end of a process in which nothing is scheduled: what was held by name is released.
pub(crate) fn end() {
    let Some(context) = context() else { return };
    for _ in 0..TRIES {
        if context.registry.shut_down().unsettled == 0 || context.registry.given_up().is_some() {
            return;
        }
        std::thread::sleep(RETRY);
    }
}

/// The deepest level that anybody has asked for.
fn asked() -> PreemptLevel {
    PreemptLevel::from_number(i64::from(ASKED.load(Ordering::Acquire))).unwrap_or_default()
}

/// Somebody asks for a level. Measures what has not been measured yet, on queues that are idle. False: it is known that
/// level 1 stays in force.
pub(crate) fn ask(level: PreemptLevel) -> bool {
    ASKED.fetch_max(level.number(), Ordering::AcqRel);
    if level == PreemptLevel::Block {
        return true;
    }
    if process::base().is_none_or(|base| base.config().kfd_mechanism == KfdMechanism::Off) {
        return false;
    }
    context().is_none_or(|context| {
        context.measure_all();
        !context.is_refused()
    })
}

/// A server has come, and its page shows what it knows; or none is waited for any more. What was left unmeasured until now is
/// known or measured after this.
pub(crate) fn stop_waiting() {
    TOLD.store(true, Ordering::Release);
    if asked() != PreemptLevel::Block
        && let Some(context) = context()
    {
        context.measure_all();
    }
}

/// What this process has found out about the cost of its holds by itself, for a server: the times, or that relying on
/// what was told led to a failure.
pub(crate) fn evidence() -> Vec<(CostKey, Option<HoldCost>)> {
    let Some(context) = context() else { return Vec::new() };
    let devices = context.devices.lock();
    devices.values().flatten().filter_map(Ability::evidence).collect()
}

/// The level in force, and by what, or why it is not the one that is asked for.
pub(crate) fn in_force() -> (PreemptLevel, String) {
    if asked() == PreemptLevel::Block {
        return (PreemptLevel::Block, String::new());
    }
    match context() {
        Some(context) => match context.in_force() {
            Ok(found) => found,
            Err(why) => (PreemptLevel::Block, why),
        },
        None if process::base().is_some_and(|base| base.config().kfd_mechanism == KfdMechanism::Off) => {
            (PreemptLevel::Block, Refusal::Off.to_string())
        }
        None if FURTHER.load(Ordering::Acquire) => {
            let why = "the program has further contexts (CREATE_PROCESS), whose queues cannot be told from the others";
            (PreemptLevel::Block, why.to_owned())
        }
        None => (PreemptLevel::Block, no_queues(Kfd::exists(), process::has_launched()).to_owned()),
    }
}

/// Why no queue is known.
fn no_queues(driver: bool, launched: bool) -> &'static str {
    match (driver, launched) {
        (false, _) => "this machine has no KFD (/dev/kfd), by which queues are taken off the hardware",
        (true, true) => "the program's hardware queues are made where the library does not see it",
        (true, false) => "the program has no hardware queue yet",
    }
}

/// Says once that a deeper level was asked for and cannot be had, where that is so because no queue is known.
pub(crate) fn say_if_unseen() {
    static SAID: AtomicBool = AtomicBool::new(false);
    let (driver, launched) = (Kfd::exists(), process::has_launched());
    let off = process::base().is_none_or(|base| base.config().kfd_mechanism == KfdMechanism::Off);
    if asked() == PreemptLevel::Block || context().is_some() || off || driver && !launched {
        return;
    }
    if !SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            "level {} is asked for and level 1 in force: {}",
            asked().number(),
            no_queues(driver, launched)
        );
    }
}

#[cold]
fn make_context(descriptor: c_int, creation: &CreateQueue) -> Option<&'static Context> {
    let _making = MAKING.lock();
    if let Some(context) = context() {
        return context.is_for(descriptor).then_some(context);
    }
    if FURTHER.load(Ordering::Acquire) {
        return None;
    }
    let choice = choice(process::base()?.config().kfd_mechanism);
    let kernel = Arc::new(Kfd::recognise(descriptor)?);
    let mut never = None;
    let kind = match choice {
        Choice::Off => return None,
        // Only this mechanism has to be chosen before there is a queue.
        Choice::Only(Kind::DebugTrap) => match facts(&*kernel, creation.gpu_id)
            .and_then(|facts| probe::choose(choice, &facts, drains(&facts)))
        {
            Ok(kind) => kind,
            Err(refusal) => {
                never = Some(refusal);
                Kind::UpdateQueue
            }
        },
        _ => Kind::UpdateQueue,
    };
    let registry = Registry::new(kernel.clone(), kind);
    let (devices, measuring) = (Mutex::new(BTreeMap::new()), Mutex::new(()));
    let context = Box::leak(Box::new(Context { registry, kernel, choice, never, devices, measuring }));
    CONTEXT.store(context, Ordering::Release);
    // Whoever waits for queues when the process ends was there before them.
    lifecycle::handle_exit();
    Some(context)
}

fn choice(mechanism: KfdMechanism) -> Choice {
    match mechanism {
        KfdMechanism::Auto => Choice::Auto,
        KfdMechanism::UpdateQueue => Choice::Only(Kind::UpdateQueue),
        KfdMechanism::DebugTrap => Choice::Only(Kind::DebugTrap),
        KfdMechanism::Off => Choice::Off,
    }
}

fn facts(kernel: &dyn Kernel, gpu_id: u32) -> Result<Facts, Refusal> {
    Facts::read(kernel, Path::new("/sys"), gpu_id, Kfd::is_simulated()).map_err(Refusal::Failed)
}

/// Whether a hold may wait for running kernels: on a simulated device, if exactly that is asked for.
fn drains(facts: &Facts) -> bool {
    facts.simulated && asked() == PreemptLevel::Deactivate
}

/// The queues of this process, and what holding them takes.
pub(crate) struct Context {
    pub(crate) registry: Registry,
    kernel: Arc<Kfd>,
    choice: Choice,
    /// Why nothing is ever held, if that was known from the beginning.
    never: Option<Refusal>,
    /// By the devices' KFD ids.
    devices: Mutex<BTreeMap<u32, Result<Ability, Refusal>>>,
    /// Held by whoever measures.
    measuring: Mutex<()>,
}

impl Context {
    /// Whether a descriptor of the program's is the device that the queues are of.
    fn is_for(&self, descriptor: c_int) -> bool {
        self.kernel.is_same(descriptor)
    }

    /// A queue has come into being, and its creator does not know it yet: it is idle.
    fn created(&self, creation: &CreateQueue) {
        let queues = self.registry.queues();
        let Some(queue) = queues.iter().find(|queue| queue.id == creation.queue_id) else { return };
        if !queue.is_compute() {
            return;
        }
        if asked() != PreemptLevel::Block && !queue.arbiter.held() {
            self.measure(queue.gpu_id, queue.id, true, LIMIT);
        }
        process::level_changed();
    }

    /// Measures what a hold costs, once for a device. A queue that may have work only where running waves are saved.
    fn measure(&self, gpu_id: u32, queue: u32, idle: bool, limit: Duration) {
        let _measuring = self.measuring.lock();
        if self.never.is_some() || self.devices.lock().contains_key(&gpu_id) {
            return;
        }
        let facts = facts(&*self.kernel, gpu_id);
        let saves = facts.is_ok_and(|facts| facts.cwsr == Some(true));
        if !idle && !saves && facts.is_ok() {
            return;
        }
        let serial = self.registry.serial(queue);
        let found = facts.and_then(|facts| self.find_out(facts, gpu_id, queue, limit, saves));
        // A server is waited for.
        let Some(ability) = found.transpose() else { return };
        self.settle();
        if ability.is_err() && (serial.is_none() || self.registry.serial(queue) != serial) {
            // It was destroyed meanwhile: that says nothing of the device.
            return;
        }
        match &ability {
            Ok(ability) => tracing::debug!(
                gpu_id,
                hold_us = ability.cost.hold.as_micros(),
                release_us = ability.cost.release.as_micros(),
                "holds by {} ({}), cost {}",
                self.registry.mechanism().name(),
                ability.facts.scheduler,
                ability.origin.name().unwrap_or("unknown")
            ),
            Err(refusal) => {
                tracing::warn!(
                    "GPU {gpu_id}: level {} is asked for and level 1 in force: {refusal}",
                    asked()
                );
            }
        }
        self.devices.lock().insert(gpu_id, ability);
    }

    /// What a hold costs, from whoever knows it. Nothing if that shall be asked again when a server has come.
    fn find_out(
        &self,
        facts: Facts,
        gpu_id: u32,
        queue: u32,
        limit: Duration,
        saves: bool,
    ) -> Result<Option<Ability>, Refusal> {
        let kind = probe::choose(self.choice, &facts, drains(&facts))?;
        let key = probe::key(&self.kernel, Path::new("/sys"), &facts, gpu_id, kind);
        let wish = process::base().map_or(KfdProbe::Always, |base| base.config().kfd_probe);
        let told = key.filter(|_| wish != KfdProbe::Always).and_then(process::cost_from_server);
        let (cost, origin) = match (told, wish) {
            (Some(told), _) => {
                let [hold, release] = [told.hold_ns(), told.release_ns()].map(Duration::from_nanos);
                (Cost { hold, release }, CostOrigin::Taken)
            }
            // Until then nothing is held. A queue that may have work by then can be measured only where its waves are saved.
            (None, KfdProbe::Cached | KfdProbe::Never)
                if saves && !TOLD.load(Ordering::Acquire) && process::expects_server() =>
            {
                return Ok(None);
            }
            (None, KfdProbe::Never) => (Cost::default(), CostOrigin::Unmeasured),
            (None, _) => {
                let cost = probe::measure(&self.registry, &*self.kernel, queue, limit, saves)?;
                (cost, CostOrigin::Measured)
            }
        };
        Ok(Some(Ability::new(facts, cost, origin, key)))
    }

    /// A hold of a device's queues took so long; or it failed, and what was known of its cost is not to be relied upon. False: this first
    /// hold shows that the driver saves nothing, and level 1 is in force from now on.
    pub(crate) fn saw_hold(&self, gpu_id: u32, took: Option<Duration>) -> bool {
        let mut devices = self.devices.lock();
        let Some(Ok(ability)) = devices.get_mut(&gpu_id) else { return true };
        ability.hold = took;
        ability.failed |= took.is_none();
        let unchecked = ability.trial.is_some() && ability.facts.cwsr == Some(true);
        if took.is_none() || !unchecked {
            return true;
        }
        // A measurement would have asked.
        let held = self.registry.queues().into_iter().find(|queue| {
            queue.gpu_id == gpu_id && queue.is_compute() && queue.arbiter.held() && queue.save_area != 0
        });
        let saves = held.map(|queue| probe::saves(&self.registry, &*self.kernel, queue.id));
        let Some(Err(refusal @ Refusal::NoCwsr)) = saves else { return true };
        tracing::warn!("GPU {gpu_id}: level 1 is in force from now on: {refusal}");
        devices.insert(gpu_id, Err(refusal));
        false
    }

    /// The release behind a hold took so long. True: what is known of the cost is something else now.
    pub(crate) fn saw_release(&self, gpu_id: u32, release: Duration) -> bool {
        let mut devices = self.devices.lock();
        let Some(Ok(ability)) = devices.get_mut(&gpu_id) else { return false };
        ability.hold.take().is_some_and(|hold| ability.learn(Cost { hold, release }))
    }

    /// Where the cost is from; of several devices, what is known the least. Looked at with each suspension: makes no allocation.
    pub(crate) fn origin(&self) -> CostOrigin {
        const LEAST_FIRST: [CostOrigin; 6] = [
            CostOrigin::Unmeasured,
            CostOrigin::Taken,
            CostOrigin::Learnt,
            CostOrigin::Corrected,
            CostOrigin::Confirmed,
            CostOrigin::Measured,
        ];
        let devices = self.devices.lock();
        if devices.values().any(Result::is_err) {
            return CostOrigin::None;
        }
        let is_there =
            |origin: &CostOrigin| devices.values().flatten().any(|ability| ability.origin == *origin);
        LEAST_FIRST.into_iter().find(is_there).unwrap_or_default()
    }

    /// Measures devices that have not been.
    fn measure_all(&self) {
        // The queue that is measured may be destroyed meanwhile: then another one is.
        for _ in 0..QUEUES_TRIED {
            // SAFETY: this is the process whose queues these are, and the runtime gives the memory of a queue's indices back
            // after it has destroyed the queue, which takes the registry's lock.
            let quietest = unsafe { self.registry.quietest() };
            for (gpu_id, (queue, idle)) in quietest {
                // One that is idle now may be used while it is measured.
                self.measure(gpu_id, queue, idle, LIMIT_BUSY);
            }
            let known = self.devices.lock();
            if self.registry.devices().iter().all(|gpu_id| known.contains_key(gpu_id)) {
                break;
            }
        }
        process::level_changed();
    }

    /// Sees to it that what was released is back, also where the driver fails at first.
    pub(crate) fn settle(&self) {
        for _ in 0..TRIES {
            if self.registry.settle().unsettled == 0 {
                return;
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Whether it is known that nothing is ever held.
    fn is_refused(&self) -> bool {
        self.never.is_some()
            || self.registry.given_up().is_some()
            || self.devices.lock().values().any(Result::is_err)
    }

    /// What was found out about the devices on which there are queues: all or nothing.
    fn abilities(&self) -> Result<Vec<Ability>, String> {
        if let Some(refusal) = self.never {
            return Err(refusal.to_string());
        }
        if let Some(errno) = self.registry.given_up() {
            return Err(match errno.0 {
                libc::ETIME => {
                    format!("the driver did not get a queue off in time ({errno}): level 1 for good")
                }
                _ => format!("the driver has reset queues of this program ({errno}): level 1 for good"),
            });
        }
        let devices = self.registry.devices();
        let known = self.devices.lock();
        if devices.is_empty() {
            return Err("the program has no hardware queue yet".to_owned());
        }
        devices
            .iter()
            .map(|gpu_id| match known.get(gpu_id) {
                Some(Ok(ability)) => Ok(*ability),
                Some(Err(refusal)) => Err(refusal.to_string()),
                None if !TOLD.load(Ordering::Acquire) => Err(format!(
                    "what a hold costs on GPU {gpu_id} is not known before an xserver has answered"
                )),
                None => Err(format!("what a hold costs on GPU {gpu_id} has not been measured yet")),
            })
            .collect()
    }

    /// The level in force and by what.
    ///
    /// # Errors
    /// Why it is level 1.
    fn in_force(&self) -> Result<(PreemptLevel, String), String> {
        let abilities = self.abilities()?;
        // What saves waves interrupts them, whatever was asked for.
        let saves = abilities.iter().all(|ability| ability.facts.cwsr == Some(true));
        let level = if saves { PreemptLevel::Interrupt } else { PreemptLevel::Deactivate };
        Ok((level, self.registry.mechanism().name().to_owned()))
    }

    /// What the probe measured for all devices together, and whether an update stops everybody's queues for a moment;
    /// nothing while level 1 is in force.
    pub(crate) fn cost(&self) -> Option<(Cost, bool)> {
        let abilities = self.abilities().ok()?;
        let mut sum = Cost::default();
        for ability in &abilities {
            sum.hold += ability.cost.hold;
            sum.release += ability.cost.release;
        }
        Some((sum, abilities.iter().any(|ability| ability.facts.scheduler == Scheduler::Hws)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    /// By the exported function.
    fn call(descriptor: c_int, request: u32, argument: *mut c_void) -> c_int {
        // SAFETY: each caller passes what its request takes.
        unsafe { ioctl(descriptor, c_ulong::from(request), argument) }
    }

    #[test]
    fn what_is_not_about_queues_is_passed_on_with_its_errno() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"12345").unwrap();
        let mut waiting: c_int = 0;
        errno::set(0);
        let asked = call(reader.as_raw_fd(), libc::FIONREAD as u32, ptr::from_mut(&mut waiting).cast());
        assert_eq!((asked, waiting, errno::get()), (0, 5, 0));
        assert_eq!((call(-1, libc::FIONREAD as u32, ptr::null_mut()), errno::get()), (-1, libc::EBADF));
    }

    #[test]
    fn the_reasons_for_no_queue_are_told_apart() {
        assert!(no_queues(false, true).contains("/dev/kfd"));
        assert_ne!(no_queues(true, true), no_queues(true, false));
    }

    #[test]
    fn a_request_of_the_same_number_for_another_device_is_passed_on() {
        assert!(lifecycle::starts_for(hip_sys::table::Class::Resolve));
        let null = std::fs::File::open("/dev/null").unwrap();
        for command in [CreateQueue::COMMAND, kfd::DestroyQueue::COMMAND, kfd::UpdateQueue::COMMAND] {
            assert!(is_about_queues(command));
            let mut argument = [0u8; 256];
            let answer = call(null.as_raw_fd(), command, argument.as_mut_ptr().cast());
            assert_eq!((answer, errno::get()), (-1, libc::ENOTTY));
            // A null argument is the kernel's to refuse.
            assert_eq!(call(null.as_raw_fd(), command, ptr::null_mut()), -1);
        }
        assert!(context().is_none());
        // The console's, with the same letter.
        assert!(!is_about_queues(0x4b46));
    }
}
