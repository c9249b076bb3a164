//! Whether this process was stopped for so long that others may have taken its place, and it has not heard of it yet.
//!
//! A write at acks=all finds out by itself: a deposed leader's append is never committed. What answers from memory alone does not, nor
//! what is acknowledged by the leader alone (acks=1). So after a stop of the whole process (SIGSTOP, a thrashing host) in which its
//! session with ZooKeeper may have ended, it does neither until the news has had the time to arrive. A machine that was suspended is
//! not noticed: its monotonic clock stood still, too.

use std::sync::atomic::{AtomicU64, Ordering};

use barnabas_types::Now;

/// How long the news of what happened meanwhile may take: a new session, a registration and a push, several times over.
const NEWS_MS: u64 = 2_000;

/// Beats as long as the process runs.
#[derive(Debug)]
pub struct Pulse {
    /// The longest pause that leaves no doubt, ms.
    pause_max_ms: u64,
    last_ms: AtomicU64,
    doubtful_until_ms: AtomicU64,
}

impl Pulse {
    /// `session_timeout_ms`: how long the process may be silent before others take its place. When it stops, a third of that may have
    /// passed since ZooKeeper heard from it last: sessions are pinged three times in their timeout.
    #[must_use]
    pub fn new(session_timeout_ms: u64, now: Now) -> Self {
        Self {
            pause_max_ms: session_timeout_ms / 3 * 2,
            last_ms: AtomicU64::new(now.0),
            doubtful_until_ms: AtomicU64::new(0),
        }
    }

    /// The process runs. To be called by one task, far more often than once in a session's timeout.
    pub fn beat(&self, now: Now) {
        if self.is_late(now) {
            // First: whoever looks in between must not miss it.
            self.doubtful_until_ms.store(now.0.saturating_add(NEWS_MS), Ordering::Release);
            tracing::warn!(target: "state_change", "this process was stopped for so long that its session may have ended; it answers for no group and takes no record at acks=1 until it has heard what happened meanwhile");
        }
        self.last_ms.store(now.0, Ordering::Release);
    }

    /// Whether others may have taken this process's place unheard.
    #[must_use]
    pub fn is_doubtful(&self, now: Now) -> bool {
        self.is_late(now) || now.0 < self.doubtful_until_ms.load(Ordering::Acquire)
    }

    fn is_late(&self, now: Now) -> bool {
        now.0.saturating_sub(self.last_ms.load(Ordering::Acquire)) > self.pause_max_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_in_which_the_session_may_end_is_doubtful_before_and_after_the_next_beat() {
        let pulse = Pulse::new(9_000, Now(1_000));
        assert!(!pulse.is_doubtful(Now(7_000)));
        assert!(pulse.is_doubtful(Now(7_001)), "whoever wakes first sees it");
        pulse.beat(Now(7_000));
        assert!(!pulse.is_doubtful(Now(7_001)));
        pulse.beat(Now(20_000));
        assert!(pulse.is_doubtful(Now(20_000)) && pulse.is_doubtful(Now(20_000 + NEWS_MS - 1)));
        pulse.beat(Now(20_000 + NEWS_MS));
        assert!(!pulse.is_doubtful(Now(20_000 + NEWS_MS)));
    }
}
