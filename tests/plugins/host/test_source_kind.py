"""What kind of source a job reads, by its properties."""

import pytest

import recordpublisher as rp
from recordpublisher.plugins.host import plugin_loading
from recordpublisher.plugins.host.build_from_properties import calls_a_service, lists_its_shards


class Files(rp.RecordPublisherFactory):
    """Reads files."""

    async def discover(self, stream):
        return []

    def publisher(self, *given):
        raise NotImplementedError


class Remote(Files):
    """Says where it calls."""

    async def endpoint_url(self):
        return "https://records.example"


class Plugin:
    """Registers both."""

    @rp.hookimpl
    def recordpublisher_register_publishers(self, registry):
        registry.add("FILES", Files)
        registry.add("REMOTE", Remote)


@pytest.fixture(autouse=True)
def registry(monkeypatch):
    registry = plugin_loading.load_registry([Plugin()])
    monkeypatch.setattr(plugin_loading, "load_registry", lambda: registry)


def properties(publisher, **others):
    return rp.Properties({"flink.stream.recordpublisher": publisher, "flink.sink": "memory", **others})


@pytest.mark.parametrize("publisher", ["POLLING", "EFO", "QUEUE", "DYNAMODB_STREAMS", "REMOTE"])
def test_what_reads_over_the_network_calls_a_service(publisher):
    assert calls_a_service(properties(publisher))


@pytest.mark.parametrize(
    ("others", "calls"),
    [
        ({}, False),
        ({"flink.state.uri": "state", "flink.sink": "jsonl", "flink.sink.jsonl.path": "rows"}, False),
        ({"flink.sink": "sql", "flink.sink.sql.uri": "sqlite:///rows.db"}, False),
        ({"flink.sink": "sql", "flink.sink.sql.uri": "postgresql://db.example/shop"}, True),
        ({"flink.state.uri": "s3://bucket/state"}, True),
        ({"flink.sink": "kinesis", "flink.sink.kinesis.stream": "copies"}, True),
    ],
)
def test_a_publisher_that_reads_files_calls_one_only_where_the_job_writes_over_the_network(others, calls):
    assert calls_a_service(properties("FILES", **others)) is calls


def test_only_a_publisher_with_its_own_discover_lists_its_streams():
    given = {
        name: lists_its_shards(properties(name)) for name in ("POLLING", "QUEUE", "DYNAMODB_STREAMS", "FILES", "none")
    }

    assert given == {"POLLING": False, "QUEUE": False, "DYNAMODB_STREAMS": True, "FILES": True, "none": False}
