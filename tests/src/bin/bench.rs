//! `bench`: the data path's cost beside the ideal's; each figure is one JSON object on a line.

use std::path::PathBuf;
use std::process::ExitCode;

use barnabas_tests::bench::Plan;
use clap::Parser;

/// Measures brokers and the ideal pipeline in turns, and prints the ratios with their goals.
#[derive(Parser)]
struct Arguments {
    /// Rounds of each kind.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Bytes of one measurement.
    #[arg(long, default_value_t = 1 << 30)]
    bytes: u64,
    /// The ideal program.
    #[arg(long)]
    ideal: PathBuf,
    /// The program that drives librdkafka.
    #[arg(long)]
    librdkafka: PathBuf,
}

fn main() -> ExitCode {
    let Arguments { rounds, bytes, ideal, librdkafka } = Arguments::parse();
    let mut say = |figure: &serde_json::Value| println!("{figure}");
    let plan = Plan { rounds: rounds.max(1), bytes, ideal, librdkafka };
    let ran = tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|r| r.block_on(barnabas_tests::bench::run(&plan, &mut say)));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
