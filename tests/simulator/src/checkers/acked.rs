//! I6: what was acknowledged at acks=all is in the log of every leader of a later epoch.

use barnabas_types::{FlushMode, LeaderEpoch, Offset, TopicName};

use super::{Checkers, Deletion, History, Life, Promise};
use crate::disk::{Directory, Record};

impl Checkers {
    /// A produce at acks=all succeeded at a leader of this epoch in this mode. `true`: after a change to sync that its leader
    /// had confirmed.
    pub fn acked(
        &mut self,
        life: &Life,
        (epoch, mode): (LeaderEpoch, FlushMode),
        base: Offset,
        records: &[Record],
    ) -> bool {
        let Some(history) = self.histories.get_mut(life) else { return false };
        let mut missing = None;
        let after_switch = history.sync_confirmed.is_some_and(|confirmed| confirmed <= epoch)
            && history.async_wishes == 0;
        for (index, record) in records.iter().enumerate() {
            let offset = base.0 + index as i64;
            let flushed = history.flushed_by(mode);
            let promise = Promise { record: *record, made_in: epoch, flushed };
            if let Some((later, log)) = &history.newest_leader
                && *later > epoch
                && !holds(log, offset, &promise)
            {
                if !history.excused(&promise, *later) {
                    missing = Some((offset, *later));
                }
                continue;
            }
            history.acked.insert((offset, epoch), promise);
        }
        if let Some((offset, later)) = missing {
            self.broken(
                "I6",
                format!(
                    "{} offset {offset}: acknowledged in epoch {epoch}, while the leader of epoch {later} began without it",
                    life.0
                ),
            );
        }
        if after_switch && mode == FlushMode::Async {
            self.broken(
                "R37",
                format!(
                    "{} epoch {epoch}: acknowledged in async mode after sync was confirmed",
                    life.0
                ),
            );
        }
        after_switch
    }

    /// A producer was told that its sequences have a gap, by a leader of the epoch `told_in`, though what comes before its
    /// request was acknowledged. No promise holds across an unclean election: whoever it deposed cannot be asked for in a roll call.
    pub fn gap_told(
        &mut self,
        life: &Life,
        (broker, told_in): (usize, LeaderEpoch),
        (offset, made_in): (Offset, LeaderEpoch),
    ) {
        let Some(history) = self.histories.get(life) else { return };
        if history.unclean.iter().any(|unclean| told_in < *unclean && *unclean <= made_in) {
            return;
        }
        // A promise that is remembered no more was excused already.
        let promise = history.acked.get(&(offset.0, made_in));
        if promise.is_some_and(|promise| !history.excused(promise, history.newest.0)) {
            let text = format!(
                "{} broker {}: tells a producer of a gap, but offset {offset} was acknowledged in epoch {made_in} before its \
                 request",
                life.0,
                broker + 1
            );
            self.broken("R11", text);
        }
    }

    /// `flush.mode` was stored.
    pub fn mode_stored(&mut self, topic: &TopicName, czxid: i64, mode: FlushMode) {
        for (life, history) in &mut self.histories {
            if life.0.topic == *topic && life.1 == czxid && history.config.flush_mode != mode {
                history.config.flush_mode = mode;
                history.async_times += u32::from(mode == FlushMode::Async);
            }
        }
    }

    /// An operator asks for a `flush.mode`.
    pub fn mode_wished(&mut self, topic: &TopicName, mode: FlushMode) {
        for (_, history) in self.histories.iter_mut().filter(|(life, _)| life.0.topic == *topic) {
            if mode == FlushMode::Async {
                history.sync_confirmed = None;
                history.async_wishes += 1;
            }
        }
    }

    /// The wish for async was answered, so that no write of it is under way any more.
    pub fn async_answered(&mut self, topic: &TopicName) {
        for (_, history) in self.histories.iter_mut().filter(|(life, _)| life.0.topic == *topic) {
            history.async_wishes = history.async_wishes.saturating_sub(1);
        }
    }

    /// The operator is told that every leader acts in sync mode.
    pub fn sync_confirmed(&mut self, topic: &TopicName, czxid: i64) {
        for (life, history) in &mut self.histories {
            let undone = history.config.flush_mode == FlushMode::Async || history.async_wishes > 0;
            if life.0.topic == *topic && life.1 == czxid && !undone {
                history.sync_confirmed = Some(history.newest.0);
            }
        }
    }

    /// A deletion was ordered that the log of one replica allowed: nobody's log may begin above the greatest of them.
    pub fn deletion_ordered(&mut self, life: &Life, to: Offset) {
        if let Some(history) = self.histories.get_mut(life) {
            history.deletable_to = history.deletable_to.max(to);
        }
    }

    /// A deletion was acknowledged (DR) by the leader of this epoch, whose last record is of `last_epoch`.
    pub fn deletion_acked(
        &mut self,
        life: &Life,
        (epoch, last_epoch): (LeaderEpoch, Option<LeaderEpoch>),
        to: Offset,
    ) {
        let host_crashes = self.host_crashes;
        let Some(history) = self.histories.get_mut(life) else { return };
        let wrote_nothing = last_epoch.is_none_or(|last| last < epoch);
        let deletion = Deletion { to, made_in: epoch, wrote_nothing, host_crashes };
        history.deletions.push(deletion);
    }

    /// Whether a leader of an earlier epoch has acknowledged a deletion.
    #[must_use]
    pub fn has_deletion_before(&self, life: &Life, epoch: LeaderEpoch) -> bool {
        let history = self.histories.get(life);
        history.is_some_and(|h| h.deletions.iter().any(|d| d.made_in < epoch))
    }

    /// A leader begins: what was promised before is in its log, or its loss is allowed.
    pub fn leader_begins(
        &mut self,
        life: &Life,
        epoch: LeaderEpoch,
        (broker, process): (usize, u32),
        directory: &Directory,
    ) {
        self.claimed(life, epoch, broker, process);
        self.whole_log(life, broker, directory);
        let Some(history) = self.histories.get_mut(life) else { return };
        let log = &directory.records;
        let mut lossy = history.unclean.contains(&epoch);
        let mut broken = Vec::new();
        let host_crashes = self.host_crashes;
        if let Some(text) = deleted_in(history, epoch, directory, host_crashes, &mut lossy) {
            broken.push(("DR", text));
        }
        if let Some(text) = acked_in(history, epoch, log, &mut lossy) {
            broken.push(("I6", text));
        }
        if let Some(text) = visible_in(history, epoch, log, &mut lossy) {
            broken.push(("V", text));
        }
        let newest = history.newest_leader.as_ref().map(|(newest, _)| *newest);
        if newest.is_none_or(|newest| newest < epoch) {
            history.newest_leader = Some((epoch, log.clone()));
            if lossy {
                history.lossy = Some((epoch, log.clone()));
                history.shown.retain(|shown, _| *shown >= epoch);
            }
        }
        self.losses_met += u64::from(lossy);
        for (invariant, text) in broken {
            let text = format!("{} broker {} begins epoch {epoch}: {text}", life.0, broker + 1);
            self.broken(invariant, text);
        }
    }
}

/// Whether the promised record is there, or was deleted: `log` has holes where it was asked to.
fn holds(log: &[Record], offset: i64, promise: &Promise) -> bool {
    let found = usize::try_from(offset).ok().and_then(|at| log.get(at));
    found.is_some_and(|record| record.agrees(&promise.record))
}

/// DR: what was deleted and acknowledged stays deleted.
fn deleted_in(
    history: &mut History,
    epoch: LeaderEpoch,
    directory: &Directory,
    host_crashes: u32,
    lossy: &mut bool,
) -> Option<String> {
    let start = directory.durable_start();
    let back = history.deletions.iter().find(|d| d.made_in < epoch && d.to > start).copied()?;
    if history.excuses_deletion(&back, epoch, host_crashes) {
        history.deletions.retain(|d| d.to <= start);
        *lossy = true;
        return None;
    }
    Some(format!(
        "its log begins at {start}, but the deletion up to {} was acknowledged in epoch {}",
        back.to, back.made_in
    ))
}

fn acked_in(
    history: &mut History,
    epoch: LeaderEpoch,
    log: &[Record],
    lossy: &mut bool,
) -> Option<String> {
    let gone: Vec<((i64, LeaderEpoch), Promise)> = history
        .acked
        .iter()
        .filter(|((offset, _), p)| p.made_in < epoch && !holds(log, *offset, p))
        .map(|(key, p)| (*key, *p))
        .collect();
    let mut text = None;
    for (key, promise) in gone {
        if history.excused(&promise, epoch) {
            history.acked.remove(&key);
            *lossy = true;
        } else if text.is_none() {
            let (offset, made_in) = key;
            text = Some(format!(
                "offset {offset}, acknowledged at acks=all in epoch {made_in}, is not in its log of {} records",
                log.len()
            ));
        }
    }
    text
}

fn visible_in(
    history: &mut History,
    epoch: LeaderEpoch,
    log: &[Record],
    lossy: &mut bool,
) -> Option<String> {
    let gone = history
        .visible
        .iter()
        .enumerate()
        .filter(|(_, p)| !p.record.is_hole())
        .find(|(offset, p)| p.made_in < epoch && !holds(log, *offset as i64, p))
        .map(|(offset, _)| offset)?;
    let text = history.visible[gone..]
        .iter()
        .find(|p| {
            let real = p.made_in < epoch && !p.record.is_hole();
            real && !history.excused(p, epoch) && !history.lost_by_recovery(p, epoch)
        })
        .map(|p| {
            format!(
                "offset {gone} and what follows was shown to consumers in epoch {}, and is not in its log of {} records",
                p.made_in,
                log.len()
            )
        });
    if text.is_none() {
        history.visible.truncate(gone);
        *lossy = true;
    }
    text
}
