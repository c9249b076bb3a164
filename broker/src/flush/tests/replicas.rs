//! A leader and its followers, over sockets: flushed positions travel at once, and the mode changes under producers.

use std::collections::BTreeMap;

use barnabas_types::{BrokerImage, ClusterDelta, ControllerEpoch};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::*;
use crate::node::Node;
use crate::testing::{epoch_of, node_of, pending_with, registered};

/// Broker 1 leads `t-0`, broker 2 follows; their syncs go through one gate each.
struct Pair {
    nodes: [Arc<Node>; 2],
    hosted: [Arc<Hosted>; 2],
    gates: [Arc<Gate>; 2],
    _disks: [Disk; 2],
    _stop: watch::Sender<bool>,
    out: Arc<Out>,
    _client: tokio::net::TcpStream,
    partition_epoch: i32,
}

impl Pair {
    async fn new(mode: FlushMode) -> Self {
        let gates = [1, 2].map(|_| Arc::new(Gate::default()));
        let disks = gates.each_ref().map(|g| Disk::on(barnabas_log::Disk::with_faults(g.clone())));
        let nodes = [1, 2].map(|id| node_of(BrokerId(id)));
        let hosted = [0, 1].map(|at| disks[at].host(&nodes[at], tp("t", 0)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let brokers = [1, 2]
            .map(|id| (BrokerId(id), BrokerImage { port, ..registered(epoch_of(BrokerId(id))) }));
        let delta = ClusterDelta {
            full: true,
            brokers: Some(BTreeMap::from(brokers)),
            ..ClusterDelta::default()
        };
        for node in &nodes {
            node.view.apply((BrokerId(9), ControllerEpoch(1)), &delta);
        }
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(crate::connection::listen(nodes[0].clone(), listener, stopped));
        let (out, client) = connection().await;
        let mut pair = Self {
            nodes,
            hosted,
            gates,
            _disks: disks,
            _stop: stop,
            out,
            _client: client,
            partition_epoch: 0,
        };
        pair.tell(mode);
        pair
    }

    /// The controller's next push to both.
    fn tell(&mut self, mode: FlushMode) {
        self.partition_epoch += 1;
        for (node, hosted) in self.nodes.iter().zip(&self.hosted) {
            let mut state = push(1, 1, &[1, 2]);
            state.broker_epoch = epoch_of(node.me);
            state.partition.state.partition_epoch = PartitionEpoch(self.partition_epoch);
            (state.flush_mode, state.min_insync_replicas) = (mode, 2);
            crate::testing::state(node, hosted, state);
        }
    }

    fn produce(&self, sequence: i32) -> Receiver<ProduceResult> {
        let (sender, result) = channel();
        let pending = pending_with(&self.out, move |result| {
            let _ = sender.send(result);
        });
        crate::testing::produce(
            &self.nodes[0],
            &self.hosted[0],
            Acks::All,
            sequence,
            Some(pending),
        );
        result
    }

    fn log_end(&self, at: usize) -> i64 {
        self.hosted[at].with_log(|log| log.log_end().0)
    }
}

async fn answer(result: Receiver<ProduceResult>) -> ProduceResult {
    let answer = tokio::task::spawn_blocking(move || result.recv_timeout(PATIENCE));
    answer.await.unwrap().expect("an answer")
}

async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r10_acks_all_in_sync_mode_needs_the_flush_of_leader_and_follower() {
    let pair = Pair::new(FlushMode::Sync).await;
    for (sequence, held) in [(0, 0), (1, 1)] {
        pair.gates[held].shut();
        let waiting = pair.produce(sequence);
        pair.gates[held].wait_for(1);
        let end = i64::from(sequence) + 1;
        until("both have it", || pair.log_end(0) == end && pair.log_end(1) == end).await;
        until("the other has flushed it", || pair.hosted[1 - held].unflushed(Now(0)).0 == 0).await;
        assert!(waiting.try_recv().is_err());
        assert_eq!(pair.hosted[0].high_watermark(), Offset(i64::from(sequence)));
        pair.gates[held].open();
        assert_eq!(answer(waiting).await.map(|(base, _)| base), Ok(Offset(end - 1)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r37_the_mode_changes_both_ways_while_records_come() {
    let mut pair = Pair::new(FlushMode::Async).await;
    pair.gates.iter().for_each(|gate| gate.shut());
    assert!(answer(pair.produce(0)).await.is_ok(), "async: nobody waits for a disk");
    assert!(pair.gates.each_ref().map(|gate| gate.begun()) == [0, 0]);
    // To sync: both flush what they have, also the record that was acknowledged without.
    pair.tell(FlushMode::Sync);
    pair.gates.iter().for_each(|gate| gate.wait_for(1));
    let waiting = pair.produce(1);
    until("the follower has it", || pair.log_end(1) == 2).await;
    assert!(waiting.try_recv().is_err());
    pair.gates[0].open();
    until("the leader has flushed", || pair.hosted[0].unflushed(Now(0)).0 == 0).await;
    assert!(waiting.try_recv().is_err(), "the follower has not");
    pair.gates[1].open();
    assert!(answer(waiting).await.is_ok());
    // To async, while one waits: what both have written counts.
    pair.gates.iter().for_each(|gate| gate.shut());
    let waiting = pair.produce(2);
    pair.gates.iter().for_each(|gate| gate.wait_for(1));
    assert!(waiting.try_recv().is_err());
    pair.tell(FlushMode::Async);
    assert!(answer(waiting).await.is_ok());
    pair.gates.iter().for_each(|gate| gate.open());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r38_a_leader_whose_sync_fails_acknowledges_nothing_although_its_follower_has_flushed() {
    let pair = Pair::new(FlushMode::Sync).await;
    pair.gates[0].shut();
    let waiting = pair.produce(0);
    pair.gates[0].wait_for(1);
    until("the follower has flushed it", || {
        pair.log_end(1) == 1 && pair.hosted[1].unflushed(Now(0)).0 == 0
    })
    .await;
    pair.gates[0].fail();
    pair.gates[0].open();
    assert_eq!(answer(waiting).await, Err(Condition::KafkaStorageError));
}
