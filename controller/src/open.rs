//! The first session of a process: connect, check that it is the right cluster, make the base tree.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use barnabas_proto::znode::{self, paths};
use barnabas_types::{BrokerId, ClusterId, ControllerEpoch};
use tokio::sync::mpsc;

use crate::drive::Backoff;
use crate::error::Error;
use crate::translate::base_tree_requests;
use crate::zookeeper::{
    Connect, ConnectError, CreateMode, Error as ZkError, Op, Reply, Request, SessionEvent,
    ZooKeeper,
};

/// A session and what it tells.
pub(crate) type Live<Z> = (Z, mpsc::Receiver<SessionEvent>);

/// Connects for the first time; gives up when `patience` has passed since `begun`.
pub(crate) async fn connect_first<C: Connect>(
    connect: &C,
    address: &str,
    begun: Instant,
    patience: Duration,
) -> Result<Live<C::Client>, Error> {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    let unreachable = |reason: String| Error::Unreachable {
        connect: address.to_owned(),
        waited_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
        reason,
    };
    let mut last = "no answer".to_owned();
    loop {
        let left = patience.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(unreachable(last));
        }
        match tokio::time::timeout(left, connect.connect()).await {
            Err(_) => return Err(unreachable(last)),
            Ok(Ok(live)) => return Ok(live),
            Ok(Err(ConnectError::Unreachable(reason))) => last = reason,
            Ok(Err(ConnectError::BadAddress(reason))) => {
                return Err(Error::BadAddress { connect: address.to_owned(), reason });
            }
            Ok(Err(ConnectError::CredentialsRefused)) => {
                return Err(Error::CredentialsRefused { connect: address.to_owned() });
            }
            Ok(Err(ConnectError::ChrootMissing(chroot))) => {
                let servers = address.strip_suffix(&chroot).unwrap_or(address).to_owned();
                return Err(Error::ChrootMissing { connect: address.to_owned(), servers, chroot });
            }
        }
        tokio::time::sleep(backoff.wait().min(left)).await;
    }
}

/// What to say when the ensemble grants another session timeout than the one that was asked for: it does so without a word.
pub(crate) fn other_session(asked_ms: u64, granted: Duration) -> Option<String> {
    let granted_ms = u64::try_from(granted.as_millis()).unwrap_or(u64::MAX);
    let (word, bound) = match granted_ms.cmp(&asked_ms) {
        Ordering::Equal => return None,
        Ordering::Greater => ("at least", "minSessionTimeout (by default two tickTime)"),
        Ordering::Less => ("at most", "maxSessionTimeout (by default twenty tickTime)"),
    };
    Some(format!(
        "ZooKeeper grants sessions of {word} {granted_ms} ms, and zookeeper.session.timeout.ms asks for {asked_ms}: a dead host is \
         noticed after {granted_ms} ms; set it to that, or change the ensemble's {bound}"
    ))
}

/// Whether the session is over: what failed in it may be tried in another.
pub(crate) async fn has_expired<Z: ZooKeeper>(client: &Z) -> bool {
    matches!(client.submit(Request::Sync).await, Err(ZkError::SessionExpired))
}

/// Submits until the outcome is known.
pub(crate) async fn ask<Z: ZooKeeper>(client: &Z, request: &Request) -> Result<Reply, ZkError> {
    let mut backoff = Backoff::zookeeper();
    loop {
        match client.submit(request.clone()).await {
            Err(ZkError::OutcomeUnknown(_)) => tokio::time::sleep(backoff.wait()).await,
            answer => return answer,
        }
    }
}

/// Creates the nodes on which everything stands, where they are missing.
pub(crate) async fn ensure_tree<Z: ZooKeeper>(client: &Z) -> Result<(), ZkError> {
    // The last one made: if it is there, all are.
    let last = Request::Exists { path: paths::CONTROLLER_EPOCH.into(), watch: false };
    if let Reply::Stat(Some(_)) = ask(client, &last).await? {
        return Ok(());
    }
    for request in base_tree_requests() {
        match ask(client, &request).await {
            Ok(_) | Err(ZkError::NodeExists) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What `/cluster/id` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    /// The cluster's id.
    pub(crate) id: ClusterId,
    /// The last restoration of what ZooKeeper holds, if there was one.
    pub(crate) restored: Option<String>,
}

/// The id of the cluster in ZooKeeper; made if there is none and the data directory is new as well.
///
/// # Errors
/// [`Error::WrongCluster`] and [`Error::NoCluster`], both before anything is changed.
pub(crate) async fn cluster_id<Z: ZooKeeper>(
    client: &Z,
    address: &str,
    expected: Option<&ClusterId>,
) -> Result<Identity, Error> {
    let failed = |reason: String| Error::ZooKeeper { connect: address.to_owned(), reason };
    let found = read_cluster_id(client).await.map_err(failed)?;
    match (expected, found) {
        (Some(expected), Some(found)) if *expected != found.id => {
            let (connect, expected) = (address.to_owned(), expected.clone());
            return Err(Error::WrongCluster { connect, expected, found: found.id });
        }
        (Some(expected), None) => {
            return Err(Error::NoCluster {
                connect: address.to_owned(),
                expected: expected.clone(),
            });
        }
        (_, Some(found)) => {
            ensure_tree(client).await.map_err(|error| failed(error.to_string()))?;
            return Ok(found);
        }
        (None, None) => {}
    }
    ensure_tree(client).await.map_err(|error| failed(error.to_string()))?;
    let id = ClusterId::from_bytes(random_id().map_err(failed)?);
    let create = Request::Create {
        path: paths::CLUSTER_ID.into(),
        data: znode::write_cluster_id(&id),
        mode: CreateMode::Persistent,
    };
    match ask(client, &create).await {
        // Whoever came first has chosen.
        Ok(_) | Err(ZkError::NodeExists) => {}
        Err(error) => return Err(failed(error.to_string())),
    }
    let found = read_cluster_id(client).await.map_err(failed)?;
    found.ok_or_else(|| failed(format!("{} vanished", paths::CLUSTER_ID)))
}

/// Makes and removes a node in one step, which nobody sees: whoever may not do that could neither register nor be controller, and
/// would try for ever. (What only some nodes refuse is found when they are written.)
///
/// # Errors
/// [`Error::ZooKeeper`].
pub(crate) async fn may_write<Z: ZooKeeper>(
    client: &Z,
    address: &str,
    me: BrokerId,
) -> Result<(), Error> {
    let path = format!("{}/access-of-{me}", paths::BROKERS);
    let mode = CreateMode::Ephemeral;
    let create = Op::Create { path: path.clone(), data: Vec::new(), mode };
    let both = Request::Multi(vec![create, Op::Delete { path, version: None }]);
    let failed = |reason: String| Err(Error::ZooKeeper { connect: address.to_owned(), reason });
    match ask(client, &both).await {
        Ok(_) => Ok(()),
        Err(ZkError::Multi { error, .. }) => failed(error.to_string()),
        Err(error) => failed(error.to_string()),
    }
}

/// Whether any topic exists; if so, a broker without data may be one that has lost it (R6).
///
/// # Errors
/// [`Error::ZooKeeper`].
pub(crate) async fn has_topics<Z: ZooKeeper>(client: &Z, address: &str) -> Result<bool, Error> {
    let list = Request::Children { path: paths::TOPICS.into(), watch: false };
    match ask(client, &list).await {
        Ok(Reply::Children(topics)) => Ok(!topics.is_empty()),
        Ok(_) => Ok(false),
        Err(error) => {
            Err(Error::ZooKeeper { connect: address.to_owned(), reason: error.to_string() })
        }
    }
}

/// Whether a later session is one with the same cluster in the same state of its history: an ensemble that lost its data, or was taken
/// back to an earlier time, would have this broker elected over topics that it does not know, and their replicas would go.
/// `known` is the newest controller epoch that this broker has heard of.
///
/// # Errors
/// A sentence that says what to do.
pub(crate) async fn same_cluster<Z: ZooKeeper>(
    client: &Z,
    expected: &Identity,
    known: ControllerEpoch,
) -> Result<(), String> {
    const NEXT: &str = "this broker does not register there, and goes on serving what it leads; stop all brokers and restore ZooKeeper's \
                        data (a snapshot of its own, or 'barnabas zookeeper restore')";
    let Some(found) = read_cluster_id(client).await? else {
        return Err(format!(
            "ZooKeeper holds no cluster any more (/cluster/id is missing): {NEXT}"
        ));
    };
    if found.id != expected.id {
        return Err(format!(
            "ZooKeeper is that of cluster {} now, not of {}: {NEXT}",
            found.id, expected.id
        ));
    }
    if found.restored != expected.restored {
        return Err("ZooKeeper's data were restored: restart this broker, which must not go on with what it knew".to_owned());
    }
    let get = Request::Get { path: paths::CONTROLLER_EPOCH.into(), watch: false };
    let epoch = match ask(client, &get).await {
        Ok(Reply::Node(Some(node))) => {
            znode::parse_controller_epoch(&node.data).map_err(|e| e.to_string())?
        }
        Ok(_) => ControllerEpoch(0),
        Err(error) => return Err(error.to_string()),
    };
    if epoch < known {
        return Err(format!(
            "ZooKeeper's data were taken back to an earlier time: its last controller has epoch {epoch}, and this broker knows {known}: {NEXT}"
        ));
    }
    Ok(())
}

async fn read_cluster_id<Z: ZooKeeper>(client: &Z) -> Result<Option<Identity>, String> {
    ask(client, &Request::Sync).await.map_err(|error| error.to_string())?;
    let get = Request::Get { path: paths::CLUSTER_ID.into(), watch: false };
    match ask(client, &get).await {
        Ok(Reply::Node(Some(node))) => {
            let id = znode::parse_cluster_id(&node.data).map_err(|error| error.to_string())?;
            let restored = znode::parse_restored(&node.data).map_err(|error| error.to_string())?;
            Ok(Some(Identity { id, restored }))
        }
        Ok(_) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// 16 random bytes whose text form does not begin with `-`, which command lines would take for an option.
pub(crate) fn random_id() -> Result<[u8; 16], String> {
    const FIRST_SEXTET_OF_DASH: u8 = 62;
    let mut bytes = [0u8; 16];
    for _ in 0..16 {
        getrandom::fill(&mut bytes).map_err(|error| format!("no random bytes: {error}"))?;
        if bytes[0] >> 2 != FIRST_SEXTET_OF_DASH && bytes.iter().any(|byte| *byte > 1) {
            return Ok(bytes);
        }
    }
    Err("the random source is broken".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_another_length_is_told_with_the_bound_that_made_it() {
        let said = |asked, granted| other_session(asked, Duration::from_millis(granted));
        assert_eq!(said(6_000, 6_000), None);
        let short = said(1_000, 4_000).unwrap();
        assert!(short.contains("at least 4000 ms") && short.contains("minSession"), "{short}");
        let long = said(90_000, 40_000).unwrap();
        assert!(long.contains("at most 40000 ms") && long.contains("maxSession"), "{long}");
    }
}
