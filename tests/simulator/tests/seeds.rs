//! A thousand seeds hold, and between them everything that matters happened.

use barnabas_simulator::{Options, runs};

#[test]
fn a_thousand_seeds_hold_and_reach_everything() {
    let options = Options { seed: 0, events: 1500, mutation: None };
    let summary = runs::many(0, 1000, options, 2, 1);
    if let Some(failure) = summary.failures.first() {
        panic!(
            "seed {} breaks {}: {}\n{}",
            failure.seed,
            failure.violation.invariant,
            failure.violation.text,
            failure.last_lines.join("\n")
        );
    }
    let missing = summary.coverage.missing();
    assert!(missing.is_empty(), "never reached: {missing:?}");
}
