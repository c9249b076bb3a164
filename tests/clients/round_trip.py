"""confluent-kafka against a cluster: create a topic, produce with acks=all, consume, compare, delete the topic."""
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition, libversion, version
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap = sys.argv[1]
topic, partitions, count = "round-trip", 3, 20000
print("confluent-kafka", version(), "librdkafka", libversion()[0])

admin = AdminClient({"bootstrap.servers": bootstrap})
admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=3)])[topic].result(timeout=30)

sent = {partition: [] for partition in range(partitions)}
failures = []
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "compression.type": "lz4"})
for n in range(count):
    value = b"%d \x00\xff\r" % n
    sent[n % partitions].append(value)
    producer.produce(topic, value, partition=n % partitions, key=str(n),
                     on_delivery=lambda error, _: failures.append(error) if error else None)
    producer.poll(0)
assert producer.flush(60) == 0, "not everything was delivered"
assert not failures, failures[:3]

# Assigned by hand, without a group.
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False,
                     "enable.partition.eof": False, "check.crcs": True})
consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
got = {partition: [] for partition in range(partitions)}
received = 0
while received < count:
    message = consumer.poll(30)
    assert message is not None, f"nothing for 30 s after {received} records"
    assert message.error() is None, message.error()
    assert message.offset() == len(got[message.partition()]), "offsets are dense"
    got[message.partition()].append(message.value())
    received += 1
assert got == sent, "what comes out is what went in"
low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
assert (low, high) == (0, len(sent[0])), (low, high)
consumer.close()

listed = admin.list_topics(timeout=30)
assert topic in listed.topics and len(listed.brokers) == 3, listed
assert listed.controller_id in listed.brokers
admin.delete_topics([topic])[topic].result(timeout=30)
print("ok", count)
