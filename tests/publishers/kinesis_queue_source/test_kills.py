"""A queue job of two processes through kill -9, redeliveries and failed acknowledgements: nothing is lost, duplicates are counted."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.kinesis_queue_source import QueueClient

from processes.command_line import process_environment
from random_inputs import inputs

KILLS = inputs(20, 4)
RECORDS = 150 * KILLS


class Workers:
    """Owns two processes of one job."""

    def __init__(self, url, file):
        self._file = file
        self._arguments = [sys.executable, str(Path(__file__).with_name("queue_worker.py")), url, str(file)]
        self.processes = [self._start(), self._start()]

    def _start(self):
        return subprocess.Popen(self._arguments, stdout=subprocess.PIPE, text=True, env=process_environment())

    def kill(self, number):
        self.processes[number].kill()
        self.processes[number].communicate()
        self.processes[number] = self._start()

    def stop(self):
        """What each counted."""
        for process in self.processes:
            # A signal that comes before the process handles it ends it without a word.
            wait_until(lambda process=process: Path(f"{self._file}-{process.pid}").exists())
            process.send_signal(signal.SIGTERM)
        return [json.loads(process.communicate(timeout=60)[0]) for process in self.processes]


async def create_queue(served):
    async with QueueClient(rp.Properties(served.properties())) as client:
        await client._call("CreateStream", StreamName="orders", StreamModeDetails={"StreamMode": "ON_DEMAND"})
        start = {"Type": "TRIM_HORIZON"}
        made = await client.create_queue("work", await client.stream_arn("orders"), start, 5)
        while (await client.describe_queue(made.arn)).status != "ACTIVE":  # noqa: ASYNC110 - as a person would
            await asyncio.sleep(0.05)


def lines(file):
    return file.read_text().split() if file.exists() else []


def wait_until(is_reached, seconds=120):
    deadline = time.monotonic() + seconds
    while not is_reached():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.kills
@pytest.mark.timeout(900)
def test_nothing_is_lost_through_kills_and_redeliveries(tmp_path):
    file, random_ = tmp_path / "handled", random.Random(7)
    with serve_in_thread() as served:
        asyncio.run(create_queue(served))
        for number in range(RECORDS):
            served.call(served.endpoint.account.find("orders").put, b"%d" % number, str(number))
        served.call(
            served.endpoint.faults.start_random, "redeliver=0.05,partial=0.02,lost@AcknowledgeQueueRecords=0.02", 7
        )
        workers = Workers(served.url, file)
        try:
            for number in range(KILLS):
                handled = len(lines(file))
                wait_until(lambda handled=handled: len(lines(file)) > min(handled + 60, RECORDS - 1))
                workers.kill(random_.randrange(2))
                served.call(served.endpoint.account.find("orders").put, b"%d" % (RECORDS + number), "k")
            wait_until(lambda: len(set(lines(file))) == RECORDS + KILLS)
        finally:
            counted = workers.stop()
    handled = Counter(lines(file))
    repeated = sum(handled.values()) - len(handled)
    print(f"{KILLS} kills: {len(handled)} records, {repeated} handled again; the last processes counted {counted}")

    assert set(handled) == {str(number) for number in range(RECORDS + KILLS)}
    assert repeated > 0
    assert all(each["unacknowledged"] == 0 for each in counted)
    assert sum(each["duplicates"] for each in counted) > 0
