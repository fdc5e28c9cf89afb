// Reads with the AWS SDK for JavaScript in a loop: URL polling|fan-out WARM SEGMENT SEGMENTS. Reports as meter.py does.
import { Kinesis } from "@aws-sdk/client-kinesis";
import { setTimeout } from "node:timers/promises";

const [endpoint, how, ...numbers] = process.argv.slice(2);
const [warm, segment, segments] = numbers.map(Number);
const last = warm + segment * segments;
const credentials = { accessKeyId: "local", secretAccessKey: "local" };
const client = new Kinesis({ endpoint, region: "us-east-1", credentials });
const StreamName = "cost";
const ShardId = "shardId-000000000000";
const costs = [];
const millis = [];
let count = 0;
let next = warm;
let before;

function cpuMicros() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

function add(records) {
  if (count >= last) return addLive(records);
  count += records.length;
  if (count < next) return;
  const now = { cpu: cpuMicros(), count };
  if (before) costs.push((now.cpu - before.cpu) / (now.count - before.count));
  before = now;
  while (next <= count) next += segment;
  if (count >= last) console.log(JSON.stringify(costs));
}

function addLive(records) {
  const now = process.hrtime.bigint();
  for (const { Data } of records) {
    const put = Buffer.from(Data.buffer, Data.byteOffset, 8).readBigUInt64BE();
    if (put === 0n) return console.log(JSON.stringify(millis));
    millis.push(Number(now - put) / 1e6);
  }
}

async function poll() {
  const opened = await client.getShardIterator({ StreamName, ShardId, ShardIteratorType: "TRIM_HORIZON" });
  let { ShardIterator } = opened;
  while (ShardIterator) {
    const answer = await client.getRecords({ ShardIterator, Limit: 10_000 });
    add(answer.Records);
    ShardIterator = answer.NextShardIterator;
    if (answer.MillisBehindLatest === 0) await setTimeout(200);
  }
}

async function subscribe() {
  const { StreamDescriptionSummary } = await client.describeStreamSummary({ StreamName });
  const { StreamARN } = StreamDescriptionSummary;
  const { Consumer } = await client.registerStreamConsumer({ StreamARN, ConsumerName: "javascript" });
  await setTimeout(1000); // it becomes active
  const StartingPosition = { Type: "TRIM_HORIZON" };
  const { EventStream } = await client.subscribeToShard({ ConsumerARN: Consumer.ConsumerARN, ShardId, StartingPosition });
  for await (const { SubscribeToShardEvent: event } of EventStream) add(event.Records);
}

await (how === "polling" ? poll() : subscribe());
