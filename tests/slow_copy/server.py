"""A process with the embedded endpoint: a stream `in` of RECORDS numbered records of 200 B, an empty stream `out`; prints its port.

Quotas are the service's: a shard gives 2 MiB a second, about 10,000 of these records, and takes 1,000 records a second.
"""

import asyncio
import sys

from recordpublisher.local import LocalKinesis, Quotas

RECORDS = int(sys.argv[1])


async def main():
    async with LocalKinesis(streams={"in": 1, "out": 1}, quotas=Quotas.service()) as endpoint:
        source = endpoint.stream("in")
        for number in range(RECORDS):
            source.put(str(number).encode().rjust(200), f"key-{number % 997}")
        print(endpoint.port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main())
