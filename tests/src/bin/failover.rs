//! `failover`: hosts that vanish, links that are cut and leaders that wake up deposed; each figure is one JSON object on a line.

use std::process::ExitCode;

use barnabas_tests::failover::{Plan, run};
use clap::Parser;

/// Breaks a loaded cluster of three in ways that need a network of its own (Linux, root) or a look at single answers, and measures.
#[derive(Parser)]
struct Arguments {
    /// Hosts of leaders that vanish: no packet of theirs arrives, and none is refused.
    #[arg(long, default_value_t = 0)]
    vanish: usize,
    /// Single links that are cut, between two brokers or a broker and ZooKeeper.
    #[arg(long, default_value_t = 0)]
    cuts: usize,
    /// Leaders that stand still for 30 s while an acks=1 producer knows only them.
    #[arg(long, default_value_t = 0)]
    zombies: usize,
    /// The brokers' zookeeper.session.timeout.ms.
    #[arg(long, default_value_t = 6_000)]
    session_timeout_ms: u32,
    /// Where the random choices begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let Arguments { vanish, cuts, zombies, session_timeout_ms, seed } = Arguments::parse();
    let plan = Plan { vanish, cuts, zombies, session_timeout_ms, seed };
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
