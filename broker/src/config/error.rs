//! Why a configuration is refused.

use std::path::PathBuf;

/// Why a configuration is refused; each text names the file, the key and what to write instead.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read the configuration {file}: {source}; give the path of a YAML file to --config"
    )]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not YAML, or not a list of settings.
    #[error("{file} is not a configuration: {message}")]
    Syntax {
        /// The file.
        file: PathBuf,
        /// What the parser says.
        message: String,
    },
    /// A key that is not served.
    #[error("{place}: unknown key '{key}'; {remedy}")]
    UnknownKey {
        /// File and line.
        place: String,
        /// The key as written.
        key: String,
        /// The nearest key, or where the list is.
        remedy: String,
    },
    /// The same key twice, flat and nested.
    #[error("{place}: '{key}' is given twice; keep one of them")]
    Twice {
        /// File and line.
        place: String,
        /// The key.
        key: String,
    },
    /// A key that must be given is absent.
    #[error("{file}: '{key}' is missing; add a line `{key}: VALUE`, where VALUE is {form}")]
    Missing {
        /// The file.
        file: PathBuf,
        /// The key.
        key: &'static str,
        /// What a value looks like.
        form: String,
    },
    /// A value that is none for this key.
    #[error("{place}: '{key}' is '{value}'; expected {form}")]
    BadValue {
        /// File and line.
        place: String,
        /// The key.
        key: &'static str,
        /// The value as written.
        value: String,
        /// What a value looks like.
        form: String,
    },
    /// A value that is well-formed and cannot be served, or keys that contradict each other.
    #[error("{place}: '{key}' is '{value}': {reason}")]
    NotServed {
        /// File and line.
        place: String,
        /// The key.
        key: &'static str,
        /// The value as written.
        value: String,
        /// Why, and what to do.
        reason: String,
        /// The key that it contradicts, if it is the two together.
        other: Option<&'static str>,
    },
}

impl ConfigError {
    /// The served keys that it is about.
    pub(super) fn keys(&self) -> Vec<&'static str> {
        match self {
            Self::Missing { key, .. } | Self::BadValue { key, .. } => vec![key],
            Self::NotServed { key, other, .. } => std::iter::once(*key).chain(*other).collect(),
            Self::Unreadable { .. }
            | Self::Syntax { .. }
            | Self::UnknownKey { .. }
            | Self::Twice { .. } => Vec::new(),
        }
    }
}
