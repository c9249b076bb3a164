"""Consumer groups as confluent-kafka and kafka-python see them: members come and go, static ones come back, offsets stay."""
import sys
import time

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap = sys.argv[1]
partitions, patience = 6, 60
admin = AdminClient({"bootstrap.servers": bootstrap})
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})


def create(topic):
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=3)])[topic].result(timeout=patience)


def send(topic, count):
    failures = []
    for n in range(count):
        producer.produce(topic, b"%d" % n, partition=n % partitions, on_delivery=lambda e, _: failures.append(e) if e else None)
    assert producer.flush(patience) == 0 and not failures, failures[:3]


def until(what, condition):
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {patience} s"


def confluent():
    topic, group = "confluent", "confluent-group"
    create(topic)
    send(topic, 600)
    conf = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "session.timeout.ms": 10000}
    assigned, got = {}, []

    def member(name, **more):
        consumer = Consumer({**conf, **more})
        assigned[name] = []
        consumer.subscribe([topic], on_assign=lambda _, p: assigned.__setitem__(name, sorted(x.partition for x in p)),
                           on_revoke=lambda _, p: assigned.__setitem__(name, []))
        return consumer

    def poll(*consumers):
        for consumer in consumers:
            message = consumer.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                got.append((message.partition(), message.offset()))

    def spread(*names):
        every = [p for name in names for p in assigned[name]]
        return sorted(every) == list(range(partitions)) and all(assigned[name] for name in names)

    one = member("one")
    until("the first member has all partitions", lambda: (poll(one), spread("one"))[1])
    until("it reads everything", lambda: (poll(one), len(got) == 600)[1])
    one.commit(asynchronous=False)
    two = member("two", **{"group.instance.id": "static-two"})
    until("two members share the partitions", lambda: (poll(one, two), spread("one", "two"))[1])
    described = admin.describe_consumer_groups([group])[group].result(timeout=patience)
    assert described.state.name == "STABLE" and len(described.members) == 2, described.state
    assert sorted(m.group_instance_id or "" for m in described.members) == ["", "static-two"]
    assert group in [g.group_id for g in admin.list_consumer_groups().result(timeout=patience).valid]
    # A static member that goes and comes back within its session is not missed.
    before = (assigned["one"], assigned["two"])
    two.close()
    two = member("two", **{"group.instance.id": "static-two"})
    until("the static member has its partitions again", lambda: (poll(one, two), assigned["two"] == before[1])[1])
    assert assigned["one"] == before[0], "nobody else was disturbed"
    one.close()
    until("the one that stays has all partitions", lambda: (poll(two), spread("two"))[1])
    send(topic, 60)
    until("it reads on where the group was", lambda: (poll(two), len(got) == 660)[1])
    assert len(set(got)) == 660, "nothing came twice"
    two.commit(asynchronous=False)
    wanted = [TopicPartition(topic, p) for p in range(partitions)]
    committed = two.committed(wanted, timeout=patience)
    assert [c.offset for c in committed] == [110] * partitions, committed
    try:
        admin.delete_consumer_groups([group])[group].result(timeout=patience)
        raise AssertionError("a group with members was deleted")
    except Exception as error:
        assert "NON_EMPTY_GROUP" in str(error) or "not empty" in str(error), error
    two.close()
    # A static member does not leave when it closes; its session ends.
    states = lambda: admin.describe_consumer_groups([group])[group].result(timeout=patience).state.name
    until("the group is empty", lambda: states() == "EMPTY")
    back = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, p, 7) for p in range(partitions)])
    altered = admin.alter_consumer_group_offsets([back])[group].result(timeout=patience)
    assert all(p.error is None for p in altered.topic_partitions)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(timeout=patience)
    assert sorted((p.partition, p.offset) for p in listed.topic_partitions) == [(p, 7) for p in range(partitions)]
    admin.delete_consumer_groups([group])[group].result(timeout=patience)
    assert group not in [g.group_id for g in admin.list_consumer_groups().result(timeout=patience).valid]
    print("confluent-kafka ok")


def kafka_python():
    import kafka
    topic, group = "kafka-python", "kafka-python-group"
    create(topic)
    send(topic, 600)
    got = []

    def member():
        return kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap.split(","), group_id=group, auto_offset_reset="earliest",
                                   enable_auto_commit=False, session_timeout_ms=10000, heartbeat_interval_ms=500,
                                   max_poll_interval_ms=30000)

    def poll(*consumers):
        for consumer in consumers:
            for records in consumer.poll(timeout_ms=50).values():
                got.extend((r.partition, r.offset) for r in records)

    one = member()
    until("the first member reads everything", lambda: (poll(one), len(got) == 600)[1])
    one.commit()
    two = member()
    shared = lambda: len(one.assignment()) == 3 and len(two.assignment()) == 3
    until("two members share the partitions", lambda: (poll(one, two), shared())[1])
    one.close()
    until("the one that stays has all", lambda: (poll(two), len(two.assignment()) == partitions)[1])
    send(topic, 60)
    until("it reads on where the group was", lambda: (poll(two), len(got) == 660)[1])
    assert len(set(got)) == 660, "nothing came twice"
    two.commit()
    offsets = [two.committed(kafka.TopicPartition(topic, p)) for p in range(partitions)]
    assert offsets == [110] * partitions, offsets
    two.close()
    print("kafka-python", kafka.__version__, "ok")


confluent()
kafka_python()
