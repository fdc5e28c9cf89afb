"""What the processes of `run --parallelism` get from their supervisor, and what it reads of them."""

import sys
from pathlib import Path

import msgspec
import pytest

from recordpublisher.fetcher.monitoring.worker_view import WorkerProgress
from recordpublisher.plugins.runtime.job_progress import JobProgressMeter
from recordpublisher.plugins.runtime.supervisor import Supervisor, properties_of_group
from recordpublisher.publishers.properties.properties import Properties


def test_processes_share_the_shards_as_a_group_in_the_store_of_the_job():
    with properties_of_group(Properties({"flink.state.uri": "s3://bucket/job", "my.own": "kept"})) as given:
        assert given == {"flink.state.uri": "s3://bucket/job", "my.own": "kept", "flink.job.workers": "GROUP"}


def test_a_job_without_positions_has_its_leases_in_a_folder_that_goes_with_it():
    with properties_of_group(Properties({"flink.sink": "memory"})) as given:
        folder = Path(given["flink.state.uri"])
        assert folder.is_dir()
    assert not folder.exists()


def test_a_sink_that_keeps_positions_keeps_the_leases_too():
    with properties_of_group(Properties({"flink.sink": "jsonl", "flink.sink.jsonl.path": "rows"})) as given:
        assert "flink.state.uri" not in given


def test_processes_that_receive_from_a_queue_are_no_group():
    queue = Properties({"flink.stream.recordpublisher": "QUEUE"})
    with properties_of_group(queue) as given:
        assert given is queue


PROGRESS = WorkerProgress(0, 7, 1, 0, 0, 0, 0, None)
PRINTING_WORKER = """
import os, sys
print("hello from a handler")
print(5)
os.write(int(sys.argv[sys.argv.index("--supervised") + 1]), sys.argv[1].encode())
"""


@pytest.mark.parametrize("noise", ["", "garbage\n", "5\n", "x" * 50_000 + "\n"])
async def test_what_user_code_prints_is_no_report_and_what_is_no_report_ends_nothing(noise, capfd):
    reports = []
    line = msgspec.json.encode(PROGRESS).decode() + "\n"
    command = [sys.executable, "-c", PRINTING_WORKER, noise + line]
    await Supervisor(command, Properties(), 1, reports.append).run()

    assert reports == [PROGRESS]
    assert capfd.readouterr().out == "hello from a handler\n5\n"


async def test_a_process_that_a_worker_leaves_behind_does_not_keep_the_job(tmp_path):
    script = "import os, sys, time\nif not os.fork():\n    time.sleep(20)"

    await Supervisor([sys.executable, "-c", script], Properties(), 1, [].append).run()


LEAVING_WORKER = """
import os, sys, time
descriptor, number = int(sys.argv[sys.argv.index("--supervised") + 1]), int(sys.argv[sys.argv.index("--number") + 1])
os.write(descriptor, sys.argv[1].encode())
time.sleep(1.5 * number)
"""


async def test_a_worker_that_has_left_the_group_counts_with_its_records_only():
    """`group drain` ends one worker. The others have its shards now."""
    meter, seen = JobProgressMeter(began=0.0), []

    def report(progress):
        meter.update(progress)
        seen.append(meter.sample(1.0 + len(seen)))

    line = msgspec.json.encode(WorkerProgress(0, 7, 2, 1, 1, 0, 0, 90_000, unread_ms=5_000)).decode() + "\n"
    await Supervisor([sys.executable, "-c", LEAVING_WORKER, line], Properties(), 2, report).run()

    # On a busy machine, the first worker may have left before the second one reports.
    last = seen[-1]
    assert (last.records, last.open_shards, last.idle_shards, last.lag_ms) == (14, 2, 1, 90_000)
