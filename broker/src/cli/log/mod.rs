//! `barnabas log dump`: what lies in the files of a data directory, and where they are damaged.
//!
//! The lines of batches, records, entries and producers are those of Kafka's own dump tool, so that what reads those reads
//! these. Exit codes: 0 nothing is damaged, 1 something is (or the disk refused), 2 the command line is wrong.

mod json;
mod lines;

use std::path::PathBuf;

use barnabas_log::dump::{DumpError, Item, Options, dump};
use clap::{Args, Subcommand};

use super::CliError;
use super::ask::printable;

#[derive(Subcommand, Debug)]
pub(super) enum LogVerb {
    /// Show what is in a file of a data directory, in a partition's directory, or in all of a data directory, and where it is
    /// damaged. Reads only; a broker may be running on it.
    Dump(DumpArgs),
}

#[derive(Args, Debug)]
pub(super) struct DumpArgs {
    /// A .log, .index, .timeindex, .txnindex, .snapshot, checkpoint or properties file; a partition's directory; a data
    /// directory.
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Show the records too; of a directory, everything in its files.
    #[arg(long)]
    deep: bool,
    /// Print one JSON object a line.
    #[arg(long)]
    json: bool,
}

impl LogVerb {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self {
            Self::Dump(args) => run(&args),
        }
    }
}

fn run(args: &DumpArgs) -> Result<(), CliError> {
    let mut lines = lines::Lines::new(args.path.is_file() || args.deep);
    let mut show = |item: &Item<'_>| {
        if args.json {
            say!("{}", json::of(item));
        } else if let Some(line) = lines.of(item) {
            say!("{line}");
        }
    };
    let outcome = dump(&args.path, Options { deep: args.deep }, &mut show).map_err(failure)?;
    match outcome.damaged {
        0 => Ok(()),
        1 => Err(CliError::Refused("1 place is damaged".to_owned())),
        places => Err(CliError::Refused(format!("{places} places are damaged"))),
    }
}

fn failure(error: DumpError) -> CliError {
    let text = printable(&error.to_string());
    match error {
        DumpError::Io { source, .. } if source.kind() != std::io::ErrorKind::NotFound => {
            CliError::Refused(text)
        }
        _ => CliError::Usage(text),
    }
}
