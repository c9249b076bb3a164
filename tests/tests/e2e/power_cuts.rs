//! Power cuts of all brokers at once: the short form of `tests/power-cut`.

use barnabas_tests::Outcome;
use barnabas_tests::power_cut::{Kind, Totals, run};

const ROUNDS: u64 = 3;
const SEED: u64 = 7;

async fn rounds(kind: Kind) -> Outcome<Totals> {
    let mut said = Vec::new();
    let outcome = run(kind, ROUNDS, SEED, &mut |line| said.push(line)).await;
    said.iter().for_each(|line| println!("{line}"));
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sync_mode_loses_nothing_in_power_cuts() -> Outcome<()> {
    let totals = rounds(Kind::Sync).await?;
    assert!(totals.faults.is_empty() && totals.lost == 0, "{totals:#?}");
    assert!(totals.acked > 0 && totals.cut.files > 0, "the cuts took something: {totals:#?}");
    let [one_file, _, file_system] = totals.syncs;
    assert!(one_file > 0 && file_system > 0, "few files and many were flushed: {totals:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn async_mode_loses_no_more_than_its_settings_allow_in_power_cuts() -> Outcome<()> {
    let totals = rounds(Kind::Async).await?;
    assert!(totals.faults.is_empty(), "{totals:#?}");
    assert!(totals.acked > totals.lost && totals.cut.files > 0, "{totals:#?}");
    Ok(())
}

/// The negative control: the same as in sync mode must fail where a sync only says that it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_lies_about_syncs_loses_acknowledged_records_in_power_cuts() -> Outcome<()> {
    let totals = rounds(Kind::NoFsync).await?;
    assert!(totals.lost > 0 && !totals.faults.is_empty(), "{totals:#?}");
    Ok(())
}
