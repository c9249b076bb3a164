//! The same seed gives the same run, to the byte.

use barnabas_simulator::{Options, runs};

#[test]
fn the_same_seed_twice_gives_the_same_trace() {
    for seed in [1, 7, 42, 1042] {
        let options = Options { seed, events: 1500, mutation: None };
        let (first, first_lines) = runs::traced(options, usize::MAX);
        let (second, second_lines) = runs::traced(options, usize::MAX);
        assert_eq!(first, second);
        assert!(first_lines.len() > 200, "seed {seed}: a trace of {} lines", first_lines.len());
        assert_eq!(first_lines, second_lines, "seed {seed}");
    }
}

#[test]
fn two_seeds_give_two_traces() {
    let lines = |seed| runs::traced(Options { seed, events: 500, mutation: None }, usize::MAX).1;
    assert_ne!(lines(1), lines(2));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let options = Options { seed: 0, events: 500, mutation: None };
    let one = runs::many(0, 60, options, 1, 1);
    let two = runs::many(0, 60, options, 2, 1);
    assert_eq!(one.coverage, two.coverage);
    assert_eq!(one.virtual_ms, two.virtual_ms);
}
