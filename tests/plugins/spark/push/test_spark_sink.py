"""SparkSink without a job: when it delivers, what it buffers, and what happens after a failure."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.spark.push.spark_sink import SparkSink
from recordpublisher.publishers.errors import SinkError, StateError
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard


class FakeSpark:
    """`createDataFrame` returns the rows' sequence numbers."""

    def createDataFrame(self, table):  # noqa: N802
        return table.column("sequenceNumber").to_pylist()


def batch(*sequence: int, shard: str = "a") -> RecordBatch:
    records = [UserRecord(b"12345", str(n), 1.0, "k") for n in sequence]
    return RecordBatch(Shard("s", shard), records, raw_bytes=5 * len(records))


class CrashError(BaseException):
    """Raised where the process is killed."""


class Delivered(list):
    def __call__(self, frame, batch_id):
        self.append((batch_id, frame))


async def test_delivers_when_there_are_enough_rows():
    delivered = Delivered()
    sink = SparkSink(FakeSpark(), delivered, max_rows=3)
    await sink.write(batch(1, 2))
    assert delivered == []
    await sink.write(batch(3))
    await sink.write(batch(4))
    await sink.flush()
    await sink.close()
    assert delivered == [(0, ["1", "2", "3"]), (1, ["4"])]


async def test_delivers_when_there_are_enough_bytes():
    delivered = Delivered()
    sink = SparkSink(FakeSpark(), delivered, max_bytes=10)
    await sink.write(batch(1, 2))
    await sink.close()
    assert delivered == [(0, ["1", "2"])]


async def test_delivers_when_rows_have_waited_long_enough():
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    sink = SparkSink(FakeSpark(), lambda frame, n: loop.call_soon_threadsafe(called.set), max_seconds=0.01)
    await sink.write(batch(1))
    async with asyncio.timeout(60):
        await called.wait()
    await sink.close()


async def test_s6_a_failed_callback_is_never_confirmed_by_a_later_flush():
    def fail(frame, n):
        raise RuntimeError("disk full")

    sink = SparkSink(FakeSpark(), fail, max_rows=1)
    with pytest.raises(SinkError, match="disk full"):
        await sink.write(batch(1))
    with pytest.raises(SinkError, match="batch 0"):
        await sink.flush(Checkpoint({"v": 1}))
    await sink.close()


async def test_delivered_rows_are_not_delivered_again_and_numbers_continue(tmp_path):
    path = tmp_path / "state.json"
    sink = SparkSink(FakeSpark(), Delivered(), state_path=path, max_rows=2)
    assert await sink.open(SinkContext()) is None
    await sink.flush(Checkpoint({"v": 1}))
    await sink.write(batch(1, 2))  # delivered, and no checkpoint since then
    await sink.close()
    delivered = Delivered()
    again = SparkSink(FakeSpark(), delivered, state_path=path)
    assert await again.open(SinkContext()) == {"v": 1}
    await again.write(batch(1, 2, 3))
    await again.flush()
    await again.close()
    assert delivered == [(1, ["3"])]


async def died_in_batch_0(path, *rows: int) -> None:
    """The state after a crash during delivery: the rows are in the file, and whether the callback finished is not known."""

    def die(frame, n):
        raise CrashError

    sink = SparkSink(FakeSpark(), die, state_path=path)
    await sink.open(SinkContext())
    await sink.flush(Checkpoint({"v": 1}))
    await sink.write(batch(*rows))
    with pytest.raises(CrashError):
        await sink.flush()
    await sink.close()


async def test_a_batch_that_may_be_delivered_is_repeated_with_the_same_rows_although_more_arrived(tmp_path):
    path = tmp_path / "state.json"
    await died_in_batch_0(path, 1, 2)
    delivered = Delivered()
    again = SparkSink(FakeSpark(), delivered, state_path=path)
    assert await again.open(SinkContext()) == {"v": 1}
    await again.flush(Checkpoint({"v": 2}))  # the fetcher opens: nothing is read again yet
    await again.write(batch(1))
    await again.flush(Checkpoint({"v": 3}))  # half of it is in memory only: the earlier state stays
    assert json.loads(path.read_text())["state"] == {"v": 1}
    await again.write(batch(2, 3, 4))
    await again.flush(Checkpoint({"v": 4}))
    await again.close()
    assert delivered == [(0, ["1", "2"]), (1, ["3", "4"])]
    assert json.loads(path.read_text())["state"] == {"v": 4}


async def test_a_batch_that_cannot_be_repeated_is_an_error(tmp_path):
    path = tmp_path / "state.json"
    await died_in_batch_0(path, 1, 2)
    again = SparkSink(FakeSpark(), Delivered(), state_path=path)
    await again.open(SinkContext())
    with pytest.raises(SinkError, match="past retention"):
        await again.write(batch(2, 3))
    await again.close()


async def test_the_buffer_is_bounded_while_a_batch_is_repeated(tmp_path):
    path = tmp_path / "state.json"
    await died_in_batch_0(path, 1)
    again = SparkSink(FakeSpark(), Delivered(), state_path=path, max_bytes=10)
    await again.open(SinkContext())
    with pytest.raises(SinkError, match=r"rows missing by shard: \{'s/a': 1\}"):
        await again.write(batch(*range(100), shard="b"))
    await again.close()


async def test_a_file_without_a_valid_state_is_named(tmp_path):
    (tmp_path / "state.json").write_text('{"batch": 3}')
    with pytest.raises(StateError, match=r"state\.json is not the state of a SparkSink"):
        await SparkSink(FakeSpark(), Delivered(), state_path=tmp_path / "state.json").open(SinkContext())


@pytest.mark.parametrize("seed", range(40))
async def test_every_batch_number_has_the_same_rows_and_every_row_one_number_after_any_crash(tmp_path, seed):
    chance = random.Random(seed)
    rows: dict[int, list[str]] = {}

    def callback(frame, number):
        if chance.random() < 0.15:
            raise CrashError
        assert rows.setdefault(number, frame) == frame
        if chance.random() < 0.15:
            raise CrashError

    while not await life(callback, tmp_path / "state.json", chance):
        pass
    delivered = [row for number in sorted(rows) for row in rows[number]]
    assert sorted(rows) == list(range(len(rows)))
    for first in (1000, 2000, 3000):
        mine = [int(row) for row in delivered if first <= int(row) < first + 1000]
        assert mine == list(range(first, first + 20))


async def life(callback, path: Path, chance: random.Random) -> bool:
    """A fetcher over three shards of 20 records, from the sink's state, until it crashes or has read all."""
    sink = SparkSink(FakeSpark(), callback, state_path=path, max_rows=7, max_seconds=1000)
    places = {"a": 1000, "b": 2000, "c": 3000} | dict(await sink.open(SinkContext()) or {})
    try:
        await sink.flush(Checkpoint(dict(places)))
        while open_shards := [key for key, place in places.items() if place % 1000 < 20]:
            key = chance.choice(open_shards)
            count = min(chance.randint(1, 5), 20 - places[key] % 1000)
            await sink.write(batch(*range(places[key], places[key] + count), shard=key))
            places[key] += count
            if chance.random() < 0.2:
                await sink.flush(Checkpoint(dict(places)))
        await sink.flush(Checkpoint(dict(places)))
    except CrashError:
        return False
    finally:
        await sink.close()
    return True
