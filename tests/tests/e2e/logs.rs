//! The brokers' logs: turned up and down while they run, safe from what clients call themselves, and one grep away for a partition.

use std::fs;
use std::time::Duration;

use barnabas_proto::v1::admin_client::AdminClient;
use barnabas_proto::v1::{LogLevelsRequest, SetLogLevel};
use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::client::{Answer, Client};
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, run_program};
use barnabas_tests::wait::wait_for;
use barnabas_wire::encode_request;
use barnabas_wire::messages::MetadataRequest;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::topic;

/// All that a broker has logged.
fn log(cluster: &Cluster, id: i32) -> String {
    let file = cluster.directory().join(format!("broker-{id}.log"));
    String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned()
}

/// Asks a broker for its metadata under this name, and waits for the first bytes of its answer.
async fn ask_as(address: &str, client_id: &str) -> Outcome<()> {
    let frame = encode_request(1, client_id, 7, &MetadataRequest::default())?;
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(&frame).await?;
    stream.read_i32().await?;
    Ok(())
}

/// The level and its source that `barnabas broker log-level` tells of a target.
async fn level_of(admin: &str, target: &str, arguments: &[&str]) -> Outcome<(String, String)> {
    let words = [&["broker", "log-level", "--json", "--admin", admin], arguments].concat();
    let output = run_program(&words).await?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout)?;
    let levels = told["levels"].as_array().ok_or("no levels")?;
    let one = levels.iter().find(|one| one["target"] == target).ok_or("no such target")?;
    let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
    Ok((text("level"), text("source")))
}

fn pair(level: &str, source: &str) -> (String, String) {
    (level.to_owned(), source.to_owned())
}

/// The lines of requests that a broker has logged.
fn requests(cluster: &Cluster, id: i32) -> Vec<String> {
    let whole = log(cluster, id);
    whole.lines().filter(|line| line.contains("a request")).map(str::to_owned).collect()
}

/// One of two brokers is turned up and down: by the command, through the other one, and by its file with SIGHUP. What clients call
/// themselves forges no line. A file that is wrong, and levels that there are not, change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_turned_up_and_down_while_a_broker_runs() -> Outcome<()> {
    let config = "logging.level: [info, group=warn]\n".to_owned();
    let mut cluster = Cluster::start(Options { brokers: 2, config, ..Options::default() }).await?;
    let (admin, other) = (cluster.admin_address(2), cluster.admin_address(1));
    let kafka = cluster.broker(2).config().listener.to_string();
    assert_eq!(level_of(&admin, "root", &[]).await?, pair("info", "file"));
    assert_eq!(level_of(&admin, "group", &[]).await?, pair("warn", "file"));
    assert_eq!(level_of(&admin, "request", &[]).await?, pair("info", "root"));
    ask_as(&kafka, "unseen").await?;
    assert_eq!(requests(&cluster, 2), [""; 0]);

    let turned_up = level_of(&other, "request", &["--broker", "2", "request=debug"]).await?;
    assert_eq!(turned_up, pair("debug", "set"));
    let forged = "a\nINFO state_change: forged topic=t\u{202e}";
    ask_as(&kafka, forged).await?;
    ask_as(&kafka, &"y".repeat(250)).await?;
    wait_for("the requests are logged", SETTLE_MAX, || async {
        (requests(&cluster, 2).len() >= 2).then_some(())
    })
    .await?;
    let lines = requests(&cluster, 2);
    assert!(
        lines[0].contains(r#"client="a\nINFO state_change: forged topic=t\u{202e}" key=Metadata"#),
        "{lines:?}"
    );
    assert!(lines[1].contains(&format!("client={}… ", "y".repeat(128))), "{lines:?}");
    let whole = log(&cluster, 2);
    assert!(!whole.contains("\nINFO state_change: forged") && !whole.contains('\u{202e}'));
    assert_eq!(requests(&cluster, 1), [""; 0], "the other one stays as it is");

    let reset = level_of(&admin, "request", &["--reset"]).await?;
    assert_eq!(reset, pair("info", "root"));
    let before = requests(&cluster, 2).len();
    ask_as(&kafka, "unseen").await?;
    assert_eq!(requests(&cluster, 2).len(), before);

    let file = cluster.broker(2).config_file();
    let text = fs::read_to_string(&file)?;
    let changed = text.replace("[info, group=warn]", "[warn, request=debug]");
    fs::write(&file, format!("{changed}num.partitions: 7\n"))?;
    cluster.broker(2).hang_up()?;
    let read = "the file was read again, and what waits is named";
    wait_for(read, SETTLE_MAX, || async {
        let whole = log(&cluster, 2);
        let line = whole.lines().find(|line| line.contains("the configuration was read again"));
        line.is_some_and(|line| line.contains("waiting=\"num.partitions\"")).then_some(())
    })
    .await?;
    assert_eq!(level_of(&admin, "root", &[]).await?, pair("warn", "file"));
    assert_eq!(level_of(&admin, "group", &[]).await?, pair("warn", "root"));
    ask_as(&kafka, "seen").await?;
    wait_for("requests are logged by the file's word", SETTLE_MAX, || async {
        requests(&cluster, 2).iter().any(|line| line.contains("client=seen")).then_some(())
    })
    .await?;

    fs::write(&file, "logging.level: loud\n")?;
    cluster.broker(2).hang_up()?;
    wait_for("the wrong file is refused", SETTLE_MAX, || async {
        log(&cluster, 2).contains("the configuration cannot be read again").then_some(())
    })
    .await?;
    assert_eq!(level_of(&admin, "request", &[]).await?, pair("debug", "file"));

    // By the command line, and by whoever asks without it.
    let refused = run_program(&["broker", "log-level", "reqest=debug", "--admin", &admin]).await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("did you mean request?") && said.contains("state_change"), "{said}");
    let mut client = AdminClient::connect(format!("http://{admin}")).await?;
    let one =
        |target: &str, level: &str| SetLogLevel { target: target.into(), level: level.into() };
    let set = vec![one("group", "trace"), one("no\nsuch", "trace")];
    let answer = client.log_levels(LogLevelsRequest { reset: true, set }).await?.into_inner();
    let failure = answer.failure.ok_or("it was not refused")?;
    assert!(failure.message.contains(r"'no\nsuch' is no target"), "{failure:?}");
    assert_eq!(level_of(&admin, "group", &[]).await?, pair("warn", "root"), "nothing of it");
    Ok(())
}

/// Every line is an object, whatever it tells; fields have the same names as in text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_json_is_json_line_by_line() -> Outcome<()> {
    let config = "logging: {format: json, level: [info, request=debug]}\n".to_owned();
    let mut cluster = Cluster::start(Options { brokers: 1, config, ..Options::default() }).await?;
    let kafka = cluster.broker(1).config().listener.to_string();
    ask_as(&kafka, "a \"b\"\n\u{202e}").await?;
    wait_for("the request is logged", SETTLE_MAX, || async {
        (!requests(&cluster, 1).is_empty()).then_some(())
    })
    .await?;
    let whole = log(&cluster, 1);
    let lines: Vec<Value> = whole.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let request = lines.iter().find(|line| line["fields"]["message"] == "a request");
    let request = request.ok_or("no line of the request")?;
    assert_eq!((&request["target"], &request["level"]), (&"request".into(), &"DEBUG".into()));
    assert_eq!(request["fields"]["client"], r#""a \"b\"\n\u{202e}""#);
    assert!(!whole.contains('\u{202e}'));
    Ok(())
}

fn epoch_of(line: &str) -> Option<i32> {
    let rest = line.split(" leader_epoch=").nth(1)?;
    rest.split(' ').next()?.parse().ok()
}

/// A leader is killed under a producer, and comes back. What became of one of its partitions is told by the lines of all brokers that
/// one grep finds, in the order of their times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_grep_tells_the_failover_of_a_partition() -> Outcome<()> {
    // No session ends by itself meanwhile.
    let options = Options { session_timeout_ms: 60_000, ..Options::default() };
    let mut cluster = Cluster::start(options).await?;
    let new = NewTopic { name: "orders", partitions: 2, replication_factor: 3, configs: &[] };
    topic(&cluster, new).await?;
    let znodes = cluster.znodes().await?;
    let leader = znodes.partitions("orders").await?[&0].leader;
    let dead = i32::try_from(leader)?;
    cluster.broker(dead).kill().await?;
    let addresses = cluster.bootstrap();
    let attempt = std::cell::Cell::new(0);
    wait_for("a record is acknowledged by the next leader", SETTLE_MAX, || async {
        attempt.set(attempt.get() + 1);
        let client = Client::of_leader(&addresses, attempt.get(), "orders", 0).await;
        let answer = client.ok()?.produce("orders", 0, None, &[b"x".to_vec()]).await;
        matches!(answer, Ok(Answer::Appended(_))).then_some(())
    })
    .await?;
    // Before the preferred leader is back and leads again.
    let next = i32::try_from(znodes.partitions("orders").await?[&0].leader)?;
    assert_ne!(next, dead);
    cluster.broker(dead).start()?;
    cluster.until_healed("orders", 3).await?;

    let found = |cluster: &Cluster| {
        let mut lines: Vec<(String, i32)> = Vec::new();
        for id in 1..=3 {
            let whole = log(cluster, id);
            let of = whole.lines().filter(|line| line.contains("topic=orders partition=0 "));
            lines.extend(of.map(|line| (line.to_owned(), id)));
        }
        // Each begins with its time.
        lines.sort();
        lines
    };
    let steps: [(&str, Vec<String>); 5] = [
        (
            "elected",
            vec![
                format!("leader {dead} -> {next}, "),
                format!("broker {dead} (epoch "),
                "is suspected".to_owned(),
            ],
        ),
        ("leads", vec!["became leader".to_owned()]),
        ("appended", vec!["for the first time".to_owned(), "first_append_ms=".to_owned()]),
        ("asks for the ISR", vec!["proposing ISR".to_owned()]),
        ("ISR whole", vec![format!("leader {next} -> {next}, "), "proposal of leader".to_owned()]),
    ];
    wait_for("all steps are logged", Duration::from_secs(20), || async {
        let lines = found(&cluster);
        let told = |parts: &Vec<String>| {
            lines.iter().any(|(line, _)| parts.iter().all(|part| line.contains(part)))
        };
        steps.iter().all(|(_, parts)| told(parts)).then_some(())
    })
    .await
    .map_err(|error| format!("{error}: {:#?}", found(&cluster)))?;
    let lines = found(&cluster);
    for (line, _) in &lines {
        assert!(line.contains(" state_change: ") && line.contains(" leader_epoch="), "{line}");
    }
    // The election, the leadership in its epoch on the broker that it names, and the append in that epoch follow one another.
    let at = |parts: &[String]| {
        let place = lines.iter().position(|(line, _)| parts.iter().all(|part| line.contains(part)));
        place.ok_or_else(|| format!("{parts:?} is not in {lines:#?}"))
    };
    let elected = at(&steps[0].1)?;
    let epoch = epoch_of(&lines[elected].0).ok_or("no epoch")?;
    let of_next = |part: &str| {
        lines.iter().position(|(line, id)| {
            *id == next && line.contains(part) && epoch_of(line) == Some(epoch)
        })
    };
    let leads = of_next("became leader").ok_or("the new leader does not say so")?;
    let appended = of_next("for the first time").ok_or("nothing of the first append")?;
    assert!(elected < appended && leads < appended, "{lines:#?}");
    for (line, id) in &lines {
        println!("{id}: {line}");
    }
    // No line of any partition is spelled otherwise.
    for id in 1..=3 {
        for line in log(&cluster, id).lines().filter(|line| line.contains("partition=")) {
            assert!(line.contains(" topic=") && line.contains(" leader_epoch="), "{line}");
            assert!(!line.contains("topic=\""), "{line}");
        }
    }
    Ok(())
}
