//! Failovers as JSON: what commands print, and what is kept.
//!
//! Times are milliseconds with microseconds behind the point, so that a number that was read is the one that was written.

use serde_json::{Map, Value, json};

use super::ConvertError;
use crate::v1;

/// The JSON of a failover: the fields of the message, and what follows from them.
///
/// `pushed_ms`, `acked_ms`, `led_again_ms` and `isr_restored_ms` run from the first sign to the last acknowledged push, the last first
/// acknowledgement at acks=all, the leader of the last partition that was left without one, and the restored ISR; null: not (yet)
/// reached or not known. `took_ms` of a phase is the time since the one before it, so that those up to a phase sum up to its `at_ms`.
#[must_use]
pub fn failover_json(of: &v1::Failover) -> Value {
    let mut before_us = 0;
    let phases = of.phases.iter().map(|phase| {
        let took_us = phase.at_us.saturating_sub(before_us);
        before_us = phase.at_us;
        let mut shown = Map::new();
        shown.insert("name".into(), phase.name.as_str().into());
        shown.insert("at_ms".into(), ms(phase.at_us));
        shown.insert("took_ms".into(), ms(took_us));
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
    json!({
        "id": of.id, "time_ms": of.at_ms, "cause": of.cause, "was_controller": of.was_controller, "broker": of.broker_id,
        "broker_epoch": of.broker_epoch, "controller": of.controller_id, "controller_epoch": of.controller_epoch,
        "moved": of.moved, "leaderless": of.leaderless, "shrunk": of.shrunk, "appended": of.appended,
        "acknowledged": of.acknowledged, "suspicion_was_wrong": of.suspicion_was_wrong,
        "pushed_ms": reached("pushed"), "acked_ms": reached("last_ack"), "led_again_ms": reached("led_again"),
        "isr_restored_ms": reached("isr_restored"),
        "phases": phases,
    })
}

/// The failover that [`failover_json`] wrote.
///
/// # Errors
/// Something is missing, or of another kind.
pub fn failover_from_json(value: &Value) -> Result<v1::Failover, ConvertError> {
    let phases = value["phases"].as_array().ok_or_else(|| senseless("failover.phases"))?;
    Ok(v1::Failover {
        id: text(value, "id", "failover.id")?,
        at_ms: value["time_ms"].as_i64().ok_or_else(|| senseless("failover.time_ms"))?,
        cause: text(value, "cause", "failover.cause")?,
        was_controller: value["was_controller"] == true,
        broker_id: number(value, "broker", "failover.broker")?,
        broker_epoch: value["broker_epoch"].as_i64(),
        controller_id: number(value, "controller", "failover.controller")?,
        controller_epoch: number(value, "controller_epoch", "failover.controller_epoch")?,
        moved: number(value, "moved", "failover.moved")?,
        leaderless: number(value, "leaderless", "failover.leaderless")?,
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
        at_us: us(&value["at_ms"]).ok_or_else(|| senseless("failover.phase.at_ms"))?,
        broker_id: small("broker"),
        sent_us: us(&value["sent_ms"]),
        topic: value["topic"].as_str().map(str::to_owned),
        partition: small("partition"),
        since_push_ms: value["since_push_ms"].as_u64(),
    })
}

/// Exact up to 2^53 microseconds, which are 285 years.
#[allow(clippy::cast_precision_loss)]
fn ms(us: u64) -> Value {
    (us as f64 / 1000.0).into()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn us(ms: &Value) -> Option<u64> {
    let ms = ms.as_f64().filter(|ms| (0.0..1e12).contains(ms))?;
    Some((ms * 1000.0).round() as u64)
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
        for field in ["id", "phases", "moved", "broker", "time_ms"] {
            let mut broken = read.clone();
            broken[field] = Value::Null;
            assert!(failover_from_json(&broken).is_err(), "{field}");
        }
    }

    #[test]
    fn phases_sum_up_to_the_time_of_the_last() {
        let shown = failover_json(&failover());
        let took = |phase: &Value| phase["took_ms"].as_f64().unwrap();
        let sum: f64 = shown["phases"].as_array().unwrap().iter().map(took).sum();
        assert!((sum - 130.001).abs() < 1e-6, "{sum}");
        assert_eq!((&shown["pushed_ms"], &shown["acked_ms"]), (&json!(9.007), &json!(130.001)));
        assert_eq!(shown["isr_restored_ms"], Value::Null, "not yet");
        let led = v1::Failover { phases: vec![phase("led_again", 20_500_000)], ..failover() };
        assert_eq!(failover_json(&led)["led_again_ms"], json!(20_500.0));
    }
}
