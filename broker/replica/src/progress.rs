//! What a leader knows about each follower in its leader epoch.

use barnabas_types::{BrokerEpoch, BrokerId, FlushMode, Now, Offset};

use crate::isr::backoff_ms;

/// What the leader knows about one follower in this leader epoch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FollowerProgress {
    pub(crate) id: BrokerId,
    /// Highest broker epoch seen in this leader epoch, in a fetch or in `isr_broker_epochs` (R30).
    pub(crate) broker_epoch: Option<BrokerEpoch>,
    /// Where that incarnation stands; `None` until it has fetched without divergence in this leader epoch.
    pub(crate) position: Option<Position>,
    /// Member of the committed ISR.
    pub(crate) in_isr: bool,
    /// Member of an ISR proposed at the present partition epoch (R9).
    pub(crate) proposed: bool,
    /// It could have joined at its last fetch, but another proposal was open: proposed when that one is settled. Its fetch
    /// may be parked at the leader by then, so no further event of its own would remind of it.
    pub(crate) join_deferred: bool,
    /// The last roll call that it has answered: it fetched in this leader epoch after it had heard it.
    pub(crate) heard: u64,
    /// When it was last caught up.
    pub(crate) caught_up_at: Now,
    /// Not proposed before this: the controller has called it ineligible.
    barred_until: Now,
    /// How often in a row it has.
    refusals: u32,
    /// Time of its last noted fetch and the end of what counted here at that time.
    last_fetch: Option<(Now, Offset)>,
}

/// A position that a follower reported in this leader epoch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Position {
    pub(crate) log_end: Offset,
    pub(crate) flushed: Offset,
    pub(crate) log_start: Offset,
}

impl Position {
    /// The offset that counts for the HW; the leader's mode decides (R10, R37).
    pub(crate) fn counted(self, mode: FlushMode) -> Offset {
        match mode {
            FlushMode::Async => self.log_end,
            FlushMode::Sync => self.flushed.min(self.log_end),
        }
    }
}

impl FollowerProgress {
    pub(crate) fn new(now: Now, id: BrokerId) -> Self {
        Self {
            id,
            broker_epoch: None,
            position: None,
            in_isr: false,
            proposed: false,
            join_deferred: false,
            heard: 0,
            caught_up_at: now,
            barred_until: Now(0),
            refusals: 0,
            last_fetch: None,
        }
    }

    /// When it fetched last, without divergence, in this leader epoch.
    pub(crate) fn last_fetch_at(&self) -> Option<Now> {
        self.last_fetch.map(|(time, _)| time)
    }

    pub(crate) fn in_maximal_isr(&self) -> bool {
        self.in_isr || self.proposed
    }

    /// A newer incarnation makes everything that an older one reported void (R30), and what was said of it.
    pub(crate) fn see_broker_epoch(&mut self, broker_epoch: BrokerEpoch) {
        if self.broker_epoch < Some(broker_epoch) {
            self.broker_epoch = Some(broker_epoch);
            self.position = None;
            self.last_fetch = None;
            self.join_deferred = false;
            self.unbar();
        }
    }

    /// Whether it is not proposed for now, since the controller would refuse it again.
    pub(crate) fn is_barred(&self, now: Now) -> bool {
        now < self.barred_until
    }

    /// The controller called it ineligible: not proposed for a pause that doubles with each such refusal, up to
    /// `pause_max_ms`, since each attempt costs the write that withdraws it.
    pub(crate) fn bar(&mut self, now: Now, pause_max_ms: u64) {
        let pause_ms = backoff_ms(self.refusals, pause_max_ms);
        self.barred_until = Now(now.0.saturating_add(pause_ms));
        self.refusals = self.refusals.saturating_add(1);
    }

    /// Nothing is held against it any more.
    pub(crate) fn unbar(&mut self) {
        self.barred_until = Now(0);
        self.refusals = 0;
    }

    /// Whether it has everything that counts here, which ends at `end`: what is written, in sync mode what is flushed. A
    /// follower whose disk hangs goes on fetching, and would hold every acknowledgement back for as long.
    pub(crate) fn has_all(&self, mode: FlushMode, end: Offset) -> bool {
        self.position.is_some_and(|position| position.counted(mode) >= end)
    }

    /// Notes a fetch that does not diverge. Caught up as in Kafka: it has everything that counted here at this fetch, or
    /// everything that counted here at the one before.
    pub(crate) fn note(&mut self, now: Now, position: Position, mode: FlushMode, end: Offset) {
        self.position = Some(position);
        if self.has_all(mode, end) {
            self.caught_up_at = now;
        } else if let Some((time, end_then)) = self.last_fetch
            && self.has_all(mode, end_then)
        {
            self.caught_up_at = self.caught_up_at.max(time);
        }
        self.last_fetch = Some((now, end));
    }
}
