//! Push streams: one task for each registered broker, so that a slow or dead one delays nobody else.
//!
//! A stream asks the owner for what it is owed, sends it, waits for the acknowledgement and asks again. After any failure it
//! dials anew and begins with the full state, so nothing is ever lost between two attempts (R4, KAFKA-9307).

use std::collections::BTreeMap;
use std::time::Duration;

use barnabas_controller_core::{Controller, ControllerEvent, ReplicaReport};
use barnabas_proto::PUSH_BYTES_MAX;
use barnabas_proto::convert::{Ack, StateUpdate};
use barnabas_proto::v1;
use barnabas_proto::v1::broker_control_client::BrokerControlClient;
use barnabas_types::{BrokerEpoch, BrokerId, BrokerImage, ControllerEpoch, Sanitised};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use super::TermEvent;
use crate::dial::Ports;
use crate::drive::Backoff;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEP_ALIVE: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// A push that is not acknowledged for so long is sent again, as a full state on a new stream.
const ACK_TIMEOUT: Duration = Duration::from_secs(30);

/// A stream wants its next update.
#[derive(Debug)]
pub(crate) struct Ready {
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    /// What the broker has, `None` for a new stream.
    since: Option<u64>,
    /// The acknowledgement by which it got there.
    ack: Option<Ack>,
    /// Takes the update. Dropped by the owner when the stream asks anew.
    update: oneshot::Sender<v1::StateUpdate>,
}

struct Stream {
    epoch: BrokerEpoch,
    address: String,
    task: AbortHandle,
    wants: Option<(Option<u64>, oneshot::Sender<v1::StateUpdate>)>,
}

/// All streams of a term.
pub(super) struct Streams {
    me: BrokerId,
    controller_epoch: ControllerEpoch,
    inbox: mpsc::Sender<TermEvent>,
    suspicion: bool,
    streams: BTreeMap<BrokerId, Stream>,
    tasks: JoinSet<()>,
}

impl Streams {
    pub(super) fn new(
        me: BrokerId,
        controller_epoch: ControllerEpoch,
        inbox: mpsc::Sender<TermEvent>,
        suspicion: bool,
    ) -> Self {
        let (streams, tasks) = (BTreeMap::new(), JoinSet::new());
        Self { me, controller_epoch, inbox, suspicion, streams, tasks }
    }

    /// One stream for each registration; a changed epoch or address is another one.
    pub(super) fn follow(&mut self, brokers: &BTreeMap<BrokerId, BrokerImage>) {
        self.streams.retain(|id, stream| {
            let stays = brokers.get(id).is_some_and(|broker| {
                broker.epoch == stream.epoch && broker.control_address == stream.address
            });
            if !stays {
                stream.task.abort();
            }
            stays
        });
        for (id, broker) in brokers {
            if self.streams.contains_key(id) {
                continue;
            }
            let address = broker.control_address.clone();
            let ports = Ports::from(broker);
            let inbox = self.inbox.clone();
            let task = self.tasks.spawn(stream(*id, broker.epoch, ports, inbox, self.suspicion));
            self.streams.insert(*id, Stream { epoch: broker.epoch, address, task, wants: None });
        }
        // Tasks that were aborted have nothing to say.
        while self.tasks.try_join_next().is_some() {}
    }

    /// Notes what a stream wants; gives the acknowledgement it brought, as an event for the core.
    pub(super) fn ready(&mut self, ready: Ready) -> Option<ControllerEvent> {
        let stream = self
            .streams
            .get_mut(&ready.broker)
            .filter(|stream| stream.epoch == ready.broker_epoch)?;
        stream.wants = Some((ready.since, ready.update));
        let ack = ready.ack?;
        let reports = ack.reports.into_iter().map(|report| {
            let core = ReplicaReport {
                incarnation: report.incarnation,
                leader_epoch: report.leader_epoch,
                last_epoch: report.last_epoch,
                log_end: report.log_end,
            };
            (report.partition, core)
        });
        Some(ControllerEvent::PushAcked {
            broker: ready.broker,
            broker_epoch: ack.broker_epoch,
            version: ack.version,
            reports: reports.collect(),
        })
    }

    /// Gives every waiting stream what it is owed; which broker got which version.
    pub(super) fn serve(&mut self, core: &Controller) -> Vec<(BrokerId, u64)> {
        let mut sent = Vec::new();
        for (id, stream) in &mut self.streams {
            let Some((since, _)) = &stream.wants else { continue };
            let Some((version, delta)) = core.push_for(*id, stream.epoch, *since) else { continue };
            let update = StateUpdate {
                controller: self.me,
                controller_epoch: self.controller_epoch,
                target: stream.epoch,
                version,
                delta,
            };
            if let Some((_, taker)) = stream.wants.take() {
                let _ = taker.send((&update).into());
                sent.push((*id, version));
            }
        }
        sent
    }
}

/// Serves one incarnation of one broker for as long as the term and the registration last. Says whenever an attempt has failed
/// and the ports refuse, which may be later than the end of the stream: a dying process closes its sockets one by one.
async fn stream(
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    ports: Ports,
    inbox: mpsc::Sender<TermEvent>,
    suspicion: bool,
) {
    let address = &ports.control;
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    let mut failures = 0u32;
    loop {
        let failed = match connect(address).await {
            Ok(channel) => {
                match push(broker, broker_epoch, channel, &inbox, &mut backoff, &mut failures).await
                {
                    Some(reason) => reason,
                    None => return,
                }
            }
            Err(reason) => reason,
        };
        // The first failure is news, the hundredth is not.
        if failures == 0 {
            tracing::warn!(
                target: "controller", broker = broker.0, broker_epoch = broker_epoch.0, address = %Sanitised::name(address), reason = %Sanitised::sentence(&failed),
                "push stream broken; dialling again"
            );
        } else {
            tracing::debug!(target: "controller", broker = broker.0, address = %Sanitised::name(address), reason = %Sanitised::sentence(&failed), failures, "push stream broken");
        }
        failures = failures.saturating_add(1);
        if inbox.send(TermEvent::PushBroken(broker, broker_epoch)).await.is_err() {
            return; // the term is over
        }
        if suspicion && ports.refuse().await {
            let gone = TermEvent::Gone(broker, broker_epoch);
            if inbox.send(gone).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(backoff.wait()).await;
    }
}

async fn connect(address: &str) -> Result<Channel, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| format!("'{address}' is no address: {error}"))?
        .tcp_nodelay(true)
        .connect_timeout(CONNECT_TIMEOUT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    endpoint.connect().await.map_err(|error| describe(&error))
}

/// One stream from its full state to its end. `None`: the term is over.
async fn push(
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    channel: Channel,
    inbox: &mpsc::Sender<TermEvent>,
    backoff: &mut Backoff,
    failures: &mut u32,
) -> Option<String> {
    let mut client = BrokerControlClient::new(channel)
        .max_encoding_message_size(PUSH_BYTES_MAX)
        .max_decoding_message_size(PUSH_BYTES_MAX);
    let first = next(broker, broker_epoch, None, None, inbox).await?;
    let mut version = first.version;
    let (updates, outgoing) = mpsc::channel(1);
    if updates.send(first).await.is_err() {
        return Some("stream closed".to_owned());
    }
    let opened =
        tokio::time::timeout(ACK_TIMEOUT, client.push(ReceiverStream::new(outgoing))).await;
    let mut acks = match opened {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => return Some(status_text(&status)),
        Err(_) => return Some("no answer to the push".to_owned()),
    };
    loop {
        let ack = loop {
            let message = match tokio::time::timeout(ACK_TIMEOUT, acks.message()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => return Some("the broker closed the stream".to_owned()),
                Ok(Err(status)) => return Some(status_text(&status)),
                Err(_) => {
                    return Some(format!(
                        "version {version} was not acknowledged within {ACK_TIMEOUT:?}"
                    ));
                }
            };
            match Ack::try_from(&message) {
                Ok(ack) if ack.version == version => break ack,
                Ok(_) => {}
                Err(error) => return Some(format!("a bad acknowledgement: {error}")),
            }
        };
        if *failures > 0 {
            tracing::info!(target: "controller", broker = broker.0, broker_epoch = broker_epoch.0, version, "push stream back");
        }
        *failures = 0;
        backoff.reset();
        let wanted = next(broker, broker_epoch, Some(version), Some(ack), inbox);
        // While nothing is owed, the stream's end must still be noticed.
        let update = tokio::select! {
            update = wanted => update?,
            message = acks.message() => return Some(match message {
                Ok(Some(_)) => "an acknowledgement that nobody asked for".to_owned(),
                Ok(None) => "the broker closed the stream".to_owned(),
                Err(status) => status_text(&status),
            }),
        };
        version = update.version;
        if updates.send(update).await.is_err() {
            return Some("stream closed".to_owned());
        }
    }
}

/// The next update from the owner, however long it takes. `None`: the term is over.
async fn next(
    broker: BrokerId,
    broker_epoch: BrokerEpoch,
    since: Option<u64>,
    ack: Option<Ack>,
    inbox: &mpsc::Sender<TermEvent>,
) -> Option<v1::StateUpdate> {
    let (update, taken) = oneshot::channel();
    let ready = Ready { broker, broker_epoch, since, ack, update };
    inbox.send(TermEvent::Push(ready)).await.ok()?;
    match taken.await {
        Ok(update) => Some(update),
        // Not the registered incarnation any more; the owner ends this task.
        Err(_) => std::future::pending().await,
    }
}

fn status_text(status: &tonic::Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

/// An error with its causes; the outermost alone says only "transport error".
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
