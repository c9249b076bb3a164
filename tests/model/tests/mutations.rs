//! The meta test: each planted bug is found in its row, so that a row that holds means something.

use barnabas_model::{Mutation, Row, explore, mutation};

/// Those that every test run looks for; the others are found on demand, by `tests/model-check --mutations`.
fn quick() -> impl Iterator<Item = &'static mutation::Planted> {
    Mutation::ALL.iter().filter(|planted| !mutation::ON_DEMAND.contains(&planted.1))
}

fn are_found(wanted: impl Fn(usize) -> bool) {
    for (index, (mutation, name, words)) in quick().enumerate() {
        if wanted(index) {
            let row = Row::read(words).expect("a sound row");
            let found = explore(Row { mutation: Some(*mutation), ..row }, 1);
            assert!(!found.holds(), "'{name}' is not found in {} worlds of {words}", found.worlds);
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
    for name in mutation::ON_DEMAND {
        assert!(Mutation::ALL.iter().any(|planted| planted.1 == *name), "{name}");
    }
}
