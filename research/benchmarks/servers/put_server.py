"""A server process that accepts and drops every record of PutRecords, so that it is never the bottleneck: SHARDS; prints its port."""

import asyncio
import json
import sys

from aiohttp import web

SHARDS = int(sys.argv[1])
WIDTH = 2**128 // SHARDS
RESULT = b'{"SequenceNumber":"49600000000000000000000000000000000000000000000000000000","ShardId":"shardId-%012d"}'


def shards():
    return [
        {
            "ShardId": f"shardId-{n:012}",
            "HashKeyRange": {"StartingHashKey": str(n * WIDTH), "EndingHashKey": str((n + 1) * WIDTH - 1)},
            "SequenceNumberRange": {"StartingSequenceNumber": "1"},
        }
        for n in range(SHARDS)
    ]


def put(body):
    """Every response names the first shard, since with several the right one is not computed."""
    results = b",".join([RESULT % 0] * body.count(b'"PartitionKey"'))
    return b'{"FailedRecordCount":0,"Records":[' + results + b"]}"


async def answer(request):
    operation, body = request.headers["X-Amz-Target"].rpartition(".")[2], await request.read()
    if operation == "PutRecords":
        return web.Response(body=put(body))
    described = {"StreamName": "out", "StreamStatus": "ACTIVE", "StreamARN": "arn:aws:kinesis:us-east-1:0:stream/out"}
    said = {
        "ListShards": {"Shards": shards()},
        "DescribeStream": {"StreamDescription": {**described, "Shards": shards(), "HasMoreShards": False}},
        "DescribeStreamSummary": {"StreamDescriptionSummary": {**described, "OpenShardCount": SHARDS}},
    }
    return web.Response(body=json.dumps(said[operation]).encode())


async def main():
    app = web.Application(client_max_size=32 << 20)
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
