//! I12: once everything is healed, every partition has its leader and full ISR, equal logs and high watermarks, and there is one controller.

use crate::world::World;

/// What is not well yet; `None` when all is.
#[must_use]
pub fn judge(world: &World) -> Option<String> {
    let controllers: Vec<usize> =
        (0..world.processes.len()).filter(|b| world.processes[*b].acts_as_controller()).collect();
    let [controller] = controllers[..] else {
        return Some(format!("controllers: {controllers:?}"));
    };
    let term = world.processes[controller].term.as_ref().map(|t| t.session);
    if world.store.controller.map(|c| c.owner) != term {
        return Some("the acting controller does not own /controller".to_owned());
    }
    if world.store.registrations.len() != world.processes.len() {
        return Some("not every broker is registered".to_owned());
    }
    for (name, topic) in &world.store.topics {
        for (index, (assigned, state)) in &topic.partitions {
            let shown = format!("{name}-{index}");
            let Some(leader) = state.leader else {
                return Some(format!("{shown} has no leader: {state:?}"));
            };
            if assigned.moving.is_under_way() {
                return Some(format!("{shown} is being moved: {assigned:?}"));
            }
            if state.isr.len() != assigned.replicas.len() {
                return Some(format!("{shown} has ISR {:?}", state.isr));
            }
            if let Some(text) =
                replicas(world, name, *index, (leader, &assigned.replicas), &topic.incarnation)
            {
                return Some(format!("{shown}: {text}"));
            }
        }
    }
    None
}

fn replicas(
    world: &World,
    topic: &barnabas_types::TopicName,
    partition: i32,
    (leader, assigned): (barnabas_types::BrokerId, &[barnabas_types::BrokerId]),
    incarnation: &barnabas_types::Incarnation,
) -> Option<String> {
    let tp = barnabas_types::TopicPartition { topic: topic.clone(), partition };
    let ix = crate::world::ix_of(leader);
    let nothing = || Some(format!("broker {} has no replica", ix + 1));
    let Some(leading) = world.disks[ix].directories.get(&tp) else { return nothing() };
    for (b, process) in world.processes.iter().enumerate() {
        if !assigned.contains(&crate::world::id_of(b)) {
            if process.slots.contains_key(&tp) || world.disks[b].directories.contains_key(&tp) {
                return Some(format!("broker {} still has a replica", b + 1));
            }
            continue;
        }
        let Some(slot) = process.slots.get(&tp).filter(|s| s.incarnation == *incarnation) else {
            return Some(format!("broker {} has no replica", b + 1));
        };
        let leads = matches!(slot.replica.role(), barnabas_replica::Role::Leader { .. });
        if leads != (b == ix) {
            return Some(format!("broker {} has the role {:?}", b + 1, slot.replica.role()));
        }
        let directory = world.disks[b].directories.get(&tp);
        let Some(directory) = directory else { return nothing() };
        let (own, leaders) = (&directory.records, &leading.records);
        // Below its log start it has deleted what the leader, after an unclean election, may have.
        let kept = usize::try_from(directory.log_start.0).unwrap_or(0);
        let same = own.len() == leaders.len()
            && own.iter().zip(leaders).skip(kept).all(|(a, b)| a.agrees(b));
        if !same {
            return Some(format!("the log of broker {} differs from the leader's", b + 1));
        }
        if directory.durable_start() < leading.durable_start() {
            return Some(format!("broker {} has not deleted what the leader has", b + 1));
        }
        let (hw, end) = (slot.replica.high_watermark(), slot.replica.log_end());
        if hw != end {
            return Some(format!("broker {} has HW {hw}, LEO {end}", b + 1));
        }
    }
    None
}
