//! Asks brokers how they are, side by side, each within a deadline. Who does not answer is a fact like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use barnabas_proto::v1;
use barnabas_proto::v1::broker_control_client::BrokerControlClient;
use barnabas_types::{BrokerId, BrokerImage, ClusterImage, TopicPartition};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tonic::transport::Endpoint;

use super::Explainer;
use super::facts::{BrokerFacts, Facts, Listener, Reached};
use crate::clock::unix_ms;
use crate::config::HostPort;

/// How long a broker may take for everything that it is asked.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(1_500);
/// Brokers that are asked at once; others have to wait for one of them.
const ASKED_AT_ONCE_MAX: usize = 64;
/// ApiVersions, version 0, without a client id: a Kafka listener answers it, whatever it serves.
const API_VERSIONS: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff];

/// What is asked of whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// Who is asked; the broker itself always is.
    pub(super) brokers: BTreeSet<BrokerId>,
    /// About which replicas.
    pub(super) partitions: Vec<TopicPartition>,
    /// About which group.
    pub(super) group: Option<String>,
    /// About groups that have waited for long.
    pub(super) waiting_groups: bool,
}

/// Finds out what can be found out in time.
pub(super) async fn gather(
    explainer: &Explainer,
    image: Arc<ClusterImage>,
    wanted: Wanted,
) -> Facts {
    let began = Instant::now();
    let node = explainer.node();
    let (ages, now) = node.view.ages();
    let partitions = wanted
        .partitions
        .iter()
        .map(|at| v1::FollowedPartition { topic: at.topic.to_string(), partition: at.partition });
    let request = v1::DescribeHealthRequest {
        partitions: partitions.collect(),
        group: wanted.group,
        waiting_groups: wanted.waiting_groups,
    };
    let mut brokers = BTreeMap::new();
    let mut asking = JoinSet::new();
    for id in wanted.brokers.into_iter().filter(|id| *id != node.me) {
        let known = image.brokers.get(&id).or_else(|| ages.departed(id).map(|gone| &gone.broker));
        let Some(known) = known.cloned() else {
            let (kafka, admin) = (String::new(), String::new());
            let (reached, listener) = (Reached::NoAddress, Listener::NotTried);
            brokers.insert(id, BrokerFacts { kafka, admin, reached, listener });
            continue;
        };
        if asking.len() >= ASKED_AT_ONCE_MAX
            && let Some(Ok((id, found))) = asking.join_next().await
        {
            brokers.insert(id, found);
        }
        let request = request.clone();
        asking.spawn(async move { (id, broker(&known, request).await) });
    }
    let own = explainer.own_health(request);
    let me = image.brokers.get(&node.me).map(kafka_address);
    let own_listener = async {
        match &me {
            Some(address) => listener(address, Instant::now() + ANSWER_MAX).await,
            None => Listener::NotTried,
        }
    };
    let (own, listener) = tokio::join!(own, own_listener);
    let admin = image.brokers.get(&node.me).map(|b| b.control_address.clone()).unwrap_or_default();
    let reached = Reached::Answered(Box::new(own));
    let kafka = me.unwrap_or_default();
    brokers.insert(node.me, BrokerFacts { kafka, admin, reached, listener });
    while let Some(asked) = asking.join_next().await {
        if let Ok((id, found)) = asked {
            brokers.insert(id, found);
        }
    }
    let processes = explainer.acquaintances.with(&brokers);
    let image = as_found(image, &brokers);
    Facts {
        me: node.me,
        image,
        ages,
        now,
        answer_max_ms: u64::try_from(ANSWER_MAX.as_millis()).unwrap_or(u64::MAX),
        lag_time_max_ms: node.options.replica_lag_time_max_ms,
        fetch_wait_max_ms: u64::from(node.options.replica_fetch_wait_max_ms),
        session_timeout_ms: node.options.session_timeout_ms,
        offsets_replication_factor: node.options.groups.topic_replication_factor,
        brokers,
        processes,
        gathered_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        now_ms: unix_ms(),
    }
}

/// The image with the suspicions that its brokers bear out: who answers is not gone, whose ports refuse is, whatever the controller has
/// told so far.
pub(super) fn as_found(
    image: Arc<ClusterImage>,
    brokers: &BTreeMap<BrokerId, BrokerFacts>,
) -> Arc<ClusterImage> {
    let mut suspected = image.suspected.clone();
    for (id, found) in brokers.iter().filter(|(id, _)| image.brokers.contains_key(id)) {
        match (&found.reached, &found.listener) {
            (Reached::Answered(_), _) => suspected.remove(id),
            (Reached::Refused, Listener::Refused) => suspected.insert(*id),
            _ => false,
        };
    }
    match suspected == image.suspected {
        true => image,
        false => Arc::new(ClusterImage { suspected, ..ClusterImage::clone(&image) }),
    }
}

fn kafka_address(broker: &BrokerImage) -> String {
    HostPort { host: broker.host.clone(), port: broker.port }.to_string()
}

async fn broker(known: &BrokerImage, request: v1::DescribeHealthRequest) -> BrokerFacts {
    let (kafka, admin) = (kafka_address(known), known.control_address.clone());
    let deadline = Instant::now() + ANSWER_MAX;
    let (reached, listener) =
        tokio::join!(health(&admin, request, deadline), listener(&kafka, deadline));
    BrokerFacts { kafka, admin, reached, listener }
}

pub(super) async fn health(
    admin: &str,
    request: v1::DescribeHealthRequest,
    deadline: Instant,
) -> Reached {
    // First without a word, to know a host that refuses from one that says nothing.
    match timeout_at(deadline, TcpStream::connect(admin)).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => return Reached::Refused,
        Ok(Err(error)) => return Reached::Failed(error.to_string()),
        Err(_) => return Reached::Silent { connected: false },
    }
    let asked = async {
        let endpoint =
            Endpoint::from_shared(format!("http://{admin}")).map_err(|e| e.to_string())?;
        let channel = endpoint.tcp_nodelay(true).connect().await.map_err(|e| e.to_string())?;
        let mut client = BrokerControlClient::new(channel)
            .max_decoding_message_size(barnabas_proto::PUSH_BYTES_MAX);
        let told = client.describe_health(request).await;
        match told {
            Ok(told) => Ok(Reached::Answered(Box::new(told.into_inner()))),
            Err(status) if status.code() == tonic::Code::Unimplemented => Ok(Reached::Starting),
            Err(status) => Err(format!("{} ({:?})", status.message(), status.code())),
        }
    };
    match timeout_at(deadline, asked).await {
        Ok(Ok(reached)) => reached,
        Ok(Err(why)) => Reached::Failed(why),
        Err(_) => Reached::Silent { connected: true },
    }
}

async fn listener(kafka: &str, deadline: Instant) -> Listener {
    let mut stream = match timeout_at(deadline, TcpStream::connect(kafka)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => return Listener::Refused,
        Ok(Err(error)) => return Listener::Unreachable(error.to_string()),
        Err(_) => return Listener::Unreachable("no connection in time".to_owned()),
    };
    let asked = async {
        stream.write_all(&API_VERSIONS).await?;
        let mut len = [0; 4];
        stream.read_exact(&mut len).await
    };
    match timeout_at(deadline, asked).await {
        Ok(Ok(_)) => Listener::Answers,
        Ok(Err(error)) => {
            Listener::Unreachable(format!("it took the connection and closed it ({error})"))
        }
        Err(_) => Listener::Unreachable("it took the connection and did not answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use barnabas_types::BrokerEpoch;
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_suspicion_is_what_was_found_where_somebody_looked() {
        let mut image = ClusterImage::default();
        for id in 1..=4 {
            image.brokers.insert(BrokerId(id), crate::testing::registered(BrokerEpoch(1)));
        }
        image.suspected = [1, 3].map(BrokerId).into();
        let found = |reached, listener| {
            let (kafka, admin) = (String::new(), String::new());
            BrokerFacts { kafka, admin, reached, listener }
        };
        let told = Reached::Answered(Box::default());
        let mut brokers = BTreeMap::from([
            (BrokerId(1), found(told, Listener::Answers)),
            (BrokerId(2), found(Reached::Refused, Listener::Refused)),
            (BrokerId(3), found(Reached::Silent { connected: false }, Listener::NotTried)),
            (BrokerId(4), found(Reached::Refused, Listener::Answers)),
            (BrokerId(5), found(Reached::Refused, Listener::Refused)),
        ]);
        let image = Arc::new(image);
        let seen = as_found(image.clone(), &brokers);
        assert_eq!(seen.suspected, [2, 3].map(BrokerId).into());
        brokers.retain(|id, _| *id == BrokerId(3));
        assert!(Arc::ptr_eq(&as_found(image.clone(), &brokers), &image), "nothing is copied");
    }

    #[tokio::test]
    async fn who_refuses_is_told_from_who_is_silent_and_from_who_is_no_broker() {
        let deadline = || Instant::now() + Duration::from_millis(300);
        let bound = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = bound.local_addr().unwrap().to_string();
        let request = v1::DescribeHealthRequest::default;
        assert_eq!(
            health(&address, request(), deadline()).await,
            Reached::Silent { connected: true },
            "its kernel takes connections"
        );
        let silent = listener(&address, deadline()).await;
        assert!(matches!(silent, Listener::Unreachable(why) if why.contains("did not answer")));
        drop(bound);
        assert_eq!(health(&address, request(), deadline()).await, Reached::Refused);
        assert_eq!(listener(&address, deadline()).await, Listener::Refused);
        let nowhere = listener("no.such.host.invalid:9092", deadline()).await;
        assert!(matches!(nowhere, Listener::Unreachable(_)), "{nowhere:?}");

        let closing = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = closing.local_addr().unwrap().to_string();
        let closes = tokio::spawn(async move { while closing.accept().await.is_ok() {} });
        let closed = listener(&address, deadline()).await;
        assert!(matches!(closed, Listener::Unreachable(why) if why.contains("closed it")));
        assert!(matches!(health(&address, request(), deadline()).await, Reached::Failed(_)));
        closes.abort();
    }
}
