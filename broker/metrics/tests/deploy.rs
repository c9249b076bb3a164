//! What `deploy/` makes of the metrics: dashboards, alerts and rules parse, and every metric in them is one of the table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use barnabas_metrics::{Kind, METRICS, find};

/// What Prometheus itself adds, and what `rules.yml` records.
const NOT_OURS: [&str; 1] = ["up"];
const RECORDED: [&str; 2] = ["barnabas:consumergroup_lag", "barnabas:messages_in:rate5m"];

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn yaml(name: &str) -> serde_yaml::Value {
    serde_yaml::from_str(&std::fs::read_to_string(deploy(name)).unwrap()).unwrap()
}

/// Every rule of a file.
fn rules(name: &str) -> Vec<serde_yaml::Value> {
    let file = yaml(name);
    let groups = file["groups"].as_sequence().unwrap();
    groups.iter().flat_map(|group| group["rules"].as_sequence().unwrap().clone()).collect()
}

/// The names in a query that are metrics: what is followed neither by `(` nor by an operator of labels, outside of texts, braces
/// and lists of labels.
fn metrics(query: &str) -> BTreeSet<String> {
    let (mut found, mut rest) = (BTreeSet::new(), query);
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    while let Some(start) = rest.find(|c: char| in_name(c) || matches!(c, '{' | '"' | '[')) {
        let tail = &rest[start..];
        let skipped = match tail.chars().next().unwrap() {
            '{' => tail.find('}').unwrap() + 1,
            '[' => tail.find(']').unwrap() + 1,
            '"' => tail[1..].find('"').unwrap() + 2,
            _ => {
                let end = tail.find(|c: char| !in_name(c)).unwrap_or(tail.len());
                let (name, after) = tail.split_at(end);
                if matches!(name, "by" | "on" | "group_left" | "group_right" | "ignoring") {
                    end + after.find(')').unwrap() + 1
                } else {
                    if !after.trim_start().starts_with('(')
                        && !matches!(
                            name,
                            "and" | "or" | "unless" | "bool" | "offset" | "sum" | "max" | "count"
                        )
                        && !name.starts_with(|c: char| c.is_ascii_digit())
                    {
                        found.insert(name.to_owned());
                    }
                    end
                }
            }
        };
        rest = &tail[skipped..];
    }
    found
}

/// The metric of the table that a name in a query stands for.
fn is_served(name: &str) -> bool {
    let of = |suffix: &str, kinds: &[Kind]| {
        let metric = name.strip_suffix(suffix).and_then(find);
        metric.is_some_and(|metric| kinds.contains(&metric.kind))
    };
    NOT_OURS.contains(&name)
        || RECORDED.contains(&name)
        || of("", &[Kind::Counter, Kind::Gauge, Kind::Summary])
        || of("_bucket", &[Kind::Histogram])
        || ["_sum", "_count"].iter().any(|end| of(end, &[Kind::Histogram, Kind::Summary]))
}

fn check(place: &str, query: &str) {
    let names = metrics(query);
    assert!(!names.is_empty(), "{place} asks for nothing: {query}");
    for name in names {
        assert!(is_served(&name), "{place} asks for {name}, which nobody serves: {query}");
    }
    let (open, close) = (query.matches('(').count(), query.matches(')').count());
    assert_eq!(open, close, "{place}: {query}");
}

#[test]
fn names_are_found_in_queries() {
    let query = r#"clamp_min(max by (a, b) (x_total{y="z (k)"}) - on (a) group_right () rate(w:v[5m]), 0) and u offset 1h"#;
    assert_eq!(metrics(query), ["u", "w:v", "x_total"].map(str::to_owned).into());
    assert!(is_served("barnabas_flush_seconds_bucket") && !is_served("barnabas_flush_seconds"));
    assert!(!is_served("kafka_brokers_bucket") && !is_served("nobody_total"));
}

#[test]
fn rules_and_alerts_ask_for_what_is_served() {
    let recorded: Vec<_> = rules("prometheus/rules.yml");
    let names: Vec<&str> = recorded.iter().map(|rule| rule["record"].as_str().unwrap()).collect();
    assert_eq!(names, RECORDED);
    for rule in &recorded {
        check("rules.yml", rule["expr"].as_str().unwrap());
    }
    let mut alerts = BTreeSet::new();
    for rule in rules("prometheus/alerts.yml") {
        let name = rule["alert"].as_str().unwrap();
        assert!(alerts.insert(name.to_owned()), "{name} twice");
        check(name, rule["expr"].as_str().unwrap());
        assert!(
            matches!(rule["labels"]["severity"].as_str(), Some("critical" | "warning")),
            "{name}"
        );
        for part in ["summary", "description"] {
            assert!(
                rule["annotations"][part].as_str().is_some_and(|text| text.ends_with('.')),
                "{name}"
            );
        }
    }
    assert!(alerts.len() > 10);
    let scrapes = yaml("prometheus/prometheus.yml");
    let files = scrapes["rule_files"].as_sequence().unwrap();
    for file in files {
        assert!(deploy("prometheus").join(file.as_str().unwrap()).is_file(), "{file:?}");
    }
    assert_eq!(scrapes["scrape_configs"][0]["job_name"].as_str(), Some("barnabas"));
}

#[test]
fn dashboards_ask_for_what_is_served() {
    let mut uids = BTreeSet::new();
    for entry in std::fs::read_dir(deploy("grafana")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let board: serde_json::Value = serde_json::from_str(&text).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(uids.insert(board["uid"].as_str().unwrap().to_owned()), "{name}");
        let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
        for panel in board["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{name}: {title}");
            titles.insert((panel["type"].as_str().unwrap().to_owned(), title.to_owned()));
            let targets = panel["targets"].as_array().unwrap();
            assert!(!targets.is_empty(), "{name}: {title}");
            for target in targets {
                check(&format!("{name}: {title}"), target["expr"].as_str().unwrap());
            }
        }
        assert_eq!(titles.len(), ids.len(), "{name}: a panel of one kind and title twice");
        for variable in board["templating"]["list"].as_array().unwrap() {
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let of = query.strip_prefix("label_values(").unwrap().split(['{', ',']).next().unwrap();
            assert!(find(of).is_some(), "{name}: {query}");
        }
    }
    assert_eq!(uids.len(), 3);
}

/// `promtool` understands more than this test does; `tests/deploy` lets it run the alerts' own tests, too.
#[test]
fn promtool_finds_nothing_where_it_is_present() {
    if Command::new("promtool").arg("--version").output().is_err() {
        eprintln!("promtool is not installed: its checks were not made");
        return;
    }
    for (check, file) in
        [("config", "prometheus.yml"), ("rules", "rules.yml"), ("rules", "alerts.yml")]
    {
        let told = Command::new("promtool")
            .args(["check", check])
            .arg(deploy("prometheus").join(file))
            .output();
        let told = told.unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    }
}

#[test]
fn every_own_metric_is_used_or_is_only_for_looking_up() {
    // What the dashboards and alerts leave out deliberately.
    let looked_up = ["barnabas_scrape_seconds", "barnabas_broker_info", "barnabas_ledger_missing"];
    let mut text = String::new();
    for file in [
        "prometheus/alerts.yml",
        "grafana/brokers.json",
        "grafana/controller.json",
        "grafana/topics.json",
    ] {
        text += &std::fs::read_to_string(deploy(file)).unwrap();
    }
    let unused: Vec<_> = METRICS
        .iter()
        .map(|metric| metric.name)
        .filter(|name| {
            name.starts_with("barnabas_") && !text.contains(name) && !looked_up.contains(name)
        })
        .collect();
    assert!(unused.is_empty(), "{unused:?}");
}
