//! What this broker logs, and how much of it: in which form, which targets at which level, changed while it runs.

mod levels;
mod reread;
mod serve;
mod targets;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use levels::Told;
pub use levels::{BadLevel, LEVELS, Level, Levels, Shown, Source};
pub use targets::{ROOT, TARGETS, Target};

/// How a line looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// An object a line.
    Json,
}

/// What a broker's file says of its log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogConfig {
    /// `logging.format`.
    pub format: Format,
    /// `logging.level`.
    pub levels: Levels,
}

/// The log of this process, whose levels can be changed. One a process.
pub struct Logs {
    told: Mutex<Told>,
    filter: reload::Handle<Targets, Registry>,
}

impl Logs {
    /// Begins to log to stdout. What the command line says of the level stands above the file.
    ///
    /// # Panics
    /// The process logs already.
    #[must_use]
    pub fn start(config: &LogConfig, command_line: Option<Level>) -> Arc<Self> {
        let told = Told::new(config.levels.clone(), command_line);
        let (filter, handle) = reload::Layer::new(told.filter());
        let lines: Box<dyn Layer<_> + Send + Sync> = match config.format {
            Format::Text => fmt::layer().with_ansi(false).boxed(),
            Format::Json => fmt::layer().json().boxed(),
        };
        tracing_subscriber::registry().with(filter).with(lines).init();
        Arc::new(Self { told: Mutex::new(told), filter: handle })
    }

    /// Which level each target has, and whose word that is.
    #[must_use]
    pub fn levels(&self) -> Vec<Shown> {
        self.told().shown()
    }

    /// Changes levels until the process ends: forgets what was set before if `reset`, then sets these. Of one that makes no sense
    /// nothing is set.
    ///
    /// # Errors
    /// [`BadLevel`]: a target or level that there is not.
    pub fn set(&self, reset: bool, set: &[(String, String)]) -> Result<(), BadLevel> {
        let parsed = set.iter().map(|(target, level)| levels::parse_one(target, level));
        let parsed: Vec<_> = parsed.collect::<Result<_, _>>()?;
        let mut told = self.told();
        told.set(reset, parsed);
        self.apply(&told);
        Ok(())
    }

    fn take_file(&self, levels: Levels) {
        let mut told = self.told();
        told.take_file(levels);
        self.apply(&told);
    }

    fn apply(&self, told: &Told) {
        // It fails only when the subscriber has ended, which is when the process does.
        let _ = self.filter.reload(told.filter());
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
