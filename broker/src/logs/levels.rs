//! Which target is logged at which level, and whose word that is: set while the broker runs, then the command line, then the file.

use std::collections::BTreeMap;
use std::fmt;

use barnabas_types::{Sanitised, nearest};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::targets::{ROOT, TARGETS, is_target, names};

/// Targets that may be set while a broker runs; there are far fewer modules.
const SET_MAX: usize = 100;

/// The least important lines that are logged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// None.
    Off,
    /// What needs somebody.
    Error,
    /// What may become so.
    Warn,
    /// What happens seldom.
    Info,
    /// What happens often.
    Debug,
    /// Everything.
    Trace,
}

/// All of them.
pub const LEVELS: [Level; 6] =
    [Level::Off, Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];

impl Level {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }

    /// The level of this name, in small letters or capitals.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        LEVELS.into_iter().find(|level| level.name().eq_ignore_ascii_case(name))
    }

    fn filter(self) -> LevelFilter {
        match self {
            Self::Off => LevelFilter::OFF,
            Self::Error => LevelFilter::ERROR,
            Self::Warn => LevelFilter::WARN,
            Self::Info => LevelFilter::INFO,
            Self::Debug => LevelFilter::DEBUG,
            Self::Trace => LevelFilter::TRACE,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A target or level that there is not; the text names those that there are.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadLevel {
    /// No such level.
    #[error("'{given}' is no level; write off, error, warn, info, debug or trace")]
    Level {
        /// As it was given, made safe.
        given: String,
    },
    /// No such target.
    #[error(
        "'{given}' is no target of log lines{}; there are {}, and the modules of the latter (barnabas_broker::storage)",
        meant(.nearest), names()
    )]
    Target {
        /// As it was given, made safe.
        given: String,
        /// What was probably meant.
        nearest: Option<&'static str>,
    },
    /// Of one target twice.
    #[error("'{given}' is given two levels; keep one")]
    Twice {
        /// Which.
        given: String,
    },
}

fn meant(nearest: &Option<&'static str>) -> String {
    nearest.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default()
}

/// A target (`None`: [`ROOT`]) and its level, checked.
pub(super) fn parse_one(target: &str, level: &str) -> Result<(Option<String>, Level), BadLevel> {
    let found = Level::find(level)
        .ok_or_else(|| BadLevel::Level { given: Sanitised::sentence(cut(level)).to_string() });
    if target == ROOT {
        return Ok((None, found?));
    }
    if !is_target(target) {
        let known = TARGETS.iter().map(|target| target.name).chain([ROOT]);
        let nearest = nearest(target, known);
        let given = Sanitised::sentence(cut(target)).to_string();
        return Err(BadLevel::Target { given, nearest });
    }
    Ok((Some(target.to_owned()), found?))
}

/// Enough of it to recognise it.
fn cut(text: &str) -> &str {
    text.char_indices().nth(80).map_or(text, |(at, _)| &text[..at])
}

/// What a file says: a level for everything, and others for targets.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Levels {
    root: Option<Level>,
    targets: BTreeMap<String, Level>,
}

impl Levels {
    /// Reads `info`, or `info,request=debug`, or `request=debug` alone.
    ///
    /// # Errors
    /// [`BadLevel`].
    pub fn parse(text: &str) -> Result<Self, BadLevel> {
        let mut levels = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (target, level) =
                part.split_once('=').map_or((ROOT, part), |(t, l)| (t.trim(), l.trim()));
            let (of, level) = parse_one(target, level)?;
            let before = match of {
                None => levels.root.replace(level),
                Some(name) => levels.targets.insert(name, level),
            };
            if before.is_some() {
                return Err(BadLevel::Twice { given: target.to_owned() });
            }
        }
        Ok(levels)
    }
}

/// Whose word a level is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Set while the broker runs.
    Set,
    /// Of the command line that started it.
    CommandLine,
    /// Of its file.
    File,
    /// Nobody says it.
    Default,
    /// That of [`ROOT`].
    Root,
}

impl Source {
    /// As it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::CommandLine => "command line",
            Self::File => "file",
            Self::Default => "default",
            Self::Root => "root",
        }
    }
}

/// One target as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Its name.
    pub target: String,
    /// Its level.
    pub level: Level,
    /// Whose word that is.
    pub source: Source,
}

/// What everybody said.
#[derive(Debug)]
pub(super) struct Told {
    file: Levels,
    command_line: Option<Level>,
    set: Levels,
}

impl Told {
    pub(super) fn new(file: Levels, command_line: Option<Level>) -> Self {
        Self { file, command_line, set: Levels::default() }
    }

    pub(super) fn take_file(&mut self, file: Levels) {
        self.file = file;
    }

    pub(super) fn set(&mut self, reset: bool, levels: Vec<(Option<String>, Level)>) {
        if reset {
            self.set = Levels::default();
        }
        for (target, level) in levels {
            match target {
                None => self.set.root = Some(level),
                Some(name) => {
                    if self.set.targets.len() < SET_MAX || self.set.targets.contains_key(&name) {
                        self.set.targets.insert(name, level);
                    }
                }
            }
        }
    }

    fn root(&self) -> (Level, Source) {
        let said = [
            (self.set.root, Source::Set),
            (self.command_line, Source::CommandLine),
            (self.file.root, Source::File),
        ];
        let first = said.into_iter().find_map(|(level, source)| Some((level?, source)));
        first.unwrap_or((Level::Info, Source::Default))
    }

    fn of(&self, target: &str) -> Option<(Level, Source)> {
        let said = [(&self.set, Source::Set), (&self.file, Source::File)];
        said.into_iter().find_map(|(levels, source)| Some((*levels.targets.get(target)?, source)))
    }

    /// [`ROOT`], the table's targets, then modules that somebody named.
    pub(super) fn shown(&self) -> Vec<Shown> {
        let root = self.root();
        let one =
            |target: &str, (level, source)| Shown { target: target.to_owned(), level, source };
        let mut all = vec![one(ROOT, root)];
        for target in TARGETS {
            all.push(one(target.name, self.of(target.name).unwrap_or((root.0, Source::Root))));
        }
        let named = self.set.targets.keys().chain(self.file.targets.keys());
        let mut modules: Vec<_> =
            named.filter(|name| TARGETS.iter().all(|target| target.name != *name)).collect();
        modules.sort_unstable();
        modules.dedup();
        all.extend(modules.into_iter().filter_map(|name| Some(one(name, self.of(name)?))));
        all
    }

    /// What passes: of several targets that a line's begins with, the longest decides.
    pub(super) fn filter(&self) -> Targets {
        let named: Vec<_> =
            self.shown().into_iter().filter(|one| one.source != Source::Root).collect();
        let of_targets = named.iter().filter(|one| one.target != ROOT);
        Targets::new()
            .with_default(self.root().0.filter())
            .with_targets(of_targets.map(|one| (one.target.clone(), one.level.filter())))
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level as Of;

    use super::*;

    fn told(file: &str, command_line: Option<Level>) -> Told {
        Told::new(Levels::parse(file).unwrap(), command_line)
    }

    fn set(told: &mut Told, reset: bool, levels: &[(&str, &str)]) {
        let levels = levels.iter().map(|(target, level)| parse_one(target, level).unwrap());
        told.set(reset, levels.collect());
    }

    #[test]
    fn what_is_set_stands_above_the_command_line_and_that_above_the_file() {
        let mut told =
            told("warn,request=debug,barnabas_broker::storage=trace", Some(Level::Error));
        let root = |told: &Told| (told.shown()[0].level, told.shown()[0].source);
        assert_eq!(root(&told), (Level::Error, Source::CommandLine));
        let filter = told.filter();
        assert!(filter.would_enable("request", &Of::DEBUG));
        assert!(!filter.would_enable("request", &Of::TRACE));
        assert!(filter.would_enable("barnabas_broker::storage::space", &Of::TRACE));
        assert!(!filter.would_enable("barnabas_broker::journal", &Of::WARN));
        set(&mut told, false, &[("root", "info"), ("request", "off"), ("group", "TRACE")]);
        assert_eq!(root(&told), (Level::Info, Source::Set));
        let filter = told.filter();
        assert!(!filter.would_enable("request", &Of::ERROR));
        assert!(filter.would_enable("group", &Of::TRACE));
        assert!(filter.would_enable("state_change", &Of::INFO));
        told.take_file(Levels::parse("debug").unwrap());
        assert_eq!(root(&told), (Level::Info, Source::Set), "the file changes nothing above it");
        set(&mut told, true, &[("h2", "debug")]);
        assert_eq!(root(&told), (Level::Error, Source::CommandLine));
        assert!(!told.filter().would_enable("group", &Of::INFO));
        assert!(told.filter().would_enable("h2::codec", &Of::DEBUG));
    }

    #[test]
    fn without_a_word_everything_is_at_info() {
        let told = told("", None);
        let shown = told.shown();
        assert_eq!((shown[0].level, shown[0].source), (Level::Info, Source::Default));
        assert!(shown[1..].iter().all(|one| one.source == Source::Root));
        assert_eq!(shown.len(), TARGETS.len() + 1);
    }

    #[test]
    fn modules_are_shown_behind_the_table() {
        let mut told = told("barnabas_broker::flush=warn", None);
        set(&mut told, false, &[("barnabas_broker::flush", "debug"), ("h2::hpack", "off")]);
        let last: Vec<_> = told.shown()[TARGETS.len() + 1..]
            .iter()
            .map(|one| (one.target.clone(), one.level))
            .collect();
        let expected = [("barnabas_broker::flush", Level::Debug), ("h2::hpack", Level::Off)];
        assert_eq!(last, expected.map(|(name, level)| (name.to_owned(), level)));
    }

    #[test]
    fn what_there_is_not_is_refused_with_what_there_is() {
        for (text, parts) in [
            ("verbose", &["'verbose' is no level", "off, error, warn, info, debug or trace"][..]),
            ("request=", &["'' is no level"]),
            ("reqest=debug", &["did you mean request?", "root, controller, state_change"]),
            ("kafka.request.logger=debug", &["no target", "barnabas_broker::storage"]),
            ("request=debug,request=info", &["'request' is given two levels"]),
            ("info,debug", &["'root' is given two levels"]),
            ("x\u{1b}[2J=info", &["'x\\u{1b}[2J' is no target"]),
        ] {
            let error = Levels::parse(text).unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
        let long = Levels::parse(&"x".repeat(10_000)).unwrap_err().to_string();
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn what_may_be_set_is_bounded() {
        let mut told = told("", None);
        for n in 0..SET_MAX + 10 {
            set(&mut told, false, &[(&format!("h2::m{n}"), "debug")]);
        }
        assert_eq!(told.set.targets.len(), SET_MAX);
    }
}
