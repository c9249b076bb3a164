//! `ledger`: what was lost, and what had been promised. Read whole when it has changed, for all who look.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use barnabas_proto::v1;
use serde_json::{Value, json};

use super::super::query::Query;
use super::super::source::Source;
use super::PAGE_ROWS_MAX;
use super::refusal::Refusal;
use crate::clock::unix_ms;
use crate::journal::{Kind, Origin};

/// Entries that can be asked for, the newest.
const ENTRIES_MAX: usize = 10_000;
/// Pages of the ledger that are read, of a thousand entries each.
const PAGES_MAX: usize = 1_000;
/// The sums are of so many milliseconds.
const SUMS_OVER_MS: i64 = 30 * 86_400_000;
/// After so long they are made anew: what is older falls out of them.
const SUMS_FRESH_FOR: Duration = Duration::from_secs(60);

/// See the module's head.
#[derive(Default)]
pub(in crate::http) struct Losses {
    known: Mutex<Option<Arc<Known>>>,
    reading: tokio::sync::Mutex<()>,
}

struct Known {
    marks: Vec<(Origin, u64)>,
    read: Instant,
    /// The newest first.
    entries: Vec<Value>,
    total: usize,
    sums: Value,
}

impl Losses {
    /// Records lost within 30 days, by what had been promised; null: not known.
    pub(super) async fn sums(&self, source: &Source) -> Value {
        match self.known(source).await {
            Ok(known) => known.sums.clone(),
            Err(_) => Sums::default().json(false),
        }
    }

    async fn known(&self, source: &Source) -> Result<Arc<Known>, Refusal> {
        let fresh = || {
            let marks = source.node.journal.newest(Kind::Loss);
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
            known.filter(|known| known.marks == marks && known.read.elapsed() < SUMS_FRESH_FOR)
        };
        if let Some(known) = fresh() {
            return Ok(known);
        }
        let _turn = self.reading.lock().await;
        if let Some(known) = fresh() {
            return Ok(known);
        }
        let (ledger, marks) = (source.ledger.clone(), source.node.journal.newest(Kind::Loss));
        let since_ms = unix_ms() - SUMS_OVER_MS;
        let read = tokio::task::spawn_blocking(move || read(&*ledger, since_ms)).await;
        let (entries, total, sums) = read
            .map_err(|error| Refusal::not_ready(error.to_string()))?
            .map_err(|status| Refusal::too_many(status.message()))?;
        let known = Known { marks, read: Instant::now(), entries, total, sums: sums.json(true) };
        let known = Arc::new(known);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(known.clone());
        Ok(known)
    }
}

/// Records by what had been promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sums {
    never_acked: i64,
    acks_1: i64,
    acks_all: i64,
    unknown: i64,
}

impl Sums {
    fn add(&mut self, loss: &v1::Loss) {
        let sum = match class(loss) {
            "acks_all" => &mut self.acks_all,
            "acks_1" => &mut self.acks_1,
            "never_acked" => &mut self.never_acked,
            _ => &mut self.unknown,
        };
        *sum = sum.saturating_add(records(loss));
    }

    fn json(self, known: bool) -> Value {
        let shown = |records: i64| known.then_some(records);
        json!({
            "never_acked": shown(self.never_acked),
            "acks_1": shown(self.acks_1),
            "acks_all": shown(self.acks_all),
            "unknown": shown(self.unknown),
            "unread": null,
        })
    }
}

type Read = Result<(Vec<Value>, usize, Sums), tonic::Status>;

fn read(ledger: &dyn barnabas_controller::Ledger, since_ms: i64) -> Read {
    let mut request = v1::ListLossesRequest::default();
    let (mut last, mut total, mut sums) = (VecDeque::new(), 0, Sums::default());
    for _ in 0..PAGES_MAX {
        let page = ledger.list(&request)?;
        request.after = page.losses.last().and_then(|loss| loss.place.clone());
        for loss in page.losses {
            total += 1;
            if loss.place.as_ref().is_some_and(|place| place.time_ms >= since_ms) {
                sums.add(&loss);
            }
            last.push_front(entry(&loss));
            last.truncate(ENTRIES_MAX);
        }
        if !page.more {
            break;
        }
    }
    Ok((last.into(), total, sums))
}

fn class(loss: &v1::Loss) -> &'static str {
    match loss.class.as_str() {
        "acks=all" => "acks_all",
        "acks=1" => "acks_1",
        "never acked" => "never_acked",
        _ => "unknown",
    }
}

/// How many for sure.
fn records(loss: &v1::Loss) -> i64 {
    loss.at_least_to.saturating_sub(loss.from).max(0)
}

fn entry(loss: &v1::Loss) -> Value {
    let place = loss.place.clone().unwrap_or_default();
    json!({
        "id": format!("{}:{}", place.origin, place.sequence),
        "at_ms": place.time_ms,
        "topic": loss.topic,
        "partition": loss.partition,
        "first_offset": loss.from,
        "end_offset": loss.to,
        "records": if loss.to == Some(loss.at_least_to) { json!(records(loss)) } else { Value::Null },
        "records_at_least": records(loss),
        "ack_class": class(loss),
        "state": "lost",
        "cause": loss.cause,
        "broker": loss.broker_id,
        "leader_epoch": loss.leader_epoch,
        "controller_epoch": null,
        "failover_id": null,
        "note": if loss.detail.is_empty() { &loss.class_reason } else { &loss.detail },
    })
}

/// `{"entries": [...], "total", "durable_on", "verified_at_ms"}`, the newest first.
pub(super) async fn list(source: &Source, query: &Query) -> Result<Value, Refusal> {
    let limit = query.limit(PAGE_ROWS_MAX, PAGE_ROWS_MAX)?;
    let since_ms = query.number("since_ms", (0, i64::MAX))?.unwrap_or(i64::MIN);
    let (topic, failover, before) =
        (query.text("topic"), query.text("failover"), query.text("before"));
    let known = source.losses.known(source).await?;
    let rest = known.entries.iter().skip_while(|e| before.is_some_and(|id| e["id"] != id));
    let rest = rest.skip(usize::from(before.is_some()));
    let wanted = rest.filter(|entry| {
        entry["at_ms"].as_i64().is_some_and(|at| at >= since_ms)
            && topic.is_none_or(|topic| entry["topic"] == topic)
            && failover.is_none_or(|id| entry["failover_id"] == id)
    });
    let entries: Vec<&Value> = wanted.take(limit).collect();
    Ok(json!({
        "entries": entries,
        "total": known.total,
        "durable_on": [source.node.me.0],
        "verified_at_ms": null,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Written(Vec<v1::Loss>);

    impl barnabas_controller::Ledger for Written {
        fn list(
            &self,
            request: &v1::ListLossesRequest,
        ) -> Result<v1::ListLossesResponse, tonic::Status> {
            let after = request.after.as_ref().map_or(0, |place| place.sequence as usize);
            let losses: Vec<v1::Loss> = self.0.iter().skip(after).take(2).cloned().collect();
            let more = after + losses.len() < self.0.len();
            Ok(v1::ListLossesResponse { losses, more, answered_by: 1 })
        }
    }

    fn loss(sequence: u64, class: &str, from: i64, to: Option<i64>) -> v1::Loss {
        let time_ms = i64::try_from(sequence).unwrap() * 10;
        let place = v1::LossPlace { time_ms, origin: "1-x".into(), sequence };
        let at_least_to = to.unwrap_or(from + 1);
        v1::Loss {
            place: Some(place),
            class: class.into(),
            from,
            to,
            at_least_to,
            ..Default::default()
        }
    }

    #[test]
    fn all_pages_are_read_and_summed_by_promise() {
        let ledger = Written(vec![
            loss(1, "acks=all", 0, Some(100)),
            loss(2, "acks=all", 5, Some(8)),
            loss(3, "acks=1", 5, Some(9)),
            loss(4, "never acked", 5, None),
            loss(5, "who knows", 5, Some(7)),
        ]);
        let (entries, total, sums) = read(&ledger, 20).unwrap();
        assert_eq!((entries.len(), total), (5, 5));
        assert_eq!(sums, Sums { never_acked: 1, acks_1: 4, acks_all: 3, unknown: 2 });
        assert_eq!(
            (&entries[0]["id"], &entries[0]["ack_class"]),
            (&json!("1-x:5"), &json!("unknown"))
        );
        assert_eq!(
            (&entries[1]["records"], &entries[1]["records_at_least"]),
            (&Value::Null, &json!(1))
        );
        assert_eq!(Sums::default().json(false)["acks_all"], Value::Null, "unknown is not 0");
    }
}
