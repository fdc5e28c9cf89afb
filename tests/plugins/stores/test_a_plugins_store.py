"""A store that a plugin registers serves all there is: a job's positions, a group's leases, Spark's claims."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.leases.documents.group_store import GroupStore
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.stores import by_location
from recordpublisher.plugins.stores.by_location import conditional_store_of, read_claim_store_of
from recordpublisher.plugins.stores.read_claim_store import BatchId

from fakes.memory_store import MemoryStore
from fakes.memory_streams import PROPERTIES, Streams, install
from fakes.stored_job import states_in

LOCATION = "vault://orders"


class VaultStore(MemoryStore):
    """A third party's: the values of a place are kept for as long as the process lives."""

    places = {}  # noqa: RUF012

    def __init__(self, uri, key, properties):
        super().__init__()
        self.place = uri
        self.values = self.places.setdefault(uri, {})


class Vault:
    """The plugin."""

    @rp.hookimpl
    def recordpublisher_register_stores(self, registry):
        registry.add("vault", VaultStore)


@pytest.fixture
def registry(monkeypatch):
    VaultStore.places.clear()
    registry = load_registry([Vault(), Streams()])
    monkeypatch.setattr(by_location, "load_registry", lambda: registry)  # as where the plugin is installed
    return registry


def read_numbers(registry, monkeypatch, count, **more):
    """The next numbers that the job reads."""
    install(monkeypatch, {"a": [b"%d" % number for number in range(20)]})
    properties = {**PROPERTIES, "flink.state.uri": LOCATION, "flink.stream.initpos": "TRIM_HORIZON", **more}

    async def run():
        sink = rp.MemorySink()
        async with rp.DataFetcher("orders", properties, sink=sink, registry=registry) as fetcher:
            await fetcher.run_bounded(max_records=count, max_time=60)
        return [int(record.data) for record in sink.records]

    return asyncio.run(run())


def test_the_positions_of_a_job_that_runs_alone(registry, monkeypatch):
    assert read_numbers(registry, monkeypatch, 10) == [*range(10)]
    assert read_numbers(registry, monkeypatch, 5) == [*range(10, 15)]
    assert list(asyncio.run(states_in(VaultStore(LOCATION, "", None)))) == ["orders/a"]


def test_the_leases_and_positions_of_a_group(registry, monkeypatch):
    elastic = {"flink.job.workers": "GROUP"}
    assert read_numbers(registry, monkeypatch, 10, **elastic) == [*range(10)]
    table = asyncio.run(GroupStore(VaultStore(LOCATION, "", None)).read_table())
    assert list(table.document.leases) == ["orders/a"]
    assert read_numbers(registry, monkeypatch, 5, **elastic) == [*range(10, 15)]


@pytest.mark.usefixtures("registry")
def test_the_claims_of_a_query():
    claims = read_claim_store_of(LOCATION, rp.Properties(), asyncio.run)
    batch = BatchId("query", 1, "plan")
    claims.write_marker("query", "token")
    assert claims.put_if_absent(batch, "group-0", b"first") == b"first"
    assert claims.put_if_absent(batch, "group-0", b"second") == b"first"
    assert claims.get(batch, "group-0", "token") == b"first"


@pytest.mark.usefixtures("registry")
def test_its_form_is_among_the_valid_ones():
    with pytest.raises(rp.ConfigurationError, match=r"Valid: a folder, .* or vault:\.\.\.") as raised:
        conditional_store_of("pigeon://x", "uri", rp.Properties())
    assert "no state store of that name is installed" in str(raised.value)
