//! Offsets that nobody needs any more (KIP-211), doubts about commits, and groups without any.

use crate::group::{Group, Phase};
use crate::offsets::CommittedOffset;
use crate::roster::later;
use crate::settings::Settings;
use crate::table::Table;
use crate::tombstones::Batches;
use crate::turn::Turn;

impl Table {
    /// Deletes what has expired, every `offsets.retention.check.interval.ms`. Groups with unsettled writes wait for the
    /// next time: a commit under way must not be overtaken by a deletion.
    pub(crate) fn expire(&mut self, turn: &mut Turn<'_>) {
        if self.check_at > turn.moment.now {
            return;
        }
        self.check_at = later(turn.moment.now, turn.settings.retention_check_interval_ms);
        let unsettled = turn.writes.groups();
        let mut batches = Batches::default();
        for group in self.groups.values_mut().filter(|group| !unsettled.contains(&group.id)) {
            group.expire(turn, &mut batches);
        }
        batches.append(turn, None);
    }
}

impl Group {
    fn expire(&mut self, turn: &Turn<'_>, batches: &mut Batches) {
        let is_expired = |topic: &str, offset: &CommittedOffset| {
            self.expires_at_ms(topic, offset, turn.settings)
                .is_some_and(|at| at <= turn.moment.wall_ms)
        };
        let expired: Vec<_> = self
            .offsets
            .keys()
            // Of a doubt nobody was told that it is there: the log is made to say so too.
            .filter(|(topic, _, held)| held.as_ref().is_none_or(|held| is_expired(topic, held)))
            .map(|(topic, partition, _)| (topic.clone(), partition))
            .collect();
        let all = expired.len() == self.offsets.keys().count();
        if all && self.phase == Phase::Empty && self.pending.is_empty() {
            self.delete(turn, batches);
        } else {
            for (topic, partition) in &expired {
                batches.offset(&self.id, topic, *partition);
            }
        }
    }

    /// When the offset goes, wall clock ms, if the group stays as it is; `None`: not while it is so.
    pub(crate) fn expires_at_ms(
        &self,
        topic: &str,
        offset: &CommittedOffset,
        settings: &Settings,
    ) -> Option<i64> {
        let since_ms = self.expires_since_ms(topic, offset)?;
        let retention_ms = i64::try_from(settings.offsets_retention_ms).unwrap_or(i64::MAX);
        Some(offset.expire_timestamp_ms.unwrap_or_else(|| since_ms.saturating_add(retention_ms)))
    }

    /// From when on the retention counts.
    fn expires_since_ms(&self, topic: &str, offset: &CommittedOffset) -> Option<i64> {
        let commit_ms = offset.commit_timestamp_ms;
        match self.phase {
            Phase::Dead => None,
            // A simple consumer's: nobody knows whether it still runs.
            _ if self.protocol_type.is_none() => Some(commit_ms),
            // A commit from outside, for instance an operator's, has its full time.
            Phase::Empty => Some(self.state_since_ms.unwrap_or(commit_ms).max(commit_ms)),
            // Only topics that no member subscribes to any more. While a group rebalances, that is not known.
            Phase::Stable { .. } => {
                let is_unsubscribed = self.is_consumer()
                    && self.subscribed.as_ref().is_some_and(|topics| !topics.contains(topic));
                is_unsubscribed.then_some(commit_ms)
            }
            Phase::Preparing { .. } | Phase::Completing { .. } => None,
        }
    }
}
