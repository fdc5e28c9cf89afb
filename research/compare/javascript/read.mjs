// Puts ten records, polls them and reads them by a subscription; prints what it got as JSON.
import { Kinesis } from "@aws-sdk/client-kinesis";
import { setTimeout } from "node:timers/promises";

const RECORDS = 10;
const [endpoint, StreamName] = process.argv.slice(2);
const credentials = { accessKeyId: "local", secretAccessKey: "local" };
const client = new Kinesis({ endpoint, region: "us-east-1", credentials });
const text = (data) => Buffer.from(data).toString();

for (let number = 0; number < RECORDS; number++) {
  const key = String(number).padStart(2, "0");
  await client.putRecord({ StreamName, PartitionKey: key, Data: Buffer.from(key) });
}

async function poll(ShardId) {
  const { ShardIterator } = await client.getShardIterator({ StreamName, ShardId, ShardIteratorType: "TRIM_HORIZON" });
  return (await client.getRecords({ ShardIterator })).Records.map((record) => text(record.Data));
}

async function register(StreamARN) {
  const { Consumer } = await client.registerStreamConsumer({ StreamARN, ConsumerName: "javascript" });
  const isActive = async () =>
    (await client.describeStreamConsumer(Consumer)).ConsumerDescription.ConsumerStatus === "ACTIVE";
  while (!(await isActive())) await setTimeout(100);
  return Consumer.ConsumerARN;
}

// reads until the tip of the shard
async function subscribe(ConsumerARN, ShardId) {
  const StartingPosition = { Type: "TRIM_HORIZON" };
  const { EventStream } = await client.subscribeToShard({ ConsumerARN, ShardId, StartingPosition });
  const found = [];
  for await (const { SubscribeToShardEvent: event } of EventStream) {
    found.push(...event.Records.map((record) => text(record.Data)));
    if (event.MillisBehindLatest === 0) return found;
  }
  return found;
}

const { StreamDescriptionSummary } = await client.describeStreamSummary({ StreamName });
const { Shards } = await client.listShards({ StreamName });
const consumer = await register(StreamDescriptionSummary.StreamARN);
const result = { polled: [], subscribed: [] };
for (const { ShardId } of Shards) {
  result.polled.push(...(await poll(ShardId)));
  result.subscribed.push(...(await subscribe(consumer, ShardId)));
}
console.log(JSON.stringify(result));
process.exit(0);
