"""A group that reads by enhanced fan-out shares one registered consumer: only the last process takes it away."""

import pytest

from groups.stores import STORES
from groups.worker_group import SHARDS, TIMES, worker_group
from processes.job_files import end

FAN_OUT = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "group"}


@pytest.mark.kills
def test_a_process_that_leaves_keeps_the_consumer_that_the_others_use(tmp_path):
    with (
        STORES["sqlite"](tmp_path) as properties,
        worker_group(tmp_path, SHARDS, {**properties, **TIMES, **FAN_OUT}) as group,
    ):
        for name in ("first", "second"):
            group.join(name)
        group.wait_until_each_writes("first", "second")

        assert end(group.processes["first"]) == 0
        assert "deregistered" not in group.log("first")
        group.wait_until_each_writes("second")

        assert end(group.processes["second"]) == 0
        assert "deregistered consumer" in group.log("second")
        assert "registering it again" not in group.log("second")
