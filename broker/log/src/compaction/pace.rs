//! How fast a compaction may go, and whether it shall go on.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time after which a compaction that is behind its rate begins to count anew.
const IDLE_CREDIT: Duration = Duration::from_secs(1);

/// Is told of every piece of work of a compaction.
pub trait Pace {
    /// So many bytes were read or written: waits if need be. `false`: the compaction shall end.
    fn spent(&mut self, bytes: u64) -> bool;
}

/// As fast as it goes, to the end.
#[derive(Debug, Default)]
pub struct Unhurried;

impl Pace for Unhurried {
    fn spent(&mut self, _bytes: u64) -> bool {
        true
    }
}

/// Ends compactions, also one that waits at the moment.
#[derive(Debug, Default)]
pub struct StopSignal {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl StopSignal {
    /// From now on.
    pub fn stop(&self) {
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for a stop, but no longer than this. Returns whether there was one.
    pub fn wait(&self, at_most: Duration) -> bool {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(stopped, at_most, |stopped| !*stopped);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// So many bytes a second on average since it was made (`log.cleaner.io.max.bytes.per.second`), reads and writes together,
/// until it is stopped. One for all compactions of a thread.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_second: f64,
    began: Instant,
    spent_bytes: u64,
    stop: Arc<StopSignal>,
}

impl Throttle {
    /// No bound if `bytes_per_second` is not a positive number.
    #[must_use]
    pub fn new(bytes_per_second: f64, stop: Arc<StopSignal>) -> Self {
        Self { bytes_per_second, began: Instant::now(), spent_bytes: 0, stop }
    }

    /// How long to wait at this time after the beginning.
    fn ahead(&self, since: Duration) -> Duration {
        if self.bytes_per_second > 0.0 {
            let due = self.spent_bytes as f64 / self.bytes_per_second;
            Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX).saturating_sub(since)
        } else {
            Duration::ZERO
        }
    }
}

impl Pace for Throttle {
    fn spent(&mut self, bytes: u64) -> bool {
        self.spent_bytes = self.spent_bytes.saturating_add(bytes);
        let since = self.began.elapsed();
        let ahead = self.ahead(since);
        if ahead.is_zero() && since > IDLE_CREDIT {
            // Idle time gives no credit for a long burst later on.
            (self.began, self.spent_bytes) = (Instant::now(), 0);
        }
        !self.stop.wait(ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_as_long_as_the_bytes_are_ahead_of_the_rate() {
        let mut throttle = Throttle::new(1000.0, Arc::default());
        throttle.spent_bytes = 2500;
        assert_eq!(throttle.ahead(Duration::from_secs(2)), Duration::from_millis(500));
        assert_eq!(throttle.ahead(Duration::from_secs(3)), Duration::ZERO);
        for rate in [0.0, -1.0, f64::INFINITY, f64::NAN, f64::MAX] {
            assert!(Throttle::new(rate, Arc::default()).spent(u64::MAX));
        }
    }

    #[test]
    fn a_stop_ends_a_wait_that_would_be_long() {
        let stop = Arc::new(StopSignal::default());
        let mut throttle = Throttle::new(0.001, Arc::clone(&stop));
        let waiting = std::thread::spawn(move || throttle.spent(1 << 40));
        stop.stop();
        assert!(!waiting.join().unwrap());
    }
}
