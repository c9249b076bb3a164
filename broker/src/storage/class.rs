//! What lost records had been acknowledged at, as far as the replica that lost them can know. It never guesses.
//!
//! | class | what it says |
//! |---|---|
//! | `acks=all` | below the high watermark of the replica: committed, so acknowledged at acks=all if they were sent with it, and seen by consumers maybe |
//! | `acks=1` | above it, and this replica, their leader, acknowledged records up to the end of the range at acks=1; those at acks=all among them have got no success |
//! | `never acked` | above it, from this replica as their leader, which acknowledged none of them, and nobody else can have |
//! | `unknown` | whoever could know did not tell; the reason says who that is |
//!
//! Of what a crash of the host took nobody knows each record. If one kind of acknowledgement was all that its leader ever gave, that is the
//! class: the most that any of the records had been acknowledged at.
//!
//! What an earlier process of the replica acknowledged is known from its note ([`super::LedNote`]).

use barnabas_log::LossCause;
use barnabas_types::{LeaderEpoch, Offset};

use super::led_note::{AckKinds, LedNote};
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
    /// An earlier process has noted that everything below is committed, and answered nothing at acks=all at or above it.
    pub committed: Offset,
    /// An earlier process acknowledged records at acks=all in it, maybe above the high watermark that this one knows.
    pub committed_unseen: bool,
    /// All that it appended was sent at acks=0.
    pub unasked: bool,
}

impl Led {
    /// A leadership that begins, over a log that ends at `log_end`.
    #[must_use]
    pub fn begin(epoch: LeaderEpoch, log_end: Offset) -> Self {
        let (from, acked_to, committed) = (log_end, log_end, Offset(0));
        let (committed_unseen, unasked) = (false, true);
        Self { from, to: None, acked_to, epoch, committed, committed_unseen, unasked }
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
        self.committed = self.committed.min(end);
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
    /// The class if nobody has led between this leader epoch of the replica, in which the range was appended, and the one in which it
    /// is lost. Others may know.
    pub unless_led: Option<(Class, LeaderEpoch)>,
}

const COMMITTED: &str = "below the high watermark of this replica";
const ONE: &str = "this replica led, and acknowledged it at acks=1";
const NEVER: &str =
    "this replica led and acknowledged none of it, and nobody who had it has led since";
const UNASKED: &str = "this replica led, and was asked for no acknowledgement (acks=0)";
const COPIED: &str = "copied from a leader, and only that one knows what it acknowledged";
const RESTARTED: &str = "this process has not led the partition since it started: what was acknowledged before is not known";
const UNSEEN: &str = "an earlier process of this replica led, and acknowledged at acks=all more than this one knows to be committed";
const LED_SINCE: &str =
    "this replica led and acknowledged none of it, but others may have led in between";
const NOT_CUT: &str = "this replica led and acknowledged none of it, but others may have had it, and have committed it";
const NO_MARK: &str = "the high watermark of this replica is not known";
const OTHERS: &str = "what other replicas acknowledged is not known here";
const MOST_ALL: &str = "the host crashed: this replica led until then and was asked for acks=all alone, so that is the most that a record had been acknowledged at";
const MOST_ONE: &str = "the host crashed: this replica led until then and was asked for acks=1 alone, so that is the most that a record had been acknowledged at";
const MOST_NONE: &str =
    "the host crashed: this replica led until then and was asked for no acknowledgement (acks=0)";
const MIXED: &str = "the host crashed: this replica led until then and was asked for acks=1 and acks=all, and which records are gone is not known";

/// Where a class ends, exclusive (`None`: it has no end), the class, why, and what it would be if nobody had led in between.
type End = (Option<Offset>, Class, &'static str, Option<(Class, LeaderEpoch)>);

/// The ranges of a loss, in order; at least one.
pub(super) fn parts(lost: &Lost) -> Vec<Part> {
    let loss = &lost.loss;
    let ends = match loss.cause {
        LossCause::UncleanElection => vec![(None, Class::Unknown, OTHERS, None)],
        _ => ends(lost),
    };
    let (mut found, mut from) = (Vec::new(), loss.from);
    for (end, class, reason, unless_led) in ends {
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
        found.push(Part { from, to, at_least_to, last_epoch, class, reason, unless_led });
        match to {
            Some(to) => from = to,
            None => break,
        }
    }
    found
}

/// In ascending order; the last one has no end.
fn ends(lost: &Lost) -> Vec<End> {
    let truncated = lost.loss.cause == LossCause::Truncated;
    // A young partition has none that would outlive a process.
    let mark = lost.high_watermark.unwrap_or_default();
    if let Some(LedNote { from, kinds, .. }) = &lost.led_until_crash {
        let (class, reason) = most(*kinds);
        return vec![
            (Some(mark), Class::All, COMMITTED, None),
            (Some(*from), Class::Unknown, COPIED, None),
            (None, class, reason, None),
        ];
    }
    let Some(led) = lost.led else {
        let why = if lost.high_watermark.is_some() { RESTARTED } else { NO_MARK };
        return vec![(Some(mark), Class::All, COMMITTED, None), (None, Class::Unknown, why, None)];
    };
    let mark = mark.max(led.committed);
    // Whoever led directly after this replica has ordered the cut: it has no such record, so it acknowledged none. Only a cut
    // proves that: a log that begins anew may have been committed and deleted elsewhere, and followers may have what a
    // failed disk has not.
    let next = lost.leader_epoch.is_some_and(|present| present.0 <= led.epoch.0 + 1);
    let unseen = led.committed_unseen && !(next && truncated);
    let never = (Class::Never, led.epoch);
    let (one, rest) = match unseen {
        true => ((Class::Unknown, UNSEEN), (Class::Unknown, UNSEEN, None)),
        // Whoever had it: a producer that asks for no answer gets none.
        false if led.unasked => ((Class::Never, UNASKED), (Class::Never, UNASKED, None)),
        false if !truncated => ((Class::One, ONE), (Class::Unknown, NOT_CUT, None)),
        false if next => ((Class::One, ONE), (Class::Never, NEVER, None)),
        false => ((Class::One, ONE), (Class::Unknown, LED_SINCE, Some(never))),
    };
    let mut ends = vec![
        (Some(mark), Class::All, COMMITTED, None),
        (Some(led.from), Class::Unknown, COPIED, None),
        (Some(led.acked_to), one.0, one.1, None),
        (led.to, rest.0, rest.1, rest.2),
    ];
    if led.to.is_some() {
        ends.push((None, Class::Unknown, COPIED, None));
    }
    ends
}

/// The most that records had been acknowledged at whose leader was asked for these kinds, or that it is not known.
fn most(kinds: AckKinds) -> (Class, &'static str) {
    match kinds {
        AckKinds { one: true, all: true } => (Class::Unknown, MIXED),
        AckKinds { one: true, all: false } => (Class::One, MOST_ONE),
        AckKinds { one: false, all: true } => (Class::All, MOST_ALL),
        AckKinds { one: false, all: false } => (Class::Never, MOST_NONE),
    }
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
        let (epoch, committed) = (LeaderEpoch(epoch), Offset(0));
        let (committed_unseen, unasked) = (false, false);
        Led { from, to, acked_to, epoch, committed, committed_unseen, unasked }
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
            led_until_crash: None,
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
    fn a_killed_leader_has_noted_what_was_committed() {
        let noted = |acked_to| Some(Led { committed: Offset(7), ..led(3, acked_to, Some(10), 4) });
        assert_eq!(
            classes(4, Some(10), Some(2), noted(9)),
            [(4, Some(7), All), (7, Some(9), One), (9, Some(10), Never)]
        );
        // An unclean leader is one of a later epoch, and what the note says stays true.
        let mut lost = cut(4, Some(10), Some(2), noted(9));
        lost.leader_epoch = Some(LeaderEpoch(6));
        assert_eq!(
            classes_of(&lost),
            [(4, Some(7), All), (7, Some(9), One), (9, Some(10), Unknown)]
        );
        let unless_led: Vec<_> = parts(&lost).iter().map(|part| part.unless_led).collect();
        assert_eq!(unless_led, [None, None, Some((Never, LeaderEpoch(4)))]);
        assert_eq!(classes(4, Some(6), Some(2), noted(9)), [(4, Some(6), All)]);
    }

    #[test]
    fn what_asked_for_no_acknowledgement_has_got_none_whoever_led_since() {
        let mut lost =
            cut(2, Some(10), Some(4), Some(Led { unasked: true, ..led(3, 3, Some(9), 4) }));
        for (leader_epoch, cause) in [
            (5, LossCause::Truncated),
            (9, LossCause::Truncated),
            (9, LossCause::Reset),
            (4, LossCause::FailedSync),
        ] {
            lost.leader_epoch = Some(LeaderEpoch(leader_epoch));
            lost.loss.cause = cause;
            let expected = [(2, Some(4), All), (4, Some(9), Never), (9, Some(10), Unknown)];
            assert_eq!(classes_of(&lost), expected, "{cause:?} in epoch {leader_epoch}");
        }
    }

    #[test]
    fn of_a_crash_the_kinds_that_the_leader_was_asked_for_tell_or_nothing_does() {
        let kinds = |one, all| AckKinds { one, all };
        for (kinds, class) in [
            (kinds(false, false), Never),
            (kinds(true, false), One),
            (kinds(false, true), All),
            (kinds(true, true), Unknown),
        ] {
            let mut lost = cut(5, None, Some(2), None);
            lost.loss.cause = LossCause::HostCrash;
            let (epoch, from) = (LeaderEpoch(4), Offset(3));
            lost.led_until_crash = Some(LedNote { epoch, from, kinds, committed: None });
            assert_eq!(classes_of(&lost), [(5, None, class)]);
            lost.loss.from = Offset(1);
            lost.loss.at_least_to = Offset(1);
            assert_eq!(
                classes_of(&lost),
                [(1, Some(2), All), (2, Some(3), Unknown), (3, None, class)],
                "what it had copied before it led"
            );
            lost.high_watermark = None;
            assert_eq!(classes_of(&lost), [(1, Some(3), Unknown), (3, None, class)], "young");
        }
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
