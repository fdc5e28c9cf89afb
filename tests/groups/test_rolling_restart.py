"""E5 with real processes: all workers are restarted by SIGTERM, under load and reshards; nothing is lost or repeated."""

import statistics

import pytest

from groups.load import SteadyLoad
from groups.scaling.rolling_restart import end_all, restart_each, unread_seconds
from groups.worker_group import SHARDS, TIMES, worker_group

WORKERS = 3
LEASE_SECONDS = 20
"""The default."""


@pytest.mark.timeout(900)
def test_a_rolling_restart_with_a_split_and_a_merge_repeats_nothing(tmp_path, store):
    properties = {**store, **TIMES, "flink.lease.duration": LEASE_SECONDS * 1000}
    with worker_group(tmp_path, SHARDS, properties) as group:
        with SteadyLoad(group, SHARDS, 5):
            restart_each(group, WORKERS)
            group.wait_until_each_writes(*(f"new-{number}" for number in range(WORKERS)))
        end_all(group)

        assert len({each.shard for each in group.written()}) == SHARDS + 3
        seconds = unread_seconds(group)
        print(f"without a reader: median {statistics.median(seconds):.1f} s, most {seconds[-1]:.1f} s")
        assert statistics.median(seconds) < LEASE_SECONDS / 2
        assert seconds[-1] < LEASE_SECONDS
