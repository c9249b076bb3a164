//! The one place that reads the monotonic clock for the cores.

use std::time::Instant;

use barnabas_types::Now;

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
