//! `explain/{kind}/{name…}`: the same answer as `barnabas explain`, in the page's words: the first cause is the one that is told, the
//! others follow in its text.

use barnabas_proto::v1;
use barnabas_proto::v1::explain_request::Subject;
use barnabas_types::{BrokerId, TopicName};
use serde_json::{Value, json};

use super::super::source::Source;
use super::refusal::Refusal;
use super::standing::State;
use crate::clock::unix_ms;

/// What is wrong with something.
pub(super) async fn explain(source: &Source, kind: &str, name: &[&str]) -> Result<Value, Refusal> {
    let (subject, shown) = match (kind, name) {
        ("cluster", [] | [""]) => (Subject::Cluster(true), "cluster".to_owned()),
        ("broker", [id]) => {
            let id = id.parse().map_err(|_| Refusal::bad("the broker must be a whole number"))?;
            (Subject::BrokerId(id), format!("broker {id}"))
        }
        ("partition", [topic, index]) => {
            let partition =
                index.parse().map_err(|_| Refusal::bad("partition must be a whole number"))?;
            let at = v1::FollowedPartition { topic: (*topic).to_owned(), partition };
            (Subject::Partition(at), format!("{topic}-{partition}"))
        }
        ("group", [group]) => (Subject::Group((*group).to_owned()), (*group).to_owned()),
        ("cluster" | "broker" | "partition" | "group", _) => {
            return Err(Refusal::bad(
                "say explain/cluster, explain/broker/ID, explain/partition/TOPIC/PARTITION or explain/group/NAME",
            ));
        }
        _ => return Err(Refusal::not_found("explained are cluster, broker, partition and group")),
    };
    let state = state(source, kind, name);
    let request = v1::ExplainRequest { subject: Some(subject) };
    let told = source.explains.explain(request).await.map_err(|status| match status.code() {
        tonic::Code::ResourceExhausted => Refusal::too_many(status.message()),
        _ => Refusal::not_ready(status.message()),
    })?;
    if let Some(failure) = &told.failure {
        return Err(Refusal::not_found(failure.message.clone()));
    }
    Ok(explained(kind, &shown, state, &told, unix_ms()))
}

/// The state that the page shows with it; null: none is known here.
fn state(source: &Source, kind: &str, name: &[&str]) -> Value {
    let image = source.node.view.image();
    match (kind, name) {
        ("partition", [topic, index]) => {
            let found = TopicName::new(topic).ok().and_then(|name| {
                let topic = image.topics.get(&name)?;
                Some(State::of(topic, topic.partitions.get(&index.parse().ok()?)?))
            });
            json!(found.map(State::name))
        }
        ("broker", [id]) => {
            let id = id.parse().ok().map(BrokerId);
            let registered = id.is_some_and(|id| image.brokers.contains_key(&id));
            json!(if registered { "registered" } else { "dead" })
        }
        _ => Value::Null,
    }
}

fn explained(
    kind: &str,
    name: &str,
    state: Value,
    told: &v1::ExplainResponse,
    now_ms: i64,
) -> Value {
    let first = told.causes.first();
    let severity = match first.map(|cause| cause.severity.as_str()) {
        Some("offline" | "writes_refused") => "bad",
        Some(_) => "warn",
        None => "ok",
    };
    let asked = format!("broker {}", told.answered_by);
    let fact = |text: &String| json!({ "text": sentence(text), "source": asked, "age_ms": 0 });
    let mut evidence: Vec<Value> = first.iter().flat_map(|c| &c.evidence).map(fact).collect();
    let shown: Vec<&String> = told.causes.iter().flat_map(|cause| &cause.evidence).collect();
    let silent = told.unanswered.iter().filter(|silent| !shown.contains(silent));
    evidence.extend(silent.map(fact));
    let steps = first.map(|cause| cause.next.as_slice()).unwrap_or_default();
    let loses = |step: &v1::NextStep| {
        let most = first.iter().flat_map(|c| &c.candidates).map(|one| one.lost_records).max();
        if step.command.contains("--unclean") { json!(most) } else { json!(0) }
    };
    let shown = |step: &v1::NextStep| {
        let (place, command) = place(&step.command);
        let cost = match step.cost.trim_end_matches('.') {
            "nothing" => "Loses nothing.".to_owned(),
            cost => sentence(cost),
        };
        json!({
            "command": command, "where": place, "cost": cost,
            "loses_records": loses(step),
        })
    };
    // What loses data is only ever an alternative.
    let next = steps.iter().position(|step| !step.command.contains("--unclean"));
    let others = (0..).zip(steps).filter(|(n, _)| Some(*n) != next);
    let alternatives = others.map(|(_, step)| {
        let mut shown = shown(step);
        let loses = step.command.contains("--unclean");
        shown["when"] =
            json!(if loses { "Only if that cannot be done: it loses records" } else { "Or" });
        shown
    });
    let mut text: Vec<String> = told.causes.iter().map(|cause| sentence(&cause.summary)).collect();
    if told.partitions_left_out > 0 {
        text.push(format!("{} more partitions were not looked at.", told.partitions_left_out));
    }
    if text.is_empty() {
        text.push("Nothing is wrong.".to_owned());
    }
    let age = first.and_then(|cause| cause.age_ms).and_then(|ms| i64::try_from(ms).ok());
    json!({
        "kind": kind,
        "name": name,
        "state": state,
        "severity": severity,
        "since_ms": age.map(|ms| now_ms - ms),
        "cause": first.map(|cause| &cause.name),
        "headline": sentence(&told.headline),
        "text": text.join(" "),
        "evidence": evidence,
        "heals_by_itself": {
            "answer": first.map(|cause| cause.heals_by_itself),
            "when": first.map(|cause| cause.healing.trim_end_matches('.')).unwrap_or_default(),
        },
        "next_command": next.and_then(|n| steps.get(n)).map(shown),
        "alternatives": alternatives.collect::<Vec<_>>(),
        "ruled_out": [],
        "answered_by": told.answered_by,
    })
}

/// Where a command is to be run, if it says so, and the command.
fn place(command: &str) -> (Option<&str>, &str) {
    match command.split_once(": ") {
        Some((place, rest)) if place.starts_with("on the host of broker ") => (Some(place), rest),
        _ => (None, command),
    }
}

/// Words with which a sentence may begin that is no name: the name of a topic or a group keeps its letters.
const WORDS: [&str; 24] = [
    "a",
    "all",
    "an",
    "another",
    "broker",
    "brokers",
    "group",
    "it",
    "its",
    "loses",
    "no",
    "nobody",
    "none",
    "nothing",
    "one",
    "only",
    "partition",
    "partitions",
    "records",
    "replicas",
    "since",
    "the",
    "there",
    "what",
];

/// With a capital letter, unless it begins with a name, and a full stop.
fn sentence(text: &str) -> String {
    let first = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    let mut said = text.to_owned();
    if WORDS.contains(&first) && !text[first.len()..].starts_with([':', '-', '_']) {
        said[..1].make_ascii_uppercase();
    }
    if !said.is_empty() && !said.ends_with(['.', '!', '?']) {
        said.push('.');
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(command: &str) -> v1::NextStep {
        v1::NextStep { command: command.to_owned(), cost: "loses nothing".to_owned() }
    }

    #[test]
    fn the_first_cause_is_told_and_what_loses_records_is_only_an_alternative() {
        let cause = v1::ExplainedCause {
            name: "only_out_of_sync_replicas_alive".into(),
            severity: "offline".into(),
            summary: "t:0 has no leader".into(),
            evidence: vec!["broker 3 is gone".into()],
            age_ms: Some(400),
            healing: "broker 3 is back.".into(),
            next: vec![
                step("barnabas leader elect --unclean t:0"),
                step("systemctl start barnabas"),
            ],
            candidates: vec![v1::UncleanCandidate { lost_records: 107, ..Default::default() }],
            ..Default::default()
        };
        let told = v1::ExplainResponse {
            headline: "partition t:0 is offline".into(),
            causes: vec![
                cause.clone(),
                v1::ExplainedCause { summary: "broker 3 is down".into(), ..cause },
            ],
            unanswered: vec!["broker 3: refuses".into()],
            answered_by: 1,
            ..Default::default()
        };
        let shown = explained("partition", "t-0", json!("offline"), &told, 1_000);
        assert_eq!(shown["headline"], "Partition t:0 is offline.");
        assert_eq!(shown["text"], "t:0 has no leader. Broker 3 is down.");
        assert_eq!(shown["since_ms"], 600);
        assert_eq!(shown["next_command"]["command"], "systemctl start barnabas");
        assert_eq!(shown["next_command"]["loses_records"], 0);
        assert_eq!(shown["alternatives"][0]["loses_records"], 107);
        assert_eq!(shown["evidence"].as_array().unwrap().len(), 2);
        assert_eq!(shown["heals_by_itself"], json!({"answer": false, "when": "broker 3 is back"}));
        assert_eq!(shown["severity"], "bad");
    }

    #[test]
    fn names_keep_their_letters_and_commands_are_apart_from_their_places() {
        for (text, said) in [
            ("nothing", "Nothing."),
            ("broker 3 is down", "Broker 3 is down."),
            ("audit (2 partitions) refuses", "audit (2 partitions) refuses."),
            ("all:0 is led", "all:0 is led."),
            ("", ""),
            ("é", "é."),
        ] {
            assert_eq!(sentence(text), said);
        }
        let command = "on the host of broker 3: barnabas broker --config FILE";
        assert_eq!(
            place(command),
            (Some("on the host of broker 3"), "barnabas broker --config FILE")
        );
        assert_eq!(place("echo a: b"), (None, "echo a: b"));
    }

    #[test]
    fn nothing_wrong_is_said() {
        let told = v1::ExplainResponse { headline: "t:0 is led".into(), ..Default::default() };
        let shown = explained("partition", "t-0", json!("online"), &told, 1);
        assert_eq!((&shown["severity"], &shown["next_command"]), (&json!("ok"), &Value::Null));
        assert_eq!(shown["text"], "Nothing is wrong.");
    }
}
