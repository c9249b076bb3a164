//! What follows from a failure when everybody knows the first of it already, and what was left without a leader in between.

use super::*;

/// Broker 2 leads one partition that others can lead, and one that nobody else can.
fn killed_with_a_partition_of_its_own() -> World {
    let mut world = World::new(None, &[&[2, 1, 3], &[2]]);
    world.suspect(2);
    assert_eq!(world.open.len(), 1, "its own stays with it");
    world.apply_all();
    world.ack_all(&[1, 3]);
    world
}

fn served(world: &mut World, partition: i32) {
    world.pass(200);
    world.serves(partition, 10, 20);
}

fn of<'a>(failover: &'a v1::Failover, name: &str) -> Vec<&'a v1::FailoverPhase> {
    failover.phases.iter().filter(|phase| phase.name == name).collect()
}

#[test]
fn the_end_of_the_session_leaves_the_figures_of_the_suspicion_as_they_are() {
    let mut world = killed_with_a_partition_of_its_own();
    let first = world.one();
    assert_eq!((first.moved, first.leaderless), (1, 1), "nobody serves its own");
    served(&mut world, 0);
    world.pass(6_000);
    world.register(|brokers| {
        brokers.remove(&b(2));
    });
    world.apply_all();
    world.ack_all(&[1, 3]);
    let told = world.one();
    assert_eq!((told.id.as_str(), told.moved, told.leaderless), ("7-1", 1, 1));
    for name in ["decided", "first_written", "written", "pushed"] {
        assert_eq!(of(&told, name), of(&first, name), "{name}");
    }
    assert!(ms(&told, "first_append") < 1_000 && ms(&told, "last_ack") < 1_000, "{told:?}");
    let late = ["session_ended", "late_written", "late_pushed"].map(|name| ms(&told, name));
    assert!(late[0] > 6_000 && late.is_sorted(), "{told:?}");
    assert_eq!(of(&told, "late_pushed").len(), 2);
    assert_eq!(of(&told, "led_again"), Vec::<&v1::FailoverPhase>::new());
}

#[test]
fn what_is_moved_late_is_acknowledged_late() {
    let mut world = killed_with_a_partition_of_its_own();
    served(&mut world, 0);
    world.pass(3_000);
    // Back before its session has ended: its own partition goes on in another life.
    world.register(|brokers| {
        brokers.insert(b(2), broker(202));
    });
    world.apply_all();
    world.ack_all(&[1, 2, 3]);
    served(&mut world, 1);
    world.pass(1_000);
    let told = world.one();
    assert_eq!((told.id.as_str(), told.moved, told.leaderless), ("7-1", 2, 1));
    assert_eq!((told.appended, told.acknowledged), (2, 2));
    assert!(ms(&told, "last_ack") < 1_000, "{told:?}");
    assert!(ms(&told, "late_ack") > 3_000 && ms(&told, "led_again") > 3_000, "{told:?}");
}

#[test]
fn a_wrong_suspicion_gives_back_what_nobody_else_could_lead() {
    let mut world = killed_with_a_partition_of_its_own();
    assert_eq!(of(&world.one(), "led_again").len(), 0);
    world.pass(2_000);
    world.ack(2);
    let told = world.one();
    assert!(told.suspicion_was_wrong, "{told:?}");
    assert_eq!((told.leaderless, ms(&told, "led_again")), (1, ms(&told, "answered")));
}

#[test]
fn what_is_deleted_needs_no_leader() {
    let mut world = killed_with_a_partition_of_its_own();
    world.due();
    world.step(ControllerEvent::DeleteTopic { request: RequestId(2), topic: at(0).topic });
    world.pass(1_000);
    let told = world.one();
    assert_eq!((told.leaderless, of(&told, "led_again").len()), (1, 1));
    assert_eq!(of(&told, "isr_restored").len(), 1);
}
