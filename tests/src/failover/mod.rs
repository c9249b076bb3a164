//! What clients see of faults that need a network of their own, or a look behind a client library: hosts that vanish, single links that
//! are cut, and deposed leaders that wake up. The other half is `barnabas bench failover`, whose producer this one is.

mod zombie;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use barnabas_clients::outage::{Load, Terms};
use serde_json::{Value, json};

use crate::Outcome;
use crate::admin::NewTopic;
use crate::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use crate::prng::Prng;
use crate::wait::{pass, wait_for};
use crate::znodes::{PartitionNode, Znodes};

/// Partitions to which the producer sends; all of the topic.
const PARTITIONS: i32 = 12;
const TOPIC: &str = "t";
/// Brokers of the cluster; all lead when a host vanishes.
const BROKERS: usize = 3;
/// How long a link is cut: at least this, up to so much longer, and one in four times longer than a session.
const CUT_MS_MIN: u64 = 100;
const CUT_MS_MORE: u64 = 3_000;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How often the host of a leader vanishes.
    pub vanish: usize,
    /// How often a single link is cut.
    pub cuts: usize,
    /// How often a leader stands still until it is deposed, with an acks=1 producer that knows only it.
    pub zombies: usize,
    /// `zookeeper.session.timeout.ms`.
    pub session_timeout_ms: u32,
    /// Where the random choices begin.
    pub seed: u64,
}

/// Runs it; `say` gets one JSON object a fault, and one a figure.
///
/// # Errors
/// A cluster that does not form or heal, an acks=all record that is lost, or an answer of a deposed leader.
pub async fn run(plan: Plan, say: &mut impl FnMut(&Value)) -> Outcome<()> {
    let mut wrong = Vec::new();
    if plan.vanish + plan.cuts > 0 {
        let mut bench = Bench::start(plan).await?;
        let mut outages = Vec::new();
        for round in 0..plan.vanish {
            outages.push(bench.vanish(round, say).await?);
        }
        if plan.vanish > 0 {
            let most = outages.iter().max();
            say(
                &json!({"figure": "vanished hosts", "rounds": plan.vanish, "outage_most_ms": most, "session_ms": plan.session_timeout_ms}),
            );
        }
        let mut moves_most = 0;
        let mut prng = Prng::new(plan.seed);
        for round in 0..plan.cuts {
            moves_most = bench.cut(round, &mut prng, say).await?.max(moves_most);
        }
        if plan.cuts > 0 {
            say(
                &json!({"figure": "links cut", "rounds": plan.cuts, "moves_of_a_partition_most": moves_most}),
            );
            if moves_most > 1 {
                wrong.push(format!("a partition was moved {moves_most} times in one cut"));
            }
        }
        let balance = tokio::task::spawn_blocking(move || bench.load.finish()).await??;
        let lost = balance.lost.len();
        say(
            &json!({"figure": "records", "acknowledged": balance.acknowledged, "failed": balance.failed, "lost": lost}),
        );
        if lost > 0 {
            wrong.push(format!("{lost} acknowledged records are lost"));
        }
    }
    if plan.zombies > 0 {
        wrong.extend(zombie::run(plan.zombies, plan.session_timeout_ms, say).await?);
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

struct Bench {
    cluster: Cluster,
    znodes: Znodes,
    load: Load,
}

impl Bench {
    async fn start(plan: Plan) -> Outcome<Self> {
        let config = "auto.leader.rebalance.enable: false\n".to_owned();
        let session_timeout_ms = plan.session_timeout_ms;
        let cluster = Cluster::start(Options {
            session_timeout_ms,
            config,
            networked: true,
            ..Options::default()
        })
        .await?;
        let configs = &[("min.insync.replicas", "2")];
        let new = NewTopic { name: TOPIC, partitions: PARTITIONS, replication_factor: 3, configs };
        cluster.admin().await?.create_topic(new).await?;
        cluster.until_healed(TOPIC, 3).await?;
        let znodes = cluster.znodes().await?;
        // A request that nobody answers holds up the library as long as it is told to wait for the answer.
        let set = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let load = Load::start(Terms {
            bootstrap: cluster.bootstrap(),
            topic: TOPIC.to_owned(),
            partitions: PARTITIONS,
            client_config: vec![
                set("socket.timeout.ms", "1000"),
                set("socket.connection.setup.timeout.ms", "1000"),
                set("reconnect.backoff.max.ms", "500"),
            ],
        })?;
        Ok(Self { cluster, znodes, load })
    }

    /// Waits until every partition is acknowledged something new.
    async fn until_acknowledged(&self) -> Outcome<()> {
        let since = Instant::now();
        wait_for("every partition is acknowledged", SETTLE_MAX, || async {
            self.load.all_acknowledged_since(since).then_some(())
        })
        .await
    }

    async fn states(&self) -> Outcome<BTreeMap<i32, PartitionNode>> {
        self.znodes.partitions(TOPIC).await
    }

    /// All brokers lead again: one that was away leads nothing when it is back.
    async fn until_all_lead(&self) -> Outcome<BTreeSet<i64>> {
        let admin = self.cluster.admin_address(1);
        wait_for("every broker leads", SETTLE_MAX, || async {
            run_program(&["leader", "elect", TOPIC, "--admin", &admin]).await.ok()?;
            let leaders: BTreeSet<i64> =
                self.states().await.ok()?.values().map(|state| state.leader).collect();
            (leaders.len() == BROKERS).then_some(leaders)
        })
        .await
    }

    /// A broker that leads: by turns the controller, and one that is not.
    async fn victim(&self, round: usize) -> Outcome<(i32, bool)> {
        let leaders = self.until_all_lead().await?;
        let (controller, _) = self.znodes.controller().await?.ok_or("there is no controller")?;
        let is_next = round.is_multiple_of(2);
        let victim = match is_next {
            true => controller,
            false => *leaders.iter().find(|id| **id != controller).ok_or("nobody else leads")?,
        };
        Ok((i32::try_from(victim)?, is_next))
    }

    /// The host of a leader vanishes until others lead; what the client waited, in milliseconds.
    async fn vanish(&mut self, round: usize, say: &mut impl FnMut(&Value)) -> Outcome<u64> {
        self.cluster.until_healed(TOPIC, 3).await?;
        let (gone, is_controller) = self.victim(round).await?;
        self.until_acknowledged().await?;
        self.load.forget_silences();
        let began = Instant::now();
        self.cluster.network().vanish(gone)?;
        wait_for("others lead", SETTLE_MAX, || async {
            let states = self.states().await.ok()?;
            states.values().all(|s| s.leader >= 0 && s.leader != i64::from(gone)).then_some(())
        })
        .await?;
        let led_ms = began.elapsed().as_millis();
        self.until_acknowledged().await?;
        let outage_ms = u64::try_from(self.load.longest_silence().as_millis())?;
        self.cluster.network().appear(gone)?;
        say(
            &json!({"fault": "host vanished", "round": round, "broker": gone, "controller": is_controller, "led_ms": led_ms, "outage_ms": outage_ms}),
        );
        Ok(outage_ms)
    }

    /// One link is cut for a while, and mended; how often the leader of one partition changed, at most.
    async fn cut(
        &mut self,
        round: usize,
        prng: &mut Prng,
        say: &mut impl FnMut(&Value),
    ) -> Outcome<i64> {
        self.cluster.until_healed(TOPIC, 3).await?;
        self.until_acknowledged().await?;
        let before = self.states().await?;
        let (one, other) = [(1, 2), (1, 3), (2, 3)][usize::try_from(prng.below(3))?];
        let to_zookeeper = prng.one_in(4);
        let long = if prng.one_in(4) { 10_000 } else { 0 };
        let lasts = Duration::from_millis(CUT_MS_MIN + long + prng.up_to(CUT_MS_MORE));
        self.load.forget_silences();
        let network = self.cluster.network();
        if to_zookeeper {
            network.cut_zookeeper(one)?
        } else {
            network.cut(one, other)?
        }
        pass(lasts).await;
        if to_zookeeper {
            network.mend_zookeeper(one)?
        } else {
            network.mend(one, other)?
        }
        self.cluster.until_healed(TOPIC, 3).await?;
        self.until_acknowledged().await?;
        let after = self.states().await?;
        let moves = |index: &i32| after[index].leader_epoch - before[index].leader_epoch;
        let most = before.keys().map(moves).max().unwrap_or(0);
        let moved = before.keys().filter(|index| moves(index) > 0).count();
        let link = if to_zookeeper { format!("{one}-ZooKeeper") } else { format!("{one}-{other}") };
        say(&json!({
            "fault": "link cut", "round": round, "link": link, "ms": lasts.as_millis(), "moved": moved,
            "moves_of_a_partition_most": most, "outage_ms": self.load.longest_silence().as_millis(),
        }));
        Ok(most)
    }
}
