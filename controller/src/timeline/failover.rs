//! One failover under observation, and the record that it makes.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_proto::convert::LeaderServed;
use barnabas_proto::v1;
use barnabas_types::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition};

use super::step::{Cause, Step};
use super::{
    DIRECTORIES_WITHIN_US, Moment, NOTHING_AFTER_US, SERVED_WITHIN_MAX_US, TELL_AGAIN_AFTER_US,
};

/// What a write does to a partition on account of the failover.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// It gets another leader, or none.
    Moved,
    /// The broker leaves its ISR.
    Shrunk,
    /// Something else, of a partition that has not recovered yet.
    Other,
}

/// A partition's state before and after a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Written {
    pub(super) partition: TopicPartition,
    pub(super) isr_before: usize,
    pub(super) isr_after: Vec<BrokerId>,
    pub(super) assigned: Vec<BrokerId>,
    pub(super) leader: Option<BrokerId>,
    pub(super) leader_epoch: LeaderEpoch,
}

/// The new leader of a partition, and what it has told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Moved {
    leader: BrokerId,
    leader_epoch: LeaderEpoch,
    /// It came about when everybody knew the first round.
    late: bool,
    appended: bool,
    acked: bool,
}

/// First and last of what leaders tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Extremes {
    first: Option<Told>,
    last: Option<Told>,
    count: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    us: i64,
    leader: BrokerId,
    partition: TopicPartition,
    since_push_ms: u64,
}

impl Extremes {
    fn add(&mut self, told: Told) {
        self.count += 1;
        if self.first.as_ref().is_none_or(|first| told.us < first.us) {
            self.first = Some(told.clone());
        }
        if self.last.as_ref().is_none_or(|last| told.us >= last.us) {
            self.last = Some(told);
        }
    }
}

/// When a push was given to each broker's stream, if that was seen, and when it was acknowledged.
type Pushes = BTreeMap<BrokerId, (Option<i64>, i64)>;

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failover {
    /// From 1 in each term.
    pub(super) number: u32,
    pub(super) broker: BrokerId,
    pub(super) broker_epoch: Option<BrokerEpoch>,
    pub(super) cause: Cause,
    pub(super) was_controller: bool,
    /// What happens to the broker from now on is another failover.
    pub(super) over: bool,
    pub(super) suspicion_was_wrong: bool,
    opened: Moment,
    steps: BTreeMap<Step, i64>,
    /// Writes under way that take something from the broker.
    writes_open: usize,
    /// The image that all live brokers must know.
    version: Option<u64>,
    /// When it was given to each broker's stream, and when it was acknowledged: the first round of what follows from the failure.
    pushed: Pushes,
    /// The same of what followed later, for instance from the end of a session when the suspicion had moved the rest.
    late_pushed: Pushes,
    known_everywhere: bool,
    /// Something was taken from the broker and everybody knew it: its figures stay as they are.
    first_round_over: bool,
    moved: BTreeMap<TopicPartition, Moved>,
    /// Without a leader now.
    leaderless: BTreeSet<TopicPartition>,
    /// Led by the suspected broker still, because nobody else could.
    stuck: BTreeSet<TopicPartition>,
    /// All that ever were one of the two.
    left_leaderless: BTreeSet<TopicPartition>,
    shrunk: BTreeSet<TopicPartition>,
    /// How many ISR members each partition had before; those of which the broker is a member again are gone from here.
    restoring: BTreeMap<TopicPartition, usize>,
    appends: Extremes,
    acks: Extremes,
    late_appends: Extremes,
    late_acks: Extremes,
    told_us: Option<i64>,
    /// It was told since everybody knew what follows from it.
    told_whole: bool,
    news: bool,
}

impl Failover {
    pub(super) fn new(
        number: u32,
        broker: (BrokerId, Option<BrokerEpoch>),
        cause: Cause,
        at: Moment,
    ) -> Self {
        Self {
            number,
            broker: broker.0,
            broker_epoch: broker.1,
            cause,
            was_controller: false,
            over: false,
            suspicion_was_wrong: false,
            opened: at,
            steps: BTreeMap::new(),
            writes_open: 0,
            version: None,
            pushed: Pushes::new(),
            late_pushed: Pushes::new(),
            known_everywhere: false,
            first_round_over: false,
            moved: BTreeMap::new(),
            leaderless: BTreeSet::new(),
            stuck: BTreeSet::new(),
            left_leaderless: BTreeSet::new(),
            shrunk: BTreeSet::new(),
            restoring: BTreeMap::new(),
            appends: Extremes::default(),
            acks: Extremes::default(),
            late_appends: Extremes::default(),
            late_acks: Extremes::default(),
            told_us: None,
            told_whole: false,
            news: true,
        }
    }

    /// Notes the first time of a step.
    pub(super) fn reached(&mut self, step: Step, us: Option<i64>) {
        if let Some(us) = us
            && !self.steps.contains_key(&step)
        {
            self.steps.insert(step, us);
            self.news = true;
        }
    }

    /// Whether another failure of the same broker, which loses ISR entries of this epoch by it, belongs to it. A broker that cannot
    /// serve some replicas lives on: what happens to it much later, or in another life, is a failure of its own.
    pub(super) fn joins(&self, entry: BrokerEpoch, at: Moment) -> bool {
        let same_life = self.broker_epoch.is_none_or(|epoch| epoch == entry);
        let lives_on = self.cause == Cause::FailedReplicas;
        let soon = at.us - self.opened.us <= DIRECTORIES_WITHIN_US;
        !self.over && (!lives_on || (same_life && soon))
    }

    /// The broker has acknowledged something under `epoch`: what ends its failover.
    pub(super) fn heard_of(&mut self, epoch: BrokerEpoch) -> bool {
        let ends = match self.cause {
            Cause::Drain => false,
            Cause::FailedReplicas => self.broker_epoch.is_some_and(|known| known != epoch),
            Cause::Suspicion | Cause::SessionEnd | Cause::Restart => true,
        };
        let now = ends && !self.over;
        self.over |= ends;
        now
    }

    /// Whether a change of this partition may be its recovery.
    pub(super) fn waits_for(&self, partition: &TopicPartition) -> bool {
        self.restoring.contains_key(partition) || self.leaderless.contains(partition)
    }

    /// A write was ordered that takes something from the broker.
    pub(super) fn ordered(&mut self, us: i64) {
        self.reached(Step::Decided, Some(us));
        self.writes_open += 1;
        self.known_everywhere = false;
    }

    /// It was not applied: what is decided instead is ordered anew.
    pub(super) fn not_written(&mut self, change: Change) {
        if change != Change::Other {
            self.writes_open = self.writes_open.saturating_sub(1);
        }
    }

    /// A write was applied; the image has it from `version` on.
    pub(super) fn written(&mut self, us: i64, change: Change, write: &Written, version: u64) {
        let at = &write.partition;
        match (change, write.leader) {
            (Change::Moved, Some(leader)) => {
                let epoch = write.leader_epoch;
                let late = self.first_round_over;
                let moved =
                    Moved { leader, leader_epoch: epoch, late, appended: false, acked: false };
                self.moved.insert(at.clone(), moved);
                self.leaderless.remove(at);
                self.stuck.remove(at);
            }
            (Change::Moved, None) => {
                self.stuck.remove(at);
                self.leaderless.insert(at.clone());
                self.left_leaderless.insert(at.clone());
                self.steps.remove(&Step::LedAgain);
            }
            (Change::Shrunk, _) => {
                self.shrunk.insert(at.clone());
            }
            (Change::Other, leader) => {
                if leader.is_some() {
                    self.news |= self.leaderless.remove(at);
                }
            }
        }
        if change != Change::Other {
            self.writes_open = self.writes_open.saturating_sub(1);
            self.reached(Step::FirstWritten, Some(us));
            let round = if self.first_round_over { Step::LateWritten } else { Step::Written };
            self.steps.insert(round, us);
            self.steps.remove(&Step::IsrRestored);
            self.must_know(version);
            let before = self.restoring.get(at).copied().unwrap_or(0);
            self.restoring.insert(at.clone(), before.max(write.isr_before));
            self.news = true;
        }
        let back = |before: usize| match write.assigned.contains(&self.broker) {
            true => write.isr_after.contains(&self.broker),
            // Its replica was moved elsewhere meanwhile.
            false => write.isr_after.len() >= before.min(write.assigned.len()),
        };
        if self.restoring.get(at).is_some_and(|before| back(*before)) {
            self.restoring.remove(at);
        }
        self.look_at_isr(us);
    }

    /// The broker is suspected and leads this partition, which nobody else could lead.
    pub(super) fn stuck(&mut self, at: &TopicPartition) {
        self.news |= self.stuck.insert(at.clone());
        self.left_leaderless.insert(at.clone());
        self.steps.remove(&Step::LedAgain);
    }

    /// The suspected broker has answered in the same life: it leads what it led.
    pub(super) fn answered(&mut self, us: i64) {
        self.suspicion_was_wrong = true;
        self.reached(Step::Answered, Some(us));
        self.stuck.clear();
        self.look_at_isr(us);
    }

    /// All live brokers must acknowledge this version of the image.
    pub(super) fn must_know(&mut self, version: u64) {
        if self.version.is_none_or(|known| known < version) {
            self.version = Some(version);
            self.pushes().clear();
            self.known_everywhere = false;
        }
    }

    /// A broker has acknowledged `version`, which was given to its stream at `sent`.
    pub(super) fn acked(&mut self, us: i64, broker: BrokerId, version: u64, sent: Option<i64>) {
        let knows = self.version.is_some_and(|wanted| version >= wanted);
        if knows && !self.known_everywhere && !self.pushes().contains_key(&broker) {
            self.pushes().insert(broker, (sent, us));
            self.news = true;
        }
    }

    /// Those of the round that is under way.
    fn pushes(&mut self) -> &mut Pushes {
        let late = self.steps.contains_key(&Step::LateWritten);
        if late { &mut self.late_pushed } else { &mut self.pushed }
    }

    /// Looks whether all of these live brokers know; `true` once, when that is so.
    pub(super) fn look_at_pushes(&mut self, mut live: impl Iterator<Item = BrokerId>) -> bool {
        if self.known_everywhere || self.writes_open > 0 || self.version.is_none() {
            return false;
        }
        let broker = self.broker;
        let pushes = self.pushes();
        self.known_everywhere = live.all(|b| b == broker || pushes.contains_key(&b));
        self.first_round_over |= self.known_everywhere && !self.is_nothing();
        self.news |= self.known_everywhere;
        self.known_everywhere
    }

    /// The topic is being deleted: nothing of it recovers any more.
    pub(super) fn deleted(&mut self, us: i64, of_topic: impl Fn(&TopicPartition) -> bool) {
        self.restoring.retain(|at, _| !of_topic(at));
        self.leaderless.retain(|at| !of_topic(at));
        self.stuck.retain(|at| !of_topic(at));
        self.look_at_isr(us);
    }

    fn look_at_isr(&mut self, us: i64) {
        let led = self.leaderless.is_empty() && self.stuck.is_empty();
        if led && !self.left_leaderless.is_empty() {
            self.reached(Step::LedAgain, Some(us));
        }
        let whole = self.restoring.is_empty() && led;
        if !self.is_nothing() && whole && self.writes_open == 0 {
            self.reached(Step::IsrRestored, Some(us));
        }
    }

    /// A new leader has told what it has done; `false`: it does not lead by this failover.
    pub(super) fn served(&mut self, us: i64, leader: BrokerId, told: &LeaderServed) -> bool {
        let Some(moved) = self.moved.get_mut(&told.partition) else { return false };
        if (moved.leader, moved.leader_epoch) != (leader, told.leader_epoch) {
            return false;
        }
        let since = *self.steps.get(&Step::FirstWritten).unwrap_or(&i64::MIN);
        let round = if moved.late { Step::LateWritten } else { Step::Written };
        let until = self.steps.get(&round).unwrap_or(&us) + SERVED_WITHIN_MAX_US;
        let at = |since_push_ms: u64| {
            let ago_ms = i64::try_from(told.led_ms - since_push_ms.min(told.led_ms));
            // Its clock tells whole milliseconds.
            let us = us.saturating_sub(ago_ms.unwrap_or(i64::MAX).saturating_mul(1000)).max(since);
            let partition = told.partition.clone();
            Some(Told { us, leader, partition, since_push_ms }).filter(|told| told.us <= until)
        };
        if let Some(append) = told.first_append_ms.filter(|_| !moved.appended).and_then(at) {
            moved.appended = true;
            let of = if moved.late { &mut self.late_appends } else { &mut self.appends };
            of.add(append);
            self.news = true;
        }
        if let Some(ack) = told.first_ack_ms.filter(|_| !moved.acked).and_then(at) {
            moved.acked = true;
            let of = if moved.late { &mut self.late_acks } else { &mut self.acks };
            of.add(ack);
            self.news = true;
        }
        true
    }

    /// Whether nothing is left to be told of it; `true` also of what came to nothing.
    pub(super) fn is_closed(&self, us: i64) -> bool {
        let nothing = self.is_nothing();
        if nothing && !self.was_controller {
            let late = us - self.opened.us > NOTHING_AFTER_US;
            return self.writes_open == 0 && late;
        }
        let restored = nothing || self.steps.contains_key(&Step::IsrRestored);
        let written = [Step::LateWritten, Step::Written].iter().find_map(|s| self.steps.get(s));
        let written = written.copied().unwrap_or(self.opened.us);
        let served = self.moved.values().all(|moved| moved.acked)
            || us.saturating_sub(written) > SERVED_WITHIN_MAX_US;
        // An old controller that is registered may be taken for dead as a broker in a moment.
        let settled = !self.was_controller || self.over || !nothing || {
            us.saturating_sub(self.opened.us) > SERVED_WITHIN_MAX_US
        };
        let led = self.stuck.is_empty();
        // A suspicion that could move nothing leaves nothing to be known.
        let known = self.known_everywhere || self.version.is_none();
        known && restored && led && served && settled && !self.is_owed()
    }

    /// Whether nobody has lost anything by it yet: no write, and no partition that only the suspected broker can lead.
    fn is_nothing(&self) -> bool {
        !self.steps.contains_key(&Step::FirstWritten) && self.left_leaderless.is_empty()
    }

    fn is_owed(&self) -> bool {
        self.news && (self.was_controller || !self.steps.is_empty())
    }

    /// When it is to be told next. At once when it is decided: if this controller fails, too, nobody else knows of it. Then when all
    /// know, and after that at intervals.
    pub(super) fn due_us(&self) -> Option<i64> {
        let begun = !self.is_nothing() || self.was_controller || self.writes_open > 0;
        if !self.news || !begun {
            return None;
        }
        Some(match self.told_us {
            None => i64::MIN,
            Some(_) if self.known_everywhere && !self.told_whole => i64::MIN,
            Some(told) => told + TELL_AGAIN_AFTER_US,
        })
    }

    /// The record as it stands; it counts as told.
    pub(super) fn tell(
        &mut self,
        us: i64,
        controller: (BrokerId, ControllerEpoch),
    ) -> v1::Failover {
        (self.told_us, self.news) = (Some(us), false);
        self.told_whole |= self.known_everywhere;
        let mut found: Vec<(i64, Step, v1::FailoverPhase)> = Vec::new();
        let mut add = |us: i64, step: Step, phase: v1::FailoverPhase| {
            let name = step.as_str().to_owned();
            found.push((us, step, v1::FailoverPhase { name, ..phase }));
        };
        for (step, us) in &self.steps {
            add(*us, *step, v1::FailoverPhase::default());
        }
        let zero_us = self.steps.values().copied().min().unwrap_or(self.opened.us);
        let since_zero = |us: i64| u64::try_from(us.saturating_sub(zero_us)).unwrap_or(0);
        for (step, pushes) in [(Step::Pushed, &self.pushed), (Step::LatePushed, &self.late_pushed)]
        {
            for (broker, (sent, acked)) in pushes {
                let (broker_id, sent_us) = (Some(broker.0), sent.map(since_zero));
                let phase = v1::FailoverPhase { broker_id, sent_us, ..Default::default() };
                add(*acked, step, phase);
            }
        }
        for (step, told) in [
            (Step::FirstAppend, &self.appends.first),
            (Step::LastAppend, &self.appends.last),
            (Step::FirstAck, &self.acks.first),
            (Step::LastAck, &self.acks.last),
            (Step::LateAck, &self.late_acks.last),
        ] {
            let Some(told) = told else { continue };
            let phase = v1::FailoverPhase {
                broker_id: Some(told.leader.0),
                topic: Some(told.partition.topic.to_string()),
                partition: Some(told.partition.partition),
                since_push_ms: Some(told.since_push_ms),
                ..Default::default()
            };
            add(told.us, step, phase);
        }
        found.sort_by_key(|(us, step, _)| (*us, *step));
        let phases = found
            .into_iter()
            .map(|(us, _, phase)| v1::FailoverPhase { at_us: since_zero(us), ..phase });
        let before_ms = self.opened.us.saturating_sub(zero_us) / 1000;
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        v1::Failover {
            id: format!("{}-{}", controller.1, self.number),
            at_ms: self.opened.unix_ms.saturating_sub(before_ms),
            cause: self.cause.as_str().to_owned(),
            was_controller: self.was_controller,
            broker_id: self.broker.0,
            broker_epoch: self.broker_epoch.map(|epoch| epoch.0),
            controller_id: controller.0.0,
            controller_epoch: controller.1.0,
            moved: count(self.moved.len()),
            leaderless: count(self.left_leaderless.len()),
            shrunk: count(self.shrunk.len()),
            appended: self.appends.count + self.late_appends.count,
            acknowledged: self.acks.count + self.late_acks.count,
            suspicion_was_wrong: self.suspicion_was_wrong,
            phases: phases.collect(),
        }
    }
}
