//! Where results go and offsets are kept: the output first, then whoever has to know how far it goes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use super::account::Account;
use super::batch::Processed;
use super::own_offsets::OwnOffsets;
use crate::Error;
use crate::connection::Spoken;

/// Where a consumer's results and offsets go.
#[derive(Debug)]
pub(super) struct Progress {
    topic: String,
    output: Output,
    /// Whether the group is told after each batch.
    commit: bool,
}

#[derive(Debug)]
enum Output {
    Stdout,
    File(File),
    Own(OwnOffsets),
}

impl Progress {
    pub(super) fn open(
        topic: &str,
        own: Option<OwnOffsets>,
        output: Option<&Path>,
        commit: bool,
    ) -> io::Result<Self> {
        let output = match (own, output) {
            (Some(own), _) => Output::Own(own),
            (None, Some(path)) => {
                Output::File(OpenOptions::new().create(true).append(true).open(path)?)
            }
            (None, None) => Output::Stdout,
        };
        Ok(Self { topic: topic.to_owned(), output, commit })
    }

    /// Whether results and offsets are written as one.
    pub(super) fn keeps_offsets(&self) -> bool {
        matches!(self.output, Output::Own(_))
    }

    /// Writes results. False: nobody reads the output any more.
    pub(super) fn write(
        &mut self,
        processed: &Processed,
        account: &mut Account,
    ) -> Result<bool, Error> {
        if processed.records == 0 {
            return Ok(true);
        }
        let written = match &mut self.output {
            Output::Own(own) => own.store(&processed.output, &processed.offsets),
            Output::File(file) => file.write_all(&processed.output),
            Output::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&processed.output).and_then(|()| stdout.flush())
            }
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
            other => other.map_err(|error| Error::refused("cannot write the result", error))?,
        }
        account.processed += processed.records;
        Ok(true)
    }

    /// Tells the group, if it is to be told, that everything below these offsets has been done.
    pub(super) fn commit(
        &mut self,
        consumer: &BaseConsumer<Commits>,
        offsets: &BTreeMap<i32, i64>,
        account: &mut Account,
    ) -> Result<(), Error> {
        if !self.commit {
            return Ok(());
        }
        // What the group is told of must outlive this machine's crash.
        if let Output::File(file) = &self.output {
            file.sync_data().map_err(|error| Error::refused("cannot sync the result", error))?;
        }
        let mut list = TopicPartitionList::new();
        for (partition, next) in offsets {
            list.add_partition_offset(&self.topic, *partition, Offset::Offset(*next))
                .map_err(|error| Error::refused("cannot commit", error))?;
        }
        match consumer.commit(&list, CommitMode::Sync) {
            Ok(()) => {
                offsets.iter().for_each(|(partition, next)| account.committed(*partition, *next))
            }
            // Another member has the partition now and repeats these records.
            Err(error) => account.commit_failed(reason(&error)),
        }
        Ok(())
    }
}

fn reason(error: &KafkaError) -> String {
    match error {
        KafkaError::ConsumerCommit(code) => format!("{code:?}"),
        other => other.to_string(),
    }
}

/// What the library committed by itself.
#[derive(Debug, Default)]
pub(super) struct Commits(Mutex<(BTreeMap<i32, i64>, BTreeMap<String, u64>)>);

impl Commits {
    pub(super) fn add_to(&self, account: &mut Account) {
        let (committed, failed) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner);
        committed.iter().for_each(|(partition, next)| account.committed(*partition, *next));
        for (reason, count) in failed {
            (0..*count).for_each(|_| account.commit_failed(reason.clone()));
        }
    }
}

impl ClientContext for Commits {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Spoken.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, text: &str) {
        Spoken.error(error, text);
    }
}

impl ConsumerContext for Commits {
    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        let (committed, failed) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => {
                for element in offsets.elements() {
                    if let Offset::Offset(next) = element.offset() {
                        committed.insert(element.partition(), next);
                    }
                }
            }
            // Nothing had been read since the last commit.
            Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
            Err(error) => *failed.entry(reason(&error)).or_default() += 1,
        }
    }
}
