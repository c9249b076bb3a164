//! Log starts and full disks, with the log and the flush threads that make them durable.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barnabas_log::{Faults, Op, Verdict, Wait};
use barnabas_replica::{FetchOutcome, FetchPosition, FetchReply, FollowerFetch};
use barnabas_types::{Acks, BrokerEpoch, BrokerId, Condition, LeaderEpoch, Offset};

use super::*;
use crate::node::Node;
use crate::testing::{Disk, LIFE, MY_EPOCH, connection, node, pending, produce, push, state, tp};

/// Broker 2 fetches from `log_end` on; its log begins at `log_start`.
fn fetch(node: &Arc<Node>, hosted: &Arc<Hosted>, log_end: i64, log_start: i64) -> FetchReply {
    let position = FetchPosition {
        incarnation: LIFE,
        broker_epoch: BrokerEpoch(102),
        leader_epoch: LeaderEpoch(1),
        last_epoch: (log_start < log_end).then_some(LeaderEpoch(1)),
        log_end: Offset(log_end),
        flushed: Offset(log_end),
        log_start: Offset(log_start),
    };
    let mut after = Aftermath::default();
    let fetch = FollowerFetch { follower: BrokerId(2), position, heard: 0 };
    let reply = hosted.follower_fetch(node.now(), fetch, &mut after);
    after.settle(hosted, &**node, &mut Flush::default());
    reply
}

fn delete(node: &Arc<Node>, hosted: &Arc<Hosted>, to: Option<i64>) -> Deletion {
    let mut after = Aftermath::default();
    let deletion = hosted.delete_records(node.now(), to.map(Offset), &mut after);
    after.settle(hosted, &**node, &mut Flush::default());
    deletion
}

/// Leads brokers 1 and 2 over `records` records that both have.
fn leading(node: &Arc<Node>, disk: &Disk, records: i32) -> Arc<Hosted> {
    let hosted = disk.host(node, tp("t", 0));
    state(node, &hosted, push(1, 1, &[1, 2]));
    for sequence in 0..records {
        produce(node, &hosted, Acks::None, sequence, None);
    }
    fetch(node, &hosted, i64::from(records), 0);
    assert_eq!(hosted.high_watermark(), Offset(i64::from(records)));
    hosted
}

fn checkpoint(disk: &Disk) -> String {
    std::fs::read_to_string(disk.temp.path().join("log-start-offset-checkpoint")).unwrap()
}

#[tokio::test]
async fn r33_a_deletion_is_durable_here_and_reported_by_the_follower_when_it_is_answered() {
    let (node, disk) = (node(), Disk::new());
    let hosted = leading(&node, &disk, 5);
    let mut deletion = delete(&node, &hosted, Some(3));
    fetch(&node, &hosted, 5, 2);
    assert!(deletion.done.try_recv().is_err(), "broker 2 has not followed");
    fetch(&node, &hosted, 5, 3);
    assert_eq!(deletion.done.await.unwrap(), Ok(Offset(3)));
    assert!(checkpoint(&disk).contains("t 0 3"));
    assert_eq!(hosted.consumer_view(None).unwrap().log_start, Offset(3));
    let below = hosted
        .read_for_consumer(&ConsumerRead::at(Offset(2), 1 << 20), None, Wait::ForDisk)
        .map(|_| ());
    assert!(matches!(below, Err(Condition::OffsetOutOfRange { .. })));
    assert!(
        hosted
            .read_for_consumer(&ConsumerRead::at(Offset(3), 1 << 20), None, Wait::ForDisk)
            .is_ok()
    );
    let above = delete(&node, &hosted, Some(6)).done.await.unwrap();
    assert!(matches!(above, Err(Condition::OffsetOutOfRange { .. })), "R32");
}

#[tokio::test]
async fn r33_a_deletion_that_times_out_is_ended_and_a_late_report_answers_nobody() {
    let (node, disk) = (node(), Disk::new());
    let hosted = leading(&node, &disk, 5);
    let mut deletion = delete(&node, &hosted, None);
    let mut after = Aftermath::default();
    hosted.time_out_deletion(node.now(), &deletion, &mut after);
    after.settle(&hosted, &*node, &mut Flush::default());
    assert_eq!(deletion.done.try_recv(), Ok(Err(Condition::RequestTimedOut)));
    fetch(&node, &hosted, 5, 5);
    // The order stands; who asks again is answered when it is done.
    assert_eq!(delete(&node, &hosted, None).done.await.unwrap(), Ok(Offset(5)));
}

#[tokio::test]
async fn r35_a_reset_begins_at_the_leaders_start_durably_and_survives_a_restart() {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(2, 1, &[2]));
    let asked = hosted.fetch_position().unwrap();
    let answer = barnabas_replica::FetchAnswer {
        leader: BrokerId(2),
        asked,
        outcome: FetchOutcome::Reset { log_start: Offset(7) },
    };
    let mut after = Aftermath::default();
    hosted.fetch_answered(node.now(), answer, None, &mut after);
    after.settle(&hosted, &*node, &mut Flush::default());
    let position = hosted.fetch_position().unwrap();
    assert_eq!((position.log_start, position.log_end), (Offset(7), Offset(7)));
    assert!(checkpoint(&disk).contains("t 0 7"));
    hosted.retire();
    drop(hosted);
    let again = disk.open(&node, BrokerId(1), tp("t", 0));
    let mut after = Aftermath::default();
    again.state(node.now(), push(2, 2, &[2]), &mut after);
    let position = again.fetch_position().unwrap();
    assert_eq!((position.log_start, position.log_end), (Offset(7), Offset(7)));
    assert_eq!(position.broker_epoch, MY_EPOCH);
}

/// A disk without room for record batches, or for anything.
#[derive(Debug, Default)]
struct Full(AtomicBool);

impl Faults for Full {
    fn before(&self, op: &Op<'_>) -> io::Result<Verdict> {
        match op {
            Op::Write { .. } if self.0.load(Ordering::Acquire) => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(Verdict::Perform),
        }
    }

    fn after(&self, _: &Op<'_>) {}
}

#[tokio::test]
async fn d2_a_full_disk_refuses_producers_serves_readers_and_resumes_by_itself() {
    let full = Arc::new(Full::default());
    let (node, disk) = (node(), Disk::on(barnabas_log::Disk::with_faults(full.clone())));
    let hosted = leading(&node, &disk, 2);
    let (out, _client) = connection().await;
    full.0.store(true, Ordering::Release);
    for acks in [Acks::Leader, Acks::All] {
        let refused = pending(&out, out.reserve(), 1);
        produce(&node, &hosted, acks, 2, Some(refused.clone()));
        assert!(refused.is_done());
    }
    assert_eq!(produce(&node, &hosted, Acks::None, 2, None), AppendResult::Refused);
    assert_eq!(hosted.waiters(), 0);
    assert!(hosted.leads_in(LeaderEpoch(1)), "not fenced");
    assert!(
        hosted
            .read_for_consumer(&ConsumerRead::at(Offset(0), 1 << 20), None, Wait::ForDisk)
            .unwrap()
            .range
            .is_some()
    );
    full.0.store(false, Ordering::Release);
    // As is done at once after a refusal.
    hosted.directory.look_at_space(0);
    assert_eq!(produce(&node, &hosted, Acks::None, 2, None), AppendResult::Silent);
    fetch(&node, &hosted, 3, 0);
    assert_eq!(hosted.high_watermark(), Offset(3));
}

#[tokio::test]
async fn d2_a_deletion_that_finds_no_room_for_its_checkpoint_waits_for_it() {
    let full = Arc::new(Full::default());
    let (node, disk) = (node(), Disk::on(barnabas_log::Disk::with_faults(full.clone())));
    let hosted = leading(&node, &disk, 2);
    full.0.store(true, Ordering::Release);
    let mut deletion = delete(&node, &hosted, None);
    fetch(&node, &hosted, 2, 2);
    assert!(deletion.done.try_recv().is_err());
    assert_eq!(hosted.consumer_view(None).unwrap().log_start, Offset(0));
    let kept = hosted
        .read_for_consumer(&ConsumerRead::at(Offset(0), 1 << 20), None, Wait::ForDisk)
        .unwrap();
    assert!(kept.range.is_some(), "the old start is in force");
    full.0.store(false, Ordering::Release);
    assert_eq!(deletion.done.await.unwrap(), Ok(Offset(2)));
}
