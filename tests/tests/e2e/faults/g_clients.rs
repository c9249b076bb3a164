//! G7, F6: leaders move under clients of two generations, which follow: no reset of an offset, no record twice or out of order, no
//! error that a program sees. The newer one fetches by topic id and is told the next leader with the error (KIP-951).

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};

use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::scene::rounds;
use barnabas_tests::wait::wait_for;
use barnabas_tests::znodes::Znodes;
use barnabas_tests::{Fault, Outcome};
use serde_json::Value;

use super::super::clients::python_command;
use super::topic;

const MOVES: u32 = 20;

/// A child that must not outlive the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn leader(znodes: &Znodes) -> Outcome<i32> {
    let partitions = znodes.partitions("t").await?;
    Ok(i32::try_from(partitions.get(&0).ok_or("no partition 0")?.leader)?)
}

/// Another broker leads, and the one that did is in the ISR again.
async fn move_leader(cluster: &Cluster, znodes: &Znodes) -> Outcome<()> {
    let before = leader(znodes).await?;
    let admin = cluster.admin_address(before % 3 + 1);
    for command in ["drain", "undrain"] {
        let id = before.to_string();
        let output = run_program(&["broker", command, &id, "--admin", &admin]).await?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        if command == "drain" {
            wait_for("another leader", SETTLE_MAX, || async {
                leader(znodes).await.ok().filter(|now| *now != before && *now >= 0)
            })
            .await?;
        }
    }
    cluster.until_healed("t", 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g7_f6_clients_of_two_generations_follow_a_leader_that_moves() -> Outcome<()> {
    let options = Options {
        // Moves are the test's alone.
        config: "replica.lag.time.max.ms: 2000\nauto.leader.rebalance.enable: false\n".to_owned(),
        ..Options::default()
    };
    let cluster = Cluster::start(options).await?;
    cluster.admin().await?.create_topic(topic(1)).await?;
    cluster.until_healed("t", 3).await?;
    let znodes = cluster.znodes().await?;
    let mut script = python_command("follow.py");
    script.args([&cluster.bootstrap(), "t"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut newer = Running(script.spawn()?);
    let mut printed = BufReader::new(newer.0.stdout.take().ok_or("no stdout")?);
    let mut line = String::new();
    printed.read_line(&mut line)?;
    assert_eq!(line.trim(), "reads");
    let older = Command::new("kcat")
        .args(["-C", "-b", &cluster.bootstrap(), "-t", "t", "-p", "0", "-o", "beginning", "-u"])
        .args(["-X", "auto.offset.reset=error", "-X", "check.crcs=true"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Fault::from(format!("cannot run kcat: {error}")))?;
    let mut older = Running(older);
    let read = older.0.stdout.take().ok_or("no stdout")?;
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(read).lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    for _ in 0..rounds(MOVES) {
        move_leader(&cluster, &znodes).await?;
    }
    drop(newer.0.stdin.take());
    let mut last = String::new();
    printed.read_to_string(&mut last)?;
    let said: Value = serde_json::from_str(last.trim()).map_err(|e| format!("{e}: {last}"))?;
    assert_eq!(said["in_order"], true, "{said}");
    assert_eq!(said["lost"], Value::Array(vec![]), "{said}");
    assert_eq!(said["errors"], Value::Array(vec![]), "{said}");
    let produced = said["produced"].as_u64().ok_or("no count")?;
    for expected in 0..produced {
        let read = lines.recv_timeout(SETTLE_MAX);
        let read = read.map_err(|_| format!("kcat read {expected} of {produced} records"))?;
        assert_eq!(read, expected.to_string());
    }
    older.0.kill()?;
    let mut complaints = String::new();
    older.0.stderr.take().ok_or("no stderr")?.read_to_string(&mut complaints)?;
    assert!(!complaints.contains("ERROR"), "{complaints}");
    Ok(())
}
