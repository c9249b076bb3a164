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
        "rec=1 pc=1 su=1 al=1 ar=3 isr=3",
        &[AckedAfterFailover, TwoLeaders, Leaderless, IsrGrew],
    ),
    row(
        "lost-answers",
        "rec=1 pc=1 al=1 min=2 isr=3 lost=1",
        &[AckedAfterFailover, Leaderless, IsrGrew, AllAckedEverywhere],
    ),
    row(
        "two-terms",
        "rec=1 su=1 te=2 al=1 ar=3 isr=3",
        &[AckedAfterFailover, TwoLeaders, SecondTermLeads, Resigned, IsrGrew],
    ),
    row("hosts-and-terms", "rec=2 hc=1 te=2 ar=3 isr=3", &[Diverged, SecondTermLeads, Resigned]),
    row(
        "host-and-process",
        "rec=1 hc=1 pc=1 ar=3 isr=3 min=2",
        &[Leaderless, Recovered, MarkCleared],
    ),
    row(
        "host-shrinks",
        "rec=1 hc=1 al=1 min=2 isr=3 heal=1",
        &[Leaderless, IsrGrew, Recovered, MarkCleared],
    ),
    row(
        "expired-session",
        "rec=1 rr=1 ar=3 isr=3 al=1 heal=4",
        &[AckedAfterFailover, TwoLeaders, IsrGrew],
    ),
    row(
        "sync",
        "rec=1 hc=1 pc=1 ar=3 isr=3 sync=1",
        &[AckedAfterFailover, Leaderless, Recovered, MarkCleared],
    ),
    row("late-writes", "rec=1 su=1 pc=1 ar=3 isr=3 late=1", &[AckedAfterFailover, TwoLeaders]),
    row("heals", "rec=1 pc=1 su=1 isr=3 heal=20", &[AckedAfterFailover, TwoLeaders]),
    // Moves of replicas.
    row(
        "move",
        "rec=1 ar=1 isr=1 tgt=2 mv=2 al=1 heal=1",
        &[MoveTurned, MoveEnded, Moved, ReplicaDeleted, TwoLeaders],
    ),
    row(
        "remove-and-add",
        "rec=1 ar=3 isr=3 tgt=1 mv=2 pc=1 al=1",
        &[MoveEnded, ReplicaDeleted, AckedAfterFailover, IsrGrew],
    ),
    row(
        "move-late-writes",
        "rec=1 ar=1 isr=1 tgt=2 mv=1 al=1 late=1 heal=1",
        &[MoveEnded, Moved, ReplicaDeleted],
    ),
    // Controlled shutdown.
    row("stop", "rec=1 sd=1 av=1 al=1 ar=3 isr=3 heal=4", &[Stopped, AckedAfterFailover]),
    row("stop-waits", "rec=0 sd=1 av=1 al=1 ar=3 isr=1 heal=4", &[StopWaited, Stopped, IsrGrew]),
    // Lives of a topic.
    row("life", "rec=2 del=1 ar=3 isr=3 heal=1", &[AckedInBothLives, ReplicaDeleted]),
    row("life-and-process", "rec=2 del=1 pc=1 ar=3 isr=3", &[Stray, AckedInBothLives]),
    row("life-and-terms", "rec=1 del=1 pc=1 te=2 ar=1 isr=1 heal=1", &[SecondTermLeads]),
    // Late messages.
    row("late-fetches", "rec=2 net=2 ar=3 isr=3 su=1", &[StaleAnswer, Diverged, TwoLeaders]),
    // Log starts.
    row(
        "deletion",
        "rec=2 ar=3 isr=1 dr=1 pc=1 al=1 lost=1",
        &[DeletionAcked, AckedAfterDeletion, FollowerReset],
    ),
    row("retention", "rec=2 ar=3 isr=3 ret=1 su=1 heal=1", &[FollowerReset, AckedAfterFailover]),
    // Syncs that fail, and the change to sync mode.
    row(
        "failed-sync",
        "rec=1 sync=1 ff=1 hc=1 ar=3 isr=1",
        &[SyncFailed, AckedDespiteFailedSync, Recovered],
    ),
    row("switch", "rec=1 set=1 begun=1 su=1 ar=3 isr=3", &[AckedInSync]),
    // Unclean elections by an operator, and R8 by reports.
    row("unclean", "rec=1 uncl=1 pc=2 ar=3 isr=3", &[UncleanRace, AckedAfterUnclean]),
    row(
        "reports",
        "rec=1 ar=3 isr=1 hc=1 pc=1 al=1 min=2 epochs=8",
        &[Recovered, MarkCleared, Leaderless],
    ),
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
    row(
        "large-two-terms-three",
        "rec=1 su=1 te=2 al=1 isr=3",
        &[SecondTermLeads, Resigned, IsrGrew],
    ),
    row("large-hosts-and-terms", "rec=2 hc=1 te=2 isr=3", &[Diverged, SecondTermLeads, Resigned]),
    row("large-host-three", "rec=1 hc=1 pc=1 isr=3 min=2", &[Leaderless, Recovered, MarkCleared]),
    row(
        "large-late-writes-three",
        "rec=1 su=1 pc=1 isr=3 late=1",
        &[AckedAfterFailover, TwoLeaders],
    ),
    row(
        "large-three-and-suspicion",
        "rec=1 pc=1 su=1 al=1 isr=3",
        &[AckedAfterFailover, TwoLeaders, Leaderless, IsrGrew, AllAckedEverywhere],
    ),
    row(
        "large-sync-three",
        "rec=1 hc=1 pc=1 isr=3 sync=1",
        &[AckedAfterFailover, Leaderless, Recovered, MarkCleared],
    ),
    row("large-move", "rec=1 ar=3 isr=3 tgt=6 mv=2 pc=1 al=2", &[MoveTurned, MoveEnded, Moved]),
    row("large-move-heals", "rec=1 ar=3 isr=3 tgt=6 mv=1 pc=1 al=2 heal=20", &[MoveEnded, Moved]),
    row("large-move-one", "rec=1 ar=1 isr=1 tgt=2 mv=2 pc=1 al=2 heal=4", &[MoveTurned, Moved]),
    row(
        "large-move-and-terms",
        "rec=1 ar=1 isr=1 tgt=2 mv=2 pc=1 al=1 te=2",
        &[MoveTurned, Moved, SecondTermLeads],
    ),
    row(
        "large-move-terms-and-suspicion",
        "rec=1 ar=3 isr=3 tgt=6 mv=1 su=1 te=2 al=2",
        &[MoveEnded, Moved, SecondTermLeads],
    ),
    row(
        "large-move-and-host",
        "rec=1 ar=3 isr=3 tgt=5 mv=2 hc=1 al=1 min=2 heal=20",
        &[MoveTurned, Leaderless, Recovered],
    ),
    row(
        "large-replace-and-host",
        "rec=1 ar=3 isr=3 tgt=6 mv=2 hc=1 al=2 min=2",
        &[MoveEnded, Leaderless, Recovered],
    ),
    row(
        "large-add-and-host",
        "rec=1 ar=3 isr=3 tgt=7 mv=2 hc=1 al=2 min=2",
        &[MoveTurned, Recovered],
    ),
    row("large-stops", "rec=1 sd=2 av=1 al=2 min=2", &[Stopped, StopWaited]),
    row("large-stops-heal", "rec=0 sd=2 av=1 al=3 min=2 heal=20", &[Stopped, StopWaited]),
    row("large-stop-behind", "rec=1 sd=2 av=1 al=3 min=2 isr=3", &[Stopped, StopWaited]),
    row(
        "large-stop-and-terms",
        "rec=0 sd=1 av=1 te=2 al=1 ar=3 isr=3",
        &[Stopped, SecondTermLeads],
    ),
    row("large-stop-anyway", "rec=1 sd=1 sdto=1 pc=1 al=1 ar=3 isr=3", &[AckedAfterFailover]),
    row("large-life", "rec=2 del=1 pc=1 isr=3", &[Stray, AckedInBothLives]),
    row("large-life-shrinks", "rec=1 del=1 pc=1 al=1 isr=3", &[ReplicaDeleted, IsrGrew]),
    row("large-life-and-terms", "rec=2 del=1 pc=1 te=2 ar=3 isr=3", &[Stray, SecondTermLeads]),
    row("large-late-fetches-three", "rec=1 net=2 isr=3 su=1 pc=1", &[StaleAnswer, TwoLeaders]),
    row("large-late-fetches", "rec=2 net=2 ar=3 isr=3 su=1 pc=1 al=1", &[StaleAnswer, Diverged]),
    row("large-late-fetches-many", "rec=2 net=3 ar=3 isr=3 su=1 al=1", &[StaleAnswer, Diverged]),
    row(
        "large-late-fetches-and-host",
        "rec=1 net=2 ar=3 isr=3 hc=1 pc=1 al=1 min=2",
        &[StaleAnswer, Leaderless, Recovered],
    ),
    row("large-deletion", "rec=2 ar=3 isr=3 dr=1 su=1 pc=1 al=1 heal=4", &[AckedAfterDeletion]),
    row("large-retention", "rec=2 ar=3 isr=3 ret=1 pc=1 su=1 al=1 heal=4", &[FollowerReset]),
    row("large-deletion-and-host", "rec=1 isr=3 dr=1 hc=1 al=1 min=2", &[DeletionAcked, Recovered]),
    row("large-failed-sync", "rec=1 sync=1 ff=1 hc=1 al=1 isr=3", &[AckedDespiteFailedSync]),
    row(
        "large-failed-sync-and-process",
        "rec=1 sync=1 ff=1 hc=1 pc=1 al=1 ar=3 isr=3",
        &[AckedDespiteFailedSync],
    ),
    row("large-failed-sync-two", "rec=2 sync=1 ff=1 hc=1 ar=3 isr=1", &[AckedDespiteFailedSync]),
    row("large-switch", "rec=1 set=1 su=1 hc=1 ar=3 isr=3", &[AckedInSync]),
    row(
        "large-switch-hosts",
        "rec=1 set=1 begun=1 hc=2 al=1 ar=3 isr=3",
        &[AckedInSync, Recovered],
    ),
    row("large-switch-deposed", "rec=1 set=1 su=1 hc=2 ar=3 isr=3 only=I6", &[AckedInSync]),
    row("large-unclean", "rec=1 uncl=1 pc=2 isr=3", &[UncleanRace, AckedAfterUnclean]),
    row("large-unclean-heals", "rec=1 uncl=1 pc=2 al=1 ar=3 isr=3 heal=4", &[AckedAfterUnclean]),
    row("large-unclean-two", "rec=2 uncl=1 pc=2 al=1 ar=3 isr=1", &[AckedAfterUnclean]),
    row("large-reports", "rec=1 ar=3 isr=1 hc=1 pc=1 al=2 min=2 epochs=8", &[Recovered]),
];

const fn row(name: &'static str, words: &'static str, reaches: &'static [Reached]) -> Named {
    Named { name, words, reaches }
}

/// The row of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Named> {
    QUICK.iter().chain(LARGE).find(|row| row.name == name)
}
