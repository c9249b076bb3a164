//! What is served at which path.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response, StatusCode};
use tokio::sync::Semaphore;

use super::answer::{Answer, Body, streaming};
use super::api::{self, Refusal};
use super::aside::Aside;
use super::events::{self, Cut, EVENT_STREAMS_MAX};
use super::files;
use super::host::Hosts;
use super::operator::{self, Operator};
use super::plans::Plans;
use super::source::Source;
use crate::health::Health;
use crate::metrics::Metrics;

/// The header by which a browser says which event it had last.
const LAST_EVENT_ID: &str = "last-event-id";
/// Where plans are made, and below it run and looked at.
const PLANS: &str = "/api/v1/plans";

/// Everything that answers are made of. Present from the first moment of a start.
pub struct Site {
    pub(super) hosts: Hosts,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    source: OnceLock<Arc<Source>>,
    streams: Arc<Semaphore>,
    operator: Option<Operator>,
    plans: Arc<Plans>,
    /// Where answers are compressed.
    pub(super) aside: Aside,
}

/// What a path below [`PLANS`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlanPath<'a> {
    /// Where plans are made.
    All,
    One(&'a str),
    Run(&'a str),
}

impl<'a> PlanPath<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let rest = path.strip_prefix(PLANS)?;
        if rest.is_empty() {
            return Some(Self::All);
        }
        match rest.strip_prefix('/')?.split_once('/') {
            None => Some(Self::One(rest.strip_prefix('/')?)),
            Some((id, "run")) => Some(Self::Run(id)),
            Some(_) => None,
        }
    }
}

impl Site {
    /// Of a broker that is starting. Without `operator` nothing is changed through it.
    #[must_use]
    pub fn new(
        hosts: Hosts,
        health: Arc<Health>,
        metrics: Arc<Metrics>,
        operator: Option<Operator>,
    ) -> Arc<Self> {
        let streams = Arc::new(Semaphore::new(EVENT_STREAMS_MAX));
        let (source, plans, aside) = (OnceLock::new(), Arc::default(), Aside::default());
        Arc::new(Self { hosts, health, metrics, source, streams, operator, plans, aside })
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

    /// Whether a POST of this path, or a look at a plan, is to be answered by [`Site::operate`].
    pub(super) fn is_of_operators(path: &str, writes: bool) -> bool {
        match PlanPath::of(path) {
            Some(PlanPath::All | PlanPath::Run(_)) => writes,
            Some(PlanPath::One(_)) => !writes,
            None => false,
        }
    }

    /// The answer to an operator. Its body is read when everything else of the request was found good.
    pub(super) async fn operate(&self, request: Request<Incoming>, peer: IpAddr) -> Answer {
        self.operated(request, peer).await.unwrap_or_else(|no| no.answer())
    }

    async fn operated(&self, request: Request<Incoming>, peer: IpAddr) -> Result<Answer, Refusal> {
        let operator = self.operator.as_ref().ok_or_else(Refusal::read_only)?;
        let (head, body) = request.into_parts();
        let path = PlanPath::of(head.uri.path());
        let writes = !matches!(path, Some(PlanPath::One(_)));
        operator.admit(peer, &head.headers, writes)?;
        let source = self.source()?;
        let told = match path {
            Some(PlanPath::All) => {
                let body = operator::read(body).await?;
                self.plans.preview(source, &body).await?
            }
            Some(PlanPath::Run(id)) => {
                operator::read(body).await?;
                self.plans.run(source, id).await?
            }
            Some(PlanPath::One(id)) => self.plans.look(source, id).await?,
            None => return Err(Refusal::not_found("the API has no such path")),
        };
        Ok(Answer::json(&told))
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
            Err(refusal) => refusal.answer().plain(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_plans_are_for_operators() {
        for (path, writes, is) in [
            ("/api/v1/plans", true, true),
            ("/api/v1/plans", false, false),
            ("/api/v1/plans/ab", false, true),
            ("/api/v1/plans/ab", true, false),
            ("/api/v1/plans/ab/run", true, true),
            ("/api/v1/plans/ab/run", false, false),
            ("/api/v1/plans/ab/run/", true, false),
            ("/api/v1/plans/ab/stop", true, false),
            ("/api/v1/plansx", true, false),
            ("/api/v1/cluster", true, false),
            ("/", true, false),
        ] {
            assert_eq!(Site::is_of_operators(path, writes), is, "{path} {writes}");
        }
        assert_eq!(PlanPath::of("/api/v1/plans/ab/run"), Some(PlanPath::Run("ab")));
    }
}
