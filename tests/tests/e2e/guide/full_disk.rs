//! A disk is full: the page's commands make room, and producers go on by themselves.

use std::process::Command;

use barnabas_tests::Outcome;
use barnabas_tests::cluster::{Options, SETTLE_MAX, run_program_within};
use barnabas_tests::machines::Machines;
use barnabas_tests::wait::wait_for;
use serde_json::Value;

use super::{FILE, produce, run};

/// Lets go of the small file system.
struct Mounted(std::path::PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        // A broker may still have files open: lazily.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_emptied_by_the_book() -> Outcome<()> {
    let config = "replica.lag.time.max.ms: 5000\nlog.dir.reserve.bytes: 8388608\n\
                  log.retention.check.interval.ms: 500\nlog.segment.bytes: 4194304\n"
        .to_owned();
    let mut machines = Machines::configure(Options { config, ..Options::default() }).await?;
    let disk = machines.log_dir(1);
    std::fs::create_dir_all(&disk)?;
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64m", "barnabas"])
        .arg(&disk)
        .status()?;
    if !mounted.success() {
        eprintln!("*** SKIPPED: no small file system could be mounted, run this as root");
        return Ok(());
    }
    let _mounted = Mounted(disk);
    machines.start(&[1, 2, 3]).await?;
    machines.cluster.admin().await?.create_assigned("orders", &[(0, &[1, 2, 3])]).await?;
    machines.cluster.until_healed("orders", 3).await?;

    let bootstrap = machines.cluster.bootstrap();
    let fill = [
        "produce",
        "orders",
        "--records",
        "80000",
        "--size",
        "1000",
        "--acks",
        "all",
        "--delivery-timeout-ms",
        "8000",
        "--bootstrap-server",
        &bootstrap,
        "--json",
    ];
    let output = run_program_within(SETTLE_MAX * 3, &fill).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "it does not fit: {said}");
    let account: Value = serde_json::from_slice(&output.stdout)?;
    let acknowledged = account["acknowledged"].as_i64().ok_or("no count")?;
    assert!(acknowledged > 10_000 && acknowledged < 80_000, "{account}");

    machines.ask(2);
    let said = run(&machines, "full-disk-look", &[(FILE, "broker-1.yaml")]).await?.out;
    assert!(said.contains("disk_full") || said.contains("less room"), "{said}");
    let before = (acknowledged - 1_000).to_string();
    run(
        &machines,
        "full-disk-make-room",
        &[("--before 100000", &format!("--before {before}")), ("1073741824", "16777216")],
    )
    .await?;
    wait_for("records are taken again", SETTLE_MAX, || async {
        produce(&machines, "orders", 0..100).ok()
    })
    .await?;
    // What was acknowledged and not deleted is there, and the rest of the book has nothing to say any more.
    let shell = &machines.shell;
    let read = format!("kcat -C -b {bootstrap} -t orders -o beginning -e -q | wc -l");
    let read = shell.run_text("read", &read);
    let read: i64 = read.await?.out.trim().parse()?;
    assert!(read >= 1_000 + 100, "{read}");
    let ledger = shell.run_text("ledger", "barnabas ledger list --json").await?.out;
    assert_eq!(serde_json::from_str::<Value>(&ledger)?, Value::Array(vec![]), "nothing was lost");
    machines.cluster.until_healed("orders", 3).await
}
