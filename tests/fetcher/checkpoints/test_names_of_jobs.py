"""Stored positions are those of the job that is named in them: another one does not continue from these."""

import asyncio
import logging

import pytest

import recordpublisher as rp

from fakes.memory_streams import PROPERTIES, install


@pytest.fixture
def places(tmp_path):
    return {
        "folder": {"flink.state.uri": str(tmp_path / "state"), "flink.sink": "memory"},
        "rows": {"flink.sink": "jsonl", "flink.sink.jsonl.path": str(tmp_path / "rows")},
        "group": {
            "flink.state.uri": str(tmp_path / "state"),
            "flink.sink": "memory",
            "flink.job.workers": "GROUP",
            "flink.lease.duration": "2000",
        },
    }


async def run(place, name=None):
    named = {} if name is None else {"flink.job.name": name}
    async with rp.DataFetcher(["orders"], {**PROPERTIES, **place, **named}) as job:
        return (await job.run_bounded(stop_at_tip=True)).records


@pytest.mark.parametrize("place", ["folder", "rows", "group"])
async def test_a_job_with_another_name_is_refused(place, places, monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    assert await run(places[place], "orders") == 2
    with pytest.raises(
        rp.StateError,
        match=r"has the positions of job 'orders', and this is job 'bills'.* place of its own .*flink.job.name=orders to continue",
    ):
        await run(places[place], "bills")
    assert await run(places[place], "orders") == 0


@pytest.mark.parametrize("names", [(None, "orders", "orders"), ("orders", None, "orders")])
async def test_positions_or_jobs_without_a_name_are_accepted(names, places, monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    assert [await run(places["folder"], name) for name in names] == [2, 0, 0]


@pytest.mark.parametrize("place", ["folder", "rows", "group"])
async def test_a_name_that_is_too_long_is_refused_before_positions_are_stored_that_cannot_be_read(
    place, places, monkeypatch
):  # C2
    install(monkeypatch, {"a": [b"1", b"2"]})
    with pytest.raises(rp.ConfigurationError, match=r"'flink.job.name'.*at most 200 characters"):
        await run(places[place], "x" * 201)
    assert [await run(places[place], "x" * 200) for _ in range(2)] == [2, 0]


async def test_a_refused_job_fences_nobody_off(places, monkeypatch):  # S6
    install(monkeypatch, {"a": [b"1"]})
    properties = {**PROPERTIES, **places["folder"], "flink.job.name": "orders"}
    async with rp.DataFetcher(["orders"], properties) as job:
        running = asyncio.create_task(job.run())
        await job.wait_ready()
        with pytest.raises(rp.StateError, match="job 'orders'"):
            await run(places["folder"], "bills")
        await job.checkpoint()
        job.stop()
        await running


async def test_the_log_says_where_a_start_begins(places, monkeypatch, caplog):
    install(monkeypatch, {"a": [b"1"]})
    with caplog.at_level(logging.INFO, "recordpublisher.start"):
        await run(places["folder"], "orders")
        await run(places["folder"], "orders")
    first, second = [line for line in caplog.messages if "of orders; it " in line]
    assert first.endswith("it begins at TRIM_HORIZON: no positions are stored")
    assert "it continues at stored positions of 1 shard, stored at 20" in second
    assert second.endswith("Z")


async def test_the_log_of_a_job_without_a_name_says_that_positions_may_be_those_of_another(places, monkeypatch, caplog):
    install(monkeypatch, {"a": [b"1"]})
    await run(places["folder"])
    with caplog.at_level(logging.INFO, "recordpublisher.start"):
        await run(places["folder"])
    assert "Z; they may belong to another job, because flink.job.name is not set" in caplog.text


@pytest.mark.parametrize(("streams", "is_warned"), [(["tickets"], True), (["orders", "tickets"], False)])
async def test_positions_of_other_streams_only_are_a_warning(streams, is_warned, places, monkeypatch, caplog):
    """A copied properties file, with the flink.state.uri and the name of another application."""
    install(monkeypatch, {"a": [b"1"]})
    await run(places["folder"], "shop")
    caplog.clear()
    async with rp.DataFetcher(streams, {**PROPERTIES, **places["folder"], "flink.job.name": "shop"}) as job:
        await job.run_bounded(stop_at_tip=True)

    warned = [
        line.getMessage() for line in caplog.records if "job shop: the stored positions belong to" in line.getMessage()
    ]
    assert [line.partition(".")[0] for line in warned] == [
        "job shop: the stored positions belong to orders, and this job reads tickets"
    ] * is_warned
