"""Groups of real processes over each store: workers join, are killed, suspended and ended, and shards are split and merged, under load."""

import signal
import time

import pytest

from groups.load import SteadyLoad
from groups.repeats import check_written
from groups.stores import STORES
from groups.worker_group import SHARDS, TIMES, worker_group
from processes.command_line import command
from processes.job_files import end
from processes.process_faults import kill


@pytest.mark.timeout(900)
def test_nothing_is_lost_and_only_what_a_fault_explains_is_repeated(group):
    faults = {}
    with SteadyLoad(group, SHARDS, 5):
        for name in ("first", "second", "third"):
            group.join(name)
        group.wait_until_each_writes("first", "second", "third")

        faults["first"] = time.time()
        kill(group.processes["first"].pid)
        group.split()
        group.join("fourth")
        group.wait_until_each_writes("second", "third", "fourth")

        group.suspend("second")
        faults["second"] = time.time()
        group.wait_until(lambda: group.is_sealed("second"))
        group.merge()
        group.wait_until_all_is_written()
        kill(group.processes["second"].pid, signal.SIGCONT)
        group.wait_until(lambda: "was replaced" in group.log("second"))
        group.wait_until_each_writes("second", "third", "fourth")

        assert end(group.processes["third"]) == 0
        group.wait_until_each_writes("second", "fourth")
    group.wait_until_all_is_written()
    assert [end(group.processes[name]) for name in ("second", "fourth")] == [0, 0]

    check_written(group, faults)


@pytest.mark.kills
def test_a_process_that_is_drained_by_a_command_ends_and_repeats_nothing(tmp_path):
    with STORES["sqlite"](tmp_path) as properties, worker_group(tmp_path, SHARDS, {**properties, **TIMES}) as group:
        for name in ("first", "second"):
            group.join(name)
        group.wait_until_each_writes("first", "second")
        done = command("group", "drain", str(group.job("first")), group.worker("first"))
        assert (done.returncode, done.stdout) == (0, f"worker {group.worker('first')} has left\n"), done.stderr
        assert group.processes["first"].wait(timeout=60) == 0
        group.wait_until_each_writes("second")
        group.wait_until_all_is_written()
        assert end(group.processes["second"]) == 0
        assert check_written(group) == 0
