//! An operator's plans without a browser: through any broker, run once, void once the cluster has moved on, and whoever asked may be gone.

use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;

use barnabas_tests::Outcome;
use barnabas_tests::cluster::{Cluster, Options, SETTLE_MAX, fresh_directory, run_program};
use barnabas_tests::page::{Answer, json, raw};
use barnabas_tests::wait::wait_for;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

const TOKEN: &str = "e2e-0123456789abcdef0123456789abcdef";

/// Three brokers with the same token, and its file.
async fn start() -> Outcome<(Cluster, PathBuf)> {
    let file = fresh_directory()?.join("operator.token");
    let mut options = std::fs::OpenOptions::new();
    let mut token = options.write(true).create(true).truncate(true).mode(0o600).open(&file)?;
    std::io::Write::write_all(&mut token, TOKEN.as_bytes())?;
    let mut options = Options::default();
    options.config.push_str(&format!("http.operator.token.file: {}\n", file.display()));
    Ok((Cluster::start(options).await?, file))
}

fn address(cluster: &mut Cluster, id: i32) -> String {
    cluster.broker(id).config().http_listener.to_string()
}

fn request(method: &str, at: &str, path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "{method} /api/v1/{path} HTTP/1.0\r\nHost: {at}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn post(at: &str, path: &str, body: &Value) -> Outcome<Answer> {
    raw(at, request("POST", at, path, body).as_bytes()).await
}

/// The answer to a POST that must be granted.
async fn granted(at: &str, path: &str, body: &Value) -> Outcome<Value> {
    let answer = post(at, path, body).await?;
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    if answer.status != 200 {
        return Err(format!("{path} {body}: {}: {text}", answer.status).into());
    }
    answer.json()
}

async fn look(at: &str, id: &str) -> Outcome<Value> {
    raw(at, request("GET", at, &format!("plans/{id}"), &json!({})).as_bytes()).await?.json()
}

fn id(plan: &Value) -> String {
    plan["plan_id"].as_str().unwrap_or_default().to_owned()
}

async fn topics(at: &str) -> Outcome<Vec<String>> {
    let told = json(at, "/api/v1/topics").await?;
    let names = told["topics"].as_array().into_iter().flatten();
    Ok(names.filter_map(|topic| Some(topic["name"].as_str()?.to_owned())).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_change_the_cluster_once_and_only_as_they_were_shown() -> Outcome<()> {
    let (mut cluster, file) = start().await?;
    let at: Vec<String> = (1..=3).map(|id| address(&mut cluster, id)).collect();
    assert_eq!(json(&at[0], "/api/v1/cluster").await?["read_only"], false);

    // Whoever is controller: each broker makes a topic.
    for (n, at) in at.iter().enumerate() {
        let name = format!("topic-{n}");
        let wanted = json!({
            "action": "create_topic", "topic": name, "partitions": 2, "replication_factor": 3,
            "configs": { "min.insync.replicas": "2" },
        });
        let plan = granted(at, "plans", &wanted).await?;
        assert_eq!(plan["risks"], json!([]), "{plan}");
        assert!(!topics(at).await?.contains(&name), "it was only to be shown");
        let run = format!("plans/{}/run", id(&plan));
        let done = granted(at, &run, &json!({})).await?;
        assert_eq!((&done["outcome"], &done["results"][0]["ok"]), (&json!("done"), &json!(true)));
        assert!(topics(at).await?.contains(&name), "this broker knows it when it is answered");
        assert_eq!(post(at, &run, &json!({})).await?.status, 409, "once");
        assert_eq!(post(at, "plans", &wanted).await?.status, 400, "it exists");
        let command = plan["command"].as_str().unwrap_or_default();
        assert!(command.starts_with(&format!("barnabas topic create {name} ")), "{command}");
    }

    // What the command says is what the CLI takes.
    let wanted = json!({ "action": "alter_config", "scope": "topic:topic-0", "set": { "retention.ms": "60000" } });
    let plan = granted(&at[1], "plans", &wanted).await?;
    assert_eq!(plan["risks"][0]["severity"], "bad", "{plan}");
    let command = plan["command"].as_str().unwrap_or_default().replace('\'', "");
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    let done = run_program(&words).await?;
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    wait_for("broker 2 knows", SETTLE_MAX, || async {
        let told = json(&at[1], "/api/v1/configs?scope=topic:topic-0").await.ok()?;
        let mut all = told["configs"].as_array()?.iter();
        all.any(|c| c["key"] == "retention.ms" && c["value"] == "60000").then_some(())
    })
    .await?;
    let stale = post(&at[1], &format!("plans/{}/run", id(&plan)), &json!({})).await?;
    assert_eq!(stale.status, 409, "the command was faster");

    // A broker dies between the look and the run.
    let drain = json!({ "action": "drain", "broker": 2 });
    let plan = granted(&at[0], "plans", &drain).await?;
    assert!(plan["steps_total"].as_u64() > Some(6), "it has a replica of all: {plan}");
    cluster.broker(3).kill().await?;
    wait_for("broker 1 knows", SETTLE_MAX, || async {
        let counts = json(&at[0], "/api/v1/cluster").await.ok()?["counts"].clone();
        (counts["under_replicated_partitions"].as_u64()? == 6).then_some(())
    })
    .await?;
    let refused = post(&at[0], &format!("plans/{}/run", id(&plan)), &json!({})).await?;
    assert_eq!(refused.status, 409, "{}", refused.head);
    assert!(
        refused.json()?["error"]["message"]
            .as_str()
            .unwrap_or_default()
            .contains("partition epoch")
    );
    assert_eq!(json(&at[0], "/api/v1/brokers").await?["brokers"][1]["state"], "registered");
    // A new plan says what that means: none of its partitions could do without it.
    let plan = granted(&at[0], "plans", &drain).await?;
    assert_eq!((&plan["moves_leaders"], &plan["steps_total"]), (&json!(0), &json!(1)), "{plan}");
    assert_eq!(plan["risks_total"], 6, "{plan}");
    cluster.broker(3).start()?;
    cluster.until_healed("topic-2", 3).await?;
    cluster.until_healed("topic-1", 3).await?;
    cluster.until_healed("topic-0", 3).await?;

    // Whoever asked hangs up: the plan goes on, and what became of it is told.
    let plan = granted(&at[0], "plans", &drain).await?;
    let run = request("POST", &at[0], &format!("plans/{}/run", id(&plan)), &json!({}));
    let mut stream = TcpStream::connect(&at[0]).await?;
    stream.write_all(run.as_bytes()).await?;
    wait_for("it runs", SETTLE_MAX, || async {
        (look(&at[0], &id(&plan)).await.ok()?["state"] != "previewed").then_some(())
    })
    .await?;
    drop(stream);
    let told = wait_for("it is told", SETTLE_MAX, || async {
        let told = look(&at[0], &id(&plan)).await.ok()?;
        (told["state"] == "ended" && told["progress"]["done"] == 6).then_some(told)
    })
    .await?;
    assert_eq!(told["outcome"]["outcome"], "done", "{told}");
    assert_eq!(json(&at[0], "/api/v1/brokers").await?["brokers"][1]["state"], "draining");

    // The token is nowhere, and a file that others can read ends a start.
    for id in 1..=3 {
        assert!(!cluster.broker(id).log().contains(TOKEN), "broker {id} has logged the token");
        assert!(!cluster.broker(id).metrics().await?.contains(TOKEN), "broker {id}");
    }
    cluster.broker(1).terminate().await?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
    let config = cluster.broker(1).config_file();
    let refused = run_program(&["broker", "--config", &config.display().to_string()]).await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("chmod 600"), "{said}");
    std::fs::remove_dir_all(file.parent().ok_or("no directory")?)?;
    Ok(())
}
