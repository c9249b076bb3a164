//! What a client knows of its records, and what the ledger says of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use barnabas_log::{Batches, Records, record_bytes};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::load::Account;
use crate::replicas::log_bytes;
use crate::{Outcome, kcat};

/// A partition and an offset.
pub(super) type Place = (i32, i64);

/// One entry of the ledger.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) class: String,
    cause: String,
    broker: i64,
    partition: i32,
    from: i64,
    /// `None`: it is not known.
    to: Option<i64>,
}

impl Entry {
    /// One that `barnabas ledger list --json` printed.
    pub(super) fn of(value: &Value) -> Option<Self> {
        Some(Self {
            class: value["class"].as_str().unwrap_or("unknown").to_owned(),
            cause: value["cause"].as_str()?.to_owned(),
            broker: value["broker"].as_i64()?,
            // Of a whole directory: all partitions, from the beginning.
            partition: value["partition"].as_i64().map_or(Some(-1), |p| p.try_into().ok())?,
            from: value["from"].as_i64().unwrap_or(0),
            to: value["to"].as_i64(),
        })
    }

    /// Whether it says where the loss ends.
    pub(super) fn is_bounded(&self) -> bool {
        self.to.is_some()
    }

    pub(super) fn names(&self, (partition, offset): Place) -> bool {
        (self.partition == -1 || self.partition == partition)
            && self.from <= offset
            && self.to.is_none_or(|to| offset < to)
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, cause, broker, partition, from, to } = self;
        write!(f, "broker {broker}, partition {partition}, {from}..{to:?}: {class}, {cause}")
    }
}

/// The records of one topic.
#[derive(Debug)]
pub(super) struct Evidence {
    topic: String,
    partitions: i32,
    /// How the value begins that was acknowledged there.
    acked: BTreeMap<Place, String>,
    /// What a replica had when its process was gone or stood still.
    had: BTreeSet<(Place, Vec<u8>)>,
    there: BTreeMap<Place, Vec<u8>>,
}

impl Evidence {
    pub(super) fn new(topic: &str, partitions: i32) -> Self {
        Self {
            topic: topic.to_owned(),
            partitions,
            acked: BTreeMap::new(),
            had: BTreeSet::new(),
            there: BTreeMap::new(),
        }
    }

    /// Notes what these brokers have in their files, of which nobody writes.
    pub(super) fn files(&mut self, cluster: &mut Cluster, brokers: &[i32]) -> Outcome<()> {
        for id in brokers {
            let log_dir = cluster.broker(*id).log_dir().to_owned();
            for partition in 0..self.partitions {
                let Ok(bytes) = log_bytes(&log_dir, &self.topic, usize::try_from(partition)?)
                else {
                    continue;
                };
                // A killed process may leave half a batch at the end: it was nobody's yet.
                for batch in Batches::new(&bytes).map_while(Result::ok) {
                    let plain = record_bytes(batch.bytes, &batch.header)?;
                    for record in Records::new(&plain, &batch.header) {
                        let record = record?;
                        let place = (partition, record.offset(&batch.header));
                        self.had.insert((place, record.value.unwrap_or_default().to_vec()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes what producers were acknowledged.
    pub(super) fn acknowledged(&mut self, accounts: &[Account]) {
        for account in accounts {
            for batch in &account.acked {
                for n in 0..batch.count {
                    let place = (account.partition, batch.offset + n as i64);
                    let begins = format!("{}:{}:", account.producer, batch.first + n);
                    self.acked.insert(place, begins);
                }
            }
        }
    }

    pub(super) fn acked(&self) -> u64 {
        self.acked.len() as u64
    }

    /// Reads the whole topic with kcat.
    pub(super) fn read_back(&mut self, bootstrap: &str) -> Outcome<()> {
        let read = ["-C", "-t", &self.topic, "-o", "beginning", "-e", "-q", "-f", "%p %o %s\\n"];
        let output = kcat::run(bootstrap, &read, b"")?;
        if !output.status.success() {
            return Err(format!("kcat: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let mut words = line.splitn(3, |byte| *byte == b' ');
            let mut number = || -> Outcome<i64> {
                Ok(std::str::from_utf8(words.next().ok_or("a short line")?)?.parse()?)
            };
            let place = (i32::try_from(number()?)?, number()?);
            let value = words.next().ok_or("a short line")?.to_vec();
            self.there.insert(place, value);
        }
        Ok(())
    }

    /// What was acknowledged and is not there; at acks=0, where nothing is, what a replica had.
    pub(super) fn lost(&self, acks: i16) -> Vec<Place> {
        if acks == 0 {
            let gone = |(place, value): &&(Place, Vec<u8>)| self.there.get(place) != Some(value);
            let lost: BTreeSet<Place> = self.had.iter().filter(gone).map(|(at, _)| *at).collect();
            return lost.into_iter().collect();
        }
        let gone = |(place, begins): &(&Place, &String)| {
            !self.there.get(*place).is_some_and(|value| value.starts_with(begins.as_bytes()))
        };
        self.acked.iter().filter(gone).map(|(place, _)| *place).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_open_range_names_all_that_follows_and_another_record_in_its_place_is_a_loss() {
        let entry = json!({"class": "unknown", "cause": "host_crash", "broker": 1, "partition": 0, "from": 5, "to": null});
        let open = Entry::of(&entry).unwrap();
        assert!(open.names((0, 5)) && open.names((0, 500)));
        assert!(!open.names((0, 4)) && !open.names((1, 5)));
        let mut evidence = Evidence::new("t", 1);
        evidence.acked.insert((0, 0), "0:0:".to_owned());
        evidence.acked.insert((0, 1), "0:1:".to_owned());
        evidence.there.insert((0, 0), b"0:0:x".to_vec());
        evidence.there.insert((0, 1), b"0:7:x".to_vec());
        assert_eq!(evidence.lost(1), [(0, 1)]);
        evidence.had.insert(((0, 2), b"z".to_vec()));
        assert_eq!(evidence.lost(0), [(0, 2)]);
    }
}
