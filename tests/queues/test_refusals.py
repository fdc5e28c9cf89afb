"""What a job that reads a queue cannot have is refused with a sentence each, before anything runs (C2)."""

import pytest

import recordpublisher as rp
from recordpublisher.cli.doctor.examination import settings_findings
from recordpublisher.cli.doctor.findings import Verdict
from recordpublisher.plugins.host.build_from_properties import checked_publisher_class
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.host.registry import NameClaim, NameOwner
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader

from fakes.queues.fake_queue import FakeQueue, FakeSource

ONE_STREAM = "setting 'streams' is 'orders, clicks': a queue has the records of one stream. Valid: one stream"
SNAPSHOT = {"version": 2, "generation": 1, "subtask": 0, "parallelism": 1, "pinnedStartMs": None, "shards": {}}


class Source(FakeSource):
    def __init__(self, properties):
        super().__init__(FakeQueue())


@pytest.fixture
def registry():
    made = load_registry()
    made.publishers.claim(NameClaim("FAKE_QUEUE", Source, NameOwner("tests", "1")))
    return made


def job(registry, streams="orders", properties=None, **arguments):
    given = {"flink.stream.recordpublisher": "FAKE_QUEUE", "aws.region": "eu-west-1", **(properties or {})}
    return rp.DataFetcher(streams, given, sink=rp.MemorySink(), registry=registry, **arguments)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"flink.state.uri": "state"}, "the queue keeps what is not acknowledged"),
        ({"flink.job.workers": "GROUP"}, "processes share a queue without a group"),
        ({"flink.watermark.lookahead.millis": 1000}, "keeps no order"),
        ({"flink.watermark.alignment.max.lag": 1000}, "keeps no order"),
        ({"flink.watermark.timestamp.field": "at"}, "keeps no order"),
        ({"flink.watermark.outoforderness.millis": 5000}, "keeps no order"),
        ({"flink.shard.idle.interval": "20s"}, "keeps no order"),
    ],
)
def test_a_property_that_needs_positions_is_refused(registry, properties, words):
    with pytest.raises(rp.ConfigurationError, match=words) as refused:
        job(registry, properties=properties)

    assert refused.value.key == next(iter(properties))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("restore", SNAPSHOT),
        ("timestamp_assigner", lambda record: 1),
        ("watermark_assigner", lambda record: 1),
    ],
)
def test_an_argument_that_needs_positions_is_refused(registry, name, value):
    with pytest.raises(rp.ConfigurationError, match="a queue") as refused:
        job(registry, **{name: value})

    assert refused.value.key == name


def test_a_function_of_streams_is_refused(registry):
    with pytest.raises(rp.ConfigurationError, match="give their names"):
        job(registry, lambda: ["orders"])


async def test_a_bound_in_event_time_is_refused(registry):
    async with job(registry) as fetcher:
        with pytest.raises(rp.ConfigurationError, match="max_time, max_records or stop_at_tip"):
            await fetcher.run_bounded(until_event_time=1)


def test_two_streams_are_refused(registry):
    with pytest.raises(rp.ConfigurationError) as refused:
        job(registry, ["orders", "clicks"])

    assert str(refused.value) == ONE_STREAM


async def test_doctor_refuses_two_streams(registry):
    given = rp.Properties({"flink.stream.recordpublisher": "FAKE_QUEUE", "aws.region": "eu-west-1"})

    found = {each.name: each for each in await settings_findings(registry, given, ["orders", "clicks"])}

    assert (found["properties"].verdict, found["properties"].words) == (Verdict.PROBLEM, ONE_STREAM)


async def test_a_job_without_them_runs(registry):
    async with job(registry) as fetcher:
        assert (await fetcher.run_bounded(stop_at_tip=True)).records == 0


def test_who_reads_from_positions_is_told_what_to_use(registry):
    given = rp.Properties({"flink.stream.recordpublisher": "FAKE_QUEUE"})
    with pytest.raises(
        rp.ConfigurationError,
        match=r"Spark needs positions, but a queue has none\. Valid: the name of a publisher that reads shards$",
    ):
        checked_publisher_class(registry, given, "Spark")
    with pytest.raises(
        rp.ConfigurationError, match=r"a queue has none\. Valid: POLLING or EFO, which read the queue's stream$"
    ):
        checked_publisher_class(registry, rp.Properties({"flink.stream.recordpublisher": "QUEUE"}), "Spark")


def test_a_bounded_reader_is_refused(registry, monkeypatch):
    monkeypatch.setattr("recordpublisher.plugins.runtime.bounded_reader.load_registry", lambda: registry)

    with pytest.raises(rp.ConfigurationError, match="needs positions"):
        BoundedReader(rp.Properties({}), "FAKE_QUEUE")
