"""confluent-kafka's AdminClient on settings: `alter` changes them in every way and reads them back, `check` reads them back."""
import sys

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

bootstrap, what = sys.argv[1:3]
admin = AdminClient({"bootstrap.servers": bootstrap})


def describe(kind, name):
    resource = ConfigResource(kind, name)
    return admin.describe_configs([resource], request_timeout=30)[resource].result()


def alter(entries, name="t", **options):
    changes = [ConfigEntry(key, value, incremental_operation=operation) for key, value, operation in entries]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes)
    return admin.incremental_alter_configs([resource], request_timeout=60, **options)[resource].result()


def refused(code, part, change):
    try:
        change()
    except KafkaException as error:
        told = error.args[0]
        assert told.code() == code and part in told.str(), told
    else:
        raise AssertionError(f"not refused: {part}")


def shown(topic):
    return {key: (entry.value, ConfigSource(entry.source)) for key, entry in topic.items()}


SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
TOPIC, DEFAULT = ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DEFAULT_CONFIG

if what == "alter":
    before = shown(describe(ResourceType.TOPIC, "t"))
    assert before["retention.ms"] == ("604800000", DEFAULT), before["retention.ms"]
    alter([("retention.ms", "3600000", SET), ("flush.mode", "sync", SET), ("cleanup.policy", "compact", APPEND)])
    after = shown(describe(ResourceType.TOPIC, "t"))
    assert after["retention.ms"] == ("3600000", TOPIC), after["retention.ms"]
    assert after["flush.mode"] == ("sync", TOPIC), after["flush.mode"]
    assert after["cleanup.policy"] == ("compact,delete", TOPIC), after["cleanup.policy"]
    assert after["segment.ms"] == before["segment.ms"]
    alter([("cleanup.policy", "compact", SUBTRACT), ("retention.ms", None, DELETE)])
    after = shown(describe(ResourceType.TOPIC, "t"))
    assert after["cleanup.policy"] == ("delete", TOPIC), after["cleanup.policy"]
    assert after["retention.ms"] == before["retention.ms"]

    refused(KafkaError.INVALID_CONFIG, "did you mean flush.mode?", lambda: alter([("flush.mod", "sync", SET)]))
    refused(KafkaError.INVALID_CONFIG, "not 'often'", lambda: alter([("flush.mode", "often", SET)]))
    refused(KafkaError.INVALID_CONFIG, "replication factor 3", lambda: alter([("min.insync.replicas", "4", SET)]))
    refused(KafkaError.UNKNOWN_TOPIC_OR_PART, "", lambda: alter([("retention.ms", "1", SET)], name="absent"))
    refused(KafkaError.UNKNOWN_TOPIC_OR_PART, "", lambda: describe(ResourceType.TOPIC, "absent"))
    alter([("retention.ms", "1", SET)], validate_only=True)
    assert shown(describe(ResourceType.TOPIC, "t")) == after, "only checked"

    # The older request replaces everything.
    resource = ConfigResource(ResourceType.TOPIC, "t", set_config={"retention.ms": "7200000", "flush.mode": "sync"})
    admin.alter_configs([resource], request_timeout=60)[resource].result()
    after = shown(describe(ResourceType.TOPIC, "t"))
    assert after["cleanup.policy"] == ("delete", DEFAULT), after["cleanup.policy"]
    assert {key for key, (_, source) in after.items() if source == TOPIC} == {"retention.ms", "flush.mode"}

    broker = describe(ResourceType.BROKER, "1")
    assert broker["broker.id"].value == "1" and broker["broker.id"].is_read_only, broker["broker.id"]
    resource = ConfigResource(ResourceType.BROKER, "1", set_config={"num.partitions": "2"})
    refused(KafkaError.INVALID_CONFIG, "a broker's file", lambda: admin.alter_configs([resource])[resource].result())
    resource = ConfigResource(ResourceType.BROKER, "1", set_config={"log.retention.ms": "2"})
    refused(KafkaError.INVALID_CONFIG, "for the cluster", lambda: admin.alter_configs([resource])[resource].result())
    backoff = broker["log.cleaner.backoff.ms"]
    assert (backoff.value, backoff.is_read_only) == ("15000", False), backoff
    resource = ConfigResource(ResourceType.BROKER, "1", set_config={"log.cleaner.backoff.ms": "2000"})
    admin.alter_configs([resource])[resource].result()
    backoff = describe(ResourceType.BROKER, "1")["log.cleaner.backoff.ms"]
    assert (backoff.value, ConfigSource(backoff.source)) == ("2000", ConfigSource.DYNAMIC_BROKER_CONFIG), backoff
elif what == "cluster":
    # What is stored for the cluster holds for topics that do not say.
    shared = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    topic = shown(describe(ResourceType.TOPIC, "t"))
    assert topic["retention.ms"] == ("777000", shared), topic["retention.ms"]
    assert topic["segment.ms"] == ("5000000", TOPIC), topic["segment.ms"]
    broker = shown(describe(ResourceType.BROKER, "1"))
    assert broker["log.retention.ms"] == ("777000", shared), broker["log.retention.ms"]
else:
    after = describe(ResourceType.TOPIC, "t")
    expected = dict(pair.split("=", 1) for pair in sys.argv[3:])
    own = {key: entry.value for key, entry in after.items() if ConfigSource(entry.source) == TOPIC}
    assert own == expected, own
    synonyms = after["retention.ms"].synonyms
    assert list(synonyms)[-1] == "log.retention.ms", synonyms
print("ok", what)
