"""A process: the embedded endpoint with a stream `cost` of one shard that holds records: COUNT SIZE. Prints its URL.

For each line `RATE SECONDS` on its standard input it puts live records at that rate; the first eight bytes of each are the time of the put,
nanoseconds of CLOCK_MONOTONIC. A record that begins with zeros is the last one.
"""

import asyncio
import os
import sys
import time

from recordpublisher.local import LocalKinesis

PUTS_A_SECOND = 100


async def put_live(stream, size, rate, seconds):
    began = time.monotonic()
    rest = os.urandom(size - 8)
    for number in range(PUTS_A_SECOND * seconds):
        await asyncio.sleep(began + number / PUTS_A_SECOND - time.monotonic())
        for key in range(rate // PUTS_A_SECOND):
            stream.put(time.monotonic_ns().to_bytes(8) + rest, f"key-{key}")
    stream.put(bytes(size), "key")


async def main(count, size):
    async with LocalKinesis(streams={"cost": 1}, http2=True) as endpoint:
        stream = endpoint.stream("cost")
        for number in range(count):
            stream.put(os.urandom(size), f"key-{number % 997}")
        print(endpoint.url, flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await put_live(stream, size, *map(int, line.split()))


asyncio.run(main(*map(int, sys.argv[1:])))
