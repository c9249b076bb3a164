//! `soak`: faults of every kind, mixed and at random, under load; what broke.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use barnabas_tests::demonstration::time_of_day;
use barnabas_tests::{Outcome, soak};
use clap::Parser;

/// Makes faults of every kind at random under idempotent acks=all load and consumers: nothing may be lost, doubled, reordered or
/// made up, and everything must heal by itself.
#[derive(Parser)]
struct Arguments {
    /// How long faults are made.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Where the random choices begin; the time if absent.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run(&arguments)))
    {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Outcome<bool> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let seed = arguments.seed.unwrap_or(now);
    println!("seed {seed}");
    let mut say = |line: String| println!("{}  {line}", time_of_day(SystemTime::now()));
    let length = Duration::try_from_secs_f64(arguments.minutes * 60.0)?;
    let report = soak::run(length, seed, &mut say).await?;
    print!("{report}");
    Ok(report.holds())
}
