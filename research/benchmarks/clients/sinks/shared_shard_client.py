"""A process that puts records of 100 B with KinesisSink as fast as it may: URL NONE|PER_KEY SECONDS KEYS WARM_UP.

Prints records acknowledged a second after the warm-up, and the percentage of the records sent that was refused.
"""

import asyncio
import sys
import time
from contextlib import suppress

from recordpublisher.plugins.sinks.kinesis import KinesisSink


async def main(url, ordering, seconds, keys, warm_up):
    properties = {
        "aws.region": "us-east-1",
        "aws.endpoint": url,
        "aws.credentials.provider.basic.accesskeyid": "a",
        "aws.credentials.provider.basic.secretkey": "s",
    }

    async def write(sink):
        count = 0
        while True:
            await sink.put(bytes(100), f"key-{count % keys}")
            count += 1

    sink = KinesisSink("s", properties, queue_limit=2_000, ordering=ordering)
    await sink.__aenter__()
    writing = asyncio.create_task(write(sink))
    await asyncio.sleep(warm_up)
    began, before = time.monotonic(), sink.metrics()
    await asyncio.sleep(seconds)
    took, after = time.monotonic() - began, sink.metrics()
    writing.cancel()
    with suppress(asyncio.CancelledError):
        await writing
    await sink._writer.abort()
    taken, refused = (after[name] - before[name] for name in ("kinesisRecords", "throttles"))
    print(taken / took, 100 * refused / max(1, taken + refused))


asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])))
