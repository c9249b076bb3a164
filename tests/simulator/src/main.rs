//! `barnabas-sim`: runs seeds and says which one breaks which invariant, with the command that replays it.

use std::process::ExitCode;
use std::time::Instant;

use barnabas_simulator::runs::{self, Summary};
use barnabas_simulator::{Mutation, Options};

const USAGE: &str = "barnabas-sim [--seeds N] [--from S] [--seed S] [--events N] [--trace] [--mutate NAME] [--threads N] [--list]

  --seeds N       run N seeds (default 1000)
  --from S        the first of them (default 0)
  --seed S        run this one seed only
  --events N      events of the fault phase, 500 or more (default 1500)
  --trace         print every line of the trace (with --seed)
  --mutate NAME   plant a bug; the run must then find it
  --threads N     threads (default 2)
  --list          names of the bugs that can be planted";

/// From this many seeds on everything must have been reached.
const COVERAGE_SEEDS: u64 = 1000;

struct Arguments {
    seeds: u64,
    from: u64,
    seed: Option<u64>,
    events: u64,
    trace: bool,
    mutation: Option<Mutation>,
    threads: u64,
}

fn arguments() -> Result<Option<Arguments>, String> {
    let mut parsed = Arguments {
        seeds: 1000,
        from: 0,
        seed: None,
        events: 1500,
        trace: false,
        mutation: None,
        threads: 2,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or(format!("{name} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
        match name.as_str() {
            "--seeds" => parsed.seeds = number(value()?)?,
            "--from" => parsed.from = number(value()?)?,
            "--seed" => parsed.seed = Some(number(value()?)?),
            "--events" => parsed.events = number(value()?)?,
            "--threads" => parsed.threads = number(value()?)?.max(1),
            "--trace" => parsed.trace = true,
            "--mutate" => {
                let name = value()?;
                let found = Mutation::named(&name).ok_or(format!("no bug is named '{name}'"))?;
                parsed.mutation = Some(found);
            }
            "--list" => {
                for (name, _) in Mutation::ALL {
                    println!("{name}");
                }
                return Ok(None);
            }
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(None);
            }
            other => return Err(format!("unknown argument '{other}'\n\n{USAGE}")),
        }
    }
    if parsed.events < 500 {
        return Err("--events is at least 500".to_owned());
    }
    Ok(Some(parsed))
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(Some(arguments)) => arguments,
        Ok(None) => return ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    // A core's broken assertion is reported as a violation of its seed, not as a crash.
    std::panic::set_hook(Box::new(|_| {}));
    match arguments.seed {
        Some(seed) => single(&arguments, seed),
        None => several(&arguments),
    }
}

fn single(arguments: &Arguments, seed: u64) -> ExitCode {
    let options = Options { seed, events: arguments.events, mutation: arguments.mutation };
    let keep_max = if arguments.trace { usize::MAX } else { 0 };
    if arguments.trace {
        let (violation, lines) = runs::traced(options, keep_max);
        for line in lines {
            println!("{line}");
        }
        return verdict(seed, violation.map(|v| format!("{}: {}", v.invariant, v.text)));
    }
    let (outcome, _) = runs::one(options, barnabas_simulator::Trace::off());
    verdict(seed, outcome.violation.map(|v| format!("{}: {}", v.invariant, v.text)))
}

fn verdict(seed: u64, broken: Option<String>) -> ExitCode {
    match broken {
        Some(text) => {
            println!("seed {seed} breaks {text}");
            ExitCode::FAILURE
        }
        None => {
            println!("seed {seed} holds");
            ExitCode::SUCCESS
        }
    }
}

fn several(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let options = Options { seed: 0, events: arguments.events, mutation: arguments.mutation };
    let summary = runs::many(arguments.from, arguments.seeds, options, arguments.threads, 1);
    let seconds = began.elapsed().as_secs_f64();
    print_coverage(&summary, seconds);
    if let Some(failure) = summary.failures.first() {
        println!(
            "\nseed {} breaks {}: {}",
            failure.seed, failure.violation.invariant, failure.violation.text
        );
        for line in &failure.last_lines {
            println!("  {line}");
        }
        let mutate =
            arguments.mutation.map(|m| format!(" --mutate {}", m.name())).unwrap_or_default();
        println!(
            "\nreplay: ./tests/sim --seed {} --events {}{mutate} --trace",
            failure.seed, arguments.events
        );
        return ExitCode::FAILURE;
    }
    let missing = summary.coverage.missing();
    if arguments.seeds >= COVERAGE_SEEDS && !missing.is_empty() {
        println!("\nnever reached: {}", missing.join(", "));
        return ExitCode::FAILURE;
    }
    println!("\nall seeds hold");
    ExitCode::SUCCESS
}

fn print_coverage(summary: &Summary, seconds: f64) {
    println!(
        "{} seeds, {} events, {} virtual seconds in {seconds:.1} s: {:.0} seeds/s",
        summary.runs,
        summary.coverage.events,
        summary.virtual_ms / 1000,
        summary.runs as f64 / seconds.max(0.001)
    );
    for (name, count) in summary.coverage.lines() {
        println!("  {count:>9}  {name}");
    }
}
