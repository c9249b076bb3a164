//! Power cuts of all brokers at once, again and again, under load: what is lost of what was acknowledged.
//!
//! ZooKeeper keeps its power. With `flush.mode=sync` nothing may be lost; with `async` no more than `flush.messages` and
//! `flush.ms` let stand unflushed; and with syncs that only say that they are done the first must fail, or it shows nothing.

use std::time::{Duration, Instant, SystemTime};

use crate::Outcome;
use crate::admin::NewTopic;
use crate::cluster::{Cluster, Options, Preload, SETTLE_MAX};
use crate::load::{self, Account, Load, Target, Verdict};
use crate::losses;
use crate::power::{self, Loss};
use crate::prng::Prng;
use crate::shim::Op;
use crate::wait::wait_for;

const TOPIC: &str = "power";
/// Partitions in sync mode, and producers of the rounds by turns: one sync covers one file, some, or many.
const SYNC_PARTITIONS: i32 = 32;
const SYNC_PRODUCERS: [usize; 3] = [8, 40, 1];
/// In async mode few partitions, so that `flush.messages` of one is reached.
const ASYNC_PARTITIONS: i32 = 4;
const ASYNC_PRODUCERS: usize = 8;
/// Batches that are acknowledged in a round before the cut: at least this, and up to so many more.
const BATCHES_MIN: u64 = 200;
const BATCHES_MORE: u64 = 1_500;
/// `flush.messages` and `flush.ms` of the async kind.
const FLUSH_MESSAGES: u64 = 2_000;
const FLUSH_MS: u64 = 400;
/// How late a flush may be on a machine that also compiles, and how long one may take.
const FLUSH_LATE_MAX: Duration = Duration::from_millis(1_500);
/// `segment.bytes`: in sync mode small, so that segments roll in every round; in async mode large, for a roll flushes.
const SEGMENT_BYTES: [&str; 2] = ["262144", "67108864"];

/// What is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `flush.mode=sync`.
    Sync,
    /// `flush.mode=async`.
    Async,
    /// `flush.mode=sync` on a disk whose syncs do nothing: the negative control.
    NoFsync,
}

impl Kind {
    /// As it is typed.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::NoFsync => "no-fsync",
        }
    }
}

/// What all rounds of a kind came to.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Rounds that were done.
    pub rounds: u64,
    /// Records acknowledged.
    pub acked: u64,
    /// Records acknowledged and lost.
    pub lost: u64,
    /// Records that were read and should not be: twice, elsewhere, or altered.
    pub wrong: u64,
    /// Producers that found their sequence gone.
    pub restarts: u64,
    /// What the cuts took.
    pub cut: Loss,
    /// Calls of `fdatasync`, `fsync` and `syncfs`.
    pub syncs: [u64; 3],
    /// What must not be, one sentence each.
    pub faults: Vec<String>,
}

/// Runs some rounds of a kind on a cluster of its own. A fault is noted and the rounds go on.
///
/// # Errors
/// The cluster does not start, or does not come back within the deadline.
pub async fn run(
    kind: Kind,
    rounds: u64,
    seed: u64,
    say: &mut (dyn FnMut(String) + Send),
) -> Outcome<Totals> {
    let mut cluster = Cluster::start(Options {
        session_timeout_ms: 1_500,
        preload: Preload::Journal,
        ..Options::default()
    })
    .await?;
    if kind == Kind::NoFsync {
        for broker in cluster.brokers() {
            broker.shim().rules(&["noop sync"])?;
        }
    }
    let flush_messages = FLUSH_MESSAGES.to_string();
    let flush_ms = FLUSH_MS.to_string();
    let segment_bytes = SEGMENT_BYTES[usize::from(kind == Kind::Async)];
    let mut configs = vec![("min.insync.replicas", "2"), ("segment.bytes", segment_bytes)];
    match kind {
        Kind::Sync | Kind::NoFsync => configs.push(("flush.mode", "sync")),
        Kind::Async => {
            configs.extend([("flush.messages", &*flush_messages), ("flush.ms", &*flush_ms)]);
        }
    }
    let partitions = if kind == Kind::Async { ASYNC_PARTITIONS } else { SYNC_PARTITIONS };
    let topic = NewTopic { name: TOPIC, partitions, replication_factor: 3, configs: &configs };
    cluster.admin().await?.create_topic(topic).await?;
    cluster.until_healed(TOPIC, 3).await?;
    let target = Target { bootstrap: cluster.bootstrap(), topic: TOPIC.to_owned(), partitions };

    let mut prng = Prng::new(seed);
    let mut totals = Totals::default();
    let mut accounts: Vec<Account> = Vec::new();
    for round in 1..=rounds {
        let done = Round { kind, target: &target, number: round }
            .run(&mut cluster, &mut prng, &mut accounts)
            .await
            .map_err(|error| format!("{} round {round}, seed {seed}: {error}", kind.name()))?;
        say(format!("{} round {round}: {done}", kind.name()));
        totals.rounds += 1;
        totals.acked += done.acked_now;
        totals.lost += done.verdict.lost;
        totals.wrong += done.verdict.wrong();
        totals.restarts += done.restarts_now;
        totals.cut = totals.cut.plus(done.cut);
        totals.faults.extend(done.faults);
    }
    for broker in cluster.brokers() {
        for (sum, op) in totals.syncs.iter_mut().zip([Op::Fdatasync, Op::Fsync, Op::Syncfs]) {
            *sum += broker.shim().calls(op)?;
        }
    }
    Ok(totals)
}

struct Round<'a> {
    kind: Kind,
    target: &'a Target,
    number: u64,
}

struct Done {
    verdict: Verdict,
    acked_now: u64,
    restarts_now: u64,
    cut: Loss,
    healed_in: Duration,
    faults: Vec<String>,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} acked ({} in all), {} lost, {} wrong; the cut took {} B, {} sectors and {} names; back in {:.1} s",
            self.acked_now,
            self.verdict.acked,
            self.verdict.lost,
            self.verdict.wrong(),
            self.cut.bytes,
            self.cut.torn_sectors,
            self.cut.names,
            self.healed_in.as_secs_f64(),
        )?;
        self.faults.iter().try_for_each(|fault| write!(f, "; {fault}"))
    }
}

impl Round<'_> {
    async fn run(
        &self,
        cluster: &mut Cluster,
        prng: &mut Prng,
        accounts: &mut Vec<Account>,
    ) -> Outcome<Done> {
        let producers = match self.kind {
            Kind::Async => ASYNC_PRODUCERS,
            Kind::Sync | Kind::NoFsync => {
                SYNC_PRODUCERS[usize::try_from(self.number)? % SYNC_PRODUCERS.len()]
            }
        };
        let load = Load::start(self.target, producers, accounts.len(), prng.next_u64());
        let enough = BATCHES_MIN + prng.below(BATCHES_MORE);
        let started = Instant::now();
        // Records older than what may be lost, too.
        let long = match self.kind {
            Kind::Async => Duration::from_millis(FLUSH_MS) + FLUSH_LATE_MAX * 2,
            Kind::Sync | Kind::NoFsync => Duration::ZERO,
        };
        let acked = || async {
            let many = load.batches().iter().sum::<u64>() >= enough;
            (many && started.elapsed() >= long).then_some(())
        };
        let trouble = |error| format!("{error}; a producer was told: {}", load.trouble());
        wait_for("batches are acknowledged", SETTLE_MAX, acked).await.map_err(trouble)?;
        let killed_at = Instant::now();
        cluster.kill_all().await?;
        let mut cut = Loss::default();
        for broker in cluster.brokers() {
            let roots = broker.config().log_dirs.clone();
            cut = cut.plus(power::cut(&roots, broker.shim().journal()?, prng.next_u64())?);
        }
        let before = load.batches();
        let (restarted_at, cut_at) = (Instant::now(), SystemTime::now());
        cluster.start_all()?;
        wait_for("every producer is acknowledged again", SETTLE_MAX, || async {
            load.batches().iter().zip(&before).all(|(now, before)| now > before).then_some(())
        })
        .await
        .map_err(trouble)?;
        cluster.until_healed(TOPIC, 3).await?;
        let healed_in = restarted_at.elapsed();
        let new = load.stop().await?;
        let acked_now = new.iter().flat_map(|account| &account.acked).map(|a| a.count).sum();
        let restarts_now = new.iter().map(|account| account.restarts).sum();
        accounts.extend(new);
        let verdict = load::judge(self.target, accounts)?;
        let mut faults = self.faults(&verdict, restarts_now, (killed_at, restarted_at));
        if self.kind == Kind::Async {
            faults.extend(unnamed(cluster, &verdict, cut_at)?);
        }
        // What is lost is told once.
        load::forget(accounts, &verdict);
        Ok(Done { verdict, acked_now, restarts_now, cut, healed_in, faults })
    }

    fn faults(
        &self,
        verdict: &Verdict,
        restarts: u64,
        (killed_at, restarted_at): (Instant, Instant),
    ) -> Vec<String> {
        let mut faults = Vec::new();
        let mut wrong = |fault: String| faults.push(format!("round {}: {fault}", self.number));
        if verdict.misplaced + verdict.phantom > 0 {
            wrong(format!("{} misplaced, {} phantom", verdict.misplaced, verdict.phantom));
        }
        if self.kind == Kind::Async {
            for (partition, lost) in &verdict.lost_offsets {
                let early = |(_, at): &&(i64, Instant)| *at + FLUSH_LATE_MAX < killed_at;
                let too_early = |(_, at): &&(i64, Instant)| {
                    *at + Duration::from_millis(FLUSH_MS) + FLUSH_LATE_MAX < killed_at
                };
                let after = lost.iter().filter(|(_, at)| *at > restarted_at).count();
                let old = lost.iter().filter(too_early).count();
                let many = lost.iter().filter(early).count() as u64;
                if after + old > 0 || many > FLUSH_MESSAGES {
                    wrong(format!(
                        "partition {partition} lost {} records: {old} older than flush.ms allows, {many} \
                         beyond the last moment (flush.messages {FLUSH_MESSAGES}), {after} acked after the cut",
                        lost.len()
                    ));
                }
            }
        } else {
            if verdict.lost > 0 {
                wrong(format!("lost {:?}", ranges(verdict)));
            }
            if verdict.duplicated + restarts > 0 {
                wrong(format!(
                    "idempotent producers: {} records twice, {restarts} began anew",
                    verdict.duplicated
                ));
            }
        }
        faults
    }
}

/// Every lost record must be named by a loss record that a broker wrote after the cut.
fn unnamed(cluster: &mut Cluster, verdict: &Verdict, cut_at: SystemTime) -> Outcome<Vec<String>> {
    let mut named = Vec::new();
    for broker in cluster.brokers() {
        let records = losses::of(&broker.config().log_dirs)?;
        named.extend(records.into_iter().filter(|loss| loss.at >= cut_at));
    }
    let mut faults = Vec::new();
    for (partition, lost) in &verdict.lost_offsets {
        let of_partition: Vec<_> =
            named.iter().filter(|loss| loss.partition == *partition).collect();
        let is_named = |(offset, _): &&(i64, Instant)| {
            of_partition.iter().any(|loss| loss.names(TOPIC, *partition, *offset))
        };
        let missing: Vec<i64> =
            lost.iter().filter(|l| !is_named(l)).map(|(offset, _)| *offset).collect();
        if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
            faults.push(format!(
                "no loss record names {} lost records of partition {partition}, {first}..={last}; there are {of_partition:?}",
                missing.len()
            ));
        }
    }
    Ok(faults)
}

/// Lost offsets as `partition: first..=last (count)`.
fn ranges(verdict: &Verdict) -> Vec<String> {
    let shown = |(partition, lost): (&i32, &Vec<(i64, Instant)>)| {
        let (first, last) = (lost.first()?.0, lost.last()?.0);
        Some(format!("{partition}: {first}..={last} ({})", lost.len()))
    };
    verdict.lost_offsets.iter().filter_map(shown).collect()
}
