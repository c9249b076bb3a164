//! `barnabas broker --config FILE`: logging, signals, and the broker itself.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use barnabas_broker::config::{BrokerConfig, ConfigError, check};
use barnabas_broker::node::Stop;
use clap::{Args, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::CliError;

#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// The broker's configuration, in YAML with Kafka's key names.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The least important lines that are logged (to stdout).
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LogLevel,
    /// Log JSON lines instead of text.
    #[arg(long)]
    log_json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<LogLevel> for tracing::Level {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// Runs a broker until SIGTERM or SIGINT; it is drained first, unless there comes a second one.
pub(super) fn broker(args: &RunArgs) -> Result<(), CliError> {
    let refused = |error: &dyn std::fmt::Display| CliError::Refused(error.to_string());
    let config = BrokerConfig::load(&args.config).map_err(|error| all_of(&args.config, &error))?;
    let level = tracing::Level::from(args.log_level);
    let log = tracing_subscriber::fmt().with_max_level(level).with_ansi(false);
    if args.log_json {
        log.json().init()
    } else {
        log.init()
    }
    let shutdown = on_signal().map_err(|e| refused(&format!("cannot listen for signals: {e}")))?;
    barnabas_broker::node::run(config, shutdown).map_err(|e| refused(&e))
}

/// The first thing that is wrong with the file, and how many more there are.
fn all_of(file: &Path, first: &ConfigError) -> CliError {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let more = check(file, &text).errors.len().saturating_sub(1);
    let more = match more {
        0 => String::new(),
        more => {
            format!("; and {more} more, which `barnabas config check {}` lists", file.display())
        }
    };
    CliError::Refused(format!("{first}{more}"))
}

/// Orderly with the first SIGTERM or SIGINT, at once with a further one. A thread of its own waits for them, so that a broker whose runtimes
/// are busy still hears them.
fn on_signal() -> io::Result<watch::Receiver<Stop>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let (stop, shutdown) = watch::channel(Stop::No);
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            for how in [Stop::Orderly, Stop::AtOnce] {
                tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
                // Nobody listens any more only when the broker has ended already.
                let _ = stop.send(how);
            }
        });
    })?;
    Ok(shutdown)
}
