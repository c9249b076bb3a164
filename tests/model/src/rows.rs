//! The named rows: which bounds are explored in every test run, and which on demand.

use crate::reached::Reached::{self, *};

/// A named row.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its words.
    pub words: &'static str,
    /// What it must come across, lest it be vacuous.
    pub reaches: &'static [Reached],
}

/// Explored in every test run: seconds each.
pub const QUICK: &[Named] = &[
    row("suspicion", "rec=2 su=1", &[AckedAfterFailover, TwoLeaders, Diverged, AllAckedEverywhere]),
    row(
        "process-and-suspicion",
        "rec=1 pc=1 su=1 al=1 isr=3",
        &[AckedAfterFailover, TwoLeaders, Leaderless, IsrGrew, AllAckedEverywhere],
    ),
    row(
        "lost-answers",
        "rec=1 pc=1 al=1 min=2 isr=3 lost=1",
        &[AckedAfterFailover, Leaderless, IsrGrew, AllAckedEverywhere],
    ),
    row(
        "two-terms",
        "rec=1 su=1 te=2 al=1 isr=3",
        &[AckedAfterFailover, TwoLeaders, SecondTermLeads, Resigned, IsrGrew],
    ),
    row("hosts-and-terms", "rec=2 hc=1 te=2 isr=3", &[Diverged, SecondTermLeads, Resigned]),
    row("host-and-process", "rec=1 hc=1 pc=1 isr=3 min=2", &[Leaderless, Recovered, MarkCleared]),
    row(
        "host-shrinks",
        "rec=1 hc=1 al=1 min=2 isr=3 heal=1",
        &[Leaderless, IsrGrew, Recovered, MarkCleared],
    ),
    row(
        "expired-session",
        "rec=1 rr=1 isr=3 al=1 heal=4",
        &[AckedAfterFailover, TwoLeaders, IsrGrew],
    ),
    row(
        "sync",
        "rec=1 hc=1 pc=1 isr=3 sync=1",
        &[AckedAfterFailover, Leaderless, Recovered, MarkCleared],
    ),
    row("late-writes", "rec=1 su=1 pc=1 isr=3 late=1", &[AckedAfterFailover, TwoLeaders]),
    row("heals", "rec=1 pc=1 su=1 isr=3 heal=1", &[AckedAfterFailover, TwoLeaders]),
];

/// Explored on demand: minutes each.
pub const LARGE: &[Named] = &[
    row(
        "large-lost-answers",
        "rec=1 pc=2 al=1 min=2 isr=3 lost=1",
        &[AckedAfterFailover, Leaderless, IsrGrew, AllAckedEverywhere],
    ),
    row(
        "large-process-and-suspicion",
        "rec=2 pc=1 su=1 al=1 lost=1",
        &[AckedAfterFailover, Diverged, IsrGrew],
    ),
    row(
        "large-two-terms",
        "rec=1 pc=1 su=1 te=2 al=1 isr=3 lost=1",
        &[SecondTermLeads, Resigned, IsrGrew],
    ),
    row(
        "large-two-terms-heal",
        "rec=1 pc=1 su=1 te=2 al=1 isr=3 heal=50",
        &[SecondTermLeads, Resigned, IsrGrew],
    ),
    row(
        "large-host-and-process",
        "rec=1 hc=1 pc=1 al=1 isr=3 min=2 heal=20",
        &[Leaderless, Recovered, MarkCleared],
    ),
    row(
        "large-host-and-suspicion",
        "rec=1 hc=1 pc=1 su=1 al=1 isr=3 min=2",
        &[Leaderless, Recovered, MarkCleared],
    ),
    row(
        "large-host-and-terms",
        "rec=1 hc=1 su=1 te=2 al=1 isr=3 min=2",
        &[SecondTermLeads, Resigned],
    ),
    row("large-three-in-sync", "rec=1 pc=1 su=1 te=2 al=1", &[SecondTermLeads, Resigned, IsrGrew]),
    row(
        "large-expired-session",
        "rec=1 rr=1 pc=1 al=1 isr=1 heal=20",
        &[AckedAfterFailover, TwoLeaders, IsrGrew],
    ),
    row("large-sync", "rec=1 hc=1 pc=1 al=1 isr=3 sync=1", &[Leaderless, Recovered, MarkCleared]),
    row("large-sync-unmarked", "rec=1 hc=1 pc=1 al=1 isr=3 sync=1 told=0", &[Leaderless, IsrGrew]),
    row("large-sync-all-hosts", "rec=1 all=1 pc=1 sync=1", &[Leaderless, Recovered, MarkCleared]),
    row("large-late-writes", "rec=1 pc=1 su=1 te=2 isr=3 late=1", &[SecondTermLeads, Resigned]),
];

const fn row(name: &'static str, words: &'static str, reaches: &'static [Reached]) -> Named {
    Named { name, words, reaches }
}

/// The row of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Named> {
    QUICK.iter().chain(LARGE).find(|row| row.name == name)
}
