"""confluent-kafka: create, produce keyed and idempotent, consume in a group, commit half, go on as another member, delete."""
import sys

from confluent_kafka import Consumer, Producer, TopicPartition, libversion, version
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap, topic, count = sys.argv[1], "smoke", 10000
admin = AdminClient({"bootstrap.servers": bootstrap})
admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=3)])[topic].result(timeout=30)

failures = []
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "compression.type": "zstd"})
for n in range(count):
    producer.produce(topic, b"%d" % n, key=b"%d" % (n % 100),
                     on_delivery=lambda error, _: failures.append(error) if error else None)
    producer.poll(0)
assert producer.flush(60) == 0 and not failures, failures[:3]


def consume(most, seen):
    """Reads so many records in the group, commits what was read, and leaves."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "smoke", "auto.offset.reset": "earliest",
                         "enable.auto.commit": False, "session.timeout.ms": 6000})
    consumer.subscribe([topic])
    read, next_offsets = 0, {}
    while read < most:
        message = consumer.poll(30)
        assert message is not None, f"nothing for 30 s after {read} of {most} records"
        assert message.error() is None, message.error()
        place = (message.partition(), message.offset())
        assert place not in seen, f"{place} was below a committed offset"
        seen[place] = message.value()
        next_offsets[message.partition()] = message.offset() + 1
        read += 1
    consumer.commit(offsets=[TopicPartition(topic, p, o) for p, o in next_offsets.items()], asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, p) for p in next_offsets], timeout=30)
    assert {c.partition: c.offset for c in committed} == next_offsets, committed
    consumer.close()


seen = {}
consume(count // 2, seen)
consume(count - count // 2, seen)
assert sorted(int(value) for value in seen.values()) == list(range(count)), "every record once"
groups = admin.list_consumer_groups().result(timeout=30)
assert "smoke" in [group.group_id for group in groups.valid], groups.valid
admin.delete_topics([topic])[topic].result(timeout=30)
print(f"confluent-kafka {version()}, librdkafka {libversion()[0]}: {count} records, group of two lives")
