//! A cluster with topics, all oracles on, and producers at work: what a fault scenario begins and ends with.

use std::time::Duration;

use crate::admin::NewTopic;
use crate::client::Client;
use crate::cluster::{Cluster, Options, SETTLE_MAX};
use crate::load::{Account, Load, Plan, Target, Verdict};
use crate::oracles::{Oracles, Promise};
use crate::sessions;
use crate::wait::wait_for;
use crate::znodes::{PartitionNode, Znodes};
use crate::{Fault, Outcome};

/// How long a broker may take to answer before it is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Kafka's OFFSET_NOT_AVAILABLE: the leader's high watermark has not reached the start of its epoch.
const OFFSET_NOT_AVAILABLE: i16 = 78;

/// How many times a scenario repeats its fault: so often, times `BARNABAS_ROUNDS` for a longer run by hand.
#[must_use]
pub fn rounds(usual: u32) -> u32 {
    let given = std::env::var("BARNABAS_ROUNDS").ok().and_then(|text| text.parse().ok());
    usual * given.unwrap_or(1).max(1)
}

/// What a scenario came to.
#[derive(Debug)]
pub struct Examined {
    /// What became of the records.
    pub verdict: Verdict,
    /// What each producer did.
    pub accounts: Vec<Account>,
    /// Broken promises.
    pub faults: Vec<String>,
    /// Records that consumers saw meanwhile.
    pub seen: u64,
    /// Elections of partition leaders that were noticed.
    pub elections: u64,
}

/// The stage of one scenario.
#[derive(Debug)]
pub struct Scene {
    /// The cluster.
    pub cluster: Cluster,
    /// A witness in ZooKeeper; make a new one after ZooKeeper was away.
    pub znodes: Znodes,
    /// What everything is judged by.
    pub oracles: Oracles,
    running: Vec<(Target, Load)>,
    done: Vec<(Target, Vec<Account>)>,
    producers: usize,
}

impl Scene {
    /// Starts a cluster and creates topics in it.
    ///
    /// # Errors
    /// What does not start.
    pub async fn start(options: Options, topics: &[NewTopic<'_>]) -> Outcome<Self> {
        Self::on(Cluster::start(options).await?, topics, Promise::Kept).await
    }

    /// Creates topics in a cluster and begins to watch them.
    ///
    /// # Errors
    /// They are not created, or not in sync within the deadline.
    pub async fn on(cluster: Cluster, topics: &[NewTopic<'_>], promise: Promise) -> Outcome<Self> {
        let admin = cluster.admin().await?;
        for topic in topics {
            admin.create_topic(topic.clone()).await?;
        }
        let names: Vec<&str> = topics.iter().map(|topic| topic.name).collect();
        for topic in topics {
            cluster.until_healed(topic.name, usize::try_from(topic.replication_factor)?).await?;
        }
        Self::with(cluster, &names, promise).await
    }

    /// Begins to watch topics that exist.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn with(cluster: Cluster, topics: &[&str], promise: Promise) -> Outcome<Self> {
        let oracles = Oracles::watch(&cluster, topics, promise).await?;
        let znodes = cluster.znodes().await?;
        Ok(Self { cluster, znodes, oracles, running: vec![], done: vec![], producers: 0 })
    }

    /// Starts producers at acks=all on a topic, and waits until each has been acknowledged.
    ///
    /// # Errors
    /// They are not within the deadline.
    pub async fn load(&mut self, topic: &str, producers: usize) -> Outcome<()> {
        self.load_with(topic, Plan { producers, ..Plan::default() }).await
    }

    /// The same on other terms; the numbers of the producers follow from those before.
    ///
    /// # Errors
    /// They are not acknowledged within the deadline.
    pub async fn load_with(&mut self, topic: &str, plan: Plan) -> Outcome<()> {
        let partitions = i32::try_from(self.znodes.partitions(topic).await?.len())?;
        let target =
            Target { bootstrap: self.cluster.bootstrap(), topic: topic.to_owned(), partitions };
        let first = self.producers;
        self.producers += plan.producers;
        let seed = plan.seed ^ first as u64;
        let load = Load::start_with(&target, Plan { first, seed, ..plan });
        self.running.push((target, load));
        self.progress(1).await
    }

    /// Waits until each producer has been acknowledged so many batches more.
    ///
    /// # Errors
    /// They are not within the deadline; the text says what a producer was told last.
    pub async fn progress(&self, batches: u64) -> Outcome<()> {
        let now = || self.running.iter().flat_map(|(_, load)| load.batches());
        let wanted: Vec<u64> = now().map(|before| before + batches).collect();
        let made = wait_for("every producer makes progress", SETTLE_MAX, || async {
            now().zip(&wanted).all(|(now, wanted)| now >= *wanted).then_some(())
        });
        made.await.map_err(|error| {
            let told: Vec<String> = self.running.iter().map(|(_, load)| load.trouble()).collect();
            Fault::from(format!("{error}; producers were told: {told:?}"))
        })
    }

    /// How often producers were refused or got no answer so far, and what one was told last.
    #[must_use]
    pub fn errors(&self) -> (u64, String) {
        let told = |(_, load): &(Target, Load)| load.trouble();
        let errors = self.running.iter().map(|(_, load)| load.errors()).sum();
        (errors, self.running.iter().map(told).collect::<Vec<_>>().join("; "))
    }

    /// Lets the producers finish what they have in hand.
    ///
    /// # Errors
    /// A producer panicked.
    pub async fn still(&mut self) -> Outcome<()> {
        for (target, load) in self.running.drain(..) {
            self.done.push((target, load.stop().await?));
        }
        Ok(())
    }

    /// The last fault is lifted: stops the producers, waits until everything has healed, and judges.
    ///
    /// # Errors
    /// Something does not heal, or a promise is broken.
    pub async fn finish(self) -> Outcome<(Verdict, Vec<Account>)> {
        let Examined { verdict, accounts, faults, .. } = self.examine().await?;
        if faults.is_empty() { Ok((verdict, accounts)) } else { Err(faults.join("\n").into()) }
    }

    /// The same, where broken promises are counted and not an error.
    ///
    /// # Errors
    /// Something does not heal.
    pub async fn examine(mut self) -> Outcome<Examined> {
        self.still().await?;
        // Several loads on one topic are read back together.
        let mut loads: Vec<(Target, Vec<Account>)> = Vec::new();
        for (target, accounts) in self.done {
            match loads.iter_mut().find(|(known, _)| known.topic == target.topic) {
                Some((_, all)) => all.extend(accounts),
                None => loads.push((target, accounts)),
            }
        }
        let (seen, elections) = (self.oracles.seen(), self.oracles.elections());
        let (verdict, faults) = self.oracles.examine(&mut self.cluster, &loads).await?;
        let accounts = loads.into_iter().flat_map(|(_, accounts)| accounts).collect();
        Ok(Examined { verdict, accounts, faults, seen, elections })
    }

    /// Stored state of a partition.
    ///
    /// # Errors
    /// ZooKeeper does not answer, or there is none.
    pub async fn state(&self, topic: &str, partition: i32) -> Outcome<PartitionNode> {
        let mut states = self.znodes.partitions(topic).await?;
        Ok(states.remove(&partition).ok_or("no such partition")?)
    }

    /// Waits until a partition's stored state is as wanted.
    ///
    /// # Errors
    /// It is not within the deadline; the text shows what it is.
    pub async fn until(
        &self,
        what: &str,
        (topic, partition): (&str, i32),
        wanted: impl Fn(&PartitionNode) -> bool,
    ) -> Outcome<PartitionNode> {
        let reached = wait_for(what, SETTLE_MAX, || async {
            self.state(topic, partition).await.ok().filter(&wanted)
        });
        match reached.await {
            Ok(state) => Ok(state),
            Err(error) => {
                let state = self.state(topic, partition).await?;
                Err(format!("{error}; stored: {state:?}").into())
            }
        }
    }

    /// Id of the controller.
    ///
    /// # Errors
    /// There is none.
    pub async fn controller(&self) -> Outcome<i32> {
        let (id, _) = self.znodes.controller().await?.ok_or("there is no controller")?;
        Ok(i32::try_from(id)?)
    }

    /// SIGKILL, and the end of its session at once: the others need not wait for the timeout.
    ///
    /// # Errors
    /// It does not run, or ZooKeeper does not answer.
    pub async fn kill_and_expire(&mut self, broker: i32) -> Outcome<()> {
        self.cluster.broker(broker).kill().await?;
        sessions::expire_broker(self.cluster.zookeeper_connect(), &self.znodes, broker).await
    }

    /// Starts a broker and waits until the whole topic is in sync again.
    ///
    /// # Errors
    /// It is not within the deadline.
    pub async fn start_and_heal(&mut self, broker: i32, topic: &str) -> Outcome<()> {
        self.cluster.broker(broker).start()?;
        crate::oracles::healed::until_healed(&mut self.cluster, topic).await
    }

    /// A client at the broker's own listener, not at a proxy before it.
    ///
    /// # Errors
    /// Nobody listens.
    pub async fn client(&mut self, broker: i32) -> Outcome<Client> {
        Client::connect(&self.cluster.broker(broker).config().listener.to_string()).await
    }

    /// Waits until each of these brokers is registered, and under a session that is not one of `old`.
    ///
    /// # Errors
    /// They are not within the deadline.
    pub async fn until_registered_anew(&self, old: &[(i32, i64)]) -> Outcome<()> {
        for (broker, session) in old {
            let what = format!("broker {broker} is registered anew");
            let path = format!("/brokers/ids/{broker}");
            wait_for(&what, SETTLE_MAX, || async {
                let node = self.znodes.read(&path).await.ok()??;
                (node.ephemeral_owner != *session).then_some(())
            })
            .await?;
        }
        Ok(())
    }

    /// Session of each registered broker.
    ///
    /// # Errors
    /// ZooKeeper does not answer.
    pub async fn sessions(&self) -> Outcome<Vec<(i32, i64)>> {
        let mut found = Vec::new();
        for id in self.znodes.brokers().await? {
            if let Some(node) = self.znodes.read(&format!("/brokers/ids/{id}")).await? {
                found.push((i32::try_from(id)?, node.ephemeral_owner));
            }
        }
        Ok(found)
    }
}

/// Waits until a broker leads a partition in its own eyes: it answers for it as a leader does. The end of the partition.
///
/// # Errors
/// It does not within the deadline.
pub async fn until_serves(address: &str, topic: &str, partition: i32) -> Outcome<i64> {
    wait_for(&format!("{address} serves {topic}-{partition}"), SETTLE_MAX, || async {
        let mut client = Client::connect(address).await.ok()?;
        let ask = client.end_offset(topic, partition);
        tokio::time::timeout(ANSWER_MAX, ask).await.ok()?.ok()
    })
    .await
}

/// Waits until a broker leads a partition in its own eyes, though it may not yet say where the partition ends: too few may be
/// in sync for that.
///
/// # Errors
/// It does not within the deadline.
pub async fn until_leads(address: &str, topic: &str, partition: i32) -> Outcome<()> {
    wait_for(&format!("{address} leads {topic}-{partition}"), SETTLE_MAX, || async {
        let mut client = Client::connect(address).await.ok()?;
        let ask = client.latest(topic, partition, -1);
        match tokio::time::timeout(ANSWER_MAX, ask).await.ok()?.ok()? {
            Ok(_) | Err(OFFSET_NOT_AVAILABLE) => Some(()),
            Err(_) => None,
        }
    })
    .await
}
