//! The meta test: each planted bug is found in its row, and nothing is found there without it, so that a row that holds means
//! something.

use barnabas_model::{Mutation, Row, find};

fn are_found(wanted: impl Fn(usize) -> bool) {
    for (index, planted) in Mutation::ALL.iter().enumerate() {
        if wanted(index)
            && let Err(wrong) = find(planted, 1)
        {
            panic!("{wrong}");
        }
    }
}

#[test]
fn every_even_planted_bug_is_found() {
    are_found(|index| index.is_multiple_of(2));
}

#[test]
fn every_odd_planted_bug_is_found() {
    are_found(|index| !index.is_multiple_of(2));
}

#[test]
fn names_are_unique_and_rows_sound() {
    for (index, (_, name, words)) in Mutation::ALL.iter().enumerate() {
        assert!(Row::read(words).is_ok(), "{name}: {words}");
        assert!(Mutation::ALL[..index].iter().all(|planted| planted.1 != *name), "{name} twice");
    }
}
