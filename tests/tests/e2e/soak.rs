//! A minute of faults at random: the short form of `tests/soak`.

use std::time::Duration;

use barnabas_tests::Outcome;
use barnabas_tests::soak;

const LENGTH: Duration = Duration::from_secs(60);
const SEED: u64 = 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minute_of_faults_at_random_breaks_no_promise() -> Outcome<()> {
    let mut said = Vec::new();
    let outcome = soak::run(LENGTH, SEED, &mut |line| said.push(line)).await;
    said.iter().for_each(|line| println!("{line}"));
    let report = outcome?;
    println!("{report}");
    assert!(report.holds(), "{report}");
    let faults: u64 = report.faults.values().sum();
    assert!(faults >= 10 && report.faults.len() >= 5, "too few faults show little: {report}");
    assert!(report.verdict.acked > 0 && report.seen > 0 && report.elections > 0, "{report}");
    Ok(())
}
