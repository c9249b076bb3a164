//! What befalls a topic: kills, a leader that is deposed while it stands still, an unclean election, and the loss of all power.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::evidence::Evidence;
use crate::Outcome;
use crate::client::{Client, Terms};
use crate::cluster::{Cluster, SETTLE_MAX};
use crate::load::Target;
use crate::power;
use crate::prng::Prng;
use crate::proxy::Link;
use crate::sessions;
use crate::wait::{next_look, pass, wait_for};
use crate::znodes::Znodes;

/// How long a leader goes on alone, in ms: at least this, and up to so much longer; below the time after which its followers leave the ISR.
const ALONE_MS_MIN: u64 = 200;
const ALONE_MS_MORE: u64 = 1_300;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Kill,
    Deposed,
    Unclean,
    PowerCut,
}

impl Fault {
    pub(super) const ALL: [Self; 4] = [Self::Deposed, Self::Kill, Self::Unclean, Self::PowerCut];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "processes killed",
            Self::Deposed => "leader deposed in a standstill",
            Self::Unclean => "unclean election",
            Self::PowerCut => "power cut",
        }
    }

    /// Makes it, and lets every broker run again.
    pub(super) async fn make(
        self,
        cluster: &mut Cluster,
        topic: &str,
        prng: &mut Prng,
        evidence: &mut Evidence,
    ) -> Outcome<()> {
        let znodes = cluster.znodes().await?;
        let leader = leader(&znodes, topic).await?;
        let others = [leader % 3 + 1, (leader + 1) % 3 + 1];
        let alone = Duration::from_millis(ALONE_MS_MIN + prng.up_to(ALONE_MS_MORE));
        match self {
            Self::Kill => {
                // Its followers cannot reach it for a moment: it has something that nobody else has.
                cluster.links(leader).kafka.set(Link::CutFollowers);
                pass(alone).await;
                let mut killed = vec![leader];
                if prng.one_in(3) {
                    killed.push(others[0]);
                }
                for id in &killed {
                    cluster.broker(*id).kill().await?;
                }
                cluster.links(leader).kafka.set(Link::Whole);
                evidence.files(cluster, &killed)?;
                for id in &killed {
                    sessions::expire_broker(cluster.zookeeper_connect(), &znodes, *id).await?;
                }
                until_led(&znodes, topic, |by| !killed.contains(&by)).await?;
                cluster.start_all()?;
            }
            Self::Deposed => {
                cluster.links(leader).kafka.set(Link::CutFollowers);
                pass(alone).await;
                cluster.broker(leader).pause()?;
                evidence.files(cluster, &[leader])?;
                cluster.links(leader).kafka.set(Link::Whole);
                until_led(&znodes, topic, |by| by != leader).await?;
                // The successors take something, or nothing yet.
                pass(Duration::from_millis(prng.up_to(500))).await;
                cluster.broker(leader).resume()?;
            }
            Self::Unclean => {
                for id in others {
                    cluster.broker(id).kill().await?;
                    sessions::expire_broker(cluster.zookeeper_connect(), &znodes, id).await?;
                }
                until_led(&znodes, topic, |by| by == leader).await?;
                pass(alone).await;
                cluster.broker(leader).kill().await?;
                evidence.files(cluster, &[leader])?;
                sessions::expire_broker(cluster.zookeeper_connect(), &znodes, leader).await?;
                for id in others {
                    cluster.broker(id).start()?;
                }
                until_led(&znodes, topic, |by| others.contains(&by)).await?;
                pass(Duration::from_millis(prng.up_to(500))).await;
                cluster.broker(leader).start()?;
            }
            Self::PowerCut => {
                cluster.kill_all().await?;
                evidence.files(cluster, &[1, 2, 3])?;
                for broker in cluster.brokers() {
                    let roots = broker.config().log_dirs.clone();
                    power::cut(&roots, broker.shim().journal()?, prng.next_u64())?;
                }
                cluster.start_all()?;
            }
        }
        cluster.until_known(&znodes, &[1, 2, 3]).await?;
        cluster.until_healed(topic, 3).await
    }
}

async fn leader(znodes: &Znodes, topic: &str) -> Outcome<i32> {
    let states = znodes.partitions(topic).await?;
    Ok(i32::try_from(states.get(&0).ok_or("no partition 0")?.leader)?)
}

/// Waits until every partition has a leader that fits.
async fn until_led(znodes: &Znodes, topic: &str, fits: impl Fn(i32) -> bool) -> Outcome<()> {
    wait_for("every partition has another leader", SETTLE_MAX, || async {
        let states = znodes.partitions(topic).await.ok()?;
        let led = |leader: i64| i32::try_from(leader).is_ok_and(|id| id >= 0 && fits(id));
        states.values().all(|state| led(state.leader)).then_some(())
    })
    .await
}

/// Producers at acks=0: they hear nothing, so whatever they sent may be anywhere.
pub(super) struct Unanswered {
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Unanswered {
    pub(super) fn start(target: &Target, run: usize) -> Self {
        let (stop, stopped) = watch::channel(false);
        let send = |partition| {
            let (target, stopped) = (target.clone(), stopped.clone());
            tokio::spawn(async move {
                let terms = Terms { acks: 0, ..Terms::default() };
                let mut client: Option<Client> = None;
                let mut attempt = 0;
                let mut number: u64 = 0;
                while !*stopped.borrow() {
                    if client.is_none() {
                        attempt += 1;
                        let Target { bootstrap, topic, .. } = &target;
                        client = Client::of_leader(bootstrap, attempt, topic, partition).await.ok();
                    }
                    let values: Vec<Vec<u8>> = (number..number + 5)
                        .map(|n| format!("{run}-{partition}-{n}").into_bytes())
                        .collect();
                    number += 5;
                    let sent = match &mut client {
                        Some(client) => client.post(&target.topic, partition, terms, &values).await,
                        None => Ok(()),
                    };
                    if sent.is_err() {
                        client = None;
                    }
                    next_look().await;
                }
            })
        };
        let tasks = (0..target.partitions).map(send).collect();
        Self { stop, tasks }
    }

    pub(super) async fn stop(self) -> Outcome<()> {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await?;
        }
        Ok(())
    }
}
