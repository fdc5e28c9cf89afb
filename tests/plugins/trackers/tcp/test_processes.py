"""W8, S2 over processes: real subtasks with a real tracker, aligned with each other, and a parent in one whose child is in another."""

import json
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest

from recordpublisher.fetcher.shards.assignment import uniform
from recordpublisher.local import serve_in_thread
from recordpublisher.publishers.shards import HashRange, Shard

from processes.command_line import process_environment

SUBTASK = Path(__file__).parents[3] / "processes/tracked_subtask.py"
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
LOOKAHEAD = 1_000


class Scene:
    """A stream, a tracker, and subtasks as processes, in a folder."""

    def __init__(self, stack, folder, shards):
        self.stack, self.folder = stack, folder
        self.endpoint = stack.enter_context(serve_in_thread(streams={"orders": shards}))
        self.kinesis = boto3.client("kinesis", endpoint_url=self.endpoint.url, region_name="us-east-1", **KEYS)
        stack.callback(self.kinesis.close)
        tracker = self.process(
            "recordpublisher", "tracker", "--port", "0", "--token", "open sesame", stderr=subprocess.PIPE
        )
        self.address = tracker.stderr.readline().split()[-1]
        self.paths, self.processes = [], []

    def process(self, module, *arguments, **more):
        command = [sys.executable, *(("-m", module) if module == "recordpublisher" else (module,)), *arguments]
        made = self.stack.enter_context(subprocess.Popen(command, env=process_environment(), text=True, **more))
        self.stack.callback(made.kill)
        return made

    def start(self, subtask, parallelism, **properties):
        path = self.folder / f"rows-{subtask}-{len(self.paths)}"
        log = self.stack.enter_context(open(self.folder / f"log-{subtask}", "a"))  # noqa: SIM115
        given = {"flink.watermark.lookahead.millis": LOOKAHEAD, **properties}
        arguments = (self.endpoint.url, self.address, path, subtask, parallelism, json.dumps(given))
        self.processes.append(self.process(str(SUBTASK), *map(str, arguments), stderr=log))
        self.paths.append(path)
        return self.processes[-1]

    def put(self, times, shard):
        key = shard["HashKeyRange"]["StartingHashKey"]
        entries = [{"Data": str(time).encode(), "PartitionKey": "k", "ExplicitHashKey": key} for time in times]
        for start in range(0, len(entries), 500):
            self.kinesis.put_records(StreamName="orders", Records=entries[start : start + 500])

    def open_shards(self):
        return self.kinesis.list_shards(StreamName="orders", ShardFilter={"Type": "AT_LATEST"})["Shards"]

    def rows(self):
        """Every emitted record as (moment, process, shard, event time), in the order of the machine's clock."""
        found = []
        for number, path in enumerate(self.paths):
            for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
                if not line.endswith("\n"):  # is being written
                    continue
                moment, shard, times = json.loads(line)
                found += [(moment, number, shard, each) for each in times]
        return sorted(found, key=lambda row: row[0])

    def wait_for_rows(self, count):
        return self.wait_for(lambda rows: len(rows) >= count, f"not {count} rows")

    def wait_for(self, condition, complaint, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition(rows := self.rows()):
            assert time.monotonic() < deadline, f"{complaint}: {len(rows)} rows; see the logs: {self.logs()}"
            time.sleep(0.1)
        return rows

    def logs(self):
        return "\n".join(path.read_text()[-2_000:] for path in self.folder.glob("log-*"))


@pytest.fixture
def scene(tmp_path):
    with ExitStack() as stack:
        yield lambda shards: Scene(stack, tmp_path, shards)


def spread_of(times):
    """How far any emitted event time ran ahead of the lowest one that was still to be emitted."""
    worst, lowest_left = 0, float("inf")
    for each in reversed(times):
        lowest_left = min(lowest_left, each)
        worst = max(worst, each - lowest_left)
    return worst


def owner(shard, parallelism):
    limits = [int(shard["HashKeyRange"][end]) for end in ("StartingHashKey", "EndingHashKey")]
    return uniform(Shard("orders", shard["ShardId"], (), HashRange(*limits)), parallelism)


@pytest.mark.slow
def test_processes_are_aligned_with_each_other(scene):  # W8, W9a
    job = scene(3)
    for step, shard in zip((20, 100, 1_000), job.open_shards(), strict=True):
        job.put(range(0, 60_000, step), shard)
    for subtask in range(3):
        job.start(subtask, 3)
    began = time.monotonic()
    rows = job.wait_for_rows(3_000 + 600 + 60)

    assert len({process for _, process, _, _ in rows}) == 3
    assert spread_of([each for *_, each in rows]) <= LOOKAHEAD
    assert time.monotonic() - began < 59, "60 steps of the sparse shard: a sync interval for each would take a minute"
    for process in job.processes:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, job.logs()


@pytest.mark.slow
def test_a_child_in_another_process_starts_when_its_parent_was_emitted(scene):  # S2
    job = scene(1)
    (parent,) = job.open_shards()
    job.put(range(0, 10_000, 10), parent)
    job.kinesis.split_shard(StreamName="orders", ShardToSplit=parent["ShardId"], NewStartingHashKey=str(2**127))
    children = job.open_shards()
    for child in children:
        job.put(range(10_000, 20_000, 10), child)
    assert {owner(child, 2) for child in children} == {0, 1}, "one child is elsewhere"
    for subtask in range(2):
        job.start(subtask, 2)
    rows = job.wait_for_rows(3_000)

    assert sorted(each for *_, each in rows) == sorted([*range(0, 10_000, 10), *[*range(10_000, 20_000, 10)] * 2])
    ended = max(moment for moment, _, shard, _ in rows if shard == parent["ShardId"])
    assert all(moment > ended for moment, _, shard, _ in rows if shard != parent["ShardId"])
    for child in children:
        times = [each for _, _, shard, each in rows if shard == child["ShardId"]]
        assert times == sorted(times)


@pytest.mark.slow
def test_a_stopped_process_holds_the_others_until_the_timeout_and_catches_up(scene):  # W6
    job = scene(2)
    for step, shard in zip((10, 10), job.open_shards(), strict=True):
        job.put(range(0, 40_000, step), shard)
    allowed = LOOKAHEAD + 500  # held, except what was already being written
    given = {"flink.watermark.tracker.timeout": 4_000, "flink.watermark.sync.interval": 200}
    first, _ = job.start(0, 2, **given), job.start(1, 2, **given)
    job.wait_for_rows(200)
    first.send_signal(signal.SIGSTOP)
    stopped = time.monotonic_ns()
    job.wait_for(lambda rows: last_of(rows, 1) > last_of(rows, 0) + allowed, "the other did not continue")
    first.send_signal(signal.SIGCONT)
    rows = job.wait_for_rows(8_000)

    held = [row for row in rows if row[0] < stopped + 3e9]  # by its last report, it has until 3.8 s
    assert last_of(held, 1) <= last_of(held, 0) + allowed
    assert sorted(each for *_, each in rows) == sorted([*range(0, 40_000, 10)] * 2)


def last_of(rows, process):
    return max((each for _, who, _, each in rows if who == process), default=0)
