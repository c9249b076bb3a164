//! What the library reports of each record, turned into the account.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::ProducerContext;

use super::account::{Account, Fate};
use super::resume::Prefix;
use crate::connection::Spoken;

/// The account and the prefix, shared between the library's callbacks and the run.
#[derive(Clone, Debug)]
pub(super) struct Deliveries {
    state: Arc<Mutex<State>>,
    /// With acks=0 a report means that the record went to a socket.
    unacknowledged: bool,
}

#[derive(Debug)]
struct State {
    account: Account,
    prefix: Prefix,
}

impl Deliveries {
    pub(super) fn new(unacknowledged: bool, prefix: Prefix) -> Self {
        Self {
            state: Arc::new(Mutex::new(State { account: Account::default(), prefix })),
            unacknowledged,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn account(&self) -> Account {
        self.state().account.clone()
    }

    pub(super) fn prefix(&self) -> Prefix {
        self.state().prefix.clone()
    }

    pub(super) fn has_failures(&self) -> bool {
        let account = &self.state().account;
        !account.failed.is_empty() || !account.unknown.is_empty()
    }

    pub(super) fn on_its_way(&self) -> bool {
        self.state().account.on_its_way() > 0
    }

    pub(super) fn taken(&self, bytes: usize) {
        let account = &mut self.state().account;
        account.taken += 1;
        account.taken_bytes += bytes as u64;
    }

    pub(super) fn dropped(&self) {
        self.state().account.dropped += 1;
    }

    pub(super) fn waits(&self) {
        self.state().account.waits += 1;
    }

    pub(super) fn ended(&self, index: usize, fate: Fate) {
        let mut state = self.state();
        if matches!(fate, Fate::Acknowledged(..)) {
            state.prefix.acknowledged(index as u64);
        }
        state.account.ended(fate);
    }

    /// Of what is still on its way nothing will be heard any more: the most careful word for it.
    pub(super) fn close(&self) {
        let account = &mut self.state().account;
        for _ in 0..account.on_its_way() {
            account.ended(Fate::Unknown("NotReported".to_owned()));
        }
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Spoken.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        Spoken.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, index: usize) {
        let fate = match result {
            Ok(_) if self.unacknowledged => Fate::Sent,
            Ok(message) => Fate::Acknowledged(message.partition(), message.offset()),
            Err((error, _)) => fate(error),
        };
        self.ended(index, fate);
    }
}

/// Whether a record with this error was surely not written, may have been, or never left the buffer.
pub(super) fn fate(error: &KafkaError) -> Fate {
    use RDKafkaErrorCode as Code;
    let KafkaError::MessageProduction(code) = error else { return Fate::Failed(error.to_string()) };
    let reason = format!("{code:?}");
    match code {
        Code::PurgeQueue => Fate::Lost,
        // The time was up, the connection went, or the broker had written it before it was refused: it may be in the log.
        Code::MessageTimedOut
        | Code::RequestTimedOut
        | Code::OperationTimedOut
        | Code::BrokerTransportFailure
        | Code::PurgeInflight
        | Code::NotEnoughReplicasAfterAppend
        | Code::UnknownProducerId
        | Code::OutOfOrderSequenceNumber
        | Code::Fatal
        | Code::Fail
        | Code::Unknown => Fate::Unknown(reason),
        _ => Fate::Failed(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_whether_the_record_may_be_there() {
        let fate_of = |code| fate(&KafkaError::MessageProduction(code));
        assert_eq!(fate_of(RDKafkaErrorCode::PurgeQueue), Fate::Lost);
        assert_eq!(
            fate_of(RDKafkaErrorCode::MessageTimedOut),
            Fate::Unknown("MessageTimedOut".to_owned())
        );
        assert_eq!(
            fate_of(RDKafkaErrorCode::NotEnoughReplicasAfterAppend),
            Fate::Unknown("NotEnoughReplicasAfterAppend".to_owned())
        );
        assert_eq!(
            fate_of(RDKafkaErrorCode::NotEnoughReplicas),
            Fate::Failed("NotEnoughReplicas".to_owned())
        );
        assert_eq!(
            fate_of(RDKafkaErrorCode::MessageSizeTooLarge),
            Fate::Failed("MessageSizeTooLarge".to_owned())
        );
    }

    #[test]
    fn what_is_never_reported_is_not_taken_for_lost_or_written() {
        let deliveries = Deliveries::new(false, Prefix::default());
        deliveries.taken(3);
        deliveries.taken(4);
        deliveries.ended(1, Fate::Acknowledged(0, 9));
        deliveries.close();
        let account = deliveries.account();
        assert_eq!(
            (account.taken_bytes, account.unknown["NotReported"], account.on_its_way()),
            (7, 1, 0)
        );
        assert_eq!(deliveries.prefix().done(), 0);
    }
}
