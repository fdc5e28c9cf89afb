"""Empty reads far behind the tip, many in a row, as the service answers on sparse shards: no reader takes them for the tip."""

import asyncio

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.local import Account, Delays, MemoryTransport
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fetcher_over_transport import fetcher_over
from fakes.scripted_source import RecordingSink

EMPTY_READS = 60
GIVEN = Properties(
    {"aws.region": "us-east-1", "flink.stream.initpos": "TRIM_HORIZON", "flink.shard.idle.interval": "2000"}
)


def read_to_the_tip(records):
    """The numbers that were read, whether the shard was ever idle, and the seconds until the run had ended."""

    async def job():
        account = Account(VirtualClock(), "us-east-1", Delays(), None)
        stream = account.create_stream("orders", 1)
        for number in range(records):
            stream.put(str(number).encode(), "k")
        await asyncio.sleep(600)
        account.faults.start_random(f"empty@GetRecords*{EMPTY_READS}")
        sink = RecordingSink()
        fetcher = fetcher_over(MemoryTransport(account), GIVEN, sink, VirtualClock())
        await fetcher.open()
        started, idle = asyncio.get_running_loop().time(), []
        running = asyncio.create_task(fetcher.run_bounded(Bounds(stop_at_tip=True)))
        while not running.done():
            idle += [shard["idle"] for shard in fetcher.metrics()["shards"].values()]
            await asyncio.sleep(0.5)
        await running
        await fetcher.close()
        return [number for _, number in sink.rows], any(idle), asyncio.get_running_loop().time() - started

    return run_virtual(job())


def test_what_follows_is_read_and_the_shard_is_never_idle():
    numbers, was_idle, _ = read_to_the_tip(records=5)

    assert (numbers, was_idle) == ([0, 1, 2, 3, 4], False)


def test_reading_goes_on_at_the_rate_of_every_read():
    _, _, seconds = read_to_the_tip(records=5)

    assert seconds < EMPTY_READS * 0.25 + 1  # five reads a second
