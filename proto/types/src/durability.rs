//! What a topic's acknowledged records survive, and which of its settings are a trap: from replication factor and settings alone.
//!
//! Says of a topic what the README's table says of all: at most one replica was out of the ISR before the fault. Where one
//! replica is all there is, it follows from its own disk.

use std::fmt;

use crate::{Acks, FlushMode, TopicConfig};

/// What a topic's records may meet. Each is one event, from a healthy state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// One broker's process dies; its host lives.
    BrokerCrash,
    /// One broker's host loses power, and with it what was not flushed.
    PowerCut,
    /// Every broker's host loses power at the same time.
    PowerCutOfAll,
}

impl Fault {
    /// All of them, from the mildest on.
    pub const ALL: [Self; 3] = [Self::BrokerCrash, Self::PowerCut, Self::PowerCutOfAll];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BrokerCrash => "one broker crash",
            Self::PowerCut => "one power cut",
            Self::PowerCutOfAll => "a power cut of all",
        })
    }
}

/// Whether every record of the topic that was acknowledged at `acks` is still there after `fault`, and after whatever elections it
/// led to; `replication_factor` is 1 or greater. A record at acks=0 is never acknowledged, so nothing is promised: `false`.
#[must_use]
pub fn survives(config: &TopicConfig, replication_factor: usize, acks: Acks, fault: Fault) -> bool {
    let sync = config.flush_mode == FlushMode::Sync;
    // Only with a second replica is there somebody who could be elected without the record.
    let alone = replication_factor == 1;
    let unclean = config.unclean_leader_election && !alone;
    let in_two = config.min_insync_replicas > 1 && !alone;
    match (acks, fault) {
        (Acks::None, _) => false,
        // One disk, one log: acks=1 and acks=all are the same.
        (_, Fault::BrokerCrash) if alone => true,
        (_, Fault::PowerCut | Fault::PowerCutOfAll) if alone => sync,
        (Acks::Leader, Fault::BrokerCrash | Fault::PowerCut) => false,
        (Acks::All, Fault::BrokerCrash) => in_two || !unclean,
        (Acks::All, Fault::PowerCut) => in_two || sync && !unclean,
        (Acks::Leader | Acks::All, Fault::PowerCutOfAll) => sync && !unclean,
    }
}

/// A combination of settings that costs more, or brings less, than it looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trap {
    /// Replication factor 1.
    OneReplica,
    /// `min.insync.replicas` is above the replication factor: acks=all is always refused.
    MinInsyncOutOfReach,
    /// `min.insync.replicas` equals the replication factor: each broker that is away stops acks=all.
    EveryReplicaNeeded,
    /// `min.insync.replicas` 1 with more than one replica: acks=all may mean the leader alone.
    LeaderAloneMayAcknowledge,
    /// `unclean.leader.election.enable` with more than one replica.
    UncleanElections,
    /// `flush.messages` or `flush.ms` in sync mode, which flushes before it acknowledges anyway.
    FlushBoundsWithoutEffect,
}

impl Trap {
    /// Those that a topic is in.
    #[must_use]
    pub fn of(config: &TopicConfig, replication_factor: usize) -> Vec<Self> {
        let min_insync = config.min_insync_replicas as usize;
        let several = replication_factor > 1;
        let unbounded = TopicConfig::default();
        let bounded = config.flush_messages != unbounded.flush_messages
            || config.flush_ms != unbounded.flush_ms;
        let found = [
            (Self::OneReplica, !several),
            (Self::MinInsyncOutOfReach, min_insync > replication_factor),
            (Self::EveryReplicaNeeded, several && min_insync == replication_factor),
            (Self::LeaderAloneMayAcknowledge, several && min_insync == 1),
            (Self::UncleanElections, several && config.unclean_leader_election),
            (Self::FlushBoundsWithoutEffect, bounded && config.flush_mode == FlushMode::Sync),
        ];
        found.into_iter().filter_map(|(trap, is)| is.then_some(trap)).collect()
    }

    /// What is wrong, and what to do about it, as one sentence about a topic of this replication factor.
    #[must_use]
    pub fn advice(self, replication_factor: usize) -> String {
        match self {
            Self::OneReplica => "one replica: while its broker is away the topic is too, and what its disk loses is lost; use \
                --replication-factor 3"
                .into(),
            Self::MinInsyncOutOfReach => format!(
                "min.insync.replicas is above the replication factor {replication_factor}: every record at acks=all is refused; \
                 lower it, or add replicas with `barnabas topic set-replicas`"
            ),
            Self::EveryReplicaNeeded => format!(
                "min.insync.replicas equals the replication factor: whenever one broker is away, acks=all is refused; set it to {}, \
                 or add a replica with `barnabas topic set-replicas`",
                replication_factor - 1
            ),
            Self::LeaderAloneMayAcknowledge => "min.insync.replicas=1: when the other replicas have fallen behind, acks=all means \
                the leader's disk alone; set min.insync.replicas=2"
                .into(),
            Self::UncleanElections => "unclean.leader.election.enable=true: a replica that lacks acknowledged records may be \
                elected, and they are lost; set it to false, and decide in the case with `barnabas leader elect --unclean`"
                .into(),
            Self::FlushBoundsWithoutEffect => "flush.messages and flush.ms have no effect in flush.mode=sync, which flushes before \
                it acknowledges; remove them, or set flush.mode=async"
                .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(min_insync_replicas: u32, flush_mode: FlushMode, unclean: bool) -> TopicConfig {
        let unclean_leader_election = unclean;
        TopicConfig {
            min_insync_replicas,
            flush_mode,
            unclean_leader_election,
            ..TopicConfig::default()
        }
    }

    /// Names of the faults that records at `acks` survive, as initials.
    fn survived(config: &TopicConfig, replication_factor: usize, acks: Acks) -> String {
        let names = Fault::ALL.into_iter().zip(["crash ", "cut ", "all "]);
        names
            .filter(|(f, _)| survives(config, replication_factor, acks, *f))
            .map(|(_, n)| n)
            .collect()
    }

    #[test]
    fn one_replica_keeps_what_its_disk_keeps() {
        for unclean in [false, true] {
            for acks in [Acks::Leader, Acks::All] {
                let of = |mode| survived(&config(1, mode, unclean), 1, acks);
                assert_eq!(of(FlushMode::Async), "crash ");
                assert_eq!(of(FlushMode::Sync), "crash cut all ");
            }
        }
    }

    #[test]
    fn acks_0_promises_nothing() {
        for replication_factor in [1, 3] {
            assert_eq!(
                survived(&config(2, FlushMode::Sync, false), replication_factor, Acks::None),
                ""
            );
        }
    }

    #[test]
    fn traps_are_told_with_their_remedy() {
        let of = |config: &TopicConfig, replication_factor| Trap::of(config, replication_factor);
        let plain = |min_insync| config(min_insync, FlushMode::Async, false);
        assert_eq!(of(&plain(2), 3), [], "the usual topic is in none");
        assert_eq!(of(&plain(1), 1), [Trap::OneReplica]);
        assert_eq!(of(&plain(2), 1), [Trap::OneReplica, Trap::MinInsyncOutOfReach]);
        assert_eq!(of(&plain(3), 3), [Trap::EveryReplicaNeeded]);
        assert_eq!(of(&plain(1), 3), [Trap::LeaderAloneMayAcknowledge]);
        assert_eq!(of(&config(2, FlushMode::Async, true), 3), [Trap::UncleanElections]);
        let bounded = TopicConfig { flush_ms: 1000, ..config(2, FlushMode::Sync, false) };
        assert_eq!(of(&bounded, 3), [Trap::FlushBoundsWithoutEffect]);
        assert!(Trap::EveryReplicaNeeded.advice(3).contains("set it to 2"));
    }
}
