"""aiokafka: create, produce keyed, consume in a group, commit half, go on as another member, delete."""
import asyncio
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import TopicPartition

bootstrap, topic, count = sys.argv[1], "smoke", 10000


async def consume(most, seen):
    """Reads so many records in the group, commits what was read, and leaves."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id="smoke", auto_offset_reset="earliest",
                                enable_auto_commit=False, session_timeout_ms=6000, heartbeat_interval_ms=1000)
    await consumer.start()
    read, next_offsets = 0, {}
    while read < most:
        record = await asyncio.wait_for(consumer.getone(), 30)
        place = (record.partition, record.offset)
        assert place not in seen, f"{place} was below a committed offset"
        seen[place] = record.value
        next_offsets[TopicPartition(topic, record.partition)] = record.offset + 1
        read += 1
    await consumer.commit(next_offsets)
    for partition, offset in next_offsets.items():
        assert await consumer.committed(partition) == offset
    await consumer.stop()


async def main():
    """The whole of it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 3, 3)])
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, compression_type="gzip", linger_ms=5)
    await producer.start()
    sent = [await producer.send(topic, key=b"%d" % (n % 100), value=b"%d" % n) for n in range(count)]
    await asyncio.wait_for(asyncio.gather(*sent), 60)
    await producer.stop()
    seen = {}
    await consume(count // 2, seen)
    await consume(count - count // 2, seen)
    assert sorted(int(value) for value in seen.values()) == list(range(count)), "every record once"
    await admin.delete_topics([topic])
    await admin.close()
    print(f"aiokafka {aiokafka.__version__}: {count} records, group of two lives")


asyncio.run(main())
