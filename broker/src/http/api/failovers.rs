//! `failovers`: how long clients were out, and where the time went: the recorded points in time as phases that follow one another.

use barnabas_proto::convert::failover_outage;
use barnabas_proto::v1;
use serde_json::{Value, json};

use super::super::query::Query;
use super::super::source::Source;
use super::refusal::Refusal;
use super::{PAGE_ROWS_MAX, ROWS};
use crate::clock::unix_ms;

/// Characters of a phase's detail.
const TIMELINE_DETAIL_MAX: usize = 48;
/// A failover that is not over after so long is not shown as running any more, in milliseconds.
const ONGOING_MAX_MS: i64 = 60_000;

/// `{"failovers": [...], "total"}`, the newest first.
pub(super) fn list(source: &Source, query: &Query) -> Result<Value, Refusal> {
    let limit = query.limit(ROWS, PAGE_ROWS_MAX)?;
    let before = query.text("before");
    let kept = source.failovers.kept();
    let newest = kept.iter().rev().skip_while(|known| before.is_some_and(|id| known.id != id));
    let shown = newest.skip(usize::from(before.is_some())).take(limit);
    let session_ms = source.node.options.session_timeout_ms;
    let failovers: Vec<Value> = shown.map(|f| failover(f, unix_ms(), session_ms)).collect();
    Ok(json!({ "failovers": failovers, "total": kept.len() }))
}

/// One.
pub(super) fn one(source: &Source, id: &str) -> Result<Value, Refusal> {
    let kept = source.failovers.kept();
    let found = kept.iter().find(|known| known.id == id);
    let found =
        found.ok_or_else(|| Refusal::not_found(format!("no failover {id} is known here")))?;
    Ok(failover(found, unix_ms(), source.node.options.session_timeout_ms))
}

/// Phases as they are put together: each begins where the one before it on the critical path ends.
struct Path<'a> {
    of: &'a v1::Failover,
    end_ms: f64,
    phases: Vec<Value>,
}

impl Path<'_> {
    /// When a point was reached first, in milliseconds since the first sign.
    fn at(&self, name: &str) -> Option<f64> {
        self.of.phases.iter().find(|phase| phase.name == name).map(|phase| ms(phase.at_us))
    }

    /// The next phase on the critical path, if the point `at` that ends it was reached.
    fn step(&mut self, name: &str, at: Option<f64>, detail: &str) {
        let Some(at) = at else { return };
        let end = at.max(self.end_ms);
        self.phases.push(phase(name, None, (self.end_ms, Some(end)), true, detail));
        self.end_ms = end;
    }
}

/// A failover in the API's words, at `now_ms`, milliseconds since 1970.
pub(in crate::http) fn failover(of: &v1::Failover, now_ms: i64, session_timeout_ms: u64) -> Value {
    let mut path = Path { of, end_ms: 0.0, phases: Vec::new() };
    notice(&mut path);
    let moved = of.moved;
    let decided = format!("{moved} {}", if moved == 1 { "leader" } else { "leaders" });
    path.step("elected", path.at("decided"), &decided);
    let written = path.at("written").or(path.at("first_written"));
    path.step(
        "zookeeper_written",
        written,
        &format!("{} partitions", of.moved + of.leaderless + of.shrunk),
    );
    pushes(&mut path);
    for (name, detail) in [("first_append", ""), ("first_ack", "acks=all")] {
        let reached = of.phases.iter().find(|phase| phase.name == name);
        let place = reached.and_then(|phase| {
            let (topic, index) = (phase.topic.as_ref()?, phase.partition?);
            Some(format!("{topic}-{index} on broker {}", phase.broker_id.unwrap_or(-1)))
        });
        let detail = if detail.is_empty() { place.unwrap_or_default() } else { detail.to_owned() };
        path.step(name, reached.map(|phase| ms(phase.at_us)), &detail);
    }
    let (from_ms, to_ms) = failover_outage(of);
    let restored = path.at("isr_restored");
    let waits = format!("waits for broker {}", of.broker_id);
    let detail = if restored.is_some() { "" } else { waits.as_str() };
    let begins = path.end_ms.min(restored.unwrap_or(path.end_ms));
    path.phases.push(phase("isr_restored", None, (begins, restored), false, detail));
    let elapsed = now_ms.saturating_sub(of.at_ms).max(0);
    let ongoing = is_ongoing(of, now_ms);
    json!({
        "id": of.id,
        "kind": kind(of),
        "broker": of.broker_id,
        "cause": cause(of),
        "detected_by": detected_by(of),
        "controller_id": of.controller_id,
        "controller_epoch": of.controller_epoch,
        "started_at_ms": of.at_ms,
        "ongoing": ongoing,
        "elapsed_ms": ongoing.then_some(elapsed),
        "partitions_moved": of.moved,
        "partitions_left_offline": of.leaderless,
        "client_outage": {
            "from_ms": from_ms,
            "to_ms": to_ms,
            "last_ack_ms": path.at("last_ack"),
            "source": "first_sign",
            "uncertainty_ms": null,
        },
        "session_timeout_ms": session_timeout_ms,
        "ledger_entries": null,
        "phases": path.phases,
    })
}

/// Whether nobody leads in the broker's place yet.
pub(in crate::http) fn is_ongoing(of: &v1::Failover, now_ms: i64) -> bool {
    failover_outage(of).1.is_none() && now_ms.saturating_sub(of.at_ms) < ONGOING_MAX_MS
}

/// How it was noticed: what was seen before anything was decided.
fn notice(path: &mut Path<'_>) {
    let broker = path.of.broker_id;
    let until = path.at("decided").unwrap_or(f64::INFINITY);
    let early = |path: &Path<'_>, name: &str| path.at(name).filter(|at| *at <= until);
    if path.of.was_controller {
        let lost = path.at("controller_lost");
        path.step(
            "controller_suspected",
            lost,
            &format!("its stream to broker {} ended", path.of.controller_id),
        );
        let refused = path.at("controller_suspected");
        path.step("controller_confirmed", refused, "its ports refuse connections");
        if refused.is_none() {
            path.step(
                "session_expired",
                path.at("controller_gone"),
                "its ZooKeeper session has ended",
            );
        }
        let elected =
            format!("broker {}, epoch {}", path.of.controller_id, path.of.controller_epoch);
        path.step("controller_elected", path.at("controller_elected"), &elected);
        path.step("state_loaded", path.at("loaded"), "");
    }
    for (name, point, detail) in [
        ("requested", "drain_requested", format!("broker {broker} is to be emptied")),
        ("suspected", "stream_broke", format!("control stream to broker {broker} broke")),
        ("confirmed", "suspected", format!("broker {broker}'s ports refuse connections")),
        ("session_expired", "session_ended", format!("ZooKeeper session of broker {broker} ended")),
        ("restarted", "restarted", format!("broker {broker} registered anew")),
        ("replicas_failed", "replicas_failed", format!("broker {broker} cannot serve replicas")),
    ] {
        path.step(name, early(path, point), &detail);
    }
}

/// The critical push is that to the broker that appended first, or the slowest if nobody did.
fn pushes(path: &mut Path<'_>) {
    let of = path.of;
    let append = of.phases.iter().find(|phase| phase.name == "first_append");
    let pushed: Vec<&v1::FailoverPhase> =
        of.phases.iter().filter(|phase| phase.name == "pushed").collect();
    let leads = append.and_then(|append| append.broker_id);
    let critical = pushed
        .iter()
        .find(|phase| leads.is_some() && phase.broker_id == leads)
        .or_else(|| pushed.iter().max_by_key(|phase| phase.at_us))
        .map(|phase| phase.broker_id);
    let written = path.end_ms;
    for push in &pushed {
        let is_critical = critical == Some(push.broker_id);
        let mut end = ms(push.at_us).max(written);
        if is_critical && let Some(append) = append {
            // It may lead before its acknowledgement is here.
            end = end.min(ms(append.at_us)).max(written);
        }
        let start = match push.sent_us {
            Some(sent) if !is_critical => ms(sent).max(written).min(end),
            _ => written,
        };
        let leads = leads.is_some() && push.broker_id == leads;
        let detail = if leads { "leads from here; acknowledged" } else { "acknowledged" };
        path.phases.push(phase("pushed", push.broker_id, (start, Some(end)), is_critical, detail));
        if is_critical {
            path.end_ms = end;
        }
    }
}

fn phase(
    name: &str,
    broker: Option<i32>,
    (start, end): (f64, Option<f64>),
    critical: bool,
    detail: &str,
) -> Value {
    let detail: String = detail.chars().take(TIMELINE_DETAIL_MAX).collect();
    let mut told = json!({
        "name": name, "start_ms": start, "end_ms": end, "critical": critical, "detail": detail,
    });
    if let Some(broker) = broker {
        told["broker"] = broker.into();
    }
    told
}

fn kind(of: &v1::Failover) -> &'static str {
    match (of.cause.as_str(), of.was_controller, of.moved + of.leaderless) {
        ("drain", ..) => "controlled_shutdown",
        (_, true, 0) => "controller",
        (_, true, _) => "controller_and_leader",
        _ => "leader",
    }
}

fn cause(of: &v1::Failover) -> &str {
    match of.cause.as_str() {
        _ if of.suspicion_was_wrong => "wrong_suspicion",
        "suspicion" => "process_crash",
        "drain" => "controlled_shutdown",
        "failed_replicas" => "directory_failed",
        other => other,
    }
}

fn detected_by(of: &v1::Failover) -> &str {
    match of.cause.as_str() {
        "session_end" => "session",
        "drain" => "request",
        other => other,
    }
}

/// Exact up to 2^53 microseconds, which are 285 years.
#[allow(clippy::cast_precision_loss)]
fn ms(us: u64) -> f64 {
    us as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, at_us: u64, broker: Option<i32>) -> v1::FailoverPhase {
        let (name, broker_id) = (name.to_owned(), broker);
        v1::FailoverPhase { name, at_us, broker_id, ..v1::FailoverPhase::default() }
    }

    fn crash() -> v1::Failover {
        v1::Failover {
            id: "41-12".into(),
            at_ms: 1_000,
            cause: "suspicion".into(),
            broker_id: 3,
            controller_id: 1,
            controller_epoch: 41,
            moved: 3,
            phases: vec![
                point("stream_broke", 0, None),
                point("suspected", 31_000, None),
                point("decided", 32_000, None),
                point("first_written", 60_000, None),
                point("written", 68_000, None),
                point("pushed", 86_000, Some(1)),
                point("pushed", 91_000, Some(2)),
                point("first_append", 186_000, Some(1)),
                point("first_ack", 212_000, Some(1)),
            ],
            ..v1::Failover::default()
        }
    }

    #[test]
    fn the_critical_phases_follow_one_another_and_sum_to_the_outage() {
        let told = failover(&crash(), 9_000, 18_000);
        let phases = told["phases"].as_array().unwrap();
        let names: Vec<&str> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
        let expected = [
            "suspected",
            "confirmed",
            "elected",
            "zookeeper_written",
            "pushed",
            "pushed",
            "first_append",
            "first_ack",
            "isr_restored",
        ];
        assert_eq!(names, expected);
        let mut end = 0.0;
        for phase in phases.iter().filter(|phase| phase["critical"] == true) {
            assert_eq!(phase["start_ms"], end, "{phase}");
            end = phase["end_ms"].as_f64().unwrap();
        }
        assert_eq!(end, 212.0);
        assert_eq!(told["client_outage"]["to_ms"], 212.0);
        let slower = &phases[5];
        assert_eq!((&slower["broker"], &slower["critical"]), (&json!(2), &json!(false)));
        let restored = phases.last().unwrap();
        assert_eq!((&restored["end_ms"], &restored["start_ms"]), (&Value::Null, &json!(212.0)));
        assert_eq!(
            (&told["kind"], &told["cause"], &told["detected_by"], &told["ongoing"]),
            (&json!("leader"), &json!("process_crash"), &json!("suspicion"), &json!(false))
        );
    }

    #[test]
    fn a_failover_runs_until_somebody_leads_and_not_for_ever() {
        let mut running = crash();
        running.phases.truncate(3);
        let told = failover(&running, 1_500, 18_000);
        assert_eq!((&told["ongoing"], &told["elapsed_ms"]), (&json!(true), &json!(500)));
        assert_eq!(told["client_outage"]["to_ms"], Value::Null);
        let old = failover(&running, 1_000 + ONGOING_MAX_MS, 18_000);
        assert_eq!((&old["ongoing"], &old["elapsed_ms"]), (&json!(false), &Value::Null));
        // Nobody produces: what is known is when the leaders were told.
        let mut idle = crash();
        idle.phases.truncate(7);
        assert_eq!(failover(&idle, 1_500, 18_000)["client_outage"]["to_ms"], 91.0);
        // Nobody could lead.
        idle.moved = 0;
        idle.leaderless = 2;
        assert_eq!(failover(&idle, 1_500, 18_000)["ongoing"], true);
        idle.phases.push(point("led_again", 700_000, None));
        assert_eq!(failover(&idle, 1_500, 18_000)["client_outage"]["to_ms"], 700.0);
    }

    #[test]
    fn controllers_shutdowns_and_sessions_are_told_apart() {
        let mut controller = crash();
        controller.was_controller = true;
        controller.phases.splice(
            0..2,
            [
                point("controller_lost", 0, None),
                point("controller_suspected", 9_000, None),
                point("controller_elected", 20_000, None),
                point("loaded", 25_000, None),
                point("suspected", 30_000, None),
            ],
        );
        let told = failover(&controller, 9_000, 18_000);
        assert_eq!(told["kind"], "controller_and_leader");
        assert_eq!(told["phases"][2]["name"], "controller_elected");
        assert_eq!(told["phases"][2]["start_ms"], 9.0);
        let mut drain = crash();
        drain.cause = "drain".into();
        drain.phases.splice(0..2, [point("drain_requested", 0, None)]);
        let told = failover(&drain, 9_000, 18_000);
        assert_eq!(
            (&told["kind"], &told["detected_by"]),
            (&json!("controlled_shutdown"), &json!("request"))
        );
        assert_eq!(told["client_outage"]["from_ms"], 68.0, "it leads until another one does");
        let mut session = crash();
        session.cause = "session_end".into();
        session.phases.splice(0..2, [point("session_ended", 0, None)]);
        let told = failover(&session, 9_000, 18_000);
        assert_eq!(
            (&told["detected_by"], &told["phases"][0]["name"]),
            (&json!("session"), &json!("session_expired"))
        );
        let mut wrong = crash();
        wrong.suspicion_was_wrong = true;
        wrong.phases.push(point("answered", 300_000, None));
        assert_eq!(failover(&wrong, 9_000, 18_000)["cause"], "wrong_suspicion");
    }

    #[test]
    fn details_are_short() {
        let told = phase("first_append", None, (0.0, None), true, &"x".repeat(249));
        assert_eq!(told["detail"].as_str().unwrap().len(), TIMELINE_DETAIL_MAX);
    }
}
