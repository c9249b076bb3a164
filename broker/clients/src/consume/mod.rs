//! `barnabas consume`: reads records, processes them in batches, writes the result, and moves the offsets when and where it is told to.

mod account;
mod batch;
mod from;
mod own_offsets;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

pub use account::{Account, Seen};

use crate::Error;
use crate::connection::{self, Connection};
use crate::interrupts::Interrupts;
use batch::{Processed, Shown, Taken};
use from::From;
use own_offsets::OwnOffsets;
use progress::{Commits, Progress};

/// How long one look for a record takes at most.
const LOOK: Duration = Duration::from_millis(100);
/// How long a request for offsets may take.
const OFFSETS_MAX: Duration = Duration::from_secs(30);

/// Consume records to stdout or a file; at the end say on stderr what was read, repeated and passed over.
///
/// A record counts as processed once it is in the output. --commit says when the group learns of it: `auto` on a timer, whether it is
/// processed or not (a crash loses records); `manual` after the batch is processed (a crash repeats records); `none` never.
/// --own-offsets keeps offsets and output together in two files: a crash neither loses nor repeats. Exit code 0: done.
/// 1: not all could be done. 3: no broker answered.
#[derive(Args, Debug)]
pub struct ConsumeArgs {
    /// The topic.
    topic: String,
    #[command(flatten)]
    connection: Connection,
    /// Share the topic's partitions with the other members of this group, and go on where it has committed.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["own_offsets", "partition"])]
    group: Option<String>,
    /// When the group is told what has been done (with --group).
    #[arg(long, value_enum, default_value = "manual", requires = "group")]
    commit: Commit,
    /// How often --commit auto commits.
    #[arg(long, value_name = "MS", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=86_400_000), requires = "group")]
    auto_commit_interval_ms: u32,
    /// How long the group waits for this member's heartbeats before it gives its partitions to others.
    #[arg(long, value_name = "MS", default_value_t = 45_000, value_parser = clap::value_parser!(u32).range(1..=3_600_000), requires = "group")]
    session_timeout_ms: u32,
    /// Keep the offsets in this file, in step with --output, and go on from there.
    #[arg(long, value_name = "FILE", requires = "output")]
    own_offsets: Option<PathBuf>,
    /// Write records to this file (appended) instead of stdout.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Only this partition; may be repeated.
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Vec<i32>,
    /// Where to begin without a committed or own offset: earliest, latest, an offset, or a time (2026-03-01T12:00:00Z).
    #[arg(long, value_name = "PLACE", default_value = "earliest", value_parser = from::parse)]
    from: From,
    /// End when every partition is read to its end.
    #[arg(long)]
    until_end: bool,
    /// End after so many records.
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Process so many records before the group (or the file of --own-offsets, together with the results) is told.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: u32,
    /// How long the processing of each record takes: stands in for your own work.
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=60_000))]
    process_ms: u32,
    /// Print partition and offset before each record.
    #[arg(long)]
    with_offsets: bool,
    /// Print each record's key, if it has one, and this before its value.
    #[arg(long, value_name = "TEXT")]
    key_separator: Option<String>,
    /// Print the account as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Commit {
    Auto,
    Manual,
    None,
}

impl ConsumeArgs {
    fn check(&self) -> Result<(), Error> {
        if self.group.is_some() && !matches!(self.from, From::Earliest | From::Latest) {
            return Err(Error::Usage(
                "with --group only --from earliest or latest: the group knows where it is; to move it, reset its offsets"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    fn config(&self) -> ClientConfig {
        let mut config = self.connection.config();
        let auto = self.group.is_some() && self.commit == Commit::Auto;
        config
            // The library wants a name also where no group is joined.
            .set("group.id", self.group.as_deref().unwrap_or("barnabas-consume"))
            .set("enable.auto.commit", auto.to_string())
            .set("auto.commit.interval.ms", self.auto_commit_interval_ms.to_string())
            .set("session.timeout.ms", self.session_timeout_ms.to_string())
            .set("auto.offset.reset", self.reset())
            .set("enable.partition.eof", "true")
            .set("check.crcs", "true")
            // A reader does not make the topic that it misspells.
            .set("allow.auto.create.topics", "false");
        self.connection.finish(&mut config);
        config
    }
}

impl ConsumeArgs {
    /// What the library does where an offset is not in the log. Only a group begins somewhere else by itself: whoever names an offset
    /// would otherwise repeat or pass over records without knowing.
    fn reset(&self) -> &'static str {
        match self.from {
            _ if self.group.is_none() => "error",
            From::Latest => "latest",
            _ => "earliest",
        }
    }
}

type Reader = BaseConsumer<Commits>;

/// Runs until `--until-end`, `--max` or SIGINT; the account is printed to stderr in every case.
///
/// # Errors
/// No broker answers, the topic is not there, the output or the offsets cannot be written, or commits failed.
pub fn run(args: &ConsumeArgs) -> Result<(), Error> {
    args.check()?;
    let interrupts =
        Interrupts::listen().map_err(|e| Error::refused("cannot listen for signals", e))?;
    let consumer: Reader = args
        .config()
        .create_with_context(Commits::default())
        .map_err(|e| connection::not_taken(&e))?;
    let there = connection::partitions(consumer.client(), &args.connection, &args.topic)?;
    if let Some(absent) = args.partition.iter().find(|partition| !there.contains(partition)) {
        return Err(Error::Refused(format!("topic '{}' has no partition {absent}", args.topic)));
    }
    let chosen: Vec<i32> = if args.partition.is_empty() { there } else { args.partition.clone() };
    let mut account = Account::default();
    let own = match (&args.own_offsets, &args.output) {
        (Some(path), Some(output)) => {
            let own = OwnOffsets::open(path, output, &args.topic);
            Some(own.map_err(|e| Error::refused("cannot go on from --own-offsets", e))?)
        }
        _ => None,
    };
    for (partition, next) in own.iter().flat_map(OwnOffsets::offsets) {
        account.expect(*partition, *next);
    }
    if args.group.is_some() {
        consumer.subscribe(&[&args.topic]).map_err(|e| Error::refused("cannot subscribe", e))?;
    } else {
        let start = start(args, &consumer, &chosen, own.as_ref())?;
        consumer.assign(&start).map_err(|e| Error::refused("cannot assign the partitions", e))?;
    }
    let commit = args.group.is_some() && args.commit == Commit::Manual;
    let progress = Progress::open(&args.topic, own, args.output.as_deref(), commit)
        .map_err(|e| Error::refused("cannot open --output", e))?;
    let context = Arc::clone(consumer.context());
    let mut run =
        Run { args, consumer, interrupts, account, progress, at_end: BTreeSet::new(), taken: 0 };
    let outcome = run.go();
    // Leaving the group also makes the library commit what --commit auto has not committed yet.
    let Run { mut account, consumer, .. } = run;
    drop(consumer);
    context.add_to(&mut account);
    if args.json {
        eprintln!("{}", account.json());
    } else {
        eprintln!("{}", account.text());
    }
    outcome?;
    match account.failed_commits.values().sum::<u64>() {
        0 => Ok(()),
        failed => {
            Err(Error::NotAll(format!("{failed} commits failed: the next member repeats records")))
        }
    }
}

/// Where each partition is read from when no group says so.
fn start(
    args: &ConsumeArgs,
    consumer: &Reader,
    partitions: &[i32],
    own: Option<&OwnOffsets>,
) -> Result<TopicPartitionList, Error> {
    let cannot = |error: KafkaError| Error::refused("cannot tell where to begin", error);
    let mut list = TopicPartitionList::new();
    for partition in partitions {
        let offset = match own.and_then(|own| own.offsets().get(partition)) {
            Some(next) => Offset::Offset(*next),
            None => match args.from {
                From::Earliest => Offset::Beginning,
                From::Latest => Offset::End,
                From::Offset(offset) => Offset::Offset(offset),
                From::Time(millis) => {
                    let mut asked = TopicPartitionList::new();
                    asked
                        .add_partition_offset(&args.topic, *partition, Offset::Offset(millis))
                        .map_err(cannot)?;
                    let found = consumer.offsets_for_times(asked, OFFSETS_MAX).map_err(cannot)?;
                    let found =
                        found.find_partition(&args.topic, *partition).map(|found| found.offset());
                    found.unwrap_or(Offset::End)
                }
            },
        };
        list.add_partition_offset(&args.topic, *partition, offset).map_err(cannot)?;
    }
    Ok(list)
}

struct Run<'a> {
    args: &'a ConsumeArgs,
    consumer: Reader,
    interrupts: Interrupts,
    account: Account,
    progress: Progress,
    /// Partitions whose end was reached since their last record.
    at_end: BTreeSet<i32>,
    taken: u64,
}

impl Run<'_> {
    fn go(&mut self) -> Result<(), Error> {
        loop {
            let (batch, last) = self.read()?;
            let written = self.process(&batch)?;
            if last || !written || self.interrupts.count() > 0 {
                return Ok(());
            }
        }
    }

    /// Reads a batch: full, or what there is. Whether it is the last one.
    fn read(&mut self) -> Result<(Vec<Taken>, bool), Error> {
        let mut batch = Vec::new();
        let full = self.args.batch as usize;
        while batch.len() < full {
            if self.args.max.is_some_and(|max| self.taken >= max) {
                return Ok((batch, true));
            }
            if self.interrupts.count() > 0 {
                return Ok((batch, true));
            }
            let wait = if batch.is_empty() { LOOK } else { Duration::ZERO };
            match self.consumer.poll(wait) {
                None if !batch.is_empty() => break,
                None => {}
                Some(Ok(message)) => {
                    let taken = Taken::from(&message);
                    self.taken += 1;
                    self.at_end.remove(&taken.partition);
                    self.account.read(taken.partition, taken.offset);
                    batch.push(taken);
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    self.at_end.insert(partition);
                    if self.args.until_end && self.all_at_end()? {
                        return Ok((batch, true));
                    }
                }
                Some(Err(error)) if passes(&error) => eprintln!("barnabas consume: {error}"),
                Some(Err(error)) => return Err(Error::refused("cannot read on", error)),
            }
        }
        Ok((batch, false))
    }

    fn all_at_end(&self) -> Result<bool, Error> {
        let assignment = self
            .consumer
            .assignment()
            .map_err(|e| Error::refused("cannot tell the assignment", e))?;
        let assigned: BTreeSet<i32> = assignment.elements().iter().map(|e| e.partition()).collect();
        Ok(!assigned.is_empty() && assigned.is_subset(&self.at_end))
    }

    /// Does the work of a batch, or of the part before somebody interrupted, and then moves the offsets. Results appear as they are made,
    /// unless they belong together with their offsets. False: nobody reads them any more.
    fn process(&mut self, batch: &[Taken]) -> Result<bool, Error> {
        let each = Duration::from_millis(self.args.process_ms.into());
        let shown = Shown {
            with_offsets: self.args.with_offsets,
            key_separator: self.args.key_separator.as_deref(),
        };
        let one_by_one = !each.is_zero() && !self.progress.keeps_offsets();
        let (mut piece, mut offsets) = (Processed::default(), BTreeMap::new());
        for taken in batch {
            if !each.is_zero() && self.interrupts.within(each) {
                break;
            }
            piece.push(taken, shown);
            offsets.insert(taken.partition, taken.offset + 1);
            if one_by_one && !self.progress.write(&std::mem::take(&mut piece), &mut self.account)? {
                return Ok(false);
            }
        }
        let written = self.progress.write(&piece, &mut self.account)?;
        if written && !offsets.is_empty() {
            self.progress.commit(&self.consumer, &offsets, &mut self.account)?;
        }
        Ok(written)
    }
}

/// Errors that the library goes on from by itself.
fn passes(error: &KafkaError) -> bool {
    let KafkaError::MessageConsumption(code) = error else { return false };
    !matches!(
        code,
        RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::AutoOffsetReset
            | RDKafkaErrorCode::OffsetOutOfRange
            | RDKafkaErrorCode::Fatal
    )
}
