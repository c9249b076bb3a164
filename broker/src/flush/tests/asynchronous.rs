//! `flush.mode=async`: nothing waits for a flush until `flush.messages` or `flush.ms` is reached.

use super::*;

#[tokio::test]
async fn without_limits_nothing_is_flushed_and_nobody_waits() {
    let config = TopicConfig { min_insync_replicas: 2, ..TopicConfig::default() };
    let rig = Rig::new(&[1, 2], config).await;
    rig.gate.shut();
    rig.throw(0);
    assert_eq!(rig.produce(Acks::Leader, 1).answer(), Ok(1));
    let all = rig.produce(Acks::All, 2);
    assert!(!all.is_answered());
    rig.fetch(3, 0);
    assert_eq!(all.answer(), Ok(2));
    assert_eq!((rig.unflushed(), rig.gate.begun()), (3, 0));
}

#[tokio::test]
async fn flush_messages_flushes_by_itself_before_anybody_must_wait() {
    let config = TopicConfig { flush_messages: 10, ..TopicConfig::default() };
    let rig = Rig::new(&[1], config).await;
    for sequence in 0..4 {
        assert_eq!(rig.produce(Acks::Leader, sequence).answer(), Ok(i64::from(sequence)));
    }
    assert_eq!((rig.unflushed(), rig.gate.begun()), (4, 0));
    rig.produce(Acks::Leader, 4);
    rig.all_flushed();
    assert_eq!(rig.gate.begun(), 1);
}

#[tokio::test]
async fn flush_messages_bounds_what_is_answered_and_not_flushed() {
    let config = TopicConfig { flush_messages: 10, ..TopicConfig::default() };
    let rig = Rig::new(&[1], config).await;
    rig.gate.shut();
    let waiting: Vec<_> = (0..12).map(|sequence| rig.produce(Acks::Leader, sequence)).collect();
    rig.gate.wait_for(1);
    let answered: Vec<_> = waiting.iter().map(Waiting::is_answered).collect();
    assert_eq!(answered, [[true; 9].as_slice(), &[false; 3]].concat());
    rig.gate.open();
    for (waiting, base) in waiting.iter().zip(0..) {
        assert_eq!(waiting.answer(), Ok(base));
    }
}

#[tokio::test]
async fn flush_messages_of_one_and_flush_ms_of_none_answer_nothing_unflushed() {
    for config in [
        TopicConfig { flush_messages: 1, ..TopicConfig::default() },
        TopicConfig { flush_ms: 0, ..TopicConfig::default() },
    ] {
        let rig = Rig::new(&[1], config).await;
        rig.gate.shut();
        let waiting = rig.produce(Acks::Leader, 0);
        rig.gate.wait_for(1);
        assert!(!waiting.is_answered());
        rig.gate.open();
        assert_eq!(waiting.answer(), Ok(0));
    }
}

#[tokio::test]
async fn flush_ms_flushes_with_no_further_traffic() {
    let config = TopicConfig { flush_ms: 40, ..TopicConfig::default() };
    let rig = Rig::new(&[1], config).await;
    assert_eq!(rig.produce(Acks::Leader, 0).answer(), Ok(0));
    rig.told.now_ms.store(29, Ordering::SeqCst);
    rig.produce(Acks::Leader, 1);
    assert_eq!((rig.hosted.unflushed(rig.told.now()), rig.gate.begun()), ((2, 29), 0));
    rig.told.now_ms.store(30, Ordering::SeqCst);
    rig.all_flushed();
    assert_eq!(rig.gate.begun(), 1);
    // Idle, it costs nothing; then all begins anew.
    rig.told.now_ms.store(1000, Ordering::SeqCst);
    rig.produce(Acks::Leader, 2);
    assert_eq!(rig.hosted.unflushed(rig.told.now()), (1, 0));
    rig.told.now_ms.store(1030, Ordering::SeqCst);
    rig.all_flushed();
    assert_eq!(rig.gate.begun(), 2);
}

#[tokio::test]
async fn a_flush_that_is_later_than_flush_ms_holds_the_answers_of_what_comes_after() {
    let config = TopicConfig { flush_ms: 40, ..TopicConfig::default() };
    let rig = Rig::new(&[1], config).await;
    rig.gate.shut();
    rig.produce(Acks::Leader, 0);
    rig.told.now_ms.store(30, Ordering::SeqCst);
    rig.gate.wait_for(1);
    assert_eq!(rig.produce(Acks::Leader, 1).answer(), Ok(1), "there is time left");
    rig.told.now_ms.store(40, Ordering::SeqCst);
    let mut sequence = 1;
    let mut held = None;
    rig.until("answers wait", |rig| {
        sequence += 1;
        held = Some(rig.produce(Acks::Leader, sequence)).filter(|waiting| !waiting.is_answered());
        held.is_some()
    });
    // It ends, but what came meanwhile is late as well: only the second flush lets go.
    rig.told.now_ms.store(100, Ordering::SeqCst);
    let held = held.unwrap();
    assert!(!held.is_answered());
    rig.gate.open();
    assert_eq!(held.answer(), Ok(i64::from(sequence)));
    rig.all_flushed();
    assert_eq!(rig.produce(Acks::Leader, sequence + 1).answer(), Ok(i64::from(sequence) + 1));
}

#[tokio::test]
async fn a_lowered_flush_ms_counts_at_once() {
    let config = TopicConfig { flush_ms: 1 << 40, ..TopicConfig::default() };
    let mut rig = Rig::new(&[1], config).await;
    rig.produce(Acks::Leader, 0);
    rig.told.now_ms.store(30, Ordering::SeqCst);
    rig.alter(|config| config.flush_ms = 40, &[1]);
    rig.all_flushed();
}
