//! One seeded run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::group::Phase;
use crate::tests::world::{World, settings};
use crate::writes::Purpose;
use crate::{
    Answer, Append, AppendError, DeleteGroup, DeleteOffsets, Event, GroupError, OffsetsRecord,
    Settings, Waiter,
};

use super::checks::{Checks, same_after_restart};
use super::client::{Client, Doing};
use super::planted::Planted;
use super::prng::Prng;

const CLIENTS: usize = 8;
const SIZE_MAX: usize = 5;
const RETENTION_MS: u64 = 60_000;
const CHECK_MS: u64 = 1_000;
/// The log answers within this.
const APPEND_MS: u64 = 5_000;
/// Rebalance timeouts of the clients and the first delay are below.
const PHASE_MS: u64 = 13_000;

/// How often things happened.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Seen(BTreeMap<&'static str, u64>);

impl Seen {
    const WANTED: [&'static str; 16] = [
        "joined",
        "assigned",
        "committed",
        "commit failed",
        "fenced",
        "full",
        "fifth generation",
        "static member back",
        "restart with open appends",
        "append failed",
        "out of order",
        "gone",
        "group deleted",
        "offset deleted",
        "dead",
        "removed",
    ];

    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        Self::WANTED.iter().map(|what| (*what, self.0.get(what).copied().unwrap_or(0))).collect()
    }
}

/// An append that is not settled in the log.
struct Open {
    append: Append,
    ordered_ms: u64,
    /// `None`: not told yet.
    outcome: Option<bool>,
}

pub(super) struct Run {
    world: World,
    rng: Prng,
    planted: Option<Planted>,
    clients: Vec<Client>,
    open: VecDeque<Open>,
    /// What certainly is in the log.
    log: Vec<OffsetsRecord>,
    term: u64,
    checks: Checks,
    pub(super) seen: Seen,
    owners: BTreeMap<Waiter, usize>,
    commits: BTreeMap<Waiter, (Arc<str>, Arc<str>, i64, i64)>,
    value: i64,
}

impl Run {
    pub(super) fn new(seed: u64, planted: Option<Planted>) -> Self {
        let mut rng = Prng(seed);
        let clients = (0..CLIENTS).map(|index| Client::new(&mut rng, index)).collect();
        Self {
            world: World::with(Self::settings(planted)),
            rng,
            planted,
            clients,
            open: VecDeque::new(),
            log: Vec::new(),
            term: 1,
            checks: Checks::default(),
            seen: Seen::default(),
            owners: BTreeMap::new(),
            commits: BTreeMap::new(),
            value: 0,
        }
    }

    fn settings(planted: Option<Planted>) -> Settings {
        let early = if planted == Some(Planted::EarlyExpiry) { 20 } else { 1 };
        let more = if planted == Some(Planted::SizeIgnored) { 2 } else { 0 };
        Settings {
            group_size_max: SIZE_MAX + more,
            offsets_retention_ms: RETENTION_MS / early,
            retention_check_interval_ms: CHECK_MS,
            ..settings()
        }
    }

    pub(super) fn step(&mut self) -> Result<(), String> {
        match self.rng.below(100) {
            0..58 => self.client_acts(),
            58..78 => {
                let most = if self.rng.percent(5) { 15_000 } else { 2_000 };
                let ms = self.rng.below(most);
                self.advance(ms)
            }
            78..93 => self.log_answers(),
            93..96 => self.connection_ends(),
            96..98 => self.operator_acts(),
            _ => self.coordinator_changes(),
        }
    }

    fn event(&mut self, event: Event) -> Result<(), String> {
        self.world.step(event);
        self.plant();
        self.after()
    }

    /// Hears the answers and looks at everything.
    fn after(&mut self) -> Result<(), String> {
        let now_ms = self.world.now_ms;
        let new = std::mem::take(&mut self.world.open);
        self.open.extend(new.into_iter().map(|append| Open {
            append,
            ordered_ms: now_ms,
            outcome: None,
        }));
        for (waiter, answer) in std::mem::take(&mut self.world.answers) {
            self.answered(waiter, &answer)?;
        }
        for (waiter, asked_ms) in &self.world.asked {
            let bound_ms = PHASE_MS + 3 * APPEND_MS;
            if now_ms - asked_ms > bound_ms {
                return Err(format!("{waiter:?} has waited for {} ms", now_ms - asked_ms));
            }
        }
        let retention_ms = i64::try_from(RETENTION_MS).unwrap();
        let wall_ms = self.world.moment().wall_ms;
        for group in self.world.groups.table.groups.values() {
            if group.phase == Phase::Dead {
                self.seen.count("dead");
            }
            if group.generation >= 5 {
                self.seen.count("fifth generation");
            }
        }
        self.checks.every_step(&self.world.groups, SIZE_MAX, wall_ms, retention_ms)
    }

    fn answered(&mut self, waiter: Waiter, answer: &Answer) -> Result<(), String> {
        let owner = self.owners.remove(&waiter);
        let commit = self.commits.remove(&waiter);
        match answer {
            Answer::Join(Ok(joined)) => {
                self.seen.count("joined");
                if joined.skip_assignment {
                    self.seen.count("static member back");
                }
            }
            Answer::Join(Err(refused)) => match refused.error {
                GroupError::FencedInstanceId => self.seen.count("fenced"),
                GroupError::GroupMaxSizeReached => self.seen.count("full"),
                GroupError::UnknownMemberId => self.seen.count("removed"),
                _ => {}
            },
            Answer::Sync(Ok(synced)) => {
                let client = owner.map(|owner| &self.clients[owner]);
                if let Some((client, joined)) =
                    client.and_then(|c| c.joined.as_ref().map(|joined| (c, joined)))
                {
                    let (group, generation) = (client.group.clone(), joined.generation);
                    self.checks.assigned(self.term, &group, generation, &synced.assignment)?;
                }
                self.seen.count("assigned");
            }
            Answer::Commit(Ok(results)) if results[0].is_ok() => {
                self.seen.count("committed");
                if let Some((group, topic, value, wall_ms)) = commit {
                    self.checks.acknowledged.insert((group, topic), (value, wall_ms));
                }
            }
            Answer::Commit(_) => self.seen.count("commit failed"),
            Answer::DeleteGroup(Ok(())) => self.seen.count("group deleted"),
            Answer::DeleteOffsets(Ok(results)) if results[0].is_ok() => {
                self.seen.count("offset deleted")
            }
            Answer::Sync(Err(_))
            | Answer::Heartbeat(_)
            | Answer::Leave(_)
            | Answer::DeleteGroup(Err(_))
            | Answer::DeleteOffsets(_) => {}
        }
        if let Some(client) = owner.map(|owner| &mut self.clients[owner]) {
            // What it asked before it did something else does not matter to it any more.
            if client.waits().is_none_or(|waits| waits == waiter) {
                client.hear(answer);
            }
        }
        Ok(())
    }

    fn client_acts(&mut self) -> Result<(), String> {
        let index = self.rng.index(self.clients.len());
        let waiter = self.world.waiter();
        let client = &mut self.clients[index];
        let event = match client.doing {
            Doing::Idle if client.joined.is_some() => client.sync(waiter),
            Doing::Idle if self.rng.percent(10) => Some(self.commit(index, waiter)),
            Doing::Idle => Some(client.join(waiter)),
            // Somebody else with the same instance id, or the same client on another connection.
            Doing::Joining(_) if self.rng.percent(5) => Some(client.join(waiter)),
            Doing::Joining(_) | Doing::Syncing(_) => None,
            Doing::Member => match self.rng.below(20) {
                0 => Some(client.leave(waiter)),
                1 => {
                    client.restart();
                    None
                }
                2 => {
                    client.topics =
                        if client.topics.len() == 1 { vec!["t", "u"] } else { vec!["t"] };
                    Some(client.join(waiter))
                }
                3 => Some(client.join(waiter)),
                4..10 => Some(self.commit(index, waiter)),
                _ => client.heartbeat(waiter),
            },
        };
        let Some(event) = event else {
            self.world.asked.remove(&waiter);
            return Ok(());
        };
        self.owners.insert(waiter, index);
        self.event(event)
    }

    fn commit(&mut self, index: usize, waiter: Waiter) -> Event {
        self.value += 1;
        let topic = if self.rng.percent(80) { "t" } else { "u" };
        let group = self.clients[index].group.clone();
        self.commits.insert(waiter, (group, topic.into(), self.value, self.world.moment().wall_ms));
        self.clients[index].commit(waiter, topic, self.value)
    }

    fn advance(&mut self, ms: u64) -> Result<(), String> {
        let end = self.world.now_ms + ms;
        while let Some(at) = self.world.groups.wake_at().filter(|at| at.0 <= end) {
            self.world.now_ms = at.0.max(self.world.now_ms);
            while let Some(late) = self.open.iter().position(|open| {
                open.outcome.is_none()
                    && self.world.now_ms - open.ordered_ms >= APPEND_MS - CHECK_MS
            }) {
                self.complete(late, true)?;
            }
            self.event(Event::Tick)?;
        }
        self.world.now_ms = end;
        Ok(())
    }

    fn log_answers(&mut self) -> Result<(), String> {
        let untold: Vec<_> =
            (0..self.open.len()).filter(|i| self.open[*i].outcome.is_none()).collect();
        let Some(first) = untold.first().copied() else { return Ok(()) };
        let mut index = first;
        if self.rng.percent(20) {
            index = untold[self.rng.index(untold.len())];
        }
        if index != first {
            self.seen.count("out of order");
        }
        let succeeds = self.rng.percent(85);
        self.complete(index, succeeds)
    }

    /// The log tells the outcome of an append: in it or not.
    fn complete(&mut self, index: usize, mut succeeds: bool) -> Result<(), String> {
        self.open[index].outcome = Some(succeeds);
        let write = self.open[index].append.write;
        while let Some(open) = self.open.front()
            && let Some(outcome) = open.outcome
        {
            if outcome {
                self.log.extend(open.append.records.clone());
            }
            self.open.pop_front();
        }
        if !succeeds {
            self.seen.count("append failed");
        }
        if self.planted == Some(Planted::ConfusedOutcomes) && self.rng.percent(20) {
            succeeds = !succeeds;
        }
        if self.planted == Some(Planted::StaleAssignment) {
            self.take_for_present(write);
        }
        let result = if succeeds { Ok(()) } else { Err(AppendError::NotEnoughReplicas) };
        self.event(Event::Appended { write, result })
    }

    fn connection_ends(&mut self) -> Result<(), String> {
        let index = self.rng.index(self.clients.len());
        let Some(waiter) = self.clients[index].waits() else { return Ok(()) };
        self.seen.count("gone");
        if self.planted != Some(Planted::ForgottenWaiter) {
            self.world.asked.remove(&waiter);
        }
        self.owners.remove(&waiter);
        let client = &mut self.clients[index];
        client.doing = Doing::Idle;
        client.joined = None;
        if self.rng.percent(70) {
            client.restart();
        }
        self.event(Event::Gone(waiter))
    }

    fn operator_acts(&mut self) -> Result<(), String> {
        let group: Arc<str> = if self.rng.percent(50) { "a".into() } else { "b".into() };
        let topic: Arc<str> = if self.rng.percent(50) { "t".into() } else { "u".into() };
        let what = self.rng.below(3);
        let is_hit = |g: &Arc<str>, t: &Arc<str>| match what {
            0 => *g == group,
            1 => *g == group && *t == topic,
            _ => *t == topic,
        };
        self.checks.acknowledged.retain(|(g, t), _| !is_hit(g, t));
        self.commits.retain(|_, (g, t, ..)| !is_hit(g, t));
        let event = match what {
            0 => Event::DeleteGroup(DeleteGroup { waiter: self.world.waiter(), group }),
            1 => {
                let waiter = self.world.waiter();
                Event::DeleteOffsets(DeleteOffsets { waiter, group, partitions: vec![(topic, 0)] })
            }
            _ => Event::TopicsDeleted(vec![topic]),
        };
        self.event(event)
    }

    /// Another broker leads the partition. What was not told may be in the log or not, but without gaps before what was.
    fn coordinator_changes(&mut self) -> Result<(), String> {
        self.world.unload();
        let new = std::mem::take(&mut self.world.answers);
        if self.open.iter().any(|open| open.outcome.is_none()) {
            self.seen.count("restart with open appends");
        }
        let told = self
            .open
            .iter()
            .rposition(|open| open.outcome == Some(true))
            .map_or(0, |last| last + 1);
        let survive = told + self.rng.index(self.open.len() - told + 1);
        for (index, open) in std::mem::take(&mut self.open).into_iter().enumerate() {
            if index < survive && open.outcome != Some(false) {
                self.log.extend(open.append.records);
            }
        }
        for (waiter, answer) in new {
            self.answered(waiter, &answer)?;
        }
        if let Some(waiter) = self.world.asked.keys().next() {
            return Err(format!(
                "{waiter:?} has waited until the end of the coordinator and is not answered"
            ));
        }
        self.term += 1;
        self.checks.new_term();
        let mut log = self.log.clone();
        if self.planted == Some(Planted::PartialLoad) {
            log.truncate(log.len() * 9 / 10);
        }
        self.world.take_over(Self::settings(self.planted), &log);
        self.after()
    }

    /// Everybody goes home.
    pub(super) fn finish(mut self) -> Result<Seen, String> {
        self.settle()?;
        self.compare()?;
        for client in &mut self.clients {
            client.restart();
        }
        self.owners.clear();
        for _ in 0..1_000 {
            if self.world.groups.list().next().is_none() && self.world.asked.is_empty() {
                break;
            }
            self.advance(CHECK_MS)?;
            self.settle()?;
        }
        if let Some(left) = self.world.groups.list().next() {
            return Err(format!(
                "group {left:?} is left: {:?}",
                self.world.groups.describe(&left.group)
            ));
        }
        if !self.world.asked.is_empty() || self.world.groups.waiting() > 0 {
            return Err(format!("{:?} has waited to the end", self.world.asked));
        }
        self.compare()?;
        Ok(self.seen)
    }

    fn settle(&mut self) -> Result<(), String> {
        while let Some(index) = self.open.iter().position(|open| open.outcome.is_none()) {
            self.complete(index, true)?;
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), String> {
        let loaded =
            World::restarted(Self::settings(self.planted), self.log.clone(), self.world.now_ms);
        same_after_restart(&self.world.groups, &loaded.groups)
    }

    /// Does what a planted bug does after a step.
    fn plant(&mut self) {
        let strikes = self.rng.percent(5);
        let table = &mut self.world.groups.table;
        let Some(group) = table.groups.values_mut().next() else { return };
        match self.planted {
            Some(Planted::AcknowledgedOnTheWish) => {
                for append in self.world.open.clone() {
                    self.world.step(Event::Appended { write: append.write, result: Ok(()) });
                }
            }
            Some(Planted::LostTimer) if strikes => group.timer = None,
            Some(Planted::GenerationReset) if group.phase == Phase::Empty && group.recorded => {
                group.generation = 0
            }
            Some(Planted::ForgottenWaiter) if strikes => {
                if let Some(member) =
                    group.roster.members.values_mut().find(|member| member.join.is_some())
                {
                    member.join = None;
                }
            }
            Some(Planted::StaticMemberTwice) if strikes => {
                let fixed =
                    group.roster.members.iter().find(|(_, member)| member.instance_id.is_some());
                if let Some((id, member)) = fixed.map(|(id, member)| (id.clone(), member.clone())) {
                    let twin = crate::roster::Member { join: None, sync: None, ..member };
                    group.roster.insert(format!("{id}-twin").into(), twin);
                }
            }
            _ => {}
        }
    }

    /// Lets a late acknowledgement of an assignment count for whatever generation is being completed.
    fn take_for_present(&mut self, write: crate::WriteId) {
        let purpose = self.world.groups.purpose_of(write);
        let Some(Purpose::Assignment { group, .. }) = purpose else { return };
        if let Some(group) = self.world.groups.table.groups.get_mut(&group)
            && let Phase::Completing { storing, .. } = &mut group.phase
        {
            *storing = Some(write);
        }
    }
}
