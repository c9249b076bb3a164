//! `partitions`: the list, a window at a time, and the map with one letter for each.

use barnabas_types::{
    BrokerId, ClusterImage, Partition, Standing, TopicImage, TopicName, TopicPartition,
};
use serde_json::{Value, json};

use super::super::query::Query;
use super::super::source::Source;
use super::refusal::Refusal;
use super::standing::{described, letter};
use super::{PAGE_ROWS_MAX, ROWS};

/// The offsets that a leader tells.
const OFFSETS: [&str; 5] =
    ["log_start_offset", "log_end_offset", "high_watermark", "flushed_offset", "bytes"];

/// `{"topics": [{"name", "states"}]}`.
pub(super) async fn map(source: &Source) -> Result<Value, Refusal> {
    let image = source.node.view.image();
    let all = source.aside.run(move || {
        let topics = image.topics.iter().map(|(name, topic)| {
            let states = topic
                .partitions
                .iter()
                .map(|(index, p)| letter(Standing::of(&image, name, topic, *index, p)));
            json!({ "name": name.as_str(), "states": states.collect::<String>() })
        });
        topics.collect::<Vec<_>>()
    });
    Ok(json!({ "topics": all.await.ok_or_else(Refusal::failed)? }))
}

/// Which partitions are wanted.
#[derive(Debug, Default)]
struct Wanted {
    state: Option<String>,
    broker: Option<BrokerId>,
    topic: Option<String>,
    text: Option<String>,
}

impl Wanted {
    fn of(query: &Query) -> Result<Self, Refusal> {
        let state = query.text("state").map(str::to_owned);
        let known = ["offline", "under_min_isr", "under_replicated", "any"];
        if state.as_deref().is_some_and(|state| !known.contains(&state)) {
            return Err(Refusal::bad(format!("state must be one of {}", known.join(", "))));
        }
        let broker = query.number("broker", (0, i32::MAX.into()))?;
        Ok(Self {
            state,
            broker: broker.and_then(|id| i32::try_from(id).ok()).map(BrokerId),
            topic: query.text("topic").map(str::to_owned),
            text: query.text("q").map(str::to_lowercase),
        })
    }

    fn is(
        &self,
        image: &ClusterImage,
        (name, topic): (&TopicName, &TopicImage),
        (index, partition): (i32, &Partition),
    ) -> bool {
        let standing = || Standing::of(image, name, topic, index, partition);
        let state = match self.state.as_deref() {
            None => true,
            Some("any") => standing() != Standing::Online,
            Some("under_replicated") => {
                partition.lacks_replicas() && standing() != Standing::Offline
            }
            Some(wanted) => standing().name() == wanted,
        };
        let text = |wanted: &String| format!("{name}-{index}").to_lowercase().contains(wanted);
        state
            && self.broker.is_none_or(|id| partition.assigned_replicas.contains(&id))
            && self.topic.as_ref().is_none_or(|wanted| wanted == name.as_str())
            && self.text.as_ref().is_none_or(text)
    }
}

/// A window of those that are wanted, ordered by topic and partition.
pub(super) async fn list(source: &Source, query: &Query) -> Result<Value, Refusal> {
    let wanted = Wanted::of(query)?;
    let from = query.number("from", (0, i64::from(u32::MAX)))?.unwrap_or(0);
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let limit = query.limit(ROWS, PAGE_ROWS_MAX)?;
    let image = source.node.view.image();
    let of = image.clone();
    let found = source.aside.run(move || window(&of, &wanted, (from, limit))).await;
    let (rows, total) = found.ok_or_else(Refusal::failed)?;
    let known = |at: TopicPartition| {
        let topic = image.topics.get(&at.topic)?;
        let partition = topic.partitions.get(&at.partition)?;
        Some((at, topic, partition))
    };
    let rows: Vec<_> = rows.into_iter().filter_map(known).collect();
    let asked = rows
        .iter()
        .filter_map(|(at, _, partition)| Some((at.clone(), who_knows(source.node.me, partition)?)));
    let found = source.peers.positions(source, asked.collect::<Vec<_>>()).await;
    let partitions = rows.iter().map(|(at, topic, partition)| {
        let mut told = described(&image, &at.topic, topic, at.partition, partition);
        let who = who_knows(source.node.me, partition);
        let position = who.and_then(|id| found.get(&(at.clone(), id)));
        for name in OFFSETS {
            told[name] = position.map_or(Value::Null, |position| position.field(name));
        }
        told["reported_ms_ago"] = json!(position.map(|position| position.age_ms()));
        told
    });
    let partitions: Vec<Value> = partitions.collect();
    Ok(json!({ "total": total, "from": from, "partitions": partitions }))
}

/// `limit` of those that are wanted, after the first `from` of them, and how many there are.
fn window(
    image: &ClusterImage,
    wanted: &Wanted,
    (from, limit): (usize, usize),
) -> (Vec<TopicPartition>, usize) {
    let (mut rows, mut total) = (Vec::new(), 0);
    for (name, topic) in &image.topics {
        for (index, partition) in &topic.partitions {
            if !wanted.is(image, (name, topic), (*index, partition)) {
                continue;
            }
            if total >= from && rows.len() < limit {
                rows.push(TopicPartition { topic: name.clone(), partition: *index });
            }
            total += 1;
        }
    }
    (rows, total)
}

/// Whose word on a partition's offsets counts: the leader's; without one this broker's own, if it has a replica, else the first one's.
pub(super) fn who_knows(me: BrokerId, partition: &Partition) -> Option<BrokerId> {
    let assigned = &partition.assigned_replicas;
    let own = assigned.contains(&me).then_some(me);
    partition.state.leader.or(own).or_else(|| assigned.first().copied())
}

#[cfg(test)]
mod tests {
    use super::super::standing::tests::image;
    use super::*;

    #[test]
    fn filters_hold_together() {
        let states: [(i32, &[i32]); 4] = [(1, &[1, 2, 3]), (2, &[1, 2]), (1, &[1]), (-1, &[3])];
        let image = image(&[1, 2], &states);
        let (name, topic) = image.topics.iter().next().unwrap();
        let found = |query: &str| -> Vec<i32> {
            let wanted = Wanted::of(&Query::parse(query).unwrap()).unwrap();
            let all = topic.partitions.iter();
            let is =
                |(index, p): &(&i32, &Partition)| wanted.is(&image, (name, topic), (**index, p));
            all.filter(is).map(|(i, _)| *i).collect()
        };
        assert_eq!(found(""), [0, 1, 2, 3]);
        assert_eq!(found("state=any"), [1, 2, 3]);
        assert_eq!(found("state=offline"), [3]);
        assert_eq!(found("state=under_min_isr"), [2]);
        assert_eq!(found("state=under_replicated"), [1, 2]);
        assert_eq!(found("state=any&q=T-2"), [2]);
        assert_eq!(found("broker=7"), [0; 0]);
        assert_eq!(found("topic=t&broker=3"), [0, 1, 2, 3]);
        assert_eq!(found("topic=T"), [0; 0], "names are exact");
        let refused = Wanted::of(&Query::parse("state=well").unwrap()).unwrap_err();
        assert!(refused.message.starts_with("state must be one of"));
    }
}
