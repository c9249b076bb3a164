//! The README's table of what may be lost: every cell is there, and those that are cheap to decide are computed anew.
//!
//! What is dear, the cells that are kept over some hundred thousand worlds and more, is computed by `tests/model-check --loss-table`.

use barnabas_model::losses::{Claim, claims};
use barnabas_model::{Row, find_loss};
use barnabas_types::durability::{Fault, survives};
use barnabas_types::{FlushMode, TopicConfig};

const README: &str = include_str!("../../../README.md");

/// acks, flush mode, min.insync.replicas and unclean, two values each; three faults.
const CELLS: usize = 2 * 2 * 2 * 2 * 3;

fn published() -> Vec<Claim> {
    let claims = claims(README);
    assert_eq!(claims.len(), CELLS, "every setting and fault once");
    for (index, claim) in claims.iter().enumerate() {
        assert!(!claims[..index].iter().any(|c| c.row == claim.row), "twice: {claim:?}");
    }
    claims
}

fn agrees(claim: &Claim) {
    let found = find_loss(claim.row, 1);
    assert_eq!(!found.holds(), claim.lost, "{claim:?}: {:?}", found.broken);
}

#[test]
fn a_record_that_may_be_lost_to_one_host_or_two_processes_is_lost_in_some_interleaving() {
    let lost = published().into_iter().filter(|c| c.lost && c.row.crashes_of_all == 0);
    lost.for_each(|claim| agrees(&claim));
}

#[test]
fn what_is_kept_in_async_mode_when_one_host_crashes_is_kept_in_every_interleaving() {
    let kept = published().into_iter().filter(|c| !c.lost && c.row.host_crashes == 1);
    let kept: Vec<Claim> = kept.filter(|c| c.row.flush_mode == FlushMode::Async).collect();
    assert!(!kept.is_empty());
    kept.iter().for_each(agrees);
}

/// What `barnabas topic describe` says of a topic with three replicas.
fn described(claim: &Claim, fault: Fault) -> bool {
    let config = TopicConfig {
        min_insync_replicas: claim.row.min_insync.into(),
        flush_mode: claim.row.flush_mode,
        unclean_leader_election: claim.row.unclean,
        ..TopicConfig::default()
    };
    survives(&config, 3, claim.row.acks, fault)
}

#[test]
fn a_topic_is_described_as_the_table_has_it() {
    for claim in published() {
        if claim.row.host_crashes == 1 {
            assert_eq!(described(&claim, Fault::PowerCut), !claim.lost, "{claim:?}");
        } else if claim.row.crashes_of_all == 1 {
            assert_eq!(described(&claim, Fault::PowerCutOfAll), !claim.lost, "{claim:?}");
        }
    }
}

#[test]
fn what_a_topic_is_said_to_survive_when_one_process_crashes_it_survives_in_every_interleaving() {
    let claims = published().into_iter().filter(|c| c.row.process_crashes == 2);
    // The crash of a process takes no written record along: what holds of async mode holds of sync mode.
    for claim in &claims.filter(|c| c.row.flush_mode == FlushMode::Async).collect::<Vec<_>>() {
        let one = Row { process_crashes: 1, ..claim.row };
        let said = described(claim, Fault::BrokerCrash);
        assert!(said || claim.lost, "two are worse than one: {claim:?}");
        let found = find_loss(one, 1);
        assert_eq!(found.holds(), said, "{one:?}: {:?}", found.broken);
    }
}
