//! When a partition's log is to be flushed, and what its producers may be told before it is.
//!
//! Sync mode: at once, and every answer waits for it. Async mode: at half of `flush.messages` and at three quarters of
//! `flush.ms`, so that the flush is usually done when the limit is reached; where it is not, answers wait. So what a crash of
//! this host can take from producers who were told that their records are written is
//! - by count: fewer than `flush.messages` records;
//! - by time: records that were answered within one span of `flush.ms`.
//!
//! Records that were never answered (acks=0, in flight) do not count.

use barnabas_log::{FlushPlan, FlushStep, Log, LogError};
use barnabas_replica::{Event, FlushBound};
use barnabas_types::{FlushMode, Now, Offset, TopicConfig};

use super::aftermath::Aftermath;
use super::hosted::Hosted;
use super::inner::{Inner, Input, is_refusal};

/// How soon a flush is tried again that could not begin for want of a file descriptor.
const SHORTAGE_RETRY_MS: u64 = 200;

/// How soon a flush is wanted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Urgency {
    /// Nobody waits yet: `flush.messages`, `flush.ms`, or a segment that was sealed.
    Background,
    /// Producers wait, here or on the leader (`flush.mode=sync`).
    Awaited,
}

/// What a partition's mutex guards of its flushes.
#[derive(Debug)]
pub(super) struct Flushing {
    /// `flush.messages`.
    messages: i64,
    /// `flush.ms`; `None`: never by time.
    interval_ms: Option<u64>,
    /// The mode in which the last step ended.
    mode: FlushMode,
    /// A flush was asked for and is not done.
    asked: Option<Urgency>,
    /// Where the plan that is out ends, exclusive.
    covered: Option<Offset>,
    /// When the oldest record came that no plan covers yet.
    since: Option<Now>,
    /// The same of the plan that is out.
    covered_since: Option<Now>,
    /// When the timer looks here again.
    timer: Option<Now>,
    /// A segment was sealed since the last plan: flushed soon, its descriptor is let go and the next recovery need not scan
    /// it.
    sealed: bool,
    /// `flush.ms` has passed: answers wait above this offset.
    answered_to: Option<Offset>,
}

impl Default for Flushing {
    fn default() -> Self {
        Self {
            messages: i64::MAX,
            interval_ms: None,
            mode: FlushMode::Async,
            asked: None,
            covered: None,
            since: None,
            covered_since: None,
            timer: None,
            sealed: false,
            answered_to: None,
        }
    }
}

impl Flushing {
    pub(super) fn sealed(&mut self) {
        self.sealed = true;
    }

    /// Since when the oldest unflushed record has been so.
    pub(super) fn unflushed_since(&self) -> Option<Now> {
        self.covered_since.or(self.since)
    }

    /// For how long a flush that was promised is late, in ms: beyond `flush.ms` in async mode, at all in sync mode.
    pub(super) fn overdue_ms(&self, now: Now) -> u64 {
        let due = match self.mode {
            FlushMode::Sync => self.unflushed_since(),
            FlushMode::Async => self.late_at(),
        };
        due.map_or(0, |due| now.since_ms(due))
    }

    fn bound(&self) -> FlushBound {
        FlushBound { unflushed_max: self.messages, answered_to: self.answered_to }
    }

    /// Takes note of what is unflushed now; says how soon that is to be flushed, if it is.
    fn wanted(&mut self, now: Now, log: &Log) -> Option<Urgency> {
        let (flushed, log_end) = (log.flushed(), log.log_end());
        if log_end <= self.covered.unwrap_or(flushed) {
            self.since = None;
        } else if self.since.is_none() {
            self.since = Some(now);
        }
        let unflushed = log_end.0 - flushed.0;
        let due = self.sealed
            || unflushed > (self.messages - 1) / 2
            || self.flush_at().is_some_and(|at| at <= now);
        match self.mode {
            _ if unflushed == 0 => None,
            FlushMode::Sync => Some(Urgency::Awaited),
            FlushMode::Async => due.then_some(Urgency::Background),
        }
    }

    /// When what no plan covers yet is to be flushed.
    fn flush_at(&self) -> Option<Now> {
        let (since, ms) = (self.since?, self.interval_ms?);
        Some(Now(since.0.saturating_add(ms - ms / 4)))
    }

    /// When the oldest unflushed record will have been so for `flush.ms`.
    fn late_at(&self) -> Option<Now> {
        let (since, ms) = (self.covered_since.or(self.since)?, self.interval_ms?);
        Some(Now(since.0.saturating_add(ms)))
    }

    /// Nothing could be opened to be synced: later.
    fn try_again(&mut self, now: Now, after: &mut Aftermath) {
        self.asked = None;
        let at = Now(now.0.saturating_add(SHORTAGE_RETRY_MS));
        self.timer = Some(at);
        after.look_at = Some(at);
    }

    /// When the timer must look here; `None`: not before something else happens.
    fn next_look(&self) -> Option<Now> {
        if self.mode == FlushMode::Sync {
            return None;
        }
        let flush_at = self.flush_at().filter(|_| self.asked.is_none());
        let late_at = self.late_at().filter(|_| self.answered_to.is_none());
        flush_at.into_iter().chain(late_at).min()
    }
}

impl Inner {
    /// After every step: asks for the flush and the look of the timer that are due now.
    pub(super) fn ask_for_flush(&mut self, now: Now, after: &mut Aftermath) {
        if self.closed || self.log.is_fenced() {
            return;
        }
        let mode = self.replica.flush_mode();
        let flushing = &mut self.flushing;
        if std::mem::replace(&mut flushing.mode, mode) == FlushMode::Async
            && mode == FlushMode::Sync
        {
            // What was flushed in the background is not known to the leader yet, and counts from now on (R37).
            after.position = self.replica.role().leader();
        }
        let wanted = flushing.wanted(now, &self.log);
        if wanted > flushing.asked {
            flushing.asked = wanted;
            after.flush = wanted;
        }
        if let Some(at) = flushing.next_look()
            && flushing.timer.is_none_or(|timer| at < timer)
        {
            flushing.timer = Some(at);
            after.look_at = Some(at);
        }
    }

    fn set_answered_to(
        &mut self,
        hosted: &Hosted,
        now: Now,
        to: Option<Offset>,
        after: &mut Aftermath,
    ) {
        if std::mem::replace(&mut self.flushing.answered_to, to) != to {
            let bound = Event::FlushBound(self.flushing.bound());
            self.step(hosted, now, bound, Input::None, after);
        }
    }

    /// The settings of a push that say when to flush.
    pub(super) fn configure_flush(
        &mut self,
        hosted: &Hosted,
        now: Now,
        config: &TopicConfig,
        after: &mut Aftermath,
    ) {
        let flushing = &mut self.flushing;
        // Nothing may stay unflushed for no time at all: then no record may be.
        let messages = if config.flush_ms == 0 { 1 } else { config.flush_messages.max(1) };
        let interval_ms =
            u64::try_from(config.flush_ms).ok().filter(|ms| *ms > 0 && config.flush_ms < i64::MAX);
        if (messages, interval_ms) == (flushing.messages, flushing.interval_ms) {
            return;
        }
        (flushing.messages, flushing.interval_ms) = (messages, interval_ms);
        flushing.answered_to = None;
        let bound = Event::FlushBound(flushing.bound());
        self.step(hosted, now, bound, Input::None, after);
    }
}

impl Hosted {
    /// What is to be synced now, collected under the lock; run it without, then call [`Hosted::end_flush`]. `None`: nothing,
    /// or a flush is out.
    pub(crate) fn begin_flush(&self, now: Now, after: &mut Aftermath) -> Option<FlushPlan> {
        loop {
            let mut inner = self.lock();
            let flushing = &inner.flushing;
            let idle = flushing.asked.is_some() && flushing.covered.is_none();
            if !idle || inner.closed || inner.log.is_fenced() {
                return None;
            }
            match inner.log.flush_plan() {
                Ok(FlushStep::Sync(plan)) => {
                    let flushing = &mut inner.flushing;
                    flushing.covered = Some(plan.to());
                    flushing.covered_since = flushing.since.take();
                    flushing.sealed = false;
                    return Some(plan);
                }
                Ok(FlushStep::Rewriting) => {
                    drop(inner);
                    // There may be a gigabyte of it: others get the lock in between.
                    std::thread::yield_now();
                }
                Ok(FlushStep::Nothing) | Err(LogError::FlushInFlight) => {
                    inner.flushing.asked = None;
                    return None;
                }
                Err(error) if is_refusal(&error) => {
                    self.directory.was_short(now, &error);
                    inner.flushing.try_again(now, after);
                    return None;
                }
                Err(error) => {
                    inner.failed(self, now, None, &error, after);
                    return None;
                }
            }
        }
    }

    /// The plan was run. Answers who waited for it, and asks for the next flush if more has come.
    pub(crate) fn end_flush(
        &self,
        now: Now,
        plan: &FlushPlan,
        result: Result<(), LogError>,
        after: &mut Aftermath,
    ) {
        let mut inner = self.lock();
        let done = inner.log.flush_done(plan, result);
        let flushing = &mut inner.flushing;
        (flushing.asked, flushing.covered, flushing.covered_since) = (None, None, None);
        match done {
            Ok(to) => {
                // What came while it ran may be late already: then nothing more is answered than was before.
                let late = flushing.late_at().is_some_and(|at| at <= now);
                let answered_to = late.then(|| flushing.answered_to.map_or(to, |old| old.max(to)));
                inner.set_answered_to(self, now, answered_to, after);
                inner.step(self, now, Event::Flushed { to }, Input::None, after);
                if inner.replica.flush_mode() == FlushMode::Sync {
                    after.position = inner.replica.role().leader();
                }
            }
            Err(error) => inner.sync_failed(self, now, &error, after),
        }
        drop(inner);
        self.flush_ended();
    }

    /// The time `at`, asked for through [`Aftermath`], has come.
    pub(crate) fn flush_timer(&self, now: Now, at: Now, after: &mut Aftermath) {
        let mut inner = self.lock();
        if inner.flushing.timer != Some(at) || inner.closed {
            return;
        }
        let flushing = &mut inner.flushing;
        flushing.timer = None;
        let late = flushing.mode == FlushMode::Async
            && flushing.answered_to.is_none()
            && flushing.late_at().is_some_and(|at| at <= now);
        if late {
            let log_end = inner.log.log_end();
            inner.set_answered_to(self, now, Some(log_end), after);
        } else {
            inner.ask_for_flush(now, after);
        }
    }

    /// How many records are unflushed, and for how long the oldest of them has been so, in ms.
    pub fn unflushed(&self, now: Now) -> (u64, u64) {
        let inner = self.lock();
        let records = inner.log.log_end().0 - inner.log.flushed().0;
        let since = inner.flushing.unflushed_since();
        let age_ms = since.map_or(0, |since| now.since_ms(since));
        (u64::try_from(records).unwrap_or(0), age_ms)
    }
}
