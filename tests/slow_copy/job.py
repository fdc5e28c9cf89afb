"""A process that copies `in` to `out`, a tenth as fast as it can read: URL POLLING|EFO SECONDS QUEUE-RECORDS (0: the default).

Prints a JSON line every half second: seconds, resident MB, outstanding and acknowledged records, cycles of back-pressure; at the end one
with the lag of the event loop (ms: median, 99th percentile, most).
"""

import asyncio
import gc
import json
import os
import sys
import time

import recordpublisher as rp
from recordpublisher.plugins.sinks.kinesis import KinesisSink

URL, PUBLISHER, SECONDS, LIMIT = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
PROPERTIES = {
    "aws.region": "us-east-1",
    "aws.endpoint": URL,
    "aws.credentials.provider.basic.accesskeyid": "local",
    "aws.credentials.provider.basic.secretkey": "local",
    "flink.stream.initpos": "TRIM_HORIZON",
    "flink.stream.recordpublisher": PUBLISHER,
    "flink.stream.efo.consumername": "copy",
    "flink.sink.kinesis.stream": "out",
    "flink.state.checkpoint.interval": "-1",  # a checkpoint waits for everything: that would be a limit too
}
UNBOUNDED = {"flink.sink.kinesis.queue.bytes": 2**50}


def resident_mb():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def sample(sink, began):
    while True:
        await asyncio.sleep(0.5)
        shown = sink.metrics()
        print(
            json.dumps(
                {
                    "moment": round(time.monotonic(), 3),
                    "seconds": round(time.monotonic() - began, 2),
                    "resident_mb": round(resident_mb(), 1),
                    "outstanding": shown["outstandingRecordsCount"],
                    "acknowledged": shown["numRecordsOut"],
                    "cycles": shown["backpressureCycles"],
                    "throttles": shown["throttles"],
                }
            ),
            flush=True,
        )


async def measure_lag(lags):
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.01)
        lags.append((time.perf_counter() - began - 0.01) * 1000)


async def main():
    properties = {**PROPERTIES, **(UNBOUNDED if LIMIT else {})}
    sink = KinesisSink(properties, queue_limit=LIMIT or None)
    lags = []
    async with rp.DataFetcher(["in"], properties, sink=sink) as fetcher:
        gc.collect()
        watching = [asyncio.create_task(sample(sink, time.monotonic())), asyncio.create_task(measure_lag(lags))]
        result = await fetcher.run_bounded(max_time=SECONDS)
        for task in watching:
            task.cancel()
        shown = sink.metrics()
    lags.sort()
    quantiles = {"median": lags[len(lags) // 2], "p99": lags[len(lags) * 99 // 100], "most": lags[-1]}
    print(json.dumps({"written": result.records, "metrics": shown, "lag": quantiles}))


asyncio.run(main())
