"""When the sink makes a file, and when it logs nothing."""

from __future__ import annotations

import asyncio

import pytest

from recordpublisher.fetcher.sink import Checkpoint, SinkContext
from recordpublisher.plugins.spark.continuous.back_pressure import BackPressure
from recordpublisher.plugins.spark.continuous.wal_entry import ENTRIES, WalEntry
from recordpublisher.plugins.spark.continuous.wal_sink import WalSink
from recordpublisher.plugins.spark.continuous.wal_writer import WalWriter
from recordpublisher.plugins.spark.continuous_options import ContinuousSettings
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.shards import Shard

from fakes.spark.continuous import CLOCK, NO_LIMIT, MemoryWriteOnceStore, batch_of, no_shards

SHARD = Shard("s", "a")


class CheckpointRequests:
    def __init__(self) -> None:
        self.event = asyncio.Event()

    def __call__(self) -> None:
        self.event.set()


async def opened_sink(store: MemoryWriteOnceStore, requests: CheckpointRequests, **settings) -> WalSink:
    writer = WalWriter(store, CLOCK)
    state = await writer.take_over(no_shards)
    given = ContinuousSettings(**{"roll_seconds": 1000, **settings})
    sink = WalSink(writer, state, BackPressure(NO_LIMIT), given, lambda: 42)
    await sink.open(SinkContext(request_checkpoint=requests))
    return sink


def checkpoint(position: str | None = None, **more: object) -> Checkpoint:
    entry = {"start": "TRIM_HORIZON", **({"position": position} if position else {}), **more}
    return Checkpoint({"version": 2, "generation": 2, "shards": {"s/a": entry}})


def entries(store: MemoryWriteOnceStore) -> list[WalEntry]:
    names = sorted(name for name in store.content if name.startswith(ENTRIES))
    return [WalEntry.from_bytes(store.content[name]) for name in names]


@pytest.mark.parametrize(
    ("settings", "records", "asks"),
    [
        ({"roll_records": 3}, 2, False),
        ({"roll_records": 3}, 3, True),
        ({"roll_bytes": 15}, 2, False),
        ({"roll_bytes": 15}, 3, True),
    ],
)
async def test_requests_a_checkpoint_when_there_are_enough_rows_or_bytes(settings, records, asks):
    requests = CheckpointRequests()
    sink = await opened_sink(MemoryWriteOnceStore(), requests, **settings)
    await sink.write(batch_of(SHARD, range(records)))
    assert requests.event.is_set() == asks
    await sink.close()


async def test_requests_a_checkpoint_when_the_first_row_has_waited_long_enough():
    requests = CheckpointRequests()
    sink = await opened_sink(MemoryWriteOnceStore(), requests, roll_seconds=0.01)
    await sink.write(batch_of(SHARD, range(1)))
    async with asyncio.timeout(60):
        await requests.event.wait()
    await sink.close()


async def test_an_entry_has_rows_state_and_watermark():
    store = MemoryWriteOnceStore()
    sink = await opened_sink(store, CheckpointRequests())
    await sink.write(batch_of(SHARD, range(3)))
    await sink.flush(checkpoint("2"))
    await sink.write(batch_of(SHARD, range(3, 5)))
    await sink.flush(checkpoint("4"))
    _, first, second = entries(store)
    assert (first.rows, first.payload, first.watermark) == (3, 15, 42)
    assert first.state == checkpoint("2").state
    assert (second.rows, second.state) == (2, checkpoint("4").state)
    assert sink.records == 5


async def test_changes_without_records_are_logged_only_when_needed():
    store = MemoryWriteOnceStore()
    sink = await opened_sink(store, CheckpointRequests())
    await sink.flush(checkpoint("2"))
    await sink.flush(checkpoint("2", tip=1, continuation="7"))
    assert len(entries(store)) == 2
    await sink.flush(checkpoint("2", ended=True))
    assert len(entries(store)) == 3


async def test_s6_after_a_failed_commit_nothing_more_is_committed():
    store = MemoryWriteOnceStore()
    sink = await opened_sink(store, CheckpointRequests())
    await sink.write(batch_of(SHARD, range(3)))
    put = store.put_if_absent

    async def fails(name, content):
        raise OSError("unplugged")

    store.put_if_absent = fails
    with pytest.raises(OSError, match="unplugged"):
        await sink.flush(checkpoint("2"))
    store.put_if_absent = put
    with pytest.raises(OSError, match="unplugged"):
        await sink.flush(checkpoint("2"))


async def test_rows_are_never_flushed_without_their_state():
    sink = await opened_sink(MemoryWriteOnceStore(), CheckpointRequests())
    await sink.write(batch_of(SHARD, range(3)))
    with pytest.raises(SinkError, match="needs a checkpoint"):
        await sink.flush()
    await sink.close()
