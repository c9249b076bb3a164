"""confluent-kafka deletes records: `BOOTSTRAP TOPIC OFFSET [SECONDS]` (partition 0; -1: all below the high watermark).
Prints the low watermark, then what an offset beyond the end is answered."""
import sys

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

bootstrap, topic, offset = sys.argv[1], sys.argv[2], int(sys.argv[3])
seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 20
admin = AdminClient({"bootstrap.servers": bootstrap})


def delete(topic, offset):
    asked = TopicPartition(topic, 0, offset)
    try:
        [answer] = admin.delete_records([asked], request_timeout=seconds + 10, operation_timeout=seconds).values()
        return str(answer.result().low_watermark)
    except KafkaException as error:
        return error.args[0].name()


print(delete(topic, offset))
print(delete(topic, 1 << 40))
