//! The coordinator of one partition: loaded from the log, stepped by events, unloaded at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_types::Now;

use crate::answer::Answer;
use crate::effects::Effects;
use crate::error::GroupError;
use crate::event::{Event, Moment, Waiter};
use crate::settings::{STALL_MS, Settings};
use crate::table::Table;
use crate::turn::Turn;
use crate::writes::{Purpose, Writes};

/// All groups of one partition of `__consumer_offsets`, for one leadership of this broker.
#[derive(Clone, PartialEq, Debug)]
pub struct Groups {
    pub(crate) settings: Settings,
    pub(crate) table: Table,
    pub(crate) writes: Writes,
    waiting: BTreeMap<Waiter, Arc<str>>,
    life: Life,
    clock: Clock,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Loading,
    Active,
    Unloaded,
}

/// A clock that stands still while this process does: heartbeats that came during a stall are still unread when it
/// ends, so the members' sessions must not have run on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Clock {
    stood_ms: u64,
    /// Last time shown.
    last: Now,
    /// The latest wake-up that was missed and forgiven: a machine that is always late still gets through its timers.
    forgiven: Now,
}

impl Clock {
    /// The time to go by, if `woken_at` was the time for the next step.
    fn read(&mut self, now: Now, woken_at: Now) -> Now {
        let shown = now.0.saturating_sub(self.stood_ms);
        if shown > woken_at.0.saturating_add(STALL_MS) {
            // The unread heartbeats have the time of a normal delay to be read before the timers are looked at.
            let grace_ms = if woken_at > self.forgiven { STALL_MS } else { 0 };
            let resumed = self.last.max(Now(woken_at.0.saturating_sub(grace_ms)));
            self.forgiven = self.forgiven.max(woken_at);
            self.stood_ms += shown - resumed.0;
            self.last = resumed;
        } else {
            self.last = self.last.max(Now(shown));
        }
        self.last
    }
}

impl Groups {
    /// A coordinator that knows nothing yet: [`Groups::replay`] the log's records, then [`Groups::loaded`].
    #[must_use]
    pub fn loading(settings: Settings) -> Self {
        Self {
            settings,
            table: Table::default(),
            writes: Writes::default(),
            waiting: BTreeMap::new(),
            life: Life::Loading,
            clock: Clock::default(),
        }
    }

    /// The whole log has been replayed: from now on the groups are served. Sessions begin anew, because nobody knows
    /// what heartbeats the last coordinator saw.
    pub fn loaded(&mut self, moment: Moment, effects: &mut Effects) {
        assert_eq!(self.life, Life::Loading, "loaded twice");
        self.life = Life::Active;
        self.clock.last = moment.now;
        let mut turn = Turn {
            moment,
            settings: &self.settings,
            writes: &mut self.writes,
            waiting: &mut self.waiting,
            effects,
        };
        self.table.loaded(&mut turn);
    }

    /// Handles one event; what is to be done is added to `effects`. Client requests before [`Groups::loaded`] and after
    /// [`Groups::unload`] are refused.
    ///
    /// # Panics
    /// On a broken invariant: the shell unloads the partition.
    pub fn step(&mut self, moment: Moment, event: Event, effects: &mut Effects) {
        let error = match self.life {
            Life::Active => None,
            Life::Loading => Some(GroupError::CoordinatorLoadInProgress),
            Life::Unloaded => Some(GroupError::NotCoordinator),
        };
        if let Some(error) = error {
            effects.answers.extend(event.refused(error));
            return;
        }
        let now = self.clock.read(moment.now, self.table.wake_at());
        let mut turn = Turn {
            moment: Moment { now, ..moment },
            settings: &self.settings,
            writes: &mut self.writes,
            waiting: &mut self.waiting,
            effects,
        };
        // What the client just said counts before the time that has passed: a heartbeat in time saves its member.
        self.table.step(&mut turn, event);
        self.table.tick(&mut turn);
    }

    /// When to step next at the latest, with [`Event::Tick`]; `None`: nothing to wait for. Valid until the next step.
    #[must_use]
    pub fn wake_at(&self) -> Option<Now> {
        let at = self.table.wake_at().0.saturating_add(self.clock.stood_ms);
        (self.life == Life::Active).then_some(Now(at))
    }

    /// This broker coordinates the partition no more: everybody who waits is sent to find the new coordinator. Nothing
    /// is kept.
    pub fn unload(&mut self, effects: &mut Effects) {
        let error = GroupError::NotCoordinator;
        let mut joins = BTreeSet::new();
        for group in self.table.groups.values() {
            for (id, member) in &group.roster.members {
                if let Some(waiter) = member.join {
                    joins.insert((waiter, id.clone()));
                }
                effects
                    .answers
                    .extend(member.sync.map(|waiter| (waiter, Answer::Sync(Err(error)))));
            }
            let rejoins = group.rejoins.iter().filter(|rejoin| !rejoin.gone);
            joins.extend(rejoins.map(|rejoin| (rejoin.join.waiter, "".into())));
        }
        for (waiter, member_id) in joins {
            let refused = crate::answer::JoinRefused { error, member_id };
            effects.answers.push((waiter, Answer::Join(Err(refused))));
        }
        for write in self.writes.take() {
            match write.purpose {
                Purpose::Commit { waiter, .. } => {
                    effects.answers.push((waiter, Answer::Commit(Err(error))));
                }
                Purpose::Tombstones(tombstones) => {
                    effects.answers.extend(
                        tombstones.answer.map(|(waiter, answer)| (waiter, answer.failed(error))),
                    );
                }
                Purpose::Assignment { .. } | Purpose::Empty { .. } | Purpose::Rejoins { .. } => {}
            }
        }
        self.table = Table::default();
        self.waiting.clear();
        self.life = Life::Unloaded;
    }

    /// Requests that wait for an answer: joins and syncs, and whatever waits for an append.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.writes.len()
    }
}
