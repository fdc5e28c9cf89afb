"""A process that reads `live` through the whole pipeline until no record has arrived for a second: URL POLLING|EFO.

Prints `ready` when every shard is being read. Prints JSON: milliseconds from the call that put a record until its deserializer ran (`read`)
and until the sink had it (`written`), the first second left out; its CPU and the time that it waited for a core, both as a share of
one; and what held it up by itself: the pauses of Python's garbage collector, in milliseconds.
"""

import asyncio
import gc
import json
import struct
import sys
import time
from array import array
from pathlib import Path

import recordpublisher as rp

from benchmarks.clients.pipeline_client import access_to
from benchmarks.figures.percentiles import percentiles

WARM_UP_NANOS = 10**9
STAMP = struct.Struct("!q")


class Stopwatch(rp.Sink):
    """Keeps when records were put, read and written; in arrays, so that keeping them makes no work for the garbage collector."""

    def __init__(self):
        self.put, self.read, self.written = array("q"), array("q"), array("q")
        self.last = None

    async def write(self, batch):
        self.last = time.monotonic_ns()
        self.put.extend([STAMP.unpack_from(data)[0] for data in batch.data])
        self.read.extend(batch.values)
        self.written.extend([self.last] * len(batch))

    def said(self):
        warm = self.put[0] + WARM_UP_NANOS
        counted = [index for index, put in enumerate(self.put) if put >= warm]
        return {
            "records": len(counted),
            "read": percentiles([(self.read[index] - self.put[index]) / 1e6 for index in counted]),
            "written": percentiles([(self.written[index] - self.put[index]) / 1e6 for index in counted]),
        }


class Pauses:
    """Keeps how long each garbage collection took, milliseconds."""

    def __init__(self):
        self.millis = []
        gc.callbacks.append(self)

    def __call__(self, phase, _):
        if phase == "start":
            self.began = time.monotonic()
        else:
            self.millis.append((time.monotonic() - self.began) * 1000)


def used():
    """Seconds so far: on a core, ready and waiting for one, on the clock (the main thread's)."""
    on_core, waiting, _ = Path("/proc/self/schedstat").read_text().split()
    return int(on_core) / 1e9, int(waiting) / 1e9, time.monotonic()


async def until(condition):
    for _ in range(600):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(condition)


def all_are_read(fetcher):
    """A subscription's first event comes within five seconds, also when it is empty."""
    reads = [shard["reads"] for shard in fetcher.metrics()["shards"].values()]
    return bool(reads) and all(reads)


async def main(url, publisher):
    properties = access_to(url, publisher) | {
        "flink.stream.efo.consumername": "latency",
        "flink.stream.initpos": "LATEST",
    }
    sink = Stopwatch()
    fetcher = rp.DataFetcher(["live"], properties, sink=sink, deserializer=lambda _: time.monotonic_ns())
    async with fetcher:
        running = asyncio.create_task(fetcher.run())
        await until(lambda: all_are_read(fetcher))
        print("ready", flush=True)
        await until(lambda: sink.last is not None)
        pauses, before = Pauses(), used()
        await until(lambda: time.monotonic_ns() - sink.last > 10**9)
        core, waited, wall = (after - then for after, then in zip(used(), before, strict=True))
        fetcher.stop()
        await running
    shares = {"core": core / (wall - 1), "waited": waited / (wall - 1)}
    print(json.dumps({**sink.said(), **shares, "pauses": sorted(pauses.millis)[-3:]}))


asyncio.run(main(*sys.argv[1:]))
