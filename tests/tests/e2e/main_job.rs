//! The main job: records in at acks=all, controller and leader killed meanwhile, the same records out.

use barnabas_tests::Outcome;
use barnabas_tests::cluster::{Cluster, Options};
use barnabas_tests::corpus::{Corpus, cargo_registry};
use barnabas_tests::demonstration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_records_survive_the_kill_of_controller_and_leader() -> Outcome<()> {
    let mut cluster = Cluster::start(Options::default()).await?;
    let corpus = Corpus::of_rust_sources(&cargo_registry(), 120_000)?;
    let mut said = Vec::new();
    let outcome = {
        let mut say = |line: String| said.push(line);
        demonstration::run(&mut cluster, "lines", &corpus, &mut say).await
    };
    let findings = outcome.map_err(|error| format!("{error}; before: {said:#?}"))?;
    let account = findings.account;
    assert!(account.holds_exactly(), "{account:?}; {said:#?}");
    assert_eq!(account.sent, corpus.len() as u64);
    assert_eq!(account.acknowledged, account.sent);
    let (before, after) = findings.controller_epochs;
    assert!(after > before, "the controller was killed, so its epoch rose: {said:#?}");
    Ok(())
}
