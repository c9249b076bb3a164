// kafkajs: create, produce keyed, consume in a group, commit half, go on as another member, delete.
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const brokers = process.argv[2].split(",");
const topic = "smoke", count = 10000;
const kafka = new Kafka({ brokers, logLevel: logLevel.ERROR });

// Reads so many records in the group, commits what was read, and leaves.
async function consume(most, seen) {
  const consumer = kafka.consumer({ groupId: "smoke", sessionTimeout: 6000, heartbeatInterval: 1000 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const next = new Map();
  let read = 0;
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`only ${read} of ${most} records in 60 s`)), 60000);
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (read >= most) return;
        const place = `${partition} ${message.offset}`;
        if (seen.has(place)) reject(new Error(`${place} was below a committed offset`));
        seen.set(place, Number(message.value.toString()));
        next.set(partition, (BigInt(message.offset) + 1n).toString());
        if (++read === most) { clearTimeout(timer); resolve(); }
      },
    }).catch(reject);
  });
  await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset })));
  await consumer.disconnect();
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: 3, replicationFactor: 3 }] });
  const producer = kafka.producer({ idempotent: true });
  await producer.connect();
  for (let at = 0; at < count; at += 1000) {
    const messages = Array.from({ length: 1000 }, (_, n) => ({ key: String((at + n) % 100), value: String(at + n) }));
    await producer.send({ topic, acks: -1, compression: CompressionTypes.GZIP, messages });
  }
  await producer.disconnect();
  const seen = new Map();
  await consume(count / 2, seen);
  await consume(count / 2, seen);
  const values = [...seen.values()].sort((a, b) => a - b);
  if (values.length !== count || values.some((value, n) => value !== n)) throw new Error("not every record once");
  const offsets = await admin.fetchOffsets({ groupId: "smoke", topics: [topic] });
  const sum = offsets[0].partitions.reduce((sum, { offset }) => sum + Number(offset), 0);
  if (sum !== count) throw new Error(`committed offsets add up to ${sum}`);
  await admin.deleteTopics({ topics: [topic] });
  await admin.disconnect();
  console.log(`kafkajs ${require("kafkajs/package.json").version}: ${count} records, group of two lives`);
}

main().catch((error) => { console.error(error); process.exit(1); });
