//! `barnabas bench failover`: what clients see when brokers of a loaded cluster are killed, stopped in order, paused or stand still,
//! beside what the timeline says of it.

mod cluster;
mod figures;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use barnabas_broker::clock::unix_ms;
use barnabas_clients::outage::{Load, Terms};
use barnabas_proto::convert::failover_json;
use barnabas_proto::v1::{Failover, Partition};
use clap::Args;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::refused;
use crate::cli::ask::pause;
use crate::cli::{CliError, key_value, of_client};
use cluster::{ASK_INTERVAL, BROKERS, LOOK_INTERVAL, OwnCluster};
use figures::Outages;

const TOPIC: &str = "failover";
/// Partitions to which the producer sends; the others are led, and moved, like these.
const WATCHED: i32 = 12;
/// How long a paused leader stands still: too short for anybody to take it for dead.
const PAUSE: Duration = Duration::from_millis(300);
/// How long a leader that is taken for dead stands still.
const STALL: Duration = Duration::from_secs(30);

/// Lost records that are shown one by one.
const PLACES_MAX: usize = 20;

/// What is done to a leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    Kill,
    KillController,
    Stop,
    Pause,
    Stall,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::KillController => "kill of the controller",
            Self::Stop => "stop in order",
            Self::Pause => "pause of 300 ms",
            Self::Stall => "standstill of 30 s",
        }
    }

    /// Whether the timeline begins when the client's wait does.
    fn is_timed(self) -> bool {
        matches!(self, Self::Kill | Self::KillController)
    }
}

/// Loads a cluster of three brokers of its own and breaks it, again and again; prints one JSON object a fault, and one a figure.
/// Exit code 1 if an acknowledged record is lost, or nothing could be measured.
#[derive(Args, Debug)]
pub(in crate::cli) struct FailoverArgs {
    /// Leaders to kill (SIGKILL), one after the other.
    #[arg(long, value_name = "N", default_value_t = 10)]
    leaders: usize,
    /// Controllers to kill, which lead, too.
    #[arg(long, value_name = "N", default_value_t = 5)]
    controllers: usize,
    /// Leaders to stop in order (SIGTERM).
    #[arg(long, value_name = "N", default_value_t = 3)]
    stops: usize,
    /// Leaders to hold for 300 ms (SIGSTOP, SIGCONT).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pauses: usize,
    /// Leaders to hold for 30 s, or until they are replaced.
    #[arg(long, value_name = "N", default_value_t = 0)]
    stalls: usize,
    /// Partitions of the topic, three replicas each.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(i32).range(12..=100_000))]
    partitions: i32,
    /// The brokers' zookeeper.session.timeout.ms.
    #[arg(long, value_name = "MS", default_value_t = 18_000, value_parser = clap::value_parser!(u32).range(200..=3_600_000))]
    session_timeout_ms: u32,
    /// With failover.suspicion.enable: false, for comparison.
    #[arg(long)]
    no_suspicion: bool,
    /// Where the cluster is, and stays, instead of a temporary directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A setting of the producer's library (librdkafka), for instance request.timeout.ms=2000; may be repeated.
    #[arg(long = "client-config", value_name = "KEY=VALUE", value_parser = key_value)]
    client_config: Vec<(String, String)>,
}

impl FailoverArgs {
    pub(super) fn run(&self) -> Result<(), CliError> {
        let config = [
            ("zookeeper.session.timeout.ms", self.session_timeout_ms.to_string()),
            ("failover.suspicion.enable", (!self.no_suspicion).to_string()),
            // Every round begins with the preferred leaders.
            ("leader.imbalance.check.interval.seconds", "1".to_owned()),
            ("leader.imbalance.per.broker.percentage", "0".to_owned()),
        ];
        let cluster = OwnCluster::start(self.data.as_deref(), &config)?;
        // One creation takes at most 1,000.
        for first in (0..self.partitions).step_by(1_000) {
            let name = if first == 0 { TOPIC.to_owned() } else { format!("{TOPIC}-{first}") };
            cluster.create_topic(&name, (self.partitions - first).min(1_000))?;
        }
        cluster.wait_for("every partition is there", ASK_INTERVAL, || {
            let known = cluster.describe(0).ok()?;
            (known.partitions >= self.partitions && known.offline_partitions == 0).then_some(())
        })?;
        let load = Load::start(Terms {
            bootstrap: cluster.bootstrap(),
            topic: TOPIC.to_owned(),
            partitions: WATCHED,
            client_config: self.client_config.clone(),
        })
        .map_err(of_client)?;
        let mut bench = Bench { cluster, load };
        for (fault, rounds) in [
            (Fault::Kill, self.leaders),
            (Fault::KillController, self.controllers),
            (Fault::Stop, self.stops),
            (Fault::Pause, self.pauses),
            (Fault::Stall, self.stalls),
        ] {
            let mut outages = Outages::default();
            for number in 0..rounds {
                let round = bench.round(fault, number)?;
                outages.add(&round);
                say!("{round}");
            }
            if rounds > 0 {
                say!("{}", outages.figure(fault.name(), fault.is_timed()));
            }
        }
        let Bench { cluster, load } = bench;
        let balance = load.finish().map_err(of_client)?;
        drop(cluster);
        let (lost, misplaced) = (balance.lost.len(), balance.misplaced.len());
        let first = |of: &[(i32, i64)]| of.iter().take(PLACES_MAX).copied().collect::<Vec<_>>();
        say!(
            "{}",
            json!({
                "figure": "records", "acknowledged": balance.acknowledged, "failed": balance.failed, "lost": lost,
                "misplaced": misplaced, "without_offset": balance.without_offset,
                "lost_first": first(&balance.lost), "misplaced_first": first(&balance.misplaced),
            })
        );
        if lost + misplaced > 0 {
            return Err(refused(format!(
                "of the acknowledged records {lost} are lost, and {misplaced} elsewhere than they were said to be"
            )));
        }
        Ok(())
    }
}

struct Bench {
    cluster: OwnCluster,
    load: Load,
}

impl Bench {
    fn round(&mut self, fault: Fault, number: usize) -> Result<Value, CliError> {
        let before = self.until_preferred()?;
        self.until_acknowledged()?;
        let controller = self.cluster.describe(0)?.controller_id;
        let step = i32::from(!number.is_multiple_of(2));
        let other = (controller + step) % BROKERS + 1;
        let struck = if fault == Fault::KillController { controller } else { other };
        let led = before.iter().filter(|p| p.index < WATCHED && leader(p) == struck).count();
        let known: BTreeSet<String> =
            self.recorded()?.into_iter().flatten().map(|f| f.id).collect();
        let failed = self.load.failed();
        self.load.forget_silences();
        let (began, struck_at_ms) = (Instant::now(), unix_ms());
        match fault {
            Fault::Kill | Fault::KillController => self.cluster.strike(struck, Signal::KILL)?,
            Fault::Stop => self.cluster.strike(struck, Signal::TERM)?,
            Fault::Pause => {
                self.cluster.strike(struck, Signal::STOP)?;
                // No look in between: it is to be as long as it says.
                pause(PAUSE)?;
                self.cluster.strike(struck, Signal::CONT)?;
            }
            Fault::Stall => self.cluster.strike(struck, Signal::STOP)?,
        }
        if fault != Fault::Pause {
            self.until_acknowledged()?;
            self.until_led_by_others(struck)?;
        }
        self.until_acknowledged()?;
        let outage_ms = self.load.longest_silence().as_millis();
        let moves: i32 = self
            .cluster
            .partitions(TOPIC, struck)?
            .iter()
            .zip(&before)
            .map(|(now, then)| epoch(now) - epoch(then))
            .sum();
        let mut round = json!({
            "fault": fault.name(), "round": number, "broker": struck, "outage_ms": outage_ms,
            "leader_changes": moves, "failed": self.load.failed() - failed,
        });
        if fault != Fault::Pause {
            let record = self.until_recorded(fault, (struck, led), &known)?;
            // What the client waited is the longest silence of any partition: it ends when the last one is acknowledged again. So does
            // `acked_ms`; the record's `outage_ms` ends with the first.
            for (name, of) in [
                ("failover", "id"),
                ("cause", "cause"),
                ("pushed_ms", "pushed_ms"),
                ("recorded_ms", "acked_ms"),
            ] {
                round[name] = record[of].clone();
            }
            // How long nobody could know of it: what the cluster and the client took comes after that.
            let first_sign_ms = record["started_at_ms"].as_i64().map(|at| at - struck_at_ms);
            round["first_sign_ms"] = json!(first_sign_ms);
        }
        match fault {
            Fault::Pause => {}
            Fault::Stall => {
                self.cluster.rest(STALL.saturating_sub(began.elapsed()))?;
                self.cluster.strike(struck, Signal::CONT)?;
            }
            Fault::Kill | Fault::KillController | Fault::Stop => {
                self.cluster.until_ended(struck)?;
                self.cluster.start_again(struck)?;
            }
        }
        Ok(round)
    }

    /// Waits until every partition of the topic has all replicas in sync and is led by the first of them, and tells them all.
    fn until_preferred(&self) -> Result<Vec<Partition>, CliError> {
        self.cluster.wait_for("the preferred replicas lead", ASK_INTERVAL, || {
            let cluster = self.cluster.describe(0).ok()?;
            let whole = cluster.brokers.len() == BROKERS as usize
                && cluster.controller_id >= 0
                && cluster.under_replicated_partitions + cluster.offline_partitions == 0;
            let partitions = whole.then(|| self.cluster.partitions(TOPIC, 0).ok())??;
            let preferred = |p: &Partition| {
                p.assigned_replicas.first() == Some(&leader(p)) && isr(p) == BROKERS as usize
            };
            partitions.iter().all(preferred).then_some(partitions)
        })
    }

    fn until_acknowledged(&self) -> Result<(), CliError> {
        let since = Instant::now();
        self.cluster.wait_for("every partition is acknowledged", LOOK_INTERVAL, || {
            self.load.all_acknowledged_since(since).then_some(())
        })
    }

    fn until_led_by_others(&self, than: i32) -> Result<(), CliError> {
        self.cluster.wait_for("others lead", ASK_INTERVAL, || {
            let partitions = self.cluster.partitions(TOPIC, than).ok()?;
            partitions.iter().all(|p| leader(p) >= 0 && leader(p) != than).then_some(())
        })
    }

    fn recorded(&self) -> Result<Vec<Vec<Failover>>, CliError> {
        self.cluster.timelines(0)
    }

    /// The record of this broker's failover that is not among the known, once it is whole and both other brokers tell it alike.
    fn until_recorded(
        &self,
        fault: Fault,
        (struck, led): (i32, usize),
        known: &BTreeSet<String>,
    ) -> Result<Value, CliError> {
        let whole = |f: &&Failover| {
            let told = !fault.is_timed() || f.acknowledged as usize >= led;
            f.broker_id == struck && !known.contains(&f.id) && told && f.moved > 0
        };
        self.cluster.wait_for("the failover is recorded", ASK_INTERVAL, || {
            let told = self.cluster.timelines(struck).ok()?;
            let records: Vec<&Failover> =
                told.iter().filter_map(|of| of.iter().find(whole)).collect();
            match records[..] {
                [one, other] if one == other => Some(failover_json(one)),
                _ => None,
            }
        })
    }
}

fn leader(of: &Partition) -> i32 {
    of.state.as_ref().map_or(-1, |state| state.leader)
}

fn epoch(of: &Partition) -> i32 {
    of.state.as_ref().map_or(0, |state| state.leader_epoch)
}

fn isr(of: &Partition) -> usize {
    of.state.as_ref().map_or(0, |state| state.isr.len())
}
