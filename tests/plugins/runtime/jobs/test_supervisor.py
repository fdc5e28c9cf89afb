"""What the subtask processes of `run --parallelism` get from their supervisor, and what it reads of them."""

import sys

import msgspec
import pytest

from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.plugins.runtime.jobs.supervisor import Supervisor, with_local_tracker
from recordpublisher.publishers.properties.properties import Properties

TLS_CA = "flink.watermark.tracker.tls.ca"


async def test_the_tracker_of_one_machine_has_a_new_token_and_no_tls():  # C4
    """It listens on loopback; settings for another tracker would keep the subtasks from it."""
    async with with_local_tracker(Properties({TLS_CA: "/nowhere/ca.pem", "my.own": "kept"})) as given:
        assert given["flink.watermark.tracker"] == "TCP"
        assert given["flink.watermark.tracker.address"].startswith("127.0.0.1:")
        assert len(given["flink.watermark.tracker.token"]) == 32
        assert TLS_CA not in given
        assert given["my.own"] == "kept"


async def test_a_tracker_that_the_job_names_is_left_as_it_is():
    properties = Properties({"flink.watermark.tracker": "TCP", TLS_CA: "ca.pem"})
    async with with_local_tracker(properties) as given:
        assert given is properties


PROGRESS = SubtaskProgress(0, 7, 1, 0, 0, 0, 0, None)
PRINTING_SUBTASK = """
import os, sys
print("hello from a handler")
print(5)
os.write(int(sys.argv[sys.argv.index("--supervised") + 1]), sys.argv[1].encode())
"""


@pytest.mark.parametrize("noise", ["", "garbage\n", "5\n", "x" * 50_000 + "\n"])
async def test_what_user_code_prints_is_no_report_and_what_is_no_report_ends_nothing(noise, capfd):
    reports = []
    line = msgspec.json.encode(PROGRESS).decode() + "\n"
    command = [sys.executable, "-c", PRINTING_SUBTASK, noise + line]
    await Supervisor(command, Properties(), 1, reports.append).run()

    assert reports == [PROGRESS]
    assert capfd.readouterr().out == "hello from a handler\n5\n"


async def test_a_process_that_a_subtask_leaves_behind_does_not_keep_the_job(tmp_path):
    script = "import os, sys, time\nif not os.fork():\n    time.sleep(20)"

    await Supervisor([sys.executable, "-c", script], Properties(), 1, [].append).run()
