//! Group commit: one sync for all that wait, and one for many partitions.

use super::*;

#[tokio::test]
async fn one_sync_covers_all_that_came_while_the_one_before_ran() {
    let rig = Rig::new(&[1], sync()).await;
    rig.gate.shut();
    let first = rig.produce(Acks::All, 0);
    rig.gate.wait_for(1);
    let gathered: Vec<_> = (1..64)
        .map(|n| rig.produce(if n % 2 == 0 { Acks::All } else { Acks::Leader }, n))
        .collect();
    rig.gate.open();
    assert_eq!(first.answer(), Ok(0));
    for (waiting, base) in gathered.iter().zip(1..) {
        assert_eq!(waiting.answer(), Ok(base));
    }
    assert_eq!(rig.gate.begun(), 2);
}

#[tokio::test]
async fn few_partitions_are_synced_at_the_same_time_and_do_not_wait_for_one_another() {
    let rig = Rig::new(&[1], sync()).await;
    let partitions = rig.partitions(4);
    rig.gate.shut();
    let waiting: Vec<_> = partitions.iter().map(|p| rig.produce_to(p, Acks::All, 0)).collect();
    rig.gate.wait_for(4);
    rig.gate.open();
    assert!(waiting.iter().all(|waiting| waiting.answer() == Ok(0)));
    assert_eq!((rig.gate.begun(), rig.disk.flusher(&rig.told).counts().groups), (4, 0));
}

#[tokio::test]
async fn many_partitions_are_made_durable_by_one_sync_of_the_file_system() {
    let rig = Rig::new(&[1], sync()).await;
    let partitions = rig.partitions(64);
    rig.gate.shut();
    let waiting: Vec<_> = partitions.iter().map(|p| rig.produce_to(p, Acks::All, 0)).collect();
    // Each thread has one at most; the rest gathers.
    rig.gate.wait_for(1);
    rig.gate.open();
    assert!(waiting.iter().all(|waiting| waiting.answer() == Ok(0)));
    let counts = rig.disk.flusher(&rig.told).counts();
    assert_eq!((counts.partitions, counts.failed), (64, 0));
    assert!(counts.groups > 0 && rig.gate.begun() < 64, "{counts:?}, {}", rig.gate.begun());
}

#[tokio::test]
async fn what_nobody_waits_for_leaves_threads_to_those_who_do() {
    let config = TopicConfig { flush_messages: 2, ..TopicConfig::default() };
    let mut rig = Rig::new(&[1], config).await;
    let background = rig.partitions(16);
    rig.gate.shut();
    for hosted in &background {
        rig.produce_to(hosted, Acks::Leader, 0);
    }
    rig.alter(|config| config.flush_mode = FlushMode::Sync, &[1]);
    let waiting = rig.produce(Acks::Leader, 0);
    rig.until("its sync has begun", |rig| rig.gate.begun() == 4);
    assert!(!waiting.is_answered());
    rig.gate.open();
    assert_eq!(waiting.answer(), Ok(0));
    rig.until("the others are flushed too", |rig| {
        background.iter().all(|hosted| hosted.unflushed(rig.told.now()).0 == 0)
    });
}
