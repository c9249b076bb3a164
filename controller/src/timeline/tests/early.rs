//! What is told before it is over, for the case that nobody can tell it later; and which failures of one broker are one failover.

use super::*;

#[test]
fn what_is_decided_is_told_at_once_since_the_controller_may_fail_too() {
    let mut world = World::new(None, &[&[2, 1, 3]]);
    world.suspect(2);
    assert_eq!(world.open.len(), 1);
    let told = world.one();
    assert_eq!(names(&told), ["stream_broke", "suspected", "decided"]);
    assert_eq!((told.id.as_str(), told.cause.as_str(), told.moved), ("7-1", "suspicion", 0));
    world.apply_all();
    world.ack_all(&[1, 3]);
    let told = world.one();
    assert_eq!(
        (told.id.as_str(), told.moved),
        ("7-1", 1),
        "again, once all know, whatever the time"
    );
}

#[test]
fn a_suspected_broker_that_nobody_can_replace_is_told_before_its_session_ends() {
    let mut world = World::new(None, &[&[2], &[1]]);
    world.suspect(2);
    assert!(world.open.is_empty(), "nobody else can lead");
    let told = world.one();
    assert_eq!((told.broker_id, told.cause.as_str()), (2, "suspicion"));
    assert_eq!((told.moved, told.leaderless), (0, 1));
    world.pass(6_000);
    world.register(|brokers| {
        brokers.remove(&b(2));
    });
    world.apply_all();
    world.ack_all(&[1, 3]);
    let told = world.one();
    assert_eq!((told.id.as_str(), told.leaderless), ("7-1", 1));
    assert!(names(&told).contains(&"session_ended"), "{told:?}");
}

#[test]
fn a_wrong_suspicion_that_moved_nothing_is_over_with_the_answer() {
    let mut world = World::new(None, &[&[2]]);
    world.suspect(2);
    world.due();
    world.pass(2_000);
    world.ack(2);
    let told = world.one();
    assert!(told.suspicion_was_wrong && names(&told).contains(&"led_again"), "{told:?}");
    world.pass(2_000);
    world.suspect(2);
    assert_eq!(world.one().id, "7-2", "another time, another failover");
}

#[test]
fn replicas_that_cannot_be_served_swallow_no_later_failure() {
    let mut world = World::new(None, &[&[2, 1, 3], &[2, 3, 1]]);
    world.fails_to_serve(2, 1, &[0]);
    world.ack_all(&[1, 2, 3]);
    assert_eq!((world.one().id.as_str(), world.open.len()), ("7-1", 0));
    // Soon after, in the same life: it is the same disk.
    world.pass(2_000);
    world.fails_to_serve(2, 2, &[0, 1]);
    world.ack_all(&[1, 2, 3]);
    let told = world.one();
    assert_eq!((told.id.as_str(), told.moved), ("7-1", 2));
    // Broker 2 comes back whole in another life, and is in both ISRs again; then it is killed.
    let mut world = World::new(None, &[&[2, 1, 3], &[2, 3, 1], &[1, 2, 3]]);
    world.fails_to_serve(2, 1, &[0]);
    world.ack_all(&[1, 2, 3]);
    world.due();
    world.us += DIRECTORIES_WITHIN_US + 1_000;
    world.suspect(2);
    let told = world.one();
    assert_eq!((told.id.as_str(), told.cause.as_str()), ("7-2", "suspicion"), "long after");
    let mut world = World::new(None, &[&[2, 1, 3], &[2, 3, 1]]);
    world.fails_to_serve(2, 1, &[0]);
    world.ack_all(&[1, 2, 3]);
    world.due();
    world.register(|brokers| {
        brokers.insert(b(2), broker(202));
    });
    world.apply_all();
    world.ack_all(&[1, 2, 3]);
    world.propose_all(1);
    world.apply_all();
    world.due();
    world.suspect(2);
    let told = world.one();
    assert_eq!(told.cause, "suspicion", "in another life: {told:?}");
    assert_eq!(told.broker_epoch, Some(202));
}

#[test]
fn the_isr_is_restored_by_the_one_who_left_it_and_by_nobody_else() {
    let mut world = World::new(None, &[&[2, 1, 3]]);
    world.register(|brokers| {
        brokers.remove(&b(3));
    });
    world.apply_all();
    world.ack_all(&[1, 2]);
    world.due();
    world.pass(2_000);
    world.suspect(2);
    world.apply_all();
    world.ack(1);
    let told = world.one();
    assert_eq!((told.id.as_str(), told.moved), ("7-2", 1), "of an ISR of two");
    // Broker 3 is back: the ISR has as many members as before broker 2 failed, and broker 2 is no member.
    world.pass(2_000);
    world.register(|brokers| {
        brokers.remove(&b(2));
        brokers.insert(b(3), broker(203));
    });
    world.apply_all();
    world.ack_all(&[1, 3]);
    let known = world.core.image().topics[&at(0).topic].partitions[&0].clone();
    let brokers = world.core.image().brokers.clone();
    let proposal = AlterPartition {
        leader: b(1),
        broker_epoch: brokers[&b(1)].epoch,
        partition: at(0),
        incarnation: incarnation(100),
        leader_epoch: known.state.leader_epoch,
        partition_epoch: known.state.partition_epoch,
        isr: [1, 3].map(|id| (b(id), brokers[&b(id)].epoch)).to_vec(),
    };
    world.step(ControllerEvent::AlterPartition { request: RequestId(1), proposal });
    world.apply_all();
    world.pass(2_000);
    let restored: Vec<String> = world
        .due()
        .iter()
        .filter(|told| names(told).contains(&"isr_restored"))
        .map(|told| told.id.clone())
        .collect();
    assert_eq!(restored, ["7-1"]);
    world.register(|brokers| {
        brokers.insert(b(2), broker(202));
    });
    world.ack(2);
    world.propose_all(0);
    world.apply_all();
    world.pass(2_000);
    let told = world.one();
    assert!(told.id == "7-2" && names(&told).contains(&"isr_restored"), "{told:?}");
}

#[test]
fn a_controller_that_was_being_emptied_has_stopped_in_order() {
    let lost = LostController {
        broker: b(3),
        stream_broke_us: Some(-9_000),
        suspected_us: None,
        gone_us: Some(-5_000),
        draining: true,
    };
    let mut brokers = three();
    brokers.remove(&b(3));
    let mut world = World::with(Some(lost), brokers, &[&[1, 2]]);
    world.ack_all(&[1, 2]);
    let told = world.one();
    assert_eq!((told.cause.as_str(), told.was_controller), ("drain", true));
}
