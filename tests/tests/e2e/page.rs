//! The operator's page without a browser: its files, its API, its events over a kill, and what hostile requests get.

use barnabas_tests::Outcome;
use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX};
use barnabas_tests::kcat;
use barnabas_tests::page::{Events, get, json, raw};
use barnabas_tests::wait::wait_for;
use serde_json::{Value, json};

/// Streams of one broker (EVENT_STREAMS_MAX).
const STREAMS: usize = 64;

async fn start() -> Outcome<Cluster> {
    let cluster = Cluster::start(Options::default()).await?;
    let configs = &[("min.insync.replicas", "2")];
    let topic = NewTopic { name: "orders", partitions: 6, replication_factor: 3, configs };
    super::topic(&cluster, topic).await?;
    Ok(cluster)
}

fn address(cluster: &mut Cluster, id: i32) -> String {
    cluster.broker(id).config().http_listener.to_string()
}

/// The fields that an object must have, whatever they say.
fn has(object: &Value, fields: &str) {
    for field in fields.split_whitespace() {
        assert!(object.get(field).is_some(), "no {field} in {object}");
    }
}

/// Every path of the API answers in its shape and says what ZooKeeper says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_tells_what_is_so_in_its_shapes() -> Outcome<()> {
    let mut cluster = start().await?;
    let (bootstrap, at) = (cluster.bootstrap(), address(&mut cluster, 1));
    kcat::run(&bootstrap, &["-P", "-t", "orders", "-p", "3", "-X", "acks=all"], b"a\nb\nc\n")?;

    for (file, part) in [("/", "app.js"), ("/app.js", "use strict"), ("/style.css", ":root")] {
        let answer = get(&at, file).await?;
        assert_eq!(answer.status, 200, "{file}");
        assert!(String::from_utf8_lossy(&answer.body).contains(part), "{file}");
        let head = answer.head.to_lowercase();
        for header in ["content-security-policy: default-src 'none'", "nosniff", "no-referrer"] {
            assert!(head.contains(header), "{file}: {head}");
        }
        assert!(!head.contains("access-control"), "{head}");
    }
    let packed = format!("GET /app.js HTTP/1.0\r\nHost: {at}\r\nAccept-Encoding: gzip\r\n\r\n");
    let packed = raw(&at, packed.as_bytes()).await?;
    assert!(packed.head.contains("gzip") && packed.body.len() < 40_000, "{}", packed.body.len());

    let told = json(&at, "/api/v1/cluster").await?;
    has(
        &told,
        "cluster_id served_by version now_ms read_only controller zookeeper counts lost_records_30d problems",
    );
    assert_eq!((&told["served_by"], &told["read_only"]), (&json!(1), &json!(true)));
    assert_eq!(told["counts"]["partitions"], 6);
    assert_eq!((&told["counts"]["offline_partitions"], &told["problems"]), (&json!(0), &json!([])));
    let (controller, epoch) = cluster.znodes().await?.controller().await?.ok_or("no controller")?;
    assert_eq!(
        told["controller"],
        json!({"id": controller, "epoch": epoch, "state": "active", "since_ms": null})
    );
    assert_eq!(told["lost_records_30d"]["acks_all"], 0);
    let round_trip_ms = told["zookeeper"]["round_trip_ms_p99"].as_f64();
    assert!(round_trip_ms.is_some_and(|ms| ms < 10_000.0), "its registration took some: {told}");

    let brokers = json(&at, "/api/v1/brokers").await?;
    for (broker, id) in brokers["brokers"].as_array().ok_or("no list")?.iter().zip(1..) {
        has(
            broker,
            "host rack kafka_port grpc_port state_since_ms broker_epoch leaders replicas under_replicated_leaders \
                     follower_lag_records_max bytes_in_per_s disk_used_percent flush_ms_p99 recovery_percent version",
        );
        assert_eq!((&broker["id"], &broker["state"]), (&json!(id), &json!("registered")));
        assert_eq!(
            broker["http_port"],
            cluster.broker(id).config().http_listener.port,
            "asked of it"
        );
        assert_eq!(
            (&broker["replicas"], &broker["zookeeper_session"]),
            (&json!(6), &json!("connected"))
        );
    }

    let topics = json(&at, "/api/v1/topics").await?;
    let topic = &topics["topics"][0];
    has(topic, "topic_id cleanup_policy bytes bytes_in_per_s offline_partitions durability");
    assert_eq!((&topic["name"], &topic["partition_count"]), (&json!("orders"), &json!(6)));
    assert_eq!(topic["durability"]["acks_all"]["one_power_cut"], "survives");
    assert_eq!(
        json(&at, "/api/v1/partitions/map").await?,
        json!({"topics": [{"name": "orders", "states": "......"}]})
    );

    let states = cluster.znodes().await?.partitions("orders").await?;
    let list = json(&at, "/api/v1/partitions?limit=2&from=3").await?;
    assert_eq!((&list["total"], &list["from"]), (&json!(6), &json!(3)));
    let rows = list["partitions"].as_array().ok_or("no list")?;
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["partition"], &rows[0]["state"]), (&json!(3), &json!("online")));
    assert_eq!(rows[0]["leader"], json!(states[&3].leader), "{rows:?}");
    // Whoever leads, its leader tells it.
    assert_eq!((&rows[0]["log_end_offset"], &rows[0]["high_watermark"]), (&json!(3), &json!(3)));
    assert_eq!(json(&at, "/api/v1/partitions?state=any").await?["total"], 0);
    assert_eq!(json(&at, "/api/v1/partitions?q=ORDERS-3").await?["total"], 1);

    let one = json(&at, "/api/v1/partitions/orders/3").await?;
    has(
        &one,
        "leader_epoch partition_epoch controller_epoch osr adding_replicas preferred_leader isr_history",
    );
    for replica in one["replicas"].as_array().ok_or("no list")? {
        has(replica, "broker_epoch role flushed_offset caught_up_ms_ago reported_ms_ago");
        assert_eq!(
            (&replica["log_end_offset"], &replica["in_isr"]),
            (&json!(3), &json!(true)),
            "{replica}"
        );
    }

    assert_eq!(
        json(&at, "/api/v1/groups").await?,
        json!({"groups": [], "total": 0, "complete": true})
    );
    assert_eq!(json(&at, "/api/v1/failovers").await?, json!({"failovers": [], "total": 0}));
    let ledger = json(&at, "/api/v1/ledger?topic=orders&limit=5").await?;
    assert_eq!((&ledger["entries"], &ledger["verified_at_ms"]), (&json!([]), &Value::Null));
    let explained = json(&at, "/api/v1/explain/partition/orders/3").await?;
    has(
        &explained,
        "kind name state cause headline text evidence heals_by_itself next_command alternatives ruled_out",
    );
    assert_eq!(explained["severity"], "ok");
    json(&at, "/api/v1/explain/cluster").await?;
    let configs = json(&at, "/api/v1/configs").await?;
    let port = configs["configs"]
        .as_array()
        .ok_or("no list")?
        .iter()
        .find(|c| c["key"] == "http.listener");
    assert_eq!(port.ok_or("no key")?["source"], "broker_file");
    let of_topic = json(&at, "/api/v1/configs?scope=topic:orders").await?;
    let min = of_topic["configs"]
        .as_array()
        .ok_or("no list")?
        .iter()
        .find(|c| c["key"] == "min.insync.replicas");
    let min = min.ok_or("no key")?;
    assert_eq!(
        (&min["value"], &min["source"], &min["live"]),
        (&json!("2"), &json!("topic"), &json!(true))
    );

    for (path, status, code) in [
        ("/api/v1/", 404, "not_found"),
        ("/api/v1/nowhere", 404, "not_found"),
        ("/api/v1/partitions/orders/99", 404, "not_found"),
        ("/api/v1/partitions/orders/x", 400, "bad_request"),
        ("/api/v1/partitions/../../etc/passwd", 404, "not_found"),
        ("/api/v1/partitions?limit=501", 400, "bad_request"),
        ("/api/v1/partitions?state=well", 400, "bad_request"),
        ("/api/v1/partitions?q=%zz", 400, "bad_request"),
        ("/api/v1/groups/%ff", 400, "bad_request"),
        ("/api/v1/groups/none%2Fsuch", 404, "not_found"),
        ("/api/v1/failovers/0-0", 404, "not_found"),
        ("/api/v1/explain/weather", 404, "not_found"),
        ("/api/v1/explain/partition/no-such/0", 404, "not_found"),
        ("/api/v1/configs?scope=broker:99", 404, "not_found"),
        ("/api/v1/configs?scope=all", 400, "bad_request"),
    ] {
        let answer = get(&at, path).await?;
        let said = answer.json()?;
        assert_eq!(
            (answer.status, &said["error"]["code"]),
            (status, &json!(code)),
            "{path}: {said}"
        );
        assert!(said["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{said}");
    }
    Ok(())
}

/// A leader is killed: the open stream tells of it, an interrupted one is made whole, an unknown place is said to be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_tell_of_a_failover_and_nothing_is_missed() -> Outcome<()> {
    let mut cluster = start().await?;
    let (controller, _) = cluster.znodes().await?.controller().await?.ok_or("no controller")?;
    let others: Vec<i32> = (1..=3).filter(|id| i64::from(*id) != controller).collect();
    let (served, killed) = (others[0], others[1]);
    let at = address(&mut cluster, served);
    let mut events = Events::open(&at, None).await?;
    let first = events.until("a beat", |event| event.name == "beat").await?;
    assert!(first.data["now_ms"].as_i64().is_some_and(|now| now > 0));

    cluster.broker(killed).kill().await?;
    let changed = events.until("partitions", |event| event.name == "partitions").await?;
    // Its process is gone, and nobody else leads yet: what is told in between is not that it serves.
    let rows = changed.data["changed"].as_array().ok_or("no list")?;
    let unserved = |row: &Value| row["leader"] != killed || row["state"] == "offline";
    assert!(rows.iter().all(unserved), "{rows:?}");
    let sick =
        |e: &barnabas_tests::page::Event| e.name == "cluster" && e.data["problems"] != json!([]);
    let cluster_told = events.until("a problem", sick).await?;
    let problem = &cluster_told.data["problems"][0];
    has(problem, "severity kind target what why since_ms heals_by_itself heals_when");
    let failover = events.until("the failover", |event| event.name == "failover").await?;
    has(
        &failover.data,
        "id kind cause detected_by controller_id started_at_ms ongoing client_outage phases",
    );
    assert_eq!(
        (&failover.data["broker"], &failover.data["cause"]),
        (&json!(killed), &json!("process_crash"))
    );
    let id = failover.data["id"].as_str().ok_or("no id")?;
    let shown = json(&at, &format!("/api/v1/failovers/{id}")).await?;
    let phases = shown["phases"].as_array().ok_or("no phases")?;
    let critical: Vec<&Value> = phases.iter().filter(|phase| phase["critical"] == true).collect();
    assert!(critical.windows(2).all(|two| two[0]["end_ms"] == two[1]["start_ms"]), "{critical:?}");

    // Who was away since the first beat gets the same events again, each once.
    let mut again = Events::open(&at, Some(&first.id)).await?;
    let replayed = again.until("partitions again", |event| event.name == "partitions").await?;
    assert_eq!(replayed, changed);
    let others_lead = |event: &barnabas_tests::page::Event| {
        let rows = event.data["changed"].as_array();
        let led = |row: &Value| row["leader"].is_i64() && row["leader"] != killed;
        event.name == "partitions" && rows.is_some_and(|rows| rows.iter().all(led))
    };
    let mut whole = Events::open(&at, Some(&first.id)).await?;
    whole.until("new leaders", others_lead).await?;
    let replayed = again.until("the failover again", |event| event.name == "failover").await?;
    assert_eq!(replayed, failover);
    for unknown in ["1-1", "nonsense", "0-99999999999999"] {
        let mut lost = Events::open(&at, Some(unknown)).await?;
        assert_eq!(lost.next().await?.name, "resync", "{unknown}");
    }

    let dead = |brokers: &Value| {
        brokers["brokers"].as_array()?.iter().find(|b| b["id"] == killed).cloned()
    };
    let gone = wait_for("the broker is told to be down", SETTLE_MAX, || async {
        dead(&json(&at, "/api/v1/brokers").await.ok()?).filter(|broker| broker["state"] == "dead")
    });
    let gone = gone.await?;
    assert!(
        gone["state_since_ms"].as_i64().is_some() && gone["disk_used_percent"].is_null(),
        "{gone}"
    );
    let explained = json(&at, &format!("/api/v1/explain/broker/{killed}")).await?;
    assert_eq!((&explained["state"], &explained["cause"]), (&json!("dead"), &json!("broker_down")));
    assert!(explained["next_command"]["command"].as_str().is_some(), "{explained}");
    let one = json(&at, "/api/v1/partitions/orders/0").await?;
    assert_ne!(one["isr_history"], json!([]), "{one}");
    let offline =
        one["replicas"].as_array().ok_or("no list")?.iter().find(|r| r["broker"] == killed);
    assert_eq!(offline.ok_or("no replica")?["state"], "offline");

    cluster.broker(killed).start()?;
    let well =
        |e: &barnabas_tests::page::Event| e.name == "cluster" && e.data["problems"] == json!([]);
    events.until("all is well", well).await?;
    Ok(())
}

/// What is no request, or one too many, gets a clean refusal, and the port goes on serving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_requests_are_refused_and_cost_nobody_anything() -> Outcome<()> {
    let mut cluster = start().await?;
    let at = address(&mut cluster, 2);
    let long = "x".repeat(100_000);
    for (request, status) in [
        (format!("GET /{long} HTTP/1.1\r\nHost: {at}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nHost: {at}\r\nCookie: {long}\r\n\r\n"), 431),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n".to_owned(), 421),
        (format!("POST /api/v1/cluster HTTP/1.0\r\nHost: {at}\r\n\r\n"), 405),
        (format!("DELETE / HTTP/1.0\r\nHost: {at}\r\n\r\n"), 405),
        (
            format!("POST /api/v1/plans HTTP/1.0\r\nHost: {at}\r\nAuthorization: Bearer x\r\n\r\n"),
            403,
        ),
        (format!("GET /../../etc/passwd HTTP/1.0\r\nHost: {at}\r\n\r\n"), 404),
        (
            format!("GET /api/v1/partitions?{} HTTP/1.0\r\nHost: {at}\r\n\r\n", "a=1&".repeat(40)),
            400,
        ),
        ("\u{16}\u{3}\u{1}\u{2}\0 this is no HTTP\r\n\r\n".to_owned(), 400),
        ("GET\r\n\r\n".to_owned(), 400),
    ] {
        let answer = raw(&at, request.as_bytes()).await?;
        assert_eq!(answer.status, status, "{request:.60}: {}", answer.head);
    }
    let mut open = Vec::new();
    for _ in 0..STREAMS {
        open.push(Events::open(&at, None).await?);
    }
    let refused = Events::open(&at, None).await.err().ok_or("one more than there may be")?;
    assert_eq!(refused.to_string(), "429");
    // The others are served beside them.
    assert_eq!(json(&at, "/api/v1/cluster").await?["served_by"], 2);
    assert_eq!(get(&at, "/health/ready").await?.status, 200);
    drop(open);
    wait_for("their places are free again", SETTLE_MAX, || async {
        Events::open(&at, None).await.is_ok().then_some(())
    })
    .await?;
    Ok(())
}
