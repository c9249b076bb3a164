//! What a restoration would write.

use super::*;
use barnabas_log::Holding;
use serde_json::{Value, json};

const ONE: TopicId = TopicId([1; 16]);
const TWO: TopicId = TopicId([2; 16]);
const CLOCK: Clock = Clock { now_ms: 1_800_000_000_000 };

fn held(topic: &str, partition: i32, topic_id: TopicId, last_epoch: i32) -> Holding {
    let topic = TopicName::new(topic).unwrap();
    Holding {
        partition: TopicPartition { topic, partition },
        topic_id,
        last_epoch: Some(LeaderEpoch(last_epoch)),
    }
}

fn inventory(broker: i32, held: Vec<Holding>) -> Inventory {
    Inventory { broker: BrokerId(broker), cluster_id: ClusterId("c".into()), held }
}

/// A backup with topic `orders` of one partition on brokers 1 and 2, in leader epoch 3.
fn backup() -> Nodes {
    let topic = json!({"version": 3, "topic_id": ONE.to_string(), "partitions": {"0": [2, 1]},
        "adding_replicas": {}, "removing_replicas": {}});
    let state = json!({"version": 1, "controller_epoch": 7, "leader": 2, "leader_epoch": 3, "isr": [2, 1],
        "isr_broker_epochs": {"1": 40, "2": 41}});
    [
        ("/cluster/id", json!({"version": "1", "id": "c"}).to_string()),
        ("/controller_epoch", "5".to_owned()),
        ("/brokers/topics/orders", topic.to_string()),
        ("/brokers/topics/orders/partitions", String::new()),
        ("/brokers/topics/orders/partitions/0", String::new()),
        ("/brokers/topics/orders/partitions/0/state", state.to_string()),
        ("/config/topics/orders", r#"{"version":1,"config":{"retention.ms":"5"}}"#.to_owned()),
        ("/config/brokers/<default>", r#"{"version":1,"config":{}}"#.to_owned()),
        (
            "/latest_producer_id_block",
            r#"{"version":1,"broker":2,"block_start":"0","block_end":"999"}"#.to_owned(),
        ),
    ]
    .map(|(path, node)| (path.to_owned(), node))
    .into()
}

fn node(plan: &Plan, path: &str) -> Value {
    let found = plan.nodes.iter().find(|(there, _)| there == path);
    let (_, data) = found.unwrap_or_else(|| panic!("no {path}"));
    serde_json::from_slice(data).unwrap()
}

fn state(plan: &Plan, topic: &str, partition: i32) -> PartitionState {
    let tp = TopicPartition { topic: TopicName::new(topic).unwrap(), partition };
    let path = paths::partition_state(&tp);
    let data = node(plan, &path).to_string();
    znode::parse_partition_state(&tp, data.as_bytes(), 0).unwrap()
}

fn replicas(plan: &Plan, topic: &str) -> Value {
    node(plan, &format!("/brokers/topics/{topic}"))["partitions"].clone()
}

#[test]
fn nobody_leads_and_epochs_are_above_all_that_logs_know() {
    let logs = [
        inventory(1, vec![held("orders", 0, ONE, 9)]),
        inventory(2, vec![held("orders", 0, ONE, 4)]),
    ];
    let planned = plan(&backup(), &logs, &CLOCK).unwrap();
    let found = state(&planned, "orders", 0);
    assert_eq!((found.leader, found.leader_epoch), (None, LeaderEpoch(10)));
    assert_eq!(found.isr, [(BrokerId(2), BrokerEpoch(-1))]);
    assert_eq!(replicas(&planned, "orders"), json!({"0": [2, 1]}));
    assert_eq!(node(&planned, "/config/topics/orders")["config"]["retention.ms"], "5");
    assert_eq!(node(&planned, "/controller_epoch"), json!(1007));
    let block =
        ProducerIdBlock::parse(node(&planned, "/latest_producer_id_block").to_string().as_bytes());
    assert_eq!(block.unwrap().first, 1_800_000_000_000_000_000);
    let (last, data) = planned.nodes.last().unwrap();
    assert_eq!(last, "/cluster/id");
    assert!(znode::parse_restored(data).unwrap().is_some());
    assert_eq!(planned.notes, ["cluster c"]);
}

#[test]
fn parents_come_before_their_children() {
    let planned = plan(&backup(), &[], &CLOCK).unwrap();
    let mut there: BTreeSet<&str> = BTreeSet::from([""]);
    for (path, _) in &planned.nodes {
        let (parent, _) = path.rsplit_once('/').unwrap();
        assert!(there.contains(parent), "{path}");
        there.insert(path);
    }
}

#[test]
fn who_holds_records_stays_a_replica() {
    let logs = [inventory(4, vec![held("orders", 0, ONE, 9), held("orders", 2, ONE, 1)])];
    let planned = plan(&backup(), &logs, &CLOCK).unwrap();
    assert_eq!(replicas(&planned, "orders"), json!({"0": [2, 1, 4], "1": [4], "2": [4]}));
    let said = planned.notes.join("\n");
    assert!(said.contains("orders-1: no log holds it"), "{said}");
    assert!(said.contains("no inventory of broker 1") && said.contains("of broker 2"), "{said}");
}

#[test]
fn without_a_backup_topics_are_made_of_the_logs_and_nothing_expires() {
    let of = |broker| {
        let all =
            vec![held("a", 0, ONE, 2), held("a", 1, ONE, 3), held("__consumer_offsets", 0, TWO, 0)];
        inventory(broker, all)
    };
    let planned = plan(&Nodes::new(), &[of(1), of(2)], &CLOCK).unwrap();
    assert_eq!(replicas(&planned, "a"), json!({"0": [1, 2], "1": [2, 1]}));
    assert_eq!(state(&planned, "a", 1).leader_epoch, LeaderEpoch(4));
    let settings = &node(&planned, "/config/topics/a")["config"];
    assert_eq!(settings["retention.ms"], "-1");
    assert_eq!(settings["min.insync.replicas"], "1");
    let settings = &node(&planned, "/config/topics/__consumer_offsets")["config"];
    assert_eq!(settings["cleanup.policy"], "compact");
    let said = planned.notes.join("\n");
    assert!(said.contains("topic a: its settings are lost"), "{said}");
}

#[test]
fn a_topic_that_was_made_anew_since_the_backup_is_that_of_the_logs() {
    let logs = [inventory(1, vec![held("orders", 0, TWO, 0)])];
    let planned = plan(&backup(), &logs, &CLOCK).unwrap();
    assert_eq!(node(&planned, "/brokers/topics/orders")["topic_id"], TWO.to_string());
    assert_eq!(replicas(&planned, "orders"), json!({"0": [1]}));
    assert_eq!(node(&planned, "/config/topics/orders")["config"]["retention.ms"], "-1");
    assert_eq!(planned.nodes.iter().filter(|(path, _)| path == "/config/topics/orders").count(), 1);
    // One that only came back late holds the earlier life.
    let logs = [
        inventory(1, vec![held("orders", 0, ONE, 0)]),
        inventory(2, vec![held("orders", 0, TWO, 0)]),
    ];
    let planned = plan(&backup(), &logs, &CLOCK).unwrap();
    assert_eq!(node(&planned, "/brokers/topics/orders")["topic_id"], ONE.to_string());
    let said = plan(&Nodes::new(), &logs, &CLOCK).unwrap_err();
    assert!(
        said.contains("several topics of the name orders") && said.contains("broker 2"),
        "{said}"
    );
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let said = plan(&Nodes::new(), &[], &CLOCK).unwrap_err();
    assert!(said.contains("nothing to restore from"), "{said}");
    let other = Inventory { cluster_id: ClusterId("d".into()), ..inventory(1, vec![]) };
    let said = plan(&backup(), &[other], &CLOCK).unwrap_err();
    assert!(said.contains("broker 1") && said.contains("cluster d"), "{said}");
    let twice = [inventory(1, vec![]), inventory(1, vec![])];
    assert!(plan(&backup(), &twice, &CLOCK).unwrap_err().contains("two of the inventories"));
}
