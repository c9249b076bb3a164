//! Which entries this broker has, of whom, and which ones it still wants: the journal's core, without files, sockets or clocks.
//!
//! Entries come in series, one a kind and an origin, each in ascending order of sequences. A broker has a series up to its last
//! sequence; what is missing below (a file was rotated before anybody asked, a line was damaged) stays missing and is counted. But
//! a series that begins above 1, and of which no file was rotated, has lost its beginning with a directory: it is asked for again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use barnabas_types::{BrokerId, DirectoryId};

use super::Place;
use super::entry::{Kept, Kind, Mark, Origin};

/// Most series: brokers that are or were there, each new log directory counting as another one, times two kinds.
pub(super) const SERIES_MAX: usize = 256;
/// Bytes of entries in memory, all series together; beyond it the longest series loses its oldest.
pub(super) const BYTES_MAX: usize = 64 << 20;
/// A sequence that is so far above the last one is no gap but nonsense.
const GAP_MAX: u64 = 1 << 20;

/// The entries of all brokers, as far as they are durable here.
#[derive(Debug)]
pub(super) struct Book {
    me: Origin,
    series: BTreeMap<(Kind, Origin), Series>,
    /// All entries by time: whoever reads a page of them holds up nobody who adds one.
    order: BTreeMap<Kind, BTreeSet<Place>>,
    /// How many entries there are by the class that their bodies name.
    classes: BTreeMap<(Kind, Arc<str>), u64>,
    /// Own sequences that others have seen, if they are above what is here.
    seen: BTreeMap<Kind, u64>,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Series {
    /// Lowest and highest sequence seen; 0: none yet.
    first: u64,
    last: u64,
    /// How many there were.
    count: u64,
    /// Up to there they are held no longer, for want of memory.
    dropped: u64,
    /// A file of it was rotated here: it needs no beginning.
    rotated: bool,
    bytes: usize,
    /// In ascending order.
    entries: VecDeque<Kept>,
}

impl Series {
    /// Where an entry that is not known belongs; `None`: it is known.
    fn place(&self, sequence: u64) -> Option<usize> {
        if sequence <= self.dropped {
            return None;
        }
        self.entries.binary_search_by_key(&sequence, |entry| entry.sequence).err()
    }

    /// Entries that were passed over. Before the first one nothing is known to be missing: a file may have been rotated long ago.
    fn missing(&self) -> u64 {
        if self.last == 0 { 0 } else { self.last - self.first + 1 - self.count }
    }
}

/// What is to become of entries that another broker has sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Admission {
    /// To be written and then inserted, in this order.
    pub(super) new: Vec<Kept>,
    /// How many are there already.
    pub(super) known: usize,
    /// How many are not taken, and why the last of them was not.
    pub(super) refused: Option<(usize, &'static str)>,
}

impl Admission {
    pub(super) fn refuse(&mut self, why: &'static str) {
        let before = self.refused.map_or(0, |(count, _)| count);
        self.refused = Some((before + 1, why));
    }
}

impl Book {
    pub(super) fn new(me: Origin) -> Self {
        Self {
            me,
            series: BTreeMap::new(),
            order: BTreeMap::new(),
            classes: BTreeMap::new(),
            seen: BTreeMap::new(),
            bytes: 0,
            bytes_max: BYTES_MAX,
        }
    }

    /// The number of this broker's next entry.
    pub(super) fn next(&self, kind: Kind) -> u64 {
        let last = self.series.get(&(kind, self.me)).map_or(0, |series| series.last);
        last.max(self.seen.get(&kind).copied().unwrap_or(0)) + 1
    }

    /// Somebody has this broker's own entries up to there. If that is more than there is here, the disk has lost them, and their
    /// numbers must not be given again. The entries themselves come back from there, unless new ones are made before.
    pub(super) fn heard(&mut self, mark: Mark) {
        let Mark { kind, origin, sequence } = mark;
        let last = self.next(kind) - 1;
        if origin == self.me && sequence > last && sequence - last <= GAP_MAX {
            self.seen.insert(kind, sequence);
        }
    }

    /// Own entries were lost in damaged files: at most so many, behind those that could be read. Their numbers are not given again.
    pub(super) fn damaged(&mut self, kind: Kind, lost: u64) {
        if lost > 0 {
            self.seen.insert(kind, self.next(kind) - 1 + lost.min(GAP_MAX));
        }
    }

    /// A file of this series was rotated here.
    pub(super) fn rotated(&mut self, kind: Kind, origin: Origin) {
        self.series.entry((kind, origin)).or_default().rotated = true;
    }

    /// Series that have lost their beginning, and where they begin.
    pub(super) fn without_beginning(&self) -> Vec<(Kind, Origin, u64)> {
        let cut = self.series.iter().filter(|(_, series)| series.first > 1 && !series.rotated);
        cut.map(|(&(kind, origin), series)| (kind, origin, series.first)).collect()
    }

    /// Sorts what another broker has sent into new, known and refused. Nothing changes yet.
    pub(super) fn admit(&self, sent: impl IntoIterator<Item = Kept>) -> Admission {
        let mut admission = Admission::default();
        let mut lasts: BTreeMap<(Kind, Origin), u64> = BTreeMap::new();
        let mut taken: BTreeSet<(Kind, Origin, u64)> = BTreeSet::new();
        for entry in sent {
            let key = (entry.kind, entry.origin);
            let series = self.series.get(&key);
            let held = series.map(|series| series.last);
            let known = lasts.get(&key).copied().max(held);
            let new_series = lasts.keys().filter(|key| !self.series.contains_key(key)).count();
            let place = (entry.kind, entry.origin, entry.sequence);
            if series.is_some_and(|series| series.place(entry.sequence).is_none())
                || taken.contains(&place)
            {
                admission.known += 1;
                continue;
            }
            match known {
                Some(last) if entry.sequence > last && entry.sequence - last > GAP_MAX => {
                    admission.refuse("its sequence is far above the last one");
                    continue;
                }
                None if self.series.len() + new_series >= SERIES_MAX => {
                    admission.refuse(
                        "there are too many origins; remove the journal files of brokers that are gone, on every broker",
                    );
                    continue;
                }
                _ => {}
            }
            lasts.insert(key, known.unwrap_or(0).max(entry.sequence));
            taken.insert(place);
            admission.new.push(entry);
        }
        admission
    }

    /// Takes an entry that is durable; `false`: it is there already.
    pub(super) fn insert(&mut self, entry: Kept) -> bool {
        let series = self.series.entry((entry.kind, entry.origin)).or_default();
        let Some(place) = series.place(entry.sequence) else { return false };
        let first = if series.last == 0 { entry.sequence } else { series.first };
        series.first = first.min(entry.sequence);
        series.last = series.last.max(entry.sequence);
        series.count += 1;
        series.bytes += entry.bytes();
        self.bytes += entry.bytes();
        self.order.entry(entry.kind).or_default().insert(Place::of(&entry));
        if let Some(class) = &entry.class {
            *self.classes.entry((entry.kind, class.clone())).or_default() += 1;
        }
        series.entries.insert(place, entry);
        while self.bytes > self.bytes_max {
            let Some(longest) = self.series.values_mut().max_by_key(|series| series.bytes) else {
                break;
            };
            let Some(oldest) = longest.entries.pop_front() else { break };
            longest.bytes -= oldest.bytes();
            longest.dropped = oldest.sequence;
            self.bytes -= oldest.bytes();
            if let Some(order) = self.order.get_mut(&oldest.kind) {
                order.remove(&Place::of(&oldest));
            }
            if let Some(class) = oldest.class {
                let key = (oldest.kind, class);
                let left = self.classes.get(&key).map_or(0, |count| count.saturating_sub(1));
                if left == 0 {
                    self.classes.remove(&key);
                } else {
                    self.classes.insert(key, left);
                }
            }
        }
        true
    }

    /// How far each series is here: what a broker says when it asks another one for more.
    pub(super) fn marks(&self) -> Vec<Mark> {
        let mark = |(&(kind, origin), series): (&(Kind, Origin), &Series)| Mark {
            kind,
            origin,
            sequence: series.last,
        };
        self.series.iter().filter(|(_, series)| series.last > 0).map(mark).collect()
    }

    /// What somebody lacks who has everything up to `marks`: of each series the oldest first, and not more than `bytes_max`
    /// bytes in all, but for one entry. The first series is the one behind `last`: what the asker refuses, and so lacks for ever,
    /// must not keep the others from it.
    pub(super) fn after(
        &self,
        marks: &[Mark],
        bytes_max: usize,
        last: Option<(Kind, Origin)>,
    ) -> Vec<Kept> {
        let (mut found, mut bytes) = (Vec::new(), 0);
        let behind = last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.series.range((behind, Bound::Unbounded));
        let before = last.map(|last| self.series.range(..=last));
        for (key, series) in behind.chain(before.into_iter().flatten()) {
            let from = above(series, has(marks, key));
            for entry in series.entries.range(from..) {
                if bytes + entry.bytes() > bytes_max && !found.is_empty() {
                    return found;
                }
                bytes += entry.bytes();
                found.push(entry.clone());
            }
        }
        found
    }

    /// Whether there is more of this broker's own than these marks say.
    pub(super) fn has_own_after(&self, marks: &[Mark]) -> bool {
        let own = Kind::ALL.into_iter().filter_map(|kind| {
            let key = (kind, self.me);
            self.series.get(&key).map(|series| (key, series))
        });
        own.into_iter().any(|(key, series)| above(series, has(marks, &key)) < series.entries.len())
    }

    /// The newest `n` entries of a kind, in order.
    pub(super) fn last(&self, kind: Kind, n: usize) -> Vec<Kept> {
        let newest = self.order.get(&kind).into_iter().flat_map(|order| order.iter().rev());
        let mut found: Vec<Kept> =
            newest.take(n).filter_map(|place| self.at(kind, place)).cloned().collect();
        found.reverse();
        found
    }

    /// The first `max` entries of a kind from a time on (inclusive) and after a place, in order.
    pub(super) fn page(
        &self,
        kind: Kind,
        since_ms: i64,
        after: Option<&Place>,
        max: usize,
    ) -> Vec<Kept> {
        let origin = Origin { broker: BrokerId(i32::MIN), directory: DirectoryId([0; 16]) };
        let since = Place { time_ms: since_ms, origin, sequence: 0 };
        let from = match after {
            Some(after) if *after >= since => Bound::Excluded(after),
            _ => Bound::Included(&since),
        };
        let Some(order) = self.order.get(&kind) else { return Vec::new() };
        let places = order.range::<Place, _>((from, Bound::Unbounded)).take(max);
        places.filter_map(|place| self.at(kind, place)).cloned().collect()
    }

    fn at(&self, kind: Kind, place: &Place) -> Option<&Kept> {
        let entries = &self.series.get(&(kind, place.origin))?.entries;
        let index = entries.binary_search_by_key(&place.sequence, |entry| entry.sequence).ok()?;
        entries.get(index)
    }

    /// How many entries of a kind there are by the class that their bodies name; those without one are left out.
    pub(super) fn classes(&self, kind: Kind) -> BTreeMap<String, u64> {
        let of_kind = self.classes.iter().filter(|((of, _), _)| *of == kind);
        of_kind.map(|((_, class), count)| (class.to_string(), *count)).collect()
    }

    /// Entries of a kind that are known to have been made and are not here.
    pub(super) fn missing(&self, kind: Kind) -> u64 {
        self.of(kind).map(Series::missing).sum()
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |((of, _), _)| *of == kind).map(|(_, series)| series)
    }
}

fn has(marks: &[Mark], (kind, origin): &(Kind, Origin)) -> u64 {
    let mark = marks.iter().find(|mark| mark.kind == *kind && mark.origin == *origin);
    mark.map_or(0, |mark| mark.sequence)
}

/// Index of the first entry above a sequence.
fn above(series: &Series, sequence: u64) -> usize {
    series.entries.partition_point(|entry| entry.sequence <= sequence)
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::{kept, origin};
    use super::*;

    fn book(me: i32) -> Book {
        Book::new(origin(me))
    }

    fn fill(book: &mut Book, broker: i32, sequences: impl IntoIterator<Item = u64>) {
        for sequence in sequences {
            assert!(book.insert(kept(broker, sequence)));
        }
    }

    fn numbers(entries: &[Kept]) -> Vec<(i32, u64)> {
        entries.iter().map(|entry| (entry.origin.broker.0, entry.sequence)).collect()
    }

    #[test]
    fn a_broker_gets_what_it_lacks_and_nothing_twice() {
        let (mut one, mut two) = (book(1), book(2));
        fill(&mut one, 1, 1..=3);
        fill(&mut one, 3, [1]);
        fill(&mut two, 2, 1..=2);
        let sent = one.after(&two.marks(), BYTES_MAX, None);
        assert_eq!(numbers(&sent), [(1, 1), (1, 2), (1, 3), (3, 1)]);
        let admission = two.admit(sent.clone());
        assert_eq!((admission.new.len(), admission.known, admission.refused), (4, 0, None));
        admission.new.into_iter().for_each(|entry| assert!(two.insert(entry)));
        assert_eq!(two.admit(sent).known, 4);
        assert_eq!(one.after(&two.marks(), BYTES_MAX, None), []);
        assert!(!one.has_own_after(&two.marks()));
        fill(&mut one, 3, [2]);
        assert!(!one.has_own_after(&two.marks()), "it is another one's");
        fill(&mut one, 1, [4]);
        assert!(one.has_own_after(&two.marks()));
        // The same entry twice in one answer.
        let twice = two.admit([kept(1, 4), kept(1, 4)]);
        assert_eq!((numbers(&twice.new), twice.known), (vec![(1, 4)], 1));
    }

    #[test]
    fn answers_are_bounded_and_go_on_where_they_ended() {
        let (mut one, mut two) = (book(1), book(2));
        fill(&mut one, 1, 1..=10);
        let mut rounds = 0;
        loop {
            let sent = one.after(&two.marks(), 3 * kept(1, 1).bytes(), None);
            if sent.is_empty() {
                break;
            }
            assert!(sent.len() <= 3);
            sent.into_iter().for_each(|entry| assert!(two.insert(entry)));
            rounds += 1;
        }
        assert_eq!((rounds, two.marks()[0].sequence, two.missing(Kind::Loss)), (4, 10, 0));
        assert_eq!(
            one.after(&[], 1, None).len(),
            1,
            "one that is too large for any answer goes alone"
        );
    }

    #[test]
    fn a_series_that_is_refused_keeps_no_other_from_the_asker() {
        let mut one = book(1);
        fill(&mut one, 2, 1..=10);
        fill(&mut one, 3, [1]);
        let bytes = 3 * kept(1, 1).bytes();
        let first = one.after(&[], bytes, None);
        assert_eq!(numbers(&first), [(2, 1), (2, 2), (2, 3)]);
        let last = first.last().map(|entry| (entry.kind, entry.origin));
        assert_eq!(numbers(&one.after(&[], bytes, last)), [(3, 1), (2, 1), (2, 2)]);
        assert_eq!(numbers(&one.after(&[], bytes, Some((Kind::Loss, origin(3))))).len(), 3);
    }

    #[test]
    fn gaps_are_taken_and_counted_and_nonsense_is_refused() {
        let mut book = book(1);
        fill(&mut book, 2, [40, 41, 44]);
        assert_eq!(book.missing(Kind::Loss), 2, "what was before 40 nobody knows");
        let admission = book.admit([kept(2, 44), kept(2, 44 + GAP_MAX + 1), kept(2, 45)]);
        assert_eq!((numbers(&admission.new), admission.known), (vec![(2, 45)], 1));
        assert_eq!(admission.refused.unwrap().0, 1);
    }

    #[test]
    fn origins_are_bounded() {
        let mut book = book(1);
        (0..250).for_each(|broker| fill(&mut book, broker, [1]));
        let held = book.marks().len();
        let many = |from: u8| {
            (from..=255).map(|byte| {
                let mut entry = kept(0, 9);
                entry.origin.directory.0 = [byte; 16];
                entry
            })
        };
        let admission = book.admit(many(200));
        assert_eq!(admission.new.len(), SERIES_MAX - held);
        assert_eq!(admission.refused.unwrap().0, 56 - (SERIES_MAX - held));
        assert_eq!(book.admit([kept(0, 3)]).new.len(), 1, "those that are known go on");
    }

    #[test]
    fn memory_is_bounded_and_the_longest_series_pays() {
        let mut book = book(1);
        book.bytes_max = 10 * kept(1, 1).bytes();
        fill(&mut book, 2, 1..=3);
        fill(&mut book, 3, 1..=20);
        let held = book.last(Kind::Loss, usize::MAX);
        assert!(held.len() <= 10 && book.bytes <= book.bytes_max);
        assert_eq!(held.iter().filter(|entry| entry.origin == origin(2)).count(), 3);
        assert_eq!(held.last().unwrap().sequence, 20);
        let counted = book.classes(Kind::Loss)["acks=1"];
        assert_eq!(counted, held.len() as u64, "what was dropped is not counted");
        assert_eq!(book.page(Kind::Loss, 0, None, usize::MAX), held);
        assert_eq!(book.next(Kind::Loss), 1);
        assert_eq!(book.marks()[1].sequence, 20, "what was dropped is not asked for again");
    }

    #[test]
    fn numbers_that_others_have_seen_are_not_given_again() {
        let mut book = book(1);
        fill(&mut book, 1, 1..=2);
        let mark = |broker, sequence| Mark { kind: Kind::Loss, origin: origin(broker), sequence };
        book.heard(mark(2, 9));
        book.heard(mark(1, 2));
        book.heard(mark(1, u64::MAX));
        assert_eq!((book.next(Kind::Loss), book.next(Kind::Failover)), (3, 1));
        book.heard(mark(1, 5));
        assert_eq!((book.next(Kind::Loss), book.marks()[0].sequence), (6, 2));
        assert_eq!(book.admit([kept(1, 5)]).new.len(), 1, "it comes back");
        fill(&mut book, 1, [6]);
        assert_eq!((book.next(Kind::Loss), book.missing(Kind::Loss)), (7, 3));
    }

    #[test]
    fn numbers_of_own_entries_that_were_damaged_are_not_given_again() {
        let mut book = book(1);
        fill(&mut book, 1, 1..=4);
        book.damaged(Kind::Loss, 0);
        assert_eq!(book.next(Kind::Loss), 5);
        book.damaged(Kind::Loss, 3);
        assert_eq!((book.next(Kind::Loss), book.next(Kind::Failover)), (8, 1));
        assert_eq!(numbers(&book.admit([kept(1, 6)]).new), [(1, 6)], "a peer may have it still");
    }

    #[test]
    fn a_lost_beginning_is_known_and_taken_back() {
        let mut book = book(1);
        fill(&mut book, 2, 4..=6);
        fill(&mut book, 3, 7..=9);
        book.rotated(Kind::Loss, origin(3));
        book.rotated(Kind::Loss, origin(5));
        fill(&mut book, 4, 1..=2);
        assert_eq!(book.without_beginning(), [(Kind::Loss, origin(2), 4)]);
        assert_eq!(book.marks().len(), 3, "of origin 5 nothing is here");
        let admission = book.admit((1..=5).chain([2]).map(|sequence| kept(2, sequence)));
        assert_eq!(numbers(&admission.new), [(2, 1), (2, 2), (2, 3)]);
        assert_eq!(admission.known, 3);
        fill(&mut book, 2, [1, 3]);
        assert_eq!((book.missing(Kind::Loss), book.without_beginning()), (1, Vec::new()));
        fill(&mut book, 2, [2]);
        let of_two = book.last(Kind::Loss, 99).into_iter().filter(|e| e.origin == origin(2));
        assert_eq!(of_two.map(|e| e.sequence).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        assert_eq!((book.missing(Kind::Loss), book.marks()[0].sequence), (0, 6));
    }

    #[test]
    fn the_order_is_that_of_times() {
        let mut book = book(1);
        fill(&mut book, 2, [1, 3]);
        fill(&mut book, 1, [1, 2]);
        let order = book.last(Kind::Loss, 9);
        assert_eq!(numbers(&order), [(1, 1), (2, 1), (1, 2), (2, 3)]);
        assert_eq!(book.classes(Kind::Loss), BTreeMap::from([("acks=1".to_owned(), 4)]));
        assert_eq!(numbers(&book.last(Kind::Loss, 2)), [(1, 2), (2, 3)]);
        assert!(book.last(Kind::Failover, 9).is_empty());
    }
}
