//! Tests of Produce: what is refused, what is answered, what an answer says.

use super::*;
use barnabas_log::testing::BatchBuilder;
use barnabas_types::{Offset, TopicConfig};
use tokio::io::AsyncReadExt as _;

use barnabas_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};

static NO_FRAME: Bytes = Bytes::new();

/// A first request of a client without a name.
fn context<'a>(
    node: &'a Arc<Node>,
    out: &'a Arc<crate::connection::Out>,
    slot: crate::connection::Slot,
    version: i16,
) -> RequestContext<'a> {
    RequestContext {
        node,
        out,
        slot,
        version,
        correlation_id: 1,
        client_id: None,
        frame: &NO_FRAME,
    }
}

fn answer(version: i16, result: &ProduceResult, append_time_ms: i64) -> PartitionProduceResponse {
    let beside = Beside { append_time_ms: append_time_ms.into(), ..Beside::default() };
    let refused = vec![(2, BatchError::Timestamp { found: 9, least: 1, most: 5 })];
    if result.is_err() {
        beside.refused.set(refused).unwrap();
    }
    let mut topic = TopicProduceResponse::default();
    topic.name = "t".into();
    topic.partition_responses.push(partition_response(3, Some(result), &beside, version));
    let mut response = ProduceResponse::default();
    response.responses.push(topic);
    reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
    response.responses[0].partition_responses[0].clone()
}

#[test]
fn every_answer_can_be_written_at_every_version() {
    for version in 3..=11 {
        let stamped = answer(version, &Ok((Offset(5), Offset(2))), 77);
        assert_eq!((stamped.error_code, stamped.base_offset), (0, 5));
        assert_eq!(stamped.log_append_time_ms, 77, "the leader's time, if it stamped");
        assert_eq!(answer(version, &Ok((Offset(5), Offset(2))), -1).log_append_time_ms, -1);
    }
}

#[test]
fn d10_a_timestamp_out_of_bounds_has_kafkas_code_and_says_the_bounds() {
    let refused = Condition::InvalidTimestamp { timestamp: 9, least: 1, most: 5 };
    for version in 3..=11 {
        let refused = answer(version, &Err(refused.clone()), 77);
        assert_eq!((refused.error_code, refused.log_append_time_ms), (32, -1));
        assert_eq!(refused.record_errors.len(), usize::from(version >= 8));
        if version >= 8 {
            assert!(refused.error_message.unwrap().as_str().contains("[1, 5]"));
            assert_eq!(refused.record_errors[0].batch_index, 2);
        }
    }
}

/// What the handler answers at version 8 to these batches for partitions 0, 1, ... of the compacted topic `t`.
async fn produced(batches: Vec<Vec<u8>>) -> Vec<PartitionProduceResponse> {
    let (node, disk) = (crate::testing::node(), crate::testing::Disk::new());
    let (out, mut client) = crate::testing::connection().await;
    let mut topic = TopicProduceData::default();
    topic.name = "t".into();
    let compacted = barnabas_types::CleanupPolicy { delete: false, compact: true };
    let config = TopicConfig { cleanup: compacted, ..TopicConfig::default() };
    for (index, batch) in (0..).zip(batches) {
        let hosted = disk.host(&node, crate::testing::tp("t", index));
        crate::testing::state(&node, &hosted, crate::testing::push(1, 1, &[1]));
        hosted.configure(node.now(), &config, &mut Aftermath::default());
        let mut partition = PartitionProduceData::default();
        (partition.index, partition.records) = (index, Some(batch.into()));
        topic.partition_data.push(partition);
    }
    let mut request = ProduceRequest::default();
    request.acks = 1;
    request.topic_data.push(topic);
    let (slot, version) = (out.reserve(), 8);
    let context = context(&node, &out, slot, version);
    let mut flush = Flush::default();
    handle(&context, &request, &mut flush).unwrap();
    flush.run();
    let length = client.read_i32().await.unwrap();
    let mut frame = length.to_be_bytes().to_vec();
    frame.resize(4 + usize::try_from(length).unwrap(), 0);
    client.read_exact(&mut frame[4..]).await.unwrap();
    let (_, answer) =
        barnabas_wire::decode_response::<ProduceRequest>(version, frame.into()).unwrap();
    answer.responses[0].partition_responses.clone()
}

#[tokio::test]
async fn a_client_is_told_which_records_are_to_blame() {
    let good = || BatchBuilder::new().timestamp(unix_ms()).keyed(b"k", Some(b"v"));
    let no_key = good().record(b"no key").keyed(b"k", None).record(b"no key").build();
    let late = good().record(b"no key").timestamp(i64::MAX).keyed(b"k", None).build();
    let answers = produced(vec![good().build(), no_key, late, b"garbage".to_vec()]).await;
    let numbers = |answer: &PartitionProduceResponse| -> Vec<i32> {
        answer.record_errors.iter().map(|record| record.batch_index).collect()
    };
    let told: Vec<_> = answers.iter().map(|a| (a.error_code, numbers(a))).collect();
    assert_eq!(told, [(0, vec![]), (87, vec![1, 3]), (32, vec![1, 2]), (2, vec![])]);
    let text = |text: &Option<StrBytes>| text.as_ref().unwrap().as_str().to_owned();
    assert!(text(&answers[1].error_message).contains("key"));
    assert!(text(&answers[1].record_errors[0].batch_index_error_message).contains("key"));
    assert!(text(&answers[2].record_errors[1].batch_index_error_message).contains("out of"));
}

#[tokio::test]
async fn g1_one_answer_names_a_bounded_number_of_records() {
    let most = i32::try_from(RECORD_ERRORS_MAX).unwrap();
    let batch = (0..most - 1).fold(BatchBuilder::new(), |batch, _| batch.record(b"")).codec(4);
    let answers = produced(vec![batch.clone().build(), batch.build()]).await;
    assert_eq!(answers[0].record_errors.len(), RECORD_ERRORS_MAX - 1);
    assert_eq!((answers[1].record_errors.len(), answers[1].error_code), (1, 87));
}

#[tokio::test]
async fn h2_clients_do_not_write_to_internal_topics() {
    let (node, disk) = (crate::testing::node(), crate::testing::Disk::new());
    let (out, mut client) = crate::testing::connection().await;
    for name in ["__consumer_offsets", "__transaction_state", "t"] {
        let hosted = disk.host(&node, crate::testing::tp(name, 0));
        crate::testing::state(&node, &hosted, crate::testing::push(1, 1, &[1]));
        let mut topic = TopicProduceData::default();
        topic.name = name.into();
        let mut partition = PartitionProduceData::default();
        partition.records = Some(crate::testing::batch(0).into());
        topic.partition_data.push(partition);
        let mut request = ProduceRequest::default();
        request.acks = 1;
        request.topic_data.push(topic);
        let slot = out.reserve();
        let context =
            RequestContext { client_id: Some("__admin_client"), ..context(&node, &out, slot, 3) };
        handle(&context, &request, &mut Flush::default()).unwrap();
        let mut answer = vec![0; 4 + 4 + 4 + 2 + name.len() + 4 + 4 + 2 + 8 + 8 + 4];
        tokio::io::AsyncReadExt::read_exact(&mut client, &mut answer).await.unwrap();
        let at = 4 + 4 + 4 + 2 + name.len() + 4 + 4;
        let code = i16::from_be_bytes([answer[at], answer[at + 1]]);
        let written = hosted.with_log(|log| log.log_end());
        assert_eq!((code, written), if name == "t" { (0, Offset(1)) } else { (17, Offset(0)) });
    }
}

#[tokio::test]
async fn after_a_long_stop_of_the_process_the_leader_alone_acknowledges_nothing() {
    let (node, disk) = (crate::testing::node(), crate::testing::Disk::new());
    let (out, mut client) = crate::testing::connection().await;
    let hosted = disk.host(&node, crate::testing::tp("t", 0));
    crate::testing::state(&node, &hosted, crate::testing::push(1, 1, &[1]));
    let mut topic = TopicProduceData::default();
    topic.name = "t".into();
    topic.partition_data.push(PartitionProduceData::default());
    let mut request = ProduceRequest::default();
    request.topic_data.push(topic);
    let hour_later = barnabas_types::Now(crate::clock::since_boot().0 + 3_600_000);
    for (acks, stopped, code, end) in [(1, false, 0, 1), (1, true, 6, 1), (-1, true, 0, 2)] {
        if stopped {
            node.pulse.beat(hour_later);
        }
        request.acks = acks;
        let next = i32::try_from(hosted.with_log(|log| log.log_end()).0).unwrap();
        let records = crate::testing::batch(next).into();
        request.topic_data[0].partition_data[0].records = Some(records);
        let slot = out.reserve();
        let context = context(&node, &out, slot, 3);
        let mut flush = Flush::default();
        handle(&context, &request, &mut flush).unwrap();
        flush.run();
        let mut answer = [0; 4 + 4 + 4 + 2 + 1 + 4 + 4 + 2 + 8 + 8 + 4];
        tokio::io::AsyncReadExt::read_exact(&mut client, &mut answer).await.unwrap();
        let at = 4 + 4 + 4 + 2 + 1 + 4 + 4;
        assert_eq!(i16::from_be_bytes([answer[at], answer[at + 1]]), code, "acks={acks}");
        assert_eq!(hosted.with_log(|log| log.log_end()), Offset(end), "acks={acks}");
    }
}

#[tokio::test]
async fn e6_a_refused_produce_with_acks_0_writes_nothing_and_closes() {
    let node = crate::testing::node();
    let (out, client) = crate::testing::connection().await;
    let mut data = TopicProduceData::default();
    data.name = "absent".into();
    data.partition_data.push(PartitionProduceData::default());
    let mut request = ProduceRequest::default();
    request.topic_data.push(data);
    for (acks, correlation_id) in [(0, 1), (1, 2)] {
        request.acks = acks;
        let slot = out.reserve();
        let context = RequestContext { correlation_id, ..context(&node, &out, slot, 8) };
        let mut flush = Flush::default();
        let handled = handle(&context, &request, &mut flush);
        assert_eq!(handled.is_err(), acks == 0, "an error closes the connection");
        flush.run();
        if acks == 0 {
            out.complete(slot, Vec::new());
        }
    }
    client.readable().await.unwrap();
    let mut head = [0; 8];
    assert_eq!(client.try_read(&mut head).unwrap(), head.len());
    assert_eq!(head[4..], 2_i32.to_be_bytes(), "the only answer is the second request's");
}
