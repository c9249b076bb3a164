//! DescribeCluster (key 60), versions 0 to 1: KIP-700, KIP-919 (which kind of endpoints, from 1). Brokers alone: who elects
//! leaders is one of them.

use barnabas_types::{BrokerId, ClusterImage};
use barnabas_wire::messages::describe_cluster_response::DescribeClusterBroker;
use barnabas_wire::messages::{DescribeClusterRequest, DescribeClusterResponse, StrBytes};

use super::RequestContext;
use super::authorized_operations::CLUSTER;
use super::error_codes::{MISMATCHED_ENDPOINT_TYPE, UNSUPPORTED_ENDPOINT_TYPE};
use super::metadata::controller_id;

/// Kinds of endpoints.
const BROKERS: i8 = 1;
const CONTROLLERS: i8 = 2;
/// First version that asks for a kind.
const ENDPOINT_TYPE_VERSION: i16 = 1;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let node = context.node;
    respond(&node.view.image(), node.me, &node.cluster_id.0, context.version, request)
}

fn respond(
    image: &ClusterImage,
    me: BrokerId,
    cluster_id: &str,
    version: i16,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let mut response = DescribeClusterResponse::default();
    let asked = if version >= ENDPOINT_TYPE_VERSION { request.endpoint_type } else { BROKERS };
    if asked != BROKERS {
        let (code, text) = match asked {
            CONTROLLERS => (
                MISMATCHED_ENDPOINT_TYPE,
                "this is a broker's listener, and there are no controllers beside the brokers; ask for brokers",
            ),
            _ => (UNSUPPORTED_ENDPOINT_TYPE, "no such kind of endpoint; ask for brokers (1)"),
        };
        response.error_code = code;
        response.error_message = Some(StrBytes::from(text));
        return response;
    }
    response.cluster_id = cluster_id.into();
    response.controller_id = controller_id(image, me);
    let listed = image.brokers.iter().map(|(id, broker)| {
        let mut entry = DescribeClusterBroker::default();
        entry.broker_id = id.0;
        entry.host = broker.host.as_str().into();
        entry.port = i32::from(broker.port);
        entry.rack = broker.rack.as_deref().map(StrBytes::from);
        entry
    });
    response.brokers = listed.collect();
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = CLUSTER;
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ME, MY_EPOCH, registered};
    use barnabas_wire::reply;

    fn ask(
        version: i16,
        change: impl FnOnce(&mut DescribeClusterRequest),
    ) -> DescribeClusterResponse {
        let mut request = DescribeClusterRequest::default();
        change(&mut request);
        let image = ClusterImage {
            brokers: [(ME, registered(MY_EPOCH))].into(),
            ..ClusterImage::default()
        };
        let response = respond(&image, ME, "c", version, &request);
        reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        response
    }

    #[test]
    fn brokers_are_listed_at_every_version_and_operations_when_asked_for() {
        for version in 0..=1 {
            let response = ask(version, |_| {});
            assert_eq!((response.error_code, response.controller_id), (0, 1));
            assert_eq!(response.brokers[0].port, 9092);
            assert_eq!(response.cluster_authorized_operations, i32::MIN);
            let response = ask(version, |r| r.include_cluster_authorized_operations = true);
            assert_eq!(response.cluster_authorized_operations, CLUSTER);
        }
    }

    #[test]
    fn other_endpoints_than_brokers_are_not_here() {
        for (kind, code) in [(1, 0), (2, 114), (0, 115), (3, 115), (-1, 115)] {
            let response = ask(1, |r| r.endpoint_type = kind);
            assert_eq!(response.error_code, code, "{kind}");
            assert_eq!(response.error_message.is_some(), code != 0);
        }
    }
}
