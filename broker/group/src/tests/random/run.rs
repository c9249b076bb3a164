//! One seeded run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::group::Phase;
use crate::tests::world::{World, settings};
use crate::writes::Purpose;
use crate::{Answer, Append, Event, GroupError, OffsetsRecord, Settings, Waiter};

use super::checks::{Checks, Key, same_after_restart};
use super::client::Client;
use super::planted::Planted;
use super::prng::Prng;
use super::seen::Seen;

const CLIENTS: usize = 8;
const SIZE_MAX: usize = 5;
const RETENTION_MS: u64 = 60_000;
pub(super) const CHECK_MS: u64 = 1_000;
/// The log answers within this.
pub(super) const APPEND_MS: u64 = 5_000;
/// Rebalance timeouts of the clients and the first delay are below.
const PHASE_MS: u64 = 13_000;

/// An append that is not settled in the log.
pub(super) struct Open {
    pub(super) append: Append,
    pub(super) ordered_ms: u64,
    /// `None`: not told yet.
    pub(super) outcome: Option<bool>,
    /// Whether it is in the log, once it is told; what failed may be.
    pub(super) lands: bool,
}

pub(super) struct Run {
    pub(super) world: World,
    pub(super) rng: Prng,
    pub(super) planted: Option<Planted>,
    pub(super) clients: Vec<Client>,
    pub(super) open: VecDeque<Open>,
    /// What certainly is in the log.
    pub(super) log: Vec<OffsetsRecord>,
    pub(super) term: u64,
    pub(super) checks: Checks,
    pub(super) seen: Seen,
    pub(super) owners: BTreeMap<Waiter, usize>,
    pub(super) commits: BTreeMap<Waiter, (Arc<str>, Arc<str>, i64, i64)>,
    pub(super) value: i64,
    /// What deletions under way delete. A commit in between voids it for its key.
    pub(super) deletions: BTreeMap<Waiter, BTreeSet<Key>>,
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
            deletions: BTreeMap::new(),
        }
    }

    pub(super) fn settings(planted: Option<Planted>) -> Settings {
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
            96..97 => self.operator_acts(),
            97..98 => self.stall(),
            _ => self.coordinator_changes(),
        }
    }

    pub(super) fn event(&mut self, event: Event) -> Result<(), String> {
        self.world.step(event);
        self.plant();
        self.after()
    }

    /// Hears the answers and looks at everything.
    pub(super) fn after(&mut self) -> Result<(), String> {
        let now_ms = self.world.now_ms;
        let new = std::mem::take(&mut self.world.open);
        self.open.extend(new.into_iter().map(|append| Open {
            append,
            ordered_ms: now_ms,
            outcome: None,
            lands: false,
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

    pub(super) fn answered(&mut self, waiter: Waiter, answer: &Answer) -> Result<(), String> {
        let owner = self.owners.remove(&waiter);
        let commit = self.commits.remove(&waiter);
        let deletion = self.deletions.remove(&waiter).unwrap_or_default();
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
            Answer::DeleteGroup(Ok(())) => {
                self.seen.count("group deleted");
                self.checks.deleted.extend(deletion);
            }
            Answer::DeleteOffsets(Ok(results)) if results[0].is_ok() => {
                self.seen.count("offset deleted");
                self.checks.deleted.extend(deletion);
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
            Some(Planted::ForgottenDoubts) => {
                let doubts: Vec<_> = group
                    .offsets
                    .keys()
                    .filter(|(_, _, held)| held.is_none())
                    .map(|(topic, partition, _)| (topic.clone(), partition))
                    .collect();
                for (topic, partition) in doubts {
                    group.offsets.remove(&topic, partition);
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
    pub(super) fn take_for_present(&mut self, write: crate::WriteId) {
        let purpose = self.world.groups.purpose_of(write);
        let Some(Purpose::Assignment { group, .. }) = purpose else { return };
        if let Some(group) = self.world.groups.table.groups.get_mut(&group)
            && let Phase::Completing { storing, .. } = &mut group.phase
        {
            *storing = Some(write);
        }
    }
}
