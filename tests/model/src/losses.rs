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
const SETTING: Row = Row { proposals: 1, epochs: 5, isr: 0b011, ..Row::UNSAID };

/// How many ISR changes are explored. Two process crashes in sync mode have too many interleavings for one; they cost no
/// flushed record and no written one, so that what async mode keeps through them, with the change, sync mode keeps too.
fn proposals_of(row: &Row) -> u8 {
    if row.flush_mode == FlushMode::Sync && row.process_crashes > 1 { 0 } else { row.proposals }
}

/// A line of the table: what it is about, and what may be lost by fault.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    acks: &'static str,
    flush: &'static str,
    min_insync: &'static str,
    unclean: &'static str,
    lost: [bool; FAULTS.len()],
}

/// The row that decides a cell of the table.
fn row_of(acks: Acks, flush_mode: FlushMode, min_insync: u8, unclean: bool, fault: usize) -> Row {
    let row = Row { acks, flush_mode, min_insync, unclean, ..FAULTS[fault].1 };
    Row { proposals: proposals_of(&row), ..row }
}

/// Computes the table, as Markdown. Takes ten minutes or so.
#[must_use]
pub fn table(threads: usize) -> String {
    let mut lines = Vec::new();
    for (acks, asked) in [("1", Acks::Leader), ("all", Acks::All)] {
        for (flush, flush_mode) in [("async", FlushMode::Async), ("sync", FlushMode::Sync)] {
            let compute = |min_insync: u8, unclean: bool| {
                std::array::from_fn(|fault| {
                    let row = row_of(asked, flush_mode, min_insync, unclean, fault);
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

/// A cell of a table as it stands in a document: the row that decides it, and whether it says that a record may be lost.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Settings and fault.
    pub row: Row,
    /// What the document says.
    pub lost: bool,
}

/// Every cell of the table in `document`; a line for several settings makes several.
///
/// # Panics
/// On a line that the table cannot have.
#[must_use]
pub fn claims(document: &str) -> Vec<Claim> {
    let lines = document.lines().skip_while(|line| !line.starts_with("| acks | flush |"));
    let mut claims = Vec::new();
    for line in lines.skip(2).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [acks, flush, min_insync, unclean, verdicts @ ..] = &cells[..] else {
            panic!("no line of the table: {line}")
        };
        let acks = match *acks {
            "0" => continue, // never acknowledged, so never lost
            "1" => Acks::Leader,
            "all" => Acks::All,
            _ => panic!("acks: {line}"),
        };
        let mode = if *flush == "sync" { FlushMode::Sync } else { FlushMode::Async };
        for min_insync in min_insync.split(" or ").map(|n| n.parse().expect("a number")) {
            for unclean in unclean.split(" or ").map(|word| word == "on") {
                for (fault, verdict) in verdicts.iter().enumerate() {
                    let row = row_of(acks, mode, min_insync, unclean, fault);
                    let lost = match *verdict {
                        "may be lost" => true,
                        "**kept**" => false,
                        _ => panic!("verdict '{verdict}': {line}"),
                    };
                    claims.push(Claim { row, lost });
                }
            }
        }
    }
    claims
}
