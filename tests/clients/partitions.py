"""confluent-kafka adds partitions to a topic, up to a number; a producer that knew the old ones writes to the new ones."""
import sys
import time

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

bootstrap, topic, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
admin = AdminClient({"bootstrap.servers": bootstrap})
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "topic.metadata.refresh.interval.ms": 100})


def known():
    return len(producer.list_topics(topic, timeout=30).topics[topic].partitions)


def refused(code, asked, **options):
    try:
        admin.create_partitions([asked], request_timeout=30, **options)[asked.topic].result()
    except KafkaException as error:
        assert error.args[0].code() == code, error
    else:
        raise AssertionError(f"not refused: {code}")


before = known()
refused(KafkaError.INVALID_PARTITIONS, NewPartitions(topic, before))
refused(KafkaError.UNKNOWN_TOPIC_OR_PART, NewPartitions("absent", 9))
refused(KafkaError.INVALID_REPLICA_ASSIGNMENT, NewPartitions(topic, before + 1, [[1, 99, 2]]))
admin.create_partitions([NewPartitions(topic, total)], request_timeout=30, validate_only=True)[topic].result()
assert known() == before, "only checked"
admin.create_partitions([NewPartitions(topic, total)], request_timeout=30)[topic].result()
deadline = time.monotonic() + 30
while known() < total:
    assert time.monotonic() < deadline, "the new partitions are not known"
    time.sleep(0.05)
print("ok", known())
