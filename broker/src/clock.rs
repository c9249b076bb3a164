//! The one place that reads clocks: the monotonic one for the cores, the calendar's for what records are stamped with.

use std::time::{Instant, SystemTime};

use barnabas_types::Now;
use rustix::time::{ClockId, clock_gettime};

/// Milliseconds since the process began.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that begins at 0 now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> Now {
        Now(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// Milliseconds since the machine began, those included in which it was suspended: [`Clock`] stands still then, a session with
/// ZooKeeper does not. Only differences mean anything.
#[must_use]
pub fn since_boot() -> Now {
    #[cfg(target_os = "linux")]
    const ID: ClockId = ClockId::Boottime;
    // macOS counts on in its monotonic clock.
    #[cfg(not(target_os = "linux"))]
    const ID: ClockId = ClockId::Monotonic;
    let time = clock_gettime(ID);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Now(seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000))
}

/// Milliseconds since 1970, by the host's calendar clock; it may jump.
#[must_use]
pub fn unix_ms() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
