//! What lost records had been acknowledged at, as far as the replica that lost them can know. It never guesses.
//!
//! | class | what it says |
//! |---|---|
//! | `acks=all` | below the high watermark of the replica: committed, so acknowledged at acks=all if they were sent with it, and seen by consumers maybe |
//! | `acks=1` | above it, and this replica, their leader, acknowledged records up to the end of the range at acks=1; those at acks=all among them have got no success |
//! | `never acked` | above it, from this replica as their leader, which acknowledged none of them, and nobody else can have |
//! | `unknown` | whoever could know did not tell; the reason says who that is |
//!
//! What an earlier process of the replica acknowledged is known from its note ([`super::LedNote`]), unless the host was booted since.

use barnabas_log::LossCause;
use barnabas_types::{LeaderEpoch, Offset};

use super::losses::Lost;

/// What records had been acknowledged at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Committed.
    All,
    /// By the leader alone.
    One,
    /// By nobody.
    Never,
    /// Not known.
    Unknown,
}

impl Class {
    /// As it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "acks=all",
            Self::One => "acks=1",
            Self::Never => "never acked",
            Self::Unknown => "unknown",
        }
    }
}

/// What this process appended as the leader, in leader epochs one after the other, and acknowledged at acks=1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Led {
    /// The first offset that it appended.
    pub from: Offset,
    /// The end of what it appended, exclusive; `None` while it leads.
    pub to: Option<Offset>,
    /// The end of what it acknowledged at acks=1, exclusive; `from` if nothing.
    pub acked_to: Offset,
    /// The last epoch in which it led.
    pub epoch: LeaderEpoch,
    /// An earlier process acknowledged records at acks=all in it, maybe above the high watermark that this one knows.
    pub committed_unseen: bool,
}

impl Led {
    /// A leadership that begins, over a log that ends at `log_end`.
    #[must_use]
    pub fn begin(epoch: LeaderEpoch, log_end: Offset) -> Self {
        Self { from: log_end, to: None, acked_to: log_end, epoch, committed_unseen: false }
    }

    /// Leads in `epoch` now: on and on if nobody else can have led in between, or anew.
    #[must_use]
    pub fn again(self, epoch: LeaderEpoch, log_end: Offset) -> Self {
        let goes_on = epoch.0 == self.epoch.0 + 1 && self.to.is_none_or(|to| to == log_end);
        if goes_on { Self { epoch, to: None, ..self } } else { Self::begin(epoch, log_end) }
    }

    /// Leads no longer.
    pub fn end(&mut self, log_end: Offset) {
        self.to.get_or_insert(log_end);
    }

    /// Records up to there were acknowledged at acks=1.
    pub fn acked(&mut self, to: Offset) {
        self.acked_to = self.acked_to.max(to);
    }

    /// The log was cut there.
    pub fn cut(&mut self, end: Offset) {
        self.from = self.from.min(end);
        self.acked_to = self.acked_to.min(end);
        self.to = self.to.map(|to| to.min(end));
    }
}

/// A range of what was lost, all of one class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// First offset, inclusive.
    pub from: Offset,
    /// End, exclusive; `None`: not known.
    pub to: Option<Offset>,
    /// What is below is gone for sure, exclusive.
    pub at_least_to: Offset,
    /// Leader epoch of the last record below `at_least_to`; `None`: not known. Of an event of which nothing is known for sure, the
    /// newest that is known.
    pub last_epoch: Option<LeaderEpoch>,
    /// What it had been acknowledged at.
    pub class: Class,
    /// Why that is known, or not.
    pub reason: &'static str,
}

const COMMITTED: &str = "below the high watermark of this replica";
const ONE: &str = "this replica led, and acknowledged it at acks=1";
const NEVER: &str =
    "this replica led and acknowledged none of it, and nobody who had it has led since";
const COPIED: &str = "copied from a leader, and only that one knows what it acknowledged";
const RESTARTED: &str = "this process has not led the partition since it started: what was acknowledged before is not known";
const UNSEEN: &str = "an earlier process of this replica led, and acknowledged at acks=all more than this one knows to be committed";
const LED_SINCE: &str =
    "this replica led and acknowledged none of it, but others may have led in between";
const NOT_CUT: &str = "this replica led and acknowledged none of it, but others may have had it, and have committed it";
const NO_MARK: &str = "the high watermark of this replica is not known";
const OTHERS: &str = "what other replicas acknowledged is not known here";

/// The ranges of a loss, in order; at least one.
pub(super) fn parts(lost: &Lost) -> Vec<Part> {
    let loss = &lost.loss;
    let whole = |reason| {
        let (from, to, at_least_to) = (loss.from, loss.to, loss.at_least_to);
        let last_epoch = last_epoch(lost, from, at_least_to);
        vec![Part { from, to, at_least_to, last_epoch, class: Class::Unknown, reason }]
    };
    if loss.cause == LossCause::UncleanElection {
        return whole(OTHERS);
    }
    let Some(mark) = lost.high_watermark else { return whole(NO_MARK) };
    // Where each class ends, in ascending order; the last one has no end.
    let mut ends = vec![(Some(mark), Class::All, COMMITTED)];
    match lost.led {
        None => ends.push((None, Class::Unknown, RESTARTED)),
        Some(led) => {
            // Whoever led directly after this replica has ordered the cut: it has no such record, so it acknowledged none. Only a cut
            // proves that: a log that begins anew may have been committed and deleted elsewhere, and followers may have what a
            // failed disk has not.
            let next = lost.leader_epoch.is_some_and(|present| present.0 <= led.epoch.0 + 1);
            let unseen = led.committed_unseen && !(next && loss.cause == LossCause::Truncated);
            let one = if unseen { (Class::Unknown, UNSEEN) } else { (Class::One, ONE) };
            let (rest, reason) = match lost.leader_epoch {
                _ if unseen => (Class::Unknown, UNSEEN),
                _ if loss.cause != LossCause::Truncated => (Class::Unknown, NOT_CUT),
                Some(present) if present.0 <= led.epoch.0 + 1 => (Class::Never, NEVER),
                _ => (Class::Unknown, LED_SINCE),
            };
            ends.extend([
                (Some(led.from), Class::Unknown, COPIED),
                (Some(led.acked_to), one.0, one.1),
                (led.to, rest, reason),
            ]);
            if led.to.is_some() {
                ends.push((None, Class::Unknown, COPIED));
            }
        }
    }
    let (mut found, mut from) = (Vec::new(), loss.from);
    for (end, class, reason) in ends {
        let to = match (end, loss.to) {
            (Some(end), Some(to)) => Some(end.min(to)),
            (end, to) => end.or(to),
        };
        if to.is_some_and(|to| to <= from) {
            continue;
        }
        // Of an event of which nothing is known for sure it is the only thing to tell.
        let at_least_to = to.map_or(loss.at_least_to, |to| loss.at_least_to.min(to)).max(from);
        let last_epoch = last_epoch(lost, from, at_least_to);
        found.push(Part { from, to, at_least_to, last_epoch, class, reason });
        match to {
            Some(to) => from = to,
            None => break,
        }
    }
    found
}

/// See [`Part::last_epoch`]. What a log says of all that it dropped is true of the last range alone, and only if its end is known.
fn last_epoch(lost: &Lost, from: Offset, at_least_to: Offset) -> Option<LeaderEpoch> {
    let loss = &lost.loss;
    match &lost.epochs {
        _ if at_least_to <= from => loss.last_epoch,
        Some(epochs) => epochs.epoch_at(Offset(at_least_to.0 - 1)),
        None => loss.last_epoch.filter(|_| loss.to == Some(at_least_to)),
    }
}

#[cfg(test)]
mod tests {
    use barnabas_log::Loss;
    use barnabas_types::{EpochStart, LeaderEpochs};

    use super::*;
    use crate::testing::{LIFE, tp};

    fn led(from: i64, acked_to: i64, to: Option<i64>, epoch: i32) -> Led {
        let (from, acked_to, to) = (Offset(from), Offset(acked_to), to.map(Offset));
        Led { from, to, acked_to, epoch: LeaderEpoch(epoch), committed_unseen: false }
    }

    /// `[from, to)`, cut in leader epoch 5.
    fn cut(from: i64, to: Option<i64>, mark: Option<i64>, led: Option<Led>) -> Lost {
        let at_least_to = Offset(to.unwrap_or(from));
        let (from, to) = (Offset(from), to.map(Offset));
        let cause = LossCause::Truncated;
        Lost {
            partition: tp("t", 0),
            incarnation: LIFE,
            loss: Loss { from, to, at_least_to, bytes: 1, last_epoch: None, cause },
            leader_epoch: Some(LeaderEpoch(5)),
            epochs: None,
            high_watermark: mark.map(Offset),
            led,
        }
    }

    /// What becomes of it.
    fn classes(
        from: i64,
        to: Option<i64>,
        mark: Option<i64>,
        led: Option<Led>,
    ) -> Vec<(i64, Option<i64>, Class)> {
        classes_of(&cut(from, to, mark, led))
    }

    fn classes_of(lost: &Lost) -> Vec<(i64, Option<i64>, Class)> {
        let parts = parts(lost);
        assert!(parts.iter().all(|part| part.from <= part.at_least_to));
        parts.into_iter().map(|part| (part.from.0, part.to.map(|to| to.0), part.class)).collect()
    }

    use Class::{All, Never, One, Unknown};

    #[test]
    fn a_deposed_leader_tells_what_it_acknowledged() {
        let deposed = Some(led(3, 8, Some(10), 4));
        assert_eq!(
            classes(2, Some(10), Some(4), deposed),
            [(2, Some(4), All), (4, Some(8), One), (8, Some(10), Never)]
        );
        assert_eq!(classes(8, Some(10), Some(4), deposed), [(8, Some(10), Never)]);
        assert_eq!(classes(5, Some(7), Some(4), deposed), [(5, Some(7), One)]);
        assert_eq!(
            classes(1, Some(10), Some(0), deposed),
            [(1, Some(3), Unknown), (3, Some(8), One), (8, Some(10), Never)],
            "what it had copied before it led"
        );
        assert_eq!(
            classes(9, Some(12), Some(4), deposed),
            [(9, Some(10), Never), (10, Some(12), Unknown)],
            "what it has copied since"
        );
        // In epoch 4 somebody else may have led, and acknowledged what a producer sent again.
        let long_ago = Some(led(3, 8, Some(10), 3));
        assert_eq!(
            classes(4, Some(10), Some(4), long_ago),
            [(4, Some(8), One), (8, Some(10), Unknown)]
        );
    }

    #[test]
    fn only_a_cut_by_the_next_leader_proves_that_nobody_acknowledged_it() {
        let mut lost = cut(5, Some(10), Some(4), Some(led(3, 8, None, 5)));
        assert_eq!(classes_of(&lost), [(5, Some(8), One), (8, Some(10), Never)]);
        // Followers may have what a failed disk has not; whoever reset the log may have committed and deleted it.
        for cause in [LossCause::FailedSync, LossCause::Reset, LossCause::Missing] {
            lost.loss.cause = cause;
            assert_eq!(classes_of(&lost), [(5, Some(8), One), (8, Some(10), Unknown)], "{cause:?}");
        }
    }

    #[test]
    fn after_a_restart_nothing_is_said_of_what_may_have_been_committed_unseen() {
        let note = |acked_to| Some(Led { committed_unseen: true, ..led(3, acked_to, Some(10), 4) });
        // The next leader was elected from the ISR: it has what was acknowledged at acks=all.
        assert_eq!(classes(4, Some(10), Some(4), note(3)), [(4, Some(10), Never)]);
        assert_eq!(classes(4, Some(10), Some(4), note(10)), [(4, Some(10), One)]);
        // A later one may be a replica from outside.
        let mut lost = cut(4, Some(10), Some(4), note(10));
        lost.leader_epoch = Some(LeaderEpoch(6));
        assert_eq!(classes_of(&lost), [(4, Some(10), Unknown)]);
        lost.led = note(3);
        assert_eq!(classes_of(&lost), [(4, Some(10), Unknown)]);
    }

    #[test]
    fn each_range_has_the_epoch_of_its_own_last_record_or_none() {
        let mut lost = cut(2, Some(10), Some(4), Some(led(6, 8, Some(10), 4)));
        lost.loss.last_epoch = Some(LeaderEpoch(4));
        let epochs = |lost: &Lost| -> Vec<Option<i32>> {
            parts(lost).iter().map(|part| part.last_epoch.map(|epoch| epoch.0)).collect()
        };
        assert_eq!(epochs(&lost), [None, None, None, Some(4)], "the log says it of the event");
        let starts = [(1, 0), (2, 5), (4, 7)];
        let start = |(epoch, start): (i32, i64)| EpochStart {
            epoch: LeaderEpoch(epoch),
            start_offset: Offset(start),
        };
        lost.epochs = Some(starts.map(start).into_iter().collect::<LeaderEpochs>());
        assert_eq!(epochs(&lost), [Some(1), Some(2), Some(4), Some(4)]);
        let mut lost = cut(2, None, Some(4), None);
        (lost.loss.at_least_to, lost.loss.last_epoch) = (Offset(9), Some(LeaderEpoch(4)));
        assert_eq!(epochs(&lost), [None, None], "there was more that could not be read");
    }

    #[test]
    fn what_is_not_known_is_said_to_be_unknown() {
        assert_eq!(classes(2, Some(9), Some(4), None), [(2, Some(4), All), (4, Some(9), Unknown)]);
        assert_eq!(classes(2, Some(9), None, None), [(2, Some(9), Unknown)]);
        assert_eq!(classes(2, None, Some(4), None), [(2, Some(4), All), (4, None, Unknown)]);
        assert_eq!(classes(4, None, Some(4), None), [(4, None, Unknown)]);
        assert_eq!(
            classes(2, None, Some(0), Some(led(3, 5, None, 5))),
            [(2, Some(3), Unknown), (3, Some(5), One), (5, None, Never)]
        );
    }

    #[test]
    fn a_leadership_goes_on_only_if_nobody_can_have_led_in_between() {
        let mut led = Led::begin(LeaderEpoch(4), Offset(10));
        led.acked(Offset(12));
        led.acked(Offset(11));
        assert_eq!(led.again(LeaderEpoch(5), Offset(13)).acked_to, Offset(12));
        assert_eq!(led.again(LeaderEpoch(6), Offset(13)), Led::begin(LeaderEpoch(6), Offset(13)));
        led.end(Offset(13));
        led.end(Offset(20));
        assert_eq!(led.to, Some(Offset(13)));
        assert_eq!(led.again(LeaderEpoch(5), Offset(20)).from, Offset(20), "it has copied since");
        led.cut(Offset(11));
        assert_eq!((led.from, led.acked_to, led.to), (Offset(10), Offset(11), Some(Offset(11))));
        led.cut(Offset(5));
        assert_eq!((led.from, led.acked_to), (Offset(5), Offset(5)));
    }
}
