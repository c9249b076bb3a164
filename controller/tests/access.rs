//! Credentials and ACLs against real ZooKeeper: who may change what, before and after a walk, and while passwords change.

use std::time::Duration;

use barnabas_controller::zookeeper::{
    Access, Connect, ConnectError, CreateMode, Credentials, Error as ZkError, Held, Op, Reply,
    Request, Scheme, Servers, Session, Walked, Wish, ZooKeeper,
};
use barnabas_controller::{Error, open_with};
use barnabas_proto::znode::paths;

mod support;
use support::{PATIENCE, config, listen, registration, server};

const SESSION: Duration = Duration::from_secs(10);

fn access(scheme: Scheme, lines: &str) -> Access {
    Access { credentials: Some(Credentials::parse(scheme, lines).unwrap()), set_acl: true }
}

fn as_users(connect: &str, lines: &str) -> Servers {
    Servers::new(connect, SESSION).with_access(access(Scheme::Digest, lines))
}

async fn session(servers: &Servers) -> Session {
    servers.connect().await.unwrap().0
}

async fn walk(servers: &Servers, wish: Wish) -> Walked {
    servers.walk(wish, PATIENCE).await.unwrap()
}

fn set(path: &str) -> Request {
    Request::Multi(vec![Op::Set { path: path.into(), data: b"{}".to_vec(), version: None }])
}

fn is_forbidden(answer: &Result<Reply, ZkError>) -> bool {
    let text = match answer {
        Err(ZkError::Multi { error, .. }) => error.to_string(),
        Err(error) => error.to_string(),
        Ok(_) => return false,
    };
    text.contains("zookeeper.credentials.file")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_broker_with_credentials_makes_is_its_own() {
    let connect = server::chroot("access-own").await;
    let (mine, nobody) = (as_users(&connect, "broker:s3cret"), Servers::new(&connect, SESSION));
    let opened = open_with(config(1, &connect), mine.clone()).await.unwrap();
    let listener = listen().await;
    let running = opened.start(registration(1, &listener.address)).await.unwrap();
    let stranger = session(&nobody).await;
    for path in [paths::CONTROLLER_EPOCH, "/config/users"] {
        assert!(is_forbidden(&stranger.submit(set(path)).await), "{path}");
    }
    let delete = |path: &str| Request::Delete { path: path.into(), version: None };
    assert!(is_forbidden(&stranger.submit(delete("/brokers/ids/1")).await));
    let read = |path: &str| Request::Get { path: path.into(), watch: false };
    assert!(stranger.submit(read(paths::CONTROLLER_EPOCH)).await.is_ok());
    assert!(
        is_forbidden(&stranger.submit(read("/config/users")).await),
        "verifiers would lie below"
    );
    // A broker without credentials, or with others, does not start, and says why.
    for other in [nobody.clone(), as_users(&connect, "broker:wrong")] {
        let error = open_with(config(2, &connect), other).await.unwrap_err().to_string();
        assert!(
            error.contains("zookeeper.credentials.file") && !error.contains("wrong"),
            "{error}"
        );
    }
    // The chroot's own node was there before: whoever may delete below it may delete /brokers when it is empty.
    let looked = walk(&mine, Wish::Look).await;
    let found: Vec<_> =
        looked.found.iter().map(|found| (found.path.as_str(), &found.held)).collect();
    assert_eq!(found, [("/", &Held::Anybody("ALL".into()))]);
    assert!(!looked.root_left && looked.nodes > 12);
    assert_eq!(walk(&mine, Wish::Secure).await.changed, 1);
    assert_eq!(walk(&mine, Wish::Look).await.found, []);
    let create =
        Request::Create { path: "/mine".into(), data: Vec::new(), mode: CreateMode::Persistent };
    assert!(is_forbidden(&stranger.submit(create).await));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_change_in_three_walks_and_an_open_tree_is_secured_and_opened_again() {
    let connect = server::chroot("access-change").await;
    let nobody = Servers::new(&connect, SESSION);
    drop(open_with(config(1, &connect), nobody.clone()).await.unwrap());
    let (old, new) = (as_users(&connect, "broker:old"), as_users(&connect, "broker:new"));
    let both = as_users(&connect, "broker:new\nbroker:old\n");
    let (one, two) = (session(&old).await, session(&new).await);
    let epoch = || set(paths::CONTROLLER_EPOCH);
    let nodes = walk(&old, Wish::Look).await;
    assert_eq!(nodes.found.len() as u64, nodes.nodes, "all are anybody's");
    assert_eq!(walk(&old, Wish::Secure).await.changed, nodes.nodes);
    assert_eq!(walk(&old, Wish::Secure).await.changed, 0);
    assert!(one.submit(epoch()).await.is_ok());
    assert!(is_forbidden(&two.submit(epoch()).await));
    let refused = new.walk(Wish::Secure, PATIENCE).await.unwrap_err().to_string();
    assert!(refused.contains("create nothing"), "{refused}");
    assert_eq!(walk(&both, Wish::Secure).await.changed, nodes.nodes);
    assert!(one.submit(epoch()).await.is_ok() && two.submit(epoch()).await.is_ok());
    let shared = walk(&new, Wish::Look).await;
    assert!(
        matches!(&shared.found[0].held, Held::Others(acl) if acl.contains("digest:broker ALL"))
    );
    assert_eq!(walk(&new, Wish::Secure).await.changed, nodes.nodes);
    assert!(is_forbidden(&one.submit(epoch()).await) && two.submit(epoch()).await.is_ok());
    assert_eq!(walk(&new, Wish::Unsecure).await.changed, nodes.nodes);
    let stranger = session(&nobody).await;
    assert!(stranger.submit(epoch()).await.is_ok());
    assert_eq!(walk(&nobody, Wish::Unsecure).await.changed, 0);
    assert!(nobody.walk(Wish::Secure, PATIENCE).await.is_err(), "a node cannot belong to nobody");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_knows_its_users_takes_a_proven_password_and_no_other() {
    let server = server::with_sasl("broker", "s3cret");
    let connect = server.address();
    let user = |line: &str| Servers::new(&connect, SESSION).with_access(access(Scheme::Sasl, line));
    let mine = user("broker:s3cret");
    drop(open_with(config(1, &connect), mine.clone()).await.unwrap());
    let looked = walk(&mine, Wish::Look).await;
    assert_eq!((looked.found, looked.root_left), (Vec::new(), true), "as sasl:broker");
    let stranger = session(&Servers::new(&connect, SESSION)).await;
    assert!(is_forbidden(&stranger.submit(set(paths::CONTROLLER_EPOCH)).await));
    let wrong = user("broker:guessed");
    assert_eq!(wrong.connect().await.unwrap_err(), ConnectError::CredentialsRefused);
    let error = open_with(config(1, &connect), wrong).await.unwrap_err();
    assert!(matches!(error, Error::CredentialsRefused { .. }), "{error}");
    assert!(!error.to_string().contains("guessed"));
}
