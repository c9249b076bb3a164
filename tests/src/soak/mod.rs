//! Faults and operators' work of every kind, mixed and at random, under load for as long as one likes; a report of what broke.
//!
//! Idempotent producers at acks=all with min.insync.replicas 2, consumers, and one fault after the other, often before the last
//! one has healed. The settings promise that nothing is lost, doubled, reordered or made up by any of it.

mod faults;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::admin::NewTopic;
use crate::cluster::{Cluster, Options, Preload};
use crate::load::{Plan, Verdict};
use crate::oracles::Promise;
use crate::oracles::healed::until_healed;
use crate::prng::Prng;
use crate::scene::{Examined, Scene};

use faults::Kind;

/// The topic with the load; others come and go beside it.
const TOPIC: &str = "soak";
const PARTITIONS: i32 = 6;
/// One more than replicas, so that there is a place to move to.
const BROKERS: i32 = 4;
const PRODUCERS: usize = 6;

/// What a soak came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where the random choices began.
    pub seed: u64,
    /// How long faults were made.
    pub length: Duration,
    /// How often each fault was made.
    pub faults: BTreeMap<&'static str, u64>,
    /// What became of the records.
    pub verdict: Verdict,
    /// Records that the consumers saw while the faults were made.
    pub seen: u64,
    /// Elections of partition leaders that were noticed.
    pub elections: u64,
    /// Elections of controllers.
    pub controllers: i64,
    /// Longest time in which a producer was acknowledged nothing.
    pub longest_pause: Duration,
    /// Longest wait for everything to be as before after a fault was lifted, of those that were waited for.
    pub longest_healing: Duration,
    /// Broken promises.
    pub broken: Vec<String>,
}

impl Report {
    /// Whether every promise held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.broken.is_empty() && self.verdict.holds()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Verdict { acked, lost, misplaced, phantom, duplicated, reordered, restarts, .. } =
            self.verdict;
        let seconds = self.length.as_secs_f64();
        let faults: u64 = self.faults.values().sum();
        writeln!(f, "seed {}: {faults} faults in {seconds:.0} s", self.seed)?;
        for (name, times) in &self.faults {
            writeln!(f, "  {times:>5}  {name}")?;
        }
        writeln!(f, "acknowledged {acked} records; consumers saw {} meanwhile", self.seen)?;
        writeln!(
            f,
            "elections: {} of partition leaders, {} of controllers",
            self.elections, self.controllers
        )?;
        writeln!(
            f,
            "longest pause of a producer {:.1} s, longest healing {:.1} s",
            self.longest_pause.as_secs_f64(),
            self.longest_healing.as_secs_f64()
        )?;
        writeln!(
            f,
            "lost {lost}, duplicated {duplicated}, reordered {reordered}, phantom {phantom}, misplaced {misplaced}, \
             sequences lost {restarts}"
        )?;
        self.broken.iter().try_for_each(|broken| writeln!(f, "BROKEN: {broken}"))
    }
}

/// Makes faults for so long, then lets everything heal and judges.
///
/// # Errors
/// The cluster does not start, or does not heal within a bound: the text says after which fault.
pub async fn run(
    length: Duration,
    seed: u64,
    say: &mut (dyn FnMut(String) + Send),
) -> Outcome<Report> {
    let cluster = Cluster::start(Options {
        brokers: BROKERS,
        session_timeout_ms: 2_000,
        proxied: true,
        preload: Preload::Faults,
        ..Options::default()
    })
    .await?;
    let configs =
        &[("min.insync.replicas", "2"), ("flush.ms", "500"), ("segment.bytes", "1048576")];
    let topic = NewTopic { name: TOPIC, partitions: PARTITIONS, replication_factor: 3, configs };
    let mut scene = Scene::on(cluster, &[topic], Promise::Kept).await?;
    let plan =
        Plan { producers: PRODUCERS, seed, paced: true, idempotent: true, ..Plan::default() };
    scene.load_with(TOPIC, plan).await?;
    let first_epoch = scene.znodes.controller_epoch().await?.unwrap_or(0);

    let mut prng = Prng::new(seed);
    let mut done = BTreeMap::new();
    let mut longest_healing = Duration::ZERO;
    let began = Instant::now();
    let mut number = 0;
    while began.elapsed() < length {
        number += 1;
        let kind = Kind::choose(&mut prng);
        let mut heal = async |scene: &mut Scene, what: &str| {
            let lifted = Instant::now();
            let healed = until_healed(&mut scene.cluster, TOPIC).await;
            longest_healing = longest_healing.max(lifted.elapsed());
            healed.map_err(|error| {
                format!("{what} fault {number} ({}), seed {seed}: {error}", kind.name())
            })
        };
        // A second replica must not lose its tail while the first one is away with its own.
        if kind.loses_a_tail() {
            heal(&mut scene, "before").await?;
        }
        let what = kind
            .make(&mut scene, &mut prng, number)
            .await
            .map_err(|error| format!("fault {number} ({}), seed {seed}: {error}", kind.name()))?;
        *done.entry(kind.name()).or_default() += 1;
        say(format!("{number}: {what}"));
        if kind.loses_a_tail() || prng.one_in(2) {
            heal(&mut scene, "after").await?;
            scene.progress(1).await?;
        }
        if let [first, ..] = &scene.oracles.faults()[..] {
            say(format!("BROKEN: {first}"));
            break;
        }
    }
    let length = began.elapsed();
    scene.znodes = scene.cluster.znodes().await?;
    until_healed(&mut scene.cluster, TOPIC).await?;
    let controllers = scene.znodes.controller_epoch().await?.unwrap_or(0) - first_epoch;
    let Examined { verdict, accounts, faults: broken, seen, elections } = scene.examine().await?;
    let pauses = accounts.iter().map(|account| account.longest_pause());
    Ok(Report {
        seed,
        length,
        faults: done,
        verdict,
        seen,
        elections,
        controllers,
        longest_pause: pauses.max().unwrap_or_default(),
        longest_healing,
        broken,
    })
}
