//! Failovers as JSON: what commands print, and what is kept.
//!
//! Times are milliseconds with microseconds behind the point, so that a number that was read is the one that was written.

use serde_json::{Map, Value, json};

use super::ConvertError;
use crate::v1;

/// Longest `detail` of a phase, in characters.
pub const TIMELINE_DETAIL_MAX: usize = 48;

/// The JSON of a failover: the fields of the message, and what follows from them.
///
/// `outage_ms` is how long nobody was served ([`failover_outage`]). `pushed_ms`, `acked_ms`, `led_again_ms` and `isr_restored_ms` run from
/// the first sign to the last acknowledged push, the last partition's first acknowledgement at acks=all, the leader of the last partition
/// that was left without one, and the restored ISR; null: not (yet) reached or not known. A phase ends at `end_ms`, and begins where the
/// last `critical` one before it ended: those that are critical are what a client waits for, one after the other, so they sum up to
/// `acked_ms`, if that was reached. `ongoing`: somebody may wait still, as far as this
/// record tells; of a term that is over it is the last word ([`failover_shown`]).
#[must_use]
pub fn failover_json(of: &v1::Failover) -> Value {
    let mut frontier_us = 0;
    let phases = of.phases.iter().enumerate().map(|(index, phase)| {
        let critical = is_critical(of, index);
        let mut shown = Map::new();
        shown.insert("name".into(), phase.name.as_str().into());
        shown.insert("start_ms".into(), ms(frontier_us.min(phase.at_us)));
        shown.insert("end_ms".into(), ms(phase.at_us));
        shown.insert("critical".into(), critical.into());
        shown.insert("detail".into(), detail(phase).into());
        if critical {
            frontier_us = phase.at_us;
        }
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                shown.insert(name.into(), value);
            }
        };
        add("broker", phase.broker_id.map(Value::from));
        add("sent_ms", phase.sent_us.map(ms));
        add("topic", phase.topic.clone().map(Value::from));
        add("partition", phase.partition.map(Value::from));
        add("since_push_ms", phase.since_push_ms.map(Value::from));
        Value::Object(shown)
    });
    let phases: Vec<Value> = phases.collect();
    let last = |name: &str| of.phases.iter().rev().find(|phase| phase.name == name);
    let reached = |name: &str| last(name).map(|phase| ms(phase.at_us));
    let (from_ms, to_ms) = failover_outage(of);
    json!({
        "id": of.id, "kind": kind(of), "started_at_ms": of.at_ms, "cause": of.cause, "detected_by": detected_by(&of.cause),
        "was_controller": of.was_controller, "broker": of.broker_id, "broker_epoch": of.broker_epoch,
        "controller_id": of.controller_id, "controller_epoch": of.controller_epoch, "ongoing": is_ongoing(of),
        "partitions_moved": of.moved, "partitions_left_offline": of.leaderless, "shrunk": of.shrunk, "appended": of.appended,
        "acknowledged": of.acknowledged, "suspicion_was_wrong": of.suspicion_was_wrong,
        "outage_ms": to_ms.map(|to| to - from_ms), "pushed_ms": reached("pushed"), "acked_ms": reached("last_ack"), "led_again_ms": reached("led_again"),
        "isr_restored_ms": reached("isr_restored"),
        "phases": phases,
    })
}

/// From when to when clients were out, as far as the cluster knows, in milliseconds since the first sign; no end: not yet, or nobody
/// knows. It ends with the first acknowledgement of a new leader, or its first append where nothing is acknowledged; while nobody produces
/// once the new leaders have been told, and if there were none when those that were left without one are led again. A broker that is
/// emptied in order leads until the others are elected. The one definition, for commands and the page; when the last partition was served
/// is `acked_ms`.
#[must_use]
pub fn failover_outage(of: &v1::Failover) -> (f64, Option<f64>) {
    let at = |name: &str| {
        of.phases.iter().find(|phase| phase.name == name).map(|phase| exact_ms(phase.at_us))
    };
    let from_ms = match of.cause.as_str() {
        "drain" => at("written").or(at("first_written")).unwrap_or(0.0),
        _ => 0.0,
    };
    if of.suspicion_was_wrong {
        return (from_ms, at("answered"));
    }
    let pushed = of.phases.iter().filter(|phase| phase.name == "pushed").map(|phase| phase.at_us);
    let nobody_was_led = of.moved == 0 && of.leaderless == 0;
    let led = match of.moved > 0 || nobody_was_led {
        true => pushed.max().map(exact_ms),
        false => at("led_again"),
    };
    let served = at("first_ack").or(at("first_append"));
    (from_ms, served.or(led).map(|to| to.max(from_ms)))
}

/// [`failover_json`] for somebody who knows of a controller of `epoch`: an earlier one has nothing more to tell.
#[must_use]
pub fn failover_shown(of: &v1::Failover, epoch: i32) -> Value {
    let mut shown = failover_json(of);
    if of.controller_epoch < epoch {
        shown["ongoing"] = false.into();
    }
    shown
}

fn kind(of: &v1::Failover) -> &'static str {
    match (of.was_controller, of.moved > 0) {
        (true, true) => "controller_and_leader",
        (true, false) => "controller",
        (false, _) if of.cause == "drain" => "controlled_shutdown",
        (false, _) => "leader",
    }
}

/// What told the controller of it.
fn detected_by(cause: &str) -> &'static str {
    match cause {
        "suspicion" => "suspicion",
        "session_end" => "session",
        "restart" => "registration",
        "drain" => "request",
        "failed_replicas" => "report",
        _ => "unknown",
    }
}

/// Whether brokers are still to hear of it, or partitions are without a leader by it.
fn is_ongoing(of: &v1::Failover) -> bool {
    let has = |name: &str| of.phases.iter().any(|phase| phase.name == name);
    let unled = of.leaderless > 0 && !has("led_again");
    !of.suspicion_was_wrong && (unled || !has("pushed"))
}

/// Whether a client waits for this phase: of several pushes in a row for the last, and not for what follows from the failure later.
fn is_critical(of: &v1::Failover, index: usize) -> bool {
    let waits = |phase: &v1::FailoverPhase| {
        let later =
            ["late_written", "late_pushed", "late_ack", "led_again", "isr_restored", "answered"];
        !later.contains(&phase.name.as_str())
    };
    let (phase, next) = (&of.phases[index], of.phases[index + 1..].iter().find(|next| waits(next)));
    waits(phase) && (phase.name != "pushed" || next.is_none_or(|next| next.name != "pushed"))
}

/// Where a phase was reached, in words; null: at the controller.
fn detail(phase: &v1::FailoverPhase) -> Option<String> {
    let broker = format!("broker {}", phase.broker_id?);
    let text = match (&phase.topic, phase.partition, phase.sent_us) {
        (Some(topic), Some(partition), _) => {
            // The end of a long name says more than its beginning.
            let rest = format!("-{partition} on {broker}");
            let room = TIMELINE_DETAIL_MAX.saturating_sub(rest.len());
            let skipped = topic.chars().count().saturating_sub(room);
            format!("{}{rest}", topic.chars().skip(skipped).collect::<String>())
        }
        (_, _, Some(sent_us)) => {
            let tenths = sent_us / 100;
            format!("{broker}, sent at {}.{} ms", tenths / 10, tenths % 10)
        }
        _ => broker,
    };
    Some(text)
}

/// The failover that [`failover_json`] wrote; also one that an earlier version wrote, with other names.
///
/// # Errors
/// Something is missing, or of another kind.
pub fn failover_from_json(value: &Value) -> Result<v1::Failover, ConvertError> {
    let phases = value["phases"].as_array().ok_or_else(|| senseless("failover.phases"))?;
    Ok(v1::Failover {
        id: text(value, "id", "failover.id")?,
        at_ms: number(value, either(value, "started_at_ms", "time_ms"), "failover.started_at_ms")?,
        cause: text(value, "cause", "failover.cause")?,
        was_controller: value["was_controller"] == true,
        broker_id: number(value, "broker", "failover.broker")?,
        broker_epoch: value["broker_epoch"].as_i64(),
        controller_id: number(
            value,
            either(value, "controller_id", "controller"),
            "failover.controller_id",
        )?,
        controller_epoch: number(value, "controller_epoch", "failover.controller_epoch")?,
        moved: number(value, either(value, "partitions_moved", "moved"), "failover.moved")?,
        leaderless: number(
            value,
            either(value, "partitions_left_offline", "leaderless"),
            "failover.leaderless",
        )?,
        shrunk: number(value, "shrunk", "failover.shrunk")?,
        appended: number(value, "appended", "failover.appended")?,
        acknowledged: number(value, "acknowledged", "failover.acknowledged")?,
        suspicion_was_wrong: value["suspicion_was_wrong"] == true,
        phases: phases.iter().map(phase).collect::<Result<_, _>>()?,
    })
}

fn phase(value: &Value) -> Result<v1::FailoverPhase, ConvertError> {
    let small = |name: &str| value[name].as_i64().and_then(|number| i32::try_from(number).ok());
    Ok(v1::FailoverPhase {
        name: text(value, "name", "failover.phase.name")?,
        at_us: us(&value[either(value, "end_ms", "at_ms")])
            .ok_or_else(|| senseless("failover.phase.end_ms"))?,
        broker_id: small("broker"),
        sent_us: us(&value["sent_ms"]),
        topic: value["topic"].as_str().map(str::to_owned),
        partition: small("partition"),
        since_push_ms: value["since_push_ms"].as_u64(),
    })
}

/// Exact up to 2^53 microseconds, which are 285 years.
#[allow(clippy::cast_precision_loss)]
fn exact_ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

fn ms(us: u64) -> Value {
    exact_ms(us).into()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn us(ms: &Value) -> Option<u64> {
    let ms = ms.as_f64().filter(|ms| (0.0..1e12).contains(ms))?;
    Some((ms * 1000.0).round() as u64)
}

/// The name that is there: the present one, or that of an earlier version.
fn either(value: &Value, name: &'static str, before: &'static str) -> &'static str {
    if value.get(name).is_some() || value.get(before).is_none() { name } else { before }
}

fn text(value: &Value, name: &str, field: &'static str) -> Result<String, ConvertError> {
    value[name].as_str().map(str::to_owned).ok_or_else(|| senseless(field))
}

fn number<T: TryFrom<i64>>(
    value: &Value,
    name: &str,
    field: &'static str,
) -> Result<T, ConvertError> {
    let number = value[name].as_i64().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| senseless(field))
}

fn senseless(field: &'static str) -> ConvertError {
    ConvertError::new(field, "missing, or of another kind")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: &str, at_us: u64) -> v1::FailoverPhase {
        v1::FailoverPhase { name: name.into(), at_us, ..v1::FailoverPhase::default() }
    }

    fn failover() -> v1::Failover {
        let pushed = v1::FailoverPhase {
            broker_id: Some(2),
            sent_us: Some(5_000),
            ..phase("pushed", 9_007)
        };
        let acked = v1::FailoverPhase {
            broker_id: Some(2),
            topic: Some("orders".into()),
            partition: Some(0),
            since_push_ms: Some(120),
            ..phase("last_ack", 130_001)
        };
        v1::Failover {
            id: "41-12".into(),
            at_ms: 1_796_062_501_500,
            cause: "suspicion".into(),
            was_controller: true,
            broker_id: 3,
            broker_epoch: Some(4_294_969_507),
            controller_id: 1,
            controller_epoch: 41,
            moved: 4,
            leaderless: 1,
            shrunk: 7,
            appended: 4,
            acknowledged: 3,
            suspicion_was_wrong: false,
            phases: vec![phase("stream_broke", 0), phase("suspected", 1_204), pushed, acked],
        }
    }

    #[test]
    fn a_failover_reads_back_as_written_and_nonsense_is_refused() {
        let failover = failover();
        let text = failover_json(&failover).to_string();
        let read: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(failover_from_json(&read), Ok(failover));
        for field in ["id", "phases", "partitions_moved", "broker", "started_at_ms"] {
            let mut broken = read.clone();
            broken[field] = Value::Null;
            assert!(failover_from_json(&broken).is_err(), "{field}");
        }
    }

    #[test]
    fn what_an_earlier_version_wrote_is_read() {
        let mut written = failover_json(&failover());
        let all = written.as_object_mut().unwrap();
        for (name, before) in [
            ("started_at_ms", "time_ms"),
            ("controller_id", "controller"),
            ("partitions_moved", "moved"),
            ("partitions_left_offline", "leaderless"),
        ] {
            let value = all.remove(name).unwrap();
            all.insert(before.to_owned(), value);
        }
        for phase in all["phases"].as_array_mut().unwrap() {
            let end = phase["end_ms"].take();
            phase.as_object_mut().unwrap().remove("end_ms");
            phase["at_ms"] = end;
        }
        assert_eq!(failover_from_json(&written), Ok(failover()));
    }

    #[test]
    fn a_record_says_what_kind_it_is_and_whether_somebody_may_wait_still() {
        let of = |change: &dyn Fn(&mut v1::Failover)| {
            let mut failover = failover();
            change(&mut failover);
            let shown = failover_json(&failover);
            (shown["kind"].clone(), shown["detected_by"].clone(), shown["ongoing"].clone())
        };
        let led = |f: &mut v1::Failover| f.leaderless = 0;
        assert_eq!(of(&led), (json!("controller_and_leader"), json!("suspicion"), json!(false)));
        assert_eq!(of(&|_| ()).2, json!(true), "one is without a leader");
        assert_eq!(of(&|f| f.phases.truncate(2)).2, json!(true), "nobody has heard of it yet");
        let drained = of(&|f| (f.was_controller, f.cause) = (false, "drain".into()));
        assert_eq!((drained.0, drained.1), (json!("controlled_shutdown"), json!("request")));
        assert_eq!(of(&|f| f.moved = 0).0, json!("controller"));
        assert_eq!(failover_shown(&failover(), 42)["ongoing"], json!(false), "that term is over");
        assert_eq!(failover_shown(&failover(), 41)["ongoing"], json!(true));
    }

    #[test]
    fn critical_phases_follow_one_another_and_a_detail_is_short() {
        let push = |broker: i32, at_us| v1::FailoverPhase {
            broker_id: Some(broker),
            sent_us: Some(4_250),
            ..phase("pushed", at_us)
        };
        let ack = v1::FailoverPhase {
            broker_id: Some(2),
            topic: Some("x".repeat(249)),
            partition: Some(17),
            ..phase("last_ack", 30_000)
        };
        let phases = vec![
            phase("decided", 4_000),
            push(2, 6_000),
            push(3, 9_000),
            ack,
            phase("isr_restored", 90_000),
        ];
        let shown = failover_json(&v1::Failover { phases, ..failover() });
        let shown = shown["phases"].as_array().unwrap();
        let times: Vec<_> = shown
            .iter()
            .map(|p| {
                (
                    p["start_ms"].as_f64().unwrap(),
                    p["end_ms"].as_f64().unwrap(),
                    p["critical"] == true,
                )
            })
            .collect();
        assert_eq!(
            times,
            [
                (0.0, 4.0, true),
                (4.0, 6.0, false),
                (4.0, 9.0, true),
                (9.0, 30.0, true),
                (30.0, 90.0, false)
            ]
        );
        assert_eq!(
            (&shown[0]["detail"], &shown[1]["detail"]),
            (&Value::Null, &json!("broker 2, sent at 4.2 ms"))
        );
        let long = shown[3]["detail"].as_str().unwrap();
        assert!(long.len() == TIMELINE_DETAIL_MAX && long.ends_with("x-17 on broker 2"), "{long}");
    }

    #[test]
    fn an_outage_ends_when_somebody_is_served_again_as_far_as_that_is_known() {
        let of = |cause: &str, leaderless, phases: &[(&str, u64)]| {
            let phases = phases.iter().map(|(name, ms)| phase(name, ms * 1000)).collect();
            let (cause, moved) = (cause.to_owned(), u32::from(leaderless == 0));
            failover_outage(&v1::Failover { cause, moved, leaderless, phases, ..failover() })
        };
        let served = [
            ("written", 40),
            ("pushed", 50),
            ("first_append", 60),
            ("first_ack", 70),
            ("last_ack", 90),
        ];
        assert_eq!(of("suspicion", 0, &served), (0.0, Some(70.0)));
        assert_eq!(of("drain", 0, &served), (40.0, Some(70.0)));
        assert_eq!(of("suspicion", 0, &served[..3]), (0.0, Some(60.0)));
        assert_eq!(of("suspicion", 0, &served[..2]), (0.0, Some(50.0)), "nobody produces");
        assert_eq!(of("suspicion", 1, &served[..2]), (0.0, None), "nobody leads");
        assert_eq!(of("suspicion", 1, &[("led_again", 700)]), (0.0, Some(700.0)));
        let phases = vec![phase("answered", 5_000)];
        let wrong = v1::Failover { suspicion_was_wrong: true, phases, ..failover() };
        assert_eq!(failover_outage(&wrong), (0.0, Some(5.0)));
        let shown = failover_json(&v1::Failover { leaderless: 0, ..failover() });
        assert_eq!((&shown["outage_ms"], &shown["acked_ms"]), (&json!(9.007), &json!(130.001)));
    }

    #[test]
    fn phases_sum_up_to_the_time_of_the_last() {
        let shown = failover_json(&failover());
        let ms = |phase: &Value, name: &str| phase[name].as_f64().unwrap();
        let critical = shown["phases"].as_array().unwrap().iter().filter(|p| p["critical"] == true);
        let sum: f64 = critical.map(|p| ms(p, "end_ms") - ms(p, "start_ms")).sum();
        assert!((sum - 130.001).abs() < 1e-6, "{sum}");
        assert_eq!((&shown["pushed_ms"], &shown["acked_ms"]), (&json!(9.007), &json!(130.001)));
        assert_eq!(shown["isr_restored_ms"], Value::Null, "not yet");
        let led = v1::Failover { phases: vec![phase("led_again", 20_500_000)], ..failover() };
        assert_eq!(failover_json(&led)["led_again_ms"], json!(20_500.0));
    }
}
