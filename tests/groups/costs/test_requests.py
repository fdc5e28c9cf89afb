"""Requests an hour to DynamoDB, counted in front of its API: a process that runs alone, and a group of two workers, with default times."""

import asyncio
from collections import Counter

import pytest

from recordpublisher import Properties
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.plugins.stores.dynamodb_store import DynamoDbStore
from recordpublisher.testing import run_virtual

from fakes.leases.alone_process import AloneProcess
from fakes.leases.elastic_processes import DURATION, ElasticProcesses
from groups.costs.counting_proxy import READS, WRITES, counting_proxy
from groups.costs.threaded_store import ThreadedStore, loop_in_thread
from servers.moto_server import KEYS, serve_moto

pytestmark = pytest.mark.slow
SHARDS, HOUR, SECONDS, LOAD_SECONDS = 20, 3_600, 600, 5
DEFAULTS = {"flink.state.checkpoint.interval": 10_000}


@pytest.fixture(scope="module")
def dynamodb():
    with serve_moto() as url, counting_proxy(url) as proxy, loop_in_thread() as loop:
        yield proxy, loop


class Processes(ElasticProcesses):
    """Processes whose store is in DynamoDB."""

    def __init__(self, dynamodb, job):
        super().__init__(shards=SHARDS)
        self.proxy, self._loop = dynamodb
        self._uri = f"dynamodb://groups/{job}"

    def connect(self):
        properties = Properties({"aws.region": "us-east-1", "flink.state.endpoint": self.proxy.url, **KEYS})
        return ThreadedStore(DynamoDbStore(self._uri, "flink.state.uri", properties), self._loop)

    async def requests_an_hour(self, is_loaded):
        """Count the requests of ten minutes."""
        before = Counter(self.proxy.counts)
        for _ in range(SECONDS // LOAD_SECONDS):
            if is_loaded:
                self.send()
            await asyncio.sleep(LOAD_SECONDS)
        found = self.proxy.counts - before
        names = {"reads": READS, "writes": WRITES}
        return {kind: sum(found[name] for name in of) * HOUR / SECONDS for kind, of in names.items()}


@pytest.mark.parametrize(
    ("is_loaded", "reads", "writes"), [(False, 360, 12), (True, 0, 360)], ids=["at rest", "under load"]
)
def test_alone_makes_one_request_in_each_checkpoint_interval(dynamodb, is_loaded, reads, writes):
    async def story():
        group = Processes(dynamodb, f"alone-{is_loaded}")
        process = await AloneProcess(group, **DEFAULTS).start()
        group.send()
        await group.wait_until_all_is_written()
        found = await group.requests_an_hour(is_loaded)
        await process.stop()
        return found

    found = run_virtual(story())
    assert found["reads"] <= reads
    assert found["writes"] <= writes
    assert sum(found.values()) > 330


@pytest.mark.parametrize("is_loaded", [False, True], ids=["at rest", "under load"])
def test_two_workers_make_4320_requests_at_most(dynamodb, is_loaded):
    assert LeaseSettings().duration == DURATION

    async def story():
        group = Processes(dynamodb, f"group-{is_loaded}")
        workers = await group.join_two(**DEFAULTS)
        await asyncio.sleep(120)  # until the two are settled
        found = await group.requests_an_hour(is_loaded)
        for worker in workers:
            await worker.stop()
        return found

    found = run_virtual(story())
    assert sum(found.values()) <= 4_320
