//! rskafka: create, produce with every codec, fetch, offsets, delete records, delete.

use std::collections::BTreeMap;
use std::time::Duration;

use rskafka::client::ClientBuilder;
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::record::Record;

const TOPIC: &str = "smoke";
const COUNT: i64 = 10_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bootstrap = std::env::args().nth(1).ok_or("usage: rskafka-smoke HOST:PORT,...")?;
    let client = ClientBuilder::new(bootstrap.split(',').map(str::to_owned).collect()).build().await?;
    client.controller_client()?.create_topic(TOPIC, 1, 3, 30_000).await?;
    let partition = client.partition_client(TOPIC, 0, UnknownTopicHandling::Retry).await?;
    let codecs = [
        Compression::NoCompression,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    let mut next = 0;
    for codec in codecs.into_iter().cycle() {
        let records: Vec<Record> = (next..COUNT.min(next + 1000))
            .map(|n| Record {
                key: Some((n % 100).to_string().into_bytes()),
                value: Some(n.to_string().into_bytes()),
                headers: BTreeMap::new(),
                timestamp: chrono::DateTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_000),
            })
            .collect();
        let sent = records.len();
        let offsets = partition.produce(records, codec).await?;
        assert_eq!(offsets.len(), sent);
        assert_eq!(offsets.first(), Some(&next), "offsets are dense");
        next += 1000;
        if next >= COUNT {
            break;
        }
    }
    assert_eq!(partition.get_offset(OffsetAt::Earliest).await?, 0);
    assert_eq!(partition.get_offset(OffsetAt::Latest).await?, COUNT);
    let mut read = 0;
    while read < COUNT {
        let (records, high_watermark) = partition.fetch_records(read, 1..1_000_000, 1000).await?;
        assert_eq!(high_watermark, COUNT);
        for record in records {
            assert_eq!(record.offset, read);
            assert_eq!(record.record.value, Some(read.to_string().into_bytes()));
            read += 1;
        }
    }
    partition.delete_records(COUNT / 2, 30_000).await?;
    assert_eq!(partition.get_offset(OffsetAt::Earliest).await?, COUNT / 2);
    client.controller_client()?.delete_topic(TOPIC, 30_000).await?;
    println!("rskafka 0.6.0: {COUNT} records, five codecs");
    Ok(())
}
