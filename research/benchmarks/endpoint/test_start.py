"""From the start of `recordpublisher local` as a process to its first answer."""

import statistics
import subprocess
import sys
import time
from http.client import HTTPConnection

import pytest

from benchmarks.figures.table import Row
from outage.processes import free_port

pytestmark = pytest.mark.benchmark
STARTS, GOAL_SECONDS = 11, 0.5
HEADERS = {"X-Amz-Target": "Kinesis_20131202.ListStreams", "Content-Type": "application/x-amz-json-1.1"}


def seconds_to_the_first_answer():
    port, began = free_port(), time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "recordpublisher", "local", "--port", str(port)], stdout=subprocess.DEVNULL
    ) as process:
        try:
            while not is_answered(port):
                time.sleep(0.002)
            return time.perf_counter() - began
        finally:
            process.terminate()


def is_answered(port):
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("POST", "/", "{}", HEADERS)
        return connection.getresponse().status == 200
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()


def test_start(table):
    seconds = statistics.median(seconds_to_the_first_answer() for _ in range(STARTS))
    table.append(
        Row(
            f"`recordpublisher local`, median of {STARTS} starts",
            seconds,
            at_most=GOAL_SECONDS,
            section="start",
            unit="s",
        )
    )
