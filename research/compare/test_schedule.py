"""A schedule, played by the command line to a worker of the KCL in Java; `recordpublisher judge` reads what it prints."""

import subprocess
import sys
from contextlib import contextmanager
from threading import Timer

import pytest

from recordpublisher.local.schedules.schedule import load_schedule

from compare.tools import HERE, copied, java_command, require
from servers.moto_server import serve_moto

pytestmark = [pytest.mark.compare, pytest.mark.timeout(900)]
COMMAND = [sys.executable, "-m", "recordpublisher"]
SCHEDULE = str(HERE / "kcl" / "outage.toml")
MOST_SECONDS = 240


@contextmanager
def played():
    """The URL of an endpoint that plays the schedule."""
    command = [*COMMAND, "local", "--http2", "--port", "0", "--schedule", SCHEDULE]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process.stderr.readline().split()[-1]
        finally:
            process.kill()


def test_a_worker_of_the_kcl_that_reads_through_an_outage_is_judged(tmp_path):
    require("mvn")
    command = java_command(copied("kcl", tmp_path), "Work.java")
    judging = [*COMMAND, "judge", "--schedule", SCHEDULE]
    printed = set()
    with (
        serve_moto() as dynamodb,
        played() as url,
        subprocess.Popen(judging, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as judge,
        subprocess.Popen([*command, url, dynamodb, "orders", "polling"], stdout=subprocess.PIPE) as worker,
    ):
        end = Timer(MOST_SECONDS, worker.kill)
        end.start()
        for line in worker.stdout:
            judge.stdin.write(line)
            judge.stdin.flush()  # its time is that at which it is read
            printed.add(line)
            if len(printed) == load_schedule(SCHEDULE).record_count:
                break
        worker.kill()
        end.cancel()
        judged, _ = judge.communicate()
    assert judged.startswith(b"4016 records: 0 lost, "), judged
    assert b" 0 out of order; the slowest came " in judged
    assert judge.returncode == 0
