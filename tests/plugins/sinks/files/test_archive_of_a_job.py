"""An archive that a job wrote over restarts and a split: its ranges join, its documents have the lineage, and no record is missing."""

import asyncio
import json

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.stores.folder_store import FolderStore


@pytest.mark.parametrize("assignment", ["ALONE", "GROUP"])
async def test_the_ranges_of_each_shard_join_over_restarts_and_a_split(tmp_path, assignment):
    out = tmp_path / "out"
    with serve_in_thread(streams={"orders": 1}) as served:
        stream = served.stream("orders")
        given = {
            **served.endpoint.properties(),
            "flink.job.workers": assignment,
            "flink.sink": "jsonl",
            "flink.sink.jsonl.path": str(out),
            "flink.sink.archive": True,
            "flink.state.uri": f"{tmp_path}/group",
            "flink.state.checkpoint.interval": 100,
            "flink.lease.duration": 2000,
            "flink.job.name": "archive",
            "flink.shard.discovery.intervalmillis": 200,
            "flink.stream.initpos": "TRIM_HORIZON",
        }
        for round_number in range(3):
            stream.put(*({"n": 10 * round_number + number} for number in range(10)))
            async with rp.DataFetcher("orders", given) as fetcher:
                running = asyncio.create_task(fetcher.run())
                async with asyncio.timeout(60):
                    while len(rows(out)) < 10 * (round_number + 1):  # noqa: ASYNC110 - the folder is what is looked at
                        await asyncio.sleep(0.05)
                fetcher.stop()
                await running
            if round_number == 0:
                stream.split("shardId-000000000000")

    assert sorted(json.loads(row["data"])["n"] for row in rows(out)) == list(range(30))
    documents = {name.rpartition("/")[2]: value for name, value in (await stored(out)).items()}
    parent, *children = sorted(documents)
    assert documents[parent]["end"]["children"] == children
    assert "openMs" in documents[parent]
    for child in children:
        assert documents[child]["parents"] == [parent]
        assert "openMs" in documents[child]
        assert "end" not in documents[child]
    for shard in documents:
        ranges = sorted(ranges_of(out, shard), key=lambda each: position(each[1]))
        assert ranges, shard
        firsts, ends = [after for after, _ in ranges], [through for _, through in ranges]
        assert firsts[1:] == ends[:-1]
        assert firsts[0] == "BEGIN" if shard in children else firsts[0].startswith("AT-")
        if shard == parent:
            assert ends[-1] == documents[parent]["end"]["through"]


async def stored(folder):
    found = await FolderStore(folder / "_recordpublisher" / "shards", None).list("orders/")
    return {name: json.loads(each.value) for name, each in found.items()}


def ranges_of(folder, shard):
    return [tuple(file.stem.split("_")) for file in folder.glob(f"orders/{shard}/*.jsonl")]


def position(text):
    number, _, part = text.partition(".")
    return int(number), float("inf") if part == "-1" else int(part)


def rows(folder):
    return [json.loads(line) for file in folder.glob("orders/*/*.jsonl") for line in file.read_text().splitlines()]
