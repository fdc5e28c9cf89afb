"""E10 with real processes: a job goes over to a group and back, over each store, under load and with SIGKILL in between."""

import asyncio
import time

import pytest

from recordpublisher import Properties
from recordpublisher.fetcher.checkpoints.state_entries import read_entries
from recordpublisher.plugins.stores.by_location import conditional_store_of

from groups.load import SteadyLoad
from groups.repeats import check_written
from groups.stores import STORES
from groups.worker_group import SHARDS, TIMES, worker_group
from processes.job_files import end
from processes.process_faults import kill

FENCED = 1


def has_begun_to_take_over(store):
    """Whether a group has stopped the subtask."""

    async def read():
        properties = Properties({"aws.region": "us-east-1", **store})
        place = conditional_store_of(properties["flink.state.uri"], "flink.state.uri", properties, job="orders")
        try:
            return any(each.entry.taken_at is not None for each in (await read_entries(place)).values())
        finally:
            await place.close()

    return asyncio.run(read())


@pytest.mark.timeout(900)
def test_a_job_goes_over_to_a_group_and_back_and_only_what_a_kill_explains_is_repeated(group, store):
    faults = {}
    with SteadyLoad(group, SHARDS, 5):
        group.start("static")
        group.wait_until_each_writes("static")
        faults["static"] = time.time()
        kill(group.processes["static"].pid)

        group.join("refused")
        assert group.processes["refused"].wait(timeout=60) != 0
        assert "start once with `--takeover`" in group.log("refused")

        group.join("killed", "--takeover")  # while it takes over, or just after that
        group.wait_until(lambda: has_begun_to_take_over(store))
        faults["killed"] = time.time()
        kill(group.processes["killed"].pid)
        for name in ("first", "second"):
            group.join(name, "--takeover")
        group.wait_until_each_writes("first", "second")

        group.start("too early", "--takeover")
        assert group.processes["too early"].wait(timeout=60) != 0
        assert "sends heartbeats: stop all its processes first" in group.log("too early")

        faults["first"] = time.time()
        kill(group.processes["first"].pid)
        assert end(group.processes["second"]) == 0
        group.start("back", "--takeover")
        group.wait_until_each_writes("back")

        faults["back"] = time.time()
        group.join("again", "--takeover")  # while the subtask runs: it is refused its next checkpoint
        assert group.processes["back"].wait(timeout=60) == FENCED
        fenced_until = {"back": time.time()}
        assert "a group of workers has taken over the state" in group.log("back")
        group.wait_until_each_writes("again")
    group.wait_until_all_is_written()
    assert end(group.processes["again"]) == 0

    check_written(group, faults, fenced_until)


@pytest.mark.kills
def test_a_job_that_is_ended_before_it_goes_over_writes_each_record_once(tmp_path):
    with STORES["sqlite"](tmp_path) as properties, worker_group(tmp_path, SHARDS, {**properties, **TIMES}) as group:
        for name, options in {
            "static": (),
            "elastic": ("--elastic", "--takeover"),
            "static again": ("--takeover",),
            "elastic again": ("--elastic", "--takeover"),
        }.items():
            group.send(50)
            group.start(name, *options)
            group.wait_until_all_is_written()
            assert end(group.processes[name]) == 0
        assert check_written(group) == 0
