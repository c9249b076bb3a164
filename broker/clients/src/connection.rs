//! Where the cluster is, and what both clients tell the library and hear from it.

use std::time::Duration;

use clap::Args;
use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::Error;

/// How long a client looks for a broker, and for the topic, before it gives up.
const METADATA_WAIT_MAX: Duration = Duration::from_secs(10);

/// Where the cluster is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Connection {
    /// Brokers to begin with; the others are learned from them.
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        env = "BARNABAS_BOOTSTRAP",
        default_value = "127.0.0.1:9092"
    )]
    pub(crate) bootstrap_server: String,
    /// How long the library waits for a broker's answer before it closes the connection and tries again.
    #[arg(long, value_name = "MS", default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(10..=300_000))]
    pub(crate) request_timeout_ms: u32,
    /// Any other setting of the library (librdkafka); may be repeated.
    #[arg(long = "client-config", value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) client_config: Vec<(String, String)>,
}

impl Connection {
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap_server)
            .set("client.id", "barnabas")
            .set("socket.timeout.ms", self.request_timeout_ms.to_string())
            .set("reconnect.backoff.max.ms", "1000")
            .set_log_level(RDKafkaLogLevel::Warning);
        config
    }

    /// What `--client-config` says goes last, so that it wins.
    pub(crate) fn finish(&self, config: &mut ClientConfig) {
        for (key, value) in &self.client_config {
            config.set(key, value);
        }
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) =
        pair.ok_or("expected KEY=VALUE, for instance socket.keepalive.enable=true")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// What the library has to say goes to stderr, as it comes.
#[derive(Debug, Default)]
pub(crate) struct Spoken;

impl ClientContext for Spoken {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        eprintln!("librdkafka: {facility}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // The end of a partition is no error; whoever asked for it hears of it as a message.
        if matches!(error, KafkaError::Global(RDKafkaErrorCode::PartitionEOF)) {
            return;
        }
        eprintln!("librdkafka: {error}: {reason}");
    }
}

/// A configuration that the library does not take, in its own words.
pub(crate) fn not_taken(error: &KafkaError) -> Error {
    match error {
        KafkaError::ClientConfig(_, description, key, _) => {
            Error::Usage(format!("the setting {key} is not taken: {description}"))
        }
        other => Error::Usage(format!("the settings are not taken: {other}")),
    }
}

/// The partitions of a topic, in order.
///
/// # Errors
/// No broker answers, or the cluster does not have the topic and does not create it.
pub(crate) fn partitions<C: ClientContext>(
    client: &Client<C>,
    connection: &Connection,
    topic: &str,
) -> Result<Vec<i32>, Error> {
    let metadata = client.fetch_metadata(Some(topic), METADATA_WAIT_MAX).map_err(|error| {
        Error::Unreachable(format!(
            "no broker at {} answers ({error}); is it the address of a broker's listener? Name one with --bootstrap-server HOST:PORT or BARNABAS_BOOTSTRAP",
            connection.bootstrap_server
        ))
    })?;
    let found = metadata.topics().iter().find(|found| found.name() == topic);
    let error = found.and_then(|found| found.error()).map(RDKafkaErrorCode::from);
    let mut partitions: Vec<i32> =
        found.map_or(&[][..], |found| found.partitions()).iter().map(|p| p.id()).collect();
    partitions.sort_unstable();
    match error {
        // A topic that is created on demand is not there yet in the first answer.
        None | Some(RDKafkaErrorCode::LeaderNotAvailable) if !partitions.is_empty() => {
            Ok(partitions)
        }
        error => Err(Error::Refused(format!(
            "topic '{topic}' cannot be used ({}); `barnabas topic list` shows those that exist",
            error.map_or_else(|| "it has no partitions yet".to_owned(), |code| code.to_string())
        ))),
    }
}
