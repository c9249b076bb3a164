//! The adapter and the shell against real ZooKeeper.

use std::time::Duration;

use barnabas_controller::translate::base_tree_requests;
use barnabas_controller::zookeeper::{
    Connect, CreateMode, Error as ZkError, Op, OpReply, Reply, Request, Servers, Session,
    SessionEvent, WatchKind, Watched, ZooKeeper,
};
use barnabas_controller::{Error, NewTopic, Running, open, open_with};
use barnabas_proto::znode::paths;
use barnabas_types::{BrokerId, ControllerEpoch, TopicImage, TopicName};
use tokio::sync::mpsc;

mod support;
use support::link::Link;
use support::{PATIENCE, config, listen, registration, server, start, until};

async fn session(connect: &str, timeout_ms: u64) -> (Session, mpsc::Receiver<SessionEvent>) {
    Servers::new(connect, Duration::from_millis(timeout_ms)).connect().await.unwrap()
}

async fn get(client: &Session, path: &str) -> Option<barnabas_controller::zookeeper::Node> {
    client.submit(Request::Sync).await.unwrap();
    match client.submit(Request::Get { path: path.into(), watch: false }).await.unwrap() {
        Reply::Node(node) => node,
        other => panic!("{other:?}"),
    }
}

fn create(path: &str, mode: CreateMode) -> Request {
    Request::Create { path: path.into(), data: b"x".to_vec(), mode }
}

fn set(path: &str, data: &[u8], version: Option<i32>) -> Op {
    Op::Set { path: path.into(), data: data.to_vec(), version }
}

async fn event(events: &mut mpsc::Receiver<SessionEvent>) -> SessionEvent {
    tokio::time::timeout(PATIENCE, events.recv())
        .await
        .expect("no event in time")
        .expect("events ended")
}

async fn all_agree(brokers: &mut [Running], epoch: ControllerEpoch) -> BrokerId {
    let mut controller = None;
    for broker in brokers.iter_mut() {
        let member =
            until(&mut broker.membership, |m| m.controller.is_some_and(|(_, now)| now == epoch))
                .await;
        let (id, _) = member.controller.unwrap();
        assert!(controller.is_none_or(|known| known == id));
        controller = Some(id);
    }
    let elected = brokers.iter().filter(|broker| broker.controller.epoch() == Some(epoch)).count();
    assert_eq!(elected, 1);
    controller.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_candidates_race_and_exactly_one_wins() {
    let connect = server::chroot("race").await;
    let mut starting = Vec::new();
    for id in 0..10 {
        let connect = connect.clone();
        starting.push(tokio::spawn(async move {
            let opened = open(config(id, &connect)).await.unwrap();
            opened.start(registration(id, "127.0.0.1:1")).await.unwrap()
        }));
    }
    let mut brokers = Vec::new();
    for start in starting {
        brokers.push(start.await.unwrap());
    }
    let first = all_agree(&mut brokers, ControllerEpoch(1)).await;
    // Its session is closed: the next one is elected at once.
    let index = usize::try_from(first.0).unwrap();
    brokers.remove(index).stop().await;
    let second = all_agree(&mut brokers, ControllerEpoch(2)).await;
    assert_ne!(first, second);
    let (client, _events) = session(&connect, 4000).await;
    assert_eq!(get(&client, paths::CONTROLLER_EPOCH).await.unwrap().data, b"2");
    for broker in brokers {
        broker.stop().await;
    }
    assert_eq!(get(&client, paths::CONTROLLER).await, None);
    client.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_exits_after_its_stop_is_gone_at_once() {
    let connect = server::chroot("exit").await;
    let (client, _events) = session(&connect, 30_000).await;
    for round in 1..=10 {
        let connect = connect.clone();
        let process = move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let opened = open(config(1, &connect)).await.unwrap();
                let mut running = opened.start(registration(1, "127.0.0.1:1")).await.unwrap();
                until(&mut running.membership, |m| m.controller.is_some()).await;
                running.stop().await;
            });
            runtime.shutdown_background();
        };
        tokio::task::spawn_blocking(process).await.unwrap();
        assert_eq!(get(&client, &paths::broker(BrokerId(1))).await, None, "round {round}");
        assert_eq!(get(&client, paths::CONTROLLER).await, None, "round {round}");
    }
    client.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_cut_off_past_its_session_registers_again() {
    let connect = server::chroot("expiry").await;
    let link = Link::to(server::address()).await;
    let through = format!("{}/expiry", link.address);
    let mut config = config(1, &through);
    config.session_timeout_ms = 1000;
    let opened = open(config).await.unwrap();
    let listener = listen().await;
    let mut cut_off = opened.start(registration(1, &listener.address)).await.unwrap();
    until(&mut cut_off.membership, |m| m.controller == Some((BrokerId(1), ControllerEpoch(1))))
        .await;
    let other_listener = listen().await;
    let timeout = Duration::from_secs(4);
    let mut other =
        start(2, Servers::new(&connect, timeout), &connect, &other_listener.address).await;
    let before = cut_off.broker_epoch;
    link.cut();
    until(&mut cut_off.membership, |m| !m.connected).await;
    until(&mut cut_off.membership, |m| m.controller.is_none()).await;
    assert_eq!(cut_off.controller.epoch(), None, "half a session away: it has resigned");
    until(&mut other.membership, |m| m.controller == Some((BrokerId(2), ControllerEpoch(2)))).await;
    link.heal();
    let member = until(&mut cut_off.membership, |m| {
        m.broker_epoch.is_some_and(|now| now > before) && m.controller.is_some()
    })
    .await;
    assert_eq!(member.controller, Some((BrokerId(2), ControllerEpoch(2))));
    assert!(member.controller_epoch_min >= ControllerEpoch(2), "R22");
    cut_off.stop().await;
    other.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_abandoned_while_cut_off_lands_later_unless_it_is_fenced() {
    let connect = server::chroot("abandoned").await;
    let link = Link::to(server::address()).await;
    let (near, _near_events) = session(&connect, 10_000).await;
    let (far, mut events) = session(&format!("{}/abandoned", link.address), 10_000).await;
    for path in ["/epoch", "/free", "/fenced"] {
        near.submit(create(path, CreateMode::Persistent)).await.unwrap();
    }
    link.cut();
    assert_eq!(event(&mut events).await, SessionEvent::Disconnected);
    let check = Op::Check { path: "/epoch".into(), version: 0 };
    let free = Request::Multi(vec![set("/free", b"late", Some(0))]);
    let fenced = Request::Multi(vec![check, set("/fenced", b"late", Some(0))]);
    for request in [free, fenced] {
        let abandoned = tokio::time::timeout(Duration::from_millis(50), far.submit(request)).await;
        assert!(abandoned.is_err(), "nothing can be answered while cut off");
    }
    near.submit(Request::Multi(vec![set("/epoch", b"2", Some(0))])).await.unwrap();
    link.heal();
    assert_eq!(event(&mut events).await, SessionEvent::Reconnected);
    far.submit(Request::Sync).await.unwrap();
    assert_eq!(get(&near, "/free").await.unwrap().data, b"late", "abandoned is not undone");
    assert_eq!(get(&near, "/fenced").await.unwrap().stat.version, 0, "R1");
    near.close();
    far.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_a_request_is_refused_here() {
    let connect = server::chroot("large").await;
    let (client, mut events) = session(&connect, 4000).await;
    let data = vec![0; 600 * 1024];
    let create = Request::Create { path: "/large".into(), data, mode: CreateMode::Persistent };
    assert!(matches!(client.submit(create).await, Err(ZkError::TooLarge { .. })));
    assert_eq!(get(&client, "/large").await, None);
    assert!(events.try_recv().is_err(), "the connection stands");
    client.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_says_which_operation_failed() {
    let connect = server::chroot("multi").await;
    let (client, _events) = session(&connect, 4000).await;
    client.submit(create("/a", CreateMode::Persistent)).await.unwrap();
    let check = |version| Op::Check { path: "/a".into(), version };
    let done =
        client.submit(Request::Multi(vec![check(0), set("/a", b"1", Some(0))])).await.unwrap();
    assert_eq!(done, Reply::Multi(vec![OpReply::Done, OpReply::Set { version: 1 }]));
    let fenced =
        client.submit(Request::Multi(vec![check(0), set("/a", b"2", None)])).await.unwrap_err();
    assert_eq!(fenced, ZkError::Multi { index: 0, error: Box::new(ZkError::BadVersion) });
    let late =
        client.submit(Request::Multi(vec![check(1), set("/a", b"2", Some(7))])).await.unwrap_err();
    assert_eq!(late, ZkError::Multi { index: 1, error: Box::new(ZkError::BadVersion) });
    assert_eq!(get(&client, "/a").await.unwrap().data, b"1");
    let read = client.submit(Request::MultiRead(vec!["/a".into(), "/none".into()])).await.unwrap();
    let Reply::Nodes(nodes) = read else { panic!() };
    assert!(nodes[0].is_some() && nodes[1].is_none());
    client.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_fires_once_and_can_be_armed_again() {
    let connect = server::chroot("watch").await;
    let (client, mut events) = session(&connect, 4000).await;
    client.submit(create("/list", CreateMode::Persistent)).await.unwrap();
    let list = Request::Children { path: "/list".into(), watch: true };
    let fired = SessionEvent::Watched(Watched { path: "/list".into(), kind: WatchKind::Children });
    for name in ["/list/b", "/list/a"] {
        // Armed twice, told once.
        client.submit(list.clone()).await.unwrap();
        client.submit(list.clone()).await.unwrap();
        client.submit(create(name, CreateMode::Persistent)).await.unwrap();
        assert_eq!(event(&mut events).await, fired);
    }
    let names = client.submit(list).await.unwrap();
    assert_eq!(names, Reply::Children(vec!["a".into(), "b".into()]));
    assert!(events.try_recv().is_err());
    client.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_whose_request_was_abandoned_can_be_armed() {
    let connect = server::chroot("unarmed").await;
    let link = Link::to(server::address()).await;
    let (near, _near_events) = session(&connect, 10_000).await;
    let (far, mut events) = session(&format!("{}/unarmed", link.address), 10_000).await;
    let requests = [
        Request::Children { path: "/".into(), watch: true },
        Request::Exists { path: "/a".into(), watch: true },
        Request::Get { path: "/a".into(), watch: true },
    ];
    for (round, request) in requests.into_iter().enumerate() {
        link.cut();
        assert_eq!(event(&mut events).await, SessionEvent::Disconnected);
        let abandoned = far.submit(request.clone());
        let abandoned = tokio::time::timeout(Duration::from_millis(50), abandoned).await;
        assert!(abandoned.is_err(), "nothing can be answered while cut off");
        link.heal();
        assert_eq!(event(&mut events).await, SessionEvent::Reconnected);
        far.submit(request).await.unwrap();
        let change = match round {
            0 => create("/a", CreateMode::Persistent),
            1 => Request::Multi(vec![set("/a", b"1", None)]),
            _ => Request::Delete { path: "/a".into(), version: None },
        };
        near.submit(change).await.unwrap();
        assert!(matches!(event(&mut events).await, SessionEvent::Watched(_)), "round {round}");
    }
    near.close();
    far.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_frees_the_ephemerals_whatever_clones_are_left() {
    let connect = server::chroot("close").await;
    let (client, _events) = session(&connect, 30_000).await;
    let (other, mut events) = session(&connect, 4000).await;
    client.submit(create("/e", CreateMode::Ephemeral)).await.unwrap();
    let exists = Request::Exists { path: "/e".into(), watch: true };
    assert!(matches!(other.submit(exists).await.unwrap(), Reply::Stat(Some(_))));
    let clone = client.clone();
    client.close();
    // Long before the session could expire.
    let told = tokio::time::timeout(Duration::from_secs(10), events.recv()).await.unwrap();
    assert!(matches!(told, Some(SessionEvent::Watched(_))));
    assert_eq!(clone.submit(Request::Sync).await, Err(ZkError::SessionExpired));
    other.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_own_earlier_incarnation_is_replaced_and_a_stranger_left_alone() {
    let connect = server::chroot("registration").await;
    let (client, _events) = session(&connect, 30_000).await;
    let (theirs, mine) = (listen().await, listen().await);
    let servers = || Servers::new(&connect, Duration::from_secs(4));
    let opened = open_with(config(1, &connect), servers()).await.unwrap();
    let register = |id: i32, node: &barnabas_controller::BrokerNode| Request::Create {
        path: paths::broker(BrokerId(id)),
        data: node.write(),
        mode: CreateMode::Ephemeral,
    };
    client.submit(register(1, &registration(1, &mine.address))).await.unwrap();
    let earlier = get(&client, "/brokers/ids/1").await.unwrap();
    let running = opened.start(registration(1, &mine.address)).await.unwrap();
    let now = get(&client, "/brokers/ids/1").await.unwrap();
    assert_eq!(now.stat.czxid, running.broker_epoch.0);
    assert!(now.stat.czxid > earlier.stat.czxid);
    assert_ne!(now.stat.owner, earlier.stat.owner);
    client.submit(register(2, &registration(5, &theirs.address))).await.unwrap();
    let before = get(&client, "/brokers/ids/2").await;
    let opened = open_with(config(2, &connect), servers()).await.unwrap();
    let error = opened.start(registration(2, &mine.address)).await.unwrap_err();
    assert!(matches!(error, Error::IdTaken { broker: BrokerId(2), .. }), "{error}");
    assert_eq!(get(&client, "/brokers/ids/2").await, before);
    running.stop().await;
    client.close();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_written_in_kafkas_layout_and_survive_the_controller() {
    let connect = server::chroot("topics").await;
    let servers = || Servers::new(&connect, Duration::from_secs(4));
    let (mut one, mut two) = (listen().await, listen().await);
    let mut brokers = vec![
        start(1, servers(), &connect, &one.address).await,
        start(2, servers(), &connect, &two.address).await,
    ];
    let controller = all_agree(&mut brokers, ControllerEpoch(1)).await;
    let index = usize::try_from(controller.0).unwrap() - 1;
    for listener in [&mut one, &mut two] {
        until(&mut listener.told, |told| told.image.brokers.len() == 2).await;
    }
    let topic = NewTopic {
        name: "orders".into(),
        partitions: Some(130),
        replication_factor: Some(2),
        overrides: [("min.insync.replicas".to_owned(), "1".to_owned())].into(),
        ..NewTopic::default()
    };
    let created = brokers[index].controller.create_topic(topic).await.unwrap();
    let (client, _events) = session(&connect, 4000).await;
    let node = get(&client, "/brokers/topics/orders").await.unwrap();
    let text = String::from_utf8(node.data).unwrap();
    assert!(text.contains(&created.topic_id.unwrap().to_string()), "{text}");
    assert!(get(&client, "/config/topics/orders").await.is_some());
    let state = get(&client, "/brokers/topics/orders/partitions/129/state").await.unwrap();
    assert!(String::from_utf8(state.data).unwrap().contains("isr_broker_epochs"), "R2");
    // The controller goes; the other one leads everything, with more than one multi of writes.
    brokers.remove(index).stop().await;
    let survivor = if index == 0 { &mut two } else { &mut one };
    let name = TopicName::new("orders").unwrap();
    // The first push may come before the leaders are moved.
    let told = until(&mut survivor.told, |told| {
        let moved = |topic: &TopicImage| {
            topic.partitions.values().all(|p| p.state.leader.is_some_and(|l| l != controller))
        };
        told.image.controller.is_some_and(|(id, _)| id != controller)
            && told.image.topics.get(&name).is_some_and(moved)
    })
    .await;
    let read = &told.image.topics[&name];
    assert_eq!(read.incarnation.topic_id, created.topic_id.unwrap());
    assert_eq!(read.incarnation.czxid, node.stat.czxid);
    assert_eq!(read.partitions.len(), 130);
    for (partition, found) in &read.partitions {
        assert_ne!(found.state.leader, Some(controller), "{partition}");
        assert!(found.state.leader.is_some(), "{partition}");
    }
    brokers[0].controller.delete_topic("orders").await.unwrap();
    assert_eq!(get(&client, "/brokers/topics/orders").await, None);
    assert_eq!(get(&client, "/admin/delete_topics/orders").await, None);
    client.close();
    brokers.remove(0).stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_chroot_and_a_bad_address_are_named() {
    let connect = format!("{}/no/such", server::address());
    let error = open(config(1, &connect)).await.unwrap_err();
    let expected = format!("the chroot /no/such of zookeeper.connect '{connect}' does not exist");
    assert!(error.to_string().starts_with(&expected), "{error}");
    let error = open(config(1, "tcp://a:1")).await.unwrap_err();
    assert!(matches!(error, Error::BadAddress { .. }), "{error}");
    let mut unreachable = config(1, "127.0.0.1:1");
    unreachable.connection_timeout_ms = 500;
    let error = open(unreachable).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_base_tree_is_made_in_order() {
    let connect = server::chroot("tree").await;
    let (client, _events) = session(&connect, 4000).await;
    for request in base_tree_requests() {
        client.submit(request).await.unwrap();
    }
    assert_eq!(get(&client, paths::CONTROLLER_EPOCH).await.unwrap().data, b"0");
    client.close();
}
