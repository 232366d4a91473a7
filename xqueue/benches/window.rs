//! The utilisation that the adaptive window reaches: equal kernels, one length after the other, on a
//! simulated hardware queue that executes them in order and in real time. Prints the sum of the kernel times
//! over the time that the program took, and the queries of markers for each kernel.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use xqueue::{
    CommandSpec, Config, CostKey, DeviceId, Direct, Domain, HwCommand, HwDevice, HwError, HwQueue, HwResult,
    Marker, NullObserver, QueueConfig,
};

struct State {
    /// The time at which everything launched will have completed.
    end: Instant,
    marks: VecDeque<(u64, Instant)>,
    recorded: u64,
    queries: u64,
}

struct Timed(Mutex<State>);

impl Timed {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }

    fn execute(&self, takes: Duration) -> HwResult {
        let mut state = self.state();
        state.end = state.end.max(Instant::now()) + takes;
        Ok(())
    }
}

impl HwDevice for Timed {
    fn enter(&self) {
        // A real device sets the timer slack with prctl, so that short sleeps end in time.
        if let Ok(task) = std::fs::read_link("/proc/thread-self")
            && let Some(thread) = task.file_name()
        {
            let file = std::path::Path::new("/proc").join(thread).join("timerslack_ns");
            let _ = std::fs::write(file, "1");
        }
    }
}

impl HwQueue for Timed {
    fn record_marker(&self) -> Result<Marker, HwError> {
        let mut state = self.state();
        state.recorded += 1;
        let mark = (state.recorded, state.end);
        state.marks.push_back(mark);
        Ok(Marker(mark.0))
    }
    fn query_marker(&self, mark: Marker) -> Result<bool, HwError> {
        let mut state = self.state();
        state.queries += 1;
        Ok(state.marks.iter().any(|(id, end)| *id == mark.0 && *end <= Instant::now()))
    }
    fn release_marker(&self, mark: Marker) {
        self.state().marks.retain(|(id, _)| *id != mark.0);
    }
    fn synchronize(&self) -> HwResult {
        let end = self.state().end;
        thread::sleep(end.saturating_duration_since(Instant::now()));
        Ok(())
    }
}

struct Kernel(Arc<Timed>, Duration);

impl HwCommand for Kernel {
    fn launch(&mut self, _: &dyn HwQueue) -> HwResult {
        self.0.execute(self.1)
    }
    fn name(&self) -> &str {
        "kernel"
    }
}

fn main() {
    println!("kernel_us   busy queries");
    for micros in [10, 30, 50, 90, 150, 250, 400, 1000, 3000] {
        let domain = Domain::new(Config::default(), Arc::new(NullObserver));
        let hw = Arc::new(Timed(Mutex::new(State {
            end: Instant::now(),
            marks: VecDeque::new(),
            recorded: 0,
            queries: 0,
        })));
        domain.add_device(DeviceId(0), hw.clone());
        let queue = domain
            .create_queue(DeviceId(0), hw.clone(), QueueConfig::default())
            .expect("the device is known");
        let takes = Duration::from_micros(micros);
        let count = u32::try_from((300_000 / micros).max(100)).expect("small");
        let spec = CommandSpec::new(CostKey(micros));
        let begun = Instant::now();
        for _ in 0..count {
            if queue.try_direct(&spec, || hw.execute(takes)) == Direct::NotNow {
                queue.submit(&spec, Box::new(Kernel(hw.clone(), takes))).expect("the queue is open");
            }
        }
        queue.wait_all().expect("nothing fails");
        let busy = (takes * count).as_secs_f64() / begun.elapsed().as_secs_f64();
        let queries = hw.state().queries as f64 / f64::from(count);
        println!("{micros:9} {busy:6.3} {queries:7.1}");
    }
}
