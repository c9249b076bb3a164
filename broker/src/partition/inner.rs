//! A partition's core steps and what they order of the log, in the order in which the core wants it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use barnabas_log::{Fetched, Log, LogError, Loss, LossCause};
use barnabas_replica::{Effects, Event, FetchReply, Note, Replica, Role, WaiterId};
use barnabas_types::{Condition, LeaderEpochs, Now, Offset};
use tokio::sync::oneshot;

use super::aftermath::{Aftermath, FailureKind, LogFailure};
use super::flushing::Flushing;
use super::hosted::Hosted;
use super::leadership::Leadership;
use super::log_start::DeleteResult;
use super::noting::Noting;
use super::ready::Ready;
use super::waiting::{FollowerSession, ParkedFetch, PendingProduce};
use crate::storage::{AckKind, Led, Lost};

/// What a partition's mutex guards.
pub(super) struct Inner {
    pub(super) replica: Replica,
    pub(super) log: Log,
    pub(super) waiters: BTreeMap<WaiterId, Waiter>,
    pub(super) deletions: BTreeMap<WaiterId, oneshot::Sender<DeleteResult>>,
    pub(super) next_waiter: u64,
    pub(super) parked: Vec<Arc<ParkedFetch>>,
    /// Fetches above the log end that wait for a roll call.
    pub(super) doubting: Vec<Arc<ParkedFetch>>,
    pub(super) sessions: Vec<(Arc<dyn FollowerSession>, u32)>,
    /// Clients' fetch sessions that want news of this partition, and its number there.
    pub(super) watchers: Vec<(Arc<Ready>, u32)>,
    pub(super) flushing: Flushing,
    pub(super) leadership: Leadership,
    /// The broker is stopping, or the replica was taken out of it: that the log takes nothing more is no failure.
    pub(super) closed: bool,
    /// What this process, as the leader, has acknowledged; `None` if it has not led yet.
    pub(super) led: Option<Led>,
    /// What of it is noted for whoever opens this log next.
    pub(super) noting: Noting,
    /// A loss that was told before it happened, and has not happened yet.
    pub(super) told: Option<Loss>,
}

/// A producer that waits for one partition.
pub(super) struct Waiter {
    pub(super) pending: Arc<PendingProduce>,
    /// Which partition of its request this is.
    pub(super) index: usize,
    /// How many offsets a success acknowledges at acks=1; 0 at acks=all.
    pub(super) acks_one: i64,
}

impl Waiter {
    /// What a success is.
    pub(super) fn kind(&self) -> AckKind {
        if self.acks_one > 0 { AckKind::One } else { AckKind::All }
    }
}

/// Bytes that belong to an event.
pub(super) enum Input<'a> {
    None,
    Produced(&'a mut [u8]),
    Fetched(Option<Fetched<'a>>),
}

impl Inner {
    /// A name for one more request that waits.
    pub(super) fn next_waiter(&mut self) -> WaiterId {
        self.next_waiter += 1;
        WaiterId(self.next_waiter)
    }

    /// [`Inner::perform`]; a broken invariant stops this partition and nothing else.
    pub(super) fn step(
        &mut self,
        hosted: &Hosted,
        now: Now,
        event: Event,
        input: Input<'_>,
        after: &mut Aftermath,
    ) -> Option<FetchReply> {
        let performed =
            catch_unwind(AssertUnwindSafe(|| self.perform(hosted, now, event, input, after)));
        let reply = performed.unwrap_or_else(|_| {
            self.broken(hosted, now, after);
            None
        });
        self.end_without_note(hosted, now, after);
        self.ask_for_flush(now, after);
        reply
    }

    /// What is in memory is not to be trusted any more (the panic itself said why): fenced like one whose log failed, and
    /// nobody is left waiting.
    fn broken(&mut self, hosted: &Hosted, now: Now, after: &mut Aftermath) {
        let (topic, partition) = (&hosted.topic_partition.topic, hosted.topic_partition.partition);
        let leader_epoch = self.replica.leader_epoch().unwrap_or_default();
        tracing::error!(
            target: "state_change", %topic, partition, %leader_epoch,
            "a broken invariant; the partition is fenced on this broker until it restarts"
        );
        let text = "a broken invariant".to_owned();
        let kind = FailureKind::Invariant;
        after.failure = Some(LogFailure { leader_epoch, kind, text, loss: None, os_error: None });
        self.log.fence();
        let mut effects = Effects::default();
        let failed = Event::AppendFailed { waiter: None };
        // It may break the same invariant again, after it has done its work.
        let _ = catch_unwind(AssertUnwindSafe(|| self.replica.step(now, failed, &mut effects)));
        self.pass_on(hosted, &mut effects, after);
        for Waiter { pending, index, .. } in std::mem::take(&mut self.waiters).into_values() {
            after.finished.push((pending, index, Err(Condition::KafkaStorageError)));
        }
        self.deletions.clear();
        self.noting.refuse_held(after);
    }

    /// Steps the core and performs its effects in their order; completions are stepped on the way.
    fn perform(
        &mut self,
        hosted: &Hosted,
        now: Now,
        event: Event,
        mut input: Input<'_>,
        after: &mut Aftermath,
    ) -> Option<FetchReply> {
        let mut effects = Effects::default();
        // The topic lives on elsewhere.
        let moves_away =
            matches!(&event, Event::State(push) if !push.partition.assigned_replicas.is_empty());
        self.replica.step(now, event, &mut effects);
        if effects.delete && moves_away {
            self.left_alone(hosted, after);
        }
        if let Some(end) = effects.truncate_to {
            let epochs = self.log.epochs().clone();
            // What stands in the way is told by the cut itself.
            let coming = self.log.would_truncate(end).ok().flatten();
            let told = self.tell_ahead(hosted, coming, &epochs);
            let done = self.log.truncate_to(end);
            let done = done.map(|loss| self.happened(hosted, loss, told, epochs, after));
            self.truncated(hosted, now, done, after);
        }
        if let Some(start) = effects.reset_to {
            let epochs = self.log.epochs().clone();
            let told = self.tell_ahead(hosted, self.log.would_reset(), &epochs);
            let done = self.log.reset_to(start);
            let done = done.map(|loss| self.happened(hosted, loss, told, epochs, after));
            self.truncated(hosted, now, done, after);
        }
        if let Some(from) = effects.led_uncleanly {
            after.led_uncleanly = true;
            let cause = LossCause::UncleanElection;
            let epochs = self.log.epochs().clone();
            let last_epoch = epochs.latest();
            let loss = Loss { from, to: None, at_least_to: from, bytes: 0, last_epoch, cause };
            let told = self.tell_ahead(hosted, Some(loss), &epochs);
            self.happened(hosted, Some(loss), told, epochs, after);
        }
        if let Some((epoch, start)) = effects.assign_epoch
            && let Err(error) = self.log.assign_epoch(epoch, start)
            // In a shortage the first append notes it, or is refused.
            && !is_refusal(&error)
        {
            self.failed(hosted, now, None, &error, after);
        }
        if let Some(order) = effects.append {
            let of_producer = matches!(input, Input::Produced(_));
            let done = match &mut input {
                Input::Produced(records) => {
                    self.log.append(records, order.base_offset, order.leader_epoch).map(Some)
                }
                Input::Fetched(fetched) => match fetched.take() {
                    Some(fetched) => self.log.append_fetched(fetched).map(Some),
                    None => Ok(None),
                },
                Input::None => Ok(None),
            };
            match done {
                Ok(appended) => {
                    if let Some(appended) = appended {
                        hosted.directory.appended(appended.bytes);
                        let messages = self.log.log_end().0.saturating_sub(order.base_offset.0);
                        if of_producer {
                            hosted.traffic.produced(messages.unsigned_abs(), appended.bytes);
                        } else {
                            hosted.traffic.copied_in(appended.bytes);
                        }
                        if appended.rolled {
                            self.flushing.sealed();
                        }
                    }
                    let log_end = self.log.log_end();
                    let (waiter, leader_epoch) = (order.waiter, order.leader_epoch);
                    let grown = log_end.0 - order.base_offset.0;
                    if waiter.is_some() && grown > 0 {
                        self.leadership.appended(now);
                        let asked = waiter.and_then(|waiter| self.waiters.get(&waiter));
                        let kind = asked.map(Waiter::kind);
                        if let (Some(led), Some(_)) = (&mut self.led, kind) {
                            led.unasked = false;
                        }
                        self.note_appended(hosted, kind, after);
                    }
                    self.perform(
                        hosted,
                        now,
                        Event::Appended { waiter, leader_epoch, log_end },
                        Input::None,
                        after,
                    );
                    if grown > 0 {
                        after.news.extend(self.sessions.iter().map(|(s, i)| (s.clone(), *i, true)));
                    }
                }
                Err(error) if is_refusal(&error) => {
                    self.refused(hosted, now, order.waiter, &error, after);
                }
                Err(error) => self.failed(hosted, now, order.waiter, &error, after),
            }
        }
        self.leadership.answered(&effects.answers, now);
        if let Some(role) = effects.role_changed {
            self.leadership.begins(role, now);
        }
        self.pass_on(hosted, &mut effects, after);
        if let Some(start) = effects.log_start {
            self.begin_at(hosted, now, start, after);
        }
        effects.fetch_reply
    }

    /// The replica goes from this broker with what it acknowledged at acks=1 as the leader, and nobody may have copied.
    fn left_alone(&mut self, hosted: &Hosted, after: &mut Aftermath) {
        let Some(led) = self.led else { return };
        let (from, to) = (self.replica.high_watermark().max(led.from), led.acked_to);
        if from < to {
            let epochs = self.log.epochs().clone();
            let (last_epoch, cause) = (epochs.epoch_at(Offset(to.0 - 1)), LossCause::Removed);
            let loss = Loss { from, to: Some(to), at_least_to: to, bytes: 0, last_epoch, cause };
            let told = self.tell_ahead(hosted, Some(loss), &epochs);
            self.happened(hosted, Some(loss), told, epochs, after);
        }
    }

    /// Takes note of what the log dropped, with what is known of it now; `epochs` are those of the log before that.
    fn lost(
        &mut self,
        hosted: &Hosted,
        loss: Option<Loss>,
        epochs: LeaderEpochs,
        after: &mut Aftermath,
    ) {
        self.happened(hosted, loss, false, epochs, after);
    }

    /// [`Inner::lost`] of what may have been told before it happened.
    fn happened(
        &mut self,
        hosted: &Hosted,
        loss: Option<Loss>,
        told: bool,
        epochs: LeaderEpochs,
        after: &mut Aftermath,
    ) {
        self.told = None;
        let Some(loss) = loss else { return };
        if !told {
            after.lost.push(self.known_of(hosted, loss, epochs));
        }
        if let Some(led) = &mut self.led {
            led.cut(loss.from);
        }
    }

    /// Makes it durable that this is about to be lost. What is refused and tried again is told once. `false`: nobody takes it now.
    fn tell_ahead(&mut self, hosted: &Hosted, loss: Option<Loss>, epochs: &LeaderEpochs) -> bool {
        let (Some(loss), Some(journal)) = (loss, hosted.directory.journal()) else { return false };
        if self.told != Some(loss) {
            self.known_of(hosted, loss, epochs.clone()).tell_ahead(journal);
            self.told = Some(loss);
        }
        true
    }

    fn known_of(&self, hosted: &Hosted, loss: Loss, epochs: LeaderEpochs) -> Lost {
        Lost {
            partition: hosted.topic_partition.clone(),
            incarnation: hosted.incarnation,
            loss,
            leader_epoch: self.replica.leader_epoch(),
            epochs: Some(epochs),
            high_watermark: Some(self.replica.high_watermark()),
            led: self.led,
            led_until_crash: None,
        }
    }

    /// There is no room, or no descriptor: nothing happened, and the log is whole.
    fn refused(
        &mut self,
        hosted: &Hosted,
        now: Now,
        waiter: Option<WaiterId>,
        error: &LogError,
        after: &mut Aftermath,
    ) {
        hosted.directory.was_short(now, error);
        let event = Event::AppendRefused { waiter, condition: error.condition() };
        self.perform(hosted, now, event, Input::None, after);
    }

    /// The log is to begin at `start`; it does once that is durable.
    fn begin_at(&mut self, hosted: &Hosted, now: Now, start: Offset, after: &mut Aftermath) {
        if self.log.is_fenced() {
            return;
        }
        if self.log.advance_log_start(start) {
            after.log_start = Some(start);
        } else {
            // A reset has put it there, and made that durable already.
            self.perform(hosted, now, Event::LogStartDurable { to: start }, Input::None, after);
        }
    }

    /// Effects 4 to 10: nothing of them touches the log.
    fn pass_on(&mut self, hosted: &Hosted, effects: &mut Effects, after: &mut Aftermath) {
        for (waiter, result) in effects.answers.drain(..) {
            if let Some(waiter) = self.waiters.remove(&waiter) {
                self.answer(hosted, waiter, result, after);
            } else if let Some(deletion) = self.deletions.remove(&waiter) {
                after.deleted.push((deletion, result));
            }
        }
        if let Some(high_watermark) = effects.high_watermark {
            self.publish_high_watermark(hosted, high_watermark, after);
        }
        if effects.roll_call {
            after.news.extend(self.sessions.iter().map(|(s, i)| (s.clone(), *i, true)));
        }
        if effects.roll_call_answered {
            after.due_fetches.append(&mut self.doubting);
            hosted.roll_called.notify_waiters();
        }
        if let Some(role) = effects.role_changed {
            self.leads(role, after);
            hosted.roll_called.notify_waiters();
            after.due_fetches.append(&mut self.parked);
            after.due_fetches.append(&mut self.doubting);
            self.tell_watchers(None, after);
            after.news.extend(self.sessions.iter().map(|(s, i)| (s.clone(), *i, true)));
            after.role = Some(role);
        }
        if let Some(proposal) = effects.propose.take() {
            after.proposal = Some(proposal);
        }
        after.delete |= effects.delete;
        let leader_epoch = self.replica.leader_epoch().unwrap_or_default();
        after.notes.extend(effects.notes.drain(..).map(|note| (leader_epoch, note)));
    }

    /// Keeps count of what this process appends as the leader.
    fn leads(&mut self, role: Role, after: &mut Aftermath) {
        let log_end = self.log.log_end();
        match (role, &mut self.led) {
            (Role::Leader { leader_epoch }, led) => {
                let mark = self.replica.high_watermark();
                let text = format!("became leader: LEO {log_end}, HW {mark}");
                after.notes.push((leader_epoch, Note { warn: false, text }));
                let again = led.map(|led| led.again(leader_epoch, log_end));
                *led = Some(again.unwrap_or_else(|| Led::begin(leader_epoch, log_end)));
            }
            (_, Some(led)) => {
                if led.to.is_none() {
                    let text = format!("leads no more: LEO {log_end}");
                    let epoch = self.replica.leader_epoch().unwrap_or_default();
                    after.notes.push((epoch, Note { warn: false, text }));
                }
                led.end(log_end);
            }
            (_, None) => {}
        }
    }

    fn publish_high_watermark(&mut self, hosted: &Hosted, to: Offset, after: &mut Aftermath) {
        let before = hosted.high_watermark.swap(to.0, Ordering::AcqRel);
        after.news.extend(self.sessions.iter().map(|(s, i)| (s.clone(), *i, false)));
        if to.0 <= before || (self.parked.is_empty() && self.watchers.is_empty()) {
            return;
        }
        // Near the end of the log this is a look at remembered boundaries.
        let from = Offset(before).max(self.log.log_start());
        let range = self.log.read(from, to, usize::MAX).ok().flatten();
        let bytes = range.map_or(1, |range| range.len);
        self.parked.retain(|fetch| {
            if fetch.gather(bytes) {
                after.due_fetches.push(fetch.clone());
            }
            !fetch.is_fired()
        });
        self.tell_watchers(Some(bytes), after);
    }

    /// So many bytes more can be read (`None`: everything may be different).
    pub(super) fn tell_watchers(&mut self, bytes: Option<usize>, after: &mut Aftermath) {
        self.watchers.retain(|(ready, index)| {
            let told = ready.news(*index, bytes);
            after.due_fetches.extend(told.due);
            told.keep
        });
    }

    fn truncated(
        &mut self,
        hosted: &Hosted,
        now: Now,
        done: Result<(), LogError>,
        after: &mut Aftermath,
    ) {
        match done {
            Ok(()) => {
                let event = Event::Truncated {
                    log_start: self.log.log_start(),
                    log_end: self.log.log_end(),
                    flushed: self.log.flushed(),
                };
                self.perform(hosted, now, event, Input::None, after);
                let present = self.replica.high_watermark();
                hosted.high_watermark.store(present.0, Ordering::Release);
            }
            Err(error) if is_refusal(&error) => self.refused(hosted, now, None, &error, after),
            Err(error) => self.failed(hosted, now, None, &error, after),
        }
    }

    /// The log failed: this partition is fenced until it is opened anew, and says so.
    pub(super) fn failed(
        &mut self,
        hosted: &Hosted,
        now: Now,
        waiter: Option<WaiterId>,
        error: &LogError,
        after: &mut Aftermath,
    ) {
        self.failed_with(hosted, now, waiter, (error, FailureKind::Files, None), after);
    }

    /// Its disk does not give what was written to it: what it would take now is no safer.
    pub(super) fn read_failed(
        &mut self,
        hosted: &Hosted,
        now: Now,
        error: &LogError,
        after: &mut Aftermath,
    ) {
        self.log.fence();
        self.failed_with(hosted, now, None, (error, FailureKind::Read, None), after);
    }

    /// A sync failed: what was not flushed does not count any more (R38).
    pub(super) fn sync_failed(
        &mut self,
        hosted: &Hosted,
        now: Now,
        error: &LogError,
        after: &mut Aftermath,
    ) {
        let loss = self.log.unflushed(LossCause::FailedSync);
        self.failed_with(hosted, now, None, (error, FailureKind::Sync, loss), after);
    }

    fn failed_with(
        &mut self,
        hosted: &Hosted,
        now: Now,
        waiter: Option<WaiterId>,
        (error, kind, loss): (&LogError, FailureKind, Option<Loss>),
        after: &mut Aftermath,
    ) {
        if self.replica.role() == Role::Deleted || self.replica.is_fenced() {
            // Its files may be gone already; or this was said before.
            return;
        }
        let (topic, partition) = (&hosted.topic_partition.topic, hosted.topic_partition.partition);
        let leader_epoch = self.replica.leader_epoch().unwrap_or_default();
        if self.closed {
            tracing::debug!(target: "state_change", %topic, partition, %leader_epoch, "the log is closed");
        } else {
            tracing::error!(
                target: "state_change", %topic, partition, %leader_epoch, %error,
                "the log failed; the partition is fenced on this broker until it is opened again"
            );
            let epochs = self.log.epochs().clone();
            self.lost(hosted, loss, epochs, after);
            after.failure = Some(LogFailure {
                leader_epoch,
                kind,
                text: error.to_string(),
                loss,
                os_error: match error {
                    LogError::Io { source, .. } => source.raw_os_error(),
                    _ => None,
                },
            });
        }
        self.noting.refuse_held(after);
        self.step(hosted, now, Event::AppendFailed { waiter }, Input::None, after);
    }
}

/// Whether the log says that nothing happened, for want of something of which there may be enough again in a moment.
pub(super) fn is_refusal(error: &LogError) -> bool {
    matches!(error, LogError::Full(_) | LogError::NoDescriptor(_))
}
