//! The groups of the whole cluster with their lag, asked for at most once a second, and whether the lag grows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use barnabas_proto::v1;
use barnabas_types::{BrokerId, TopicName, TopicPartition};

use super::super::source::Source;
use super::own::{CommittedOffset, GroupTold};

/// What is younger is not asked again.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// Two lags of which the trend is told lie at least so far apart.
const TREND_OVER: Duration = Duration::from_secs(10);
/// Groups of which a lag is remembered.
const TRENDS_MAX: usize = 10_000;

/// One group with its lag.
#[derive(Clone, Debug)]
pub(in crate::http) struct Group {
    pub(in crate::http) coordinator: BrokerId,
    pub(in crate::http) told: GroupTold,
    /// Ends of the logs, by what is committed; `None`: nobody told.
    pub(in crate::http) ends: Vec<Option<i64>>,
    /// When the first record that is not read was written, by what is committed, ms of Unix time; `None`: all is read, or nobody told.
    pub(in crate::http) written: Vec<Option<i64>>,
    /// growing, shrinking or steady; `None`: not known yet.
    pub(in crate::http) trend: Option<&'static str>,
}

impl Group {
    /// Records behind what is committed; `None`: nothing is committed, or not all ends are known.
    pub(in crate::http) fn lag(&self) -> Option<i64> {
        if self.told.offsets.is_empty() {
            return None;
        }
        self.told.offsets.iter().zip(&self.ends).map(|(at, end)| lag(at, *end)).sum()
    }

    /// How long the oldest record that is not read has been there at `now_ms`, by its own timestamp; 0: all is read; `None`: nothing is committed, or
    /// it is not known.
    pub(in crate::http) fn lag_ms(&self, now_ms: i64) -> Option<i64> {
        if self.told.offsets.is_empty() {
            return None;
        }
        let offsets = self.told.offsets.iter().zip(&self.ends).zip(&self.written);
        let ages = offsets.map(|((at, end), written)| match lag(at, *end)? {
            0 => Some(0),
            _ => Some(now_ms.saturating_sub((*written)?).max(0)),
        });
        ages.collect::<Option<Vec<i64>>>().map(|ages| ages.into_iter().max().unwrap_or(0))
    }

    /// The topics that it reads.
    pub(in crate::http) fn topics(&self) -> BTreeSet<&str> {
        self.told.offsets.iter().map(|offset| offset.topic.as_str()).collect()
    }
}

/// Records between a commit and the end of the log.
pub(in crate::http) fn lag(at: &CommittedOffset, end: Option<i64>) -> Option<i64> {
    Some((end? - at.offset).max(0))
}

/// See the module's head.
#[derive(Default)]
pub(in crate::http) struct Groups {
    state: Mutex<State>,
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    last: Option<(Instant, Arc<Known>)>,
    trends: HashMap<String, Trend>,
    /// What does not change: when the record at an offset was written.
    written: HashMap<Place, i64>,
}

/// Topic, partition, offset.
type Place = (String, i32, i64);

/// All groups.
#[derive(Debug, Default)]
pub(in crate::http) struct Known {
    pub(in crate::http) groups: BTreeMap<String, Group>,
    /// Every broker answered.
    pub(in crate::http) complete: bool,
}

/// The lag at two times.
struct Trend {
    before: (Instant, i64),
    last: (Instant, i64),
}

impl Trend {
    fn note(&mut self, now: Instant, lag: i64) -> Option<&'static str> {
        if now.duration_since(self.last.0) >= TREND_OVER {
            (self.before, self.last) = (self.last, (now, lag));
        }
        if now.duration_since(self.before.0) < TREND_OVER {
            return None;
        }
        // A tenth and ten records are noise.
        let (was, noise) = (self.before.1, self.before.1 / 10 + 10);
        Some(match lag - was {
            more if more > noise => "growing",
            less if -less > noise => "shrinking",
            _ => "steady",
        })
    }
}

impl Groups {
    /// All groups as they were within the last second.
    pub(in crate::http) async fn known(&self, source: &Source) -> Arc<Known> {
        let fresh = || {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let last = state.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH_FOR);
            last.map(|(_, known)| known.clone())
        };
        if let Some(known) = fresh() {
            return known;
        }
        let _turn = self.asking.lock().await;
        if let Some(known) = fresh() {
            return known;
        }
        let (told, complete) = source.peers.groups(source).await;
        let ends = ends(source, &told).await;
        let mut written = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut state.written)
        };
        written_at(source, &told, &ends, &mut written).await;
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut groups = BTreeMap::new();
        for (coordinator, told) in told {
            let of = told.offsets.iter().map(|o| ends.get(&(o.topic.clone(), o.partition)));
            let ends = of.map(|end| end.copied()).collect();
            let place = |o: &CommittedOffset| (o.topic.clone(), o.partition, o.offset);
            let of = told.offsets.iter().map(|o| written.get(&place(o)).copied()).collect();
            let mut group = Group { coordinator, told, ends, written: of, trend: None };
            if let Some(lag) = group.lag().filter(|_| state.trends.len() < TRENDS_MAX) {
                let first = (now, lag);
                let trend = state.trends.entry(group.told.name.clone());
                let trend = trend.or_insert(Trend { before: first, last: first });
                group.trend = trend.note(now, lag);
            }
            groups.insert(group.told.name.clone(), group);
        }
        state.trends.retain(|name, _| groups.contains_key(name));
        let known = Arc::new(Known { groups, complete });
        state.last = Some((now, known.clone()));
        state.written = written;
        known
    }
}

/// The high watermark of every partition in which something is committed, as its leader has it.
async fn ends(source: &Source, told: &[(BrokerId, GroupTold)]) -> HashMap<(String, i32), i64> {
    let image = source.node.view.image();
    let committed = told.iter().flat_map(|(_, group)| &group.offsets);
    let wanted: BTreeSet<(String, i32)> =
        committed.map(|offset| (offset.topic.clone(), offset.partition)).collect();
    let led = wanted.into_iter().filter_map(|(topic, partition)| {
        let topic = TopicName::new(&topic).ok()?;
        let leader = image.topics.get(&topic)?.partitions.get(&partition)?.state.leader?;
        Some((TopicPartition { topic, partition }, leader))
    });
    let found = source.peers.positions(source, led).await;
    let ends = found.into_iter().filter_map(|((at, _), told)| {
        let end = told.field("high_watermark").as_i64()?;
        Some(((at.topic.to_string(), at.partition), end))
    });
    ends.collect()
}

/// Asks when the first record after each commit was written, where that is not known and there is one; forgets what no commit stands at.
async fn written_at(
    source: &Source,
    told: &[(BrokerId, GroupTold)],
    ends: &HashMap<(String, i32), i64>,
    known: &mut HashMap<Place, i64>,
) {
    let image = source.node.view.image();
    let mut wanted: BTreeMap<BrokerId, Vec<v1::RecordAt>> = BTreeMap::new();
    let mut kept = HashMap::new();
    for offset in told.iter().flat_map(|(_, group)| &group.offsets) {
        let end = ends.get(&(offset.topic.clone(), offset.partition));
        if end.is_none_or(|end| *end <= offset.offset) {
            continue;
        }
        let place = (offset.topic.clone(), offset.partition, offset.offset);
        if let Some(at_ms) = known.get(&place) {
            kept.insert(place, *at_ms);
            continue;
        }
        let Ok(topic) = TopicName::new(&offset.topic) else { continue };
        let partition = image.topics.get(&topic).and_then(|t| t.partitions.get(&offset.partition));
        if let Some(leader) = partition.and_then(|partition| partition.state.leader) {
            let (topic, partition, offset) = place;
            wanted.entry(leader).or_default().push(v1::RecordAt { topic, partition, offset });
        }
    }
    let found = source.peers.written(source, wanted).await.into_iter();
    kept.extend(found.map(|(at, at_ms)| ((at.topic, at.partition, at.offset), at_ms)));
    *known = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_known_only_if_all_of_it_is() {
        let at = |partition, offset| CommittedOffset { topic: "t".into(), partition, offset };
        let told = GroupTold { offsets: vec![at(0, 5), at(1, 9)], ..GroupTold::default() };
        let coordinator = BrokerId(1);
        let (ends, written) = (vec![Some(8), Some(7)], vec![Some(1_000), None]);
        let mut group = Group { coordinator, told, ends, written, trend: None };
        assert_eq!(group.lag(), Some(3), "what is committed beyond the end is no lag");
        assert_eq!(group.lag_ms(1_700), Some(700));
        assert_eq!(group.lag_ms(900), Some(0), "clocks differ");
        group.written[0] = None;
        assert_eq!(group.lag_ms(1_700), None);
        group.ends[0] = Some(5);
        assert_eq!(group.lag_ms(1_700), Some(0), "all is read");
        group.ends[1] = None;
        assert_eq!((group.lag(), group.lag_ms(1_700)), (None, None));
        (group.told.offsets, group.ends) = (Vec::new(), Vec::new());
        let none = (group.lag(), group.lag_ms(1_700));
        assert_eq!(none, (None, None), "who has committed nothing is not at the end");
    }

    #[test]
    fn a_trend_needs_time_and_more_than_noise() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut trend = Trend { before: (start, 100), last: (start, 100) };
        assert_eq!(trend.note(at(5), 900), None);
        assert_eq!(trend.note(at(10), 900), Some("growing"));
        assert_eq!(trend.note(at(15), 110), Some("steady"));
        assert_eq!(trend.note(at(25), 100), Some("shrinking"));
    }
}
