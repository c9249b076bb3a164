//! Fetches the entries of the other brokers: one task for each that is registered, which asks it again and again; the answer comes
//! when there is something to tell.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use barnabas_controller::ClusterView as _;
use barnabas_proto::MESSAGE_BYTES_MAX;
use barnabas_proto::v1;
use barnabas_proto::v1::broker_control_client::BrokerControlClient;
use barnabas_types::{BrokerEpoch, BrokerId, Sanitised};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::transport::Endpoint;

use super::entry::Mark;
use super::{Journal, Kind, Origin};
use crate::node::Node;

/// Longest wait for a connection.
const DIAL_MAX: Duration = Duration::from_secs(3);
/// How long the asked broker may wait for something to tell. Entries that it has from others come at least so often.
const WAIT_MS: u32 = 10_000;
/// How much longer an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a broker could not be asked, or had nothing to tell and did not wait either.
const AGAIN: Duration = Duration::from_secs(1);
/// Pause after an answer of which nothing could be taken.
const REFUSED: Duration = Duration::from_secs(10);
/// Pause after an answer that told nothing new: another broker was faster.
const BEHIND: Duration = Duration::from_millis(100);

/// A broker that is asked.
struct Asked {
    address: String,
    epoch: BrokerEpoch,
    task: JoinHandle<()>,
}

/// Series that have lost their beginnings, with a log directory for instance: the broker that is asked is told that they are
/// here up to less than they are, until it has sent what it has of the rest.
pub(super) struct Beginnings(BTreeMap<(Kind, Origin), Wanted>);

struct Wanted {
    /// Up to there it has been sent, inclusive.
    sent: u64,
    /// From there on it is here.
    until: u64,
}

impl Beginnings {
    pub(super) fn missing(journal: &Journal) -> Self {
        let missing = journal.without_beginning().into_iter();
        Self(missing.map(|(kind, of, until)| ((kind, of), Wanted { sent: 0, until })).collect())
    }

    /// How far a series is said to be here.
    pub(super) fn asked(&self, mark: Mark) -> Mark {
        match self.0.get(&(mark.kind, mark.origin)) {
            Some(wanted) => Mark { sequence: wanted.sent, ..mark },
            None => mark,
        }
    }

    /// That broker has sent these: what it has not sent below them it has not.
    pub(super) fn sent(&mut self, entries: &[v1::JournalEntry]) {
        for (kind, origin, sequence) in entries.iter().filter_map(Mark::of_message) {
            if let Some(wanted) = self.0.get_mut(&(kind, origin)) {
                wanted.sent = wanted.sent.max(sequence);
            }
        }
        self.0.retain(|_, wanted| wanted.sent + 1 < wanted.until);
    }
}

/// Asks every other broker that is registered, until this one ends.
pub(crate) async fn run(node: Arc<Node>) {
    let mut changes = node.view.changes();
    let mut asked: BTreeMap<BrokerId, Asked> = BTreeMap::new();
    loop {
        changes.borrow_and_update();
        let image = node.view.image();
        asked.retain(|id, asked| {
            let is_same = image.brokers.get(id).is_some_and(|broker| {
                broker.control_address == asked.address && broker.epoch == asked.epoch
            });
            if !is_same {
                asked.task.abort();
            }
            is_same
        });
        for (id, broker) in &image.brokers {
            if *id != node.me && !asked.contains_key(id) {
                let (address, epoch) = (broker.control_address.clone(), broker.epoch);
                let task = tokio::spawn(follow(node.journal.clone(), *id, address.clone()));
                asked.insert(*id, Asked { address, epoch, task });
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn follow(journal: Arc<Journal>, broker: BrokerId, address: String) {
    loop {
        let Err(why) = ask(&journal, broker, &address).await;
        tracing::debug!(%broker, address = %Sanitised::name(&address), why = %Sanitised::sentence(why), "the journal of a broker cannot be read now");
        sleep(AGAIN).await;
    }
}

/// Asks until something goes wrong.
async fn ask(journal: &Journal, broker: BrokerId, address: &str) -> Result<Infallible, String> {
    let timeout = Duration::from_millis(WAIT_MS.into()) + PATIENCE;
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| error.to_string())?
        .connect_timeout(DIAL_MAX)
        .timeout(timeout)
        .tcp_nodelay(true)
        .connect()
        .await
        .map_err(|error| error.to_string())?;
    let mut client = BrokerControlClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
    let mut told = None;
    let mut beginnings = Beginnings::missing(journal);
    loop {
        let marks = journal.marks().ok_or("this broker's own journal is not read yet")?;
        let after = marks.into_iter().map(|mark| beginnings.asked(mark).message()).collect();
        let request = v1::ReadJournalRequest { after, wait_ms: WAIT_MS };
        let asked_at = Instant::now();
        let answer = client.read_journal(request).await.map_err(|status| status.to_string())?;
        let sent = answer.into_inner().entries;
        beginnings.sent(&sent);
        if sent.is_empty() {
            if asked_at.elapsed() < AGAIN {
                sleep(AGAIN).await;
            }
            continue;
        }
        let taken = journal.take(sent).await.map_err(|error| error.to_string())?;
        if let Some((count, why)) = taken.refused.filter(|(_, why)| told != Some(*why)) {
            tracing::warn!(%broker, entries = count, why, "entries of another broker's journal are not taken");
            told = Some(why);
        }
        if taken.new == 0 {
            // What is refused would be sent again at once.
            sleep(if taken.refused.is_some() { REFUSED } else { BEHIND }).await;
        }
    }
}
