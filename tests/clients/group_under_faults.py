"""A group of consumers while brokers die: no committed offset goes back, nothing below one is lost, no rebalance hangs.

Arguments: bootstrap, topic, partitions, consumers. Prints "committed N" (all partitions together) as it grows; ends when its
standard input does, after everything that was acknowledged has been consumed and committed."""
import random
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

bootstrap, topic, partitions, consumers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
group, patience = "under-faults", 120
quiet = {"log_level": 0, "error_cb": lambda _: None}
lock = threading.Lock()
processed = [set() for _ in range(partitions)]
acked = [0] * partitions
problems = []
ending, done = threading.Event(), threading.Event()


def produce():
    """Small batches to every partition until the end; what is acknowledged counts."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5, **quiet})

    def delivered(error, message):
        if error:
            problems.append(f"a record was given up: {error}")
        else:
            with lock:
                acked[message.partition()] = max(acked[message.partition()], message.offset() + 1)

    while not ending.is_set():
        for partition in range(partitions):
            try:
                producer.produce(topic, b"x", partition=partition, on_delivery=delivered)
            except BufferError:
                pass
        producer.poll(0)
        # The group must keep up on a small machine.
        time.sleep(0.1)
    if producer.flush(patience) != 0:
        problems.append("the producer cannot send what it has")


def consume(number):
    """One member: remembers what it has processed, then commits. Leaves and comes back now and then."""
    chance = random.Random(number)
    while not done.is_set():
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                             "enable.auto.commit": False, "session.timeout.ms": 10000, **quiet})
        consumer.subscribe([topic])
        since, leave_after = 0, chance.randint(200, 2000)
        while not done.is_set() and leave_after > 0:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                with lock:
                    processed[message.partition()].add(message.offset())
                since += 1
                leave_after -= 1
            if since >= 20 or (since and message is None):
                try:
                    consumer.commit(asynchronous=False)
                    since = 0
                except KafkaException:
                    pass
        consumer.close()


def watch():
    """Committed offsets as the group's coordinator tells them: each never below what it was."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, **quiet})
    every = [TopicPartition(topic, p) for p in range(partitions)]
    seen, last = [0] * partitions, -1
    until = None
    while True:
        try:
            told = reader.committed(every, timeout=5)
        except KafkaException:
            told = []
        for entry in told:
            if entry.error or entry.offset < 0:
                if not entry.error and seen[entry.partition] > 0:
                    problems.append(f"partition {entry.partition}: committed {seen[entry.partition]}, then nothing")
                continue
            if entry.offset < seen[entry.partition]:
                problems.append(f"partition {entry.partition}: committed {seen[entry.partition]}, then {entry.offset}")
            seen[entry.partition] = max(seen[entry.partition], entry.offset)
        if sum(seen) > last:
            last = sum(seen)
            print("committed", last, flush=True)
        if ending.is_set() and not producing.is_alive():
            until = until or time.monotonic() + patience
            with lock:
                wanted = list(acked)
            if all(s >= w for s, w in zip(seen, wanted)):
                break
            if time.monotonic() > until:
                behind = {p: (s, w) for p, (s, w) in enumerate(zip(seen, wanted)) if s < w}
                problems.append(f"not consumed and committed within {patience} s: {behind}")
                break
        time.sleep(0.05)
    reader.close()
    with lock:
        for partition, offset in enumerate(seen):
            lost = [o for o in range(offset) if o not in processed[partition]]
            if lost:
                problems.append(f"partition {partition}: committed {offset}, never processed: {lost[:10]}")
    print("at the end", sum(seen), "records in", partitions, "partitions", flush=True)


producing = threading.Thread(target=produce)
members = [threading.Thread(target=consume, args=(n,)) for n in range(consumers)]
watching = threading.Thread(target=watch)
for thread in [producing, watching, *members]:
    thread.start()
sys.stdin.read()
ending.set()
watching.join()
done.set()
for thread in [producing, *members]:
    thread.join()
for problem in problems[:20]:
    print("problem:", problem, file=sys.stderr)
sys.exit(1 if problems else 0)
