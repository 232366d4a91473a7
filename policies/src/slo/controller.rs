//! How much of a device best effort gets.

use super::window::rank;
use crate::times::nanos;
use protocol::ids::DeviceId;
use protocol::time::Time;
use std::time::Duration;

/// The controller of one device.
#[derive(Debug, Clone)]
pub(super) struct Controller {
    pub device: DeviceId,
    /// What best effort gets: 0 to 1 is a share of the time in which no critical entity has work; above 1 it has all of that,
    /// and of each critical request the part beyond 1, as a share of the target.
    output: f64,
    /// Requests since it was cut, or since the beginning.
    since_cut: usize,
    /// How often it was cut.
    pub cuts: u64,
    /// When a critical entity had work last.
    pub heard: Option<Time>,
    /// The 99th percentile and the target of the entity that was last found above it.
    pub blame: (Duration, Duration),
}

/// What is set by the policy's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Settings {
    /// How much is added for each request.
    pub step: f64,
    /// The least output, 0 to 1.
    pub least: f64,
    /// The most output, 1 to 2.
    pub most: f64,
    /// How many requests a window has.
    pub window: usize,
    /// The period of the duty cycle.
    pub period: Duration,
    /// After so long without critical work best effort runs freely.
    pub quiet: Duration,
}

/// What a request says of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// Too many have taken too long.
    Violated,
    /// It is kept with room.
    Room,
    /// It is kept.
    Tight,
}

/// What became of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Kept,
    Raised,
    Cut,
    /// It should have been cut and is at its least.
    Bottom,
}

impl Controller {
    /// What is neither more nor less than under HPF.
    const NEUTRAL: f64 = 1.0;
    /// To so much the part beside critical work is cut.
    const CUT_BESIDE: f64 = 0.7;
    /// To so much the share of the idle time is cut.
    const CUT_IDLE: f64 = 0.5;
    /// Less beside critical work is none.
    const LEAST_BESIDE: f64 = 0.01;
    /// Less of the idle time is none: switching would cost more than is won.
    const LEAST_IDLE: f64 = 0.05;

    pub fn new(device: DeviceId) -> Self {
        // There was no cut that had to be made up for.
        let since_cut = usize::MAX;
        Self { device, output: Self::NEUTRAL, since_cut, cuts: 0, heard: None, blame: Default::default() }
    }

    /// What best effort gets, 0 to 2.
    pub fn output(&self) -> f64 {
        self.output
    }

    /// A critical request is done.
    pub fn step(&mut self, finding: Finding, settings: &Settings) -> Step {
        self.since_cut = self.since_cut.saturating_add(1);
        // After a cut so many requests pass that those which led to it are no more than 1 % of all.
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

    /// For how long best effort may run beside a request with this target, from its beginning.
    pub fn beside(&self, target: Duration) -> Duration {
        target.mul_f64((self.output - Self::NEUTRAL).clamp(0.0, 1.0))
    }

    /// Whether best effort may run while no critical entity has work, and until when that holds.
    pub fn idle(&self, now: Time, settings: &Settings) -> (bool, Option<Time>) {
        let quiet = self.heard.map(|heard| heard.after(settings.quiet)).filter(|quiet| *quiet > now);
        let Some(quiet) = quiet.filter(|_| self.output < Self::NEUTRAL) else { return (true, None) };
        if self.output < Self::LEAST_IDLE {
            return (false, Some(quiet));
        }
        // By the clock, so that it does not matter how often somebody asks.
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
    fn it_rises_slowly_and_falls_fast() {
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
