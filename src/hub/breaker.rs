//! A hub that fails again and again is left alone for a while.

use std::time::{Duration, Instant};

/// Failures in a row after which the hub is left alone.
const FAILURES: u32 = 5;
/// How long it is left alone.
const REST: Duration = Duration::from_secs(15);
/// A hub that asks for more than this is asked again after it.
const LONGEST_HOLD: Duration = Duration::from_mins(10);
/// A trial that never came back counts as lost after this.
const TRIAL: Duration = Duration::from_secs(30);

/// Whether the hub may be asked. It has no clock: every call says what time it is.
#[derive(Debug, Default)]
pub struct Breaker {
    failures: u32,
    /// Not before this.
    closed_until: Option<Instant>,
    /// One request is out to see whether the hub is back.
    trial_since: Option<Instant>,
}

impl Breaker {
    /// May a request go out now? After a rest, one goes out alone, and decides for the others.
    ///
    /// # Errors
    /// How long to wait before asking again.
    pub fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        if let Some(until) = self.closed_until {
            if now < until {
                return Err(until - now);
            }
            self.closed_until = None;
        }
        if self.failures < FAILURES {
            return Ok(());
        }
        match self.trial_since {
            Some(since) if now.saturating_duration_since(since) < TRIAL => Err(Duration::from_secs(1)),
            _ => {
                self.trial_since = Some(now);
                Ok(())
            }
        }
    }

    /// The hub answered, whatever it said.
    pub fn answered(&mut self) {
        self.failures = 0;
        self.trial_since = None;
    }

    /// The hub did not answer, or said that it is broken.
    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        self.trial_since = None;
        if self.failures >= FAILURES {
            self.closed_until = Some(now + REST);
        }
    }

    /// The hub asked to be left alone for so long.
    pub fn hold(&mut self, now: Instant, wait: Duration) {
        self.trial_since = None;
        let until = now + wait.min(LONGEST_HOLD);
        self.closed_until = Some(self.closed_until.map_or(until, |known| known.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_after_one_answer() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        for _ in 0..FAILURES {
            assert_eq!(breaker.admit(start), Ok(()));
            breaker.failed(start);
        }
        assert_eq!(breaker.admit(after(start, 5)), Err(Duration::from_secs(10)));
        assert_eq!(breaker.admit(after(start, 15)), Ok(()), "one trial");
        assert!(breaker.admit(after(start, 15)).is_err(), "and only one");
        breaker.answered();
        assert_eq!(breaker.admit(after(start, 16)), Ok(()));
        assert_eq!(breaker.admit(after(start, 16)), Ok(()));
    }

    #[test]
    fn a_failed_trial_starts_another_rest_and_a_lost_one_does_not_block_for_ever() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        (0..FAILURES).for_each(|_| breaker.failed(start));
        assert_eq!(breaker.admit(after(start, 20)), Ok(()));
        breaker.failed(after(start, 20));
        assert_eq!(breaker.admit(after(start, 30)), Err(Duration::from_secs(5)));
        assert_eq!(breaker.admit(after(start, 35)), Ok(()));
        assert_eq!(breaker.admit(after(start, 66)), Ok(()), "the trial at 35 s was lost");
    }

    #[test]
    fn answers_between_failures_keep_it_closed() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        for _ in 0..20 {
            breaker.failed(now);
            breaker.answered();
        }
        assert_eq!(breaker.admit(now), Ok(()));
    }

    #[test]
    fn a_wish_of_the_hub_is_kept_within_bounds() {
        let (mut breaker, start) = (Breaker::default(), Instant::now());
        breaker.hold(start, Duration::from_secs(42));
        assert_eq!(breaker.admit(after(start, 2)), Err(Duration::from_secs(40)));
        assert_eq!(breaker.admit(after(start, 42)), Ok(()));
        breaker.hold(start, Duration::from_secs(1_000_000));
        assert_eq!(breaker.admit(after(start, 600)), Ok(()));
    }
}
