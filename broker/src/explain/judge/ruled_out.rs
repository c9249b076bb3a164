//! What was looked for and is not there, so that nobody looks for it again. Only what the brokers that answered can tell is ruled out.

use barnabas_types::BrokerId;

use crate::explain::cause::{Cause, Kind, named};
use crate::explain::facts::{Facts, Listener, State};

/// What was asked about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// One partition.
    Partition,
    /// One broker and its partitions.
    Broker,
    /// Everything.
    Cluster,
    /// A consumer group.
    Group,
}

/// Each kind that is not among `causes`, in words.
#[must_use]
pub fn ruled_out(facts: &Facts, subject: Subject, causes: &[Cause]) -> Vec<(Kind, String)> {
    let answered: Vec<BrokerId> =
        facts.brokers.keys().copied().filter(|id| facts.health(*id).is_some()).collect();
    let all = answered.len() == facts.brokers.len();
    let who = named(&answered);
    let found = |kind: &Kind| causes.iter().any(|cause| cause.kind == *kind);
    let told = |kind: Kind| {
        Some(match kind {
            Kind::ZooKeeperUnreachable => format!("connected to ZooKeeper: {who}"),
            Kind::NoController => {
                let (id, epoch) = facts.image.controller?;
                format!("broker {id} is the controller, in epoch {epoch}, and answers")
            }
            Kind::DirectoryFailed => format!("no log directory and no log has failed on {who}"),
            Kind::Recovering => format!("no logs are being read again on {who}"),
            Kind::DiskFull => format!("the log directories have room on {who}"),
            Kind::DiskStalled => "no write to a leader's log is stuck".to_owned(),
            Kind::BrokerDown | Kind::BrokerFenced | Kind::BrokerSuspected | Kind::BrokerSilent => {
                // Of one that does not answer something is told; whether something else holds is not known.
                if !all {
                    return None;
                }
                match kind {
                    Kind::BrokerDown => format!("running: {who}"),
                    Kind::BrokerFenced => format!("registered: {who}"),
                    Kind::BrokerSuspected => format!("taking connections: {who}"),
                    _ => format!("answering: {who}"),
                }
            }
            Kind::ListenerUnreachable => {
                let reached = facts.brokers.iter().filter(|(_, b)| b.listener == Listener::Answers);
                let reached: Vec<BrokerId> = reached.map(|(id, _)| *id).collect();
                format!("the advertised listener answers of {}", named(&reached))
            }
            Kind::LinkCut => format!("connected to the leaders that they follow: {who}"),
            Kind::Draining => {
                let up = |id: &&BrokerId| matches!(facts.state(**id), State::Up(_));
                let up: Vec<BrokerId> = answered.iter().filter(up).copied().collect();
                format!("not being emptied: {}", named(&up))
            }
            Kind::BelowMinIsr => {
                "as many replicas are in the ISR as min.insync.replicas asks for".to_owned()
            }
            Kind::SlowFollower => "no follower that lives is behind".to_owned(),
            Kind::ReassignmentWaiting => "no replicas are being moved".to_owned(),
            Kind::GroupRebalancing if subject == Subject::Group => {
                "the group is not between two generations".to_owned()
            }
            Kind::OffsetOutOfRange if subject == Subject::Group => {
                "what the group has committed is in the logs, where they could be looked at"
                    .to_owned()
            }
            Kind::CoordinatorUnavailable if subject == Subject::Group => {
                "the group has a coordinator, which answers".to_owned()
            }
            Kind::NoMembers if subject == Subject::Group => "the group has members".to_owned(),
            Kind::RecordsLost if subject == Subject::Cluster => {
                "nothing that was acknowledged was dropped within the last 24 h".to_owned()
            }
            Kind::DeletionWaiting if subject == Subject::Cluster => {
                "no files of a deleted topic wait, as far as this broker has seen".to_owned()
            }
            // They are told of what stands still; who has a leader has none of them.
            Kind::AllReplicasDead
            | Kind::OnlyOutOfSyncAlive
            | Kind::TailLost
            | Kind::Electing
            | Kind::DeletionWaiting
            | Kind::CoordinatorUnavailable
            | Kind::GroupRebalancing
            | Kind::OffsetOutOfRange
            | Kind::NoMembers
            | Kind::RecordsLost => return None,
        })
    };
    if answered.is_empty() {
        return Vec::new();
    }
    let kinds = Kind::ALL.iter().filter(|kind| !found(kind));
    kinds.filter_map(|kind| Some((*kind, told(*kind)?))).collect()
}
