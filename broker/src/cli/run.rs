//! `barnabas broker --config FILE`: logging, signals, and the broker itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use barnabas_broker::config::{BrokerConfig, ConfigError, check};
use barnabas_broker::logs::{Format, Level, LogConfig, Logs};
use barnabas_broker::node::Stop;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::CliError;

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// The broker's configuration, in YAML with Kafka's key names.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The least important lines that are logged (to stdout), above what logging.level says of all targets.
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    log_level: Option<Level>,
    /// Log JSON lines instead of text, whatever logging.format says.
    #[arg(long)]
    log_json: bool,
}

pub(super) fn level(text: &str) -> Result<Level, String> {
    Level::find(text).ok_or_else(|| "expected off, error, warn, info, debug or trace".to_owned())
}

/// Runs a broker until SIGTERM or SIGINT; it is drained first, unless there comes a second one.
pub(super) fn broker(args: &RunArgs) -> Result<(), CliError> {
    let refused = |error: &dyn std::fmt::Display| CliError::Refused(error.to_string());
    let config = BrokerConfig::load(&args.config).map_err(|error| all_of(&args.config, &error))?;
    let format = if args.log_json { Format::Json } else { config.logs.format };
    let logs = Logs::start(&LogConfig { format, ..config.logs.clone() }, args.log_level);
    let config = Arc::new(config);
    let (reread, of) = (logs.clone(), config.clone());
    let shutdown = on_signal(move || reread.reread(&of))
        .map_err(|e| refused(&format!("cannot listen for signals: {e}")))?;
    barnabas_broker::node::run(&config, logs, shutdown).map_err(|e| refused(&e))
}

/// The first thing that is wrong with the file, and how many more there are.
fn all_of(file: &Path, first: &ConfigError) -> CliError {
    // What cannot be read has one mistake.
    let Ok(text) = std::fs::read_to_string(file) else {
        return CliError::Refused(first.to_string());
    };
    let more = check(file, &text).errors.len().saturating_sub(1);
    let more = match more {
        0 => String::new(),
        more => {
            format!("; and {more} more, which `barnabas config check {}` lists", file.display())
        }
    };
    CliError::Refused(format!("{first}{more}"))
}

/// Orderly with the first SIGTERM or SIGINT, at once with a further one; `hung_up` for each SIGHUP. A thread of its own waits for
/// them, so that a broker whose runtimes are busy still hears them.
fn on_signal(hung_up: impl Fn() + Send + 'static) -> io::Result<watch::Receiver<Stop>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt, mut hangup) = {
        let _entered = runtime.enter();
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        (signal(terminate)?, signal(interrupt)?, signal(SignalKind::hangup())?)
    };
    let (stop, shutdown) = watch::channel(Stop::No);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            let mut ways = [Stop::Orderly, Stop::AtOnce].into_iter();
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                    _ = hangup.recv() => {
                        hung_up();
                        continue;
                    }
                }
                let Some(how) = ways.next() else { return };
                // Nobody listens any more only when the broker has ended already.
                let _ = stop.send(how);
            }
        });
    })?;
    Ok(shutdown)
}
