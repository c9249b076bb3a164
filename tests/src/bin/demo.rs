//! `demo`: the demonstration of the quick start, on a cluster that `barnabas dev` runs.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use barnabas_tests::Outcome;
use barnabas_tests::cluster::Cluster;
use barnabas_tests::corpus::{Corpus, cargo_registry};
use barnabas_tests::demonstration::{self, time_of_day};
use clap::Parser;

/// Real lines in with kcat, two kills meanwhile, everything acknowledged out again.
#[derive(Parser)]
struct Arguments {
    /// The directory given to `barnabas dev --data`.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Name of the topic that is created.
    #[arg(long, default_value = "rust-sources")]
    topic: String,
    /// Least number of lines; whole files are taken.
    #[arg(long, default_value_t = 1_000_000)]
    lines: usize,
    /// Where the *.rs files are; cargo's registry if absent.
    #[arg(long, value_name = "DIR")]
    sources: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match show(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("demo: a promise was broken, see the counts above");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn show(arguments: &Arguments) -> Outcome<bool> {
    let started = Instant::now();
    let mut say = |line: String| {
        println!(
            "{}  {:>7.2} s  {line}",
            time_of_day(SystemTime::now()),
            started.elapsed().as_secs_f64()
        );
    };
    let sources = arguments.sources.clone().unwrap_or_else(cargo_registry);
    let corpus = Corpus::of_rust_sources(&sources, arguments.lines)?;
    say(format!(
        "input: {} lines ({} with bytes beyond printable ASCII), {} bytes, {} files below {}{}",
        corpus.len(),
        corpus.odd_lines(),
        corpus.bytes(),
        corpus.files,
        sources.display(),
        if corpus.rounds > 1 {
            format!(", gone through {} times", corpus.rounds)
        } else {
            String::new()
        }
    ));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut cluster = Cluster::attach(&arguments.data)?;
        let findings =
            demonstration::run(&mut cluster, &arguments.topic, &corpus, &mut say).await?;
        if findings.account.holds_exactly() {
            say("what came out is what was acknowledged, byte for byte and in order, each record once".to_owned());
        }
        Ok(findings.account.holds_exactly())
    })
}
