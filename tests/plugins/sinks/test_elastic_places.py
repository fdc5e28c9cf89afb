"""A group whose sink keeps the positions cannot go on in another place; it says so, and goes on in the old one (E10)."""

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread


async def test_positions_stay_in_the_folder_that_they_were_written_to(tmp_path):
    with serve_in_thread(streams={"orders": 1}) as served:

        async def run(folder):
            served.stream("orders").put({"n": 1}, {"n": 2})
            given = {
                **served.endpoint.properties(),
                "flink.shard.assignment": "ELASTIC",
                "flink.sink": "jsonl",
                "flink.sink.jsonl.path": str(tmp_path / folder),
                "flink.state.uri": f"{tmp_path}/group",
                "flink.stream.initpos": "TRIM_HORIZON",
            }
            async with rp.DataFetcher("orders", given) as fetcher:
                await fetcher.run_bounded(max_time=60, max_records=2)

        await run("first")
        with pytest.raises(rp.StateError, match=r"the position of orders/.* is missing: .* start with that one again"):
            await run("other")
        await run("first")

    files = (tmp_path / "first").rglob("*.jsonl")
    rows = [line for file in files for line in file.read_text().splitlines()]
    assert len(rows) == 4
    assert not list((tmp_path / "other").rglob("*.jsonl"))
