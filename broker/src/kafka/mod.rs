//! Kafka's requests, one file per API key. What is served, in which versions, is the table in `barnabas-wire`.

mod alter_configs;
mod alter_partition_reassignments;
mod api_versions;
mod authorized_operations;
mod auto_create;
mod create_partitions;
mod create_topics;
mod delete_groups;
mod delete_records;
mod delete_topics;
mod describe_cluster;
mod describe_configs;
mod describe_groups;
mod describe_log_dirs;
mod describe_producers;
mod describe_topic_partitions;
mod elect_leaders;
mod error_codes;
mod fetch;
mod find_coordinator;
mod group_calls;
mod heartbeat;
mod incremental_alter_configs;
mod init_producer_id;
mod join_group;
mod leader_hints;
mod leave_group;
mod list_groups;
mod list_offsets;
mod list_partition_reassignments;
mod metadata;
mod offset_commit;
mod offset_delete;
mod offset_fetch;
mod offset_for_leader_epoch;
mod produce;
mod several;
mod sync_group;

use std::future::Future;
use std::sync::Arc;

use barnabas_wire::{Request, messages, reply};
use bytes::Bytes;

pub(crate) use error_codes::error_code;
pub(crate) use fetch::{FetchSessions, WaitingFetch};
pub(crate) use produce::ProduceWait;

use produce::find;

use crate::connection::{Out, Piece, Slot};
use crate::group::GroupWait;
use crate::node::Node;
use crate::partition::Flush;

/// One request as a handler sees it.
pub(crate) struct RequestContext<'a> {
    /// The broker.
    pub node: &'a Arc<Node>,
    /// Where the answer goes.
    pub out: &'a Arc<Out>,
    /// Its place among the answers.
    pub slot: Slot,
    /// Version of the request.
    pub version: i16,
    /// To be repeated in the answer.
    pub correlation_id: i32,
    /// How the client calls itself.
    pub client_id: Option<&'a str>,
    /// The request's bytes. Whoever keeps them keeps their share of the memory for requests.
    pub frame: &'a Bytes,
}

/// What became of a request.
pub(crate) enum Handled {
    /// The whole answer (empty: a request without one).
    Answered(Vec<Bytes>),
    /// The whole answer, partly in files.
    Pieces(Vec<Piece>),
    /// Somebody else completes the slot.
    Later,
    /// A produce whose partitions answer by themselves; the connection watches its timeout.
    Produce(ProduceWait),
    /// A fetch that waits for bytes.
    Fetch(Box<WaitingFetch>),
    /// Asked of a group's coordinator, which must hear if the connection ends before the answer.
    Group(GroupWait),
}

/// Handles one request of a client.
///
/// # Errors
/// A sentence for the log: the connection must be closed.
pub(crate) fn handle(
    context: &RequestContext<'_>,
    request: Request,
    flush: &mut Flush,
) -> Result<Handled, String> {
    match request {
        Request::Produce(request) => produce::handle(context, &request, flush),
        Request::Fetch(request) => fetch::handle(context, request),
        Request::ListOffsets(request) => list_offsets::handle(context, &request),
        Request::Metadata(request) => metadata::handle(context, request),
        Request::ApiVersions(request) => {
            answer(context, &api_versions::handle(context.version, &request))
        }
        Request::UnsupportedVersion { .. } => {
            let bytes = barnabas_wire::api_versions_unsupported(context.correlation_id)
                .map_err(|error| error.to_string())?;
            Ok(Handled::Answered(vec![bytes]))
        }
        Request::OffsetForLeaderEpoch(request) => {
            offset_for_leader_epoch::handle(context, &request, flush)
        }
        Request::CreateTopics(request) => {
            later(context, create_topics::handle(context.node.clone(), context.version, request))
        }
        Request::CreatePartitions(request) => {
            later(context, create_partitions::handle(context.node.clone(), request))
        }
        Request::DeleteTopics(request) => {
            later(context, delete_topics::handle(context.node.clone(), context.version, request))
        }
        Request::DeleteRecords(request) => delete_records::handle(context, request, flush),
        Request::InitProducerId(request) => {
            later(context, init_producer_id::handle(context.node.clone(), request))
        }
        Request::DescribeConfigs(request) => {
            answer(context, &describe_configs::handle(context, &request))
        }
        Request::AlterConfigs(request) => {
            later(context, alter_configs::handle(context.node.clone(), request))
        }
        Request::ElectLeaders(request) => {
            later(context, elect_leaders::handle(context.node.clone(), context.version, request))
        }
        Request::IncrementalAlterConfigs(request) => {
            later(context, incremental_alter_configs::handle(context.node.clone(), request))
        }
        Request::AlterPartitionReassignments(request) => {
            later(context, alter_partition_reassignments::handle(context.node.clone(), request))
        }
        Request::ListPartitionReassignments(request) => {
            later(context, list_partition_reassignments::handle(context.node.clone(), request))
        }
        Request::DescribeCluster(request) => {
            answer(context, &describe_cluster::handle(context, &request))
        }
        Request::DescribeLogDirs(request) => {
            answer(context, &describe_log_dirs::handle(context, &request))
        }
        Request::DescribeProducers(request) => {
            answer(context, &describe_producers::handle(context, &request))
        }
        Request::DescribeTopicPartitions(request) => {
            answer(context, &describe_topic_partitions::handle(context, &request)?)
        }
        Request::FindCoordinator(request) => find_coordinator::handle(context, request),
        Request::JoinGroup(request) => join_group::handle(context, &request, flush),
        Request::SyncGroup(request) => sync_group::handle(context, &request, flush),
        Request::Heartbeat(request) => heartbeat::handle(context, &request, flush),
        Request::LeaveGroup(request) => leave_group::handle(context, &request, flush),
        Request::OffsetCommit(request) => offset_commit::handle(context, &request, flush),
        Request::OffsetDelete(request) => offset_delete::handle(context, &request, flush),
        Request::OffsetFetch(request) => later_on(
            &context.node.data,
            context,
            offset_fetch::handle(context.node.clone(), context.version, request),
        ),
        Request::DescribeGroups(request) => later_on(
            &context.node.data,
            context,
            describe_groups::handle(context.node.clone(), context.version, request),
        ),
        Request::ListGroups(request) => later_on(
            &context.node.data,
            context,
            list_groups::handle(context.node.clone(), context.version, request),
        ),
        Request::DeleteGroups(request) => later_on(
            &context.node.data,
            context,
            delete_groups::handle(context.node.clone(), request),
        ),
        Request::ReplicaFetch(_) => Err("a follower's fetch outside a session".to_owned()),
        _ => Err("a request without a handler".to_owned()),
    }
}

fn answer<R: barnabas_wire::KafkaResponse>(
    context: &RequestContext<'_>,
    response: &R,
) -> Result<Handled, String> {
    let bytes = reply(context.correlation_id, context.version, response)
        .map_err(|error| error.to_string())?;
    Ok(Handled::Answered(vec![bytes]))
}

/// Runs a handler that asks the controller on the control runtime; the connection goes on meanwhile. Bounded by the
/// requests in flight of the connection.
fn later<R, F>(context: &RequestContext<'_>, handler: F) -> Result<Handled, String>
where
    R: barnabas_wire::KafkaResponse + Send,
    F: Future<Output = R> + Send + 'static,
{
    later_on(&context.node.control, context, handler)
}

/// As [`later`], on the runtime that `on` says.
#[allow(clippy::unnecessary_wraps)]
fn later_on<R, F>(
    on: &tokio::runtime::Handle,
    context: &RequestContext<'_>,
    handler: F,
) -> Result<Handled, String>
where
    R: barnabas_wire::KafkaResponse + Send,
    F: Future<Output = R> + Send + 'static,
{
    let (out, slot) = (context.out.clone(), context.slot);
    let (correlation_id, version) = (context.correlation_id, context.version);
    on.spawn(async move {
        let response = handler.await;
        match reply(correlation_id, version, &response) {
            Ok(bytes) => {
                out.complete(slot, vec![bytes]);
                out.flush();
            }
            Err(error) => {
                tracing::error!(target: "request", %error, "an answer could not be encoded; the connection is closed");
                out.close();
            }
        }
    });
    Ok(Handled::Later)
}

/// A topic name of a request as an owned text, so that the request's frame is not kept alive by it.
fn owned(text: &messages::StrBytes) -> String {
    text.as_str().to_owned()
}
