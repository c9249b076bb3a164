//! The table of what may be lost, computed: for each setting and fault, whether any interleaving loses an acknowledged record.

use std::fmt::Write as _;

use barnabas_types::{Acks, FlushMode};

use crate::check::find_loss;
use crate::row::Row;

/// Which faults, as columns: heading, and what breaks.
const FAULTS: [(&str, Row); 3] = [
    ("two processes crash", Row { process_crashes: 2, ..SETTING }),
    ("one host crashes", Row { host_crashes: 1, ..SETTING }),
    ("all hosts crash", Row { crashes_of_all: 1, ..SETTING }),
];

/// One replica of three is out of the ISR before the fault, and one ISR change is on its way.
const SETTING: Row = Row {
    records: 1,
    process_crashes: 0,
    host_crashes: 0,
    crashes_of_all: 0,
    suspicions: 0,
    expiries: 0,
    terms: 1,
    proposals: 1,
    epochs: 5,
    min_insync: 1,
    isr: 0b011,
    flush_mode: FlushMode::Async,
    acks: Acks::All,
    unclean: false,
    lost_answers: false,
    tail_loss_told: true,
    late_writes: false,
    heal: 0,
    mutation: None,
};

/// A line of the table: what it is about, and what may be lost by fault.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    acks: &'static str,
    flush: &'static str,
    min_insync: &'static str,
    unclean: &'static str,
    lost: [bool; FAULTS.len()],
}

/// Computes the table, as Markdown.
#[must_use]
pub fn table(threads: usize) -> String {
    let mut lines = Vec::new();
    for (acks, asked) in [("1", Acks::Leader), ("all", Acks::All)] {
        for (flush, flush_mode) in [("async", FlushMode::Async), ("sync", FlushMode::Sync)] {
            let compute = |min_insync: u8, unclean: bool| {
                FAULTS.map(|(_, row)| {
                    let row = Row { acks: asked, flush_mode, min_insync, unclean, ..row };
                    !find_loss(row, threads).holds()
                })
            };
            let cells = [
                ("1", "off", compute(1, false)),
                ("1", "on", compute(1, true)),
                ("2", "off", compute(2, false)),
                ("2", "on", compute(2, true)),
            ];
            lines.extend(merged(cells).into_iter().map(|(min_insync, unclean, lost)| Line {
                acks,
                flush,
                min_insync,
                unclean,
                lost,
            }));
        }
    }
    render(&lines)
}

type Cell = (&'static str, &'static str, [bool; FAULTS.len()]);

/// One line for what does not depend on `min.insync.replicas`, or on `unclean.leader.election.enable` either.
fn merged(cells: [Cell; 4]) -> Vec<Cell> {
    let [(.., off), (.., on), (.., off_2), (.., on_2)] = cells;
    if (off, on) != (off_2, on_2) {
        return cells.to_vec();
    }
    if off == on {
        return vec![("1 or 2", "off or on", off)];
    }
    vec![("1 or 2", "off", off), ("1 or 2", "on", on)]
}

fn render(lines: &[Line]) -> String {
    let mut text = "| acks | flush | min.insync.replicas | unclean |".to_owned();
    for (heading, _) in FAULTS {
        let _ = write!(text, " {heading} |");
    }
    text.push_str("\n|---|---|---|---|---|---|---|\n");
    text.push_str("| 0 | any | any | any | never acknowledged: anything may go, with any closed connection | same | same |\n");
    for line in lines {
        let Line { acks, flush, min_insync, unclean, lost } = line;
        let _ = write!(text, "| {acks} | {flush} | {min_insync} | {unclean} |");
        for lost in lost {
            text.push_str(if *lost { " may be lost |" } else { " **kept** |" });
        }
        text.push('\n');
    }
    text
}
