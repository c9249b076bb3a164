//! Which brokers hold the partitions of a new topic: leaders spread evenly, replicas over racks, the same answer every time.

use std::collections::BTreeMap;

use barnabas_types::{BrokerId, BrokerImage};

/// What a broker holds already, over all topics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Load {
    /// Partitions whose preferred leader it is.
    pub(crate) leads: u64,
    /// Partitions of which it is an assigned replica.
    pub(crate) replicas: u64,
}

/// One live broker while a topic is being placed.
struct Seat<'a> {
    broker: BrokerId,
    rack: Option<&'a str>,
    before: Load,
    now: Load,
}

/// Assigned replicas for `partitions` partitions, `replication_factor` each (at most the number of brokers).
///
/// Leaders: whoever leads least, first within this topic, then over all topics, so that many one-partition topics spread
/// as one large topic does. Followers: the rack with the fewest replicas of the partition, then the broker with the
/// fewest replicas of the topic, then of all topics, then the next one in a ring that alternates between racks; the
/// place where the ring is entered moves on with every round of leaders, so that two brokers do not share all their
/// partitions. A broker that is being emptied gets replicas only if there are not enough others.
pub(crate) fn place(
    brokers: &BTreeMap<BrokerId, BrokerImage>,
    load: &BTreeMap<BrokerId, Load>,
    partitions: usize,
    replication_factor: usize,
) -> Vec<Vec<BrokerId>> {
    let staying = brokers.values().filter(|broker| !broker.draining).count();
    let mut ring = ring(brokers, load);
    if staying >= replication_factor {
        ring.retain(|seat| brokers.get(&seat.broker).is_some_and(|broker| !broker.draining));
    }
    let n = ring.len();
    if n == 0 {
        return Vec::new();
    }
    let led: u64 = ring.iter().map(|s| s.before.leads).sum();
    let rounds_before = usize::try_from(led / n as u64).unwrap_or(0);
    let mut leaders = Vec::with_capacity(partitions);
    for _ in 0..partitions {
        let Some(seat) = (0..n).min_by_key(|&i| (ring[i].now.leads, ring[i].before.leads, i))
        else {
            break;
        };
        ring[seat].now.leads += 1;
        ring[seat].now.replicas += 1;
        leaders.push(seat);
    }
    let mut placed = Vec::with_capacity(partitions);
    for (index, leader) in leaders.into_iter().enumerate() {
        let start = (leader + 1 + rounds_before + index / n) % n;
        let mut seats = vec![leader];
        while seats.len() < replication_factor.min(n) {
            let key = |i: usize| {
                let rack = seats.iter().filter(|&&s| ring[s].rack == ring[i].rack).count();
                let distance = (i + n - start) % n;
                (rack, ring[i].now.replicas, ring[i].before.replicas, distance)
            };
            let Some(next) = (0..n).filter(|i| !seats.contains(i)).min_by_key(|&i| key(i)) else {
                break;
            };
            ring[next].now.replicas += 1;
            seats.push(next);
        }
        placed.push(seats.into_iter().map(|s| ring[s].broker).collect());
    }
    placed
}

/// Each partition's replicas with `replication_factor` of them (at most as many as there are brokers, the present ones
/// included): as many of the present ones as may stay, so that little is copied.
///
/// Who leaves: one that is not registered, else one of the rack with the most replicas of the partition, else of the broker
/// with the most replicas; the preferred leader stays if it is registered. Who comes: as a follower of a new topic, and one
/// that is being emptied only if there is nobody else.
pub(crate) fn resize(
    brokers: &BTreeMap<BrokerId, BrokerImage>,
    load: &BTreeMap<BrokerId, Load>,
    present: &BTreeMap<i32, Vec<BrokerId>>,
    replication_factor: usize,
) -> BTreeMap<i32, Vec<BrokerId>> {
    let mut count: BTreeMap<BrokerId, u64> =
        load.iter().map(|(broker, load)| (*broker, load.replicas)).collect();
    let mut resized = BTreeMap::new();
    for (index, replicas) in present {
        let mut replicas = replicas.clone();
        let rack = |b: &BrokerId| brokers.get(b).map(|broker| broker.rack.as_deref());
        let mates =
            |b: &BrokerId, of: &[BrokerId]| of.iter().filter(|r| rack(r) == rack(b)).count();
        while replicas.len() > replication_factor.max(1) {
            let key = |place: usize| {
                let b = replicas[place];
                let dead = !brokers.contains_key(&b);
                let held = count.get(&b).copied().unwrap_or(0);
                (dead, place > 0, mates(&b, &replicas), held, place)
            };
            let Some(place) = (0..replicas.len()).max_by_key(|&place| key(place)) else { break };
            let gone = replicas.remove(place);
            let held = count.entry(gone).or_default();
            *held = held.saturating_sub(1);
        }
        while replicas.len() < replication_factor {
            let others = brokers.iter().filter(|(b, _)| !replicas.contains(b));
            let key = |(b, broker): &(&BrokerId, &BrokerImage)| {
                let held = count.get(b).copied().unwrap_or(0);
                (broker.draining, mates(b, &replicas), held, **b)
            };
            let Some(new) = others.min_by_key(key).map(|(b, _)| *b) else { break };
            *count.entry(new).or_default() += 1;
            replicas.push(new);
        }
        resized.insert(*index, replicas);
    }
    resized
}

/// The brokers in an order that alternates between racks: one of each rack, then the second of each, and so on.
fn ring<'a>(
    brokers: &'a BTreeMap<BrokerId, BrokerImage>,
    load: &BTreeMap<BrokerId, Load>,
) -> Vec<Seat<'a>> {
    let mut in_rack: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let mut order: Vec<(usize, Option<&str>, BrokerId)> = Vec::with_capacity(brokers.len());
    for (id, broker) in brokers {
        let rack = broker.rack.as_deref();
        let row = in_rack.entry(rack).or_default();
        order.push((*row, rack, *id));
        *row += 1;
    }
    order.sort();
    order
        .into_iter()
        .map(|(_, rack, broker)| Seat {
            broker,
            rack,
            before: load.get(&broker).copied().unwrap_or_default(),
            now: Load::default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use barnabas_types::BrokerEpoch;

    use super::*;

    fn cluster(racks: &[Option<&str>]) -> BTreeMap<BrokerId, BrokerImage> {
        (1..)
            .zip(racks)
            .map(|(id, rack)| {
                let image = BrokerImage {
                    epoch: BrokerEpoch(i64::from(id)),
                    host: String::new(),
                    port: 1,
                    control_address: String::new(),
                    rack: rack.map(str::to_owned),
                    tail_lost: false,
                    draining: false,
                };
                (BrokerId(id), image)
            })
            .collect()
    }

    fn spread(counts: impl Iterator<Item = u64>) -> u64 {
        let counts: Vec<u64> = counts.collect();
        counts.iter().max().unwrap() - counts.iter().min().unwrap()
    }

    fn count(
        brokers: &BTreeMap<BrokerId, BrokerImage>,
        load: &mut BTreeMap<BrokerId, Load>,
        placed: &[Vec<BrokerId>],
    ) {
        for b in brokers.keys() {
            load.entry(*b).or_default();
        }
        for replicas in placed {
            load.get_mut(&replicas[0]).unwrap().leads += 1;
            for b in replicas {
                load.get_mut(b).unwrap().replicas += 1;
            }
        }
    }

    #[test]
    fn one_topic_is_spread_evenly() {
        for n in 1..=9 {
            let brokers = cluster(&vec![None; n]);
            for rf in 1..=n.min(4) {
                for partitions in [1, 2, 5, 12, 50] {
                    let placed = place(&brokers, &BTreeMap::new(), partitions, rf);
                    let mut load = BTreeMap::new();
                    count(&brokers, &mut load, &placed);
                    assert_eq!(placed.len(), partitions);
                    assert!(placed.iter().all(|r| {
                        r.len() == rf && r.iter().enumerate().all(|(i, b)| !r[..i].contains(b))
                    }));
                    assert!(spread(load.values().map(|l| l.leads)) <= 1, "leaders {n} {rf}");
                    assert!(
                        spread(load.values().map(|l| l.replicas)) <= 2,
                        "replicas {n} {rf} {partitions}"
                    );
                }
            }
        }
    }

    #[test]
    fn many_one_partition_topics_are_spread_evenly() {
        let brokers = cluster(&[None; 5]);
        let mut load = BTreeMap::new();
        let mut pairs: BTreeMap<(BrokerId, BrokerId), u64> = BTreeMap::new();
        for _ in 0..100 {
            let placed = place(&brokers, &load, 1, 3);
            *pairs.entry((placed[0][0], placed[0][1])).or_default() += 1;
            count(&brokers, &mut load, &placed);
            assert!(spread(load.values().map(|l| l.leads)) <= 1);
            assert!(spread(load.values().map(|l| l.replicas)) <= 2);
        }
        assert!(pairs.len() >= 10, "followers vary too: {pairs:?}");
    }

    #[test]
    fn replicas_use_every_rack_before_one_twice() {
        let racks = [Some("a"), Some("a"), Some("b"), Some("b"), Some("c"), Some("c")];
        let brokers = cluster(&racks);
        for rf in 1..=6 {
            for replicas in place(&brokers, &BTreeMap::new(), 24, rf) {
                let mut used: BTreeMap<&str, u64> = BTreeMap::from([("a", 0), ("b", 0), ("c", 0)]);
                for b in replicas {
                    *used.get_mut(racks[usize::try_from(b.0 - 1).unwrap()].unwrap()).unwrap() += 1;
                }
                assert!(spread(used.values().copied()) <= 1, "rf {rf}: {used:?}");
            }
        }
    }

    #[test]
    fn a_broker_that_is_being_emptied_gets_replicas_only_if_it_must() {
        let mut brokers = cluster(&[None; 4]);
        brokers.get_mut(&BrokerId(2)).unwrap().draining = true;
        let uses = |factor| {
            let placed = place(&brokers, &BTreeMap::new(), 12, factor);
            assert!(placed.iter().all(|replicas| replicas.len() == factor));
            placed.iter().filter(|replicas| replicas.contains(&BrokerId(2))).count()
        };
        assert_eq!((uses(1), uses(3)), (0, 0));
        assert_eq!(uses(4), 12);
    }

    #[test]
    fn a_resized_topic_keeps_what_it_has_and_uses_free_racks() {
        let brokers = cluster(&[Some("a"), Some("a"), Some("b"), Some("c")]);
        let ids = |of: &[i32]| -> Vec<BrokerId> { of.iter().map(|id| BrokerId(*id)).collect() };
        let present = BTreeMap::from([(0, ids(&[1, 2])), (1, ids(&[3, 9]))]);
        let load = BTreeMap::from([(BrokerId(3), Load { leads: 1, replicas: 7 })]);
        let grown = resize(&brokers, &load, &present, 3);
        assert_eq!(grown[&0], ids(&[1, 2, 4]), "a rack that is free, and the broker with less");
        assert_eq!(grown[&1], ids(&[3, 9, 1]), "who is away may come back");
        let shrunk = resize(&brokers, &load, &grown, 2);
        assert_eq!(shrunk[&0], ids(&[1, 4]), "one of two in a rack, not the preferred leader");
        assert_eq!(shrunk[&1], ids(&[3, 1]), "who is away goes first");
        assert_eq!(resize(&brokers, &load, &present, 4)[&0].len(), 4);
    }

    #[test]
    fn the_same_input_gives_the_same_placement() {
        let brokers = cluster(&[Some("a"), None, Some("b"), Some("a")]);
        let once = place(&brokers, &BTreeMap::new(), 7, 3);
        assert_eq!(once, place(&brokers, &BTreeMap::new(), 7, 3));
    }
}
