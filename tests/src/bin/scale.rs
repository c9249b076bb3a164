//! `scale`: a cluster of three brokers with many partitions; each figure is one JSON object on a line.

use std::process::ExitCode;

use clap::Parser;

/// Creates many partitions on three brokers, kills a broker and then the controller, and measures.
#[derive(Parser)]
struct Arguments {
    /// Topics of 1,000 partitions each.
    #[arg(long, default_value_t = 10)]
    topics: i32,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut say = |figure: &serde_json::Value| println!("{figure}");
    let ran = tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|r| r.block_on(barnabas_tests::scale::run(arguments.topics, &mut say)));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scale: {error}");
            ExitCode::FAILURE
        }
    }
}
