//! Records by their time (ListOffsets). Whoever looks first does it without waiting for a disk; if that is not enough, a thread of
//! the log directory does it, as for fetches of what is not in the page cache.

use std::sync::Arc;

use barnabas_log::{ColdRead, LookedByTime, Wait};
use barnabas_types::{Condition, LeaderEpoch, Offset};

use super::hosted::Hosted;
use super::warming::COLD_LOOKS_MAX;

/// Which record is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByTime {
    /// The first one at this time, ms since 1970, or later.
    From(i64),
    /// The one with the greatest timestamp, the first of equals (KIP-734).
    Greatest,
}

/// What a look came to.
#[derive(Debug)]
pub enum FoundByTime {
    /// Offset and timestamp of the record, if there is one below the HW.
    Record(Option<(Offset, i64)>),
    /// The disk would have to be waited for.
    Cold(ColdRead),
}

impl Hosted {
    /// Looks without waiting for the disk.
    ///
    /// # Errors
    /// As [`Hosted::consumer_view`]; the log cannot be read.
    pub fn look_by_time(
        self: &Arc<Self>,
        wanted: ByTime,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<FoundByTime, Condition> {
        self.step_by_time(wanted, current_leader_epoch, &mut Offset(0), Wait::Never)
    }

    /// Looks, and waits for the disk without the partition's lock; with it only if what was read is gone again and again.
    ///
    /// # Errors
    /// As [`Hosted::look_by_time`].
    pub fn find_by_time(
        self: &Arc<Self>,
        wanted: ByTime,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<(Offset, i64)>, Condition> {
        let (mut from, mut rounds, mut segment) = (Offset(0), 0, None);
        loop {
            let (before, wait) =
                (from, if rounds < COLD_LOOKS_MAX { Wait::Never } else { Wait::ForDisk });
            match self.step_by_time(wanted, current_leader_epoch, &mut from, wait)? {
                FoundByTime::Record(found) => return Ok(found),
                FoundByTime::Cold(read) => {
                    let looks_in = read.looks_in();
                    read.run().map_err(|error| self.range_unreadable(&error))?;
                    // A log has many segments: each is read once, and only what comes again is gone again.
                    let goes_on = from > before || looks_in > segment;
                    segment = segment.max(looks_in);
                    rounds = if goes_on { 1 } else { rounds + 1 };
                }
            }
        }
    }

    /// Looks from `from` on, which moves on as batches turn out to have no such record. Batches are found under the lock and opened
    /// without it.
    fn step_by_time(
        self: &Arc<Self>,
        wanted: ByTime,
        current_leader_epoch: Option<LeaderEpoch>,
        from: &mut Offset,
        wait: Wait,
    ) -> Result<FoundByTime, Condition> {
        loop {
            let inner = self.lock();
            let view = inner.replica.consumer_view(current_leader_epoch)?;
            let looked = match wanted {
                ByTime::From(timestamp_ms) => {
                    let from = (*from).max(view.log_start);
                    inner.log.look_for_timestamp(timestamp_ms, from, wait)
                }
                ByTime::Greatest => inner.log.look_for_max_timestamp(wait),
            };
            drop(inner);
            let lookup = match looked.map_err(|error| self.unreadable(&error))? {
                LookedByTime::Cold(read) => return Ok(FoundByTime::Cold(read)),
                LookedByTime::Found(None) => return Ok(FoundByTime::Record(None)),
                LookedByTime::Found(Some(lookup)) => lookup,
            };
            if wait == Wait::Never
                && let Some(read) = lookup.cold()
            {
                return Ok(FoundByTime::Cold(read));
            }
            let found = lookup.resolve().map_err(|error| self.unreadable(&error))?;
            *from = lookup.next();
            let over = wanted == ByTime::Greatest || *from >= view.high_watermark;
            if found.is_some() || over {
                let found = found.filter(|(offset, _)| *offset < view.high_watermark);
                return Ok(FoundByTime::Record(found));
            }
        }
    }
}
