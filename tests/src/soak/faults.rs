//! The faults of a soak. Each is made and lifted; none is left behind.

use std::time::Duration;

use rustix::process::Signal;

use super::{BROKERS, PARTITIONS, TOPIC};
use crate::Outcome;
use crate::admin::NewTopic;
use crate::cluster::{Cluster, run_program};
use crate::oracles::healed::until_healed;
use crate::prng::Prng;
use crate::proxy::Link;
use crate::scene::Scene;
use crate::sessions;
use crate::shim::{EIO, ENOSPC};
use crate::wait::pass;

/// Longest that a fault lasts: twice the session and the lag limit, so that it is noticed or not by turns.
const LASTS_MS_MAX: u64 = 4_000;

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Kill,
    KillTwo,
    KillAll,
    Pause,
    Cut,
    StopZooKeeper,
    PauseZooKeeper,
    ExpireOne,
    ExpireAll,
    RollingRestart,
    Drain,
    Move,
    Elect,
    Configure,
    Topics,
    FullDisk,
    FailedSync,
    FailedDirectory,
}

/// All, the frequent ones more than once.
const KINDS: [Kind; 26] = [
    Kind::Kill,
    Kind::Kill,
    Kind::Kill,
    Kind::KillTwo,
    Kind::KillAll,
    Kind::Pause,
    Kind::Pause,
    Kind::Cut,
    Kind::Cut,
    Kind::Cut,
    Kind::StopZooKeeper,
    Kind::PauseZooKeeper,
    Kind::ExpireOne,
    Kind::ExpireOne,
    Kind::ExpireAll,
    Kind::RollingRestart,
    Kind::Drain,
    Kind::Move,
    Kind::Move,
    Kind::Move,
    Kind::Elect,
    Kind::Configure,
    Kind::Topics,
    Kind::FullDisk,
    Kind::FailedSync,
    Kind::FailedDirectory,
];

impl Kind {
    pub(super) fn choose(prng: &mut Prng) -> Self {
        KINDS[usize::try_from(prng.below(KINDS.len() as u64)).unwrap_or(0)]
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9 of a broker",
            Self::KillTwo => "kill -9 of two brokers",
            Self::KillAll => "kill -9 of all brokers",
            Self::Pause => "SIGSTOP of a broker",
            Self::Cut => "a cut, or silence one way or both",
            Self::StopZooKeeper => "ZooKeeper killed",
            Self::PauseZooKeeper => "SIGSTOP of ZooKeeper",
            Self::ExpireOne => "a session expires",
            Self::ExpireAll => "all sessions expire",
            Self::RollingRestart => "rolling restart by SIGTERM",
            Self::Drain => "a broker drained and undrained",
            Self::Move => "replicas moved, or led back",
            Self::Elect => "preferred leaders elected",
            Self::Configure => "settings changed",
            Self::Topics => "topics created, grown and deleted",
            Self::FullDisk => "a full disk",
            Self::FailedSync => "a failed sync",
            Self::FailedDirectory => "a failed log directory",
        }
    }

    /// Whether a replica may lose records that it has not flushed.
    pub(super) fn loses_a_tail(self) -> bool {
        matches!(self, Self::FailedSync | Self::FailedDirectory)
    }

    /// Makes it and lifts it; what was done.
    pub(super) async fn make(
        self,
        scene: &mut Scene,
        prng: &mut Prng,
        number: u64,
    ) -> Outcome<String> {
        let lasts = Duration::from_millis(prng.up_to(LASTS_MS_MAX));
        let id = 1 + i32::try_from(prng.below(u64::try_from(BROKERS)?))?;
        let cluster = &mut scene.cluster;
        let mut what = format!("{}, {:.1} s", self.name(), lasts.as_secs_f64());
        match self {
            Self::Kill | Self::KillTwo | Self::KillAll => {
                let brokers = match self {
                    Self::Kill => vec![id],
                    Self::KillTwo => vec![id, id % BROKERS + 1],
                    _ => (1..=BROKERS).collect(),
                };
                for id in &brokers {
                    cluster.broker(*id).kill().await?;
                }
                pass(lasts).await;
                for id in &brokers {
                    cluster.broker(*id).start()?;
                }
                what += &format!(", brokers {brokers:?}");
            }
            Self::Pause => {
                cluster.broker(id).pause()?;
                pass(lasts).await;
                cluster.broker(id).resume()?;
                what += &format!(", broker {id}");
            }
            Self::Cut => {
                let links = cluster.links(id);
                let kinds = [Link::Cut, Link::HoldReplies, Link::HoldRequests, Link::Silent];
                let link = kinds[usize::try_from(prng.below(4))?];
                let (proxies, place) = match prng.below(4) {
                    0 => (vec![&links.kafka], "kafka"),
                    1 => (vec![&links.admin], "gRPC"),
                    2 => (vec![&links.zookeeper], "zookeeper"),
                    _ => (vec![&links.kafka, &links.admin, &links.zookeeper], "all"),
                };
                proxies.iter().for_each(|proxy| proxy.set(link));
                pass(lasts).await;
                if prng.one_in(2) {
                    // What was held is lost; otherwise it arrives late.
                    proxies.iter().for_each(|proxy| proxy.set(Link::Cut));
                }
                proxies.iter().for_each(|proxy| proxy.set(Link::Whole));
                what += &format!(", broker {id}, {place}: {link:?}");
            }
            Self::StopZooKeeper => {
                cluster.stop_zookeeper();
                pass(lasts).await;
                cluster.start_zookeeper().await?;
            }
            Self::PauseZooKeeper => {
                cluster.signal_zookeeper(Signal::STOP)?;
                pass(lasts).await;
                cluster.signal_zookeeper(Signal::CONT)?;
            }
            Self::ExpireOne | Self::ExpireAll => {
                let znodes = cluster.znodes().await?;
                for other in 1..=BROKERS {
                    if other == id || self == Self::ExpireAll {
                        sessions::expire_broker(cluster.zookeeper_connect(), &znodes, other)
                            .await?;
                    }
                }
                what = format!("{}, broker {id}", self.name());
            }
            Self::RollingRestart => {
                for id in 1..=BROKERS {
                    until_healed(&mut scene.cluster, TOPIC).await?;
                    let broker = scene.cluster.broker(id);
                    broker.terminate().await?;
                    broker.start()?;
                }
            }
            Self::Drain => {
                let broker = id.to_string();
                let drained = ask(cluster, id, &["broker", "drain", &broker]).await?;
                pass(lasts).await;
                // A registration that came since is not draining.
                let undrained = ask(cluster, id, &["broker", "undrain", &broker]).await?;
                what += &format!(", broker {id}: drained {drained}, undrained {undrained}");
            }
            Self::Move => {
                let to = assignment(prng)?;
                let set = ["topic", "set-replicas", TOPIC, "--assignment", &to];
                let begun = ask(cluster, id, &set).await?;
                what = format!("{} to {to}: begun {begun}", self.name());
                if prng.one_in(3) {
                    pass(lasts / 4).await;
                    let cancel = ["topic", "set-replicas", TOPIC, "--cancel"];
                    what += &format!(", led back {}", ask(cluster, id, &cancel).await?);
                }
            }
            Self::Elect => {
                let elected = ask(cluster, id, &["leader", "elect", "--preferred", TOPIC]).await?;
                what = format!("{}: {elected}", self.name());
            }
            Self::Configure => {
                let flush = format!("flush.ms={}", 100 + prng.below(900));
                let altered =
                    ask(cluster, id, &["topic", "alter", TOPIC, "--config", &flush]).await?;
                let reserve = format!("log.roll.ms={}", 60_000 + prng.below(60_000));
                let all = ["config", "alter", "--cluster-default", "--config", &reserve];
                what = format!("{flush}: {altered}, {reserve}: {}", ask(cluster, id, &all).await?);
            }
            Self::Topics => {
                let name = format!("beside-{number}");
                let configs = &[("min.insync.replicas", "2")];
                let new = NewTopic { name: &name, partitions: 2, replication_factor: 3, configs };
                // While something heals it may be refused, or not be answered.
                let admin = cluster.admin().await?;
                let created = admin.create_topic(new).await.is_ok();
                let grown =
                    ask(cluster, id, &["topic", "add-partitions", &name, "--to", "4"]).await?;
                pass(lasts / 4).await;
                let deleted = admin.delete_topic(&name).await.is_ok();
                what = format!("topic {name}: created {created}, grown {grown}, deleted {deleted}");
            }
            Self::FullDisk => {
                cluster.shim(id).rules(&[&format!("fail:{ENOSPC} write path=*{TOPIC}-*.log")])?;
                pass(lasts).await;
                cluster.shim(id).rules(&[])?;
                what += &format!(", broker {id}");
            }
            Self::FailedSync => {
                let rule = format!("fail:{EIO} sync path=*{TOPIC}-*.log nth=1");
                cluster.shim(id).rules(&[&rule])?;
                pass(Duration::from_millis(LASTS_MS_MAX / 4)).await;
                let fired = cluster.shim(id).fired(0)?;
                cluster.shim(id).rules(&[])?;
                what = format!("{}, broker {id}: {fired}", self.name());
            }
            Self::FailedDirectory => {
                cluster.shim(id).rules(&[&format!("fail:{EIO} any path=*{TOPIC}-*")])?;
                pass(lasts).await;
                cluster.shim(id).rules(&[])?;
                // It stays offline until a restart. With its only directory gone the process may end by itself.
                let broker = cluster.broker(id);
                if broker.runs() {
                    broker.kill().await?;
                }
                broker.start()?;
                what += &format!(", broker {id}");
            }
        }
        Ok(what)
    }
}

/// Asks a broker on the command line, as an operator would; whether it was done. While something heals it may be refused.
async fn ask(cluster: &Cluster, id: i32, arguments: &[&str]) -> Outcome<bool> {
    let admin = cluster.admin_address(id);
    Ok(run_program(&[arguments, &["--admin", &admin]].concat()).await?.status.success())
}

/// Every partition on three brokers by chance.
fn assignment(prng: &mut Prng) -> Outcome<String> {
    let mut partitions = Vec::new();
    for partition in 0..PARTITIONS {
        let mut brokers: Vec<i32> = (1..=BROKERS).collect();
        while brokers.len() > 3 {
            brokers.remove(usize::try_from(prng.below(brokers.len() as u64))?);
        }
        let turn = usize::try_from(prng.below(3))?;
        brokers.rotate_left(turn);
        let brokers: Vec<String> = brokers.iter().map(i32::to_string).collect();
        partitions.push(format!("{partition}:{}", brokers.join(",")));
    }
    Ok(partitions.join(";"))
}
