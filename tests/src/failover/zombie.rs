//! A leader stands still until it is deposed, while a producer at acks=1 that knows nobody else has batches on their way to it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::admin::NewTopic;
use crate::client::{Answer, Client, Fetch, Terms};
use crate::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use crate::wait::{pass, wait_for};
use crate::{Outcome, load};

const TOPIC: &str = "z";
/// Batches that are posted before the leader stands still, and while it does.
const BEFORE: usize = 200;
const BEHIND: usize = 50;
/// How long a leader stands still.
const STALL: Duration = Duration::from_secs(30);
/// How long a deposed leader may take to answer what was sent to it.
const ANSWERS_MAX: Duration = Duration::from_secs(10);

/// Runs so many rounds; what must not be, one sentence each.
pub(super) async fn run(
    rounds: usize,
    session_timeout_ms: u32,
    say: &mut impl FnMut(&Value),
) -> Outcome<Vec<String>> {
    let config = "auto.leader.rebalance.enable: false\nreplica.lag.time.max.ms: 30000\n".to_owned();
    let mut cluster =
        Cluster::start(Options { session_timeout_ms, config, ..Options::default() }).await?;
    let new = NewTopic {
        name: TOPIC,
        partitions: 1,
        replication_factor: 3,
        configs: &[("min.insync.replicas", "2")],
    };
    cluster.admin().await?.create_topic(new).await?;
    cluster.until_healed(TOPIC, 3).await?;
    let znodes = cluster.znodes().await?;
    let target =
        load::Target { bootstrap: cluster.bootstrap(), topic: TOPIC.to_owned(), partitions: 1 };
    // What has been told as lost once is not told again.
    let mut ledger_before = 0;
    let mut wrong = Vec::new();
    for round in 0..rounds {
        cluster.until_healed(TOPIC, 3).await?;
        let all = load::Load::start(&target, 2, 2 * round, 7);
        let before = znodes.partitions(TOPIC).await?[&0].clone();
        let zombie = i32::try_from(before.leader)?;
        let address = cluster.broker(zombie).config().listener.to_string();
        let mut pinned = Client::connect(&address).await?;
        let terms = Terms { acks: 1, ..Terms::default() };
        let value = |n: usize| format!("pinned-{round}-{n}").into_bytes();
        let mut acked: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
        for n in 0..BEFORE {
            if let Answer::Appended(offset) =
                pinned.produce_on(TOPIC, 0, terms, &[value(n)]).await?
            {
                acked.insert(offset, value(n));
            }
        }
        // These are acknowledged or not, before it stands still or after it wakes.
        for n in BEFORE..BEFORE + BEHIND / 2 {
            pinned.post(TOPIC, 0, terms, &[value(n)]).await?;
        }
        cluster.broker(zombie).pause()?;
        let began = std::time::Instant::now();
        for n in BEFORE + BEHIND / 2..BEFORE + BEHIND {
            pinned.post(TOPIC, 0, terms, &[value(n)]).await?;
        }
        wait_for("another broker leads", SETTLE_MAX, || async {
            let now = znodes.partitions(TOPIC).await.ok()?.get(&0)?.clone();
            (now.leader >= 0 && now.leader != before.leader).then_some(())
        })
        .await?;
        let deposed_ms = began.elapsed().as_millis();
        // What had been answered when it stopped is in the socket: those are no answers of a deposed leader.
        let mut answered = 0;
        while let Ok(answer) =
            tokio::time::timeout(Duration::from_millis(200), pinned.posted()).await
        {
            if let Answer::Appended(offset) = answer? {
                acked.insert(offset, value(BEFORE + answered));
            }
            answered += 1;
        }
        pass(STALL.saturating_sub(began.elapsed())).await;
        cluster.broker(zombie).resume()?;
        let mut late = 0;
        for n in answered..BEHIND {
            match tokio::time::timeout(ANSWERS_MAX, pinned.posted()).await {
                Ok(Ok(Answer::Appended(offset))) => {
                    late += 1;
                    acked.insert(offset, value(BEFORE + n));
                }
                Ok(Ok(Answer::Refused(..))) => {}
                // It closed the connection, or answers nothing.
                Ok(Err(_)) | Err(_) => break,
            }
        }
        cluster.until_healed(TOPIC, 3).await?;
        let accounts = all.stop().await?;
        let all_lost = load::judge(&target, &accounts)?.lost;
        let lost = missing(&cluster, &acked).await?;
        let (ranges, named) = named(&cluster, &lost).await?;
        say(&json!({
            "fault": "zombie", "round": round, "broker": zombie, "deposed_ms": deposed_ms, "acked_at_1": acked.len(),
            "acks_after_deposition": late, "lost_at_1": lost.len(), "named_by_ledger": named,
            "new_entries": ranges - ledger_before, "lost_at_all": all_lost,
        }));
        ledger_before = ranges;
        if late > 0 {
            wrong.push(format!("round {round}: {late} acknowledgements by a deposed leader"));
        }
        if all_lost > 0 || named < lost.len() {
            wrong.push(format!(
                "round {round}: {all_lost} lost at acks=all; {named} of {} lost at acks=1 are named",
                lost.len()
            ));
        }
    }
    Ok(wrong)
}

/// Offsets of what was acknowledged and is not there.
async fn missing(cluster: &Cluster, acked: &BTreeMap<i64, Vec<u8>>) -> Outcome<Vec<i64>> {
    let mut client = Client::of_leader(&cluster.bootstrap(), 0, TOPIC, 0).await?;
    let end = client.end_offset(TOPIC, 0).await?;
    let mut there = BTreeMap::new();
    let mut offset = acked.keys().next().copied().unwrap_or(end);
    while offset < end {
        let fetched = client.fetch(TOPIC, 0, Fetch { offset, ..Fetch::default() }).await?;
        let last = fetched.records.last().ok_or_else(|| format!("error {}", fetched.error))?.offset;
        there.extend(fetched.records.into_iter().map(|record| (record.offset, record.value)));
        offset = last + 1;
    }
    let gone = |(offset, value): &(&i64, &Vec<u8>)| there.get(*offset) != Some(*value);
    Ok(acked.iter().filter(gone).map(|(offset, _)| *offset).collect())
}

/// How many entries the ledger has, and how many of these offsets they name.
async fn named(cluster: &Cluster, lost: &[i64]) -> Outcome<(usize, usize)> {
    let admin = cluster.admin_address(1);
    let names = |listed: &[Value], offset: i64| {
        listed.iter().any(|entry| {
            entry["from"].as_i64().is_some_and(|from| from <= offset)
                && entry["to"].as_i64().is_none_or(|to| offset < to)
        })
    };
    let told = wait_for("the ledger names what was lost", Duration::from_secs(15), || async {
        let words = ["ledger", "list", "--topic", TOPIC, "--json", "--admin", &admin];
        let listed: Vec<Value> =
            serde_json::from_slice(&run_program(&words).await.ok()?.stdout).ok()?;
        lost.iter().all(|offset| names(&listed, *offset)).then_some(listed.len())
    });
    match told.await {
        Ok(entries) => Ok((entries, lost.len())),
        Err(_) => Ok((0, 0)),
    }
}
