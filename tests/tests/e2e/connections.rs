//! Greedy, slow, silent and many clients: what they may take, and that the others do not notice.

use std::time::{Duration, Instant};

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client};
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, usage};
use barnabas_tests::wait::wait_for;
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::topic;

/// How much a broker may grow under what is done to it here.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// What one idle connection may cost.
const IDLE_BYTES_MAX: u64 = 20 << 10;

/// Fetch version 4 of partition 0 of a topic from its beginning: 1 MiB, at once.
fn fetch(topic: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&(-1_i32).to_be_bytes());
    body.extend_from_slice(&0_i32.to_be_bytes());
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.extend_from_slice(&(1_i32 << 20).to_be_bytes());
    body.push(0);
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.extend_from_slice(&u16::try_from(topic.len()).unwrap_or(0).to_be_bytes());
    body.extend_from_slice(topic.as_bytes());
    body.extend_from_slice(&1_i32.to_be_bytes());
    body.extend_from_slice(&0_i32.to_be_bytes());
    body.extend_from_slice(&0_i64.to_be_bytes());
    body.extend_from_slice(&(1_i32 << 20).to_be_bytes());
    let mut frame = Vec::new();
    frame.extend_from_slice(&i32::try_from(10 + body.len()).unwrap_or(0).to_be_bytes());
    frame.extend_from_slice(&[0, 1, 0, 4, 0, 0, 0, 7, 0xff, 0xff]);
    frame.extend_from_slice(&body);
    frame
}

async fn connections(cluster: &mut Cluster, id: i32) -> Outcome<Value> {
    Ok(cluster.broker(id).health().await?["connections"].clone())
}

/// Waits until the broker has so many connections of clients at most, and holds nothing for them.
async fn until_free(cluster: &mut Cluster, clients_max: u64) -> Outcome<()> {
    let broker = cluster.broker(1);
    wait_for("what the clients held is free", SETTLE_MAX, || async {
        let said = broker.health().await.ok()?["connections"].clone();
        let free = said["answer_bytes"] == 0 && said["request_bytes"] == 0;
        (free && said["clients"].as_u64()? <= clients_max).then_some(())
    })
    .await
}

async fn produce_some(client: &mut Client, topic: &str) -> Outcome<Duration> {
    let began = Instant::now();
    match client.produce(topic, 0, None, &[vec![b'x'; 100]]).await? {
        Answer::Appended(_) => Ok(began.elapsed()),
        Answer::Refused(code, why) => Err(format!("error {code}: {why}").into()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g3_clients_that_never_read_hold_little_and_give_it_back() -> Outcome<()> {
    let mut cluster = Cluster::start(Options { brokers: 1, ..Options::default() }).await?;
    let greedy = NewTopic { name: "greedy", partitions: 1, replication_factor: 1, configs: &[] };
    topic(&cluster, greedy).await?;
    cluster.until_served("greedy", 1).await?;
    let mut client = Client::of_leader(&cluster.bootstrap(), 0, "greedy", 0).await?;
    for _ in 0..8 {
        let values = vec![vec![7; 500_000]];
        assert!(matches!(client.produce("greedy", 0, None, &values).await?, Answer::Appended(_)));
    }
    let address = cluster.broker(1).config().listener.to_string();
    let pid = cluster.broker(1).pid()?;
    let (before, _) = usage(pid)?;
    let request = fetch("greedy");
    let many: Vec<u8> = (0..1000).flat_map(|_| request.iter().copied()).collect();
    let mut slow = Vec::new();
    for number in 0..200 {
        let mut stream = TcpStream::connect(&address).await?;
        // The broker stops reading: what the socket does not take stays here.
        let _ = tokio::time::timeout(Duration::from_millis(20), stream.write_all(&many)).await;
        if number % 4 == 0 {
            // Some are reset in the middle of an answer.
            let mut some = vec![0; 100_000];
            let _ =
                tokio::time::timeout(Duration::from_secs(5), stream.read_exact(&mut some)).await;
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
            drop(stream);
        } else {
            slow.push(stream);
        }
    }
    let took = produce_some(&mut client, "greedy").await?;
    let said = connections(&mut cluster, 1).await?;
    let (after, _) = usage(pid)?;
    println!(
        "{} bytes more with {} slow readers, a produce took {took:?}; {said}",
        after.saturating_sub(before),
        slow.len()
    );
    assert!(after < before + GROWTH_BYTES_MAX, "grew from {before} to {after} bytes");
    assert_eq!(said["clients"], 151);
    drop(slow);
    until_free(&mut cluster, 1).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g4_a_storm_of_connections_leaves_descriptors_to_logs_and_places_to_followers()
-> Outcome<()> {
    let config = "log.segment.bytes: 1048576\nreplica.lag.time.max.ms: 5000\n".to_owned();
    let mut cluster = Cluster::start(Options { config, ..Options::default() }).await?;
    let storm = NewTopic { name: "storm", partitions: 3, replication_factor: 3, configs: &[] };
    topic(&cluster, storm).await?;
    cluster.until_served("storm", 3).await?;
    let leader = Client::leader(&cluster.bootstrap(), 0, "storm", 0).await?;
    let id = (1..=3).find(|id| cluster.broker(*id).config().listener.to_string() == leader);
    let id = id.ok_or("no broker has the leader's address")?;
    let mut client = Client::connect(&leader).await?;
    let limit = Rlimit { current: Some(256), maximum: Some(256) };
    prlimit(Some(cluster.broker(id).pid()?), Resource::Nofile, limit)?;
    let mut open = Vec::new();
    for number in 0..2000 {
        // The backlog may be full for a moment; a refused one is what is wanted.
        let dialled = TcpStream::connect(&leader);
        let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_secs(1), dialled).await else {
            continue;
        };
        if number % 2 == 0 {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        } else {
            open.push(stream);
        }
        if number % 100 == 0 {
            // Each rolls segments, and needs its followers.
            let values = vec![vec![7; 600_000]];
            let answer = client.produce("storm", 0, None, &values).await?;
            assert!(matches!(answer, Answer::Appended(_)), "{answer:?}");
        }
    }
    let said = connections(&mut cluster, id).await?;
    println!("in the storm: {said}");
    assert!(said["refused"].as_u64().is_some_and(|refused| refused > 500), "{said}");
    assert!(said["clients"].as_u64().is_some_and(|clients| clients <= 128), "{said}");
    let log = cluster.broker(id).log();
    assert!(log.contains("max.connections allows"), "the limit is named in the log");
    // Administration and replication go on in the middle of it.
    let more = NewTopic { name: "more", partitions: 3, replication_factor: 3, configs: &[] };
    topic(&cluster, more).await?;
    drop(open);
    wait_for("clients are served again", Duration::from_secs(10), || async {
        let mut fresh = Client::connect(&leader).await.ok()?;
        produce_some(&mut fresh, "storm").await.ok()
    })
    .await?;
    assert_eq!(cluster.broker(id).health().await?["failed_replicas"], 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_are_small_and_end() -> Outcome<()> {
    let config = "connections.max.idle.ms: 15000\n".to_owned();
    let mut cluster = Cluster::start(Options { brokers: 1, config, ..Options::default() }).await?;
    let address = cluster.broker(1).config().listener.to_string();
    let pid = cluster.broker(1).pid()?;
    let mut idle = Vec::new();
    for round in 0..2 {
        // The first round fills what grows once.
        let count = if round == 0 { 200 } else { 2000 };
        let (before, _) = usage(pid)?;
        for _ in 0..count {
            let mut stream = TcpStream::connect(&address).await?;
            stream.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff]).await?;
            let len = usize::try_from(stream.read_i32().await?)?;
            stream.read_exact(&mut vec![0; len]).await?;
            idle.push(stream);
        }
        let each = usage(pid)?.0.saturating_sub(before) / count;
        println!("{count} idle connections: {each} bytes each");
        assert!(round == 0 || each < IDLE_BYTES_MAX, "{each} bytes");
    }
    let mut byte = [0];
    for stream in &mut idle {
        let ended = tokio::time::timeout(SETTLE_MAX, stream.read(&mut byte)).await?;
        assert!(matches!(ended, Ok(0)), "closed by the broker: {ended:?}");
    }
    until_free(&mut cluster, 0).await
}
