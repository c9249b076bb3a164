//! The main job, shown step by step: real lines go in with kcat at acks=all, the controller and a leader are killed meanwhile,
//! and everything that was acknowledged comes out again. Used by the quick start and, with fewer lines, by the tests.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::admin::NewTopic;
use crate::cluster::{Cluster, SETTLE_MAX};
use crate::corpus::{Corpus, Share};
use crate::kcat::{Deliveries, Gate, Producer, read_back};
use crate::ledger::{Account, Ledger};
use crate::replicas::identical;
use crate::wait::wait_for;
use crate::znodes::Znodes;
use crate::{Fault, Outcome};

/// Partitions of the demonstration's topic.
pub const PARTITIONS: usize = 6;
/// Replicas of each partition.
pub const REPLICAS: i32 = 3;
/// Longest wait for the producers to get as far as a step needs.
const PRODUCE_MAX: Duration = Duration::from_secs(300);

/// What happened.
#[derive(Clone, Debug)]
pub struct Findings {
    /// Sum over the partitions.
    pub account: Account,
    /// From the kill of the controller to the next one's election.
    pub controller_outage: Duration,
    /// From the kill of the leader to the last new leader of its partitions.
    pub leader_outage: Duration,
    /// Longest pause between two acknowledgements that any client saw after each kill.
    pub client_outages: [Duration; 2],
    /// Controller epochs before and after.
    pub controller_epochs: (i64, i64),
}

/// The running demonstration.
struct Show<'a> {
    cluster: &'a mut Cluster,
    znodes: Znodes,
    topic: &'a str,
    say: &'a mut dyn FnMut(String),
}

/// Runs the demonstration on a cluster of three brokers.
///
/// # Errors
/// The first step that does not succeed. Broken promises are no errors here: they are in the [`Findings`].
pub async fn run(
    cluster: &mut Cluster,
    topic: &str,
    corpus: &Corpus,
    say: &mut dyn FnMut(String),
) -> Outcome<Findings> {
    let znodes = cluster.znodes().await?;
    let mut show = Show { cluster, znodes, topic, say };
    show.introduce().await?;
    show.create_topic().await?;
    let gate = Gate::default();
    let shares: Vec<Share<'_>> =
        (0..PARTITIONS).map(|index| Share { corpus, index, of: PARTITIONS }).collect();
    let (faults, deliveries) = std::thread::scope(|scope| {
        let produced = tokio::task::block_in_place(|| {
            let runtime = tokio::runtime::Handle::current();
            runtime.block_on(show.produce_through_faults(scope, &shares, &gate))
        });
        // Whatever went wrong, the feeders must come to their end, or the scope would wait for ever.
        gate.open(1000);
        produced
    })?;
    show.verify(&shares, faults, &deliveries).await
}

/// When the two faults were made, and when other brokers led what the killed one had led.
struct Faults {
    killed: [Instant; 2],
    moved: [Instant; 2],
    controller_outage: Duration,
    leader_outage: Duration,
    epochs: (i64, i64),
}

impl Show<'_> {
    async fn introduce(&mut self) -> Outcome<()> {
        let (id, epoch, since) = self.controller().await?;
        (self.say)(format!("broker {id} is the controller, epoch {epoch}, elected at {since} UTC"));
        let brokers = self.znodes.brokers().await?;
        (self.say)(format!("registered in ZooKeeper: brokers {brokers:?}"));
        Ok(())
    }

    async fn create_topic(&mut self) -> Outcome<()> {
        let partitions = i32::try_from(PARTITIONS)?;
        let configs = [("min.insync.replicas", "2")];
        let (name, replication_factor) = (self.topic, REPLICAS);
        let admin = self.cluster.admin().await?;
        admin
            .create_topic(NewTopic { name, partitions, replication_factor, configs: &configs })
            .await?;
        self.cluster.until_healed(self.topic, 3).await?;
        (self.say)(format!(
            "topic '{}' created through the controller's RPC: {PARTITIONS} partitions, replication factor {REPLICAS}, \
             min.insync.replicas 2",
            self.topic
        ));
        let leaders = self.leaders().await?;
        (self.say)(format!("leaders of partitions 0 to {}: {leaders:?}", PARTITIONS - 1));
        Ok(())
    }

    /// Starts the producers, kills the controller in the first half and a leader in the second, and starts both again.
    async fn produce_through_faults<'scope, 'env>(
        &mut self,
        scope: &'scope std::thread::Scope<'scope, 'env>,
        shares: &[Share<'env>],
        gate: &'env Gate,
    ) -> Outcome<(Faults, Vec<Deliveries>)> {
        let started = Instant::now();
        let bootstrap = self.cluster.bootstrap();
        let mut producers = Vec::new();
        for share in shares {
            producers.push(Producer::start(scope, &bootstrap, self.topic, *share, gate)?);
        }
        let total: usize = shares.iter().map(Share::len).sum();
        (self.say)(format!(
            "{} kcat processes produce {total} lines at acks=all, one partition each",
            shares.len()
        ));

        gate.open(500);
        self.until_acknowledged(&producers, total / 4).await?;
        let (controller, old_epoch, _) = self.controller().await?;
        let first = self.kill("the controller", controller, &producers).await?;
        let (new_controller, new_epoch, at) = self.next_controller(old_epoch).await?;
        let controller_outage = first.elapsed();
        (self.say)(format!(
            "broker {new_controller} is the controller, epoch {new_epoch}, elected at {at} UTC, {:.2} s after the kill",
            controller_outage.as_secs_f64()
        ));
        self.until_led_by_others(controller, first).await?;
        let first_moved = Instant::now();
        self.start_again(controller).await?;

        // The rest is held back until the second fault, however fast the producers are.
        gate.open(800);
        self.until_acknowledged(&producers, total * 6 / 10).await?;
        let leader = self.leader_to_kill(&producers, shares).await?;
        let second = self.kill("a leader", leader, &producers).await?;
        gate.open(1000);
        let leader_outage = self.until_led_by_others(leader, second).await?;
        let second_moved = Instant::now();
        self.start_again(leader).await?;

        let mut deliveries = Vec::new();
        for producer in producers {
            deliveries.push(producer.finish()?);
        }
        let seconds = started.elapsed().as_secs_f64();
        (self.say)(format!(
            "all {total} lines are acknowledged after {seconds:.1} s, both failovers included"
        ));
        let epochs = (old_epoch, self.controller().await?.1);
        let (killed, moved) = ([first, second], [first_moved, second_moved]);
        Ok((Faults { killed, moved, controller_outage, leader_outage, epochs }, deliveries))
    }

    async fn until_acknowledged(&self, producers: &[Producer<'_>], wanted: usize) -> Outcome<()> {
        let what = format!("{wanted} lines are acknowledged");
        let reached = wait_for(&what, PRODUCE_MAX, || async {
            (acknowledged(producers) >= wanted).then_some(())
        });
        reached.await.map_err(|error| {
            let states: Vec<_> =
                producers.iter().map(|p| p.deliveries().complaints.clone()).collect();
            Fault::from(format!(
                "{error}; acknowledged are {}; kcat says {states:?}",
                acknowledged(producers)
            ))
        })
    }

    async fn kill(&mut self, what: &str, id: i32, producers: &[Producer<'_>]) -> Outcome<Instant> {
        let pid = self.cluster.broker(id).pid()?.as_raw_nonzero();
        let leads = self.leaders().await?.iter().filter(|leader| **leader == i64::from(id)).count();
        let killed = Instant::now();
        self.cluster.broker(id).kill().await?;
        (self.say)(format!(
            "SIGKILL to {what}, broker {id} (pid {pid}), which leads {leads} partitions; {} lines acknowledged so far",
            acknowledged(producers)
        ));
        Ok(killed)
    }

    async fn next_controller(&self, old_epoch: i64) -> Outcome<(i32, i64, String)> {
        wait_for("a new controller", SETTLE_MAX, || async {
            self.controller().await.ok().filter(|(_, epoch, _)| *epoch > old_epoch)
        })
        .await
    }

    /// Waits until `dead` leads nothing and is in no ISR, and everything has a leader; how long after `killed` that was.
    async fn until_led_by_others(&mut self, dead: i32, killed: Instant) -> Outcome<Duration> {
        let leaders = wait_for("every partition has a living leader", SETTLE_MAX, || async {
            let leaders = self.leaders().await.ok()?;
            leaders
                .iter()
                .all(|leader| *leader >= 0 && *leader != i64::from(dead))
                .then_some(leaders)
        })
        .await?;
        let outage = killed.elapsed();
        (self.say)(format!(
            "leaders are now {leaders:?}, {:.2} s after the kill",
            outage.as_secs_f64()
        ));
        Ok(outage)
    }

    async fn start_again(&mut self, id: i32) -> Outcome<()> {
        let started = Instant::now();
        self.cluster.broker(id).start()?;
        self.cluster.until_healed(self.topic, 3).await?;
        (self.say)(format!(
            "broker {id} is started again, has caught up and is back in every ISR after {:.2} s",
            started.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// A leader of a partition whose producer still has work, not the controller if that can be.
    async fn leader_to_kill(
        &self,
        producers: &[Producer<'_>],
        shares: &[Share<'_>],
    ) -> Outcome<i32> {
        let (controller, ..) = self.controller().await?;
        let leaders = self.leaders().await?;
        let busy = |partition: &usize| {
            producers[*partition].deliveries().offsets.len() < shares[*partition].len()
        };
        let candidates: Vec<i64> =
            (0..shares.len()).filter(busy).map(|partition| leaders[partition]).collect();
        let other = candidates.iter().find(|leader| **leader != i64::from(controller));
        let chosen =
            other.or(candidates.first()).ok_or("the producers ended before the second fault")?;
        Ok(i32::try_from(*chosen)?)
    }

    async fn verify(
        &mut self,
        shares: &[Share<'_>],
        faults: Faults,
        deliveries: &[Deliveries],
    ) -> Outcome<Findings> {
        let mut ledgers: Vec<Ledger<'_>> = shares.iter().map(|share| Ledger::new(*share)).collect();
        let started = Instant::now();
        read_back(&self.cluster.bootstrap(), self.topic, &mut ledgers)?;
        let accounts =
            ledgers.into_iter().zip(deliveries).map(|(ledger, d)| ledger.close(&d.offsets));
        let account = accounts.fold(Account::default(), Account::plus);
        let client_outages = [0, 1]
            .map(|fault| longest_pause(deliveries, faults.killed[fault], faults.moved[fault]));
        for (what, outage) in ["controller", "leader"].iter().zip(client_outages) {
            let seconds = outage.as_secs_f64();
            (self.say)(format!(
                "kill of the {what}: the longest pause that a client saw was {seconds:.2} s"
            ));
        }
        (self.say)(format!("read back with kcat in {:.1} s", started.elapsed().as_secs_f64()));
        let Account {
            sent,
            acknowledged,
            read,
            lost,
            duplicated,
            reordered,
            phantom,
            altered,
            misplaced,
            gaps,
        } = account;
        (self.say)(format!("counted: {sent} sent, {acknowledged} acknowledged, {read} read"));
        (self.say)(format!(
            "counted: {lost} lost, {reordered} out of order, {phantom} phantom, {altered} altered, {misplaced} not at \
             the acknowledged offset, {gaps} gaps in the offsets"
        ));
        (self.say)(format!("counted: {duplicated} duplicated"));
        self.compare_replicas().await?;
        let Faults { controller_outage, leader_outage, epochs: controller_epochs, .. } = faults;
        Ok(Findings {
            account,
            controller_outage,
            leader_outage,
            client_outages,
            controller_epochs,
        })
    }

    async fn compare_replicas(&mut self) -> Outcome<()> {
        let log_dirs: Vec<_> = self.cluster.brokers().map(|b| b.log_dir().to_owned()).collect();
        let log_dirs: Vec<_> = log_dirs.iter().map(std::path::PathBuf::as_path).collect();
        let mut difference = String::new();
        let compared = wait_for("all replicas are byte-identical", SETTLE_MAX, || {
            let sizes: Outcome<Vec<usize>> = (0..PARTITIONS)
                .map(|partition| identical(&log_dirs, self.topic, partition))
                .collect();
            let bytes = match sizes {
                Ok(sizes) => Some(sizes.iter().sum::<usize>()),
                Err(error) => {
                    difference = error.to_string();
                    None
                }
            };
            async move { bytes }
        })
        .await;
        let bytes = compared.map_err(|error| Fault::from(format!("{error}: {difference}")))?;
        (self.say)(format!(
            "the data files of the {REPLICAS} replicas are identical, {bytes} bytes each"
        ));
        Ok(())
    }

    /// Id, epoch, and since when.
    async fn controller(&self) -> Outcome<(i32, i64, String)> {
        let (node, epoch) = self.znodes.controller_node().await?.ok_or("there is no controller")?;
        let id = node.data["brokerid"].as_i64().ok_or("/controller names no broker")?;
        // Kafka writes the timestamp as text.
        let at = match &node.data["timestamp"] {
            serde_json::Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        let at = UNIX_EPOCH + Duration::from_millis(at.ok_or("/controller has no timestamp")?);
        Ok((i32::try_from(id)?, epoch, time_of_day(at)))
    }

    /// Leader of each partition.
    async fn leaders(&self) -> Outcome<Vec<i64>> {
        Ok(self.znodes.partitions(self.topic).await?.values().map(|state| state.leader).collect())
    }
}

fn acknowledged(producers: &[Producer<'_>]) -> usize {
    producers.iter().map(|producer| producer.deliveries().offsets.len()).sum()
}

/// The longest pause of any client that lies at least partly between two moments.
fn longest_pause(deliveries: &[Deliveries], from: Instant, to: Instant) -> Duration {
    deliveries
        .iter()
        .flat_map(|deliveries| &deliveries.pauses)
        .filter(|(began, ended)| *ended > from && *began < to)
        .map(|(began, ended)| ended.duration_since(*began))
        .max()
        .unwrap_or_default()
}

/// `HH:MM:SS.mmm` in UTC.
#[must_use]
pub fn time_of_day(at: SystemTime) -> String {
    let ms = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() % 86_400_000;
    format!("{:02}:{:02}:{:02}.{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}
