//! What a long search once found, played step by step.

use barnabas_model::action::Action;
use barnabas_model::world::World;
use barnabas_model::{Protocol, Row};

fn after(protocol: &Protocol, world: &World, action: Action) -> World {
    protocol.next(world, action).unwrap_or_else(|| panic!("{action:?} changes nothing: {world}"))
}

/// The newest push to a broker arrives.
fn pushed(protocol: &Protocol, world: &World, to: u8) -> World {
    let push = world.pushes.iter().rfind(|push| push.to == to).expect("a push to that broker");
    after(protocol, world, Action::Push(*push))
}

/// A broker that learnt the mode as a follower leads now, but does not know it yet: it still follows the deposed leader, which
/// knows nothing of the mode, and commits records that nobody has flushed.
#[test]
fn r37_the_change_to_sync_is_promised_when_the_new_leader_has_confirmed_its_leadership() {
    let row = Row::read("rec=1 set=1 su=1 hc=2 ar=3 isr=3").expect("a sound row");
    let protocol = Protocol::new(row);
    let mut world = after(&protocol, &protocol.first(), Action::SwitchToSync);
    world = pushed(&protocol, &world, 1);
    world = after(&protocol, &world, Action::Acknowledge { term: 0, broker: 1 });
    world = after(&protocol, &world, Action::Suspect(0));
    assert_eq!(world.node.leader, Some(1));
    assert!(!world.history.sync_promised, "the first leader may still commit: {world}");
    world = after(&protocol, &world, Action::Produce(0));
    world = after(&protocol, &world, Action::Fetch { follower: 1, lost: false });
    world = after(&protocol, &world, Action::Fetch { follower: 1, lost: false });
    assert_eq!(world.history.acked, 1, "under the old mode, before any promise: {world}");
    world = pushed(&protocol, &world, 1);
    world = after(&protocol, &world, Action::Acknowledge { term: 0, broker: 1 });
    assert!(world.history.sync_promised);
}
