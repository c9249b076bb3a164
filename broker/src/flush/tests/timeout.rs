//! `flush.timeout.ms` as a client meets it.

use barnabas_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use barnabas_wire::messages::{ProduceRequest, StrBytes};
use barnabas_wire::{decode_response, encode_request, response_len};
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::*;
use crate::testing::node;

const VERSION: i16 = 9;
/// Kafka's REQUEST_TIMED_OUT.
const TIMED_OUT: i16 = 7;

/// acks=1, and an hour's patience.
async fn produce(client: &mut TcpStream, sequence: i32) -> i16 {
    let mut data = PartitionProduceData::default();
    data.records = Some(Bytes::from(batch(sequence)));
    let mut topic = TopicProduceData::default();
    topic.name = StrBytes::from("t");
    topic.partition_data.push(data);
    let mut request = ProduceRequest::default();
    request.acks = 1;
    request.timeout_ms = 3_600_000;
    request.topic_data.push(topic);
    let frame = encode_request(1, "a-producer", VERSION, &request).unwrap();
    client.write_all(&frame).await.unwrap();
    let mut frame = vec![0; 4];
    client.read_exact(&mut frame).await.unwrap();
    frame.resize(response_len(&frame, 1 << 20).unwrap().unwrap(), 0);
    client.read_exact(&mut frame[4..]).await.unwrap();
    let frame = Bytes::from(frame);
    let (_, response) = decode_response::<ProduceRequest>(VERSION, frame).unwrap();
    response.responses[0].partition_responses[0].error_code
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_is_told_that_its_flush_took_too_long_whatever_its_own_timeout() {
    let gate = Arc::new(Gate::default());
    let disk = Disk::on(barnabas_log::Disk::with_faults(gate.clone()));
    let node = node();
    let hosted = disk.host(&node, tp("t", 0));
    let config = TopicConfig { flush_timeout_ms: 50, ..sync() };
    let mut state = push(1, 1, &[1]);
    state.flush_mode = FlushMode::Sync;
    let mut after = Aftermath::default();
    hosted.configure(node.now(), &config, &mut after);
    hosted.state(node.now(), state, &mut after);
    after.settle(&hosted, &*node, &mut Flush::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (_stop, stopped) = watch::channel(false);
    tokio::spawn(crate::connection::listen(node.clone(), listener, stopped));

    gate.shut();
    assert_eq!(produce(&mut client, 0).await, TIMED_OUT);
    assert_eq!(produce(&mut client, 1).await, TIMED_OUT);
    gate.open();
    hosted.configure(node.now(), &sync(), &mut Aftermath::default());
    assert_eq!(produce(&mut client, 2).await, 0, "the connection goes on");
    assert_eq!(hosted.high_watermark(), Offset(3), "and so do the records");
}

#[tokio::test]
async fn a_flush_is_overdue_once_it_is_later_than_was_promised() {
    let at = |rig: &Rig, later_ms: u64| {
        let now = Now(rig.told.now().0 + later_ms);
        let mut told = None;
        rig.until("the replica is looked at", |rig| {
            told = rig.hosted.figures(now).map(|f| (f.unflushed_age_ms, f.flush_overdue_ms));
            told.is_some()
        });
        told.unwrap()
    };
    let never = Rig::new(&[1], TopicConfig::default()).await;
    never.throw(0);
    let (age, overdue) = at(&never, 100_000);
    assert!(age >= 100_000 && overdue == 0, "nobody has asked for a flush: {age}, {overdue}");
    let timed = TopicConfig { flush_ms: 40_000, ..TopicConfig::default() };
    for (config, promised_ms) in [(timed, 40_000), (sync(), 0)] {
        let rig = Rig::new(&[1], config).await;
        rig.gate.shut();
        rig.throw(0);
        let (age, overdue) = at(&rig, 100_000);
        assert!(age >= 100_000, "{age}");
        assert_eq!(overdue, age - promised_ms);
        rig.gate.open();
    }
}
