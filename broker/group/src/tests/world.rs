//! A coordinator with a clock, a log and clients, driven by hand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use barnabas_types::Now;

use crate::{
    Answer, Append, AppendError, Commit, CommitPartition, Effects, Event, GroupError, Groups,
    Heartbeat, Join, JoinRefused, Joined, Leave, LeaveMember, Moment, OffsetRead, OffsetsRecord,
    Protocol, Replayed, Settings, Sync, Synced, Waiter, WriteId,
};

pub(super) const SESSION_MS: u64 = 10_000;
pub(super) const REBALANCE_MS: u64 = 60_000;
/// How long the first rebalance of a group waits.
pub(super) const DELAY_MS: u64 = 100;
/// Wall clock at monotonic 0.
pub(super) const WALL_MS: i64 = 1_700_000_000_000;

pub(super) struct World {
    pub(super) groups: Groups,
    pub(super) now_ms: u64,
    /// Added to the wall clock.
    pub(super) wall_offset_ms: i64,
    /// What was acknowledged, in order.
    pub(super) log: Vec<OffsetsRecord>,
    pub(super) open: VecDeque<Append>,
    pub(super) answers: BTreeMap<Waiter, Answer>,
    pub(super) asked: BTreeMap<Waiter, u64>,
    next: u64,
    pub(super) notes: Vec<String>,
}

pub(super) fn settings() -> Settings {
    Settings { initial_rebalance_delay_ms: DELAY_MS, ..Settings::default() }
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(settings())
    }

    pub(super) fn with(settings: Settings) -> Self {
        Self::restarted(settings, Vec::new(), 1_000)
    }

    /// A new coordinator over a log.
    pub(super) fn restarted(settings: Settings, log: Vec<OffsetsRecord>, now_ms: u64) -> Self {
        let mut groups = Groups::loading(settings);
        for record in &log {
            assert_eq!(groups.replay(&record.key, record.value.as_deref()), Replayed::Applied);
        }
        let mut world = Self {
            groups,
            now_ms,
            wall_offset_ms: 0,
            log,
            open: VecDeque::new(),
            answers: BTreeMap::new(),
            asked: BTreeMap::new(),
            next: 0,
            notes: Vec::new(),
        };
        let mut effects = Effects::default();
        world.groups.loaded(world.moment(), &mut effects);
        world.collect(effects);
        world
    }

    /// The same log under a new coordinator, at the same time.
    pub(super) fn restart(&self) -> Self {
        Self::restarted(self.groups.settings.clone(), self.log.clone(), self.now_ms)
    }

    /// Another coordinator takes over with this log; the clients and the clock go on.
    pub(super) fn take_over(&mut self, settings: Settings, log: &[OffsetsRecord]) {
        let mut groups = Groups::loading(settings);
        for record in log {
            assert_eq!(groups.replay(&record.key, record.value.as_deref()), Replayed::Applied);
        }
        self.groups = groups;
        self.open.clear();
        let mut effects = Effects::default();
        self.groups.loaded(self.moment(), &mut effects);
        self.collect(effects);
    }

    /// The coordinator ends; whoever waits is sent away.
    pub(super) fn unload(&mut self) {
        let mut effects = Effects::default();
        self.groups.unload(&mut effects);
        self.collect(effects);
    }

    pub(super) fn moment(&self) -> Moment {
        let wall_ms = WALL_MS + self.wall_offset_ms + i64::try_from(self.now_ms).unwrap();
        Moment { now: Now(self.now_ms), wall_ms }
    }

    pub(super) fn waiter(&mut self) -> Waiter {
        self.next += 1;
        self.asked.insert(Waiter(self.next), self.now_ms);
        Waiter(self.next)
    }

    pub(super) fn step(&mut self, event: Event) {
        let mut effects = Effects::default();
        self.groups.step(self.moment(), event, &mut effects);
        self.collect(effects);
    }

    fn collect(&mut self, effects: Effects) {
        self.open.extend(effects.appends);
        self.notes
            .extend(effects.notes.into_iter().map(|note| format!("{}: {}", note.group, note.text)));
        for (waiter, answer) in effects.answers {
            assert!(
                self.asked.remove(&waiter).is_some(),
                "{waiter:?} was answered twice, or never asked"
            );
            self.answers.insert(waiter, answer);
        }
    }

    /// Acknowledges the oldest open append.
    pub(super) fn acknowledge(&mut self) -> WriteId {
        let append = self.open.pop_front().expect("nothing to acknowledge");
        self.log.extend(append.records);
        self.step(Event::Appended { write: append.write, result: Ok(()) });
        append.write
    }

    /// Refuses the oldest open append: its records are not in the log.
    pub(super) fn refuse(&mut self, error: AppendError) {
        let append = self.open.pop_front().expect("nothing to refuse");
        self.step(Event::Appended { write: append.write, result: Err(error) });
    }

    /// Ends the oldest open append with an unknown outcome: its records land in the log all the same.
    pub(super) fn lose_track(&mut self) {
        let append = self.open.pop_front().expect("nothing to lose track of");
        self.log.extend(append.records);
        self.step(Event::Appended { write: append.write, result: Err(AppendError::TimedOut) });
    }

    pub(super) fn settle(&mut self) {
        while !self.open.is_empty() {
            self.acknowledge();
        }
    }

    /// Lets time pass, waking the coordinator whenever it wants to be; appends succeed at once.
    pub(super) fn advance(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        loop {
            self.settle();
            let wake = self.groups.wake_at().map_or(u64::MAX, |at| at.0);
            if wake > end {
                break;
            }
            assert!(wake >= self.now_ms, "wants to be woken in the past");
            self.now_ms = wake;
            let before = self.groups.clone();
            self.step(Event::Tick);
            assert!(
                self.groups != before,
                "a wake-up that changes nothing would come again for ever"
            );
        }
        self.now_ms = end;
    }

    /// Lets time pass without an answer from the log.
    pub(super) fn advance_without_appends(&mut self, ms: u64) {
        let end = self.now_ms + ms;
        while let Some(wake) = self.groups.wake_at().filter(|at| at.0 <= end) {
            self.now_ms = wake.0;
            self.step(Event::Tick);
        }
        self.now_ms = end;
    }

    /// Lets the first rebalance of a group end; it is extended once if a second member has come.
    pub(super) fn gather(&mut self) {
        self.advance(2 * DELAY_MS);
    }

    pub(super) fn answer(&mut self, waiter: Waiter) -> Answer {
        self.answers.remove(&waiter).unwrap_or_else(|| panic!("{waiter:?} is not answered"))
    }

    pub(super) fn is_waiting(&self, waiter: Waiter) -> bool {
        self.asked.contains_key(&waiter)
    }

    /// Sends a join and does not wait for the answer.
    pub(super) fn send_join(&mut self, change: impl FnOnce(&mut Join)) -> Waiter {
        let waiter = self.waiter();
        let mut join = Join {
            waiter,
            group: "g".into(),
            member_id: "".into(),
            instance_id: None,
            suffix: format!("u{}", waiter.0).into(),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            session_timeout_ms: i32::try_from(SESSION_MS).unwrap(),
            rebalance_timeout_ms: i32::try_from(REBALANCE_MS).unwrap(),
            protocol_type: "consumer".into(),
            protocols: vec![protocol("range", &["t"])],
            member_id_required: true,
            skip_assignment: true,
            reason: None,
        };
        change(&mut join);
        self.step(Event::Join(join));
        waiter
    }

    pub(super) fn joined(&mut self, waiter: Waiter) -> Result<Joined, JoinRefused> {
        match self.answer(waiter) {
            Answer::Join(result) => result,
            other => panic!("not a join's answer: {other:?}"),
        }
    }

    /// The id that a new dynamic member is given (KIP-394).
    pub(super) fn new_id(&mut self, change: impl FnOnce(&mut Join)) -> Arc<str> {
        let waiter = self.send_join(change);
        let refused = self.joined(waiter).expect_err("joined without an id");
        assert_eq!(refused.error, GroupError::MemberIdRequired);
        refused.member_id
    }

    /// Sends the join of a new dynamic member that was given an id.
    pub(super) fn send_new_join(&mut self) -> (Arc<str>, Waiter) {
        let id = self.new_id(|_| ());
        (id.clone(), self.send_join(|join| join.member_id = id))
    }

    pub(super) fn sync(&mut self, joined: &Joined, assignments: &[(&Arc<str>, &str)]) -> Waiter {
        let waiter = self.waiter();
        let assignments = assignments
            .iter()
            .map(|(id, text)| ((*id).clone(), Bytes::copy_from_slice(text.as_bytes())))
            .collect();
        self.step(Event::Sync(Sync {
            waiter,
            group: "g".into(),
            generation: joined.generation,
            member_id: joined.member_id.clone(),
            instance_id: None,
            protocol_type: Some(joined.protocol_type.clone()),
            protocol_name: Some(joined.protocol_name.clone()),
            assignments,
        }));
        waiter
    }

    pub(super) fn synced(&mut self, waiter: Waiter) -> Result<Synced, GroupError> {
        match self.answer(waiter) {
            Answer::Sync(result) => result,
            other => panic!("not a sync's answer: {other:?}"),
        }
    }

    pub(super) fn heartbeat(&mut self, id: &Arc<str>, generation: i32) -> Result<(), GroupError> {
        self.heartbeat_of(id, generation, None)
    }

    pub(super) fn heartbeat_of(
        &mut self,
        id: &Arc<str>,
        generation: i32,
        instance: Option<&str>,
    ) -> Result<(), GroupError> {
        let waiter = self.waiter();
        self.step(Event::Heartbeat(Heartbeat {
            waiter,
            group: "g".into(),
            generation,
            member_id: id.clone(),
            instance_id: instance.map(Into::into),
        }));
        match self.answer(waiter) {
            Answer::Heartbeat(result) => result,
            other => panic!("not a heartbeat's answer: {other:?}"),
        }
    }

    /// Leaves one member; the result of that member, or of the request.
    pub(super) fn leave(&mut self, id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        let waiter = self.waiter();
        let member = LeaveMember {
            member_id: id.into(),
            instance_id: instance.map(Into::into),
            reason: None,
        };
        self.step(Event::Leave(Leave { waiter, group: "g".into(), members: vec![member] }));
        match self.answer(waiter) {
            Answer::Leave(result) => result?[0].result,
            other => panic!("not a leave's answer: {other:?}"),
        }
    }

    /// Sends a commit of one offset of partition 0.
    pub(super) fn send_commit(
        &mut self,
        topic: &str,
        offset: i64,
        change: impl FnOnce(&mut Commit),
    ) -> Waiter {
        let waiter = self.waiter();
        let mut commit = Commit {
            waiter,
            group: "g".into(),
            generation: -1,
            member_id: "".into(),
            instance_id: None,
            retention_ms: None,
            knows_group_id_not_found: false,
            partitions: vec![CommitPartition {
                topic: topic.into(),
                partition: 0,
                offset,
                leader_epoch: 3,
                metadata: String::new(),
            }],
        };
        change(&mut commit);
        self.step(Event::Commit(commit));
        waiter
    }

    /// The result of a commit: of its first partition, or of the request.
    pub(super) fn committed(&mut self, waiter: Waiter) -> Result<(), GroupError> {
        match self.answer(waiter) {
            Answer::Commit(result) => result?[0],
            other => panic!("not a commit's answer: {other:?}"),
        }
    }

    /// What a fetch of the offset of partition 0 says.
    pub(super) fn offset(&self, topic: &str) -> Option<i64> {
        self.offset_in("g", topic)
    }

    pub(super) fn offset_in(&self, group: &str, topic: &str) -> Option<i64> {
        match self.groups.committed(group, topic, 0) {
            OffsetRead::Committed(offset) => Some(offset.offset),
            OffsetRead::None => None,
        }
    }

    /// A stable group of so many dynamic members, in the order of their ids; the first one leads.
    pub(super) fn stable(&mut self, members: usize) -> Vec<Joined> {
        let sent: Vec<_> = (0..members).map(|_| self.send_new_join().1).collect();
        self.gather();
        let mut joined: Vec<_> =
            sent.into_iter().map(|waiter| self.joined(waiter).unwrap()).collect();
        joined.sort_by_key(|joined| joined.leader != joined.member_id);
        self.sync_all(&joined);
        joined
    }

    /// Everybody syncs; each is assigned its own id.
    pub(super) fn sync_all(&mut self, joined: &[Joined]) {
        let own: Vec<_> = joined.iter().map(|j| (&j.member_id, &*j.member_id)).collect();
        let sent: Vec<_> = joined
            .iter()
            .map(|j| self.sync(j, if j.leader == j.member_id { &own } else { &[] }))
            .collect();
        self.settle();
        for (waiter, joined) in sent.into_iter().zip(joined) {
            assert_eq!(self.synced(waiter).unwrap().assignment, joined.member_id.as_bytes());
        }
    }
}

/// A protocol of the consumer kind, with a subscription of version 1.
pub(super) fn protocol(name: &str, topics: &[&str]) -> Protocol {
    let mut metadata = BytesMut::new();
    metadata.put_i16(1);
    metadata.put_i32(i32::try_from(topics.len()).unwrap());
    for topic in topics {
        metadata.put_i16(i16::try_from(topic.len()).unwrap());
        metadata.put_slice(topic.as_bytes());
    }
    metadata.put_i32(-1);
    metadata.put_i32(0);
    Protocol { name: name.into(), metadata: metadata.freeze() }
}
