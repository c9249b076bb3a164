//! The ledger of lost records.

use super::Place::All;
use super::{Metric, NO, NUMBER, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
    row(
        "barnabas_ledger_entries",
        NUMBER,
        &["class"],
        All,
        "Losses in the ledger, by what the records had been acknowledged at; see barnabas ledger",
    ),
    row(
        "barnabas_ledger_missing",
        NUMBER,
        NO,
        All,
        "Entries of the ledger that this broker knows of and does not have",
    ),
];
