//! `barnabas group describe`: state, members with their partitions, and for each partition committed, end and lag.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_wire::messages::describe_groups_response::DescribedGroup;
use serde_json::{Value, json};

use super::super::ask::printable;
use super::super::kafka::{ByPartition, Cluster, LATEST};
use super::super::table::{print_json, table};
use super::super::{Asking, CliError};
use super::calls::refusal;

pub(super) fn describe(group: &str, asking: &Asking) -> Result<(), CliError> {
    let cluster = Cluster::of(asking)?;
    let coordinator = cluster.coordinator(group)?;
    let described = cluster.describe(coordinator, group)?;
    let committed = cluster.committed(coordinator, group)?;
    if described.group_state.as_str() == "Dead" && committed.is_empty() {
        return Err(refusal(group, 69));
    }
    let assigned = assigned(&described);
    let partitions: BTreeSet<(String, i32)> =
        committed.keys().chain(assigned.keys()).cloned().collect();
    let topics: BTreeSet<String> = partitions.iter().map(|(topic, _)| topic.clone()).collect();
    let topics: Vec<String> = topics.into_iter().collect();
    // A topic may be deleted while it is looked at: then its ends are not known.
    let leaders = if topics.is_empty() {
        BTreeMap::new()
    } else {
        let mut leaders = cluster.leaders(&topics).unwrap_or_default();
        leaders.retain(|partition, _| partitions.contains(partition));
        leaders
    };
    let ends = cluster.offsets(&leaders, LATEST).unwrap_or_default();
    let offsets: Vec<Value> = partitions
        .iter()
        .map(|partition| {
            let at = committed.get(partition);
            let end = ends.get(partition).copied().flatten();
            let lag = end.zip(at).map(|(end, at)| end - at.offset);
            json!({
                "topic": partition.0, "partition": partition.1, "committed": at.map(|at| at.offset),
                "end": end, "lag": lag, "leader_epoch": at.and_then(|at| at.leader_epoch),
                "metadata": at.map(|at| at.metadata.as_str()).filter(|text| !text.is_empty()),
                "member": assigned.get(partition),
            })
        })
        .collect();
    let members = members(&described);
    if asking.json {
        print_json(&json!({
            "group": group, "state": described.group_state.as_str(), "coordinator": coordinator,
            "protocol_type": described.protocol_type.as_str(), "protocol": described.protocol_data.as_str(),
            "members": members, "offsets": offsets,
        }));
        return Ok(());
    }
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { printable(text) };
    say!(
        "group {}  state {}  coordinator {coordinator}  protocol {}",
        printable(group),
        shown(&described.group_state),
        shown(&described.protocol_data)
    );
    if !members.is_empty() {
        let columns = ["member", "instance", "client", "host", "partitions"];
        say!("\n{}", table(&columns, &members).trim_end());
    }
    if !offsets.is_empty() {
        let columns =
            ["topic", "partition", "committed", "end", "lag", "leader_epoch", "metadata", "member"];
        say!("\n{}", table(&columns, &offsets).trim_end());
    }
    Ok(())
}

fn members(group: &DescribedGroup) -> Vec<Value> {
    let member =
        |member: &barnabas_wire::messages::describe_groups_response::DescribedGroupMember| {
            let partitions = assignment(&member.member_assignment).unwrap_or_default();
            let partitions: Vec<String> =
                partitions.into_iter().map(|(topic, index)| format!("{topic}:{index}")).collect();
            json!({
                "member": member.member_id.as_str(),
                "instance": member.group_instance_id.as_ref().map(|id| id.as_str()),
                "client": member.client_id.as_str(), "host": member.client_host.as_str(),
                "partitions": partitions,
            })
        };
    group.members.iter().map(member).collect()
}

/// Which member has which partition, as far as the group's members are consumers.
fn assigned(group: &DescribedGroup) -> ByPartition<String> {
    let mut assigned = BTreeMap::new();
    for member in &group.members {
        for partition in assignment(&member.member_assignment).unwrap_or_default() {
            assigned.insert(partition, member.member_id.as_str().to_owned());
        }
    }
    assigned
}

/// The partitions of a consumer's assignment (Kafka's consumer protocol, any version); `None` if it is something else.
fn assignment(bytes: &[u8]) -> Option<Vec<(String, i32)>> {
    let mut rest = bytes;
    let mut take = |length: usize| {
        let (field, after) = rest.split_at_checked(length)?;
        rest = after;
        Some(field)
    };
    let mut partitions = Vec::new();
    take(2)?;
    let topics = i32::from_be_bytes(*take(4)?.first_chunk()?);
    for _ in 0..topics {
        let length = usize::from(u16::from_be_bytes(*take(2)?.first_chunk()?));
        let topic = String::from_utf8(take(length)?.to_vec()).ok()?;
        let count = i32::from_be_bytes(*take(4)?.first_chunk()?);
        for _ in 0..count {
            let index = i32::from_be_bytes(*take(4)?.first_chunk()?);
            partitions.push((topic.clone(), index));
        }
    }
    partitions.sort();
    Some(partitions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumers_assignment_is_read_and_anything_else_is_none() {
        let bytes = [
            &[0, 1, 0, 0, 0, 2][..],
            &[0, 1, b'b', 0, 0, 0, 1, 0, 0, 0, 7],
            &[0, 1, b'a', 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0],
            &[0xff; 4],
        ]
        .concat();
        let expected = vec![("a".to_owned(), 0), ("a".to_owned(), 1), ("b".to_owned(), 7)];
        assert_eq!(assignment(&bytes), Some(expected));
        assert_eq!(assignment(&[]), None);
        for cut in 2..bytes.len() - 4 {
            assert_eq!(assignment(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(assignment(&[0, 1, 0x7f, 0xff, 0xff, 0xff]), None, "a count without bytes");
    }
}
