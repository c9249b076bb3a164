"""Many groups commit while their coordinator moves (F2): what is read is what was last acknowledged, or what was being written.

Arguments: bootstrap, topic, groups. Prints "rounds N" as the slowest group gets on; ends when its standard input does."""
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

bootstrap, topic, groups = sys.argv[1], sys.argv[2], int(sys.argv[3])
quiet = {"log_level": 0, "error_cb": lambda _: None}
ending = threading.Event()
rounds, problems = [0] * groups, []


def commits(number):
    """Commits 1, 2, 3, ... and looks after each."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"group-{number}", "enable.auto.commit": False, **quiet})
    acked = tried = 0
    while not ending.is_set() or acked < tried:
        tried += 1
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, tried)], asynchronous=False)
            acked = tried
        except KafkaException:
            pass
        try:
            [told] = consumer.committed([TopicPartition(topic, 0)], timeout=5)
        except KafkaException:
            continue
        if told.error is None and not acked <= max(told.offset, 0) <= tried:
            problems.append(f"group {number}: committed {acked} of {tried}, read {told.offset}")
        rounds[number] += 1
        # Beside fifty others on a small machine: the coordinator is to move, not the processor to be full.
        time.sleep(0.1)
    consumer.close()


threads = [threading.Thread(target=commits, args=(n,)) for n in range(groups)]
for thread in threads:
    thread.start()


def tell():
    while not ending.is_set():
        print("rounds", min(rounds), flush=True)
        time.sleep(0.2)


teller = threading.Thread(target=tell)
teller.start()
sys.stdin.read()
ending.set()
for thread in [teller, *threads]:
    thread.join()
print("at the end", sum(rounds), "commits of", groups, "groups")
for problem in problems[:20]:
    print("problem:", problem, file=sys.stderr)
sys.exit(1 if problems else 0)
