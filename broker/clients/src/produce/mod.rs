//! `barnabas produce`: takes records from a source, hands them to the library, and accounts for each.

mod account;
mod delivery;
mod resume;
mod source;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, PurgeConfig};

pub use account::{Account, Fate};

use crate::Error;
use crate::connection::{self, Connection};
use crate::interrupts::Interrupts;
use delivery::Deliveries;
use resume::{Prefix, ResumeFile};
use source::{Next, Record, Source};

/// How long one look for a delivery or a line takes at most.
const LOOK: Duration = Duration::from_millis(20);
/// How often `--resume` writes its file.
const RESUME_EVERY: Duration = Duration::from_millis(200);
/// How long what was thrown away may take to be reported.
const PURGE_MAX: Duration = Duration::from_secs(2);
/// Deliveries are looked for after so many records at the latest.
const RECORDS_PER_LOOK: u32 = 500;

/// Produce records, and say what became of each: acknowledged, dropped, failed, unknown, lost.
///
/// Exit code 0: every record was acknowledged (with --acks 0: sent). 1: not every one. 3: no broker answered.
#[derive(Args, Debug)]
pub struct ProduceArgs {
    /// The topic.
    topic: String,
    #[command(flatten)]
    connection: Connection,
    /// Read lines from this file instead of stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "records")]
    file: Option<PathBuf>,
    /// Make so many records, "record 0" and on, instead of reading lines.
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// Fill each of them with dots up to so many bytes.
    #[arg(long, value_name = "BYTES", requires = "records", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=16_000_000))]
    size: u32,
    /// What separates key and value in a line; lines without it have no key.
    #[arg(long, value_name = "TEXT", conflicts_with = "records", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    key_separator: Option<String>,
    /// Who has to have a record before it counts: nobody, its leader, every in-sync replica.
    #[arg(long, value_enum, default_value = "all")]
    acks: Acks,
    /// The broker recognises what is sent again, so that nothing is written twice or out of order (needs --acks all).
    #[arg(long, value_name = "true|false", num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    idempotence: bool,
    /// How long a batch waits for more records.
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(..=900_000))]
    linger_ms: u32,
    /// Largest batch.
    #[arg(long, value_name = "BYTES", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    batch_bytes: u32,
    /// Compression of the batches.
    #[arg(long, value_enum, default_value = "none")]
    compression: Compression,
    /// Most records in the buffer.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    buffer_records: u32,
    /// Most bytes in the buffer, in units of 1,024 (rounded up).
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024 * 1024, value_parser = clap::value_parser!(u64).range(1024..=1 << 40))]
    buffer_bytes: u64,
    /// When the buffer is full: stop reading the source until there is room, or drop the record and count it.
    #[arg(long, value_enum, default_value = "block")]
    on_full: OnFull,
    /// How long a record may take from its arrival in the buffer to its acknowledgement, all retries included.
    #[arg(long, value_name = "MS", default_value_t = 120_000, value_parser = clap::value_parser!(u32).range(1..=2_147_483_647))]
    delivery_timeout_ms: u32,
    /// How often a batch is sent again within that time.
    #[arg(long, value_name = "N", default_value_t = 2_147_483_647, value_parser = clap::value_parser!(u32).range(..=2_147_483_647))]
    retries: u32,
    /// How long what is buffered may still be sent after SIGINT; a second SIGINT ends it at once.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    flush_timeout_ms: u32,
    /// Keep in this file how many records of the source were acknowledged without a gap, and begin behind them: a source that
    /// can be read again then loses nothing, whatever becomes of the producer. The run ends at the first record that fails.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Print the account to stderr so often while the run goes on.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..))]
    report_every_ms: Option<u32>,
    /// Print the account as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Acks {
    #[value(name = "0")]
    None,
    #[value(name = "1")]
    Leader,
    #[value(name = "all", alias = "-1")]
    All,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OnFull {
    Block,
    Drop,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl ProduceArgs {
    fn check(&self) -> Result<(), Error> {
        if self.idempotence && self.acks != Acks::All {
            return Err(Error::Usage(
                "--idempotence needs --acks all: only then does a repetition mean anything"
                    .to_owned(),
            ));
        }
        if self.resume.is_some() && (self.on_full == OnFull::Drop || self.acks == Acks::None) {
            return Err(Error::Usage(
                "--resume counts what is acknowledged: it goes neither with --on-full drop nor with --acks 0".to_owned(),
            ));
        }
        Ok(())
    }

    fn config(&self) -> ClientConfig {
        let mut config = self.connection.config();
        let value = |value: &dyn ValueName| value.name();
        config
            .set("acks", value(&self.acks))
            .set("enable.idempotence", self.idempotence.to_string())
            .set("linger.ms", self.linger_ms.to_string())
            .set("batch.size", self.batch_bytes.to_string())
            .set("batch.num.messages", "1000000")
            .set("compression.type", value(&self.compression))
            .set("queue.buffering.max.messages", self.buffer_records.to_string())
            .set("queue.buffering.max.kbytes", self.buffer_bytes.div_ceil(1024).to_string())
            .set("delivery.timeout.ms", self.delivery_timeout_ms.to_string())
            .set("message.send.max.retries", self.retries.to_string());
        self.connection.finish(&mut config);
        config
    }

    fn source(&self) -> Result<Source, Error> {
        if let Some(end) = self.records {
            return Ok(Source::Numbers { next: 0, end, bytes: self.size as usize });
        }
        let file = self.file.as_deref();
        Source::lines(file, self.key_separator.as_deref()).map_err(|error| {
            let name = file.map_or_else(|| "stdin".to_owned(), |file| file.display().to_string());
            Error::refused(&format!("cannot read {name}"), error)
        })
    }
}

trait ValueName {
    fn name(&self) -> String;
}

impl<V: ValueEnum> ValueName for V {
    fn name(&self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Runs until the source ends or SIGINT; the account is printed to stdout in either case.
///
/// # Errors
/// Not every record was acknowledged, no broker answers, or the settings are not taken.
pub fn run(args: &ProduceArgs) -> Result<(), Error> {
    args.check()?;
    let interrupts =
        Interrupts::listen().map_err(|e| Error::refused("cannot listen for signals", e))?;
    let resume = args.resume.as_deref().map(|path| {
        ResumeFile::open(path, &args.topic)
            .map_err(|e| Error::refused(&format!("cannot use {}", path.display()), e))
    });
    let resume = resume.transpose()?;
    let done = resume.as_ref().map_or(0, ResumeFile::acknowledged);
    let deliveries = Deliveries::new(args.acks == Acks::None, Prefix::from(done));
    let producer: BaseProducer<Deliveries> =
        args.config().create_with_context(deliveries).map_err(|e| connection::not_taken(&e))?;
    connection::partitions(producer.client(), &args.connection, &args.topic)?;
    let mut source = args.source()?;
    source.skip(done).map_err(|e| Error::refused("cannot read the source", e))?;
    let mut run = Run {
        args,
        producer,
        interrupts,
        resume,
        next: done,
        interrupted: None,
        looked: 0,
        stored: Instant::now(),
        told: Instant::now(),
    };
    let outcome = run.take_all(&mut source);
    let left = run.finish();
    let account = run.producer.context().account();
    if args.json {
        println!("{}", account.json());
    } else {
        println!("{}", account.text());
    }
    outcome.and(left)?;
    if account.all_well() {
        return Ok(());
    }
    let short = account.taken - account.acknowledged - account.sent;
    Err(Error::NotAll(format!("{short} of {} records were not acknowledged", account.taken)))
}

struct Run<'a> {
    args: &'a ProduceArgs,
    producer: BaseProducer<Deliveries>,
    interrupts: Interrupts,
    resume: Option<ResumeFile>,
    /// Index of the next record in the source.
    next: u64,
    /// Since when somebody wants an end.
    interrupted: Option<Instant>,
    /// Records since deliveries were last looked for.
    looked: u32,
    stored: Instant,
    told: Instant,
}

impl Run<'_> {
    /// Takes records until the source ends, somebody interrupts, or (with `--resume`) one has failed.
    fn take_all(&mut self, source: &mut Source) -> Result<(), Error> {
        while self.interrupts.count() == 0 && !self.must_stop() {
            match source.next(LOOK) {
                Next::Record(record) => self.take(&record)?,
                Next::Nothing => self.look(Duration::ZERO)?,
                Next::End => break,
                Next::Failed(error) => return Err(Error::refused("cannot read the source", error)),
            }
        }
        Ok(())
    }

    fn must_stop(&self) -> bool {
        self.resume.is_some() && self.producer.context().has_failures()
    }

    fn take(&mut self, record: &Record) -> Result<(), Error> {
        let deliveries = self.producer.context().clone();
        deliveries.taken(record.value.len() + record.key.as_ref().map_or(0, Vec::len));
        let index = usize::try_from(self.next).unwrap_or(usize::MAX);
        self.next += 1;
        let mut waited = false;
        loop {
            let mut offered =
                BaseRecord::with_opaque_to(&self.args.topic, index).payload(&record.value);
            if let Some(key) = &record.key {
                offered = offered.key(key);
            }
            match self.producer.send(offered).map_err(|(error, _)| error) {
                Ok(()) => break,
                Err(KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) => {
                    if self.args.on_full == OnFull::Drop {
                        deliveries.dropped();
                        break;
                    }
                    if !std::mem::replace(&mut waited, true) {
                        deliveries.waits();
                    }
                    if self.must_leave() {
                        // It was taken and never reached the buffer.
                        deliveries.ended(index, Fate::Lost);
                        break;
                    }
                    self.wait_for_room()?;
                }
                Err(error) => {
                    deliveries.ended(index, delivery::fate(&error));
                    break;
                }
            }
        }
        self.looked += 1;
        if self.looked >= RECORDS_PER_LOOK || self.args.on_full == OnFull::Drop {
            self.look(Duration::ZERO)?;
        }
        Ok(())
    }

    /// Hears what became of records, and writes and tells what is due.
    fn look(&mut self, wait: Duration) -> Result<(), Error> {
        self.looked = 0;
        self.producer.poll(wait);
        if self.stored.elapsed() >= RESUME_EVERY {
            self.store()?;
        }
        let every = self.args.report_every_ms.map(|ms| Duration::from_millis(ms.into()));
        if every.is_some_and(|every| self.told.elapsed() >= every) {
            self.told = Instant::now();
            let account = self.producer.context().account();
            eprintln!("{} buffered {}", account.json(), account.on_its_way());
        }
        Ok(())
    }

    fn store(&mut self) -> Result<(), Error> {
        self.stored = Instant::now();
        let Some(file) = &mut self.resume else { return Ok(()) };
        let prefix = self.producer.context().prefix();
        file.store(&prefix).map_err(|e| Error::refused("cannot write the file of --resume", e))
    }

    /// Whether what is left is given up: at the second signal, or some time after the first.
    fn must_leave(&mut self) -> bool {
        let most = Duration::from_millis(self.args.flush_timeout_ms.into());
        match self.interrupts.count() {
            0 => false,
            1 => self.interrupted.get_or_insert_with(Instant::now).elapsed() >= most,
            _ => true,
        }
    }

    fn wait_for_room(&mut self) -> Result<(), Error> {
        if self.interrupts.count() == 0 {
            return self.look(LOOK);
        }
        self.flush_on()
    }

    /// A piece of flushing: what lingers goes now.
    fn flush_on(&mut self) -> Result<(), Error> {
        // That it is not over within this time is no error.
        let _ = self.producer.flush(LOOK);
        self.look(Duration::ZERO)
    }

    /// Sends what is buffered, within a bound once somebody interrupted; the rest is thrown away and counted.
    fn finish(&mut self) -> Result<(), Error> {
        while self.producer.context().on_its_way() && !self.must_leave() {
            self.flush_on()?;
        }
        if self.producer.context().on_its_way() {
            self.producer.purge(PurgeConfig::default().queue().inflight());
            let since = Instant::now();
            while self.producer.context().on_its_way() && since.elapsed() < PURGE_MAX {
                self.producer.poll(LOOK);
            }
        }
        self.producer.context().close();
        self.store()
    }
}
