//! `deploy/disasters.md`: a cluster is broken in each of its ways, the blocks of the page are run as they stand, and it is whole again.

mod full_disk;
mod lost_broker;
mod unclean;
mod zookeeper;

use barnabas_tests::Outcome;
use barnabas_tests::kcat;
use barnabas_tests::machines::Machines;
use barnabas_tests::pages::{Said, block, blocks};

const PAGE: &str = include_str!("../../../../deploy/disasters.md");

/// What the page names and a test does not have.
const FILE: &str = "/etc/barnabas/broker.yaml";
const BACKUP: &str = "/var/backups/barnabas-zookeeper.json";
const START: &str = "sudo systemctl start barnabas";
const STOP: &str = "sudo systemctl stop barnabas";

/// Runs a block of the page on the machines.
async fn run(machines: &Machines, name: &str, table: &[(&str, &str)]) -> Outcome<Said> {
    machines.shell.run(&block(PAGE, name)?, table).await
}

/// Sends the numbers of a range at acks=all, one a line; all are acknowledged.
fn produce(machines: &Machines, topic: &str, numbers: std::ops::Range<u32>) -> Outcome<()> {
    produce_as(machines, topic, numbers, "enable.idempotence=true")
}

/// The same with a producer that needs no id of its own.
fn produce_as(
    machines: &Machines,
    topic: &str,
    numbers: std::ops::Range<u32>,
    idempotence: &str,
) -> Outcome<()> {
    let lines: String = numbers.map(|n| format!("{n}\n")).collect();
    let arguments =
        ["-P", "-t", topic, "-X", "acks=all", "-X", idempotence, "-X", "message.timeout.ms=60000"];
    let output = kcat::run(&machines.cluster.bootstrap(), &arguments, lines.as_bytes())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(said.into()) }
}

/// All that is in a topic, in numerical order.
fn consume(machines: &Machines, topic: &str) -> Outcome<Vec<u32>> {
    let arguments = ["-C", "-t", topic, "-o", "beginning", "-e", "-q", "-X", "check.crcs=true"];
    let output = kcat::run(&machines.cluster.bootstrap(), &arguments, b"")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout)?;
    let mut numbers = text.lines().map(str::parse).collect::<Result<Vec<u32>, _>>()?;
    numbers.sort_unstable();
    Ok(numbers)
}

#[test]
fn every_block_of_the_page_is_run() {
    let sources = [
        include_str!("full_disk.rs"),
        include_str!("lost_broker.rs"),
        include_str!("unclean.rs"),
        include_str!("zookeeper.rs"),
    ];
    let all = blocks(PAGE);
    let names: Vec<&str> = all.iter().filter_map(|block| block.name()).collect();
    for name in &names {
        let run = format!("\"{name}\"");
        assert!(sources.iter().any(|source| source.contains(&run)), "no test runs {name}");
    }
    assert!(names.len() >= 14, "{names:?}");
    // What is not run needs programs that are not here.
    let rest: Vec<&str> = all
        .iter()
        .filter(|block| block.is_shell() && block.name().is_none())
        .map(|block| block.info.as_str())
        .collect();
    assert_eq!(rest, ["sh norun"]);
}
