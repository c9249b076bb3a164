//! What is served at which path.

use std::sync::Arc;

use hyper::{HeaderMap, StatusCode};

use super::answer::Answer;
use super::host::Hosts;
use crate::health::Health;
use crate::metrics::Metrics;

/// Everything that answers are made of. Present from the first moment of a start.
pub struct Site {
    pub(super) hosts: Hosts,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

impl Site {
    /// Of a broker that is starting.
    #[must_use]
    pub fn new(hosts: Hosts, health: Arc<Health>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { hosts, health, metrics })
    }

    /// The answer to a GET of this path and query.
    pub(super) async fn get(&self, path: &str, _query: &str, _headers: &HeaderMap) -> Answer {
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
            _ => Answer::error(
                StatusCode::NOT_FOUND,
                "not_found",
                "there is nothing here; served are /health/live, /health/ready and /metrics",
            ),
        }
    }
}
