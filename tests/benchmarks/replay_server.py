"""A server process that answers from records encoded before, so that it is never the limit: SHARDS RECORDS EVENT SIZE; prints its port.

Every shard of the one stream `replay` is closed and holds the same RECORDS records of SIZE random bytes, a millisecond of arrival apart.
GetRecords keeps to its Limit, an iterator is an index; SubscribeToShard sends everything, EVENT records in each event.
"""

import asyncio
import base64
import json
import random
import sys
from functools import cache

from aiohttp import web
from event_frames import frame, initial_response

SHARDS, RECORDS, EVENT, SIZE = (int(argument) for argument in sys.argv[1:])
FIRST_SEQUENCE = 49600000000000000000000000000000000000000000000000000000
EVENT_HEADERS = {":message-type": "event", ":event-type": "SubscribeToShardEvent", ":content-type": "application/json"}


def wire_records():
    rnd = random.Random(1)
    for n in range(RECORDS):
        yield json.dumps(
            {
                "SequenceNumber": str(FIRST_SEQUENCE + n),
                "ApproximateArrivalTimestamp": 1700000000.123 + n / 1000,
                "Data": base64.b64encode(rnd.randbytes(SIZE)).decode(),
                "PartitionKey": f"key-{n % 997}",
            }
        ).encode()


ENCODED = list(wire_records())


def body(start, stop, **more):
    """The records from `start` on and what goes with them; the names in `more` whose value is None are left out at the shard's end."""
    millis = max(RECORDS - stop, 0)
    rest = {"MillisBehindLatest": millis} | (more if stop < RECORDS else {"ChildShards": []})
    return b'{"Records":[' + b",".join(ENCODED[start:stop]) + b"]," + json.dumps(rest).encode()[1:]


@cache
def event(start):
    stop = start + EVENT
    return frame(EVENT_HEADERS, body(start, stop, ContinuationSequenceNumber=str(FIRST_SEQUENCE + stop)))


def listed_shards(request):
    width = 2**128 // SHARDS
    return {
        "Shards": [
            {
                "ShardId": f"shardId-{n:012}",
                "HashKeyRange": {"StartingHashKey": str(n * width), "EndingHashKey": str((n + 1) * width - 1)},
                "SequenceNumberRange": {
                    "StartingSequenceNumber": str(FIRST_SEQUENCE),
                    "EndingSequenceNumber": str(FIRST_SEQUENCE + RECORDS),
                },
            }
            for n in range(SHARDS)
        ]
    }


def shard_iterator(request):
    return {"ShardIterator": "0"}


def got_records(request):
    start = int(request["ShardIterator"])
    stop = start + request.get("Limit", 10_000)
    return body(start, stop, NextShardIterator=str(stop))


ANSWERS = {"ListShards": listed_shards, "GetShardIterator": shard_iterator, "GetRecords": got_records}


async def answer(request):
    operation, asked = request.headers["X-Amz-Target"].rpartition(".")[2], json.loads(await request.read())
    if operation == "SubscribeToShard":
        return await pushed(request)
    said = ANSWERS[operation](asked)
    return web.Response(body=said if isinstance(said, bytes) else json.dumps(said).encode())


async def pushed(request):
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(initial_response())
    for start in range(0, RECORDS, EVENT):
        await response.write(event(start))
    return response


async def main():
    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
