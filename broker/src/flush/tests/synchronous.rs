//! `flush.mode=sync`: the rows of the table of acknowledgements, live changes, and the follower's part.

use super::*;

#[tokio::test]
async fn acks_1_waits_for_the_leaders_own_flush_and_appends_go_on_meanwhile() {
    let rig = Rig::new(&[1, 2], sync()).await;
    rig.gate.shut();
    let first = rig.produce(Acks::Leader, 0);
    rig.gate.wait_for(1);
    // No lock is held: what comes now gathers for the next sync.
    let second = rig.produce(Acks::Leader, 1);
    assert_eq!(rig.fetch(0, 0), rig.fetch(0, 0));
    assert!(!first.is_answered() && !second.is_answered());
    rig.gate.open();
    assert_eq!((first.answer(), second.answer()), (Ok(0), Ok(1)));
    assert_eq!(rig.visible(), 0, "the follower has nothing");
}

#[tokio::test]
async fn acks_0_has_no_answer_and_is_flushed_all_the_same() {
    let rig = Rig::new(&[1], sync()).await;
    rig.throw(0);
    rig.all_flushed();
    assert_eq!(rig.visible(), 1);
}

#[tokio::test]
async fn r10_acks_all_waits_until_every_isr_member_has_flushed() {
    let config = TopicConfig { min_insync_replicas: 2, ..sync() };
    let rig = Rig::new(&[1, 2], config).await;
    rig.gate.shut();
    let waiting = rig.produce(Acks::All, 0);
    rig.gate.wait_for(1);
    // Followers are given what is not flushed here.
    let FetchReply::Grant(grant) = rig.fetch(0, 0) else { panic!() };
    assert_eq!((grant.from, grant.to, grant.high_watermark), (Offset(0), Offset(1), Offset(0)));
    rig.fetch(1, 1);
    assert!(!waiting.is_answered(), "flushed there, not here");
    assert_eq!(rig.visible(), 0, "a consumer would see what a crash can take");
    rig.gate.open();
    assert_eq!(waiting.answer(), Ok(0));
    assert_eq!(rig.visible(), 1);

    let waiting = rig.produce(Acks::All, 1);
    rig.all_flushed();
    rig.fetch(2, 1);
    assert!(!waiting.is_answered(), "flushed here, only written there");
    assert_eq!(rig.visible(), 1);
    rig.fetch(2, 2);
    assert_eq!(waiting.answer(), Ok(1));
}

#[tokio::test]
async fn acks_all_below_min_insync_replicas_is_refused_before_anything_is_written() {
    let config = TopicConfig { min_insync_replicas: 2, ..sync() };
    let rig = Rig::new(&[1], config).await;
    let refused = rig.produce(Acks::All, 0);
    assert!(matches!(refused.answer(), Err(Condition::NotEnoughReplicas { .. })));
    let alone = rig.produce(Acks::Leader, 0);
    assert_eq!(alone.answer(), Ok(0), "acks=1 does not ask for others");
    assert_eq!(rig.visible(), 0);
}

#[tokio::test]
async fn r37_from_async_to_sync_everything_unflushed_is_flushed_at_once_and_nothing_new_is_answered_before()
 {
    let mut rig = Rig::new(&[1, 2], TopicConfig::default()).await;
    assert_eq!(rig.produce(Acks::Leader, 0).answer(), Ok(0));
    rig.fetch(1, 0);
    let committed = rig.produce(Acks::All, 1);
    rig.fetch(2, 0);
    assert_eq!(committed.answer(), Ok(1));
    assert_eq!((rig.gate.begun(), rig.unflushed()), (0, 2));
    rig.gate.shut();
    rig.alter(|config| config.flush_mode = FlushMode::Sync, &[1, 2]);
    rig.gate.wait_for(1);
    let (written, all) = (rig.produce(Acks::Leader, 2), rig.produce(Acks::All, 3));
    rig.fetch(4, 4);
    assert!(!written.is_answered() && !all.is_answered());
    rig.gate.open();
    assert_eq!((written.answer(), all.answer()), (Ok(2), Ok(3)));
}

#[tokio::test]
async fn r37_from_sync_to_async_whoever_waited_for_the_flush_alone_is_answered() {
    let mut rig = Rig::new(&[1, 2], sync()).await;
    rig.gate.shut();
    let (written, all) = (rig.produce(Acks::Leader, 0), rig.produce(Acks::All, 1));
    rig.gate.wait_for(1);
    rig.alter(|config| config.flush_mode = FlushMode::Async, &[1, 2]);
    assert_eq!(written.answer(), Ok(0));
    assert!(!all.is_answered());
    rig.fetch(2, 0);
    assert_eq!(all.answer(), Ok(1));
    assert_eq!(rig.produce(Acks::Leader, 2).answer(), Ok(2));
    rig.gate.open();
}

#[tokio::test]
async fn flush_timeout_ends_the_wait_with_an_error_and_no_success_follows() {
    let rig = Rig::new(&[1, 2], sync()).await;
    rig.gate.shut();
    let (late, other) = (rig.produce(Acks::Leader, 0), rig.produce(Acks::Leader, 1));
    rig.gate.wait_for(1);
    let time_out = |waiting: &Waiting| {
        let (now, pending) = (rig.told.now(), waiting.pending.clone());
        rig.settling(&rig.hosted, |after| rig.hosted.time_out_flush(now, &pending, after));
    };
    time_out(&late);
    assert_eq!(late.answer(), Err(Condition::RequestTimedOut));
    assert!(!other.is_answered());
    rig.gate.open();
    assert_eq!(other.answer(), Ok(1));
    assert!(late.result.try_recv().is_err());
    // What waits for a follower is no business of this timeout.
    let all = rig.produce(Acks::All, 2);
    rig.all_flushed();
    time_out(&all);
    assert!(!all.is_answered());
    rig.fetch(3, 3);
    assert_eq!(all.answer(), Ok(2));
}

#[tokio::test]
async fn r37_a_follower_flushes_what_it_fetched_and_tells_its_leader_at_once() {
    let mut rig = Rig::new(&[1, 2], TopicConfig::default()).await;
    rig.partition_epoch += 1;
    rig.state(&rig.hosted, push(2, 2, &[1, 2]));
    let told = |rig: &Rig| std::mem::take(&mut *rig.told.positions.lock().unwrap());
    rig.fetched(0, 2);
    assert_eq!((rig.unflushed(), told(&rig)), (1, vec![]), "async: nobody waits for it");
    // Told of the mode, it flushes what it has.
    rig.gate.shut();
    rig.config = sync();
    rig.partition_epoch += 1;
    rig.state(&rig.hosted, push(2, 2, &[1, 2]));
    rig.gate.wait_for(1);
    assert_eq!(told(&rig), [BrokerId(2)], "where it stands counts from now on");
    rig.gate.open();
    rig.until("the leader is told", |rig| !told(rig).is_empty());
    // From then on with every record.
    rig.gate.shut();
    rig.fetched(1, 2);
    rig.gate.wait_for(1);
    assert_eq!(rig.hosted.fetch_position().unwrap().flushed, Offset(1));
    assert_eq!(told(&rig), []);
    rig.gate.open();
    rig.until("the leader is told", |rig| told(rig) == [BrokerId(2)]);
    assert_eq!(rig.hosted.fetch_position().unwrap().flushed, Offset(2));
}
