"""A location selects a store, a plugin's too; it is used whole or refused, and its credentials are never shown (C3)."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.sinks.tables.table_location import TableLocation
from recordpublisher.plugins.stores import by_location
from recordpublisher.plugins.stores.back_ends import FOLDER, back_end_of
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.durable_files import path_of
from recordpublisher.plugins.stores.spark_read_claims import BatchId, read_claim_store_of
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis.endpoints import endpoint_of
from recordpublisher.publishers.properties.properties import Properties

from fakes.memory_store import MemoryStore
from fakes.memory_streams import PROPERTIES, Streams, install
from fakes.stored_job import states_in

IN_A_REGION = Properties({"aws.region": "eu-west-1"})


@pytest.mark.parametrize(
    "location",
    [
        "s3://me:SECRET@bucket/state",
        "s3a://KEY:SECRET@bucket",
        "s3a://KEY:SEC/SECRET@bucket/state",
        "s3://SECRET@bucket/state",
        "dynamodb://me:SECRET@table/job",
        "gs://me:SECRET@bucket/claims",
        "abfss://container:SECRET@account.dfs.core.windows.net/claims",
        "abfss://container@account.dfs.core.windows.net/claims?sig=SECRET",
        "postgresql://me:SE@SECRET@host/db",
        "postgresql//me:SECRET@host/db",
    ],
)
def test_credentials_where_they_do_not_belong_are_refused_and_not_shown(location):
    with pytest.raises(ConfigurationError) as raised:
        conditional_store_of(location, "flink.state.uri", IN_A_REGION)

    assert "SECRET" not in f"{raised.value!r} {raised.value} {raised.value.__cause__}"


def test_an_endpoint_has_no_credentials():
    with pytest.raises(ConfigurationError) as raised:
        endpoint_of(Properties({"aws.endpoint": "http://me:SECRET@localhost:4567"}))

    assert "SECRET" not in str(raised.value)


GIVEN = rp.Properties({"aws.region": "eu-west-1"})
CUT = ["dynamodb://table/orders#eu", "dynamodb://table/orders?eu", "s3://bucket/p#eu", "s3://bucket/p?eu"]
CUT += ["gs://bucket/p#eu", "abfss://c@account.dfs.core.windows.net/p#eu"]


@pytest.mark.parametrize("location", [*CUT, "file:///state#eu", "file:///state?eu"])
def test_a_state_uri_that_would_be_cut_is_refused(location):
    with pytest.raises(rp.ConfigurationError, match=r"flink\.state\.uri.*'[?#]'"):
        conditional_store_of(location, "flink.state.uri", GIVEN)


@pytest.mark.parametrize("location", ["s3://bucket/p#eu", "gs://bucket/p#eu"])
def test_a_tables_location_that_would_be_cut_is_refused(location):
    with pytest.raises(rp.ConfigurationError, match="'#'"):
        TableLocation(location, "flink.sink.delta.path", GIVEN)


def test_a_path_and_an_escaped_uri_are_used_whole():
    assert [path_of("/state#eu", "key"), path_of("file:///state%23eu", "key")] == ["/state#eu"] * 2


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
    with pytest.raises(rp.ConfigurationError, match=r"Valid: a folder, .* or vault://\.\.\.") as raised:
        conditional_store_of("pigeon://x", "uri", rp.Properties())
    assert "no store of that name is installed" in str(raised.value)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("location", ["vault:orders", "VAULT:orders"])
def test_its_location_without_slashes_is_not_taken_for_a_folder(location, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(rp.ConfigurationError, match=r"uri.*'vault:orders'.*vault://\.\.\."):
        conditional_store_of(location.lower(), "uri", rp.Properties())
    with pytest.raises(rp.ConfigurationError):
        conditional_store_of(location, "uri", rp.Properties())


@pytest.mark.parametrize("location", ["FILE:/state", "File:///state"])
def test_the_case_of_a_file_uri_does_not_matter(location):
    assert path_of(location, "key") == "/state"
    assert back_end_of(location) is FOLDER
