"""Random schedules of a whole archiving job and a whole job that reads its archive, each alone or a group, by POLLING and EFO.

Jobs, sinks, stores, files and the stream are real, on virtual time. Processes are killed between any two writes of theirs, shards are split
and merged, records pass the retention, and each start may have another publisher. The reading job commits what it writes, so in its output
each record must be once and in order.

    ARCHIVE_SEED=123 pytest tests/plugins/archive/test_jobs_at_random.py    runs one schedule again, up to the names of workers
    ARCHIVE_SCHEDULES=2000 ARCHIVE_FIRST=0 pytest -m simulation ...          runs many
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import tempfile
from collections import defaultdict
from contextvars import ContextVar
from pathlib import Path
from unittest.mock import patch

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.local import in_memory
from recordpublisher.local.stream import hash_of
from recordpublisher.plugins.archive import publisher
from recordpublisher.plugins.archive.archive import Archive
from recordpublisher.plugins.archive.next_step import Step, next_step
from recordpublisher.plugins.sinks import archived_shards
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.testing import VirtualClock, run_virtual

from random_inputs import inputs

HOUR = 3_600.0
RETENTION = 24 * HOUR
OWNER: ContextVar[Power | None] = ContextVar("owner", default=None)
"""The process that a task belongs to."""


class Power:
    """Lets the writes of one process take time, and holds them for ever once it is off."""

    def __init__(self, draw):
        self.draw, self.is_on = draw, True
        self.tasks = set()

    async def step(self):
        if self.is_on:
            await asyncio.sleep(self.draw.choice([0.0, 0.0, 0.02, 0.3]))
        if not self.is_on:
            await asyncio.get_running_loop().create_future()

    async def kill(self):
        """End every task of the process. What they do when they are cancelled changes nothing outside."""
        self.is_on = False
        for _ in range(100):
            left = [task for task in self.tasks if not task.done()]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.sleep(0)
        raise AssertionError(f"tasks cannot be ended: {left}")


def owned_task(loop, work, **more):
    task = asyncio.Task(work, loop=loop, **more)
    if (owner := OWNER.get()) is not None:
        owner.tasks.add(task)
        task.add_done_callback(owner.tasks.discard)
    return task


class SlowStore(ConditionalStore):
    """A store of a process that may be killed before and after each write."""

    def __init__(self, store, power):
        self._store, self._power, self.place = store, power, store.place

    async def get(self, name):
        return await self._store.get(name)

    async def put_if_absent(self, name, value):
        await self._power.step()
        version = await self._store.put_if_absent(name, value)
        await self._power.step()
        return version

    async def compare_and_set(self, name, value, expected):
        await self._power.step()
        version = await self._store.compare_and_set(name, value, expected)
        await self._power.step()
        return version

    async def list(self, prefix, *, consistent=True):
        return await self._store.list(prefix)

    async def list_versions(self, prefix):
        return await self._store.list_versions(prefix)

    async def list_names(self, prefix, before=None):
        return await self._store.list_names(prefix, before)

    async def delete(self, *names):
        await self._power.step()
        await self._store.delete(*names)


class SlowSink(rp.JsonlSink):
    """Publishes one file at a time, and may be killed between them."""

    def __init__(self, properties, power):
        super().__init__(properties)
        there, publish = self._files_there, self._files_there.publish
        there.entries, there.shards = SlowStore(there.entries, power), SlowStore(there.shards, power)

        async def one_by_one(files):
            missing = []
            for file in files:
                await power.step()
                missing += await publish([file])
            return missing

        there.publish = one_by_one


class Job:
    """A job: alone, or a group of up to three processes."""

    def __init__(self, draw, name, folder, given):
        self.draw, self.given = draw, {**given, "flink.job.name": name, "flink.stream.efo.consumername": name}
        self.path = {"flink.sink.jsonl.path": str(folder / name)}
        self.state = folder / f"state-{name}"
        self.is_group = draw.random() < 0.5
        self.running = []
        self.lost = None

    async def start(self, **changed):
        """Start a process, unless the job runs alone and has one."""
        if len(self.running) >= (3 if self.is_group else 1):
            return
        power = Power(self.draw)
        properties = {**self.given, **self.path, **changed, "flink.job.workers": "GROUP" if self.is_group else "ALONE"}
        token = OWNER.set(power)
        try:
            self.running.append((power, asyncio.create_task(self._run(power, properties))))
        finally:
            OWNER.reset(token)

    async def _run(self, power, properties):
        store = SlowStore(rp.FolderStore(self.state), power) if self.is_group else None
        sink = SlowSink(rp.Properties(properties), power)
        clock = VirtualClock()
        async with rp.DataFetcher("orders", properties, sink=sink, state_store=store, clock=clock) as fetcher:
            power.stop = fetcher.stop
            await fetcher.run()

    async def end(self, *, is_killed):
        """End one process. A process that ended by itself has failed."""
        if not self.running:
            return
        power, task = self.running.pop(self.draw.randrange(len(self.running)))
        if is_killed or not hasattr(power, "stop"):
            if not task.done():
                await power.kill()
        else:
            power.stop()
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await task
            except rp.DataLossError as error:
                self.lost = str(error)

    async def end_all(self, *, is_killed):
        while self.running:
            await self.end(is_killed=is_killed)


class Losses(logging.Handler):
    """Counts what the jobs say of lost records."""

    count = 0

    def emit(self, record):
        text = record.getMessage()
        self.count += any(
            words in text for words in ("past retention and lost", "continues because", "not known whether")
        )


class Schedule:
    """One schedule."""

    def __init__(self, seed, folder, account):
        self.draw = draw = random.Random(seed)
        self.folder, self.account, self.stream = folder, account, account.find("orders")
        self.put_values = defaultdict(list)
        self.produced = self.hours = 0
        self.jumps = draw.random() < 0.5
        self.accepts = draw.random() < 0.5
        self.losses = Losses()
        given = {
            "aws.region": "us-east-1",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.state.checkpoint.interval": draw.choice(["700", "3000"]),
            "flink.lease.duration": "4000",
            "flink.shard.getrecords.maxrecordcount": str(draw.choice([1, 3, 10_000])),
            "flink.shard.discovery.intervalmillis": "3000",
        }
        (folder / "archive").mkdir()
        accepted = {"flink.state.dataloss": "CONTINUE" if self.accepts else "FAIL"}
        archiving = {"flink.sink.archive": "true", "flink.state.dataloss": "CONTINUE"}
        self.archiver = Job(draw, "archive", folder, {**given, **archiving})
        reading = {"flink.archive.uri": str(folder / "archive"), **accepted}
        self.reader = Job(draw, "reader", folder, {**given, **reading})
        self.publishers = set()

    @property
    def kinds(self):
        """What the schedule has of the dimensions."""
        return (
            f"archiver {'group' if self.archiver.is_group else 'alone'}",
            f"reader {'group' if self.reader.is_group else 'alone'}",
            *sorted(self.publishers),
        )

    def put(self):
        for _ in range(self.draw.choice([0, 1, 3, 8])):
            key = str(self.draw.random())
            shard = self.stream.target_of(hash_of(key)).id
            number = self.stream.put(str(self.produced).encode(), key)
            self.put_values[shard].append((int(number), self.produced))
            self.produced += 1

    def reshard(self):
        opened = sorted(
            (each for each in self.stream.shards.values() if each.is_open), key=lambda each: each.hash_range.start
        )
        if len(self.stream.shards) > 6:
            return
        if len(opened) > 1 and self.draw.random() < 0.5:
            index = self.draw.randrange(len(opened) - 1)
            self.stream.merge(opened[index].id, opened[index + 1].id)
        else:
            self.stream.split(self.draw.choice(opened).id)

    async def archive(self):
        name = self.draw.choice(["POLLING", "POLLING", "EFO"])
        self.publishers.add(f"archived by {name}")
        await self.archiver.start(**{"flink.stream.recordpublisher": name})

    async def read(self):
        name, live = self.draw.choice(["ARCHIVE"] * 4 + ["POLLING", "EFO"]), self.draw.choice(["POLLING", "EFO"])
        self.publishers.add(f"read by {name}" + (f" then {live}" if name == "ARCHIVE" else ""))
        await self.reader.start(**{"flink.stream.recordpublisher": name, "flink.archive.live": live})

    async def jump(self):
        """No process runs, and hours pass."""
        for job in (self.archiver, self.reader):
            await job.end_all(is_killed=self.draw.random() < 0.5)
        hours = self.draw.choice([5, 20, 23.5, 30])
        self.hours += hours
        for share in (0.21, 0.5, 0.29):
            await asyncio.sleep(hours * share * HOUR)
            self.put()

    async def run(self):
        self.put()
        for _ in range(self.draw.randint(8, 16)):
            await self.step()
            if self.reader.lost is not None:
                break
            await asyncio.sleep(self.draw.choice([0.1, 0.8, 3, 8]))
        await self.reader.end_all(is_killed=self.draw.random() < 0.5)
        if self.reader.lost is None:
            await self.read_to_end()
        for job in (self.reader, self.archiver):
            await job.end_all(is_killed=False)
        self.check()

    async def step(self):
        kind = self.draw.random()
        self.put()
        if kind < 0.25:
            await self.archive()
        elif kind < 0.5:
            await self.read()
        elif kind < 0.6:
            await self.archiver.end(is_killed=self.draw.random() < 0.7)
        elif kind < 0.7:
            await self.reader.end(is_killed=self.draw.random() < 0.7)
        elif kind < 0.85:
            self.reshard()
        elif self.jumps:
            await self.jump()

    async def read_to_end(self):
        await self.read()
        for _ in range(60):
            await asyncio.sleep(2)
            if len(self.written()) >= self.produced or any(task.done() for _, task in self.reader.running):
                return

    def written(self):
        """The rows of the reading job: shard, number, value; those of a shard in the order of its files."""
        rows = []
        for file in (self.folder / "reader").glob("orders/*/*.jsonl"):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            rows.append([(each["shardId"], int(each["sequenceNumber"]), int(each["data"])) for each in lines])
        return [row for part in sorted(rows) for row in part]

    def check(self):
        rows = self.written()
        by_shard = defaultdict(list)
        for shard, number, value in rows:
            by_shard[shard].append((number, value))
        for shard, found in by_shard.items():
            numbers = [number for number, _ in found]
            assert numbers == sorted(set(numbers)), f"{shard} is out of order or twice: {[value for _, value in found]}"
            assert set(found) <= set(self.put_values[shard])
        emitted = {value for *_, value in rows}
        is_short = self.hours * HOUR < RETENTION - HOUR
        if is_short:
            assert self.reader.lost is None, f"false alarm: {self.reader.lost}"
            assert self.losses.count == 0, "false alarm"
            assert emitted == set(range(self.produced)), f"missing: {sorted(set(range(self.produced)) - emitted)}"
        missing = [
            value
            for shard, found in by_shard.items()
            for number, value in self.put_values[shard]
            if number > found[0][0] and value not in emitted
        ]
        if self.reader.lost is None:
            assert not missing or self.losses.count, f"silently lost: {missing}"


def run(seed):
    """Run the schedule of a seed. Return it."""
    random.seed(seed)
    log = logging.getLogger("recordpublisher")

    async def scheduled():
        asyncio.get_running_loop().set_task_factory(owned_task)
        with in_memory({"orders": random.Random(seed).choice([1, 1, 2])}, clock=VirtualClock()) as account:
            schedule = Schedule(seed, Path(folder), account)
            log.addHandler(schedule.losses)
            try:
                await schedule.run()
            finally:
                log.removeHandler(schedule.losses)
        return schedule

    # Where memory is a folder, syncing costs nothing.
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        return run_virtual(scheduled())


def a_listing_is_never_repeated():
    """A shard that is newer than the last listing is taken for one that the stream has no more."""

    async def is_live_now(self, shard):
        return self.is_live(shard)

    return [(Archive, "is_live_now", is_live_now)]


def a_shard_ends_with_its_files():
    """The reader does not ask for the shard's end."""

    def step(at):
        return Step.END if at.file is None else next_step(at)

    return [(publisher, "next_step", step)]


def no_gap_is_looked_for():
    """Records that passed the retention before the first live read are not missed."""

    async def nothing(self, batch):
        pass

    return [(publisher.ArchivePublisher, "_look_for_gap", nothing)]


def a_file_is_read_from_its_beginning():
    """A reader that resumes within a file reads its first rows again."""
    return [(publisher, "first_row_after", lambda rows, place, order_of: 0)]


def the_stream_is_read_from_where_the_files_began():
    """The position of the live read is that of the reader's start."""
    go_live = publisher.ArchivePublisher._go_live

    async def go(self):
        position = self._position
        self._position = StartingPosition.trim_horizon()
        try:
            await go_live(self)
        finally:
            self._position = position

    return [(publisher.ArchivePublisher, "_go_live", go)]


def a_range_begins_at_the_shards_beginning():
    """The sink claims that its files lack nothing before their first record."""
    return [(archived_shards, "_after", lambda start, follows_parents: archived_shards.BEGIN)]


FOUND = {
    a_listing_is_never_repeated: 136,
    a_shard_ends_with_its_files: 1,
    no_gap_is_looked_for: 1,
    a_file_is_read_from_its_beginning: 23,
    the_stream_is_read_from_where_the_files_began: 4,
    a_range_begins_at_the_shards_beginning: 18,
}
"""Mutations of the product, each with a seed that finds it."""
SEARCHED = 200
"""How many seeds are tried from there, because names of workers are drawn by the system."""


@pytest.mark.random
def test_whole_jobs_lose_nothing_silently_and_repeat_nothing():
    run_all([int(os.environ["ARCHIVE_SEED"])] if "ARCHIVE_SEED" in os.environ else range(inputs(100, 6)))


@pytest.mark.simulation
@pytest.mark.timeout(0)
def test_in_many_schedules_whole_jobs_lose_nothing_silently_and_repeat_nothing():
    first = int(os.environ.get("ARCHIVE_FIRST", "100"))
    run_all(range(first, first + int(os.environ.get("ARCHIVE_SCHEDULES", "200"))))


def run_all(seeds):
    for seed in seeds:
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"ARCHIVE_SEED={seed}: {error}") from error


@pytest.mark.simulation
@pytest.mark.parametrize("mutation", FOUND)
def test_without_this_rule_a_schedule_fails(mutation):
    assert first_failure(mutation, FOUND[mutation], SEARCHED) is not None


def first_failure(mutation, first, count):
    with contextlib.ExitStack() as stack:
        for owner, attribute, value in mutation():
            stack.enter_context(patch.object(owner, attribute, value))
        for seed in range(first, first + count):
            try:
                run(seed)
            except Exception as error:
                return seed, error
    return None
