//! A consumer as it is seen from the coordinator: mostly as the protocol wants it, sometimes dead, late or twice.

use std::sync::Arc;

use bytes::Bytes;

use crate::tests::world::protocol;
use crate::{
    Answer, Commit, CommitPartition, Event, GroupError, Heartbeat, Join, Joined, Leave,
    LeaveMember, Sync, Waiter,
};

use super::prng::Prng;

/// What a client waits for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Doing {
    Idle,
    Joining(Waiter),
    Syncing(Waiter),
    /// Knows its assignment.
    Member,
}

pub(super) struct Client {
    pub(super) group: Arc<str>,
    pub(super) instance: Option<Arc<str>>,
    /// Speaks version 4 or later.
    pub(super) id_required: bool,
    pub(super) rebalance_ms: i32,
    pub(super) session_ms: i32,
    pub(super) topics: Vec<&'static str>,
    pub(super) sticky_first: bool,
    pub(super) doing: Doing,
    pub(super) member_id: Arc<str>,
    pub(super) joined: Option<Joined>,
}

impl Client {
    pub(super) fn new(rng: &mut Prng, index: usize) -> Self {
        let instance = rng.percent(40).then(|| format!("i{}", index % 4).into());
        Self {
            group: if rng.percent(70) { "a".into() } else { "b".into() },
            instance,
            id_required: rng.percent(70),
            rebalance_ms: if rng.percent(10) {
                0
            } else {
                3_000 + i32::try_from(rng.below(10_000)).unwrap()
            },
            session_ms: 6_000 + i32::try_from(rng.below(4_000)).unwrap(),
            topics: vec!["t"],
            sticky_first: rng.percent(50),
            doing: Doing::Idle,
            member_id: "".into(),
            joined: None,
        }
    }

    /// The process dies and another takes its place.
    pub(super) fn restart(&mut self) {
        self.doing = Doing::Idle;
        self.member_id = "".into();
        self.joined = None;
    }

    pub(super) fn waits(&self) -> Option<Waiter> {
        match self.doing {
            Doing::Joining(waiter) | Doing::Syncing(waiter) => Some(waiter),
            Doing::Idle | Doing::Member => None,
        }
    }

    pub(super) fn join(&mut self, waiter: Waiter) -> Event {
        self.doing = Doing::Joining(waiter);
        let mut protocols = vec![protocol("range", &self.topics), protocol("sticky", &self.topics)];
        if self.sticky_first {
            protocols.reverse();
        }
        Event::Join(Join {
            waiter,
            group: self.group.clone(),
            member_id: self.member_id.clone(),
            instance_id: self.instance.clone(),
            suffix: format!("u{}", waiter.0).into(),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            session_timeout_ms: self.session_ms,
            rebalance_timeout_ms: self.rebalance_ms,
            protocol_type: "consumer".into(),
            protocols,
            member_id_required: self.id_required,
            skip_assignment: self.id_required,
            reason: None,
        })
    }

    /// The leader's assignments name the request that made them, so that a mixture is seen.
    pub(super) fn sync(&mut self, waiter: Waiter) -> Option<Event> {
        let joined = self.joined.as_ref()?;
        self.doing = Doing::Syncing(waiter);
        let leads = joined.leader == joined.member_id && !joined.skip_assignment;
        let assignments = joined.members.iter().filter(|_| leads);
        Some(Event::Sync(Sync {
            waiter,
            group: self.group.clone(),
            generation: joined.generation,
            member_id: joined.member_id.clone(),
            instance_id: self.instance.clone(),
            protocol_type: Some(joined.protocol_type.clone()),
            protocol_name: Some(joined.protocol_name.clone()),
            assignments: assignments
                .map(|m| (m.member_id.clone(), Bytes::from(format!("by {}", waiter.0))))
                .collect(),
        }))
    }

    pub(super) fn heartbeat(&self, waiter: Waiter) -> Option<Event> {
        let joined = self.joined.as_ref()?;
        Some(Event::Heartbeat(Heartbeat {
            waiter,
            group: self.group.clone(),
            generation: joined.generation,
            member_id: joined.member_id.clone(),
            instance_id: self.instance.clone(),
        }))
    }

    pub(super) fn leave(&mut self, waiter: Waiter) -> Event {
        let member = LeaveMember {
            member_id: self.member_id.clone(),
            instance_id: self.instance.clone(),
            reason: None,
        };
        self.restart();
        Event::Leave(Leave { waiter, group: self.group.clone(), members: vec![member] })
    }

    /// A commit of this offset; from outside of the group if there is no member.
    pub(super) fn commit(&self, waiter: Waiter, topic: &str, offset: i64) -> Event {
        let joined = self.joined.as_ref();
        Event::Commit(Commit {
            waiter,
            group: self.group.clone(),
            generation: joined.map_or(-1, |joined| joined.generation),
            member_id: joined.map_or_else(|| "".into(), |joined| joined.member_id.clone()),
            instance_id: joined.and(self.instance.clone()),
            retention_ms: None,
            knows_group_id_not_found: true,
            partitions: vec![CommitPartition {
                topic: topic.into(),
                partition: 0,
                offset,
                leader_epoch: 1,
                metadata: String::new(),
            }],
        })
    }

    /// Goes on as clients do.
    pub(super) fn hear(&mut self, answer: &Answer) {
        match answer {
            Answer::Join(Ok(joined)) => {
                self.member_id = joined.member_id.clone();
                self.joined = Some(joined.clone());
                self.doing = Doing::Idle;
            }
            Answer::Join(Err(refused)) => {
                self.doing = Doing::Idle;
                self.joined = None;
                if refused.error == GroupError::MemberIdRequired {
                    self.member_id = refused.member_id.clone();
                } else {
                    self.fail(refused.error);
                }
            }
            Answer::Sync(Ok(_)) => self.doing = Doing::Member,
            Answer::Sync(Err(error))
            | Answer::Heartbeat(Err(error))
            | Answer::Commit(Err(error)) => {
                self.doing = Doing::Idle;
                self.joined = None;
                self.fail(*error);
            }
            Answer::Heartbeat(Ok(()))
            | Answer::Commit(Ok(_))
            | Answer::Leave(_)
            | Answer::DeleteOffsets(_)
            | Answer::DeleteGroup(_) => {}
        }
    }

    fn fail(&mut self, error: GroupError) {
        if matches!(
            error,
            GroupError::UnknownMemberId
                | GroupError::FencedInstanceId
                | GroupError::GroupMaxSizeReached
        ) {
            self.restart();
        }
    }
}
