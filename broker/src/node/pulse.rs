//! Whether this process was stopped for so long that others may have taken its place, and it has not heard of it yet.
//!
//! A write at acks=all finds out by itself: a deposed leader's append is never committed. What answers from memory alone does not, nor
//! what is acknowledged by the leader alone (acks=1). So after a stop of the whole process (SIGSTOP, a thrashing host, a machine that
//! was suspended) in which its session with ZooKeeper may have ended, it does neither until the news has had the time to arrive. Times are
//! those of [`crate::clock::since_boot`].

use std::sync::atomic::{AtomicU64, Ordering};

use barnabas_types::Now;

/// How long the news of what happened meanwhile may take: a new session, a registration and a push, several times over.
const NEWS_MS: u64 = 2_000;

/// Beats as long as the process runs.
#[derive(Debug)]
pub struct Pulse {
    /// The longest pause that leaves no doubt, ms.
    pause_max_ms: AtomicU64,
    last_ms: AtomicU64,
    doubtful_until_ms: AtomicU64,
}

impl Pulse {
    /// As [`Pulse::grant`], from now on.
    #[must_use]
    pub fn new(session_timeout_ms: u64, now: Now) -> Self {
        Self {
            pause_max_ms: AtomicU64::new(pause_max_ms(session_timeout_ms)),
            last_ms: AtomicU64::new(now.0),
            doubtful_until_ms: AtomicU64::new(0),
        }
    }

    /// How long the process may be silent before others take its place: what ZooKeeper grants, which may be less than was asked for.
    pub fn grant(&self, session_timeout_ms: u64) {
        self.pause_max_ms.store(pause_max_ms(session_timeout_ms), Ordering::Release);
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
        now.0.saturating_sub(self.last_ms.load(Ordering::Acquire))
            > self.pause_max_ms.load(Ordering::Acquire)
    }
}

/// When the process stops, a third of the timeout may have passed since ZooKeeper heard from it last: sessions are pinged three times
/// in it.
fn pause_max_ms(session_timeout_ms: u64) -> u64 {
    session_timeout_ms / 3 * 2
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

    #[test]
    fn the_pause_that_leaves_no_doubt_is_that_of_the_session_that_was_granted() {
        let pulse = Pulse::new(60_000, Now(0));
        pulse.grant(6_000);
        assert!(!pulse.is_doubtful(Now(4_000)));
        assert!(pulse.is_doubtful(Now(4_001)), "asked for was a minute");
    }
}
