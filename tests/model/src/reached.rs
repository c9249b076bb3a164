//! What an exploration has come across, so that a green run is known not to be vacuous.

use std::sync::atomic::{AtomicU32, Ordering};

/// Something that must be possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    /// A record of a later epoch than the first was acknowledged.
    AckedAfterFailover,
    /// Two brokers led at once.
    TwoLeaders,
    /// Two logs differed at one offset.
    Diverged,
    /// The partition had no leader.
    Leaderless,
    /// The ISR grew.
    IsrGrew,
    /// Every record was acknowledged and every HW was at its end, in a later epoch than the first.
    AllAckedEverywhere,
    /// A leader obeyed the second term.
    SecondTermLeads,
    /// A leader was chosen by the replicas' reports (R8).
    Recovered,
    /// A lost-tail mark went away (R7).
    MarkCleared,
    /// A controller was told that a newer one exists.
    Resigned,
}

impl Reached {
    /// All of them, with words.
    pub const ALL: [(Reached, &'static str); 10] = [
        (Reached::AckedAfterFailover, "acked after failover"),
        (Reached::TwoLeaders, "two leaders"),
        (Reached::Diverged, "diverged"),
        (Reached::Leaderless, "leaderless"),
        (Reached::IsrGrew, "ISR grew"),
        (Reached::AllAckedEverywhere, "all acked everywhere"),
        (Reached::SecondTermLeads, "second term leads"),
        (Reached::Recovered, "recovered from the longest log"),
        (Reached::MarkCleared, "mark cleared"),
        (Reached::Resigned, "resigned"),
    ];

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        Self::ALL.iter().find(|(r, _)| *r == self).map_or("", |(_, words)| *words)
    }
}

/// The set of what was reached; shared by the checker's threads.
#[derive(Default, Debug)]
pub struct Coverage(AtomicU32);

impl Coverage {
    /// Adds one.
    pub fn add(&self, reached: Reached) {
        let bit = 1 << reached as u32;
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Words for what was reached.
    #[must_use]
    pub fn words(&self) -> Vec<&'static str> {
        let bits = self.0.load(Ordering::Relaxed);
        let all = Reached::ALL.iter();
        all.filter(|(r, _)| bits & (1 << *r as u32) != 0).map(|(_, words)| *words).collect()
    }
}
