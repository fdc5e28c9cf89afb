"""Real processes that run a job alone: two supervisors, and a process that is stopped for longer than a lease."""

import re
import signal
import time

import pytest

from groups.stores import STORES
from groups.worker_group import SHARDS, TIMES, worker_group
from processes.job_files import end
from processes.process_faults import kill

pytestmark = pytest.mark.kills
RIVALS = "Two supervisors seem to start the same job"


@pytest.fixture(params=["folder", "postgresql"])
def job(request, tmp_path):
    """A job whose processes run alone."""
    with STORES[request.param](tmp_path) as properties:
        given = {**properties, **TIMES, "flink.job.workers": "ALONE"}
        with worker_group(tmp_path, SHARDS, given) as group:
            yield group


def repeated(job):
    numbers = [each.sequence_number for each in job.written()]
    return len(numbers) - len(set(numbers))


@pytest.mark.timeout(300)
def test_the_start_of_a_second_supervisor_waits_and_says_so_once(job):
    job.start("a-1")
    job.wait_until_each_writes("a-1")
    job.start("b-1")
    assert job.processes["a-1"].wait(timeout=60) == 1
    assert re.search(r"worker \w+ was (replaced|sealed)", job.log("a-1"))
    job.wait_until_each_writes("b-1")

    job.start("a-2")
    job.wait_until(lambda: RIVALS in job.log("a-2"))
    for _ in range(3):  # it does not replace the other one
        job.wait_until_each_writes("b-1")
    assert job.written("a-2") == []
    assert end(job.processes["b-1"]) == 0
    job.wait_until_each_writes("a-2")
    job.wait_until_all_is_written()
    assert end(job.processes["a-2"]) == 0
    assert job.log("a-2").count(RIVALS) == 1
    assert " ERROR " in next(line for line in job.log("a-2").splitlines() if RIVALS in line)


@pytest.mark.timeout(300)
def test_a_process_that_was_stopped_for_longer_than_a_lease_reads_and_writes_on(job):
    job.start("alone")
    job.wait_until_each_writes("alone")
    job.suspend("alone")
    job.send(20)
    time.sleep(2 * TIMES["flink.lease.duration"] / 1000)
    kill(job.processes["alone"].pid, signal.SIGCONT)
    job.wait_until_each_writes("alone")
    job.wait_until_all_is_written()
    assert end(job.processes["alone"]) == 0
    assert repeated(job) == 0


@pytest.mark.timeout(300)
def test_a_process_that_was_stopped_and_replaced_ends_when_it_runs_again(job):
    job.start("first")
    job.wait_until_each_writes("first")
    job.suspend("first")
    job.start("second")
    job.wait_until_each_writes("second")
    kill(job.processes["first"].pid, signal.SIGCONT)
    assert job.processes["first"].wait(timeout=60) == 1
    assert re.search(r"worker \w+ was (replaced|sealed)", job.log("first"))
    job.wait_until_each_writes("second")
    job.wait_until_all_is_written()
    assert end(job.processes["second"]) == 0


@pytest.mark.timeout(300)
def test_a_worker_of_a_group_replaces_a_process_that_runs_alone(job):
    job.start("alone")
    job.wait_until_each_writes("alone")
    job.properties = {**job.properties, "flink.job.workers": "GROUP"}
    job.start("worker")
    assert job.processes["alone"].wait(timeout=60) == 1
    job.wait_until_each_writes("worker")
    job.wait_until_all_is_written()

    job.properties = {**job.properties, "flink.job.workers": "ALONE"}
    job.start("refused")
    assert job.processes["refused"].wait(timeout=60) == 1
    assert "sends heartbeats: stop it, or start with flink.job.workers=GROUP" in job.log("refused")
    assert end(job.processes["worker"]) == 0
    job.start("later")
    job.wait_until_each_writes("later")
    assert end(job.processes["later"]) == 0
