"""Produces and reads one partition until stdin ends: whoever moves its leader meanwhile sees in the last line whether the client followed."""
import json
import sys
import threading

from confluent_kafka import Consumer, Producer, TopicPartition

bootstrap, topic = sys.argv[1:3]
errors, lost, seen = [], [], []
stop, first = threading.Event(), threading.Event()
patience = 120  # seconds without a record before the reader gives up

common = {"bootstrap.servers": bootstrap, "error_cb": lambda error: errors.append(str(error))}
producer = Producer({**common, "enable.idempotence": True, "linger.ms": 0})
# A reset of the offset would be an error here.
consumer = Consumer({**common, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error",
                     "check.crcs": True})
consumer.assign([TopicPartition(topic, 0, 0)])
produced = 0


def delivered(error, message):
    if error is not None:
        lost.append(str(error))


def produce():
    global produced
    while not stop.is_set():
        producer.produce(topic, str(produced).encode(), partition=0, on_delivery=delivered)
        produced += 1
        producer.poll(0)
        stop.wait(0.005)
    producer.flush(patience)


def consume():
    idle = 0
    while idle < patience and not (stop.is_set() and not producing.is_alive() and len(seen) >= produced):
        message = consumer.poll(1)
        if message is None:
            idle += 1
        elif message.error():
            errors.append(str(message.error()))
        else:
            idle = 0
            seen.append(int(message.value()))
            first.set()


producing, consuming = threading.Thread(target=produce), threading.Thread(target=consume)
producing.start()
consuming.start()
first.wait(patience)
print("reads", flush=True)
sys.stdin.read()
stop.set()
producing.join()
consuming.join()
consumer.close()
in_order = seen == list(range(produced))
print(json.dumps({"produced": produced, "seen": len(seen), "in_order": in_order, "lost": lost, "errors": errors}))
