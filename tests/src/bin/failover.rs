//! `failover`: how long a librdkafka producer waits when brokers are killed; each figure is one JSON object on a line.

use std::process::ExitCode;

use barnabas_tests::failover::{Plan, run};
use clap::Parser;

/// Kills leaders, then controllers, of a loaded cluster of three, and measures the outage that a client sees.
#[derive(Parser)]
struct Arguments {
    /// Leaders to kill, one after the other.
    #[arg(long, default_value_t = 50)]
    leaders: usize,
    /// Controllers to kill, which lead, too.
    #[arg(long, default_value_t = 20)]
    controllers: usize,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 1000)]
    partitions: i32,
    /// The brokers' zookeeper.session.timeout.ms.
    #[arg(long, default_value_t = 18_000)]
    session_timeout_ms: u32,
    /// With failover.suspicion.enable: false, for comparison.
    #[arg(long)]
    no_suspicion: bool,
}

fn main() -> ExitCode {
    let Arguments { leaders, controllers, partitions, session_timeout_ms, no_suspicion } =
        Arguments::parse();
    let plan =
        Plan { leaders, controllers, partitions, session_timeout_ms, suspicion: !no_suspicion };
    let mut say = |figure: &serde_json::Value| println!("{figure}");
    let ran = tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|r| r.block_on(run(plan, &mut say)));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failover: {error}");
            ExitCode::FAILURE
        }
    }
}
