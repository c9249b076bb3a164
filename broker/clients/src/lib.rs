//! Reference clients: produce and consume over a well-kept client library, and give an account of every record.
//!
//! They show what a client can lose, repeat or drop, and which option is the remedy; `deploy/reference-clients.md` walks through it.
//! The accounts are plain values: what the library reports goes in, sums come out.

mod connection;
pub mod consume;
mod files;
mod interrupts;
pub mod outage;
pub mod produce;

/// Why a client ends without its work done; each text is one sentence.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The options contradict each other, or name something that cannot be.
    #[error("{0}")]
    Usage(String),
    /// No broker answered.
    #[error("{0}")]
    Unreachable(String),
    /// This machine or the cluster refused.
    #[error("{0}")]
    Refused(String),
    /// Records were not acknowledged, were left out or may be repeated; the account has been printed.
    #[error("{0}")]
    NotAll(String),
}

impl Error {
    fn refused(what: &str, error: impl std::fmt::Display) -> Self {
        Self::Refused(format!("{what}: {error}"))
    }
}
