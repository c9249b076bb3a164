//! Session, registration and race: the candidate's effects as requests, the replies as its events.

use barnabas_controller_core::{
    CandidateEffect, CandidateEvent, ControllerNode, RegistrationNode, SessionId,
};
use barnabas_proto::znode::{self, BrokerNode, paths};
use barnabas_types::{BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId};

use super::{Answer, epoch_check};
use crate::zookeeper::{CreateMode, Error, Node, Op, OpReply, Reply, Request};

/// One effect of the candidate that asks ZooKeeper something, in one session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CandidateCall {
    effect: CandidateEffect,
    session: SessionId,
    me: BrokerId,
}

impl CandidateCall {
    /// The call and its requests, to be submitted one after the other; `None` if the effect asks nothing.
    ///
    /// `registration` is written by `CreateRegistration`, `timestamp_ms` (since 1970) into `/controller`.
    #[must_use]
    pub fn new(
        effect: &CandidateEffect,
        session: SessionId,
        me: BrokerId,
        registration: &BrokerNode,
        timestamp_ms: u64,
    ) -> Option<(Self, Vec<Request>)> {
        let get = |path: &str, watch: bool| Request::Get { path: path.into(), watch };
        let own = paths::broker(me);
        let requests = match effect {
            CandidateEffect::CreateRegistration => vec![Request::Create {
                path: own,
                data: BrokerNode { timestamp_ms, ..registration.clone() }.write(),
                mode: CreateMode::Ephemeral,
            }],
            CandidateEffect::ReadRegistration => vec![Request::Sync, get(&own, false)],
            CandidateEffect::DeleteRegistration { version } => {
                vec![Request::Delete { path: own, version: Some(*version) }]
            }
            CandidateEffect::AwaitRegistrationGone => {
                vec![Request::Exists { path: own, watch: true }]
            }
            CandidateEffect::ReadEpoch => vec![Request::Sync, get(paths::CONTROLLER_EPOCH, false)],
            CandidateEffect::ReadController => vec![
                Request::Sync,
                get(paths::CONTROLLER, true),
                get(paths::CONTROLLER_EPOCH, false),
            ],
            CandidateEffect::DeleteController { version } => {
                vec![Request::Multi(delete_controller_ops(*version))]
            }
            CandidateEffect::Race { epoch, version } => {
                vec![Request::Multi(race_ops(me, *epoch, *version, timestamp_ms))]
            }
            _ => return None,
        };
        Some((Self { effect: effect.clone(), session, me }, requests))
    }

    /// The event that the replies make; `None` for `AwaitRegistrationGone` while the node is there (the watch will tell).
    #[must_use]
    pub fn event(&self, answers: &[Answer]) -> Option<CandidateEvent> {
        let session = self.session;
        if answers.iter().any(|answer| answer == &Err(Error::SessionExpired)) {
            return Some(CandidateEvent::Expired { session });
        }
        let unknown = Some(CandidateEvent::OutcomeUnknown { session });
        match (&self.effect, answers) {
            (CandidateEffect::CreateRegistration, [Ok(Reply::Created(stat))]) => {
                Some(CandidateEvent::RegistrationCreated {
                    session,
                    epoch: BrokerEpoch(stat.czxid),
                })
            }
            (CandidateEffect::CreateRegistration, [Err(Error::NodeExists)]) => {
                Some(CandidateEvent::RegistrationExists { session })
            }
            (CandidateEffect::ReadRegistration, [Ok(_), Ok(Reply::Node(node))]) => {
                let node = node.as_ref().map(|node| registration_of(self.me, node));
                Some(CandidateEvent::RegistrationRead { session, node })
            }
            (CandidateEffect::DeleteRegistration { .. }, [answer])
                if !matches!(answer, Err(Error::OutcomeUnknown(_))) =>
            {
                Some(CandidateEvent::RegistrationDeleteTried { session })
            }
            (CandidateEffect::AwaitRegistrationGone, [Ok(Reply::Stat(stat))]) => {
                stat.is_none().then_some(CandidateEvent::RegistrationGone { session })
            }
            (CandidateEffect::ReadEpoch, [Ok(_), Ok(Reply::Node(epoch))]) => {
                match epoch_of(epoch.as_ref()) {
                    Some((epoch, version)) => {
                        Some(CandidateEvent::EpochRead { session, epoch, version })
                    }
                    None => unknown,
                }
            }
            (
                CandidateEffect::ReadController,
                [Ok(_), Ok(Reply::Node(node)), Ok(Reply::Node(epoch))],
            ) => {
                let mzxid = epoch.as_ref().map_or(0, |node| node.stat.mzxid);
                let Some((epoch, version)) = epoch_of(epoch.as_ref()) else { return unknown };
                let node = node.as_ref().map(controller_of);
                Some(CandidateEvent::ControllerRead { session, node, epoch, version, mzxid })
            }
            (CandidateEffect::DeleteController { .. }, [answer])
                if !matches!(answer, Err(Error::OutcomeUnknown(_))) =>
            {
                Some(CandidateEvent::ControllerDeleteTried { session })
            }
            (CandidateEffect::Race { epoch, version }, [answer]) => {
                Some(race_event(session, *epoch, *version, answer))
            }
            _ => unknown,
        }
    }
}

/// The one multi of an election: nobody else was elected since `version` was read, and nobody holds `/controller`.
#[must_use]
pub fn race_ops(me: BrokerId, epoch: ControllerEpoch, version: i32, timestamp_ms: u64) -> Vec<Op> {
    vec![
        epoch_check(version),
        Op::Create {
            path: paths::CONTROLLER.into(),
            data: znode::ControllerNode { broker: me, timestamp_ms }.write(),
            mode: CreateMode::Ephemeral,
        },
        Op::Set {
            path: paths::CONTROLLER_EPOCH.into(),
            data: znode::write_controller_epoch(epoch),
            version: Some(version),
        },
    ]
}

/// Removes the `/controller` of the election that set `/controller_epoch` to `version`, and no other.
#[must_use]
pub fn delete_controller_ops(version: i32) -> Vec<Op> {
    vec![epoch_check(version), Op::Delete { path: paths::CONTROLLER.into(), version: None }]
}

fn race_event(
    session: SessionId,
    epoch: ControllerEpoch,
    version: i32,
    answer: &Answer,
) -> CandidateEvent {
    match answer {
        Ok(Reply::Multi(replies)) => {
            let written = match replies.last() {
                Some(OpReply::Set { version }) => *version,
                _ => version + 1,
            };
            CandidateEvent::RaceWon { session, epoch, version: written }
        }
        Err(Error::Multi { error, .. })
            if matches!(**error, Error::NodeExists | Error::BadVersion) =>
        {
            CandidateEvent::RaceLost { session }
        }
        _ => CandidateEvent::OutcomeUnknown { session },
    }
}

/// What a registration node means to the candidate. One that cannot be read is a stranger's: its directory id is the
/// all-zero one, which no directory has.
#[must_use]
pub fn registration_of(me: BrokerId, node: &Node) -> RegistrationNode {
    let directory =
        BrokerNode::parse(me, &node.data).map_or(DirectoryId([0; 16]), |read| read.directory_id);
    RegistrationNode {
        owner: node.stat.owner.unwrap_or(SessionId(0)),
        epoch: BrokerEpoch(node.stat.czxid),
        version: node.stat.version,
        directory,
    }
}

fn controller_of(node: &Node) -> ControllerNode {
    let broker = znode::ControllerNode::parse(&node.data).map_or(BrokerId(-1), |read| read.broker);
    ControllerNode {
        owner: node.stat.owner.unwrap_or(SessionId(0)),
        broker,
        czxid: node.stat.czxid,
    }
}

/// Value and version of `/controller_epoch`; `None` if it is missing or unreadable.
fn epoch_of(node: Option<&Node>) -> Option<(ControllerEpoch, i32)> {
    let node = node?;
    let epoch = znode::parse_controller_epoch(&node.data).ok()?;
    Some((epoch, node.stat.version))
}

/// Requests that create the tree on which everything stands: parents first, each may exist already.
#[must_use]
pub fn base_tree_requests() -> Vec<Request> {
    let create = |path: &str, data: Vec<u8>| Request::Create {
        path: path.into(),
        data,
        mode: CreateMode::Persistent,
    };
    let mut requests: Vec<Request> =
        paths::BASE_TREE.iter().map(|path| create(path, Vec::new())).collect();
    requests
        .push(create(paths::CONTROLLER_EPOCH, znode::write_controller_epoch(ControllerEpoch(0))));
    requests
}
