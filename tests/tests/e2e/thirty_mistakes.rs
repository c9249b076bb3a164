//! The classic mistakes of configuration, each made with the real binary: the start ends with exactly this sentence, or, where it must go
//! on, its log or the command that finds it says it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use barnabas_broker::zookeeper::{ZooKeeperOptions, ZooKeeperServer};
use barnabas_tests::Outcome;
use barnabas_tests::cluster::{SETTLE_MAX, fresh_directory, run_program};
use barnabas_tests::ports;
use barnabas_tests::wait::wait_for;

use super::bad_input::{configuration, right, with};
use super::mistakes::{start, until_logged};

/// The first three lines of a file that is right, in which DIR is a directory of its own.
const LEAST: &str = "broker.id: 9\nlog.dirs: DIR/data\nzookeeper.connect: 127.0.0.1:2181\n";

/// What somebody did; the lines that are added, or, where it begins with `=`, all of the file; what the start ends with, behind the name of
/// the file.
type Mistake = (&'static str, &'static str, &'static str);

const IN_THE_FILE: &[Mistake] = &[
    (
        "a tab",
        "log:\n\tsegment.bytes: 1000000",
        " is not a configuration: line 5 has a tab, which YAML does not take: write spaces",
    ),
    (
        "a misspelt key",
        "zookeeper.sesion.timeout.ms: 6000",
        ", line 4: unknown key 'zookeeper.sesion.timeout.ms'; did you mean 'zookeeper.session.timeout.ms'?",
    ),
    (
        "a topic's name for a broker's setting",
        "flush.ms: 1000",
        ", line 4: unknown key 'flush.ms'; did you mean 'log.flush.interval.ms'?",
    ),
    (
        "a time with its unit",
        "log.flush.interval.ms: 5s",
        ", line 4: 'log.flush.interval.ms' is '5s'; expected a whole number from 0 to 9223372036854775807, as a number alone: write 5000",
    ),
    (
        "a size with its unit",
        "log.segment.bytes: 1GiB",
        ", line 4: 'log.segment.bytes' is '1GiB'; expected a whole number from 14 to 2147483647, as a number alone: write 1073741824",
    ),
    (
        "days for hours",
        "log.retention.hours: 7d",
        ", line 4: 'log.retention.hours' is '7d'; expected a whole number from -1 to 2147483647, as a number alone: write 168",
    ),
    (
        "a key twice",
        "broker.id: 10",
        " is not a configuration: line 4: 'broker.id' is given twice, first in line 1; keep one of them",
    ),
    (
        "a line of server.properties",
        "num.partitions=2",
        " is not a configuration: line 4 is written as in server.properties: write `num.partitions: 2`",
    ),
    (
        "no space behind the colon",
        "num.partitions:2",
        " is not a configuration: line 4 has no space behind the colon: write `num.partitions: 2`",
    ),
    (
        "a key of Kafka without ZooKeeper",
        "process.roles: broker",
        ", line 4: unknown key 'process.roles'; it is not served by this version; remove it (README lists the keys)",
    ),
    (
        "no id",
        "=log.dirs: DIR/data\nzookeeper.connect: 127.0.0.1:2181",
        ": 'broker.id' is missing; add a line `broker.id: VALUE`, where VALUE is a whole number from 0 to 2147483647",
    ),
    (
        "an id in words",
        "=broker.id: one\nlog.dirs: DIR/data\nzookeeper.connect: 127.0.0.1:2181",
        ", line 1: 'broker.id' is 'one'; expected a whole number from 0 to 2147483647",
    ),
    (
        "a scheme before ZooKeeper's address",
        "=broker.id: 9\nlog.dirs: DIR/data\nzookeeper.connect: zk://127.0.0.1:2181",
        ", line 3: 'zookeeper.connect' is 'zk://127.0.0.1:2181'; expected host:port[,host:port]...[/chroot]",
    ),
    (
        "two listeners",
        "listeners: [PLAINTEXT://127.0.0.1:1, PLAINTEXT://127.0.0.1:2]",
        ", line 4: 'listeners' is 'PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2': this version serves one listener; keep one",
    ),
    (
        "a listener for everybody, without saying so",
        "listeners: PLAINTEXT://10.0.0.1:9092",
        ", line 4: 'listeners' is '10.0.0.1:9092': anybody who reaches this address could read, write and delete, for it asks for no \
         authentication; bind 127.0.0.1, or accept that with the line `security.allow.insecure: [PLAINTEXT]`",
    ),
    (
        "every address, and none to be advertised",
        "listeners: PLAINTEXT://0.0.0.0:9092\nsecurity.allow.insecure: [PLAINTEXT]",
        ", line 4: 'listeners' is '0.0.0.0:9092': it cannot be advertised as it is; add `advertised.listeners` with an address that \
         others can dial",
    ),
    (
        "every address advertised",
        "advertised.listeners: PLAINTEXT://0.0.0.0:9092",
        ", line 4: 'advertised.listeners' is '0.0.0.0:9092': clients cannot dial every address; give one that they can reach",
    ),
    (
        "one port for two listeners",
        "http.listener: 127.0.0.1:9192",
        ", line 4: 'http.listener' is '127.0.0.1:9192': it is the address of 'admin.listener' too; give it a port of its own",
    ),
    (
        "a lag time below the time that followers wait",
        "replica.lag.time.max.ms: 600",
        ", line 4: 'replica.fetch.wait.max.ms' is '500': it must be at most half of 'replica.lag.time.max.ms', or followers that wait for \
         records would leave the ISR",
    ),
    (
        "a least session above the greatest",
        "group.min.session.timeout.ms: 9000000",
        ", line 4: 'group.min.session.timeout.ms' is '9000000': it must not be more than 'group.max.session.timeout.ms', 1800000",
    ),
    (
        "requests larger than the memory for all of them",
        "socket.request.max.bytes: 1073741824",
        ", line 4: 'queued.max.request.bytes' is '268435456': it must be at least 'socket.request.max.bytes', 1073741824",
    ),
    (
        "a policy that is none",
        "log.cleanup.policy: remove",
        ", line 4: 'log.cleanup.policy' is 'remove'; expected delete, compact, or compact,delete",
    ),
    (
        "yes for true",
        "unclean.leader.election.enable: yes please",
        ", line 4: 'unclean.leader.election.enable' is 'yes please'; expected true or false",
    ),
    (
        "no replica at all",
        "default.replication.factor: 0",
        ", line 4: 'default.replication.factor' is '0'; expected a whole number from 1 to 1000",
    ),
    (
        "a list of racks",
        "broker.rack: [a, b]",
        ", line 4: 'broker.rack' is '[a, b]'; expected a name, and no list: write the value alone",
    ),
    (
        "a file for a directory",
        "=broker.id: 9\nlog.dirs: DIR/plain\nzookeeper.connect: 127.0.0.1:2181",
        ": 'log.dirs' is 'DIR/plain': it is a file; name a directory",
    ),
    (
        "one directory under two names",
        "=broker.id: 9\nlog.dirs: DIR/data, DIR/x/../data\nzookeeper.connect: 127.0.0.1:2181",
        ": 'log.dirs' is 'DIR/x/../data': it is the same directory as DIR/data; keep one",
    ),
    (
        "a directory within another",
        "=broker.id: 9\nlog.dirs: [DIR/data, DIR/data/b]\nzookeeper.connect: 127.0.0.1:2181",
        ": 'log.dirs' is 'DIR/data/b': it and DIR/data lie within each other; give each log directory a place of its own",
    ),
];

/// The start ends with exit code 1 and exactly this sentence.
async fn ends_with(file: &Path, sentence: &str) -> Outcome<()> {
    let output = run_program(&["broker", "--config", &file.display().to_string()]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.trim_end(), format!("barnabas: {sentence}"));
    assert_eq!(output.status.code(), Some(1), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_in_a_file_ends_the_start_with_a_sentence() -> Outcome<()> {
    let folder = fresh_directory()?;
    fs::write(folder.join("plain"), "x")?;
    let file = folder.join("bad.yaml");
    let here = folder.display().to_string();
    for (what, lines, sentence) in IN_THE_FILE {
        let text = lines.strip_prefix('=').map_or_else(|| format!("{LEAST}{lines}"), str::to_owned);
        fs::write(&file, text.replace("DIR", &here) + "\n")?;
        println!("{what}");
        ends_with(&file, &format!("{}{sentence}", file.display()).replace("DIR", &here)).await?;
        assert!(!folder.join("data").exists(), "{what}: nothing is left");
    }
    Ok(fs::remove_dir_all(folder)?)
}

/// A file system that is only read; let go when dropped. `None` where this process may not mount.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn mount(at: PathBuf) -> Outcome<Option<Self>> {
        fs::create_dir_all(&at)?;
        let mount = ["-t", "tmpfs", "-o", "ro", "barnabas"];
        let status = Command::new("mount").args(mount).arg(&at).stderr(Stdio::null()).status()?;
        Ok(status.success().then_some(Self(at)))
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A server with the sessions of production: 4 s at least.
async fn zookeeper(folder: &Path, name: &str, tick_time_ms: u32) -> Outcome<ZooKeeperServer> {
    Ok(ZooKeeperServer::start(&ZooKeeperOptions {
        data_dir: folder.join(name),
        port: Some(ports::free()?),
        tick_time_ms,
        force_sync: false,
        ensemble: None,
    })
    .await?)
}

/// Mistakes that are found by a start alone: how many were made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_about_the_surroundings_is_told_too() -> Outcome<()> {
    let folder = fresh_directory()?;
    let data = folder.join("bad-data");
    let silent = format!("127.0.0.1:{}", ports::free()?);
    let mut made = IN_THE_FILE.len();

    let lines = with(right(&folder, &silent)?, "zookeeper.connection.timeout.ms", 300);
    let file = configuration(&folder, &lines)?;
    let output = run_program(&["broker", "--config", &file.display().to_string()]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let (before, behind) = (
        format!("barnabas: ZooKeeper at {silent} cannot be reached within 300 ms ("),
        "); start it, or correct zookeeper.connect (zookeeper.connection.timeout.ms sets the wait)\n",
    );
    assert!(said.starts_with(&before) && said.ends_with(behind), "{said}");
    made += 1;

    let own = data.display().to_string();
    match ReadOnly::mount(folder.join("locked"))? {
        None => eprintln!("*** SKIPPED: a directory that cannot be written, run this as root"),
        Some(locked) => {
            let lines = with(right(&folder, &silent)?, "log.dirs", locked.0.display());
            let file = configuration(&folder, &lines)?;
            let sentence = format!(
                "{}: 'log.dirs' is '{}': this user may not write there; give the directory to the user that runs the broker \
                 (chown), or name another",
                file.display(),
                locked.0.display()
            );
            ends_with(&file, &sentence).await?;
        }
    }
    made += 1;

    let mut server = zookeeper(&folder, "zookeeper", 2_000).await?;
    let zookeeper_at = server.address().to_string();
    let chroot = format!("{zookeeper_at}/barnabas");
    let file = configuration(&folder, &right(&folder, &chroot)?)?;
    let sentence = format!(
        "the chroot /barnabas of zookeeper.connect '{chroot}' does not exist; create it once, for instance with 'zkCli.sh -server \
         {zookeeper_at} create /barnabas', or correct zookeeper.connect"
    );
    ends_with(&file, &sentence).await?;
    made += 1;

    // What lets the broker start is in its log: few files, a session out of bounds, more in sync than there are.
    let right_lines = right(&folder, &zookeeper_at)?;
    let at = |key: &str| -> Outcome<String> {
        let line = right_lines.iter().find(|(name, _)| *name == key);
        Ok(line.ok_or("no such line")?.1.clone())
    };
    let (kafka, admin) = (at("listeners")?, at("admin.listener")?);
    let elsewhere = format!("PLAINTEXT://127.0.0.1:{}", ports::free()?);
    let mut lines = with(right_lines.clone(), "zookeeper.session.timeout.ms", 1_000);
    lines = with(lines, "min.insync.replicas", 2);
    lines = with(lines, "advertised.listeners", &elsewhere);
    let first = folder.join("first.yaml");
    fs::rename(configuration(&folder, &lines)?, &first)?;
    let (broker, log) = start(&first, "ulimit -n 1000;")?;
    until_logged(
        &log,
        &[
            "this process may open 1000 files, connections and logs alike; raise the limit to 65536 or more (LimitNOFILE= of a systemd \
             unit, `ulimit -n` of a shell)",
            "ZooKeeper grants sessions of at least 4000 ms, and zookeeper.session.timeout.ms asks for 1000: a dead host is noticed after \
             4000 ms; set it to that, or change the ensemble's minSessionTimeout (by default two tickTime)",
            "2 is more than default.replication.factor, 1: topics that do not say take nothing at acks=all; raise that to 3, or lower this",
            "registered",
        ],
    )
    .await?;
    made += 3;

    // Clients are told an address where nobody listens.
    let path = first.display().to_string();
    let said = wait_for("the doctor finds it", SETTLE_MAX, || async {
        let output = run_program(&["doctor", "--config", &path, "--admin", &admin]).await.ok()?;
        let said = String::from_utf8(output.stdout).ok()?;
        said.contains(elsewhere.trim_start_matches("PLAINTEXT://")).then_some(said)
    })
    .await?;
    assert!(said.contains("advertised.listeners"), "{said}");
    made += 1;

    // More replicas than brokers.
    let output =
        run_program(&["topic", "create", "t", "--replication-factor", "3", "--admin", &admin])
            .await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said.trim_end(),
        "barnabas: replication factor 3 is above the number of live brokers, 1; start more brokers or lower it (INVALID_REPLICATION_FACTOR)"
    );
    assert_eq!(output.status.code(), Some(1));
    made += 1;

    // What another broker has: the id, the port, the directory.
    let apart = |lines| with(lines, "log.dirs", folder.join("other").display());
    let other = || -> Outcome<_> { Ok(apart(right(&folder, &zookeeper_at)?)) };
    let file = configuration(&folder, &other()?)?;
    let output = run_program(&["broker", "--config", &file.display().to_string()]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let address = elsewhere.trim_start_matches("PLAINTEXT://");
    let before = format!(
        "barnabas: broker id 9 is already registered by another live broker ({address}, session 0x"
    );
    let behind = "); give this one another broker.id or stop that one\n";
    assert!(said.starts_with(&before) && said.ends_with(behind), "{said}");
    let file = configuration(&folder, &with(with(other()?, "listeners", &kafka), "broker.id", 8))?;
    let port = kafka.trim_start_matches("PLAINTEXT://");
    let sentence = format!(
        "cannot listen on {port} (listeners): Address already in use (os error 98); stop whoever uses that port, or change listeners"
    );
    ends_with(&file, &sentence).await?;
    let file = configuration(&folder, &with(right(&folder, &zookeeper_at)?, "broker.id", 8))?;
    let output = run_program(&["broker", "--config", &file.display().to_string()]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains(&own), "{said}");
    assert!(said.contains("another") && said.trim_end().lines().count() == 1, "{said}");
    made += 3;
    drop(broker);

    // Whose data it is: another broker's, another cluster's, of a ZooKeeper that lost its own, of a newer version.
    let meta = data.join("meta.properties");
    let text = fs::read_to_string(&meta)?;
    let id = text.lines().find_map(|line| line.strip_prefix("cluster.id=")).ok_or("no id")?;
    wait_for("its session is over", SETTLE_MAX, || async {
        let znodes = barnabas_tests::znodes::Znodes::connect(&zookeeper_at).await.ok()?;
        znodes.brokers().await.ok()?.is_empty().then_some(())
    })
    .await?;
    let file = configuration(&folder, &with(right(&folder, &zookeeper_at)?, "broker.id", 8))?;
    let output = run_program(&["broker", "--config", &file.display().to_string()]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("broker.id") && said.contains('9') && said.contains('8'), "{said}");
    fs::write(&meta, text.replace(id, "AAAAAAAAAAAAAAAAAAAAAA"))?;
    let file = configuration(&folder, &right(&folder, &zookeeper_at)?)?;
    let sentence = format!(
        "the data directory belongs to cluster AAAAAAAAAAAAAAAAAAAAAA, but ZooKeeper at {zookeeper_at} is that of cluster {id}; correct \
         zookeeper.connect, or give this broker another data directory"
    );
    ends_with(&file, &sentence).await?;
    fs::write(&meta, &text)?;
    server.stop();
    let empty = zookeeper(&folder, "empty", 100).await?;
    let empty_at = empty.address().to_string();
    let file = configuration(&folder, &right(&folder, &empty_at)?)?;
    let sentence = format!(
        "the data directory belongs to cluster {id}, but ZooKeeper at {empty_at} holds no cluster (/cluster/id is missing); correct \
         zookeeper.connect, or restore ZooKeeper's data (a snapshot of its own, or 'barnabas zookeeper restore')"
    );
    ends_with(&file, &sentence).await?;
    fs::write(&meta, text.replace("version=1", "version=2").replace("version=0", "version=2"))?;
    let output = run_program(&["broker", "--config", &file.display().to_string()]).await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("meta.properties") && said.contains("newer"), "{said}");
    made += 4;
    drop(empty);

    assert!(made >= 30, "thirty were promised, {made} are made");
    Ok(fs::remove_dir_all(folder)?)
}
