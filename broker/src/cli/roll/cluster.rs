//! The cluster while its brokers go one by one: whoever answers is asked.

use std::collections::BTreeMap;
use std::future::Future;

use barnabas_proto::v1::admin_client::AdminClient;
use barnabas_proto::v1::can_stop_broker_response::Result as CanStop;
use barnabas_proto::v1::drain_response::Result as Drained;
use barnabas_proto::v1::{
    CanStopBrokerRequest, DescribeClusterRequest, DescribeClusterResponse, DescribeTopicsRequest,
    Obstruction, SetBrokerDrainingRequest,
};
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::super::ask::{ask, empty_answer, failure, pause};
use super::super::topic::counted;
use super::super::{Asking, CliError};
use super::LOOK;

/// How often all brokers are asked, before it is said that none answers: a change of the controller takes moments.
const ROUNDS_MAX: u32 = 40;

/// Whether a broker may be stopped.
pub(super) enum Verdict {
    Yes,
    NotNow(String),
    Never(String),
}

/// Whom there is to ask.
pub(super) struct Cluster {
    asking: Asking,
    /// The one that was named, then all that are registered.
    addresses: Vec<String>,
    by_id: BTreeMap<i32, String>,
}

impl Cluster {
    pub(super) fn of(asking: &Asking) -> Result<Self, CliError> {
        let mut cluster = Self {
            asking: asking.clone(),
            addresses: asking.addresses().map(str::to_owned).collect(),
            by_id: BTreeMap::new(),
        };
        cluster.describe(None)?;
        Ok(cluster)
    }

    /// Asks one after the other, until somebody answers. `last`: asked only if nobody else answers, for it is about to go or has been.
    fn ask<T, F>(
        &mut self,
        last: Option<&str>,
        question: impl Fn(AdminClient<Channel>) -> F,
        usable: impl Fn(&T) -> bool,
    ) -> Result<T, CliError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut addresses = self.addresses.clone();
        addresses.sort_by_key(|address| Some(address.as_str()) == last);
        let mut failed = None;
        for round in 0..ROUNDS_MAX {
            if round > 0 {
                pause(LOOK)?;
            }
            for address in &addresses {
                let asking = Asking { admin: address.clone(), json: self.asking.json };
                match ask(&asking, &question) {
                    Ok(answer) if usable(&answer) => return Ok(answer),
                    Ok(_) => {}
                    Err(error @ CliError::Unreachable(_)) => failed = Some(error),
                    Err(error) => return Err(error),
                }
            }
        }
        Err(failed.unwrap_or_else(|| {
            CliError::Unreachable(
                "no broker knows of a controller; see `barnabas explain cluster`".to_owned(),
            )
        }))
    }

    /// The brokers in the order of their ids. `besides`: this broker is asked last.
    pub(super) fn describe(
        &mut self,
        besides: Option<i32>,
    ) -> Result<DescribeClusterResponse, CliError> {
        let last = besides.and_then(|id| self.by_id.get(&id).cloned());
        let mut known = self.ask(
            last.as_deref(),
            |mut client| async move { client.describe_cluster(DescribeClusterRequest {}).await },
            |answer: &DescribeClusterResponse| answer.controller_id >= 0,
        )?;
        known.brokers.sort_by_key(|broker| broker.id);
        for broker in &known.brokers {
            if !self.addresses.contains(&broker.control_address) {
                self.addresses.push(broker.control_address.clone());
            }
            self.by_id.insert(broker.id, broker.control_address.clone());
        }
        Ok(known)
    }

    /// Whether a broker may be stopped now.
    pub(super) fn can_stop(&mut self, id: i32) -> Result<Verdict, CliError> {
        let request = CanStopBrokerRequest { broker_id: id, forwarded: false };
        let answer = self.ask(
            None,
            |mut client| async move { client.can_stop_broker(request).await },
            // The controller changes, or the broker is not registered yet.
            |answer| !matches!(&answer.result, Some(CanStop::Failure(f)) if is_for_now(&f.name)),
        )?;
        match answer.result {
            Some(CanStop::Verdict(verdict)) if verdict.partitions == 0 => Ok(Verdict::Yes),
            Some(CanStop::Verdict(verdict)) if verdict.never => {
                let never: Vec<_> = verdict.obstructions.into_iter().filter(|o| o.never).collect();
                Ok(Verdict::Never(named(verdict.partitions, &never)))
            }
            Some(CanStop::Verdict(verdict)) => {
                Ok(Verdict::NotNow(named(verdict.partitions, &verdict.obstructions)))
            }
            Some(CanStop::Failure(refused)) => Err(failure(&refused)),
            None => Err(empty_answer(&self.asking)),
        }
    }

    /// Drains a broker or ends that: how many partitions still need it, and why the first of them does.
    pub(super) fn set_draining(
        &mut self,
        id: i32,
        draining: bool,
    ) -> Result<(u32, String), CliError> {
        let request = SetBrokerDrainingRequest { broker_id: id, draining, forwarded: false };
        let answer = self.ask(
            None,
            |mut client| async move { client.set_broker_draining(request).await },
            |answer| !matches!(&answer.result, Some(Drained::Failure(f)) if is_for_now(&f.name)),
        )?;
        match answer.result {
            Some(Drained::Progress(progress)) => {
                // It may stop only once those that take over know it.
                let left = match progress.may_stop {
                    true => 0,
                    false => progress.partitions.max(1),
                };
                let why = match progress.obstructions.is_empty() {
                    true => "the new leaders have not confirmed yet".to_owned(),
                    false => named(left, &progress.obstructions),
                };
                Ok((left, why))
            }
            Some(Drained::Failure(refused)) => Err(failure(&refused)),
            None => Err(empty_answer(&self.asking)),
        }
    }

    /// To how many partitions a broker is assigned, and in the ISR of which of them it is not.
    pub(super) fn isrs(&mut self, id: i32) -> Result<(u32, Vec<String>), CliError> {
        let last = self.by_id.get(&id).cloned();
        let topics = self.ask(
            last.as_deref(),
            |mut client| async move {
                client.describe_topics(DescribeTopicsRequest { names: Vec::new() }).await
            },
            |_| true,
        )?;
        let (mut of, mut missing) = (0, Vec::new());
        for topic in topics.topics {
            for partition in topic.partitions {
                if !partition.assigned_replicas.contains(&id) {
                    continue;
                }
                of += 1;
                let state = partition.state.unwrap_or_default();
                if state.leader < 0 || !state.isr.iter().any(|member| member.broker_id == id) {
                    missing.push(format!("{}:{}", topic.name, partition.index));
                }
            }
        }
        Ok((of, missing))
    }
}

/// Refusals that end by themselves.
fn is_for_now(name: &str) -> bool {
    matches!(
        name,
        "NOT_CONTROLLER" | "COORDINATOR_NOT_AVAILABLE" | "REQUEST_TIMED_OUT" | "NETWORK_EXCEPTION"
    )
}

/// What stands in the way, by name.
fn named(partitions: u32, obstructions: &[Obstruction]) -> String {
    let Some(first) = obstructions.first() else {
        return format!("{} need it", counted(i64::from(partitions), "partition"));
    };
    let more = match partitions.saturating_sub(1) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    format!("{}:{}: {}{more}", first.topic, first.partition, first.reason)
}
