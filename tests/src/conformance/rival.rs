//! An urgent program beside the compared one, under a server, on the same simulated device.

use std::time::Duration;

use super::modes::Beside;
use crate::daemon::Daemon;
use crate::program::Program;
use crate::{Gpu, Run, Running, Runtime};

/// A server, and a program of high priority that launches at intervals. Both end when it is dropped.
#[derive(Debug)]
pub(crate) struct Rival {
    running: Running,
    server: Daemon,
    gpu: String,
}

impl Rival {
    /// Starts both on a device with these options of `gpu-sim run`, and waits until the rival has work.
    pub(crate) fn start(
        gpu: &Gpu,
        sim: &[String],
        beside: Beside,
        runtime: &dyn Runtime,
    ) -> Result<Rival, String> {
        let server = Daemon::start_with(beside.parameters, &[]);
        let level = beside.level;
        // Each mode has a device of its own.
        let share = if beside.parameters.is_empty() { "" } else { "-share" };
        let name = format!("{}-rival-{level}{share}", gpu.name());
        let run = gpu.directed(&Program::find("rival")?, runtime)?;
        let run = Run { name: Some(name.clone()), args: Vec::new(), sim: sim.to_vec(), ..run };
        let mut running = run.mode(crate::Mode::Shimmed { env: settings(&server, "10", level) }).start();
        match running.try_line()?.as_str() {
            "ready" => Ok(Rival { running, server, gpu: name }),
            other => Err(format!("the rival said {other:?} instead of \"ready\"")),
        }
    }

    /// The same run beside it, and what it needs in its environment.
    pub(super) fn beside(&self, run: Run, level: &str) -> (Run, Vec<(String, String)>) {
        (self.device(run), settings(&self.server, "-10", level))
    }

    /// Puts a run on the device of the rival.
    pub(crate) fn device(&self, run: Run) -> Run {
        Run { name: Some(self.gpu.clone()), ..run }
    }

    /// Lets it run for this long from now: as long as the program beside it may take.
    pub(crate) fn limit(mut self, limit: Duration) -> Rival {
        self.running.extend(limit);
        self
    }

    /// The server of the rival and of the program beside it.
    pub(crate) fn server(&self) -> &Daemon {
        &self.server
    }

    /// Lets it end, which it does with the right memory.
    pub(crate) fn finish(self) -> Result<(), String> {
        let finished = self.running.try_finish().map_err(|reason| format!("the rival: {reason}"))?;
        if finished.code == 0 && finished.stdout.lines().last() == Some("ok") {
            return Ok(());
        }
        Err(format!(
            "the rival ended with code {}\nits stdout:\n{}its stderr:\n{}",
            finished.code, finished.stdout, finished.stderr
        ))
    }
}

fn settings(server: &Daemon, priority: &str, level: &str) -> Vec<(String, String)> {
    let socket = server.socket().display().to_string();
    let all = [
        ("XSCHED_AUTO_XQUEUE", "ON"),
        ("XSCHED_SCHEDULER", "GLB"),
        ("XSCHED_SOCKET", &socket),
        ("XSCHED_AUTO_XQUEUE_PRIORITY", priority),
        ("XSCHED_AUTO_XQUEUE_LEVEL", level),
    ];
    all.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}
