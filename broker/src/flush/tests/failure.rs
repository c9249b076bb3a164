//! R38: a failed sync acknowledges nobody, and is never tried again on the same file.

use super::*;

fn is_storage_error(waiting: &Waiting) -> bool {
    waiting.answer() == Err(Condition::KafkaStorageError)
}

#[tokio::test]
async fn r38_d5_a_failed_sync_answers_the_whole_group_with_an_error_and_fences_the_partition() {
    let rig = Rig::new(&[1, 2], sync()).await;
    assert_eq!(rig.produce(Acks::Leader, 0).answer(), Ok(0));
    rig.all_flushed();
    rig.gate.shut();
    let mut group = vec![rig.produce(Acks::Leader, 1)];
    rig.gate.wait_for(1);
    group.extend((2..50).map(|n| rig.produce(Acks::All, n)));
    rig.gate.fail();
    let begun = rig.gate.begun();
    rig.gate.open();
    assert!(group.iter().all(is_storage_error));
    rig.until("the failure is told", |rig| !rig.told.failures.lock().unwrap().is_empty());
    // The disk is well again: nothing makes good what was lost.
    rig.gate.mend();
    assert_eq!(rig.produce(Acks::Leader, 50).answer(), Err(Condition::KafkaStorageError));
    let FetchReply::Refused(condition) = rig.fetch(1, 1) else { panic!("nothing is served") };
    assert_eq!(condition, Condition::KafkaStorageError);
    assert_eq!((rig.hosted.role(), rig.visible()), (Role::Idle, 0));
    assert_eq!(rig.gate.begun(), begun, "never a second sync");

    let failures = rig.told.failures.lock().unwrap();
    let [failure] = failures.as_slice() else { panic!("once: {failures:?}") };
    let loss = failure.loss.unwrap();
    assert_eq!((loss.from, loss.to), (Offset(1), Some(Offset(50))), "exactly what was not flushed");
    assert_eq!((failure.leader_epoch, failure.os_error), (LeaderEpoch(1), Some(5)));
}

#[tokio::test]
async fn r38_a_failed_sync_of_the_file_system_fences_every_partition_of_its_group() {
    let rig = Rig::new(&[1], sync()).await;
    let partitions = rig.partitions(64);
    rig.gate.shut();
    let waiting: Vec<_> = partitions.iter().map(|p| rig.produce_to(p, Acks::All, 0)).collect();
    rig.gate.wait_for(1);
    rig.gate.fail();
    rig.gate.open();
    assert!(waiting.iter().all(is_storage_error));
    assert!(partitions.iter().all(|hosted| hosted.role() == Role::Idle));
    rig.until("every failure is told", |rig| rig.told.failures.lock().unwrap().len() == 64);
    assert_eq!(rig.disk.flusher(&rig.told).counts().failed, 64);
}

#[tokio::test]
async fn r38_a_failed_flush_in_the_background_fences_too() {
    let config = TopicConfig { flush_messages: 3, ..TopicConfig::default() };
    let rig = Rig::new(&[1], config).await;
    rig.gate.fail();
    assert_eq!(rig.produce(Acks::Leader, 0).answer(), Ok(0), "answered by the rules of the topic");
    rig.produce(Acks::Leader, 1);
    rig.until("it is fenced", |rig| rig.hosted.role() == Role::Idle);
    rig.until("the failure is told", |rig| !rig.told.failures.lock().unwrap().is_empty());
    assert_eq!(rig.told.failures.lock().unwrap()[0].loss.unwrap().from, Offset(0));
}
