"""Which calls read as the job, and which only look at its streams."""

import asyncio
import logging

import pytest

import recordpublisher as rp
from recordpublisher.plugins.runtime.stream_and_consume import without_job_identity

from fakes.memory_store import MemoryStore
from fakes.memory_streams import PROPERTIES, install
from fakes.stored_job import alone_worker, snapshot_at, store_alone


@pytest.fixture(autouse=True)
def _is_asked_often(monkeypatch):
    monkeypatch.setattr("recordpublisher.fetcher.shard_fetcher.OWNER_SECONDS", 0.01)


@pytest.fixture
def orders(monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})


def read(properties=PROPERTIES, **settings):
    return [record.data for record in rp.consume("orders", properties, stop_at_tip=True, **settings)]


@pytest.mark.parametrize("settings", [{}, {"state_uri": None}], ids=["no argument", "None"])
def test_properties_of_a_job_do_not_make_a_consume_the_job(orders, tmp_path, caplog, settings):
    job = {**PROPERTIES, "flink.state.uri": str(tmp_path / "state")}

    assert [read(job, **settings), read(job, **settings)] == [[b"1", b"2"]] * 2
    assert not (tmp_path / "state").exists()
    assert "pass state_uri=... or state_store=... to the call" in caplog.text


def test_a_consume_that_is_told_keeps_positions(orders, tmp_path):
    assert [read(state_uri=str(tmp_path)), read(state_uri=str(tmp_path))] == [[b"1", b"2"], []]


def test_what_the_call_says_itself_stands_in_a_look(orders):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.state\.uri"):
        read(job_workers="GROUP")


def test_a_look_joins_no_group_and_writes_no_dead_letters():
    job = rp.Properties(
        {
            "flink.state.uri": "s3://b/p",
            "flink.job.workers": "GROUP",
            "flink.deserializer.error": "DEAD_LETTER",
            "flink.deadletter.sink": "jsonl",
            "flink.stream.recordpublisher": "efo",
            "aws.region": "eu-west-1",
        }
    )
    assert dict(without_job_identity(job)) == {"flink.deserializer.error": "SKIP", "aws.region": "eu-west-1"}


def test_a_look_leaves_the_consumer_of_the_job_alone(monkeypatch, caplog):
    """It would subscribe in place of the job, and deregister the consumer at its end."""
    made = []
    monkeypatch.setattr(
        "recordpublisher.plugins.runtime.stream_and_consume.DataFetcher", lambda streams, given, **_: made.append(given)
    )
    job = {"aws.region": "eu-west-1", "flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "job"}

    for settings in ({}, {"publisher": "EFO"}, {"state_uri": "folder"}):
        rp.stream("orders", job, **settings)

    assert [given.get("flink.stream.recordpublisher", "") for given in made] == ["", "EFO", "EFO"]
    assert len([line for line in caplog.messages if "pass publisher='EFO' to the call" in line]) == 1


def test_a_look_leaves_the_consumer_alone_that_a_job_uses_behind_its_archive(monkeypatch, caplog):
    made = []
    monkeypatch.setattr(
        "recordpublisher.plugins.runtime.stream_and_consume.DataFetcher", lambda streams, given, **_: made.append(given)
    )
    job = {
        "aws.region": "eu-west-1",
        "flink.stream.recordpublisher": "ARCHIVE",
        "flink.archive.uri": "archive",
        "flink.archive.live": "efo",
        "flink.stream.efo.consumername": "job",
    }

    for settings in ({}, {"archive_live": "EFO"}, {"state_uri": "folder"}):
        rp.stream("orders", job, **settings)

    assert [given.get("flink.archive.live", "") for given in made] == ["", "EFO", "efo"]
    assert {given.get("flink.stream.recordpublisher") for given in made} == {"ARCHIVE"}
    assert len([line for line in caplog.messages if "pass archive_live='EFO' to the call" in line]) == 1


def test_frames_leave_the_consumer_of_the_job_alone_unless_the_call_chooses_it(monkeypatch, caplog):
    made = []
    monkeypatch.setattr(
        "recordpublisher.plugins.runtime.stream_and_consume.DataFetcher", lambda streams, given, **_: made.append(given)
    )
    job = {"aws.region": "eu-west-1", "flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "job"}

    for settings in ({}, {"publisher": "EFO"}):
        rp.read_arrow("orders", job, **settings)

    assert ["flink.stream.recordpublisher" in given for given in made] == [False, True]
    assert "to the call" not in caplog.text


async def test_a_start_that_takes_over_positions_says_so(caplog):
    caplog.set_level(logging.INFO, "recordpublisher.start")
    store = MemoryStore()

    await store_alone(store, snapshot_at(1))
    assert "takes over" not in caplog.text
    later = await store_alone(store, snapshot_at(2))
    assert f"worker {later.name} runs alone, with the positions in memory" in caplog.text


@pytest.mark.slow  # 20 s: the replaced start waits for its next checkpoint
async def test_a_start_that_is_replaced_ends_soon_and_logs_what_to_do(orders, caplog):
    store = MemoryStore()
    properties = {**PROPERTIES, "flink.state.checkpoint.interval": "-1"}
    async with rp.DataFetcher("orders", properties, sink=rp.MemorySink(), state_store=store) as fetcher:
        await alone_worker(store).open()
        with pytest.raises(rp.FencedError):
            async with asyncio.timeout(30):
                await fetcher.run()

    (line,) = [each.getMessage() for each in caplog.records if "no longer reads" in each.getMessage()]
    assert "no longer reads orders: FencedError: worker " in line
    assert "flink.job.workers=GROUP" in line
