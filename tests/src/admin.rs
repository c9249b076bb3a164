//! The gRPC administration of a cluster, with deadlines; a refusal is a value.

use std::collections::HashMap;
use std::time::Duration;

use barnabas_proto::v1::admin_client::AdminClient;
use barnabas_proto::v1::create_topic_response::Result as Created;
use barnabas_proto::v1::delete_topic_response::Result as Deleted;
use barnabas_proto::v1::{
    Assignment, CreateTopicRequest, DeleteTopicRequest, DescribeClusterRequest,
    DescribeClusterResponse, DescribeTopicsRequest, DescribeTopicsResponse, Failover, Failure,
    TimelineRequest,
};
use tonic::transport::{Channel, Endpoint};

use crate::Outcome;

/// Longest wait for a connection and for an answer.
const DIAL_MAX: Duration = Duration::from_secs(2);
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A connection to one broker's `Admin` service.
#[derive(Clone, Debug)]
pub struct Admin {
    client: AdminClient<Channel>,
}

/// A topic to create.
#[derive(Clone, Debug)]
pub struct NewTopic<'a> {
    /// Name.
    pub name: &'a str,
    /// Number of partitions.
    pub partitions: i32,
    /// Number of replicas.
    pub replication_factor: i32,
    /// Topic settings.
    pub configs: &'a [(&'a str, &'a str)],
}

impl Admin {
    /// Connects to `host:port`.
    ///
    /// # Errors
    /// Nobody answers there.
    pub async fn connect(address: &str) -> Outcome<Self> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(DIAL_MAX)
            .timeout(ANSWER_MAX)
            .connect()
            .await?;
        Ok(Self { client: AdminClient::new(channel) })
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// No answer, or a refusal (`NAME: sentence`).
    pub async fn create_topic(&self, topic: NewTopic<'_>) -> Outcome<()> {
        let configs: HashMap<String, String> =
            topic.configs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let request = CreateTopicRequest {
            name: topic.name.to_owned(),
            partitions: Some(topic.partitions),
            replication_factor: Some(topic.replication_factor),
            configs,
            ..CreateTopicRequest::default()
        };
        self.create(request).await
    }

    /// Creates a topic whose replicas are given: partition, and its brokers, the preferred leader first.
    ///
    /// # Errors
    /// No answer, or a refusal (`NAME: sentence`).
    pub async fn create_assigned(&self, name: &str, assignment: &[(i32, &[i32])]) -> Outcome<()> {
        let assignment = assignment
            .iter()
            .map(|(partition, brokers)| Assignment {
                partition: *partition,
                brokers: brokers.to_vec(),
            })
            .collect();
        let name = name.to_owned();
        self.create(CreateTopicRequest { name, assignment, ..CreateTopicRequest::default() }).await
    }

    async fn create(&self, request: CreateTopicRequest) -> Outcome<()> {
        match self.client.clone().create_topic(request).await?.into_inner().result {
            Some(Created::Created(_)) => Ok(()),
            Some(Created::Failure(refusal)) => Err(shown(&refusal).into()),
            None => Err("an empty answer".into()),
        }
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// No answer, or a refusal.
    pub async fn delete_topic(&self, name: &str) -> Outcome<()> {
        let request = DeleteTopicRequest { name: name.to_owned(), forwarded: false };
        match self.client.clone().delete_topic(request).await?.into_inner().result {
            Some(Deleted::Deleted(_)) => Ok(()),
            Some(Deleted::Failure(refusal)) => Err(shown(&refusal).into()),
            None => Err("an empty answer".into()),
        }
    }

    /// What the broker knows of the cluster.
    ///
    /// # Errors
    /// No answer.
    pub async fn cluster(&self) -> Outcome<DescribeClusterResponse> {
        Ok(self.client.clone().describe_cluster(DescribeClusterRequest {}).await?.into_inner())
    }

    /// The last failovers that the broker knows of, the oldest first.
    ///
    /// # Errors
    /// No answer.
    pub async fn timeline(&self, last: u32) -> Outcome<Vec<Failover>> {
        let request = TimelineRequest { last, follow: false, id: None };
        let mut answers = self.client.clone().timeline(request).await?.into_inner();
        let mut failovers = Vec::new();
        while let Some(failover) = answers.message().await? {
            failovers.push(failover);
        }
        Ok(failovers)
    }

    /// What the broker knows of one topic.
    ///
    /// # Errors
    /// No answer.
    pub async fn topic(&self, name: &str) -> Outcome<DescribeTopicsResponse> {
        let request = DescribeTopicsRequest { names: vec![name.to_owned()] };
        Ok(self.client.clone().describe_topics(request).await?.into_inner())
    }
}

fn shown(refusal: &Failure) -> String {
    format!("{}: {}", refusal.name, refusal.message)
}
