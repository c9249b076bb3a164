//! Mistakes that only a start finds: each ends it with a sentence, or is in its log, and nothing is changed. One ZooKeeper and no cluster.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use barnabas_broker::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use barnabas_tests::Outcome;
use barnabas_tests::cluster::{SETTLE_MAX, fresh_directory, program, run_program};
use barnabas_tests::ports;
use barnabas_tests::wait::wait_for;

use super::bad_input::{configuration, refused, right, with};

/// Ends its process when dropped.
pub(super) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A broker that starts, by a shell that first does something else; and its log.
pub(super) fn start(file: &Path, before: &str) -> Outcome<(Running, PathBuf)> {
    let log = file.with_extension("log");
    let out = File::create(&log)?;
    let child = Command::new("sh")
        .arg("-c")
        .arg(format!("{before} exec \"$0\" broker --config \"$1\""))
        .arg(program()?)
        .arg(file)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()?;
    Ok((Running(child), log))
}

pub(super) async fn until_logged(log: &Path, parts: &[&str]) -> Outcome<()> {
    let said = || fs::read_to_string(log).unwrap_or_default();
    let has_all = || async {
        parts.iter().all(|part| said().lines().any(|line| line.contains(part))).then_some(())
    };
    wait_for(&format!("the log says {parts:?}"), SETTLE_MAX, has_all)
        .await
        .map_err(|error| format!("{error}; it says: {}", said()).into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_a_start_finds_is_told_and_changes_nothing() -> Outcome<()> {
    let folder = fresh_directory()?;
    let silent = format!("127.0.0.1:{}", ports::free()?);
    let good = |zookeeper: &str| right(&folder, zookeeper);
    let data = folder.join("bad-data");

    // Nobody there: told within the time that the file gives it.
    let lines = with(good(&silent)?, "zookeeper.connection.timeout.ms", 500);
    let file = configuration(&folder, &lines)?;
    refused(&file, &["ZooKeeper", &silent, "500 ms", "start it"]).await?;
    assert!(!data.exists(), "nothing is left of a start that came to nothing");

    // Directories: in a file's place, of a newer version, of another broker in the same place.
    fs::write(folder.join("plain"), "x")?;
    let file =
        configuration(&folder, &with(good(&silent)?, "log.dirs", folder.join("plain").display()))?;
    refused(&file, &["log.dirs", "is a file"]).await?;
    let twice = format!("{0}, {0}/../bad-data", data.display());
    let file = configuration(&folder, &with(good(&silent)?, "log.dirs", &twice))?;
    refused(&file, &["log.dirs", "same directory"]).await?;
    fs::create_dir(&data)?;
    let newer = "version=2\nbroker.id=9\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n";
    fs::write(data.join("meta.properties"), newer)?;
    let file = configuration(&folder, &good(&silent)?)?;
    refused(&file, &["meta.properties", "version 2", "newer one"]).await?;
    assert_eq!(fs::read_to_string(data.join("meta.properties"))?, newer);
    fs::remove_dir_all(&data)?;

    // Several at once: the first, and how many more.
    let lines = with(with(good(&silent)?, "num.partitions", "many"), "broker.id", "x");
    let file = configuration(&folder, &lines)?;
    refused(&file, &["'broker.id'", "1 more", "config check"]).await?;
    let output = run_program(&["config", "check", &file.display().to_string()]).await?;
    let said = String::from_utf8(output.stdout)?;
    assert!(said.contains("'broker.id'") && said.contains("'num.partitions'"), "{said}");
    assert_eq!(output.status.code(), Some(1));

    // With a ZooKeeper whose shortest session is longer than the one that is asked for.
    let mut server = ZooKeeperServer::start(&ZooKeeperOptions {
        data_dir: folder.join("zookeeper"),
        port: Some(ports::free()?),
        tick_time_ms: 2_000,
        force_sync: false,
        ensemble: None,
    })
    .await?;
    let zookeeper = server.address().to_string();
    let chroot = format!("{zookeeper}/barnabas");
    let file = configuration(&folder, &good(&chroot)?)?;
    refused(&file, &["/barnabas", "does not exist", "create it"]).await?;
    let traps = with(
        with(good(&zookeeper)?, "zookeeper.session.timeout.ms", 1_000),
        "min.insync.replicas",
        2,
    );
    let first = folder.join("first.yaml");
    fs::rename(configuration(&folder, &traps)?, &first)?;
    let (broker, log) = start(&first, "ulimit -n 1000;")?;
    until_logged(
        &log,
        &[
            "may open 1000 files",
            "sessions of at least 4000 ms",
            "2 is more than default.replication.factor, 1",
            "registered",
        ],
    )
    .await?;
    // What is there already: the id, the directory, the port.
    let listener = traps.iter().find(|(key, _)| *key == "listeners").ok_or("no listener")?;
    let other = with(good(&zookeeper)?, "log.dirs", folder.join("other").display());
    let file = configuration(&folder, &other)?;
    refused(&file, &["broker id 9", "another broker.id"]).await?;
    let file = configuration(&folder, &good(&zookeeper)?)?;
    refused(&file, &["bad-data", "another"]).await?;
    let file = configuration(&folder, &with(other, "listeners", &listener.1))?;
    refused(&file, &["listeners", "stop whoever uses that port"]).await?;
    drop(broker);

    // Data of this cluster, and a ZooKeeper that has lost its own.
    server.stop();
    let empty = ZooKeeperServer::start(&ZooKeeperOptions {
        data_dir: folder.join("empty"),
        port: Some(ports::free()?),
        tick_time_ms: 100,
        force_sync: false,
        ensemble: None,
    })
    .await?;
    let file = configuration(&folder, &good(&empty.address().to_string())?)?;
    refused(&file, &["holds no cluster", "restore ZooKeeper"]).await?;
    drop(empty);
    Ok(fs::remove_dir_all(folder)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn systemd_is_told_of_the_start_and_the_stop() -> Outcome<()> {
    let folder = fresh_directory()?;
    let server = ZooKeeperServer::start(&ZooKeeperOptions {
        data_dir: folder.join("zookeeper"),
        port: Some(ports::free()?),
        tick_time_ms: 100,
        force_sync: false,
        ensemble: None,
    })
    .await?;
    let socket = folder.join("notify");
    let listener = std::os::unix::net::UnixDatagram::bind(&socket)?;
    listener.set_read_timeout(Some(SETTLE_MAX))?;
    let hear = || -> Outcome<String> {
        let mut buffer = [0; 256];
        let length = listener.recv(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    let lines = right(&folder, &server.address().to_string())?;
    let file = configuration(&folder, &lines)?;
    let (mut broker, _) = start(&file, &format!("export NOTIFY_SOCKET='{}';", socket.display()))?;
    assert!(hear()?.starts_with("READY=1"));
    let path = file.display().to_string();
    wait_for("it says that it is ready", SETTLE_MAX, || async {
        let output = run_program(&["health", "--config", &path]).await.ok()?;
        (output.status.code() == Some(0)).then_some(())
    })
    .await?;
    let pid = rustix::process::Pid::from_child(&broker.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
    let said = hear()?;
    assert!(
        said.starts_with("STOPPING=1") && said.contains("EXTEND_TIMEOUT_USEC=75000000"),
        "{said}"
    );
    wait_for("it ends", Duration::from_secs(30), || {
        let ended = broker.0.try_wait().ok().flatten();
        async move { ended.filter(std::process::ExitStatus::success).map(|_| ()) }
    })
    .await?;
    let output = run_program(&["health", "--config", &path]).await?;
    assert_eq!(output.status.code(), Some(3));
    drop(server);
    Ok(fs::remove_dir_all(folder)?)
}
