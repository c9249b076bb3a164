//! Every block of commands in README.md and deploy/*.md: it is run by a test under its name, or it says that it needs what no test has
//! (`norun`), and then a shell can at least read it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Options, fresh_directory, run_program};
use barnabas_tests::machines::Machines;
use barnabas_tests::pages::{Shell, block, blocks, check_syntax};
use barnabas_tests::ports;

const README: &str = include_str!("../../../README.md");
const OPERATIONS: &str = include_str!("../../../deploy/operations.md");

/// Where the blocks of a page are run.
const RUN_IN: [(&str, &str); 5] = [
    ("README.md", include_str!("commands.rs")),
    ("operations.md", include_str!("commands.rs")),
    (
        "disasters.md",
        concat!(
            include_str!("guide/full_disk.rs"),
            include_str!("guide/lost_broker.rs"),
            include_str!("guide/unclean.rs"),
            include_str!("guide/zookeeper.rs")
        ),
    ),
    ("losses.md", include_str!("losses.rs")),
    ("reference-clients.md", include_str!("reference_clients.rs")),
];

#[test]
fn every_block_is_run_or_says_why_not() -> Outcome<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("deploy"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    let sources = BTreeMap::from(RUN_IN);
    let (mut run, mut read) = (0, 0);
    for path in pages {
        let page = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for block in blocks(&fs::read_to_string(&path)?) {
            let place = format!("{page}, line {}", block.line);
            if !block.is_shell() {
                let known = ["text", "yaml", ""].contains(&&*block.info);
                assert!(known, "{place}: '{}' is neither commands nor what they print", block.info);
                continue;
            }
            match block.name() {
                Some(name) => {
                    let source = sources.get(&*page).unwrap_or_else(|| panic!("{place}: no test"));
                    assert!(
                        source.contains(&format!("\"{name}\"")),
                        "{place}: no test runs {name}"
                    );
                    run += 1;
                }
                None => {
                    assert_eq!(block.info, "sh norun", "{place}: it has no name");
                    read += 1;
                }
            }
            check_syntax(&block).map_err(|error| format!("{place}: {error}"))?;
        }
    }
    assert!(run >= 30 && read <= 6, "{run} are run, {read} only read");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_readmes_configuration_is_one() -> Outcome<()> {
    let folder = fresh_directory()?;
    let sample =
        blocks(README).into_iter().find(|block| block.info == "yaml").ok_or("no sample")?;
    let file = folder.join("broker.yaml");
    let data = folder.join("data").display().to_string();
    fs::write(&file, sample.replaced(&[("/var/lib/barnabas", &data)])?)?;
    let output = run_program(&["config", "check", &file.display().to_string()]).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    Ok(fs::remove_dir_all(folder)?)
}

/// Ends a `barnabas dev` and the brokers that were started by hand.
struct Dev(std::path::PathBuf);

impl Drop for Dev {
    fn drop(&mut self) {
        for name in ["broker-1", "broker-2", "broker-3", "dev"] {
            if let Ok(pid) = fs::read_to_string(self.0.join(format!("b/{name}.pid"))) {
                let signal = if name == "dev" { "-TERM" } else { "-KILL" };
                let quiet = std::process::Stdio::null();
                let _ = Command::new("kill").args([signal, pid.trim()]).stderr(quiet).status();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_does_it_by_hand() -> Outcome<()> {
    let directory = fresh_directory()?;
    let (kafka, admin, http) = (ports::three()?, ports::three()?, ports::three()?);
    let environment = vec![("BARNABAS_ADMIN".to_owned(), format!("127.0.0.1:{admin}"))];
    let shell = Shell { directory: directory.clone(), environment, functions: String::new() };
    let _dev = Dev(directory.clone());
    let dev = format!(
        "barnabas dev --data b --kafka-port {kafka} --admin-port {admin} --http-port {http} --zookeeper-port {} > dev.out 2>&1 &",
        ports::free()?
    );
    let table = [
        ("cargo build -p barnabas-broker\n", "# built already\n"),
        ("barnabas dev --data b &", &*dev),
        ("127.0.0.1:9092", &*format!("127.0.0.1:{kafka}")),
    ];
    let said = shell.run(&block(README, "by-hand")?, &table).await?;
    assert_eq!(said.out.lines().last().map(str::trim), Some("100000"), "{}", said.out);
    let table = [("127.0.0.1:9292", &*format!("127.0.0.1:{http}"))];
    let said = shell.run(&block(README, "metrics")?, &table).await?.out;
    assert!(said.lines().count() == 10 && said.contains("kafka_"), "{said}");
    let said = shell.run(&block(README, "logs")?, &[]).await?.out;
    assert!(said.contains("debug") && said.contains(" topic=orders partition=0 "), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_guide_is_true() -> Outcome<()> {
    let mut machines = Machines::configure(Options::default()).await?;
    machines.start(&[1, 2, 3]).await?;
    let configs = [("min.insync.replicas", "2")];
    let new = NewTopic { name: "orders", partitions: 3, replication_factor: 3, configs: &configs };
    machines.cluster.admin().await?.create_topic(new).await?;
    machines.cluster.until_healed("orders", 3).await?;
    let admin = machines.cluster.admin_address(1);
    let shell = &machines.shell;

    let said = shell.run(&block(OPERATIONS, "ask")?, &[("10.0.0.1:9192", &admin)]).await?.out;
    assert!(said.contains("controller  broker"), "{said}");
    let file = [("/etc/barnabas/broker.yaml", "broker-1.yaml")];
    shell.run(&block(OPERATIONS, "start-checks")?, &file).await?;
    let said = shell.run(&block(OPERATIONS, "look")?, &[]).await?.out;
    assert!(said.contains("broker 1") || said.contains("can stop"), "{said}");

    // The roll's command is run by a shell that knows no function.
    fs::write(shell.directory.join("functions"), &shell.functions)?;
    let restart = "bash -c \"source functions; machine stop {id}; machine start {id}\"";
    let table = [("ssh {host} sudo systemctl restart barnabas", restart)];
    let said = shell.run(&block(OPERATIONS, "roll")?, &table).await?.out;
    assert!(said.matches("restarted").count() >= 1, "{said}");
    let admin = machines.cluster.admin().await?;
    assert_eq!(admin.cluster().await?.brokers.len(), 3);
    machines.cluster.until_healed("orders", 3).await
}
