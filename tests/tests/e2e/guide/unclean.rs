//! No replica of the ISR is left: somebody decides, and the ledger tells what it cost.

use barnabas_tests::Outcome;
use barnabas_tests::cluster::{Options, SETTLE_MAX};
use barnabas_tests::machines::Machines;
use barnabas_tests::wait::wait_for;

use super::{consume, produce, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unclean_decision_is_made_by_the_book() -> Outcome<()> {
    let mut machines = Machines::configure(Options::default()).await?;
    machines.start(&[1, 2, 3]).await?;
    machines.cluster.admin().await?.create_assigned("orders", &[(0, &[1, 2, 3])]).await?;
    machines.cluster.until_healed("orders", 3).await?;
    produce(&machines, "orders", 0..100)?;
    // Two fall out of the ISR, the last one takes more, and is gone with its disk.
    machines.kill(2).await?;
    machines.kill(3).await?;
    machines.cluster.until_healed("orders", 1).await?;
    produce(&machines, "orders", 100..150)?;
    machines.kill(1).await?;
    std::fs::remove_dir_all(machines.log_dir(1))?;
    machines.start(&[2, 3]).await?;
    machines.ask(2);

    let said = run(&machines, "unclean-look", &[]).await?.out;
    assert!(said.contains("elect --unclean orders:0 --to 2"), "{said}");
    run(&machines, "unclean-decide", &[]).await?;
    machines.cluster.until_healed("orders", 2).await?;
    produce(&machines, "orders", 150..200)?;
    let left: Vec<u32> = (0..100).chain(150..200).collect();
    assert_eq!(consume(&machines, "orders")?, left, "what the ISR had alone is gone, no more");
    let said = wait_for("the ledger tells of it", SETTLE_MAX, || async {
        let said = run(&machines, "unclean-account", &[]).await.ok()?.out;
        said.contains("unclean_election").then_some(said)
    })
    .await?;
    let entry = said.lines().find(|line| line.contains("unclean_election")).ok_or("no entry")?;
    assert!(entry.split_whitespace().any(|word| word == "100"), "from offset 100 on: {entry}");
    Ok(())
}
