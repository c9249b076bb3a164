// @platformatic/kafka: create, produce keyed, consume in a group, commit half, go on as another member, delete.
import { readFileSync } from "node:fs";
import { Admin, Consumer, Producer, ProduceAcks, stringDeserializers, stringSerializers } from "@platformatic/kafka";

const bootstrapBrokers = process.argv[2].split(",");
const topic = "smoke", count = 10000;
const base = { clientId: "smoke", bootstrapBrokers };

// Reads so many records in the group, commits what was read, and leaves.
async function consume(most, seen, last) {
  const consumer = new Consumer({
    ...base, groupId: "smoke", deserializers: stringDeserializers, sessionTimeout: 6000, heartbeatInterval: 1000,
  });
  const stream = await consumer.consume({ topics: [topic], mode: "committed", fallbackMode: "earliest", autocommit: false, maxWaitTime: 100 });
  const next = new Map();
  let read = 0;
  const timer = setTimeout(() => { console.error(`only ${read} of ${most} records in 60 s`); process.exit(1); }, 60000);
  for await (const message of stream) {
    const place = `${message.partition} ${message.offset}`;
    // commit() takes the offset of the record itself or the next one, by version: the last record may come twice.
    if (last.get(message.partition) === place) continue;
    if (seen.has(place)) throw new Error(`${place} was below a committed offset`);
    seen.set(place, Number(message.value));
    next.set(message.partition, message);
    if (++read === most) break;
  }
  clearTimeout(timer);
  await consumer.commit({
    offsets: [...next].map(([partition, { offset }]) => ({ topic, partition, offset, leaderEpoch: -1 })),
  });
  await consumer.close(true);
  return new Map([...next].map(([partition, { offset }]) => [partition, `${partition} ${offset}`]));
}

const admin = new Admin(base);
await admin.createTopics({ topics: [topic], partitions: 3, replicas: 3 });
const producer = new Producer({ ...base, serializers: stringSerializers });
for (let at = 0; at < count; at += 1000) {
  const messages = Array.from({ length: 1000 }, (_, n) => ({ topic, key: String((at + n) % 100), value: String(at + n) }));
  await producer.send({ messages, acks: ProduceAcks.ALL });
}
await producer.close();
const seen = new Map();
const last = await consume(count / 2, seen, new Map());
await consume(count / 2, seen, last);
const values = [...seen.values()].sort((a, b) => a - b);
if (values.length !== count || values.some((value, n) => value !== n)) throw new Error("not every record once");
await admin.deleteTopics({ topics: [topic] });
await admin.close();
const manifest = new URL("node_modules/@platformatic/kafka/package.json", import.meta.url);
console.log(`@platformatic/kafka ${JSON.parse(readFileSync(manifest)).version}: ${count} records, group of two lives`);
process.exit(0);
