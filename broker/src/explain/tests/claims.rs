//! What people act upon: prices of unclean elections, what may be stopped, what heals by itself, what is still there.

use std::sync::Arc;

use barnabas_controller::Explains as _;
use barnabas_proto::v1;
use barnabas_types::{ClusterDelta, Now};

use super::super::Explainer;
use super::super::cause::{Cause, Kind, Severity, in_order};
use super::super::facts::{Listener, Reached};
use super::super::judge;
use super::{World, Wrong, at, id};
use crate::health::Health;
use crate::testing::{Disk, ME, node};

/// Broker, from where and until where records may be lost, for each candidate.
fn prices(cause: &Cause) -> Vec<(i32, i64, i64)> {
    cause.candidates.iter().map(|c| (c.broker.0, c.lost_from, c.lost_until)).collect()
}

#[test]
fn r39_an_unclean_election_names_its_price_for_each_candidate() {
    let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
    world.dead(1).leaderless(&[1]);
    world.replica(2).log_end = 90;
    (world.replica(3).log_end, world.replica(3).last_epoch) = (70, 2);
    world.replica(3).high_watermark = 60;
    world.replica(2).high_watermark = 80;
    let cause = world.causes().into_iter().find(|c| c.kind == Kind::OnlyOutOfSyncAlive).unwrap();
    assert_eq!(prices(&cause), [(2, 90, 90), (3, 60, 90)], "the longest first");
    let commands: Vec<&str> = cause.next.iter().map(|step| step.command.as_str()).collect();
    assert_eq!(
        commands,
        [
            "barnabas broker --config /etc/b1.yaml",
            "barnabas leader elect --unclean t:0 --to 2",
            "barnabas leader elect --unclean t:0 --to 3",
        ]
    );
    assert!(
        cause.next[1].cost.contains("loses what was acknowledged from offset 90 on: 0 records")
    );
    assert!(cause.next[1].cost.contains("what broker 1 had from offset 90 on"));
    // The last leader led in epoch 3, this one's last record is of epoch 2: what follows its high watermark may be another tail.
    assert!(
        cause.next[2].cost.contains("may lose what was acknowledged from offset 60 on"),
        "{:?}",
        cause.next
    );
    assert!(cause.next[2].cost.contains("up to 30 records that other live replicas have"));
    assert!(cause.next[2].cost.contains("all that broker 1 had from there on"));
    assert!(!cause.heals_by_itself && cause.evidence[0].contains("34 s"), "{cause:?}");
    // Only the first of them loses nothing for certain.
    let loses: Vec<Option<i64>> = cause.next.iter().map(|step| step.loses).collect();
    assert_eq!(loses, [Some(0), None, None]);
    assert_eq!(cause.next[0].place, "the host of broker 1 (127.0.0.1)");
}

/// A former leader has appended at acks=1 to 31 in epoch 2, of which 10 were committed; broker 1 then led in epoch 3 and committed
/// others in their place.
#[test]
fn r39_the_end_of_a_diverged_log_is_no_price() {
    let diverged = |wrong: Wrong| {
        let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
        world.dead(1).leaderless(&[1]);
        let own = world.replica(2);
        (own.log_end, own.flushed, own.last_epoch, own.high_watermark) = (31, 31, 2, 10);
        wrong(&mut world);
        world.causes().into_iter().find(|c| c.kind == Kind::OnlyOutOfSyncAlive).unwrap()
    };
    let alone = diverged(|w| w.replica(3).hosted = false);
    assert_eq!(prices(&alone), [(2, 10, 10)]);
    let cost = &alone.next[1].cost;
    assert!(cost.contains("from offset 10 on, though its log ends at 31"), "{cost}");
    assert!(cost.contains("all that broker 1 had from there on"), "{cost}");
    let facts = alone.evidence.join("; ");
    assert!(facts.contains("the last leader's epoch was 3"), "{facts}");
    // Another replica followed the last leader: it has 18 of its records, is elected first, and its log is shorter.
    let other = |w: &mut World| {
        let follower = w.replica(3);
        (follower.log_end, follower.flushed, follower.high_watermark) = (18, 18, 15);
    };
    assert_eq!(prices(&diverged(other)), [(3, 18, 18), (2, 10, 18)]);
    // Of two such logs each may lack what the other one has.
    let both = |w: &mut World| {
        let follower = w.replica(3);
        (follower.log_end, follower.last_epoch, follower.high_watermark) = (20, 2, 12);
    };
    assert_eq!(prices(&diverged(both)), [(2, 10, 20), (3, 12, 31)]);
    // One that is drained is not elected, but its records are known.
    let drained = |w: &mut World| {
        let follower = w.replica(3);
        (follower.log_end, follower.high_watermark) = (18, 15);
        w.image.brokers.get_mut(&id(3)).unwrap().draining = true;
    };
    assert_eq!(prices(&diverged(drained)), [(2, 10, 18)]);
}

#[test]
fn r26_a_broker_that_is_being_emptied_may_be_stopped_only_when_it_is_empty() {
    let told = |isr: &[i32]| {
        let mut world = World::new(&[1, 2], isr);
        world.min_insync(2).image.brokers.get_mut(&id(2)).unwrap().draining = true;
        let mut causes = judge::broker(&world.facts(), id(2), Severity::Degraded);
        assert_eq!(causes.len(), 1, "{causes:?}");
        causes.remove(0)
    };
    let (waits, empty) = (told(&[2, 1]), told(&[1]));
    assert!(
        waits.summary.contains("still leads 1 partitions and is in the ISR of 1: do not stop it"),
        "{waits:?}"
    );
    assert!(waits.evidence[1].contains("t:0: ISR 2 and 1 of replicas 1 and 2"), "{waits:?}");
    assert!(empty.summary.contains("leads nothing and is in no ISR"), "{empty:?}");
    for cause in [waits, empty] {
        assert_eq!(cause.next[0].command, "barnabas broker can-stop 2");
    }
}

#[test]
fn r17_others_lead_instead_of_a_suspect_only_where_there_are_others() {
    let suspected = |isr: &[i32]| {
        let mut world = World::new(&[2, 3], isr);
        let found = world.found(2);
        (found.reached, found.listener) = (Reached::Refused, Listener::Refused);
        let mut all = judge::broker(&world.facts(), id(2), Severity::Degraded);
        assert!(!all[0].heals_by_itself, "its process does not come back by itself");
        let of = judge::partition(&world.facts(), &at());
        all.extend(of.iter().cloned());
        // As a cluster tells it: of the broker, and of its partition.
        let is = |cause: &Cause| cause.kind == Kind::BrokerSuspected;
        let of_both = in_order(all).into_iter().find(is).unwrap();
        (of.into_iter().find(is).unwrap(), of_both)
    };
    let (partition, both) = suspected(&[2, 3]);
    assert!(partition.heals_by_itself && partition.healing.contains("other ISR members lead"));
    assert!(!both.heals_by_itself, "{both:?}");
    let (alone, _) = suspected(&[2]);
    assert!(!alone.heals_by_itself, "{alone:?}");
    assert!(alone.healing.contains("no other ISR member of t:0 can lead"), "{alone:?}");
}

#[test]
fn nobody_is_waited_for_where_nobody_is_missing() {
    let lost = |wrong: Wrong| {
        let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
        world.image.brokers.get_mut(&id(1)).unwrap().tail_lost = true;
        world.leaderless(&[1]);
        wrong(&mut world);
        world.causes().into_iter().find(|cause| cause.kind == Kind::TailLost).unwrap()
    };
    let all = lost(|_| {});
    assert!(all.healing.starts_with("the controller"), "{all:?}");
    // It answers, but what it tells does not count before it is registered (R8). Its process need not be started.
    let fenced = lost(|w| {
        w.image.brokers.remove(&id(2));
        w.health(2).zookeeper_connected = false;
    });
    assert!(fenced.healing.starts_with("the return of broker 2;"), "{fenced:?}");
    assert_eq!(fenced.next[0].command, "nc -vz -w 3 zk1 2181", "{fenced:?}");
}

#[test]
fn r29_files_of_a_deleted_topic_are_there_for_certain_only_if_their_broker_left_before() {
    let told = |left_first: bool| {
        let mut world = World::new(&[1, 2, 3], &[1, 2, 3]);
        let delete = |w: &mut World| {
            let before = w.image.clone();
            w.image.topics.clear();
            let at_ms = if left_first { 2_000 } else { 500 };
            w.ages.note(Now(at_ms), &before, &w.image, (&ClusterDelta::default(), &[at().topic]));
            for broker in w.brokers.values_mut() {
                if let Reached::Answered(health) = &mut broker.reached {
                    health.replicas[0].hosted = false;
                }
            }
        };
        // It dies at 1 s.
        if left_first {
            world.dead(2);
            delete(&mut world);
        } else {
            delete(&mut world);
            world.dead(2);
        }
        let causes = world.causes();
        assert_eq!(causes.len(), 1, "{causes:?}");
        causes[0].summary.clone()
    };
    assert_eq!(told(true), "topic t is deleted, but its files on broker 2 are still there");
    assert!(told(false).contains("broker 2, which does not answer, may still be there"));
}

#[tokio::test]
async fn a_broker_with_too_many_questions_says_that_the_same_one_may_be_asked_again() {
    let (node, disk) = (node(), Disk::new());
    let explainer = Explainer::new(node, disk.storage.clone(), Health::new(ME, 7));
    let asking = Arc::clone(&explainer);
    let ask = || async {
        asking.explain(v1::ExplainRequest { subject: None }).await.map_err(|status| status.code())
    };
    let all = explainer.places.acquire_many(super::super::QUESTIONS_MAX as u32).await.unwrap();
    assert_eq!(ask().await.unwrap_err(), tonic::Code::ResourceExhausted);
    drop(all);
    assert_eq!(ask().await.unwrap().failure.unwrap().name, "INVALID_REQUEST");
}
