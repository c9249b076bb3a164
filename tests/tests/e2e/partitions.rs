//! Partitions added to a topic that is in use: by command and by Kafka's AdminClient, known to every broker and to producers.

use std::collections::BTreeSet;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::kcat;
use barnabas_tests::wait::wait_for;
use serde_json::Value;

use super::clients::python;
use super::topic;

async fn command(
    cluster: &mut Cluster,
    broker: i32,
    arguments: &[&str],
) -> Outcome<(bool, String)> {
    let admin = cluster.broker(broker).config().admin_listener.to_string();
    let output = run_program(&[arguments, &["--admin", &admin]].concat()).await?;
    let text = if output.status.success() { output.stdout } else { output.stderr };
    Ok((output.status.success(), String::from_utf8(text)?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_are_added_live_and_outlive_their_controller() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    topic(&cluster, NewTopic { name: "t", partitions: 1, replication_factor: 3, configs: &[] })
        .await?;
    let znodes = cluster.znodes().await?;
    let (controller, epoch) = znodes.controller().await?.ok_or("no controller")?;
    let controller = i32::try_from(controller)?;
    let elsewhere = (1..=3).find(|id| *id != controller).ok_or("no other broker")?;
    let output = kcat::run(&cluster.bootstrap(), &["-P", "-t", "t", "-X", "acks=all"], b"first\n")?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let checked = ["topic", "add-partitions", "t", "--to", "3", "--validate-only"];
    let (done, said) = command(&mut cluster, elsewhere, &checked).await?;
    assert!(done && said.contains("would have 3 partitions"), "{said}");
    assert_eq!(znodes.partitions("t").await?.len(), 1, "only checked");
    let add = ["topic", "add-partitions", "t", "--to", "3", "--assignment", "1:2,3,1"];
    let (done, said) = command(&mut cluster, elsewhere, &add).await?;
    assert!(!done && said.contains("where 2 is due"), "{said}");
    let add = [&add[..], &["--assignment", "2:3,1,2"]].concat();
    let (done, said) = command(&mut cluster, elsewhere, &add).await?;
    assert!(done && said.contains("topic 't' has 3 partitions"), "{said}");
    let (done, said) =
        command(&mut cluster, elsewhere, &["topic", "add-partitions", "t", "--to", "3"]).await?;
    assert!(!done && said.contains("no increase"), "{said}");
    // Whoever asked the broker that took the request finds what it was told.
    let (_, told) = command(&mut cluster, elsewhere, &["topic", "describe", "t", "--json"]).await?;
    let described: Value = serde_json::from_str(&told)?;
    let replicas = |index: usize| described[0]["partitions"][index]["replicas"].clone();
    assert_eq!(replicas(1), serde_json::json!([2, 3, 1]), "{told}");
    assert_eq!(replicas(2), serde_json::json!([3, 1, 2]), "{told}");

    cluster.broker(controller).kill().await?;
    wait_for("a new controller", SETTLE_MAX, || async {
        znodes.controller().await.ok().flatten().filter(|(_, next)| *next > epoch)
    })
    .await?;
    cluster.broker(controller).start()?;
    cluster.until_known(&znodes, &[1, 2, 3]).await?;
    cluster.until_healed("t", 3).await?;
    python("partitions.py", &[&cluster.bootstrap(), "t", "5"])?;
    cluster.until_healed("t", 3).await?;
    assert_eq!(znodes.partitions("t").await?.len(), 5);
    for partition in 0..5 {
        let line = format!("{partition}\n");
        let index = partition.to_string();
        let produce = ["-P", "-t", "t", "-p", &index, "-X", "acks=all"];
        let output = kcat::run(&cluster.bootstrap(), &produce, line.as_bytes())?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let consume = ["-C", "-t", "t", "-o", "beginning", "-e", "-q", "-f", "%p %s\n"];
    let output = kcat::run(&cluster.bootstrap(), &consume, b"")?;
    let read: BTreeSet<String> =
        String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect();
    let expected = ["0 first", "0 0", "1 1", "2 2", "3 3", "4 4"];
    assert_eq!(read, expected.map(str::to_owned).into());
    Ok(())
}
