//! What is served at which path.

use std::sync::{Arc, OnceLock};

use hyper::{HeaderMap, Response, StatusCode};
use tokio::sync::Semaphore;

use super::answer::{Answer, Body, streaming};
use super::api::{self, Refusal};
use super::events::{self, Cut, EVENT_STREAMS_MAX};
use super::files;
use super::host::Hosts;
use super::source::Source;
use crate::health::Health;
use crate::metrics::Metrics;

/// The header by which a browser says which event it had last.
const LAST_EVENT_ID: &str = "last-event-id";

/// Everything that answers are made of. Present from the first moment of a start.
pub struct Site {
    pub(super) hosts: Hosts,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    source: OnceLock<Arc<Source>>,
    streams: Arc<Semaphore>,
}

impl Site {
    /// Of a broker that is starting.
    #[must_use]
    pub fn new(hosts: Hosts, health: Arc<Health>, metrics: Arc<Metrics>) -> Arc<Self> {
        let streams = Arc::new(Semaphore::new(EVENT_STREAMS_MAX));
        Arc::new(Self { hosts, health, metrics, source: OnceLock::new(), streams })
    }

    /// The broker is registered: from now on there is more to tell. Called once; a second call would change nothing.
    pub fn registered(&self, source: Arc<Source>) {
        let streams = self.streams.clone();
        let readers = move || EVENT_STREAMS_MAX - streams.available_permits();
        if self.source.set(source.clone()).is_ok() {
            tokio::spawn(events::run(source, readers));
        }
    }

    /// The answer to a GET of this path and query.
    pub(super) async fn get(&self, path: &str, query: &str) -> Answer {
        match path {
            "/health/live" => Answer::json(&self.health.live()),
            "/health/ready" => {
                let (ready, said) = self.health.ready();
                let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                Answer::json(&said).with(status)
            }
            "/metrics" => match self.metrics.scrape().await {
                Some(text) => Answer::of("text/plain; version=0.0.4; charset=utf-8", text),
                None => Answer::error(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal",
                    "the metrics could not be written; the broker's log says why",
                ),
            },
            _ => match path.strip_prefix("/api/v1/") {
                Some(rest) => self.api(rest, query).await.unwrap_or_else(|no| no.answer()),
                None => files::file(path).unwrap_or_else(|| {
                    let said = "there is nothing here; served are /, /api/v1/, /metrics, /health/live and /health/ready";
                    Refusal::not_found(said).answer()
                }),
            },
        }
    }

    fn source(&self) -> Result<&Arc<Source>, Refusal> {
        let early = || Refusal::not_ready("the broker is starting, and is not registered yet");
        self.source.get().ok_or_else(early)
    }

    async fn api(&self, path: &str, query: &str) -> Result<Answer, Refusal> {
        let body = api::get(self.source()?, path, query).await?;
        Ok(Answer::of("application/json", body))
    }

    /// A stream of events, if `path` is theirs.
    pub(super) fn events(
        &self,
        path: &str,
        headers: &HeaderMap,
        cut: &Cut,
    ) -> Option<Response<Body>> {
        if path != "/api/v1/events" {
            return None;
        }
        let opened = self.source().and_then(|source| {
            let full = || {
                let said = format!("{EVENT_STREAMS_MAX} pages are open at this broker already");
                Refusal::too_many(said)
            };
            let place = self.streams.clone().try_acquire_owned().map_err(|_| full())?;
            let last = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
            Ok(events::open(source, last, place, cut.clone()))
        });
        Some(match opened {
            Ok(feed) => streaming(feed),
            Err(refusal) => refusal.answer().response(headers),
        })
    }
}
