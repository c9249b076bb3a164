//! The gRPC service `Page`: what this broker tells another one that serves the page.

use std::sync::{Arc, Weak};

use barnabas_proto::v1;
use barnabas_proto::v1::page_server::{Page, PageServer};
use serde_json::Value;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::super::source::Source;
use super::own;

/// Partitions of one request that are looked at.
pub(super) const PARTITIONS_MAX: usize = 500;
/// Questions that are answered at once: each broker asks at most once a second, however many look at its page.
const QUESTIONS_MAX: usize = 32;

/// Serves what this broker knows.
pub struct PageService {
    source: Weak<Source>,
    places: Semaphore,
}

impl PageService {
    /// The service, ready to be added to a server.
    #[must_use]
    pub fn server(source: &Arc<Source>) -> PageServer<Self> {
        let source = Arc::downgrade(source);
        PageServer::new(Self { source, places: Semaphore::new(QUESTIONS_MAX) })
    }
}

#[tonic::async_trait]
impl Page for PageService {
    async fn glance(
        &self,
        request: Request<v1::GlanceRequest>,
    ) -> Result<Response<v1::GlanceResponse>, Status> {
        let Ok(_place) = self.places.try_acquire() else {
            return Err(Status::resource_exhausted("too many such questions at once: ask again"));
        };
        let source = self.source.upgrade().ok_or_else(|| Status::unavailable("stopping"))?;
        let v1::GlanceRequest { partitions, groups, written } = request.into_inner();
        let groups = match groups {
            true => serde_json::to_string(&own::groups(&source.node).await).unwrap_or_default(),
            false => String::new(),
        };
        let written = own::written(&source.node, written.into_iter().take(PARTITIONS_MAX)).await;
        let own = source.clone();
        let looked = source.aside.run(move || {
            let asked = partitions.iter().take(PARTITIONS_MAX);
            let replicas = asked.map(|at| own::replica(&own.node, &at.topic, at.partition));
            let replicas = Value::Array(replicas.collect()).to_string();
            (own::broker(&own.parts, &own.rates, &own.topic_rates).to_string(), replicas)
        });
        let looked = looked.await;
        let (broker, replicas) = looked.ok_or_else(|| Status::internal("see this broker's log"))?;
        Ok(Response::new(v1::GlanceResponse { broker, replicas, groups, written }))
    }
}
