//! `explain/{kind}/{name…}`: the same object as `barnabas explain --json` prints.

use barnabas_proto::v1;
use barnabas_proto::v1::explain_request::Subject;
use serde_json::Value;

use super::super::source::Source;
use super::refusal::Refusal;
use crate::explain::json;

/// What is wrong with something.
pub(super) async fn explain(source: &Source, kind: &str, name: &[&str]) -> Result<Value, Refusal> {
    let subject = match (kind, name) {
        ("cluster", [] | [""]) => Subject::Cluster(true),
        ("broker", [id]) => {
            let id = id.parse().map_err(|_| Refusal::bad("the broker must be a whole number"))?;
            Subject::BrokerId(id)
        }
        ("partition", [topic, index]) => {
            let partition =
                index.parse().map_err(|_| Refusal::bad("partition must be a whole number"))?;
            let at = v1::FollowedPartition { topic: (*topic).to_owned(), partition };
            Subject::Partition(at)
        }
        ("group", [group]) => Subject::Group((*group).to_owned()),
        ("cluster" | "broker" | "partition" | "group", _) => {
            return Err(Refusal::bad(
                "say explain/cluster, explain/broker/ID, explain/partition/TOPIC/PARTITION or explain/group/NAME",
            ));
        }
        _ => return Err(Refusal::not_found("explained are cluster, broker, partition and group")),
    };
    let request = v1::ExplainRequest { subject: Some(subject) };
    let told = source.explains.explain(request).await.map_err(|status| match status.code() {
        tonic::Code::ResourceExhausted => Refusal::too_many(status.message()),
        _ => Refusal::not_ready(status.message()),
    })?;
    if let Some(failure) = &told.failure {
        return Err(Refusal::not_found(failure.message.clone()));
    }
    // Where its commands are to ask.
    let me = source.node.view.image().brokers.get(&source.node.me).cloned();
    let admin = me.map(|me| me.control_address).unwrap_or_default();
    Ok(json::of(&told, &admin))
}
