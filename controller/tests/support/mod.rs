//! What the shell's tests share: brokers that only listen to pushes, a real ZooKeeper as a child process, a link that can be cut.
#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;
use std::time::Duration;

use barnabas_controller::zookeeper::Connect;
use barnabas_controller::{BrokerNode, Config, Defaults, FailoverHistory, Running, open_with};
use barnabas_proto::convert::{Ack, StateUpdate};
use barnabas_proto::v1;
use barnabas_proto::v1::broker_control_server::{BrokerControl, BrokerControlServer};
use barnabas_types::{BrokerId, ClusterImage, DirectoryId, TopicConfig};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::TcpIncoming;

pub mod link;
pub mod server;

/// Longest wait for anything in these tests; a loaded machine is slow.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn config(id: i32, connect: &str) -> Config {
    Config {
        broker_id: BrokerId(id),
        cluster_id: None,
        zookeeper_connect: connect.to_owned(),
        session_timeout_ms: 4000,
        connection_timeout_ms: 30_000,
        defaults: Defaults {
            num_partitions: 1,
            default_replication_factor: 1,
            topic: TopicConfig::default(),
        },
        rebalance: None,
        suspicion: false,
    }
}

pub fn registration(id: i32, control_address: &str) -> BrokerNode {
    BrokerNode {
        host: "127.0.0.1".into(),
        port: 9000 + u16::try_from(id).unwrap(),
        control_address: control_address.to_owned(),
        rack: None,
        directory_id: DirectoryId([u8::try_from(id).unwrap() + 1; 16]),
        tail_lost: false,
        draining: false,
        timestamp_ms: 0,
    }
}

/// Waits until `met` holds of what `seen` shows.
pub async fn until<T: Clone>(seen: &mut watch::Receiver<T>, mut met: impl FnMut(&T) -> bool) -> T {
    let wait = seen.wait_for(|now| met(now));
    tokio::time::timeout(PATIENCE, wait)
        .await
        .expect("the condition was not met in time")
        .unwrap()
        .clone()
}

/// What a listening broker was told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub image: ClusterImage,
    pub updates: usize,
    pub full_updates: usize,
}

/// A broker that keeps what it is pushed and acknowledges it, unless it is told to be silent.
pub struct Listener {
    pub address: String,
    pub told: watch::Receiver<Told>,
    pub silent: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Service {
    told: Arc<watch::Sender<Told>>,
    silent: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl BrokerControl for Service {
    type PushStream = ReceiverStream<Result<v1::StateAck, tonic::Status>>;

    async fn push(
        &self,
        request: tonic::Request<tonic::Streaming<v1::StateUpdate>>,
    ) -> Result<tonic::Response<Self::PushStream>, tonic::Status> {
        let mut updates = request.into_inner();
        let (acks, outgoing) = mpsc::channel(1);
        let (told, mut silent) = (Arc::clone(&self.told), self.silent.clone());
        tokio::spawn(async move {
            while let Some(Ok(message)) = updates.next().await {
                let update = StateUpdate::try_from(&message).unwrap();
                let ack = Ack {
                    version: update.version,
                    broker_epoch: update.target,
                    reports: Vec::new(),
                };
                told.send_modify(|told| note(told, update));
                if silent.wait_for(|silent| !silent).await.is_err() {
                    return;
                }
                if acks.send(Ok((&ack).into())).await.is_err() {
                    return;
                }
            }
        });
        Ok(tonic::Response::new(ReceiverStream::new(outgoing)))
    }

    async fn describe_followers(
        &self,
        _request: tonic::Request<v1::DescribeFollowersRequest>,
    ) -> Result<tonic::Response<v1::DescribeFollowersResponse>, tonic::Status> {
        Err(tonic::Status::unimplemented("this broker has no replicas"))
    }

    async fn read_journal(
        &self,
        _request: tonic::Request<v1::ReadJournalRequest>,
    ) -> Result<tonic::Response<v1::ReadJournalResponse>, tonic::Status> {
        Err(tonic::Status::unimplemented("this broker has no journal"))
    }

    async fn describe_health(
        &self,
        _request: tonic::Request<v1::DescribeHealthRequest>,
    ) -> Result<tonic::Response<v1::BrokerHealth>, tonic::Status> {
        Err(tonic::Status::unimplemented("this broker has no health"))
    }
}

/// Explains nothing: that is the broker's own.
pub struct ExplainsNothing;

#[tonic::async_trait]
impl barnabas_controller::Explains for ExplainsNothing {
    async fn explain(
        &self,
        _request: v1::ExplainRequest,
    ) -> Result<v1::ExplainResponse, tonic::Status> {
        Ok(v1::ExplainResponse::default())
    }
}

/// Has no log.
pub struct NoLog;

impl barnabas_controller::LogLevels for NoLog {
    fn log_levels(&self, _request: v1::LogLevelsRequest) -> v1::LogLevelsResponse {
        v1::LogLevelsResponse::default()
    }
}

fn note(told: &mut Told, update: StateUpdate) {
    told.updates += 1;
    if update.delta.full {
        told.full_updates += 1;
        told.image = ClusterImage::default();
    }
    told.image.apply((update.controller, update.controller_epoch), &update.delta);
}

/// The service that keeps pushes, what it was told, and the switch that silences it.
pub fn pushes()
-> (BrokerControlServer<impl BrokerControl>, watch::Receiver<Told>, watch::Sender<bool>) {
    let told = Arc::new(watch::Sender::new(Told::default()));
    let seen = told.subscribe();
    let silent = watch::Sender::new(false);
    let service = Service { told, silent: silent.subscribe() };
    (BrokerControlServer::new(service), seen, silent)
}

pub async fn listen() -> Listener {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (service, told, silent) = pushes();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let task = tokio::spawn(async move {
        let server = tonic::transport::Server::builder().add_service(service);
        server.serve_with_incoming(incoming).await.unwrap();
    });
    Listener { address, told, silent, task }
}

/// Nothing has ever failed.
pub struct NoHistory;

impl FailoverHistory for NoHistory {
    fn kept(&self) -> Vec<v1::Failover> {
        Vec::new()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        watch::channel(0).1
    }
}

/// Opens and starts broker `id`, which listens at `control_address`.
pub async fn start<C: Connect>(
    id: i32,
    connect: C,
    address: &str,
    control_address: &str,
) -> Running {
    let opened = open_with(config(id, address), connect).await.unwrap();
    opened.start(registration(id, control_address)).await.unwrap()
}
