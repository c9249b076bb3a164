//! A hosted partition and those who wait on it.

use std::sync::{Arc, Mutex};

use barnabas_log::{FlushStep, LogError, Op};
use barnabas_replica::{FetchAnswer, FetchOutcome, FetchPosition, FollowerFetch, Role, StatePush};
use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, Condition, DirectoryId, LeaderEpoch, Offset, Partition,
    PartitionEpoch,
};
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::journal::{Kind, Origin};
use crate::node::Node;
use crate::storage::Led;
use crate::testing::{
    Disk, LIFE, Refusals, connection, node, pending, pending_with, produce, push, state, tp,
};

/// Broker 2 has everything below `log_end` in epoch 1.
pub(super) fn fetch(log_end: i64) -> FollowerFetch {
    let position = FetchPosition {
        incarnation: LIFE,
        broker_epoch: BrokerEpoch(102),
        leader_epoch: LeaderEpoch(1),
        last_epoch: (log_end > 0).then_some(LeaderEpoch(1)),
        log_end: Offset(log_end),
        flushed: Offset(log_end),
        log_start: Offset(0),
    };
    FollowerFetch { follower: BrokerId(2), position, heard: 0 }
}

#[tokio::test]
async fn a_request_is_answered_when_its_last_partition_is_and_only_once() {
    let (out, mut client) = connection().await;
    let waiting = pending(&out, out.reserve(), 2);
    let done = Ok((Offset(0), Offset(0)));
    assert!(waiting.finish(1, done.clone()).is_none());
    assert!(waiting.finish(1, Err(Condition::RequestTimedOut)).is_none(), "the first one counts");
    assert!(waiting.finish(2, done.clone()).is_none(), "there is no such partition");
    assert!(!waiting.is_done());
    waiting.finish(0, Err(Condition::RequestTimedOut)).unwrap().flush();
    assert!(waiting.is_done() && waiting.finish(0, done).is_none());
    let mut answer = [9; 2];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, [1, 0]);
}

#[tokio::test]
async fn a_parked_fetch_is_due_once_when_enough_bytes_have_come() {
    let (out, _client) = connection().await;
    let fetch = ParkedFetch::new(out.clone(), 10, 0);
    fetch.gathered(4);
    assert!(!fetch.gather(5) && !fetch.is_fired());
    assert!(fetch.gather(1) && !fetch.gather(100), "whoever made it due fires it");
    fetch.fire();
    out.woken().await;
    assert!(fetch.is_fired() && !fetch.renewed(10).is_fired());
    let cancelled = ParkedFetch::new(out, 10, 0);
    cancelled.cancel();
    assert!(!cancelled.gather(10));
}

#[tokio::test]
async fn nobody_is_left_among_the_waiters() {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    let (out, _client) = connection().await;
    let wait = || pending(&out, out.reserve(), 1);
    let waiting = |hosted: &Hosted| hosted.waiters();

    let refused = wait();
    produce(&node, &hosted, Acks::All, 0, Some(refused.clone()));
    assert!(refused.is_done(), "it does not lead yet");
    state(&node, &hosted, push(1, 1, &[1, 2]));
    let written = wait();
    assert_eq!(
        produce(&node, &hosted, Acks::Leader, 0, Some(written.clone())),
        AppendResult::Handed
    );
    assert!(written.is_done());
    let committed = wait();
    produce(&node, &hosted, Acks::All, 1, Some(committed.clone()));
    let late = wait();
    produce(&node, &hosted, Acks::All, 2, Some(late.clone()));
    let gap = wait();
    produce(&node, &hosted, Acks::All, 9, Some(gap.clone()));
    assert!(!gap.is_done() && !committed.is_done());
    assert_eq!(waiting(&hosted), 3);

    let mut after = Aftermath::default();
    hosted.follower_fetch(node.now(), fetch(2), &mut after);
    hosted.time_out(node.now(), &late, &mut after);
    let heard = FollowerFetch { heard: 1, ..fetch(2) };
    hosted.follower_fetch(node.now(), heard, &mut after);
    after.settle(&hosted, &*node, &mut Flush::default());
    assert!(late.is_done() && gap.is_done());
    // The first success at acks=all here, after one at acks=1: the note of that is synced first.
    let told = async {
        while !committed.is_done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), told).await.expect("it is told");
    assert_eq!(waiting(&hosted), 0);

    let ended = wait();
    produce(&node, &hosted, Acks::All, 3, Some(ended.clone()));
    state(&node, &hosted, push(2, 2, &[1, 2]));
    assert!(ended.is_done());
    assert_eq!(waiting(&hosted), 0);
}

/// A batch that was refused leaves a gap before those that were sent after it. Told of the gap, a client gives up the order
/// of its sequences and writes again what it has no answer for, in other partitions too; told what it can wait for, it waits.
#[tokio::test]
async fn what_may_pass_is_told_before_the_gap_that_it_has_left() {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    let (out, _client) = connection().await;
    let told = |acks, sequence| {
        let answer = Arc::new(Mutex::new(None));
        let noted = answer.clone();
        let waits = pending_with(&out, move |result| *noted.lock().unwrap() = Some(result.err()));
        produce(&node, &hosted, acks, sequence, Some(waits));
        answer.lock().unwrap().take().expect("it is answered at once")
    };
    let demanding = |leader_epoch, isr: &[i32]| StatePush {
        min_insync_replicas: 2,
        ..push(1, leader_epoch, isr)
    };
    let gap = |found| Some(Condition::OutOfOrderSequenceNumber { found, expected: 1 });
    state(&node, &hosted, push(1, 1, &[1]));
    assert_eq!(told(Acks::All, 0), None);
    state(&node, &hosted, demanding(2, &[1]));
    let few = Some(Condition::NotEnoughReplicas { isr: 1, min: 2 });
    assert_eq!(told(Acks::All, 1), few);
    assert_eq!(told(Acks::All, 2), few, "behind the one that was refused");
    assert_eq!(told(Acks::Leader, 2), gap(2), "for which there are enough");
    state(&node, &hosted, push(1, 3, &[1]));
    assert_eq!(told(Acks::All, 2), gap(2));
    assert_eq!((told(Acks::All, 1), told(Acks::All, 2)), (None, None));
}

#[tokio::test]
async fn acks_0_is_silent_and_tells_the_caller_of_a_refusal() {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(2, 1, &[1, 2]));
    assert_eq!(produce(&node, &hosted, Acks::None, 0, None), AppendResult::Refused, "it follows");
    state(&node, &hosted, push(1, 2, &[1, 2]));
    assert_eq!(produce(&node, &hosted, Acks::None, 0, None), AppendResult::Silent);
    assert_eq!(produce(&node, &hosted, Acks::None, 0, None), AppendResult::Silent, "a repetition");
    assert_eq!(produce(&node, &hosted, Acks::None, 5, None), AppendResult::Refused, "a gap");
    assert_eq!(hosted.waiters(), 0);
}

#[tokio::test]
async fn a_deposed_leader_knows_what_of_its_cut_it_had_acknowledged() {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(1, 1, &[1, 2]));
    let (out, _client) = connection().await;
    for (sequence, acks) in [(0, Acks::Leader), (1, Acks::Leader), (2, Acks::All), (3, Acks::None)]
    {
        produce(&node, &hosted, acks, sequence, Some(pending(&out, out.reserve(), 1)));
    }
    let after = cut_to_one(&node, &hosted, 2);
    let [lost] = &after.lost[..] else { panic!("{:?}", after.lost) };
    assert_eq!((lost.loss.from, lost.loss.to), (Offset(1), Some(Offset(4))));
    assert_eq!(lost.leader_epoch, Some(LeaderEpoch(2)));
    let led = Led {
        to: Some(Offset(4)),
        acked_to: Offset(2),
        unasked: false,
        ..Led::begin(LeaderEpoch(1), Offset(0))
    };
    assert_eq!(lost.led, Some(led), "two at acks=1, none of the others");
    assert_eq!(hosted.lock().led.unwrap().acked_to, Offset(1), "what is cut is told once");
}

/// The follower hears that epoch 1 ends at 1 at the leader of this epoch.
pub(super) fn cut_to_one(node: &Arc<Node>, hosted: &Arc<Hosted>, leader_epoch: i32) -> Aftermath {
    state(node, hosted, push(2, leader_epoch, &[2]));
    let mut after = Aftermath::default();
    let asked = hosted.fetch_position().unwrap();
    let outcome = FetchOutcome::Diverging { epoch: LeaderEpoch(1), end: Offset(1) };
    let answer = FetchAnswer { leader: BrokerId(2), asked, outcome };
    hosted.fetch_answered(node.now(), answer, None, &mut after);
    after
}

#[tokio::test]
async fn a_leader_that_is_moved_away_tells_what_it_had_acknowledged_alone() {
    for (assigned, expected) in [(vec![BrokerId(2)], Some((2, 3))), (Vec::new(), None)] {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        state(&node, &hosted, push(1, 1, &[1]));
        let (out, _client) = connection().await;
        let sends = |acks, sequence| {
            produce(&node, &hosted, acks, sequence, Some(pending(&out, out.reserve(), 1)));
        };
        sends(Acks::All, 0);
        sends(Acks::Leader, 1);
        state(&node, &hosted, StatePush { partition: in_isr(&[1, 2]), ..push(1, 1, &[1]) });
        sends(Acks::Leader, 2);
        sends(Acks::None, 3);
        assert_eq!(hosted.high_watermark(), Offset(2), "broker 2 has copied nothing since");
        let mut away = push(2, 2, &[2]);
        away.partition.assigned_replicas = assigned;
        away.partition.state.partition_epoch = PartitionEpoch(3);
        let mut after = Aftermath::default();
        hosted.state(node.now(), away, &mut after);
        assert!(after.wants_delete());
        let told = after.lost.first().map(|lost| (lost.loss.from.0, lost.loss.at_least_to.0));
        assert_eq!(told, expected, "of a topic that is deleted nothing is lost");
    }
}

/// Led by broker 1 in epoch 1 with this ISR, in a later partition epoch.
fn in_isr(isr: &[i32]) -> Partition {
    let mut partition = push(1, 1, isr).partition;
    partition.state.partition_epoch = PartitionEpoch(2);
    partition
}

#[tokio::test]
async fn records_are_dropped_only_when_that_is_durable() {
    let (refusals, files) = Refusals::disk();
    let (node, disk) = (node(), Disk::on(files));
    let origin = Origin { broker: BrokerId(1), directory: DirectoryId([1; 16]) };
    node.journal.start(disk.storage.clone(), origin).unwrap();
    disk.storage.tells_losses_to(&node.journal);
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(1, 1, &[1, 2]));
    for sequence in 0..3 {
        produce(&node, &hosted, Acks::None, sequence, None);
    }
    let done = Arc::new(Mutex::new(Vec::new()));
    let noted = done.clone();
    refusals.set(move |op| {
        match op {
            Op::SyncData(path) if path.ends_with("barnabas.losses.jsonl") => {
                noted.lock().unwrap().push("told");
            }
            Op::SetLen { path, .. } if path.extension().is_some_and(|name| name == "log") => {
                noted.lock().unwrap().push("cut");
            }
            _ => {}
        }
        None
    });
    let after = cut_to_one(&node, &hosted, 2);
    assert!(after.lost.is_empty(), "it is told already");
    assert_eq!(*done.lock().unwrap(), ["told", "cut"]);
    let told = node.journal.last(Kind::Loss, 9);
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&told.body["from"], &told.body["to"]), (&1.into(), &3.into()));
    assert_eq!(
        (&told.body["class"], &told.body["cause"]),
        (&"never acked".into(), &"truncated".into())
    );
    assert!(told.body["bytes"].as_u64() > Some(100), "{told:?}");
}

#[tokio::test]
async fn a_broken_invariant_fences_the_partition_and_leaves_nobody_waiting() {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(1, 1, &[1, 2]));
    let (out, _client) = connection().await;
    let (before, broken) = (pending(&out, out.reserve(), 1), pending(&out, out.reserve(), 1));
    produce(&node, &hosted, Acks::All, 0, Some(before.clone()));
    assert!(!before.is_done());
    let mut after = Aftermath::default();
    let mut records = crate::testing::batch(1);
    let waits = Some((broken.clone(), 0));
    // No offset is left for so many records: arithmetic is checked.
    hosted.produce(node.now(), Acks::Leader, i64::MAX, &mut records, waits, &mut after);
    after.settle(&hosted, &*node, &mut Flush::default());
    assert!(before.is_done() && broken.is_done());
    assert_eq!((hosted.waiters(), hosted.role()), (0, Role::Idle));
    assert_eq!(hosted.consumer_view(None), Err(Condition::KafkaStorageError));
    assert_eq!(produce(&node, &hosted, Acks::None, 1, None), AppendResult::Refused);
}

#[tokio::test]
async fn r38_a_disk_that_does_not_give_back_what_was_written_takes_the_replica_out_and_nothing_else_does()
 {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(1, 1, &[1, 2]));
    let (out, _client) = connection().await;
    let waits = pending(&out, out.reserve(), 1);
    produce(&node, &hosted, Acks::All, 0, Some(waits.clone()));
    // Cut off meanwhile, or out of descriptors: no word of the disk.
    for harmless in
        [std::io::ErrorKind::UnexpectedEof.into(), std::io::Error::from_raw_os_error(24)]
    {
        assert_eq!(hosted.range_unreadable(&harmless), Condition::KafkaStorageError);
        assert!(hosted.leads_in(LeaderEpoch(1)) && !waits.is_done());
    }
    let eio = std::io::Error::from_raw_os_error(5);
    assert_eq!(hosted.range_unreadable(&eio), Condition::KafkaStorageError);
    assert!(waits.is_done() && hosted.role() == Role::Idle, "nobody is left waiting");
    assert_eq!(hosted.consumer_view(None), Err(Condition::KafkaStorageError));
    // It is told once.
    hosted.range_unreadable(&eio);
    let failures = node.failed.taken().await;
    let [(of, failure)] = &failures[..] else { panic!("{}", failures.len()) };
    assert!(Arc::ptr_eq(of, &hosted) && failure.kind == FailureKind::Read, "{failure:?}");
    assert_eq!((failure.os_error, failure.loss), (Some(5), None));
}

#[tokio::test]
async fn a_compaction_that_meets_a_disk_fault_ends_the_replica_and_any_other_error_does_not() {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(1, 1, &[1]));
    let error = |raw| LogError::Io {
        what: "read",
        path: "/data/t-0".into(),
        source: std::io::Error::from_raw_os_error(raw),
    };
    let mut after = Aftermath::default();
    hosted.compaction_failed(node.now(), &error(28), &mut after);
    assert!(after.failure.is_none() && hosted.leads_in(LeaderEpoch(1)), "the disk is full");
    hosted.compaction_failed(node.now(), &error(5), &mut after);
    assert_eq!(after.failure.as_ref().map(|failure| failure.kind), Some(FailureKind::Read));
    assert_eq!(hosted.role(), Role::Idle);
}

#[tokio::test]
async fn a_close_waits_for_the_flush_that_is_under_way() {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(1, 1, &[1]));
    produce(&node, &hosted, Acks::None, 0, None);
    let plan = hosted.with_log(|log| match log.flush_plan().unwrap() {
        FlushStep::Sync(plan) => plan,
        step => panic!("{step:?}"),
    });
    let closing = std::thread::spawn({
        let hosted = Arc::clone(&hosted);
        move || hosted.close()
    });
    let result = plan.run();
    hosted.with_log(|log| log.flush_done(&plan, result)).unwrap();
    hosted.flush_ended();
    closing.join().unwrap().unwrap();
    assert!(disk.storage.close(true).is_empty());
    assert!(disk.temp.path().join(".kafka_cleanshutdown").exists(), "cleanly");
}

#[tokio::test]
async fn r16_a_replica_that_was_taken_out_notes_no_recovery_point_any_more() {
    let (node, disk) = (node(), Disk::new());
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(1, 1, &[1]));
    produce(&node, &hosted, Acks::None, 0, None);
    let FlushStep::Sync(plan) = hosted.with_log(|log| log.flush_plan()).unwrap() else {
        panic!("there is something to flush")
    };
    hosted.retire();
    disk.storage.delete_all(&[tp("t", 0)]).unwrap();
    assert!(hosted.with_log(|log| log.flush_done(&plan, Ok(()))).is_err());
    assert_eq!(hosted.directory.log_dir().unwrap().recovery_point_of(&tp("t", 0)), None);
}
