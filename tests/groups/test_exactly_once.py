"""Real processes, in a group and alone, whose sink keeps the positions: each record is written once, whatever happens (E1, E3, E5)."""

import asyncio
import signal
from collections import Counter

import pytest

from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.publishers.properties.properties import Properties

from groups.exactly_once_sinks import LEASES_ELSEWHERE, SINKS
from groups.load import SteadyLoad
from groups.worker_group import SHARDS, TIMES, worker_group
from processes.job_files import end
from processes.process_faults import kill

pytestmark = pytest.mark.timeout(900)
MARKS = {LEASES_ELSEWHERE: pytest.mark.compare}
"""Maven: it belongs to `make compare`."""


@pytest.fixture(params=[pytest.param(name, marks=MARKS.get(name, pytest.mark.kills)) for name in SINKS])
def target(request, tmp_path):
    with SINKS[request.param](tmp_path) as target:
        yield target


def owners(properties):
    """How many workers have shards."""

    async def read():
        job = Properties({**properties, "flink.job.name": "orders"})
        store = conditional_store_of(properties["flink.state.uri"], "flink.state.uri", job)
        try:
            table = await GroupStore(store, 30).read_table()
            return 0 if table is None else len(table.document.owners)
        finally:
            await store.close()

    return asyncio.run(read())


def wait_until_all_is_written(group, target):
    sent = set(group.sent)
    group.wait_until(lambda: sent <= {number for _, number in target.rows()})


def test_each_record_is_written_once_through_kills_suspensions_joins_and_reshards(tmp_path, target):
    with worker_group(tmp_path, SHARDS, {**target.properties, **TIMES}) as group:
        with SteadyLoad(group, SHARDS, 5):
            for name in ("first", "second", "third"):
                group.join(name)
            group.wait_until(lambda: owners(target.properties) == 3)
            wait_until_all_is_written(group, target)

            kill(group.processes["first"].pid)
            group.split()
            group.join("fourth")
            wait_until_all_is_written(group, target)
            group.wait_until(lambda: owners(target.properties) == 3)

            group.suspend("second")
            group.wait_until(lambda: group.is_sealed("second"))
            group.merge()
            wait_until_all_is_written(group, target)
            kill(group.processes["second"].pid, signal.SIGCONT)
            group.wait_until(lambda: "was replaced" in group.log("second"))
            group.wait_until(lambda: owners(target.properties) == 3)

            assert end(group.processes["third"]) == 0
        wait_until_all_is_written(group, target)
        assert [end(group.processes[name]) for name in ("second", "fourth")] == [0, 0]

        rows = target.rows()
    assert Counter(number for _, number in rows) == Counter(group.sent)


def test_each_record_is_written_once_by_a_job_alone_through_a_kill_a_suspension_and_reshards(tmp_path, target):
    with worker_group(tmp_path, SHARDS, {**target.properties, **TIMES}) as job:
        with SteadyLoad(job, SHARDS, 5):
            job.start("first")
            job.wait_until(lambda: owners(target.properties) == 1)
            wait_until_all_is_written(job, target)
            kill(job.processes["first"].pid)
            job.processes["first"].wait()  # a process that is still in the list may be running, and would be a rival
            job.split()

            job.start("second")
            wait_until_all_is_written(job, target)
            job.suspend("second")
            job.merge()

            job.start("third")
            wait_until_all_is_written(job, target)
            kill(job.processes["second"].pid, signal.SIGCONT)
            assert job.processes["second"].wait(timeout=60) == 1
        wait_until_all_is_written(job, target)
        assert end(job.processes["third"]) == 0

        rows = target.rows()
    assert Counter(number for _, number in rows) == Counter(job.sent)
