//! `ledger-runs`: faults at random, and whether the ledger names what an independent client lost.

use std::process::ExitCode;
use std::time::SystemTime;

use barnabas_tests::Outcome;
use barnabas_tests::ledger_runs::{idle, run};
use clap::Parser;

/// Kills, standstills, unclean elections and power cuts over acks 0, 1 and all and both flush modes: whatever a client lost has to be in
/// the ledger, and what the ledger says of it has to be right.
#[derive(Parser)]
struct Arguments {
    /// Faults, one after the other.
    #[arg(long, default_value_t = 24)]
    runs: u64,
    /// Where the random choices begin; the time if absent.
    #[arg(long)]
    seed: Option<u64>,
    /// Instead: a load without faults for so long, after which the ledger must be empty.
    #[arg(long, value_name = "N")]
    idle_minutes: Option<u64>,
}

async fn judge(arguments: &Arguments) -> Outcome<bool> {
    if let Some(minutes) = arguments.idle_minutes {
        let batches = idle(minutes).await?;
        println!(
            "{minutes} minutes without a fault, {batches} batches acknowledged: no entry, no change of a leader"
        );
        return Ok(true);
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let seed = arguments.seed.unwrap_or(now);
    println!("seed {seed}");
    let totals = run(arguments.runs, seed, &mut |line| println!("{line}")).await?;
    println!("{totals:#?}");
    Ok(totals.holds())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let judged = tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(judge(&arguments)));
    match judged {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ledger-runs: {error}");
            ExitCode::FAILURE
        }
    }
}
