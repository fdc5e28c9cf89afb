"""A server process that answers bodies made before: RECORDS EVENT ROUNDS SIZE; prints its port."""

import asyncio
import base64
import json
import random
import sys

from aiohttp import web
from event_frames import frame, initial_response

RECORDS, EVENT, ROUNDS, SIZE = (int(argument) for argument in sys.argv[1:])


def wire_body(count, size, **more):
    rnd = random.Random(1)
    records = [
        {
            "SequenceNumber": str(49600000000000000000000000000000000000000000000000000000 + n),
            "ApproximateArrivalTimestamp": 1700000000.123 + n / 1000,
            "Data": base64.b64encode(rnd.randbytes(size)).decode(),
            "PartitionKey": f"key-{n % 997}",
        }
        for n in range(count)
    ]
    return json.dumps({"Records": records, "MillisBehindLatest": 0, **more}).encode()


def serve(size):
    """A process that answers bodies made before."""
    body = wire_body(RECORDS, size, NextShardIterator="A" * 256)
    event = wire_body(EVENT, size, ContinuationSequenceNumber="1")
    events = frame({":message-type": "event", ":event-type": "SubscribeToShardEvent"}, event)

    async def answer(request):
        await request.read()
        if not request.headers["X-Amz-Target"].endswith("SubscribeToShard"):
            return web.Response(body=body)
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(initial_response())
        for _ in range(ROUNDS * RECORDS // EVENT):
            await response.write(events)
        return response

    async def main():
        app = web.Application()
        app.router.add_post("/", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.sleep(600)

    asyncio.run(main())


serve(SIZE)
