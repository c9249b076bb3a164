//! What can happen in a run.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::writes::Purpose;
use crate::{AppendError, DeleteGroup, DeleteOffsets, Event, Waiter};

use super::client::Doing;
use super::planted::Planted;
use super::run::{APPEND_MS, CHECK_MS, Run};

impl Run {
    pub(super) fn client_acts(&mut self) -> Result<(), String> {
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

    pub(super) fn commit(&mut self, index: usize, waiter: Waiter) -> Event {
        self.value += 1;
        let topic = if self.rng.percent(80) { "t" } else { "u" };
        let group = self.clients[index].group.clone();
        let key = (group.clone(), topic.into());
        self.checks.deleted.remove(&key);
        self.deletions.values_mut().for_each(|keys| {
            keys.remove(&key);
        });
        self.commits.insert(waiter, (group, topic.into(), self.value, self.world.moment().wall_ms));
        self.clients[index].commit(waiter, topic, self.value)
    }

    pub(super) fn advance(&mut self, ms: u64) -> Result<(), String> {
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

    /// The coordinator's process stands still, and its clients' requests wait.
    pub(super) fn stall(&mut self) -> Result<(), String> {
        let ms = crate::STALL_MS + 1 + self.rng.below(20_000);
        self.seen.count("stall");
        self.world.now_ms += ms;
        self.world.asked.values_mut().for_each(|asked_ms| *asked_ms += ms);
        self.open.iter_mut().for_each(|open| open.ordered_ms += ms);
        self.client_acts()
    }

    pub(super) fn log_answers(&mut self) -> Result<(), String> {
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

    /// The log tells the outcome of an append: in it or not, or that it does not know.
    pub(super) fn complete(&mut self, index: usize, mut succeeds: bool) -> Result<(), String> {
        let write = self.open[index].append.write;
        // New ids of static members and tombstones do not: memory would rightly say another thing than the log.
        let may_land = matches!(
            self.world.groups.purpose_of(write),
            Some(Purpose::Commit { .. } | Purpose::Assignment { .. } | Purpose::Empty { .. })
        );
        let lands = succeeds || (may_land && self.rng.percent(50));
        if lands && !succeeds {
            self.seen.count("landed untold");
        }
        self.open[index].outcome = Some(succeeds);
        self.open[index].lands = lands;
        while let Some(open) = self.open.front()
            && open.outcome.is_some()
        {
            if open.lands {
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

    pub(super) fn connection_ends(&mut self) -> Result<(), String> {
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

    pub(super) fn operator_acts(&mut self) -> Result<(), String> {
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
        let all = ["a", "b"].into_iter().flat_map(|g| ["t", "u"].map(|t| (g.into(), t.into())));
        let hit: BTreeSet<_> = all.filter(|(g, t)| is_hit(g, t)).collect();
        let groups = &self.world.groups.table.groups;
        if hit.iter().any(|(g, t)| groups.get(g).and_then(|g| g.offsets.held(t, 0)) == Some(&None))
        {
            self.seen.count("deleted in doubt");
        }
        let event = match what {
            0 => {
                let waiter = self.world.waiter();
                self.deletions.insert(waiter, hit);
                Event::DeleteGroup(DeleteGroup { waiter, group })
            }
            1 => {
                let waiter = self.world.waiter();
                self.deletions.insert(waiter, hit);
                Event::DeleteOffsets(DeleteOffsets { waiter, group, partitions: vec![(topic, 0)] })
            }
            _ => Event::TopicsDeleted(vec![topic]),
        };
        self.event(event)
    }

    /// Another broker leads the partition. What was not told may be in the log or not, but without gaps before what
    /// was.
    pub(super) fn coordinator_changes(&mut self) -> Result<(), String> {
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
            if index < survive && (open.outcome.is_none() || open.lands) {
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
}
