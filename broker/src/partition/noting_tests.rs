//! What a leader has noted before a producer is told, and what the next process makes of it.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barnabas_log::Op;
use barnabas_replica::Role;
use barnabas_types::{Acks, Condition, LeaderEpoch, Offset};
use rustix::io::Errno;

use super::tests::{cut_to_one, fetch};
use super::*;
use crate::node::Node;
use crate::storage::{AckKinds, LedFile, LedNote, Lost};
use crate::testing::{Disk, Refusals, connection, node, pending_with, produce, push, state, tp};

/// Longer than any thread of a busy machine sleeps.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name of the file.
const FILE: &str = "barnabas.led";
/// Bytes of a whole note.
const NOTE_BYTES: usize = 64;

/// A broker with a replica that leads alone in epoch 1.
fn leader(disk: &Disk) -> (Arc<Node>, Arc<Hosted>) {
    let node = node();
    let hosted = disk.host(&node, tp("t", 0));
    state(&node, &hosted, push(1, 1, &[1]));
    (node, hosted)
}

/// Produces a record; what its producer is told comes.
async fn send(
    node: &Arc<Node>,
    hosted: &Arc<Hosted>,
    acks: Acks,
    sequence: i32,
) -> Receiver<ProduceResult> {
    let (out, _client) = connection().await;
    let (tell, told) = channel();
    let pending = pending_with(&out, move |result| drop(tell.send(result)));
    produce(node, hosted, acks, sequence, Some(pending));
    told
}

/// What another process would find.
fn found(hosted: &Hosted) -> Option<LedNote> {
    let key = hosted.note_key();
    LedFile::read(hosted.directory.path(), &[key].into_iter().collect()).of_process(key)
}

/// What the next process tells of everything from offset 1 on, which the leader of this epoch has not.
fn told_by_the_next(node: &Arc<Node>, hosted: &Arc<Hosted>, leader_epoch: i32) -> Lost {
    let note = found(hosted).unwrap();
    hosted.lock().led = None;
    hosted.led_before(note);
    let mut after = cut_to_one(node, hosted, leader_epoch);
    assert_eq!(after.lost.len(), 1, "{:?}", after.lost);
    after.lost.remove(0)
}

#[tokio::test]
async fn the_next_process_knows_what_this_one_acknowledged() {
    for (acks, one, all) in [
        ([Acks::None, Acks::None], false, false),
        ([Acks::None, Acks::Leader], true, false),
        ([Acks::All, Acks::Leader], true, true),
    ] {
        let disk = Disk::new();
        let (node, hosted) = leader(&disk);
        for (sequence, acks) in (0..).zip(acks) {
            let told = send(&node, &hosted, acks, sequence).await;
            if acks != Acks::None {
                told.recv_timeout(PATIENCE).unwrap().unwrap();
            }
        }
        let note = found(&hosted).unwrap();
        assert_eq!((note.epoch, note.from), (LeaderEpoch(1), Offset(0)));
        assert_eq!(note.kinds, AckKinds { one, all }, "{acks:?}");
        let led = told_by_the_next(&node, &hosted, 2).led.unwrap();
        let acked_to = if one { Offset(2) } else { Offset(0) };
        assert_eq!((led.to, led.acked_to), (Some(Offset(2)), acked_to));
        assert!(!led.committed_unseen);
    }
}

#[tokio::test]
async fn what_is_committed_is_noted_before_a_producer_is_told() {
    let disk = Disk::new();
    let (node, hosted) = leader(&disk);
    state(&node, &hosted, push(1, 2, &[1, 2]));
    let waits = [
        send(&node, &hosted, Acks::All, 0).await,
        send(&node, &hosted, Acks::All, 1).await,
        send(&node, &hosted, Acks::All, 2).await,
    ];
    let committed = |hosted: &Hosted| found(hosted).unwrap().committed;
    assert_eq!(committed(&hosted), Some(Offset(0)));
    let follower = barnabas_replica::FollowerFetch {
        position: barnabas_replica::FetchPosition {
            leader_epoch: LeaderEpoch(2),
            last_epoch: Some(LeaderEpoch(2)),
            ..fetch(2).position
        },
        ..fetch(2)
    };
    let mut after = Aftermath::default();
    hosted.follower_fetch(node.now(), follower, &mut after);
    assert_eq!(after.finished.len(), 2, "broker 2 has two");
    assert_eq!(committed(&hosted), Some(Offset(2)), "and nobody was told yet");
    after.settle(&hosted, &*node, &mut Flush::default());
    assert!(waits[..2].iter().all(|told| told.recv_timeout(PATIENCE).unwrap().is_ok()));
    // The checkpoint knows of nothing, and the leader of epoch 4 was elected uncleanly.
    let led = told_by_the_next(&node, &hosted, 4).led.unwrap();
    assert_eq!((led.committed, led.committed_unseen), (Offset(2), false));
}

#[tokio::test]
async fn a_second_kind_is_acknowledged_once_the_note_that_names_it_is_durable() {
    let (refusals, files) = Refusals::disk();
    let disk = Disk::on(files);
    let (node, hosted) = leader(&disk);
    let done = Arc::new(Mutex::new(Vec::new()));
    let noted = done.clone();
    refusals.set(move |op| {
        match op {
            Op::Write { path, bytes, .. } if path.ends_with(FILE) && bytes.len() == NOTE_BYTES => {
                noted.lock().unwrap().push("noted");
            }
            Op::SyncData(path) if path.ends_with(FILE) => noted.lock().unwrap().push("synced"),
            _ => {}
        }
        None
    });
    let first = send(&node, &hosted, Acks::Leader, 0).await;
    assert!(first.try_recv().unwrap().is_ok(), "the first kind waits for nothing");
    let again = send(&node, &hosted, Acks::Leader, 1).await;
    assert!(again.try_recv().unwrap().is_ok());
    let (out, _client) = connection().await;
    let (tell, told) = channel();
    let noted = done.clone();
    let pending = pending_with(&out, move |result| {
        noted.lock().unwrap().push("told");
        drop(tell.send(result));
    });
    produce(&node, &hosted, Acks::All, 2, Some(pending));
    told.recv_timeout(PATIENCE).unwrap().unwrap();
    let done = done.lock().unwrap().clone();
    let told = done.iter().position(|what| *what == "told").unwrap();
    let last = |what| done[..told].iter().rposition(|other| *other == what).unwrap();
    assert!(last("noted") < last("synced"), "{done:?}");
    let third = send(&node, &hosted, Acks::All, 3).await;
    assert!(third.try_recv().unwrap().is_ok(), "and never again");
}

#[tokio::test]
async fn a_leader_whose_note_cannot_be_synced_acknowledges_no_second_kind_and_leads_no_more() {
    let (refusals, files) = Refusals::disk();
    let disk = Disk::on(files);
    let (node, hosted) = leader(&disk);
    let first = send(&node, &hosted, Acks::Leader, 0).await;
    assert!(first.try_recv().unwrap().is_ok());
    refusals.set(|op| match op {
        Op::SyncData(path) if path.ends_with(FILE) => Some(Errno::IO),
        _ => None,
    });
    let told = send(&node, &hosted, Acks::All, 1).await.recv_timeout(PATIENCE).unwrap();
    assert_eq!(told, Err(Condition::KafkaStorageError));
    assert_eq!(hosted.role(), Role::Idle);
}

#[tokio::test]
async fn on_a_full_disk_a_leader_goes_on_and_what_it_cannot_note_is_not_claimed() {
    let (refusals, files) = Refusals::disk();
    let disk = Disk::on(files);
    let (node, hosted) = leader(&disk);
    state(&node, &hosted, push(1, 2, &[1, 2]));
    let told = send(&node, &hosted, Acks::All, 0).await;
    let of_note = |op: &Op<'_>| matches!(op, Op::Write { path, .. } if path.ends_with(FILE));
    refusals.set(move |op| of_note(op).then_some(Errno::NOSPC));
    let mut alone = push(1, 2, &[1]);
    alone.partition.state.partition_epoch = barnabas_types::PartitionEpoch(9);
    state(&node, &hosted, alone);
    assert!(told.recv_timeout(PATIENCE).unwrap().is_ok(), "it is committed by the leader alone");
    assert_eq!(found(&hosted), None, "the next process is told nothing, rather than too little");
    assert_eq!(hosted.role(), Role::Leader { leader_epoch: LeaderEpoch(2) });
}
