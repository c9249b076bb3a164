//! A keyed topic that is compacted while it is written to. `BARNABAS_COMPACTION_MIB` says how much is written (64 if absent).

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client};
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX};
use barnabas_tests::prng::Prng;
use barnabas_tests::replicas::log_size;
use barnabas_tests::wait::wait_for;

use super::topic;

const PRODUCERS: usize = 2;
/// Keys of each producer, records of a batch, and bytes of a value.
const KEYS: u64 = 2_000;
const BATCH: usize = 32;
const VALUE_BYTES: usize = 1_000;
/// One record in so many is a tombstone.
const TOMBSTONES: u64 = 50;
/// How long compaction may take to catch up.
const COMPACTED_MAX: Duration = Duration::from_secs(120);

/// The value of a key: the number of the record, `None` for a tombstone.
type Values = BTreeMap<String, Option<u64>>;
/// Key and value at each offset.
type Read = BTreeMap<u64, (String, Option<u64>)>;

/// Writes so many records; the last value of each key, and the offsets of all.
async fn write(address: String, producer: usize, records: usize) -> Outcome<(Values, Read)> {
    let mut client = Client::connect(&address).await?;
    let mut prng = Prng::new(producer as u64);
    let (mut last, mut at) = (Values::new(), Read::new());
    let mut number = 0;
    while at.len() < records {
        let mut batch = Vec::new();
        let mut said = Vec::new();
        for _ in 0..BATCH {
            let key = format!("{producer}-{}", prng.below(KEYS));
            let value = (!prng.one_in(TOMBSTONES)).then_some(number);
            let bytes = value.map(|number| {
                let mut bytes = format!("{number}:").into_bytes();
                bytes.resize(VALUE_BYTES, b'v');
                bytes
            });
            batch.push((key.clone().into_bytes(), bytes));
            said.push((key, value));
            number += 1;
        }
        let answer = loop {
            let answer = client.produce_keyed("keyed", &batch).await?;
            // Until the broker has heard that it leads.
            if !(at.is_empty() && answer.is_retriable()) {
                break answer;
            }
            barnabas_tests::wait::next_look().await;
        };
        let Answer::Appended(first) = answer else { return Err(format!("{answer:?}").into()) };
        for (offset, (key, value)) in (u64::try_from(first)?..).zip(said) {
            last.insert(key.clone(), value);
            at.insert(offset, (key, value));
        }
    }
    Ok((last, at))
}

/// Reads from the beginning to the end; offsets must rise.
fn read(bootstrap: &str) -> Outcome<Read> {
    let mut child = Command::new("kcat")
        .args(["-C", "-b", bootstrap, "-t", "keyed", "-p", "0", "-o", "beginning", "-e", "-q"])
        .args(["-X", "check.crcs=true", "-f", "%o %k %S %s\\n"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("no stdout")?;
    let mut found = Read::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        let bad = || format!("kcat printed '{line}'");
        let mut words = line.splitn(4, ' ');
        let offset: u64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
        let key = words.next().ok_or_else(bad)?.to_owned();
        let len: i64 = words.next().and_then(|word| word.parse().ok()).ok_or_else(bad)?;
        let value = words.next().and_then(|text| text.split_once(':')?.0.parse().ok());
        assert_eq!(value.is_some(), len >= 0, "{line}");
        let before = found.last_key_value().map(|(last, _)| *last);
        assert!(before.is_none_or(|before| before < offset), "{offset} after {before:?}");
        found.insert(offset, (key, value));
    }
    assert!(child.wait()?.success(), "kcat failed");
    Ok(found)
}

/// What a consumer of the whole topic knows in the end.
fn known(read: &Read) -> Values {
    read.values().cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_value_of_each_key_survives_compaction_under_load() -> Outcome<()> {
    let mib: usize =
        std::env::var("BARNABAS_COMPACTION_MIB").ok().map_or(Ok(64), |text| text.parse())?;
    let bytes = mib * 1024 * 1024;
    let mut cluster = Cluster::start(Options {
        config: "replica.lag.time.max.ms: 10000\nlog.cleaner.backoff.ms: 200\n".to_owned(),
        ..Options::default()
    })
    .await?;
    let segment_bytes = (bytes / 32).to_string();
    let configs = [
        ("cleanup.policy", "compact"),
        ("segment.bytes", segment_bytes.as_str()),
        ("min.cleanable.dirty.ratio", "0.1"),
        ("min.insync.replicas", "2"),
    ];
    topic(
        &cluster,
        NewTopic { name: "keyed", partitions: 1, replication_factor: 3, configs: &configs },
    )
    .await?;
    let bootstrap = cluster.bootstrap();
    let leader = Client::connect(bootstrap.split(',').next().unwrap_or_default())
        .await?
        .leaders("keyed")
        .await?
        .remove(&0)
        .ok_or("no leader")?;

    let records = bytes / VALUE_BYTES / PRODUCERS;
    let writers: Vec<_> = (0..PRODUCERS)
        .map(|producer| tokio::spawn(write(leader.clone(), producer, records)))
        .collect();
    let done = Arc::new(AtomicBool::new(false));
    let reader = tokio::task::spawn_blocking({
        let (bootstrap, done) = (bootstrap.clone(), done.clone());
        move || -> Outcome<(Read, usize)> {
            let (mut seen, mut times) = (Read::new(), 0);
            while !done.load(Ordering::SeqCst) {
                for (offset, record) in read(&bootstrap)? {
                    let before = seen.insert(offset, record.clone());
                    assert!(
                        before.is_none_or(|before| before == record),
                        "offset {offset} holds another record than before"
                    );
                }
                times += 1;
            }
            Ok((seen, times))
        }
    });
    let (mut last, mut sent) = (Values::new(), Read::new());
    for writer in writers {
        let (values, offsets) = writer.await??;
        last.extend(values);
        for (offset, record) in offsets {
            assert!(sent.insert(offset, record).is_none(), "offset {offset} was given twice");
        }
    }
    done.store(true, Ordering::SeqCst);
    let (seen, times) = reader.await??;
    for (offset, record) in &seen {
        assert_eq!(sent.get(offset), Some(record), "offset {offset}");
    }

    let folders: Vec<_> = cluster.brokers().map(|broker| broker.log_dir().to_owned()).collect();
    for folder in &folders {
        wait_for("the log is compacted", COMPACTED_MAX, || async {
            (log_size(folder, "keyed", 0).ok()? < bytes as u64 / 2).then_some(())
        })
        .await?;
    }
    let sizes: Vec<u64> =
        folders.iter().map(|folder| log_size(folder, "keyed", 0)).collect::<Outcome<_>>()?;
    println!("{} records sent, read {times} times meanwhile; logs of {sizes:?} bytes", sent.len());
    let now = read(&bootstrap)?;
    assert!(now.len() < sent.len(), "something was removed");
    assert!(now.iter().all(|(offset, record)| sent.get(offset) == Some(record)));
    assert!(known(&now) == last, "the last value of each of {} keys", last.len());

    // The other replicas have compacted by themselves.
    let znodes = cluster.znodes().await?;
    let before = znodes.partitions("keyed").await?;
    let leader = i32::try_from(before[&0].leader)?;
    cluster.broker(leader).kill().await?;
    wait_for("another replica leads", SETTLE_MAX, || async {
        let leads = znodes.partitions("keyed").await.ok()?[&0].leader;
        (leads >= 0 && leads != i64::from(leader)).then_some(())
    })
    .await?;
    let now = wait_for("the others can be read", SETTLE_MAX, || async {
        read(&bootstrap).ok().filter(|now| !now.is_empty())
    })
    .await?;
    assert!(known(&now) == last, "the last value of each key, on another replica");
    cluster.broker(leader).start()?;
    cluster.until_healed_since("keyed", 3, &before).await
}
