//! `power-cut`: power cuts of a whole cluster under load, and what they cost.

use std::process::ExitCode;
use std::time::SystemTime;

use barnabas_tests::Outcome;
use barnabas_tests::demonstration::time_of_day;
use barnabas_tests::power_cut::{Kind, run};
use clap::Parser;

/// Cuts the power of three brokers under load, again and again: flush.mode=sync must lose nothing, async no more than
/// flush.messages and flush.ms allow, and sync on a disk that lies must fail.
#[derive(Parser)]
struct Arguments {
    /// Power cuts of each kind.
    #[arg(long, default_value_t = 5)]
    rounds: u64,
    /// sync, async, no-fsync; all three if absent.
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Where the random choices begin; the time if absent.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|r| r.block_on(cut(&arguments)))
    {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("power-cut: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn cut(arguments: &Arguments) -> Outcome<bool> {
    let all = [Kind::Sync, Kind::Async, Kind::NoFsync];
    let asked = |kind: &Kind| arguments.kind.as_ref().is_none_or(|name| name == kind.name());
    let kinds: Vec<Kind> = all.into_iter().filter(asked).collect();
    if kinds.is_empty() {
        return Err("--kind is sync, async or no-fsync".into());
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let seed = arguments.seed.unwrap_or(now);
    println!("seed {seed}");
    let mut passed = true;
    for kind in kinds {
        let mut say = |line: String| println!("{}  {line}", time_of_day(SystemTime::now()));
        let totals = run(kind, arguments.rounds, seed, &mut say).await?;
        let ok = if kind == Kind::NoFsync { totals.lost > 0 } else { totals.faults.is_empty() };
        passed &= ok;
        println!(
            "{}: {} rounds, {} records acked, {} lost, {} wrong; the cuts took {} B, {} sectors, {} names; {} fdatasync, {} fsync, {} syncfs: {}",
            kind.name(),
            totals.rounds,
            totals.acked,
            totals.lost,
            totals.wrong,
            totals.cut.bytes,
            totals.cut.torn_sectors,
            totals.cut.names,
            totals.syncs[0],
            totals.syncs[1],
            totals.syncs[2],
            match (ok, kind) {
                (true, Kind::NoFsync) => "fails, as it must".to_owned(),
                (false, Kind::NoFsync) => "nothing was lost: the cuts show nothing".to_owned(),
                (true, _) => "ok".to_owned(),
                (false, _) => totals.faults.join("; "),
            }
        );
    }
    Ok(passed)
}
