//! Failures on request: ioctls that fail at random, by a seed.

use std::collections::HashMap;

use hip_sys::kfd::{self, Ioctl as _};

/// The requests that fail by default: those that an eviction needs. A runtime survives their failures, unlike
/// most others.
const USUAL: &[u8] =
    &[kfd::UpdateQueue::NR, kfd::SetCuMask::NR, kfd::debug::RuntimeEnable::NR, kfd::debug::DbgTrap::NR];
/// The default rate: one in this number of requests fails.
const ONE_IN: u64 = 16;

/// The failure of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error.
    pub errno: i32,
    /// True if the call takes effect nevertheless.
    pub after: bool,
}

/// The calls that fail.
#[derive(Debug)]
pub struct Faults {
    state: u64,
    one_in: u64,
    requests: Vec<u8>,
    /// The number of failures before a repeated call succeeds.
    row: u64,
    /// The number of failures still to come, by process and request; 0 if the next call succeeds.
    struck: HashMap<(i32, u8), u64>,
    /// The number of calls that have failed.
    pub count: u64,
}

impl Faults {
    /// Parses `SEED[:ONE_IN[:REQUEST,...[:ROW]]]`; requests are the kernel's names in lower case.
    ///
    /// # Errors
    /// The reason why the text is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(4, ':');
        let number = |part: Option<&str>, or: u64| match part {
            None | Some("") => Ok(or),
            Some(text) => text.parse::<u64>().map_err(|_| format!("{text:?} is not a number")),
        };
        let seed = number(parts.next(), 0)?;
        let one_in = number(parts.next(), ONE_IN)?;
        if one_in == 0 {
            return Err("ONE_IN must be at least 1".into());
        }
        let requests = match parts.next() {
            None | Some("") => USUAL.to_vec(),
            Some(names) => names
                .split(',')
                .map(|name| {
                    (0..=u8::MAX)
                        .find(|nr| kfd::request_name(*nr) == Some(name))
                        .ok_or_else(|| format!("{name:?} is no request of the driver"))
                })
                .collect::<Result<_, _>>()?,
        };
        let row = number(parts.next(), 1)?;
        if row == 0 {
            return Err("ROW must be at least 1".into());
        }
        Ok(Self { state: seed, one_in, requests, row, struck: HashMap::new(), count: 0 })
    }

    /// Returns the failure of this call, if it fails. After the given number of failures in a row, the next
    /// call of the same process succeeds.
    pub fn strike(&mut self, pid: i32, nr: u8) -> Option<Failure> {
        if !self.requests.contains(&nr) {
            return None;
        }
        let roll = self.next();
        match self.struck.remove(&(pid, nr)) {
            Some(0) => return None,
            Some(left) => _ = self.struck.insert((pid, nr), left - 1),
            None if roll.is_multiple_of(self.one_in) => _ = self.struck.insert((pid, nr), self.row - 1),
            None => return None,
        }
        self.count += 1;
        let kind = self.next();
        let errno = if kind & 1 == 0 { libc::EIO } else { libc::ENOMEM };
        // Only there does the caller have a reason to wonder: the driver keeps the value of an update that
        // failed.
        Some(Failure { errno, after: nr == kfd::UpdateQueue::NR && kind & 2 == 0 })
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_fail_equal_calls_and_no_repetition() {
        let run = || {
            let mut faults = Faults::parse("7:3").unwrap();
            (0..300).map(|_| faults.strike(1, kfd::UpdateQueue::NR)).collect::<Vec<_>>()
        };
        let first = run();
        assert_eq!(first, run());
        let failed = first.iter().flatten().count();
        assert!((40..120).contains(&failed), "{failed}");
        assert!(first.windows(2).all(|pair| pair[0].is_none() || pair[1].is_none()));
        for after in [false, true] {
            assert!(first.iter().flatten().any(|failure| failure.after == after));
        }
    }

    #[test]
    fn failures_in_a_row_have_the_given_number() {
        let mut faults = Faults::parse("1:1::3").unwrap();
        let calls: Vec<bool> = (0..8).map(|_| faults.strike(1, kfd::UpdateQueue::NR).is_some()).collect();
        assert_eq!(calls, [true, true, true, false, true, true, true, false]);
    }

    #[test]
    fn only_named_requests_fail() {
        let mut faults = Faults::parse("1:1:create_event").unwrap();
        assert_eq!(faults.strike(1, kfd::UpdateQueue::NR), None);
        assert!(faults.strike(1, kfd::CreateEvent::NR).is_some());
        assert_eq!(faults.count, 1);
        for wrong in ["x", "1:0", "1:2:nothing", "1:y", "1:2::0", "1:2::z"] {
            assert!(Faults::parse(wrong).is_err(), "{wrong}");
        }
    }
}
