//! The ledger against an independent client: the short form of `tests/ledger-runs`.

use barnabas_tests::Outcome;
use barnabas_tests::ledger_runs::run;

/// One at acks=1, all and 0 each.
const RUNS: u64 = 3;
const SEED: u64 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_lost_in_faults_at_random_is_in_the_ledger() -> Outcome<()> {
    let mut said = Vec::new();
    let outcome = run(RUNS, SEED, &mut |line| said.push(line)).await;
    said.iter().for_each(|line| println!("{line}"));
    let totals = outcome?;
    assert!(totals.holds(), "{totals:#?}");
    assert!(totals.acked > 0 && totals.lost > 0 && totals.runs == RUNS, "{totals:#?}");
    Ok(())
}
