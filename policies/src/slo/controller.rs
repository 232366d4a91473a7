//! The controller of a device: how much of it best effort gets.

use super::window::rank;
use crate::times::nanos;
use protocol::ids::DeviceId;
use protocol::time::Time;
use std::time::Duration;

/// The controller of one device.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    pub device: DeviceId,
    /// The part of best effort. From 0 to 1 it is a share of the time in which no critical entity has work.
    /// Above 1 best effort has all of that time, and the part above 1 of each critical request, as a share of
    /// the target.
    output: f64,
    /// Requests since the last cut, or since the beginning.
    since_cut: usize,
    /// The number of cuts.
    pub cuts: u64,
    /// The last time at which a critical entity had work.
    pub heard: Option<Time>,
    /// The 99th percentile and the target of the entity that was last found above its target.
    pub blame: (Duration, Duration),
}

/// The policy's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Settings {
    /// The step up with each request.
    pub step: f64,
    /// The smallest output, 0 to 1.
    pub least: f64,
    /// The largest output, 1 to 2.
    pub most: f64,
    /// The number of requests in a window.
    pub window: usize,
    /// The period of the duty cycle.
    pub period: Duration,
    /// The time without critical work after which best effort runs freely.
    pub quiet: Duration,
}

/// The state of the target after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// Too many requests have taken too long.
    Violated,
    /// The target is kept with room.
    Room,
    /// The target is kept.
    Tight,
}

/// The change of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Kept,
    Raised,
    Cut,
    /// It should have been cut, but is at its smallest.
    Bottom,
}

impl Controller {
    /// The output that is neither more nor less than under HPF.
    const NEUTRAL: f64 = 1.0;
    /// The factor by which the part beside critical work is cut.
    const CUT_BESIDE: f64 = 0.7;
    /// The factor by which the share of the idle time is cut.
    const CUT_IDLE: f64 = 0.5;
    /// A smaller part beside critical work counts as none.
    const LEAST_BESIDE: f64 = 0.01;
    /// A smaller share of the idle time counts as none: switching would cost more than it gains.
    const LEAST_IDLE: f64 = 0.05;

    pub fn new(device: DeviceId) -> Self {
        // No cut has to be made up for at the beginning.
        let since_cut = usize::MAX;
        Self { device, output: Self::NEUTRAL, since_cut, cuts: 0, heard: None, blame: Default::default() }
    }

    /// Returns the part of best effort, 0 to 2.
    pub fn output(&self) -> f64 {
        self.output
    }

    /// Takes a step at the end of a critical request.
    pub fn step(&mut self, finding: Finding, settings: &Settings) -> Step {
        self.since_cut = self.since_cut.saturating_add(1);
        // After a cut so many requests pass that those that led to it are no more than 1 % of all.
        let settled = self.since_cut > 100 * rank(settings.window);
        match finding {
            Finding::Violated => {
                (self.since_cut, self.cuts) = (0, self.cuts + 1);
                let least = settings.least;
                if self.output <= least {
                    self.output = least;
                    return Step::Bottom;
                }
                let beside = (self.output - Self::NEUTRAL) * Self::CUT_BESIDE;
                self.output = match self.output {
                    output if output > Self::NEUTRAL && beside >= Self::LEAST_BESIDE => {
                        Self::NEUTRAL + beside
                    }
                    output if output > Self::NEUTRAL => Self::NEUTRAL,
                    output if output * Self::CUT_IDLE >= Self::LEAST_IDLE => output * Self::CUT_IDLE,
                    _ => 0.0,
                };
                self.output = self.output.max(least);
                Step::Cut
            }
            Finding::Room if settled && self.output < settings.most => {
                self.output = (self.output + settings.step).max(settings.least).min(settings.most);
                Step::Raised
            }
            Finding::Room | Finding::Tight => Step::Kept,
        }
    }

    /// Returns the time for which best effort may run beside a request with this target, from its beginning.
    pub fn beside(&self, target: Duration) -> Duration {
        target.mul_f64((self.output - Self::NEUTRAL).clamp(0.0, 1.0))
    }

    /// Returns true if best effort may run while no critical entity has work, and the time until which that
    /// holds.
    pub fn idle(&self, now: Time, settings: &Settings) -> (bool, Option<Time>) {
        let quiet = self.heard.map(|heard| heard.after(settings.quiet)).filter(|quiet| *quiet > now);
        let Some(quiet) = quiet.filter(|_| self.output < Self::NEUTRAL) else { return (true, None) };
        if self.output < Self::LEAST_IDLE {
            return (false, Some(quiet));
        }
        // The cycle follows the clock, so the number of calls does not matter.
        let period = nanos(settings.period);
        let (begin, phase) = (now.0 - now.0 % period, now.0 % period);
        let on = (period as f64 * self.output) as u64;
        let runs = phase < on;
        let end = begin.saturating_add(if runs { on } else { period });
        (runs, Some(quiet.min(Time(end))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        step: 0.002,
        least: 0.0,
        most: 2.0,
        window: 200,
        period: Duration::from_millis(4),
        quiet: Duration::from_secs(1),
    };

    fn after(findings: &[(Finding, usize)], settings: &Settings) -> (f64, Step) {
        let mut controller = Controller::new(DeviceId(1));
        let mut step = Step::Kept;
        for (finding, times) in findings {
            (0..*times).for_each(|_| step = controller.step(*finding, settings));
        }
        (controller.output(), step)
    }

    #[test]
    fn output_rises_slowly_and_falls_fast() {
        use Finding::{Room, Tight, Violated};
        let (output, step) = after(&[(Room, 100)], &SETTINGS);
        assert!((output - 1.2).abs() < 1e-9 && step == Step::Raised);
        assert_eq!(after(&[(Room, 100), (Tight, 1_000)], &SETTINGS), (output, Step::Kept));
        let (output, step) = after(&[(Room, 100), (Violated, 1), (Room, 300)], &SETTINGS);
        assert!((output - 1.14).abs() < 1e-9 && step == Step::Kept, "so long it waits after a cut");
        let (output, step) = after(&[(Room, 100), (Violated, 1), (Room, 301)], &SETTINGS);
        assert!((output - 1.142).abs() < 1e-9 && step == Step::Raised);
        assert_eq!(after(&[(Room, 10_000)], &SETTINGS), (2.0, Step::Kept));
        let most = Settings { most: 1.5, ..SETTINGS };
        assert_eq!(after(&[(Room, 10_000)], &most), (1.5, Step::Kept));
        // A small part beside critical work goes at once, then the idle time.
        assert_eq!(after(&[(Room, 5), (Violated, 1)], &SETTINGS), (1.0, Step::Cut));
        assert_eq!(after(&[(Violated, 1)], &SETTINGS), (0.5, Step::Cut));
        assert_eq!(after(&[(Violated, 5)], &SETTINGS), (0.0, Step::Cut));
        assert_eq!(after(&[(Violated, 6)], &SETTINGS), (0.0, Step::Bottom));
        let least = Settings { least: 0.2, ..SETTINGS };
        assert_eq!(after(&[(Violated, 3)], &least), (0.2, Step::Cut));
        assert_eq!(after(&[(Violated, 4)], &least), (0.2, Step::Bottom));
    }

    #[test]
    fn idle_time_is_divided_by_the_clock() {
        let mut controller = Controller::new(DeviceId(1));
        let at = |micros: u64| Time(1_000_000_000 + micros * 1_000);
        assert_eq!(controller.idle(at(0), &SETTINGS), (true, None));
        (0..2).for_each(|_| _ = controller.step(Finding::Violated, &SETTINGS));
        assert_eq!(controller.idle(at(0), &SETTINGS), (true, None), "no critical entity was ever there");
        controller.heard = Some(at(0));
        assert_eq!(controller.idle(at(0), &SETTINGS), (true, Some(at(1_000))));
        assert_eq!(controller.idle(at(999), &SETTINGS), (true, Some(at(1_000))));
        assert_eq!(controller.idle(at(1_000), &SETTINGS), (false, Some(at(4_000))));
        assert_eq!(
            controller.idle(at(999_500), &SETTINGS),
            (false, Some(at(1_000_000))),
            "it ends with the quiet"
        );
        assert_eq!(controller.idle(at(1_000_000), &SETTINGS), (true, None));
        (0..3).for_each(|_| _ = controller.step(Finding::Violated, &SETTINGS));
        assert_eq!(controller.idle(at(0), &SETTINGS), (false, Some(at(1_000_000))));
    }
}
