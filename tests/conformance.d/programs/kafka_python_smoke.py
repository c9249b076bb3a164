"""kafka-python: create, produce keyed and idempotent, consume in a group, commit half, go on as another member, delete."""
import sys

import kafka
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

bootstrap, topic, count = sys.argv[1].split(","), "smoke", 10000
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic(topic, 3, 3)])

producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5, compression_type="lz4")
sent = [producer.send(topic, key=b"%d" % (n % 100), value=b"%d" % n) for n in range(count)]
producer.flush(60)
places = {(future.get(1).partition, future.get(1).offset) for future in sent}
assert len(places) == count, "every record has its own offset"
producer.close()


def consume(most, seen):
    """Reads so many records in the group, commits what was read, and leaves."""
    consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id="smoke", auto_offset_reset="earliest",
                             enable_auto_commit=False, consumer_timeout_ms=30000, session_timeout_ms=6000,
                             heartbeat_interval_ms=1000, max_poll_records=100)
    read, next_offsets = 0, {}
    while read < most:
        polled = consumer.poll(timeout_ms=30000, max_records=min(100, most - read))
        assert polled, f"nothing for 30 s after {read} of {most} records"
        for partition, records in polled.items():
            for record in records:
                place = (record.partition, record.offset)
                assert place not in seen, f"{place} was below a committed offset"
                seen[place] = record.value
                next_offsets[record.partition] = record.offset + 1
                read += 1
    consumer.commit()
    for partition, offset in next_offsets.items():
        assert consumer.committed(TopicPartition(topic, partition)) == offset
    consumer.close()


seen = {}
consume(count // 2, seen)
consume(count - count // 2, seen)
assert sorted(int(value) for value in seen.values()) == list(range(count)), "every record once"
admin.delete_topics([topic])
admin.close()
print(f"kafka-python {kafka.__version__}: {count} records, group of two lives")
