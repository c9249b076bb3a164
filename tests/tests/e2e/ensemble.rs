//! Three ZooKeeper servers, of which one is lost at a time: brokers keep their sessions, and clients hear nothing of it.

use std::fs;
use std::net::SocketAddr;

use barnabas_broker::zookeeper::{Ensemble, ZooKeeperOptions, ZooKeeperServer, srvr};
use barnabas_tests::Outcome;
use barnabas_tests::admin::{Admin, NewTopic};
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX};
use barnabas_tests::load::{Load, Target, judge};
use barnabas_tests::ports;
use barnabas_tests::wait::wait_for;

/// `follower`, `leader`; `None` while it is neither.
async fn mode(address: SocketAddr) -> Option<String> {
    let answer = srvr(address).await.ok()?;
    answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
}

async fn until_all_serve(members: &[ZooKeeperServer]) -> Outcome<()> {
    wait_for("every member follows or leads", SETTLE_MAX, || async {
        for member in members {
            mode(member.address()).await?;
        }
        Some(())
    })
    .await
}

/// Broker epochs and the controller: what changes when a session is lost.
async fn lives(cluster: &Cluster) -> Outcome<(Vec<(i32, i64)>, i32, i32)> {
    let known = cluster.admin().await?.cluster().await?;
    let mut epochs: Vec<(i32, i64)> = known.brokers.iter().map(|b| (b.id, b.epoch)).collect();
    epochs.sort_unstable();
    Ok((epochs, known.controller_id, known.controller_epoch))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_outlive_a_member_and_then_the_leader_of_their_ensemble() -> Outcome<()> {
    let mut cluster = Cluster::start(Options {
        start: false,
        session_timeout_ms: 12_000,
        config: "replica.lag.time.max.ms: 10000\n".to_owned(),
        ..Options::default()
    })
    .await?;
    let mut quorum = Vec::new();
    for _ in 0..3 {
        quorum.push((ports::free()?, ports::free()?));
    }
    let mut options = Vec::new();
    for number in 1..=3 {
        options.push(ZooKeeperOptions {
            data_dir: cluster.directory().join(format!("zookeeper-{number}")),
            port: Some(ports::free()?),
            tick_time_ms: 200,
            force_sync: false,
            ensemble: Some(Ensemble { number, ports: quorum.clone() }),
        });
    }
    let (a, b, c) = tokio::try_join!(
        ZooKeeperServer::start(&options[0]),
        ZooKeeperServer::start(&options[1]),
        ZooKeeperServer::start(&options[2]),
    )?;
    let mut members = vec![a, b, c];
    let connect: Vec<String> = members.iter().map(|m| m.address().to_string()).collect();
    let alone = cluster.zookeeper_connect().to_owned();
    cluster.stop_zookeeper();
    for id in 1..=3 {
        let file = cluster.broker(id).config_file();
        let text = fs::read_to_string(&file)?;
        fs::write(&file, text.replace(&alone, &connect.join(",")))?;
    }
    cluster.start_all()?;
    cluster.until_formed().await?;
    let configs = [("min.insync.replicas", "2")];
    let new = NewTopic { name: "kept", partitions: 3, replication_factor: 3, configs: &configs };
    cluster.admin().await?.create_topic(new).await?;
    let target = Target { bootstrap: cluster.bootstrap(), topic: "kept".to_owned(), partitions: 3 };
    let load = Load::start(&target, 3, 0, 3);
    let go_on = async |load: &Load| {
        let before = load.batches();
        wait_for("records are taken", SETTLE_MAX, || async {
            load.batches().iter().zip(&before).all(|(now, then)| *now > then + 20).then_some(())
        })
        .await
    };
    go_on(&load).await?;
    let before = lives(&cluster).await?;

    // A follower goes and comes back, then the leader goes.
    for victim in ["follower", "leader"] {
        let mut found = None;
        for (index, member) in members.iter().enumerate() {
            if mode(member.address()).await.as_deref() == Some(victim) {
                found = Some(index);
            }
        }
        let index = found.ok_or_else(|| format!("no {victim}"))?;
        members[index].stop();
        go_on(&load).await?;
        // A write needs the quorum: it is there again, and every broker has its session.
        let name = format!("after-{victim}");
        wait_for("a topic can be created", SETTLE_MAX, || async {
            let new = NewTopic { name: &name, partitions: 1, replication_factor: 3, configs: &[] };
            let created = cluster.admin().await.ok()?.create_topic(new).await;
            match created {
                Ok(()) => Some(()),
                Err(error) => error.to_string().contains("TOPIC_ALREADY_EXISTS").then_some(()),
            }
        })
        .await?;
        wait_for("every broker is connected", SETTLE_MAX, || async {
            for id in 1..=3 {
                let admin = Admin::connect(&cluster.admin_address(id)).await.ok()?;
                let known = admin.cluster().await.ok()?;
                if !known.zookeeper_connected {
                    return None;
                }
            }
            Some(())
        })
        .await?;
        assert_eq!(lives(&cluster).await?, before, "a session was lost with the {victim}");
        members[index] = ZooKeeperServer::start(&options[index]).await?;
        until_all_serve(&members).await?;
    }
    let accounts = load.stop().await?;
    assert!(accounts.iter().all(|account| account.refused.is_empty()), "{accounts:?}");
    let verdict = judge(&target, &accounts)?;
    assert!(verdict.acked > 0 && verdict.holds(), "{verdict:?}");
    for broker in cluster.brokers() {
        let log = broker.log();
        let errors: Vec<&str> = log.lines().filter(|line| line.contains(" ERROR ")).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    Ok(())
}
