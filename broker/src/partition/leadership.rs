//! What this broker has done as leader in the present epoch: when it first appended, and first acknowledged at acks=all.
//!
//! Of use to the timeline of failovers alone. Noted under the partition's lock at no cost that could be measured, told when the
//! replica is looked at anyway.

use barnabas_replica::{Role, WaiterId};
use barnabas_types::{Condition, LeaderEpoch, Now, Offset, TopicPartition};

use super::hosted::Hosted;

/// How long after the first append an acknowledgement is waited for before the append is told alone, in milliseconds.
const TELL_ALONE_AFTER_MS: u64 = 1_000;

/// When a leadership served producers for the first time, from the push that began it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstServed {
    /// In which epoch.
    pub leader_epoch: LeaderEpoch,
    /// When it was taken over.
    pub since: Now,
    /// First append of a producer's records.
    pub appended: Option<Now>,
    /// First acknowledgement at acks=all.
    pub acked: Option<Now>,
}

impl FirstServed {
    /// A line of the state-change log.
    pub fn log(&self, at: &TopicPartition) {
        let (topic, partition, leader_epoch) = (&at.topic, at.partition, self.leader_epoch);
        let since = |at: Option<Now>| at.map(|at| at.since_ms(self.since));
        tracing::info!(
            target: "state_change", %topic, partition, %leader_epoch,
            first_append_ms = since(self.appended), first_ack_ms = since(self.acked),
            "as leader it appended a producer's records for the first time"
        );
    }
}

/// What a partition's mutex guards of it.
#[derive(Default)]
pub(super) struct Leadership {
    served: Option<FirstServed>,
    /// The request at acks=all whose answer would be the first.
    awaited: Option<WaiterId>,
    /// As it was told last.
    told: Option<FirstServed>,
}

impl Leadership {
    /// The role changed: a leadership begins, or there is none any more.
    pub(super) fn begins(&mut self, role: Role, now: Now) {
        let served = match role {
            Role::Leader { leader_epoch } => {
                Some(FirstServed { leader_epoch, since: now, appended: None, acked: None })
            }
            _ => None,
        };
        *self = Self { served, ..Self::default() };
    }

    /// A request at acks=all comes in.
    pub(super) fn awaits(&mut self, waiter: WaiterId) {
        if self.served.is_some_and(|served| served.acked.is_none()) {
            self.awaited.get_or_insert(waiter);
        }
    }

    /// The request was refused before the core saw it.
    pub(super) fn refused(&mut self, waiter: WaiterId) {
        self.awaited.take_if(|awaited| *awaited == waiter);
    }

    /// A producer's records were appended.
    pub(super) fn appended(&mut self, now: Now) {
        if let Some(served) = &mut self.served {
            served.appended.get_or_insert(now);
        }
    }

    /// Requests were answered.
    pub(super) fn answered(&mut self, answers: &[(WaiterId, Result<Offset, Condition>)], now: Now) {
        let Some(awaited) = self.awaited else { return };
        if let Some((_, answer)) = answers.iter().find(|(waiter, _)| *waiter == awaited) {
            self.awaited = None;
            if answer.is_ok()
                && let Some(served) = &mut self.served
            {
                served.acked.get_or_insert(now);
            }
        }
    }

    /// What is not told yet: both times together, or the append alone if no acknowledgement comes.
    fn news(&mut self, now: Now) -> Option<FirstServed> {
        let served = self.served?;
        let late = |at: Now| now.since_ms(at) >= TELL_ALONE_AFTER_MS;
        let ripe = served.acked.is_some() || served.appended.is_some_and(late);
        if !ripe || self.told == Some(served) {
            return None;
        }
        self.told = Some(served);
        Some(served)
    }
}

impl Hosted {
    /// What this broker has done as leader and not told yet.
    pub fn leadership_news(&self, now: Now) -> Option<FirstServed> {
        self.lock().leadership.news(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: Role = Role::Leader { leader_epoch: LeaderEpoch(4) };

    fn served(appended: Option<u64>, acked: Option<u64>) -> FirstServed {
        FirstServed {
            leader_epoch: LeaderEpoch(4),
            since: Now(100),
            appended: appended.map(Now),
            acked: acked.map(Now),
        }
    }

    #[test]
    fn the_first_append_and_the_first_answer_at_acks_all_are_told_together_and_once() {
        let mut leadership = Leadership::default();
        leadership.begins(LEADER, Now(100));
        leadership.appended(Now(110));
        leadership.answered(&[(WaiterId(1), Ok(Offset(0)))], Now(110));
        assert_eq!(leadership.news(Now(111)), None, "an answer at acks=1 is none at acks=all");
        leadership.awaits(WaiterId(9));
        leadership.refused(WaiterId(9));
        leadership.awaits(WaiterId(2));
        leadership.awaits(WaiterId(3));
        leadership.appended(Now(120));
        leadership.answered(&[(WaiterId(2), Err(Condition::RequestTimedOut))], Now(130));
        assert_eq!(leadership.news(Now(131)), None);
        leadership.awaits(WaiterId(4));
        leadership.answered(&[(WaiterId(3), Ok(Offset(1)))], Now(140));
        leadership.answered(&[(WaiterId(4), Ok(Offset(2)))], Now(150));
        assert_eq!(leadership.news(Now(151)), Some(served(Some(110), Some(150))));
        leadership.awaits(WaiterId(5));
        leadership.answered(&[(WaiterId(5), Ok(Offset(3)))], Now(160));
        assert_eq!(leadership.news(Now(9_000)), None);
    }

    #[test]
    fn without_acks_all_the_append_is_told_alone_and_the_answer_later() {
        let mut leadership = Leadership::default();
        leadership.begins(LEADER, Now(100));
        leadership.appended(Now(110));
        assert_eq!(leadership.news(Now(110 + TELL_ALONE_AFTER_MS - 1)), None);
        let late = Now(110 + TELL_ALONE_AFTER_MS);
        assert_eq!(leadership.news(late), Some(served(Some(110), None)));
        leadership.awaits(WaiterId(2));
        leadership.answered(&[(WaiterId(2), Ok(Offset(9)))], Now(5_000));
        assert_eq!(leadership.news(Now(5_001)), Some(served(Some(110), Some(5_000))));
    }

    #[test]
    fn whoever_does_not_lead_has_nothing_to_tell() {
        let mut leadership = Leadership::default();
        leadership.appended(Now(1));
        leadership.awaits(WaiterId(1));
        leadership.answered(&[(WaiterId(1), Ok(Offset(0)))], Now(2));
        assert_eq!(leadership.news(Now(9_000)), None);
        leadership.begins(LEADER, Now(100));
        leadership.appended(Now(110));
        leadership.begins(Role::Leaderless { leader_epoch: LeaderEpoch(5) }, Now(120));
        assert_eq!(leadership.news(Now(9_000)), None);
    }
}
