//! When producers are answered relative to the syncs under them; the syncs of these tests wait at a [`Gate`].

mod asynchronous;
mod failure;
mod gate;
mod group;
mod replicas;
mod synchronous;
mod timeout;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use barnabas_log::{check_fetched, stamp};
use barnabas_replica::{
    FetchAnswer, FetchOutcome, FetchPosition, FetchReply, FollowerFetch, IsrProposal, Role,
    StatePush,
};
use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, Condition, FlushMode, LeaderEpoch, Now, Offset, PartitionEpoch,
    TopicConfig,
};

use crate::connection::Out;
use crate::partition::{
    Aftermath, AppendResult, Flush, Hosted, LogFailure, Outward, PendingProduce, ProduceResult,
};
use crate::storage::Lost;
use crate::testing::{Disk, LIFE, ME, batch, connection, pending_with, push, tp};
use gate::{Gate, PATIENCE};

/// What partitions told the outside.
#[derive(Default)]
struct Told {
    now_ms: AtomicU64,
    failures: Mutex<Vec<LogFailure>>,
    positions: Mutex<Vec<BrokerId>>,
}

impl Outward for Told {
    fn now(&self) -> Now {
        Now(self.now_ms.load(Ordering::SeqCst))
    }
    fn propose(&self, _: &Arc<Hosted>, _: IsrProposal) {}
    fn role_changed(&self, _: &Arc<Hosted>, _: Role) {}
    fn position_moved(&self, _: &Arc<Hosted>, leader: BrokerId) {
        self.positions.lock().unwrap().push(leader);
    }
    fn log_failed(&self, _: &Arc<Hosted>, failure: LogFailure) {
        self.failures.lock().unwrap().push(failure);
    }
    fn records_lost(&self, _: &Lost) {}

    fn led_uncleanly(&self) {}
}

/// Broker 1 with one partition, or several.
struct Rig {
    told: Arc<Told>,
    gate: Arc<Gate>,
    disk: Disk,
    hosted: Arc<Hosted>,
    out: Arc<Out>,
    _client: tokio::net::TcpStream,
    config: TopicConfig,
    partition_epoch: i32,
}

/// A producer that waits.
struct Waiting {
    pending: Arc<PendingProduce>,
    result: Receiver<ProduceResult>,
}

impl Waiting {
    /// Its answer, which must come.
    fn answer(&self) -> Result<i64, Condition> {
        self.result.recv_timeout(PATIENCE).expect("an answer").map(|(base, _)| base.0)
    }

    fn is_answered(&self) -> bool {
        self.pending.is_done()
    }
}

impl Rig {
    /// Leads in epoch 1 with this ISR out of {1, 2}.
    async fn new(isr: &[i32], config: TopicConfig) -> Self {
        let gate = Arc::new(Gate::default());
        let disk = Disk::on(barnabas_log::Disk::with_faults(gate.clone()));
        let told = Arc::new(Told::default());
        let (out, client) = connection().await;
        let hosted = disk.open(&told, ME, tp("t", 0));
        let mut rig =
            Self { told, gate, disk, hosted, out, _client: client, config, partition_epoch: 0 };
        rig.lead(isr);
        rig
    }

    /// The next partition epoch of leader epoch 1.
    fn lead(&mut self, isr: &[i32]) {
        self.partition_epoch += 1;
        self.state(&self.hosted, push(1, 1, isr));
    }

    /// A push as the agent hands it on.
    fn state(&self, hosted: &Arc<Hosted>, mut push: StatePush) {
        push.partition.state.partition_epoch = PartitionEpoch(self.partition_epoch);
        push.min_insync_replicas = self.config.min_insync_replicas;
        push.flush_mode = self.config.flush_mode;
        self.settling(hosted, |after| {
            hosted.configure(self.told.now(), &self.config, after);
            hosted.state(self.told.now(), push, after);
        });
    }

    /// The settings of the topic are others now.
    fn alter(&mut self, change: impl FnOnce(&mut TopicConfig), isr: &[i32]) {
        change(&mut self.config);
        self.lead(isr);
    }

    /// `t-1` to `t-COUNT`, led by this broker alone.
    fn partitions(&self, count: i32) -> Vec<Arc<Hosted>> {
        let open = |partition| {
            let hosted = self.disk.open(&self.told, ME, tp("t", partition));
            self.state(&hosted, push(1, 1, &[1]));
            hosted
        };
        (1..=count).map(open).collect()
    }

    fn settling<T>(&self, hosted: &Arc<Hosted>, work: impl FnOnce(&mut Aftermath) -> T) -> T {
        let mut after = Aftermath::default();
        let done = work(&mut after);
        after.settle(hosted, &*self.told, &mut Flush::default());
        done
    }

    fn produce(&self, acks: Acks, sequence: i32) -> Waiting {
        self.produce_to(&self.hosted, acks, sequence)
    }

    fn produce_to(&self, hosted: &Arc<Hosted>, acks: Acks, sequence: i32) -> Waiting {
        let (sender, result) = channel();
        let pending = pending_with(&self.out, move |result| {
            let _ = sender.send(result);
        });
        let waits = Some((pending.clone(), 0));
        let (now, mut records) = (self.told.now(), batch(sequence));
        self.settling(hosted, |after| hosted.produce(now, acks, 1, &mut records, waits, after));
        Waiting { pending, result }
    }

    /// acks=0.
    fn throw(&self, sequence: i32) {
        let (now, mut records) = (self.told.now(), batch(sequence));
        let thrown = self.settling(&self.hosted, |after| {
            self.hosted.produce(now, Acks::None, 1, &mut records, None, after)
        });
        assert_eq!(thrown, AppendResult::Silent);
    }

    /// Broker 2 fetches: it has everything below `log_end` and has flushed everything below `flushed`.
    fn fetch(&self, log_end: i64, flushed: i64) -> FetchReply {
        let position = FetchPosition {
            incarnation: LIFE,
            broker_epoch: BrokerEpoch(102),
            leader_epoch: LeaderEpoch(1),
            last_epoch: (log_end > 0).then_some(LeaderEpoch(1)),
            log_end: Offset(log_end),
            flushed: Offset(flushed),
            log_start: Offset(0),
        };
        let fetch = FollowerFetch { follower: BrokerId(2), position, heard: 0 };
        self.settling(&self.hosted, |after| {
            self.hosted.follower_fetch(self.told.now(), fetch, after)
        })
    }

    /// Leader 2 answers this follower's fetch with one record.
    fn fetched(&self, sequence: i32, leader_epoch: i32) {
        let mut records = batch(sequence);
        stamp(&mut records, Offset(i64::from(sequence)), LeaderEpoch(leader_epoch)).unwrap();
        let records = check_fetched(&records).unwrap();
        let outcome = FetchOutcome::Records {
            end: records.end(),
            epochs: records.epochs().to_vec(),
            high_watermark: Offset(0),
            log_start: Offset(0),
        };
        let asked = self.hosted.fetch_position().unwrap();
        let answer = FetchAnswer { leader: BrokerId(2), asked, outcome };
        self.settling(&self.hosted, |after| {
            self.hosted.fetch_answered(self.told.now(), answer, Some(records), after);
        });
    }

    /// Exclusive end of what consumers get.
    fn visible(&self) -> i64 {
        self.hosted.high_watermark().0
    }

    fn unflushed(&self) -> u64 {
        self.hosted.unflushed(self.told.now()).0
    }

    fn until(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !condition(self) {
            assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn all_flushed(&self) {
        self.until("everything is flushed", |rig| rig.unflushed() == 0);
    }
}

fn sync() -> TopicConfig {
    TopicConfig { flush_mode: FlushMode::Sync, ..TopicConfig::default() }
}
