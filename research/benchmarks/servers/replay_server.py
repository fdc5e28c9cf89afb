"""A server process that responds with records encoded in advance, so that it is never the bottleneck.

SHARDS RECORDS EVENT SIZE [PARTS [SMALL [CERTIFICATE KEY]]]; prints its port. Every shard of the one stream `replay` is closed and holds
the same RECORDS records of SIZE random bytes, a millisecond of arrival apart, from an hour ago. GetRecords keeps to its Limit and to
10 MiB, an iterator says where a read begins and where the shard ends; SubscribeToShard sends everything, EVENT records in each event. With
PARTS each record is a KPL aggregate of so many sub-records of SIZE bytes. With SMALL every shard but the first one holds so many records
only. With the files of a certificate and its key it speaks TLS, as the service does.
"""

import asyncio
import base64
import hashlib
import json
import random
import ssl
import sys
import time
from contextlib import suppress
from functools import cache
from itertools import count, islice

from aiohttp import web

from servers.event_frames import frame, initial_response
from servers.kpl_aggregates import aggregate

SHARDS, RECORDS, EVENT, SIZE, PARTS, SMALL = (int(argument) for argument in [*sys.argv[1:7], "0", "-1"][:6])
CERTIFICATE = sys.argv[7:9]
LARGEST_RESPONSE = max(1, 10 * 2**20 // (SIZE * max(PARTS, 1)))
"""Records in 10 MiB, of which the service sends no more at once."""
FIRST_SHARD = f"shardId-{0:012}"
FIRST_SEQUENCE = 49600000000000000000000000000000000000000000000000000000
FIRST_ARRIVAL = int(time.time()) - 3600 + 0.123  # within retention
EVENT_HEADERS = {":message-type": "event", ":event-type": "SubscribeToShardEvent", ":content-type": "application/json"}


def keys_of_the_lower_half():
    """Of those shards own what they read: the first of two, or the only one."""
    keys = (f"key-{n}" for n in count())
    return list(islice((key for key in keys if hashlib.md5(key.encode()).digest()[0] < 128), 997))


def payloads():
    rnd = random.Random(1)
    keys = keys_of_the_lower_half()
    for n in range(RECORDS):
        if PARTS:
            yield aggregate(*((keys[(n * PARTS + part) % 997], rnd.randbytes(SIZE)) for part in range(PARTS)))
        else:
            yield rnd.randbytes(SIZE)


def wire_records():
    for n, data in enumerate(payloads()):
        yield json.dumps(
            {
                "SequenceNumber": str(FIRST_SEQUENCE + n),
                "ApproximateArrivalTimestamp": FIRST_ARRIVAL + n / 1000,
                "Data": base64.b64encode(data).decode(),
                "PartitionKey": f"key-{n % 997}",
            },
            separators=(",", ":"),  # as the service writes it
        ).encode()


ENCODED = list(wire_records())


def records_of(shard_id):
    return RECORDS if SMALL < 0 or shard_id == FIRST_SHARD else SMALL


def body(start, stop, end, **more):
    """The records from `start` on and what goes with them; `more` is left out at the shard's end."""
    millis = max(end - stop, 0)
    rest = {"MillisBehindLatest": millis} | (more if stop < end else {"ChildShards": []})
    return b'{"Records":[' + b",".join(ENCODED[start : min(stop, end)]) + b"]," + json.dumps(rest).encode()[1:]


@cache
def event(start, end):
    stop = start + EVENT
    return frame(EVENT_HEADERS, body(start, stop, end, ContinuationSequenceNumber=str(FIRST_SEQUENCE + stop)))


def list_all_shards(request):
    width = 2**128 // SHARDS
    return {
        "Shards": [
            {
                "ShardId": f"shardId-{n:012}",
                "HashKeyRange": {"StartingHashKey": str(n * width), "EndingHashKey": str((n + 1) * width - 1)},
                # each is closed after it was listed: a stream without open shards would be listed again for some seconds
                "SequenceNumberRange": {"StartingSequenceNumber": str(FIRST_SEQUENCE)},
            }
            for n in range(SHARDS)
        ]
    }


def shard_iterator(request):
    """An index into the records and where they end: from the first, or from the one behind a sequence number."""
    is_after = request["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"
    start = int(request["StartingSequenceNumber"]) - FIRST_SEQUENCE + 1 if is_after else 0
    return {"ShardIterator": f"{start}/{records_of(request['ShardId'])}"}


def got_records(request):
    start, _, end = request["ShardIterator"].partition("/")
    start, end = int(start), int(end or RECORDS)
    stop = start + min(request.get("Limit", 10_000), LARGEST_RESPONSE)
    return body(start, stop, end, NextShardIterator=f"{stop}/{end}")


def described(request):
    summary = {"StreamName": "replay", "StreamStatus": "ACTIVE", "OpenShardCount": SHARDS, "RetentionPeriodHours": 24}
    return {"StreamDescriptionSummary": {**summary, "RecordDistributionStrategy": "KEY"}}


ANSWERS = {
    "DescribeStreamSummary": described,
    "ListShards": list_all_shards,
    "GetShardIterator": shard_iterator,
    "GetRecords": got_records,
}


async def answer(request):
    operation, asked = request.headers["X-Amz-Target"].rpartition(".")[2], json.loads(await request.read())
    if operation == "SubscribeToShard":
        return await pushed(request, records_of(asked["ShardId"]))
    said = ANSWERS[operation](asked)
    return web.Response(body=said if isinstance(said, bytes) else json.dumps(said).encode())


async def pushed(request, end):
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(initial_response())
    with suppress(ConnectionError):  # the reader may disconnect at any time
        for start in range(0, max(end, 1), EVENT):
            await response.write(event(start, end))
    return response


def secured():
    if not CERTIFICATE:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*CERTIFICATE)
    return context


async def main():
    app = web.Application()
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=secured()).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
