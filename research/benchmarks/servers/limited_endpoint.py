"""A process: the embedded endpoint with the service's quotas and a stream `s` of one shard: [percent refused]; prints its port."""

import asyncio
import random
import sys

from recordpublisher.local import LocalKinesis, Quotas


def refuse_at_random(throttle, percent):
    """Refuse this percentage of the records put, whatever the rate."""
    admit = throttle.admit_write
    throttle.admit_write = lambda shard, size: random.random() * 100 >= percent and admit(shard, size)


async def main(percent):
    async with LocalKinesis(streams={"s": 1}, quotas=Quotas.service()) as endpoint:
        refuse_at_random(endpoint.account.throttle, percent)
        print(endpoint.port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


asyncio.run(main(float(sys.argv[1])))
