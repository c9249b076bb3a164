//! Every interleaving within the quick rows' bounds holds, and between them everything that matters happens.

use barnabas_model::reached::Reached;
use barnabas_model::rows::QUICK;
use barnabas_model::{Row, explore};

macro_rules! rows {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            holds($name);
        })*

        #[test]
        fn every_quick_row_is_tested() {
            let tested = [$($name),*];
            let named: Vec<&str> = QUICK.iter().map(|row| row.name).collect();
            assert_eq!(named, tested);
        }
    };
}

rows! {
    suspicion: "suspicion",
    process_and_suspicion: "process-and-suspicion",
    lost_answers: "lost-answers",
    two_terms: "two-terms",
    hosts_and_terms: "hosts-and-terms",
    host_and_process: "host-and-process",
    host_shrinks: "host-shrinks",
    expired_session: "expired-session",
    sync: "sync",
    late_writes: "late-writes",
    i12_heals: "heals",
}

fn holds(name: &str) {
    let named = QUICK.iter().find(|row| row.name == name).expect("a quick row");
    let row = Row::read(named.words).expect("a sound row");
    let found = explore(row, 1);
    assert!(found.holds(), "{name}: {:?}", found.broken);
    for reached in named.reaches {
        assert!(found.has(*reached), "{name} never reached {reached:?}: {:?}", found.reached);
    }
}

#[test]
fn everything_is_reached_by_some_row() {
    for (reached, words) in Reached::ALL {
        assert!(QUICK.iter().any(|row| row.reaches.contains(&reached)), "{words}");
    }
}
