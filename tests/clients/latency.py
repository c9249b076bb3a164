"""End-to-end latency at a low rate over fetch.wait.max.ms: flat, because an append wakes the waiting fetch."""
import statistics
import sys
import threading
import time

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

bootstrap = sys.argv[1]
topic, count, pause = "latency", 100, 0.02


def measure(fetch_wait_max_ms):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False,
                         "fetch.wait.max.ms": fetch_wait_max_ms, "fetch.min.bytes": 1,
                         "socket.nagle.disable": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    latencies, ready, done = [], threading.Event(), threading.Event()

    def consume():
        deadline = time.monotonic() + 60
        while len(latencies) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None or message.error():
                continue
            received = time.monotonic_ns()
            if message.value() == b"ready":
                ready.set()
            elif ready.is_set():
                latencies.append((received - int(message.value())) / 1e6)
        done.set()

    thread = threading.Thread(target=consume)
    thread.start()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0,
                         "socket.nagle.disable": True})
    # The consumer has found the end of the log once it sees one of these.
    while not ready.is_set():
        producer.produce(topic, b"ready", partition=0)
        producer.flush(30)
        ready.wait(0.1)
    while not done.is_set() and len(latencies) < count:
        producer.produce(topic, str(time.monotonic_ns()).encode(), partition=0)
        producer.poll(0)
        done.wait(pause)
    producer.flush(30)
    thread.join()
    consumer.close()
    assert len(latencies) >= count, f"only {len(latencies)} of {count} records arrived"
    return statistics.median(latencies)


medians = {wait: measure(wait) for wait in (20, 100, 400)}
for wait, median in medians.items():
    print(f"fetch.wait.max.ms {wait}: p50 {median:.2f} ms")
# A fetch that is not woken shows about half of the wait limit: 10, 50 and 200 ms.
assert max(medians.values()) < 25, medians
assert max(medians.values()) - min(medians.values()) < 10, medians
