"""Random schedules of an archiving job and a job that reads its archive: each record once and in order, no gap unsaid, none invented.

Both jobs, their publishers and the stream are real, on virtual time; only the files are in memory. `ARCHIVE_SEED=7 pytest` runs one
schedule.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
from collections import defaultdict

import pytest

from recordpublisher.local import Account, Delays, MemoryTransport
from recordpublisher.local.stream import hash_of
from recordpublisher.publishers.errors import DataLossError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.fetcher_over_transport import fetcher_over
from fakes.memory_archive import MemoryArchive, MemoryArchiveSink
from fakes.scripted_source import RecordingSink
from random_inputs import inputs

HOUR = 3_600.0
STREAM = "orders"


class Rows(RecordingSink):
    """Rows with their numbers."""

    def __init__(self):
        super().__init__()
        self.rows = []

    async def write(self, batch):
        self.rows += [
            (batch.shard_id, number, int(data)) for number, data in zip(batch.sequence_numbers, batch.data, strict=True)
        ]


class Job:
    """A fetcher that is started, stopped or killed, with the state that survives."""

    def __init__(self, account, given, sink_of):
        self.account, self.given, self.sink_of = account, given, sink_of
        self.fetcher = self.running = self.sink = None
        self.state = None

    async def start(self, archive=None, **changed):
        self.sink = self.sink_of()
        self.fetcher = fetcher_over(
            MemoryTransport(self.account),
            Properties({**self.given, **changed}),
            self.sink,
            VirtualClock(),
            restore=() if self.state is None else (self.state,),
            archive=archive,
        )
        await self.fetcher.open()
        self.running = asyncio.create_task(self.fetcher.run())

    async def stop(self):
        """End as by a kill: what counts is the state that was stored before."""
        self.fetcher.stop()
        try:
            await self.running
        finally:
            fetcher, self.fetcher = self.fetcher, None
            await fetcher.close()


class Losses(logging.Handler):
    """Counts what the jobs say of lost records. The metrics of a shard go with its entry, and some losses are found by a start."""

    count = 0

    def emit(self, record):
        text = record.getMessage()
        self.count += any(
            words in text for words in ("past retention and lost", "continues because", "not known whether")
        )


class Schedule:
    """One schedule."""

    def __init__(self, seed):
        self.draw = draw = random.Random(seed)
        self.account = Account(VirtualClock(), "us-east-1", Delays(consumer=100), None)
        self.stream = self.account.create_stream(STREAM, draw.choice([1, 1, 2]))
        self.losses = Losses()
        self.logs = defaultdict(list)
        self.produced = 0
        given = {
            "aws.region": "us-east-1",
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.efo.consumername": "c",
            "flink.shard.getrecords.maxrecordcount": draw.choice([1, 3, 10_000]),
            "flink.shard.discovery.intervalmillis": 5_000,
        }
        self.archive = MemoryArchive()
        self.archive.group_size = draw.choice([1, 3, 100])
        self.live = draw.choice(["POLLING", "POLLING", "EFO"])
        self.archiver = Job(
            self.account, {**given, "flink.state.dataloss": "CONTINUE"}, lambda: MemoryArchiveSink(self.archive)
        )
        self.accepts = draw.random() < 0.6
        reads = {
            **given,
            "flink.stream.recordpublisher": "ARCHIVE",
            "flink.archive.live": self.live,
            "flink.state.dataloss": "CONTINUE" if self.accepts else "FAIL",
        }
        self.reader = Job(self.account, reads, Rows)
        self.rows = []
        self.heard = 0
        self.lost = None
        self.deletes = draw.random() < 0.15

    def put(self):
        for _ in range(self.draw.choice([0, 1, 2, 6])):
            key = str(self.draw.random())
            shard = self.stream.target_of(hash_of(key)).id
            number = int(self.stream.put(str(self.produced).encode(), key))
            self.logs[shard].append((number, self.produced, self.account.clock.now_ms()))
            self.produced += 1

    def reshard(self):
        opened = sorted(
            (each for each in self.stream.shards.values() if each.is_open), key=lambda each: each.hash_range.start
        )
        if len(self.stream.shards) > 8:
            return
        if len(opened) > 1 and self.draw.random() < 0.5:
            index = self.draw.randrange(len(opened) - 1)
            self.stream.merge(opened[index].id, opened[index + 1].id)
        else:
            self.stream.split(self.draw.choice(opened).id)

    # --- the archiving job

    async def archive_some(self):
        """A start of the archiving job, which commits, publishes, and is killed."""
        former = self.archiver.sink
        await self.archiver.start()
        sink = self.archiver.sink
        if former is not None:
            sink.take_over(former)
        for _ in range(self.draw.randint(1, 4)):
            await asyncio.sleep(self.draw.choice([2, 10, 40]))
            self.put()
            if self.draw.random() < 0.8:
                self.archiver.state = self.archiver.fetcher.snapshot()
                sink.commit(self.archiver.state)
            if self.draw.random() < 0.7:
                self.draw.shuffle(sink.staged)
                sink.publish(self.draw.randint(0, len(sink.staged)))
            if self.draw.random() < 0.15:
                self.reshard()
        await self.archiver.stop()
        if self.draw.random() < 0.6:
            sink.publish(len(sink.staged))

    # --- the job that reads

    def keep(self):
        """A checkpoint of the reader: what it emitted, with its positions."""
        self.reader.state = self.reader.fetcher.snapshot()
        self.kept = len(self.rows) + len(self.reader.sink.rows)

    async def read_some(self, seconds, *, is_last=False):
        before = self.losses.count
        try:
            await self.read_for(seconds, is_last=is_last)
        finally:
            self.heard += self.losses.count - before

    async def read_for(self, seconds, *, is_last):
        publisher = "ARCHIVE"
        if not is_last and self.reader.state is not None and self.draw.random() < 0.15:
            publisher = self.live
        try:
            await self.reader.start(
                self.archive.reader() if publisher == "ARCHIVE" else None, **{"flink.stream.recordpublisher": publisher}
            )
        except DataLossError as error:
            self.lost = str(error)
            self.reader.fetcher = None
            return
        try:
            if self.reader.state is None:
                self.keep()
            for _ in range(4):
                await asyncio.sleep(seconds / 4)
                if self.reader.running.done():
                    break
                if self.draw.random() < 0.4 or is_last:
                    self.keep()
            is_kept = is_last or self.draw.random() < 0.5
            if is_kept and not self.reader.running.done():
                self.keep()
            sink = self.reader.sink
            await self.reader.stop()
        except DataLossError as error:
            self.lost = str(error)
            sink = self.reader.sink
        rows = [*self.rows, *sink.rows]
        self.all_rows = rows
        self.rows = rows[: self.kept]

    async def jump(self):
        """Time passes while no job runs."""
        hours = self.draw.choice([0.5, 5, 20, 23.5, 30])
        for share in (0.21, 0.5, 0.29):
            await asyncio.sleep(hours * share * HOUR)
            self.put()

    async def run(self):
        self.kept = 0
        for _ in range(self.draw.randint(1, 5)):
            self.put()
            if self.draw.random() < 0.7:
                await self.archive_some()
            if self.draw.random() < 0.2:
                self.reshard()
            if self.draw.random() < 0.6:
                await self.jump()
        for _ in range(self.draw.randint(2, 6)):
            await self.step()
            if self.lost is not None:
                break
        if self.lost is None:
            await self.read_some(60, is_last=True)
        self.check()

    async def step(self):
        self.put()
        kind = self.draw.random()
        if kind < 0.45:
            await self.read_some(self.draw.choice([4, 20, 80]))
        elif kind < 0.75:
            await self.archive_some()
        elif kind < 0.85:
            self.reshard()
        else:
            await self.jump()
        if self.deletes and self.draw.random() < 0.3 and self.archive.published:
            del self.archive.published[self.draw.choice(sorted(self.archive.published))]

    def check(self):
        by_shard = defaultdict(list)
        rows = self.rows if self.lost is None else self.all_rows if hasattr(self, "all_rows") else self.rows
        for shard, number, value in rows:
            by_shard[shard].append((int(number), value))
        for shard, found in by_shard.items():
            numbers = [number for number, _ in found]
            assert numbers == sorted(set(numbers)), f"{shard} is out of order or twice: {[value for _, value in found]}"
        emitted = {value for _, _, value in rows}
        missing = self.missing(by_shard, emitted)
        if self.lost is None:
            assert not missing or self.heard, f"silently lost: {missing}"
        if self.lost is not None and not self.gone(emitted):
            assert self.is_unknown(), f"false alarm: {self.lost}"

    def is_unknown(self):
        """Whether nothing could tell that nothing was lost: the last time at which the shard was seen is past retention."""
        if any(text in self.lost for text in ("shard no more", "nor listed", "vanished")):
            return True
        shard, number = re.search(r"of orders/(\S+)(?: ends)? after (\S+)", self.lost).groups()
        seen = [at_ms for each, _, at_ms in self.logs[shard] if str(each) == number]
        stored = (self.archive.state or {"shards": {}})["shards"].get(f"orders/{shard}", {})
        if stored.get("position") == number:
            seen.append(stored.get("tipMs", 0))
        return max(seen, default=0) < self.account.clock.now_ms() - 24 * 3_600_000

    def gone(self, emitted):
        """What was not read, is in no file, and is past retention."""
        filed = {int(data) for _, _, rows in self.archive.published.values() for data in rows.data}
        oldest_ms = self.account.clock.now_ms() - 24 * 3_600_000
        put = [each for log in self.logs.values() for each in log]
        return [value for _, value, at_ms in put if value not in emitted | filed and at_ms < oldest_ms]

    def missing(self, by_shard, emitted):
        """What is missing behind the first record that was read of each shard."""
        begins = {shard: numbers[0][0] for shard, numbers in by_shard.items()}
        return [
            (shard, value)
            for shard, first in begins.items()
            for number, value, _ in self.logs[shard]
            if number > first and value not in emitted
        ]


def run(seed):
    schedule, log = Schedule(seed), logging.getLogger("recordpublisher")
    log.addHandler(schedule.losses)
    try:
        run_virtual(schedule.run())
    finally:
        log.removeHandler(schedule.losses)
    return schedule


@pytest.mark.random
@pytest.mark.parametrize("first", [0])
def test_each_record_comes_once_and_no_gap_is_silent(first):
    given = os.environ.get("ARCHIVE_SEED")
    for seed in [int(given)] if given else range(first, first + inputs(200, 5)):
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
