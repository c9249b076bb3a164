//! `barnabas explain` while things are broken on purpose: the right cause is first, and its advice heals it, run as it is printed.

mod cut_off;
mod failing;
mod unreadable;

use std::sync::Mutex;

use barnabas_tests::Outcome;
use barnabas_tests::client::{Answer, Client, Terms};
use barnabas_tests::cluster::{Cluster, SETTLE_MAX, run_line, run_program};
use barnabas_tests::wait::wait_for;
use serde_json::Value;

/// A command of the CLI at a broker; what it printed.
async fn command(admin: &str, arguments: &[&str]) -> Outcome<String> {
    let output = run_program(&[arguments, &["--admin", admin]].concat()).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("{arguments:?}: {said}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// `barnabas explain WHAT --json`. Its exit code must say the same.
async fn explain(admin: &str, what: &str) -> Outcome<Value> {
    let words: Vec<&str> = what.split(' ').collect();
    let arguments = [&["explain"], &words[..], &["--json", "--admin", admin]].concat();
    let output = run_program(&arguments).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told: Value = serde_json::from_slice(&output.stdout).map_err(|_| said)?;
    let code = if told["well"] == true { 0 } else { 6 };
    assert_eq!(output.status.code(), Some(code), "{told}");
    Ok(told)
}

/// Asks again and again until the answer is as wanted; the answer.
async fn until(
    admin: &str,
    what: &str,
    wanted: &str,
    is_wanted: impl Fn(&Value) -> bool,
) -> Outcome<Value> {
    let last = Mutex::new(String::new());
    let wish = format!("{what}: {wanted}");
    let found = wait_for(&wish, SETTLE_MAX, || async {
        match explain(admin, what).await {
            Ok(told) if is_wanted(&told) => Some(told),
            Ok(told) => {
                *last.lock().unwrap() = format!("{told:#}");
                None
            }
            Err(error) => {
                *last.lock().unwrap() = error.to_string();
                None
            }
        }
    });
    let found = found.await;
    found.map_err(|error| format!("{error}; told was: {}", last.lock().unwrap()).into())
}

/// Waits until these causes are the first; the answer. What is said of the first is said at the first level, too.
async fn until_first(admin: &str, what: &str, causes: &[&str]) -> Outcome<Value> {
    let wanted = format!("{causes:?} first");
    let told = until(admin, what, &wanted, |told| names(told).starts_with(causes)).await?;
    assert_eq!(told["cause"], causes[0], "{told:#}");
    assert!(!told["evidence"].as_array().is_none_or(Vec::is_empty), "{told:#}");
    Ok(told)
}

/// Waits until nothing is wrong, and nothing is worth telling but what was lost.
async fn until_well(admin: &str, what: &str) -> Outcome<()> {
    let well = |told: &Value| names(told).iter().all(|name| *name == "records_lost");
    until(admin, what, "well", well).await.map(drop)
}

fn names(told: &Value) -> Vec<&str> {
    let causes = told["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    causes.iter().filter_map(|cause| cause["cause"].as_str()).collect()
}

/// The text of a field of the answer.
fn text<'a>(told: &'a Value, pointer: &str) -> &'a str {
    told.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Runs the one next command of the first cause as it is printed, where it is to be run. It loses nothing.
async fn follow(cluster: &mut Cluster, told: &Value) -> Outcome<()> {
    let next = &told["next_command"];
    assert_eq!(next["loses_records"], 0, "{told:#}");
    run(cluster, told, next).await
}

/// Runs the first alternative with this word in it.
async fn follow_other(cluster: &mut Cluster, told: &Value, word: &str) -> Outcome<()> {
    let others = told["alternatives"].as_array().ok_or("no alternatives")?;
    let mut others = others.iter();
    let other = others.find(|other| text(other, "/command").contains(word));
    let other = other.ok_or_else(|| format!("no {word}: {told:#}"))?;
    run(cluster, told, other).await
}

async fn run(cluster: &mut Cluster, told: &Value, step: &Value) -> Outcome<()> {
    let (line, place) = (text(step, "/command"), text(step, "/where"));
    assert!(!line.is_empty() && !line.contains("FILE") && !line.contains("PID"), "{told:#}");
    if let Some(rest) = place.strip_prefix("the host of broker ") {
        let id = rest.split(' ').next().unwrap_or_default().parse()?;
        return cluster.broker(id).run_as_told(line).await;
    }
    assert!(place.is_empty(), "{told:#}");
    let output = run_line(line).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("`{line}`: {said}").into()) }
}

async fn produce(cluster: &Cluster, topic: &str, partition: i32, count: usize) -> Outcome<Answer> {
    let mut leader = Client::of_leader(&cluster.bootstrap(), 0, topic, partition).await?;
    let values: Vec<Vec<u8>> = (0..count).map(|n| format!("value-{n}").into_bytes()).collect();
    let terms = Terms { acks: 1, timeout_ms: 3_000, ..Terms::default() };
    leader.produce_on(topic, partition, terms, &values).await
}

async fn until_isr(cluster: &Cluster, topic: &str, isr: &[i64]) -> Outcome<()> {
    let znodes = cluster.znodes().await?;
    wait_for(&format!("the ISR of {topic} is {isr:?}"), SETTLE_MAX, || async {
        (znodes.partitions(topic).await.ok()?.get(&0)?.isr == isr).then_some(())
    })
    .await
}
