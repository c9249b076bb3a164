//! Asks the other brokers for what only they know, each within a deadline, at most once a second whoever looks. What one said last is
//! kept, with its age.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use barnabas_proto::v1;
use barnabas_proto::v1::page_client::PageClient;
use barnabas_types::{BrokerId, TopicPartition};
use serde_json::Value;
use tokio::task::JoinSet;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::super::source::Source;
use super::own::{self, GroupTold};
use super::service::PARTITIONS_MAX;

/// How long a broker may take; the page waits for the slowest.
const ANSWER_MAX: Duration = Duration::from_millis(400);
/// What is younger is not asked again.
const FRESH_FOR: Duration = Duration::from_millis(900);
/// A broker that has not answered so many questions in a row counts as silent.
const SILENT_AFTER: u32 = 2;
/// Positions of replicas that are kept; beyond it all are forgotten.
const POSITIONS_MAX: usize = 50_000;
/// Bytes of an answer: groups with their offsets are the most of it.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Something that a broker has said, and when.
#[derive(Clone, Debug)]
pub(in crate::http) struct Told {
    at: Instant,
    pub(in crate::http) said: Value,
}

impl Told {
    pub(in crate::http) fn now(said: Value) -> Self {
        Self { at: Instant::now(), said }
    }

    /// How long ago, in milliseconds.
    pub(in crate::http) fn age_ms(&self) -> u64 {
        u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A field of it; null if it has none.
    pub(in crate::http) fn field(&self, name: &str) -> Value {
        self.said.get(name).cloned().unwrap_or_default()
    }
}

/// See the module's head.
#[derive(Default)]
pub(in crate::http) struct Peers {
    state: Mutex<State>,
    /// Held by whoever asks all brokers: the others wait for what that brings.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    channels: BTreeMap<BrokerId, (String, Channel)>,
    brokers: BTreeMap<BrokerId, Told>,
    /// Who did not answer, how often in a row, and since when.
    failures: BTreeMap<BrokerId, (u32, Instant)>,
    /// By partition and by whose replica it is.
    positions: HashMap<(TopicPartition, BrokerId), Told>,
    asked: Option<Instant>,
}

impl Peers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What every broker has said of itself last.
    pub(in crate::http) async fn brokers(&self, source: &Source) -> BTreeMap<BrokerId, Told> {
        let fresh = |state: &State| state.asked.is_some_and(|at| at.elapsed() < FRESH_FOR);
        if !fresh(&self.lock()) {
            let _turn = self.asking.lock().await;
            if !fresh(&self.lock()) {
                self.ask_all(source).await;
            }
        }
        self.lock().brokers.clone()
    }

    /// Brokers that are registered and do not answer, each for how many milliseconds.
    pub(in crate::http) fn silent(&self) -> BTreeMap<BrokerId, u64> {
        let state = self.lock();
        let silent = state.failures.iter().filter(|(_, (times, _))| *times >= SILENT_AFTER);
        let ms = |since: Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        silent.map(|(id, (_, since))| (*id, ms(*since))).collect()
    }

    async fn ask_all(&self, source: &Source) {
        let image = source.node.view.image();
        let mut asking = JoinSet::new();
        for id in image.brokers.keys().filter(|id| **id != source.node.me) {
            let Some(client) = self.client(source, *id) else { continue };
            let (id, request) = (*id, v1::GlanceRequest::default());
            asking.spawn(async move { (id, ask(client, request).await) });
        }
        let (parts, rates) = (source.parts.clone(), source.rates.clone());
        let topic_rates = source.topic_rates.clone();
        let own = source.aside.run(move || own::broker(&parts, &rates, &topic_rates)).await;
        let mut told: BTreeMap<BrokerId, Told> =
            own.map(|own| (source.node.me, Told::now(own))).into_iter().collect();
        let mut failed = Vec::new();
        while let Some(asked) = asking.join_next().await {
            let Ok((id, answer)) = asked else { continue };
            match answer.map(|answer| serde_json::from_str(&answer.broker)) {
                Some(Ok(said @ Value::Object(_))) => {
                    told.insert(id, Told::now(said));
                }
                Some(_) => {}
                None => failed.push(id),
            }
        }
        let mut state = self.lock();
        state.failures.retain(|id, _| failed.contains(id));
        for id in failed {
            state.failures.entry(id).or_insert((0, Instant::now())).0 += 1;
        }
        state.brokers.retain(|id, _| image.brokers.contains_key(id));
        state.brokers.extend(told);
        state.asked = Some(Instant::now());
    }

    /// Where replicas stand: each pair is asked of its broker, this one included. What nobody tells is absent, unless it was told before.
    pub(in crate::http) async fn positions(
        &self,
        source: &Source,
        wanted: impl IntoIterator<Item = (TopicPartition, BrokerId)>,
    ) -> HashMap<(TopicPartition, BrokerId), Told> {
        let mut found = HashMap::new();
        let mut missing: BTreeMap<BrokerId, Vec<TopicPartition>> = BTreeMap::new();
        {
            let state = self.lock();
            for (at, id) in wanted {
                if id == source.node.me {
                    let said = own::replica(&source.node, at.topic.as_str(), at.partition);
                    if !said.is_null() {
                        found.insert((at, id), Told::now(said));
                    }
                    continue;
                }
                let known = state.positions.get(&(at.clone(), id));
                let fresh = known.is_some_and(|told| told.at.elapsed() < FRESH_FOR);
                if let Some(told) = known {
                    found.insert((at.clone(), id), told.clone());
                }
                if !fresh {
                    missing.entry(id).or_default().push(at);
                }
            }
        }
        let mut asking = JoinSet::new();
        for (id, partitions) in missing {
            let Some(client) = self.client(source, id) else { continue };
            for part in partitions.chunks(PARTITIONS_MAX) {
                let (part, client) = (part.to_vec(), client.clone());
                let of = |at: &TopicPartition| v1::FollowedPartition {
                    topic: at.topic.to_string(),
                    partition: at.partition,
                };
                let partitions = part.iter().map(of).collect();
                let request = v1::GlanceRequest { partitions, ..Default::default() };
                asking.spawn(async move { (id, part, ask(client, request).await) });
            }
        }
        while let Some(asked) = asking.join_next().await {
            let Ok((id, part, Some(answer))) = asked else { continue };
            let Ok(said) = serde_json::from_str::<Vec<Value>>(&answer.replicas) else { continue };
            let mut state = self.lock();
            if state.positions.len() + part.len() > POSITIONS_MAX {
                state.positions.clear();
            }
            for (at, said) in part.into_iter().zip(said).filter(|(_, said)| said.is_object()) {
                let told = Told::now(said);
                state.positions.insert((at.clone(), id), told.clone());
                found.insert((at, id), told);
            }
        }
        found
    }

    /// The groups of all coordinators, and whether every broker answered.
    pub(super) async fn groups(&self, source: &Source) -> (Vec<(BrokerId, GroupTold)>, bool) {
        let image = source.node.view.image();
        let (mut asking, mut all) = (JoinSet::new(), true);
        for id in image.brokers.keys().filter(|id| **id != source.node.me) {
            let Some(client) = self.client(source, *id) else {
                all = false;
                continue;
            };
            let (id, request) = (*id, v1::GlanceRequest { groups: true, ..Default::default() });
            asking.spawn(async move { (id, ask(client, request).await) });
        }
        let own = own::groups(&source.node).await;
        let mut told: Vec<_> = own.into_iter().map(|group| (source.node.me, group)).collect();
        while let Some(asked) = asking.join_next().await {
            match asked {
                Ok((id, Some(answer))) => {
                    match serde_json::from_str::<Vec<GroupTold>>(&answer.groups) {
                        Ok(groups) => told.extend(groups.into_iter().map(|group| (id, group))),
                        Err(_) => all = false,
                    }
                }
                _ => all = false,
            }
        }
        (told, all)
    }

    /// When records were written, each asked of the broker that leads its partition. What nobody tells is absent.
    pub(super) async fn written(
        &self,
        source: &Source,
        wanted: BTreeMap<BrokerId, Vec<v1::RecordAt>>,
    ) -> Vec<(v1::RecordAt, i64)> {
        let (mut asking, mut found) = (JoinSet::new(), Vec::new());
        for (id, mut records) in wanted {
            // The others come with the next look.
            records.truncate(PARTITIONS_MAX);
            if id == source.node.me {
                let told = own::written(&source.node, records.iter().cloned()).await;
                found.extend(records.into_iter().zip(told));
                continue;
            }
            let Some(client) = self.client(source, id) else { continue };
            let request = v1::GlanceRequest { written: records.clone(), ..Default::default() };
            asking.spawn(async move { (records, ask(client, request).await) });
        }
        while let Some(asked) = asking.join_next().await {
            let Ok((records, Some(answer))) = asked else { continue };
            found.extend(records.into_iter().zip(answer.written));
        }
        found.retain(|(_, at_ms)| *at_ms >= 0);
        found
    }

    /// To a broker, if it is known where it is.
    fn client(&self, source: &Source, id: BrokerId) -> Option<PageClient<Channel>> {
        let address = source.node.view.image().brokers.get(&id)?.control_address.clone();
        let mut state = self.lock();
        if let Some((known, channel)) = state.channels.get(&id)
            && *known == address
        {
            return Some(client(channel.clone()));
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
        // On the runtime of whoever asks: it connects when it is used.
        let channel = endpoint.tcp_nodelay(true).connect_timeout(ANSWER_MAX).connect_lazy();
        state.channels.insert(id, (address, channel.clone()));
        Some(client(channel))
    }
}

fn client(channel: Channel) -> PageClient<Channel> {
    PageClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// `None`: no answer. One that has none, for it is busy or of an earlier version, answers nothing.
async fn ask(
    mut client: PageClient<Channel>,
    request: v1::GlanceRequest,
) -> Option<v1::GlanceResponse> {
    match tokio::time::timeout(ANSWER_MAX, client.glance(request)).await.ok()? {
        Ok(answer) => Some(answer.into_inner()),
        Err(status) => match status.code() {
            Code::Unimplemented | Code::ResourceExhausted => Some(v1::GlanceResponse::default()),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_broker_that_tells_less_leaves_gaps() {
        let told = Told::now(json!({"state": "registered"}));
        assert_eq!(told.field("state"), "registered");
        assert_eq!(told.field("http_port"), Value::Null);
    }
}
