//! Reading and writing the nodes themselves, in one session of its own.

use std::time::{Duration, Instant};

use barnabas_broker::config::BrokerConfig;
use barnabas_controller::zookeeper::{
    Connect as _, ConnectError, CreateMode, Error, Op, Reply, Request, Servers, ZooKeeper as _,
};
use barnabas_proto::znode::paths;

pub(super) use barnabas_controller::zookeeper::Session;

use super::super::CliError;
use super::files::Nodes;

/// Session of the command; nothing of it outlives the command.
const SESSION: Duration = Duration::from_secs(10);
/// Longest wait for the end of the session: then it expires.
const END_MAX: Duration = Duration::from_secs(2);
/// Longest wait for the sessions of brokers that are gone: three times the default of `zookeeper.session.timeout.ms`.
const SESSIONS_END_MAX: Duration = Duration::from_secs(54);
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Nodes in one multi-read.
const NODES_A_READ: usize = 100;

/// Below these everything is read, so deep: topics have partitions, and those a state.
const TREES: [(&str, usize); 5] = [
    (paths::TOPICS, 4),
    (paths::TOPIC_CONFIGS, 1),
    (paths::BROKER_CONFIGS, 1),
    ("/config/users", 1),
    ("/config/clients", 1),
];
const SINGLE: [&str; 3] = [paths::CLUSTER_ID, paths::CONTROLLER_EPOCH, paths::PRODUCER_ID_BLOCK];

pub(super) async fn connect(config: &BrokerConfig) -> Result<Session, CliError> {
    let address = config.zookeeper_connect.to_string();
    let access = config.zookeeper_access.open().map_err(CliError::Refused)?;
    match Servers::new(&address, SESSION).with_access(access).connect().await {
        Ok((session, _)) => Ok(session),
        Err(ConnectError::ChrootMissing(chroot)) => {
            let servers = address.strip_suffix(&chroot).unwrap_or(&address);
            Err(CliError::Refused(format!(
                "the chroot {chroot} does not exist in ZooKeeper at {servers}; create it first, for instance with 'zkCli.sh -server \
                 {servers} create {chroot}'"
            )))
        }
        Err(error) => {
            Err(CliError::Unreachable(format!("ZooKeeper at {address} does not answer: {error}")))
        }
    }
}

/// Ends the session; what the server does not hear expires.
pub(super) async fn end(session: &Session) {
    session.close();
    let _ = tokio::time::timeout(END_MAX, session.ended()).await;
}

/// What is asked is asked again by hand: everything that is written here may be written twice.
async fn ask(session: &Session, request: Request) -> Result<Reply, Error> {
    match session.submit(request.clone()).await {
        Err(Error::OutcomeUnknown(_)) => session.submit(request).await,
        answer => answer,
    }
}

fn failed(error: &Error) -> CliError {
    CliError::Unreachable(format!(
        "ZooKeeper did not do it ({error}); the command may be given again, it begins anew"
    ))
}

async fn children(session: &Session, path: &str) -> Result<Vec<String>, CliError> {
    match ask(session, Request::Children { path: path.to_owned(), watch: false }).await {
        Ok(Reply::Children(names)) => Ok(names),
        Ok(_) | Err(Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(failed(&error)),
    }
}

/// Refuses while anybody is registered. One that was killed, or that an old snapshot names, is registered until its session ends: that is
/// waited for.
pub(super) async fn refuse_live(session: &Session, patient: bool) -> Result<(), CliError> {
    let began = Instant::now();
    let mut told = Vec::new();
    loop {
        let brokers = children(session, paths::BROKER_IDS).await?;
        if brokers.is_empty() {
            return Ok(());
        }
        let named = brokers.join(", ");
        if !patient || began.elapsed() > SESSIONS_END_MAX {
            return Err(CliError::NotNow(format!(
                "brokers are registered: {named}; stop them all first, and give the command again"
            )));
        }
        if told != brokers {
            eprintln!(
                "barnabas: waiting for the sessions of brokers {named} to end, at most {} s",
                SESSIONS_END_MAX.as_secs()
            );
            told = brokers;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Every node that a restoration needs.
pub(super) async fn read_all(session: &Session) -> Result<Nodes, CliError> {
    ask(session, Request::Sync).await.map_err(|error| failed(&error))?;
    let mut wanted: Vec<String> = SINGLE.iter().map(|path| (*path).to_owned()).collect();
    for (root, depth) in TREES {
        let mut level = vec![root.to_owned()];
        for _ in 0..depth {
            let mut next = Vec::new();
            for path in &level {
                let names = children(session, path).await?;
                next.extend(names.into_iter().map(|name| format!("{path}/{name}")));
            }
            wanted.extend(next.iter().cloned());
            level = next;
        }
    }
    let mut nodes = Nodes::new();
    for chunk in wanted.chunks(NODES_A_READ) {
        let read = ask(session, Request::MultiRead(chunk.to_vec())).await;
        let Reply::Nodes(found) = read.map_err(|error| failed(&error))? else { continue };
        for (path, node) in chunk.iter().zip(found) {
            let Some(node) = node else { continue };
            let text = String::from_utf8(node.data).map_err(|_| {
                CliError::Refused(format!(
                    "node {path} is no text: it was damaged by hand; mend it first"
                ))
            })?;
            nodes.insert(path.clone(), text);
        }
    }
    Ok(nodes)
}

/// Writes nodes in this order, over what is there.
pub(super) async fn write_all(
    session: &Session,
    nodes: &[(String, Vec<u8>)],
) -> Result<(), CliError> {
    for (path, data) in nodes {
        let (path, data) = (path.clone(), data.clone());
        let create = Request::Create {
            path: path.clone(),
            data: data.clone(),
            mode: CreateMode::Persistent,
        };
        match ask(session, create).await {
            Ok(_) => {}
            Err(Error::NodeExists) => {
                let set = Request::Multi(vec![Op::Set { path, data, version: None }]);
                ask(session, set).await.map_err(|error| failed(&error))?;
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    Ok(())
}
