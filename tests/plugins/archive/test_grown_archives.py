"""An archive is read to its present end (`flink.archive.live=NONE`), grows, and is read on from there, or the stream is."""

import json

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.checkpoints.snapshot_format import merge_snapshots
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.sinks.archived_shards import SHARDS
from recordpublisher.plugins.stores.folder_store import FolderStore

from .test_read_back import FIRST, Values, archiving, reading


@pytest.fixture
def served():
    with serve_in_thread(streams={"orders": 1}) as endpoint:
        yield endpoint


async def archive_all(served, folder, **more):
    async with rp.DataFetcher("orders", archiving(served, folder, "jsonl", **more)) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)


async def read_all(properties, **run):
    """Read to the end of the archive or, with `stop_at_tip`, of the stream. Return the numbers, and the snapshot."""
    sink = Values()
    async with rp.DataFetcher("orders", properties, sink=sink) as fetcher:
        await (fetcher.run_bounded(**run) if run else fetcher.run())
        return sorted(sink.numbers), fetcher.snapshot()


def states_of(snapshot):
    return merge_snapshots([snapshot]).shards


@pytest.mark.parametrize("publisher", ["ARCHIVE", "POLLING"])
async def test_a_read_continues_where_the_archive_ended(tmp_path, served, publisher):
    stream, folder = served.stream("orders"), tmp_path / "out"
    reader = reading(served, folder, "NONE", "jsonl", **{"flink.state.uri": str(tmp_path / "positions")})
    stream.put({"n": 0}, {"n": 1})
    await archive_all(served, folder)
    numbers, snapshot = await read_all(reader)
    assert numbers == [0, 1]
    [state] = states_of(snapshot).values()
    assert not state.ended
    assert state.position is not None

    stream.put({"n": 2})
    children = stream.split(FIRST)
    stream.put({"n": 3}, {"n": 4}, {"n": 5})
    await archive_all(served, folder)
    numbers, snapshot = await read_all(reader)
    assert numbers == [2, 3, 4, 5]
    assert {key for key, state in states_of(snapshot).items() if not state.ended} == {
        f"orders/{each}" for each in children
    }

    stream.put({"n": 6}, {"n": 7})
    if publisher == "ARCHIVE":
        await archive_all(served, folder)
        numbers, _ = await read_all(reader)
    else:
        numbers, _ = await read_all({**reader, "flink.stream.recordpublisher": "POLLING"}, stop_at_tip=True)
    assert numbers == [6, 7]


async def test_a_second_run_of_the_same_fetcher_reads_what_was_archived_since(tmp_path, served):
    stream, folder, sink = served.stream("orders"), tmp_path / "out", Values()
    stream.put({"n": 0})
    await archive_all(served, folder)
    async with rp.DataFetcher("orders", reading(served, folder, "NONE", "jsonl"), sink=sink) as fetcher:
        await fetcher.run()
        stream.put({"n": 1})
        await archive_all(served, folder)
        await fetcher.run()
    assert sink.numbers == [0, 1]


async def test_a_shard_that_had_no_record_is_read_from_its_beginning_later(tmp_path, served):
    stream, folder = served.stream("orders"), tmp_path / "out"
    reader = reading(served, folder, "NONE", "jsonl", **{"flink.state.uri": str(tmp_path / "positions")})
    stream.split(FIRST)
    stream.put({"n": 0}, {"n": 1}, key="a")
    await archive_all(served, folder)
    assert (await read_all(reader))[0] == [0, 1]
    stream.put(*({"n": number} for number in range(2, 12)))
    await archive_all(served, folder)
    assert (await read_all(reader))[0] == [*range(2, 12)]


async def test_positions_at_the_end_of_an_archive_bound_a_read_of_the_stream(tmp_path, served):
    stream, folder = served.stream("orders"), tmp_path / "out"
    stream.put({"n": 0})
    await archive_all(served, folder)
    _, snapshot = await read_all(reading(served, folder, "NONE", "jsonl"))
    stream.put({"n": 1})
    given = served.endpoint.properties()
    for bounds, number in (({"end": snapshot}, 0), ({"start": snapshot}, 1)):
        [data] = rp.read_arrow("orders", given, columns=["data"], **bounds).read_all()["data"].to_pylist()
        assert json.loads(data) == {"n": number}


async def test_an_archive_of_an_archive_has_no_end_of_an_open_shard(tmp_path, served):
    stream, first, second = served.stream("orders"), tmp_path / "first", tmp_path / "second"
    stream.put({"n": 0})
    await archive_all(served, first)
    copies = {**archiving(served, second, "jsonl"), **reading(served, first, "NONE", "jsonl")}
    async with rp.DataFetcher("orders", copies) as fetcher:
        await fetcher.run()
    [document] = (await FolderStore(second / SHARDS, None).list("orders/")).values()
    assert b'"end"' not in document.value
    assert b"openMs" not in document.value
