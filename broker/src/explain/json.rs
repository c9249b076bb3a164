//! An explanation as programs read it: the object that the command's `--json` prints, and the operator's page asks for.
//!
//! Its first level is about the most important cause, with all of them below `causes`, each in the same form.

use barnabas_proto::v1;
use serde_json::{Value, json};

/// Where a command asks unless it is told otherwise.
const ADMIN_DEFAULT: &str = "127.0.0.1:9192";

/// A command as it is to be pasted, for a cluster that is reached at `admin` (`host:port`).
#[must_use]
pub fn pasted(command: &str, admin: &str) -> String {
    let asks = command.starts_with("barnabas ") && !command.starts_with("barnabas broker --config");
    match asks && admin != ADMIN_DEFAULT {
        true => format!("{command} --admin {admin}"),
        false => command.to_owned(),
    }
}

/// How many causes are more than worth knowing.
#[must_use]
pub fn wrong(told: &v1::ExplainResponse) -> usize {
    told.causes.iter().filter(|cause| cause.severity != "notice").count()
}

/// The whole answer; its commands ask at `admin`.
#[must_use]
pub fn of(told: &v1::ExplainResponse, admin: &str) -> Value {
    let causes: Vec<Value> =
        told.causes.iter().map(|cause| of_cause(cause, told.now_ms, admin)).collect();
    let ruled_out = told.ruled_out.iter();
    let ruled_out = ruled_out.map(|one| json!({"cause": one.cause, "text": one.text}));
    let mut whole = json!({
        "kind": told.kind,
        "name": told.name,
        "state": told.state,
        "severity": "ok",
        "impact": null,
        "since_ms": null,
        "since_at_least": false,
        "cause": null,
        "headline": told.headline,
        "text": text(told),
        "evidence": [],
        "heals_by_itself": null,
        "next_command": null,
        "alternatives": [],
    });
    if let (Some(whole), Some(Value::Object(first))) = (whole.as_object_mut(), causes.first()) {
        for (key, value) in first {
            if whole.contains_key(key) && key != "text" {
                whole.insert(key.clone(), value.clone());
            }
        }
    }
    let own = told.facts.iter().map(fact);
    if let Some(evidence) = whole["evidence"].as_array_mut() {
        let known: Vec<Value> = own.filter(|one| !evidence.contains(one)).collect();
        evidence.extend(known);
    }
    whole["ruled_out"] = ruled_out.collect();
    whole["well"] = json!(wrong(told) == 0);
    whole["causes"] = json!(causes);
    whole["causes_left_out"] = json!(told.causes_left_out);
    whole["partitions_left_out"] = json!(told.partitions_left_out);
    whole["unanswered"] = json!(told.unanswered);
    whole["answered_by"] = json!(told.answered_by);
    whole["now_ms"] = json!(told.now_ms);
    whole
}

/// What is wrong in a few sentences: the first three causes.
fn text(told: &v1::ExplainResponse) -> String {
    let mut summaries = told.causes.iter().map(|cause| cause.summary.as_str());
    let Some(first) = summaries.next() else { return "Nothing is wrong.".to_owned() };
    let others: Vec<&str> = summaries.take(2).collect();
    let mut begins = first.chars();
    let upper = begins.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let first = format!("{upper}{}.", begins.as_str());
    match others.is_empty() {
        true => first,
        false => format!("{first} Also: {}.", others.join("; ")),
    }
}

fn fact(one: &v1::ExplainedFact) -> Value {
    json!({"text": one.text, "source": one.source, "age_ms": one.age_ms})
}

fn of_cause(cause: &v1::ExplainedCause, now_ms: i64, admin: &str) -> Value {
    let severity = match cause.severity.as_str() {
        "offline" | "writes_refused" => "bad",
        "degraded" => "warn",
        other => other,
    };
    let since =
        cause.age_ms.map(|age| now_ms.saturating_sub(i64::try_from(age).unwrap_or(i64::MAX)));
    let step = |step: &v1::NextStep| {
        json!({
            "command": pasted(&step.command, admin), "where": step.place, "when": step.when,
            "cost": step.cost, "loses_records": step.loses_records,
        })
    };
    // What loses something is only ever an alternative.
    let safe = cause.next.iter().position(|step| step.loses_records == Some(0));
    let others = cause.next.iter().enumerate().filter(|(n, _)| Some(*n) != safe);
    let candidate = |one: &v1::UncleanCandidate| {
        json!({
            "broker_id": one.broker_id, "last_epoch": one.last_epoch, "lost_from": one.lost_from,
            "lost_until": one.lost_until, "lost_records": one.lost_records,
        })
    };
    json!({
        "cause": cause.name,
        "severity": severity,
        "impact": cause.severity,
        "since_ms": since,
        "since_at_least": cause.age_at_least,
        "text": cause.summary,
        "evidence": cause.evidence.iter().map(fact).collect::<Vec<_>>(),
        "heals_by_itself": {"answer": cause.heals_by_itself, "when": cause.healing},
        "next_command": safe.map(|n| step(&cause.next[n])),
        "alternatives": others.map(|(_, other)| step(other)).collect::<Vec<_>>(),
        "candidates": cause.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "brokers": cause.brokers,
        "partitions": cause.partitions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(command: &str, loses_records: Option<i64>) -> v1::NextStep {
        let (command, cost) = (command.to_owned(), "nothing".to_owned());
        v1::NextStep { command, cost, loses_records, ..Default::default() }
    }

    #[test]
    fn the_first_level_is_the_first_cause_and_what_loses_records_is_never_the_next_command() {
        let well = v1::ExplainResponse {
            kind: "partition".to_owned(),
            name: "t:0".to_owned(),
            state: "online".to_owned(),
            headline: "t:0 is led".to_owned(),
            now_ms: 100_000,
            ..Default::default()
        };
        let told = of(&well, ADMIN_DEFAULT);
        assert_eq!((&told["well"], &told["severity"]), (&json!(true), &json!("ok")));
        assert!(told["cause"].is_null() && told["next_command"].is_null());
        assert_eq!(told["text"], "Nothing is wrong.");
        let fact = v1::ExplainedFact {
            text: "broker 2: it is gone".to_owned(),
            source: "broker 1".to_owned(),
            age_ms: Some(7),
        };
        let down = v1::ExplainedCause {
            name: "broker_down".to_owned(),
            severity: "offline".to_owned(),
            summary: "broker 2 is down".to_owned(),
            evidence: vec![fact],
            age_ms: Some(34_000),
            healing: "its process is started".to_owned(),
            next: vec![
                step("barnabas leader elect --unclean t:0 --to 3", None),
                step("barnabas broker --config /b.yaml", Some(0)),
                step("barnabas explain broker 2", Some(0)),
            ],
            ..Default::default()
        };
        let mut second = down.clone();
        (second.name, second.severity) = ("disk_full".to_owned(), "notice".to_owned());
        let sick = v1::ExplainResponse { causes: vec![down, second], ..well.clone() };
        assert_eq!(wrong(&sick), 1, "what is only worth knowing is no trouble");
        let told = of(&sick, "h:1");
        assert_eq!((&told["cause"], &told["severity"]), (&json!("broker_down"), &json!("bad")));
        assert_eq!((&told["since_ms"], &told["impact"]), (&json!(66_000), &json!("offline")));
        assert_eq!(told["next_command"]["command"], "barnabas broker --config /b.yaml");
        let others: Vec<&str> = told["alternatives"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|other| other["command"].as_str())
            .collect();
        assert_eq!(
            others,
            [
                "barnabas leader elect --unclean t:0 --to 3 --admin h:1",
                "barnabas explain broker 2 --admin h:1"
            ]
        );
        assert_eq!(
            told["heals_by_itself"],
            json!({"answer": false, "when": "its process is started"})
        );
        assert_eq!(told["evidence"][0]["age_ms"], 7);
        assert_eq!(told["causes"][1]["severity"], "notice");
        assert!(told["text"].as_str().unwrap().starts_with("Broker 2 is down. Also: "));
        // What is known of the subject itself is evidence, too.
        let facts = vec![v1::ExplainedFact { text: "lag 3".to_owned(), ..Default::default() }];
        let told = of(&v1::ExplainResponse { facts, ..well }, ADMIN_DEFAULT);
        assert_eq!(told["evidence"][0]["text"], "lag 3");
    }

    #[test]
    fn a_command_asks_where_the_asker_asked() {
        assert_eq!(pasted("barnabas topic list", ADMIN_DEFAULT), "barnabas topic list");
        assert_eq!(pasted("barnabas topic list", "h:1"), "barnabas topic list --admin h:1");
        for on_a_host in ["kill -CONT 7", "barnabas broker --config /b.yaml"] {
            assert_eq!(pasted(on_a_host, "h:1"), on_a_host);
        }
    }
}
