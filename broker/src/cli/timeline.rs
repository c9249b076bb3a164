//! `barnabas timeline`: which brokers failed, what was done about it, and how long each step took.

use std::collections::BTreeMap;
use std::time::Duration;

use barnabas_proto::convert::failover_shown;
use barnabas_proto::v1::{Failover, TimelineRequest};
use clap::{Args, Subcommand};
use serde_json::Value;

use super::ask::{ask_stream, pause, printable};
use super::cluster::cluster;
use super::table::{print_json, table};
use super::{Asking, CliError, when};

/// Between two attempts to reach a broker again that is followed.
const RECONNECT_EVERY: Duration = Duration::from_secs(1);
/// Most failovers that a follower remembers, the newest; a broker tells of fewer.
const REMEMBERED_MAX: usize = 4_000;

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct TimelineArgs {
    /// How many failovers, the last ones.
    #[arg(long, value_name = "N", default_value_t = 20)]
    last: u32,
    /// Go on with each that comes, and again whenever it has got further, until Ctrl-C.
    #[arg(long)]
    follow: bool,
    /// Show the phases of each.
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    asking: Asking,
    #[command(subcommand)]
    verb: Option<TimelineVerb>,
}

#[derive(Subcommand, Debug)]
enum TimelineVerb {
    /// Show the phases of one failover.
    Show {
        /// Its id, as the list shows it.
        #[arg(value_name = "ID")]
        id: String,
        #[command(flatten)]
        asking: Asking,
    },
}

/// Columns of the list: title, name in JSON, and width; lines come one by one, so that they cannot fit themselves to one another.
const COLUMNS: [(&str, &str, usize); 12] = [
    ("ID", "id", 7),
    ("TIME", "started_at_ms", 24),
    ("BROKER", "broker", 14),
    ("CAUSE", "cause", 15),
    ("CONTROLLER_EPOCH", "controller_epoch", 16),
    ("MOVED", "partitions_moved", 6),
    ("LEADERLESS", "partitions_left_offline", 10),
    ("OUTAGE_MS", "outage_ms", 10),
    ("LED_AGAIN_MS", "led_again_ms", 12),
    ("PUSHED_MS", "pushed_ms", 10),
    ("ACKED_MS", "acked_ms", 10),
    ("ISR_RESTORED_MS", "isr_restored_ms", 15),
];
const PHASE_COLUMNS: [&str; 4] = ["at_ms", "took_ms", "phase", "where"];

impl TimelineArgs {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self.verb {
            Some(TimelineVerb::Show { id, asking }) => show(id, &asking),
            None => self.list(),
        }
    }

    fn list(self) -> Result<(), CliError> {
        let Self { last, follow, verbose, asking, .. } = self;
        if last == 0 && !follow {
            return Err(CliError::Usage(
                "--last 0 lists no failover; name how many, or add --follow to see only those that come"
                    .to_owned(),
            ));
        }
        let mut all = Vec::new();
        // A follower is told of all: what it has not asked for must not come as news after a reconnection.
        let wanted = if follow { u32::MAX } else { last };
        let request = TimelineRequest { last: wanted, follow: false, id: None };
        read(&asking, request, |failover| all.push(failover.clone()))?;
        let term = term(&asking);
        if asking.json && !follow {
            print_json(&Value::Array(all.iter().map(|of| failover_shown(of, term)).collect()));
            return Ok(());
        }
        let mut printer = Printer { json: asking.json, verbose, term, lines: 0 };
        let skipped = all.len().saturating_sub(usize::try_from(last).unwrap_or(usize::MAX));
        all[skipped..].iter().for_each(|failover| printer.print(failover));
        if follow {
            return go_on(&asking, Remembered::of(all), &mut printer);
        }
        if printer.lines == 0 {
            say!("no failover is known to this broker");
        }
        Ok(())
    }
}

/// Prints what comes, and looks for the broker again whenever it is gone; ends with the command.
fn go_on(
    asking: &Asking,
    mut remembered: Remembered,
    printer: &mut Printer,
) -> Result<(), CliError> {
    let mut gone = false;
    loop {
        let request = TimelineRequest { last: u32::MAX, follow: true, id: None };
        let ended = read(asking, request, |failover| {
            gone = false;
            if remembered.is_news(failover) {
                printer.print(failover);
            }
        });
        match ended {
            Ok(()) => {}
            Err(CliError::Unreachable(why)) => {
                if !gone {
                    eprintln!("barnabas: {why}; looking for it again until Ctrl-C");
                }
                gone = true;
            }
            Err(other) => return Err(other),
        }
        pause(RECONNECT_EVERY)?;
    }
}

/// What a follower has been told, so that a new connection tells nothing twice.
struct Remembered {
    /// By first sign and id. At most [`REMEMBERED_MAX`].
    told: BTreeMap<(i64, String), Failover>,
}

impl Remembered {
    fn of(all: Vec<Failover>) -> Self {
        let told =
            all.into_iter().map(|failover| ((failover.at_ms, failover.id.clone()), failover));
        Self { told: told.collect() }
    }

    /// Whether it is not known as it is; from now on it is.
    fn is_news(&mut self, failover: &Failover) -> bool {
        let before = self.told.insert((failover.at_ms, failover.id.clone()), failover.clone());
        if self.told.len() > REMEMBERED_MAX {
            self.told.pop_first();
        }
        before.as_ref() != Some(failover)
    }
}

/// Prints failovers as they come: a line of JSON each, or a line of the list.
struct Printer {
    json: bool,
    verbose: bool,
    /// See [`cell`].
    term: i32,
    lines: usize,
}

impl Printer {
    fn print(&mut self, failover: &Failover) {
        self.term = self.term.max(failover.controller_epoch);
        let shown = failover_shown(failover, self.term);
        if self.json {
            say!("{shown}");
            return;
        }
        if self.lines == 0 {
            say!("{}", title());
        }
        self.lines += 1;
        say!("{}", line(|name| cell(&shown, name, self.term)));
        if self.verbose {
            say!("\n{}", indented(&phases(&shown)));
        }
    }
}

/// The controller epoch that the asked broker knows; 0: it knows none, and then nothing is called over.
fn term(asking: &Asking) -> i32 {
    cluster(asking).map_or(0, |cluster| cluster.controller_epoch)
}

fn show(id: String, asking: &Asking) -> Result<(), CliError> {
    let request = TimelineRequest { last: 1, follow: false, id: Some(id.clone()) };
    let mut found = None;
    read(asking, request, |failover| found = Some(failover.clone()))?;
    let Some(found) = found else {
        let id = printable(&id);
        return Err(CliError::Refused(format!(
            "no failover '{id}' is known to this broker; `barnabas timeline` lists those that are"
        )));
    };
    let term = term(asking);
    let shown = failover_shown(&found, term);
    if asking.json {
        print_json(&shown);
        return Ok(());
    }
    say!("{}\n{}", title(), line(|name| cell(&shown, name, term)));
    say!("\n{}", phases(&shown).trim_end());
    Ok(())
}

fn read(
    asking: &Asking,
    request: TimelineRequest,
    each: impl FnMut(&Failover),
) -> Result<(), CliError> {
    ask_stream(asking, |mut client| async move { client.timeline(request).await }, each)
}

fn title() -> String {
    padded(|title, _| title.to_owned())
}

fn line(cell: impl Fn(&str) -> String) -> String {
    padded(|_, name| cell(name))
}

fn padded(text: impl Fn(&str, &str) -> String) -> String {
    let padded = COLUMNS.map(|(title, name, width)| format!("{:<width$}", text(title, name)));
    padded.join(" ").trim_end().to_owned()
}

/// One cell of the list. `term` is the newest controller epoch that is known: the record of an earlier one gets no further.
fn cell(failover: &Value, name: &str, term: i32) -> String {
    match name {
        "started_at_ms" => {
            failover["started_at_ms"].as_i64().map_or_else(|| "-".to_owned(), when::show)
        }
        "broker" if failover["was_controller"] == true => {
            format!("{} (controller)", failover["broker"])
        }
        "cause" if failover["suspicion_was_wrong"] == true => "suspicion wrong".to_owned(),
        "pushed_ms" | "led_again_ms" | "isr_restored_ms"
            if failover[name].is_null() && is_cut_off(failover, name, term) =>
        {
            "unknown".to_owned()
        }
        _ => plain(&failover[name]),
    }
}

/// Whether the term that recorded it is over, and this was left to be recorded.
fn is_cut_off(failover: &Value, name: &str, term: i32) -> bool {
    let counts: &[&str] = if name == "led_again_ms" {
        &["partitions_left_offline"]
    } else {
        &["partitions_moved", "shrunk", "partitions_left_offline"]
    };
    let touched = counts.iter().any(|count| failover[*count] != 0);
    touched && failover["controller_epoch"].as_i64().is_some_and(|epoch| epoch < i64::from(term))
}

/// A number with one digit behind the point, other things as they are; `-` for what is not there.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => printable(text),
        Value::Number(number) if number.is_f64() => {
            number.as_f64().map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"))
        }
        other => other.to_string(),
    }
}

fn phases(failover: &Value) -> String {
    let none = Vec::new();
    let phases = failover["phases"].as_array().unwrap_or(&none);
    // Line by line, so that those up to a phase sum up to its time, whoever else was under way.
    let mut before_ms = 0.0;
    let row = |phase: &Value| {
        let end_ms = phase["end_ms"].as_f64().unwrap_or_default();
        let took_ms = end_ms - std::mem::replace(&mut before_ms, end_ms);
        serde_json::json!({
            "at_ms": plain(&phase["end_ms"]), "took_ms": format!("{took_ms:.1}"),
            "phase": phase["name"], "where": place(phase),
        })
    };
    table(&PHASE_COLUMNS, &phases.iter().map(row).collect::<Vec<_>>())
}

/// Where a phase was reached, in words; null: at the controller.
fn place(phase: &Value) -> Value {
    let Some(broker) = phase["broker"].as_i64() else { return Value::Null };
    let mut text = format!("broker {broker}");
    if let (Some(topic), Some(partition)) = (phase["topic"].as_str(), phase["partition"].as_i64()) {
        text = format!("{topic}-{partition} on {text}");
    }
    if !phase["sent_ms"].is_null() {
        text = format!("{text}, sent at {}", plain(&phase["sent_ms"]));
    }
    if let Some(since) = phase["since_push_ms"].as_u64() {
        text = format!("{text}, {since} ms after its push");
    }
    text.into()
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use barnabas_proto::v1::FailoverPhase;

    use super::*;

    #[test]
    fn a_failover_is_one_line_and_its_phases_are_a_table() {
        let pushed = FailoverPhase {
            name: "pushed".into(),
            at_us: 9_049,
            broker_id: Some(2),
            sent_us: Some(5_000),
            ..FailoverPhase::default()
        };
        let acked = FailoverPhase {
            name: "last_ack".into(),
            at_us: 130_000,
            broker_id: Some(2),
            topic: Some("orders".into()),
            partition: Some(1),
            since_push_ms: Some(121),
            ..FailoverPhase::default()
        };
        let failover = Failover {
            id: "41-1".into(),
            cause: "suspicion".into(),
            was_controller: true,
            broker_id: 3,
            controller_epoch: 41,
            moved: 4,
            phases: vec![pushed, acked],
            ..Failover::default()
        };
        let shown = failover_shown(&failover, 41);
        let words: Vec<String> =
            line(|name| cell(&shown, name, 41)).split_whitespace().map(str::to_owned).collect();
        assert_eq!(
            words,
            [
                "41-1",
                "1970-01-01T00:00:00.000Z",
                "3",
                "(controller)",
                "suspicion",
                "41",
                "4",
                "0",
                "9.0",
                "-",
                "9.0",
                "130.0",
                "-"
            ]
        );
        assert_eq!(
            phases(&shown),
            "AT_MS  TOOK_MS  PHASE     WHERE\n\
             9.0    9.0      pushed    broker 2, sent at 5.0\n\
             130.0  121.0    last_ack  orders-1 on broker 2, 121 ms after its push\n"
        );
    }

    #[test]
    fn what_a_controller_that_is_gone_has_not_recorded_is_unknown() {
        let failover = |moved| Failover { controller_epoch: 41, moved, ..Failover::default() };
        let of =
            |failover: &Failover, name, term| cell(&failover_shown(failover, term), name, term);
        assert_eq!(of(&failover(4), "isr_restored_ms", 41), "-", "not yet");
        assert_eq!(of(&failover(4), "isr_restored_ms", 0), "-", "nobody knows of another term");
        assert_eq!(of(&failover(4), "isr_restored_ms", 42), "unknown");
        assert_eq!(of(&failover(4), "pushed_ms", 42), "unknown");
        assert_eq!(of(&failover(0), "isr_restored_ms", 42), "-", "nothing was to be restored");
        assert_eq!(of(&failover(4), "led_again_ms", 42), "-", "all had a leader");
        let leaderless = Failover { leaderless: 1, ..failover(0) };
        assert_eq!(of(&leaderless, "led_again_ms", 42), "unknown");
        let restored =
            FailoverPhase { name: "isr_restored".into(), at_us: 2_000, ..Default::default() };
        let restored = Failover { phases: vec![restored], ..failover(4) };
        assert_eq!(of(&restored, "isr_restored_ms", 42), "2.0");
    }

    #[test]
    fn a_new_connection_tells_a_follower_nothing_twice_and_of_bounded_memory_the_oldest_goes() {
        let failover = |at_ms: usize, moved| Failover {
            id: format!("1-{at_ms}"),
            at_ms: i64::try_from(at_ms).unwrap(),
            moved,
            ..Failover::default()
        };
        let mut remembered = Remembered::of((1..=REMEMBERED_MAX).map(|n| failover(n, 0)).collect());
        assert!(!remembered.is_news(&failover(1, 0)));
        assert!(remembered.is_news(&failover(1, 3)), "it got further");
        assert!(!remembered.is_news(&failover(1, 3)));
        assert!(remembered.is_news(&failover(REMEMBERED_MAX + 1, 0)));
        assert_eq!(remembered.told.len(), REMEMBERED_MAX);
        assert!(!remembered.is_news(&failover(2, 0)));
        assert!(remembered.is_news(&failover(1, 3)), "forgotten");
    }

    #[test]
    fn the_last_none_are_refused_unless_the_next_are_waited_for() {
        let asking = Asking { admin: "127.0.0.1:1".to_owned(), json: false };
        let list = TimelineArgs { last: 0, follow: false, verbose: false, asking, verb: None };
        assert!(matches!(list.run(), Err(CliError::Usage(why)) if why.contains("--follow")));
    }
}
