"""A group whose sink keeps the positions cannot go on in another place; it says so, and goes on in the old one (E10)."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread


async def test_positions_stay_in_the_folder_that_they_were_written_to(tmp_path):
    with serve_in_thread(streams={"orders": 1}) as served:

        async def run(folder):
            served.stream("orders").put({"n": 1}, {"n": 2})
            given = {
                **served.endpoint.properties(),
                "flink.job.workers": "GROUP",
                "flink.sink": "jsonl",
                "flink.sink.jsonl.path": str(tmp_path / folder),
                "flink.state.uri": f"{tmp_path}/group",
                "flink.stream.initpos": "TRIM_HORIZON",
            }
            async with rp.DataFetcher("orders", given) as fetcher:
                await fetcher.run_bounded(max_time=60, max_records=2)

        await run("first")
        for _ in range(2):  # a start that was refused changes nothing
            with pytest.raises(
                rp.StateError, match=r"the job's last sink \(JsonlSink, folder \S+first\) keeps them with its rows"
            ):
                await run("other")
        await run("first")

    files = (tmp_path / "first").rglob("*.jsonl")
    rows = [line for file in files for line in file.read_text().splitlines()]
    assert len(rows) == 4
    assert not list((tmp_path / "other").rglob("*.jsonl"))


async def test_a_job_of_another_name_is_refused_in_the_folder_of_a_group_that_runs(tmp_path):
    with serve_in_thread(streams={"orders": 2}) as served:
        served.stream("orders").put({"n": 1})
        given = {
            **served.endpoint.properties(),
            "flink.job.workers": "GROUP",
            "flink.state.uri": f"{tmp_path}/group",
            "flink.stream.initpos": "TRIM_HORIZON",
        }
        sink = rp.MemorySink()
        async with rp.DataFetcher("orders", {**given, "flink.job.name": "one"}, sink=sink) as fetcher:
            run = asyncio.create_task(fetcher.run())
            async with asyncio.timeout(60):
                while not sink.records:  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.1)
            with pytest.raises(rp.StateError, match=r"the positions of job .one., and this is job .two.*in a database"):
                async with rp.DataFetcher("orders", {**given, "flink.job.name": "two"}, sink=rp.MemorySink()) as other:
                    await other.run_bounded(max_time=60)
            fetcher.stop()
            await run


async def test_a_change_of_the_sink_says_where_the_job_begins(tmp_path, caplog):
    caplog.set_level("INFO")
    with serve_in_thread(streams={"orders": 1}) as served:

        async def run(**more):
            served.stream("orders").put({"n": 1}, {"n": 2})
            given = {
                **served.endpoint.properties(),
                "flink.job.workers": "GROUP",
                "flink.state.uri": f"{tmp_path}/group",
                "flink.stream.initpos": "TRIM_HORIZON",
            }
            async with rp.DataFetcher("orders", given, **more) as fetcher:
                await fetcher.run_bounded(max_time=60, max_records=2)

        await run(sink=rp.MemorySink())
        await run(sink=rp.MapSink(print))

    said = [text for text in caplog.messages if " orders; it " in text or "ran another job" in text]
    assert said[0].endswith("/group reads orders; it begins at TRIM_HORIZON: no positions are stored")
    assert "begins its own job there, which continues at stored positions of 1 shard; they may belong" in said[1]
    assert "the group writes to MemorySink, and this process writes to MapSink" in said[1]
    assert "the group in " in said[2]
    assert len(said) == 3
