//! DescribeConfigs (key 32), versions 1 to 4: KIP-133, KIP-226 (sources and synonyms), KIP-569 (types and documentation from 3).
//!
//! Topics and what is stored for brokers are answered from the controller's last push, the rest of this broker's settings from its
//! file; all of it without the controller.

use barnabas_types::broker_settings::is_dynamic;
use barnabas_types::topic_config::{Kind, SETTINGS, Setting};
use barnabas_types::{BrokerSettings, Condition, TopicConfig, TopicImage, TopicName};
use barnabas_wire::messages::describe_configs_request::DescribeConfigsResource;
use barnabas_wire::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use barnabas_wire::messages::{DescribeConfigsRequest, DescribeConfigsResponse, StrBytes};

use super::alter_configs::{BROKER, TOPIC, named_twice};
use super::{RequestContext, error_code};
use crate::config::{Shown, Source, values};
use crate::node::Node;

/// First version with types and documentation.
const TYPE_VERSION: i16 = 3;

/// Kafka's sources of a value.
pub(super) const DYNAMIC_TOPIC_CONFIG: i8 = 1;
const DYNAMIC_BROKER_CONFIG: i8 = 2;
const DYNAMIC_DEFAULT_BROKER_CONFIG: i8 = 3;
const STATIC_BROKER_CONFIG: i8 = 4;
const DEFAULT_CONFIG: i8 = 5;

/// How much of each setting the client wants.
#[derive(Clone, Copy)]
struct Wish {
    version: i16,
    synonyms: bool,
    documentation: bool,
}

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let wish = Wish {
        version: context.version,
        synonyms: request.include_synonyms,
        documentation: request.include_documentation,
    };
    let describe = |resource: &DescribeConfigsResource| one(context.node, resource, wish);
    answer(&request.resources, describe)
}

/// Each resource has its own answer. One that is named twice is refused, as it is when settings are changed: a request that
/// names a topic some thousand times would get an answer some hundred times as large.
fn answer(
    resources: &[DescribeConfigsResource],
    describe: impl Fn(&DescribeConfigsResource) -> Result<Vec<DescribeConfigsResourceResult>, Condition>,
) -> DescribeConfigsResponse {
    let twice = named_twice(resources.iter().map(|r| (r.resource_type, &r.resource_name)));
    let mut response = DescribeConfigsResponse::default();
    for resource in resources {
        let key = (resource.resource_type, resource.resource_name.as_str().to_owned());
        let described = if twice.contains(&key) {
            Err(Condition::InvalidRequest("the request names this resource twice".into()))
        } else {
            describe(resource)
        };
        let mut entry = DescribeConfigsResult::default();
        entry.resource_type = resource.resource_type;
        entry.resource_name = resource.resource_name.clone();
        entry.error_message = None;
        match described {
            Ok(configs) => entry.configs = configs,
            Err(condition) => {
                entry.error_code = error_code(&condition);
                entry.error_message = Some(condition.to_string().into());
            }
        }
        response.results.push(entry);
    }
    response
}

fn one(
    node: &Node,
    resource: &DescribeConfigsResource,
    wish: Wish,
) -> Result<Vec<DescribeConfigsResourceResult>, Condition> {
    let name = resource.resource_name.as_str();
    // As in Kafka, no key at all means every key.
    let keys = resource.configuration_keys.as_deref().filter(|keys| !keys.is_empty());
    let asked = |key: &str| keys.is_none_or(|keys| keys.iter().any(|k| k.as_str() == key));
    match resource.resource_type {
        TOPIC => {
            let name =
                TopicName::new(name).map_err(|error| Condition::InvalidTopic(error.to_string()))?;
            let image = node.view.image();
            let topic = image.topics.get(&name).ok_or(Condition::UnknownTopicOrPartition)?;
            let settings = SETTINGS.iter().filter(|s| asked(s.key));
            let (shown, stored) = (&node.options.shown, &image.broker_settings);
            Ok(settings.map(|s| of_topic(s, topic, (shown, stored), wish)).collect())
        }
        // The name of what holds for all brokers: what is stored there, as Kafka does it.
        BROKER if name.is_empty() => {
            let image = node.view.image();
            let stored = image.broker_settings.get(&None).into_iter().flatten();
            let stored = stored.filter(|(key, _)| asked(key.as_str()));
            Ok(stored.map(|(key, value)| of_all_brokers(key, value, wish)).collect())
        }
        BROKER if name == node.me.to_string() => {
            let image = node.view.image();
            let settings = node.options.shown.iter().filter(|s| asked(s.name));
            let values = |shown: &Shown| values(shown, &image.broker_settings, node.me);
            Ok(settings.map(|s| of_broker(s, values(s), wish)).collect())
        }
        BROKER => Err(Condition::InvalidRequest(format!(
            "this is broker {}; ask the broker itself for its settings",
            node.me
        ))),
        other => Err(Condition::InvalidRequest(format!(
            "resources of type {other} have no settings here; topics (2) and brokers (4) have"
        ))),
    }
}

fn of_topic(
    setting: &Setting,
    topic: &TopicImage,
    (of_broker, stored): (&[Shown], &BrokerSettings),
    wish: Wish,
) -> DescribeConfigsResourceResult {
    let value = setting.value(&topic.config);
    let built_in = setting.value(&TopicConfig::default());
    let overridden = topic.overrides.contains_key(setting.key);
    let of_all = stored.get(&None).and_then(|stored| stored.get(setting.broker_key));
    let source = match (overridden, of_all) {
        (true, _) => DYNAMIC_TOPIC_CONFIG,
        (false, Some(_)) => DYNAMIC_DEFAULT_BROKER_CONFIG,
        (false, None) if value == built_in => DEFAULT_CONFIG,
        (false, None) => STATIC_BROKER_CONFIG,
    };
    let mut entry = described(setting.key, Some(value.clone()), source);
    if wish.version >= TYPE_VERSION {
        entry.config_type = kind_code(setting.kind());
        entry.documentation = wish.documentation.then(|| setting.meaning.into());
    }
    if wish.synonyms {
        if overridden {
            entry.synonyms.push(synonym(setting.key, Some(value), DYNAMIC_TOPIC_CONFIG));
        }
        if let Some(value) = of_all {
            let value = Some(value.clone());
            entry.synonyms.push(synonym(setting.broker_key, value, DYNAMIC_DEFAULT_BROKER_CONFIG));
        }
        let file = of_broker.iter().find(|s| s.name == setting.broker_key && s.given);
        if let Some(file) = file {
            let value = file.value.clone();
            entry.synonyms.push(synonym(setting.broker_key, value, STATIC_BROKER_CONFIG));
        }
        entry.synonyms.push(synonym(setting.broker_key, Some(built_in), DEFAULT_CONFIG));
    }
    entry
}

/// `values`: the one in force first.
fn of_broker(
    shown: &Shown,
    values: Vec<(Source, Option<String>)>,
    wish: Wish,
) -> DescribeConfigsResourceResult {
    let (source, value) = values[0].clone();
    let mut entry = described(shown.name, value, source_code(source));
    entry.read_only = !is_dynamic(shown.name);
    if wish.version >= TYPE_VERSION {
        entry.config_type = kind_code(shown.kind);
        entry.documentation = wish.documentation.then(|| shown.meaning.into());
    }
    if wish.synonyms {
        let synonyms =
            values.into_iter().map(|(s, value)| synonym(shown.name, value, source_code(s)));
        entry.synonyms = synonyms.collect();
    }
    entry
}

fn of_all_brokers(key: &str, value: &str, wish: Wish) -> DescribeConfigsResourceResult {
    let source = DYNAMIC_DEFAULT_BROKER_CONFIG;
    let mut entry = described(key, Some(value.to_owned()), source);
    let of_topics = Setting::of_broker(key);
    if wish.version >= TYPE_VERSION {
        entry.config_type = kind_code(of_topics.map_or(Kind::Long, Setting::kind));
        let meaning = of_topics.filter(|_| wish.documentation).map(|setting| setting.meaning);
        entry.documentation = meaning.map(StrBytes::from);
    }
    if wish.synonyms {
        entry.synonyms.push(synonym(key, Some(value.to_owned()), source));
    }
    entry
}

fn source_code(source: Source) -> i8 {
    match source {
        Source::Broker => DYNAMIC_BROKER_CONFIG,
        Source::Cluster => DYNAMIC_DEFAULT_BROKER_CONFIG,
        Source::File => STATIC_BROKER_CONFIG,
        Source::Default => DEFAULT_CONFIG,
    }
}

fn described(key: &str, value: Option<String>, source: i8) -> DescribeConfigsResourceResult {
    let mut entry = DescribeConfigsResourceResult::default();
    entry.name = key.into();
    entry.value = value.map(StrBytes::from);
    entry.config_source = source;
    entry
}

fn synonym(key: &str, value: Option<String>, source: i8) -> DescribeConfigsSynonym {
    let mut synonym = DescribeConfigsSynonym::default();
    synonym.name = key.into();
    synonym.value = value.map(StrBytes::from);
    synonym.source = source;
    synonym
}

/// Kafka's numbers of the types.
fn kind_code(kind: Kind) -> i8 {
    match kind {
        Kind::Boolean => 1,
        Kind::String => 2,
        Kind::Int => 3,
        Kind::Long => 5,
        Kind::Double => 6,
        Kind::List => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use barnabas_types::{
        BrokerId, ClusterDelta, ControllerEpoch, Incarnation, Partition, TopicId,
    };
    use barnabas_wire::reply;

    use super::*;
    use crate::testing::{ME, node};

    fn resource(kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResource {
        let mut resource = DescribeConfigsResource::default();
        resource.resource_type = kind;
        resource.resource_name = name.into();
        resource.configuration_keys =
            keys.map(|keys| keys.iter().map(|key| StrBytes::from(*key)).collect());
        resource
    }

    const WISH: Wish = Wish { version: 4, synonyms: true, documentation: true };

    fn topic() -> TopicImage {
        TopicImage {
            incarnation: Incarnation { topic_id: TopicId([1; 16]), czxid: 5 },
            config: TopicConfig {
                retention_ms: 604_800_000,
                min_insync_replicas: 2,
                ..TopicConfig::default()
            },
            // As good as the default, but said by the topic.
            overrides: BTreeMap::from([("retention.ms".into(), "604800000".into())]),
            partitions: BTreeMap::from([(0, Partition::default())]),
        }
    }

    /// For all brokers, and for this one.
    fn stored() -> BrokerSettings {
        let pair = |k: &str, v: &str| BTreeMap::from([(k.to_owned(), v.to_owned())]);
        BTreeMap::from([
            (None, pair("log.flush.mode", "sync")),
            (Some(ME), pair("log.cleaner.backoff.ms", "7")),
        ])
    }

    fn informed() -> Arc<Node> {
        let node = node();
        let delta = ClusterDelta {
            full: true,
            brokers: Some(BTreeMap::new()),
            topics: BTreeMap::from([(TopicName::new("orders").unwrap(), topic())]),
            broker_settings: Some(stored()),
            ..ClusterDelta::default()
        };
        node.view.apply((BrokerId(1), ControllerEpoch(1)), &delta);
        node
    }

    #[tokio::test]
    async fn a_topics_settings_name_their_source_type_and_synonyms() {
        let node = informed();
        let all = one(&node, &resource(TOPIC, "orders", None), WISH).unwrap();
        assert_eq!(all.len(), SETTINGS.len());
        let of = |name: &str| all.iter().find(|c| c.name.as_str() == name).unwrap();
        let retention = of("retention.ms");
        assert_eq!(retention.value.as_ref().unwrap().as_str(), "604800000");
        assert_eq!((retention.config_source, retention.config_type), (DYNAMIC_TOPIC_CONFIG, 5));
        assert!(!retention.read_only && retention.documentation.is_some());
        let names: Vec<_> =
            retention.synonyms.iter().map(|s| (s.name.as_str().to_owned(), s.source)).collect();
        assert_eq!(
            names,
            [("retention.ms".to_owned(), 1), ("log.retention.ms".to_owned(), DEFAULT_CONFIG)]
        );
        assert_eq!(of("min.insync.replicas").config_source, STATIC_BROKER_CONFIG);
        assert_eq!(of("flush.timeout.ms").config_source, DEFAULT_CONFIG);
        let mode = of("flush.mode");
        let sources: Vec<i8> = mode.synonyms.iter().map(|s| s.source).collect();
        assert_eq!((mode.config_source, sources), (DYNAMIC_DEFAULT_BROKER_CONFIG, vec![3, 5]));
        assert_eq!(of("cleanup.policy").config_type, 7);
        for keys in [&["flush.mode", "nonsense"][..], &[]] {
            let some = one(&node, &resource(TOPIC, "orders", Some(keys)), WISH).unwrap();
            assert_eq!(some.len(), if keys.is_empty() { SETTINGS.len() } else { 1 });
        }
    }

    #[tokio::test]
    async fn a_broker_tells_its_own_settings_and_those_of_all_with_their_sources() {
        let node = informed();
        let asked = |kind, name: &str| one(&node, &resource(kind, name, None), WISH);
        let all = asked(BROKER, "").unwrap();
        assert_eq!(
            (all.len(), all[0].name.as_str(), all[0].config_source),
            (1, "log.flush.mode", 3)
        );
        assert!(!all[0].read_only);
        assert!(asked(BROKER, &ME.to_string()).is_ok());
        for (kind, name, code) in
            [(BROKER, "9", 42), (TOPIC, "absent", 3), (TOPIC, "../x", 17), (8, "logger", 42)]
        {
            assert_eq!(error_code(&asked(kind, name).unwrap_err()), code, "{kind} {name}");
        }
        let shown = Shown {
            name: "log.dirs",
            value: Some("/a".into()),
            given: true,
            default: None,
            kind: Kind::List,
            meaning: "where",
        };
        let entry = of_broker(&shown, values(&shown, &stored(), ME), WISH);
        assert!(entry.read_only);
        let sources: Vec<i8> = entry.synonyms.iter().map(|s| s.source).collect();
        assert_eq!((entry.config_source, sources), (STATIC_BROKER_CONFIG, vec![4, 5]));
        let backoff = Shown { name: "log.cleaner.backoff.ms", kind: Kind::Long, ..shown };
        let entry = of_broker(&backoff, values(&backoff, &stored(), ME), WISH);
        assert_eq!((entry.config_source, entry.value), (DYNAMIC_BROKER_CONFIG, Some("7".into())));
        assert!(!entry.read_only);
    }

    #[test]
    fn a_resource_that_is_named_twice_is_not_described() {
        let named = |kind: i8, name: &str| {
            let mut resource = DescribeConfigsResource::default();
            resource.resource_type = kind;
            resource.resource_name = StrBytes::from(name.to_owned());
            resource
        };
        let resources =
            [named(TOPIC, "t"), named(TOPIC, "1"), named(TOPIC, "t"), named(BROKER, "1")];
        let entry = |_: &DescribeConfigsResource| Ok(vec![described("k", None, DEFAULT_CONFIG)]);
        let response = answer(&resources, entry);
        let told: Vec<(i16, usize)> =
            response.results.iter().map(|r| (r.error_code, r.configs.len())).collect();
        assert_eq!(told, [(42, 0), (0, 1), (42, 0), (0, 1)]);
    }

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        for version in 1..=4 {
            let wish = Wish { version, ..WISH };
            let mut result = DescribeConfigsResult::default();
            result.configs = SETTINGS
                .iter()
                .map(|setting| of_topic(setting, &topic(), (&[], &stored()), wish))
                .collect();
            let mut response = DescribeConfigsResponse::default();
            response.results.push(result);
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
