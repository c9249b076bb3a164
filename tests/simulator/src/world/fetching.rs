//! Replication: followers fetch from the leader, one request in flight each; requests wait at the leader for news.

use barnabas_replica::{
    Event, FetchAnswer, FetchOutcome, FetchPosition, FetchReply, FollowerFetch, Role,
};
use barnabas_types::{Condition, Offset, TopicPartition};

use super::{World, id_of, ix_of};
use crate::coverage::Reached;
use crate::disk::Record;
use crate::happening::{Input, Ix};
use crate::mutation::Mutation;
use crate::process::Parked;

/// How long a follower waits for an answer before it asks again.
const ANSWER_MS_MAX: u64 = 70;

/// How long a follower rests after a refusal.
const REST_MS: u64 = 12;

impl World {
    /// Sends a fetch, if this replica follows and none is under way.
    pub(crate) fn fetch_now(&mut self, b: Ix, at: &TopicPartition) {
        let correlation = self.correlation();
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        let Role::Follower { leader, .. } = slot.replica.role() else { return };
        if slot.fetching.is_some() {
            return;
        }
        let Some(mut position) = slot.replica.fetch_position() else { return };
        slot.fetching = Some(correlation);
        let (epoch, call) = slot.heard;
        let heard = if epoch == position.leader_epoch { call } else { 0 };
        if self.is_mutated(Mutation::FollowersReportLogEnd) {
            position.flushed = position.log_end;
        }
        let life = self.processes[b].life;
        let fetch = FollowerFetch { follower: id_of(b), position, heard };
        let partition = at.clone();
        self.send(b, ix_of(leader), None, Input::Fetch { partition, correlation, life, fetch });
        self.later(b, ANSWER_MS_MAX, Input::FetchOverdue { partition: at.clone(), correlation });
    }

    /// Gives up the fetch that waits at the leader, and asks again with what is flushed now.
    pub(crate) fn refetch(&mut self, b: Ix, at: &TopicPartition) {
        if let Some(slot) = self.processes[b].slots.get_mut(at) {
            slot.fetching = None;
            self.fetch_now(b, at);
        }
    }

    pub(crate) fn fetch_overdue(&mut self, b: Ix, at: &TopicPartition, correlation: u64) {
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        if slot.fetching == Some(correlation) {
            slot.fetching = None;
            self.fetch_now(b, at);
        }
    }

    /// A follower's fetch reaches this broker.
    pub(crate) fn fetch_asked(
        &mut self,
        b: Ix,
        from: Ix,
        life: u32,
        at: &TopicPartition,
        correlation: u64,
        mut fetch: FollowerFetch,
    ) {
        let position = fetch.position;
        self.misread_fetch(b, at, &mut fetch);
        let reply = if self.processes[b].slots.contains_key(at) {
            self.step_with(b, at, Event::FollowerFetch(fetch), &[])
                .unwrap_or(FetchReply::Refused(Condition::NotLeaderOrFollower))
        } else {
            FetchReply::Refused(Condition::UnknownTopicOrPartition)
        };
        let parked = Parked { from, life, correlation, position };
        let outcome = match reply {
            FetchReply::Grant(grant) => {
                if grant.from < grant.to || grant.roll_call > fetch.heard {
                    return self.answer_parked(b, at, &parked);
                }
                if let Some(slot) = self.processes[b].slots.get_mut(at) {
                    slot.parked.push(parked);
                }
                let wait = (self.swarm.lag_time_max_ms / 4).min(ANSWER_MS_MAX / 2);
                let partition = at.clone();
                return self.later(b, wait, Input::ParkOver { partition, from, correlation });
            }
            FetchReply::Diverging { epoch, end } => FetchOutcome::Diverging { epoch, end },
            FetchReply::Reset { log_start } => {
                FetchOutcome::Reset { log_start: self.reset_start_told(b, at, log_start) }
            }
            FetchReply::Refused(condition) => FetchOutcome::Refused(condition),
        };
        self.answer_fetch(b, at, &parked, 0, outcome, Vec::new());
    }

    pub(crate) fn park_over(&mut self, b: Ix, at: &TopicPartition, from: Ix, correlation: u64) {
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        let found = slot.parked.iter().position(|p| p.from == from && p.correlation == correlation);
        if let Some(index) = found {
            let parked = slot.parked.remove(index);
            self.answer_parked(b, at, &parked);
        }
    }

    /// Something changed at the leader: all who wait are answered.
    pub(crate) fn wake_parked(&mut self, b: Ix, at: &TopicPartition) {
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        for parked in std::mem::take(&mut slot.parked) {
            self.later(
                b,
                0,
                Input::ParkOver {
                    partition: at.clone(),
                    from: parked.from,
                    correlation: parked.correlation,
                },
            );
            if let Some(slot) = self.processes[b].slots.get_mut(at) {
                slot.parked.push(parked);
            }
        }
    }

    /// What there is now for a follower that was granted its position before.
    fn answer_parked(&mut self, b: Ix, at: &TopicPartition, parked: &Parked) {
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        let position: &FetchPosition = &parked.position;
        let leads = Role::Leader { leader_epoch: position.leader_epoch };
        if slot.replica.role() != leads || slot.incarnation != position.incarnation {
            let refused = FetchOutcome::Refused(Condition::NotLeaderOrFollower);
            return self.answer_fetch(b, at, parked, 0, refused, Vec::new());
        }
        let Some(directory) = self.disks[b].directories.get(at) else { return };
        let from = position.log_end;
        let to = Offset(directory.log_end().0.min(from.0 + self.swarm.fetch_records_max));
        let (records, epochs) = directory.read(from, to);
        let outcome = FetchOutcome::Records {
            end: Offset(from.0 + records.len() as i64),
            epochs,
            high_watermark: slot.replica.high_watermark(),
            log_start: slot.replica.log_start(),
        };
        let roll_call = slot.replica.roll_call();
        self.answer_fetch(b, at, parked, roll_call, outcome, records);
    }

    fn answer_fetch(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        parked: &Parked,
        roll_call: u64,
        outcome: FetchOutcome,
        records: Vec<Record>,
    ) {
        let answer = FetchAnswer { leader: id_of(b), asked: parked.position, outcome };
        let (partition, correlation) = (at.clone(), parked.correlation);
        let input = Input::Fetched { partition, correlation, roll_call, answer, records };
        self.send(b, parked.from, Some(parked.life), input);
    }

    /// A leader's answer reaches the follower, however late: the core judges (R31).
    pub(crate) fn fetch_answered(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        correlation: u64,
        roll_call: u64,
        mut answer: FetchAnswer,
        records: Vec<Record>,
    ) {
        let applied_late = self.is_mutated(Mutation::LateAnswersApplied);
        let Some(slot) = self.processes[b].slots.get_mut(at) else { return };
        let expected = slot.fetching == Some(correlation);
        if expected {
            slot.fetching = None;
        }
        let known = Some(slot.heard).filter(|(epoch, _)| *epoch == answer.asked.leader_epoch);
        if roll_call > known.map_or(0, |(_, call)| call) {
            slot.heard = (answer.asked.leader_epoch, roll_call);
        }
        let refused = matches!(answer.outcome, FetchOutcome::Refused(_)) || self.disks[b].full;
        let before = slot.replica.log_end();
        let wanted = slot.replica.fetch_position();
        let asked = answer.asked;
        let stale = wanted.is_none_or(|w| {
            (w.incarnation, w.broker_epoch, w.leader_epoch, w.last_epoch, w.log_end)
                != (
                    asked.incarnation,
                    asked.broker_epoch,
                    asked.leader_epoch,
                    asked.last_epoch,
                    asked.log_end,
                )
        });
        if applied_late && let Some(wanted) = wanted {
            answer.asked = wanted;
        }
        self.step_with(b, at, Event::FetchAnswered(answer), &records);
        if stale {
            self.reach(Reached::LateAnswer);
            let after = self.processes[b].slots.get(at).map(|s| s.replica.log_end());
            if after != Some(before) {
                let text = format!("{at} broker {}: a late answer changed the log", b + 1);
                self.checkers.broken("R31", text);
            }
        }
        if expected {
            let rest = if refused { REST_MS } else { 0 };
            self.later(b, rest, Input::FetchNow { partition: at.clone() });
        }
    }
}
