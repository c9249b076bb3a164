//! The ledger against an independent client: faults at random over acks and flush modes, on one cluster, a topic each. Whatever a client
//! was acknowledged and cannot read back must lie in a range of the ledger, and the range's class must be told and not contradict the client.

mod evidence;
mod faults;
mod judge;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Outcome;
use crate::admin::NewTopic;
use crate::cluster::{Cluster, Options, Preload, SETTLE_MAX, run_program};
use crate::load::{Load, Plan, Target};
use crate::prng::Prng;
use crate::wait::{pass, wait_for};
use evidence::{Entry, Evidence};
use faults::{Fault, Unanswered};
use judge::{Verdicts, judge};

/// Partitions of a run's topic, and producers, one each.
const PARTITIONS: i32 = 4;
/// Batches that are acknowledged in a run before the fault: at least this, and up to so many more.
const BATCHES_MIN: u64 = 40;
const BATCHES_MORE: u64 = 160;
/// How long the ledger may take to have what was lost, on every broker.
const TOLD_MAX: Duration = Duration::from_secs(15);

/// What many runs came to.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Runs that were done.
    pub runs: u64,
    /// Records that a client was acknowledged.
    pub acked: u64,
    /// Records of those that cannot be read back; at acks=0 those that a replica had had.
    pub lost: u64,
    /// Lost records that no entry of the ledger names.
    pub unnamed: u64,
    /// Lost records that an entry with an end names; an open one says only from where on something may be lost.
    pub bounded: u64,
    /// Lost records of which a class is told that does not contradict the client.
    pub right: u64,
    /// The ledger contradicts what the client was told.
    pub wrong: u64,
    /// The ledger says that it does not know what they had been acknowledged at.
    pub unknown: u64,
    /// Runs in which something was lost, by fault.
    pub losing: BTreeMap<&'static str, u64>,
    /// Runs of which the ledger does not know everything, with what it has.
    pub open: Vec<String>,
    /// What must not be, one sentence each.
    pub faults: Vec<String>,
}

/// How a run's topic is configured, and what befalls it.
#[derive(Clone, Copy, Debug)]
struct Case {
    number: u64,
    acks: i16,
    sync: bool,
    fault: Fault,
}

impl Case {
    /// Every combination comes round in turn, whatever the number of runs; the rest is at random.
    fn of(number: u64) -> Self {
        let acks = [1, -1, 0][(number % 3) as usize];
        let fault = Fault::ALL[(number % 4) as usize];
        Self { number, acks, sync: number / 12 % 2 == 1, fault }
    }

    fn name(self) -> String {
        let acks = if self.acks == -1 { "all".to_owned() } else { self.acks.to_string() };
        let flush = if self.sync { "sync" } else { "async" };
        format!("run {}: {}, acks={acks}, flush.mode={flush}", self.number, self.fault.name())
    }
}

/// Runs so many cases from the first on.
///
/// # Errors
/// The cluster does not start, or does not heal.
pub async fn run(runs: u64, seed: u64, say: &mut (dyn FnMut(String) + Send)) -> Outcome<Totals> {
    let mut cluster = Cluster::start(Options {
        session_timeout_ms: 1_500,
        proxied: true,
        preload: Preload::Journal,
        // Leaders stay where a fault has put them; no follower leaves an ISR because this machine is busy.
        config: "replica.lag.time.max.ms: 10000\nauto.leader.rebalance.enable: false\n".to_owned(),
        ..Options::default()
    })
    .await?;
    let mut prng = Prng::new(seed);
    let mut totals = Totals::default();
    for number in 0..runs {
        let case = Case::of(number);
        let began = Instant::now();
        let done = one(case, &mut cluster, &mut prng, &mut totals).await;
        let said = done.map_err(|error| format!("{}, seed {seed}: {error}", case.name()))?;
        totals.runs += 1;
        say(format!("{}: {said}; {:.1} s", case.name(), began.elapsed().as_secs_f64()));
    }
    Ok(totals)
}

async fn one(
    case: Case,
    cluster: &mut Cluster,
    prng: &mut Prng,
    totals: &mut Totals,
) -> Outcome<String> {
    let topic = format!("run-{}", case.number);
    let unclean = if case.fault == Fault::Unclean { "true" } else { "false" };
    let configs = [
        ("min.insync.replicas", "1"),
        ("unclean.leader.election.enable", unclean),
        ("flush.mode", if case.sync { "sync" } else { "async" }),
    ];
    let new =
        NewTopic { name: &topic, partitions: PARTITIONS, replication_factor: 3, configs: &configs };
    cluster.admin().await?.create_topic(new).await?;
    cluster.until_healed(&topic, 3).await?;
    let target =
        Target { bootstrap: cluster.bootstrap(), topic: topic.clone(), partitions: PARTITIONS };
    let mut evidence = Evidence::new(&topic, PARTITIONS);
    if case.acks == 0 {
        let sender = Unanswered::start(&target, usize::try_from(case.number)?);
        pass(Duration::from_millis(500 + prng.below(1_000))).await;
        case.fault.make(cluster, &topic, prng, &mut evidence).await?;
        sender.stop().await?;
    } else {
        let plan = Plan {
            producers: usize::try_from(PARTITIONS)?,
            first: 0,
            seed: prng.next_u64(),
            acks: case.acks,
            paced: false,
            idempotent: false,
        };
        let load = Load::start_with(&target, plan);
        let enough = BATCHES_MIN + prng.below(BATCHES_MORE);
        let many = || async { (load.batches().iter().sum::<u64>() >= enough).then_some(()) };
        wait_for("batches are acknowledged", SETTLE_MAX, many).await?;
        case.fault.make(cluster, &topic, prng, &mut evidence).await?;
        evidence.acknowledged(&load.stop().await?);
    }
    cluster.until_healed(&topic, 3).await?;
    evidence.read_back(&target.bootstrap)?;
    // What a sync mode's log drops above its flushed end was acknowledged to nobody, and is not promised to be told.
    let promised = !(case.acks == 0 && case.sync && case.fault == Fault::PowerCut);
    let lost = if promised { evidence.lost(case.acks) } else { Vec::new() };
    let mut entries = Vec::new();
    let mut unnamed = lost.len();
    for id in 1..=3 {
        // Every broker answers for all.
        let until = Instant::now() + TOLD_MAX;
        loop {
            entries = ledger(cluster, id, &topic).await?;
            unnamed = lost.iter().filter(|at| !entries.iter().any(|e| e.names(**at))).count();
            if unnamed == 0 || Instant::now() > until {
                break;
            }
            crate::wait::next_look().await;
        }
        if unnamed > 0 {
            let first = lost.iter().find(|at| !entries.iter().any(|e| e.names(**at)));
            totals.faults.push(format!(
                "{}: broker {id} names {unnamed} of {} lost records nowhere, the first {first:?}; it has {entries:?}",
                case.name(),
                lost.len()
            ));
            break;
        }
    }
    let Verdicts { right, wrong, unknown, bounded } = judge(case.acks, &lost, &entries);
    if unknown > 0 {
        totals.open.push(format!(
            "{}: {unknown} of {} unknown: {entries:?}",
            case.name(),
            lost.len()
        ));
    }
    // Also where nothing was lost: nobody asked for acks=1.
    let odd = case.acks != 1 && entries.iter().any(|e| e.class == "acks=1");
    if wrong > 0 || odd {
        totals.faults.push(format!("{}: wrong classes: {entries:?}", case.name()));
    }
    let acked = evidence.acked();
    totals.acked += acked;
    totals.lost += lost.len() as u64;
    totals.unnamed += unnamed as u64;
    (totals.right, totals.wrong) = (totals.right + right, totals.wrong + wrong);
    totals.unknown += unknown;
    totals.bounded += bounded;
    if !lost.is_empty() {
        *totals.losing.entry(case.fault.name()).or_default() += 1;
    }
    cluster.admin().await?.delete_topic(&topic).await?;
    Ok(format!(
        "{acked} acked, {} lost, {unnamed} unnamed, {bounded} in a range with an end; classes: {right} right, {wrong} wrong, {unknown} unknown; {} entries",
        lost.len(),
        entries.len()
    ))
}

async fn ledger(cluster: &Cluster, id: i32, topic: &str) -> Outcome<Vec<Entry>> {
    let admin = cluster.admin_address(id);
    let words = ["ledger", "list", "--topic", topic, "--json", "--admin", &admin];
    let output = run_program(&words).await?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).map_err(|_| said())?;
    listed
        .iter()
        .map(|one| Entry::of(one).ok_or_else(|| format!("not an entry: {one}").into()))
        .collect()
}

/// A load without faults: neither a loss nor a change of a leader. How many batches were acknowledged.
///
/// # Errors
/// There is an entry in the ledger, or a leader has changed.
pub async fn idle(minutes: u64) -> Outcome<u64> {
    let mut cluster = Cluster::start(Options {
        session_timeout_ms: 18_000,
        config: String::new(),
        ..Options::default()
    })
    .await?;
    let configs = [("min.insync.replicas", "2")];
    let new =
        NewTopic { name: "calm", partitions: PARTITIONS, replication_factor: 3, configs: &configs };
    cluster.admin().await?.create_topic(new).await?;
    cluster.until_healed("calm", 3).await?;
    let target =
        Target { bootstrap: cluster.bootstrap(), topic: "calm".to_owned(), partitions: PARTITIONS };
    let znodes = cluster.znodes().await?;
    let epochs = || async {
        let states = znodes.partitions("calm").await?;
        Outcome::Ok(states.into_values().map(|state| state.leader_epoch).collect::<Vec<_>>())
    };
    let before = epochs().await?;
    let plan = Plan { producers: 2, first: 0, seed: 1, acks: -1, paced: true, idempotent: true };
    let all = Load::start_with(&target, plan);
    let one = Load::start_with(&target, Plan { first: 2, acks: 1, idempotent: false, ..plan });
    pass(Duration::from_secs(60 * minutes)).await;
    let batches = all.batches().iter().chain(&one.batches()).sum();
    all.stop().await?;
    one.stop().await?;
    for id in 1..=3 {
        let entries = ledger(&cluster, id, "calm").await?;
        if !entries.is_empty() {
            return Err(format!("no fault, and broker {id} tells of losses: {entries:?}").into());
        }
    }
    let after = epochs().await?;
    cluster.brokers().try_for_each(|broker| broker.refuse_ended())?;
    if after == before {
        Ok(batches)
    } else {
        Err(format!("no fault, and leaders changed: {before:?}, then {after:?}").into())
    }
}
