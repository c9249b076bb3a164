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
    r18_r20_move: "move",
    r20_remove_and_add: "remove-and-add",
    r18_move_late_writes: "move-late-writes",
    r26_stop: "stop",
    r26_stop_waits: "stop-waits",
    r27_life: "life",
    r28_life_and_process: "life-and-process",
    r22_life_and_terms: "life-and-terms",
    r31_late_fetches: "late-fetches",
    r33_deletion: "deletion",
    r32_retention: "retention",
    r38_failed_sync: "failed-sync",
    r37_switch: "switch",
    r39_unclean: "unclean",
    r8_reports: "reports",
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
