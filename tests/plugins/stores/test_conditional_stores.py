"""The contract of conditional stores, for every back end."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recordpublisher import ConfigurationError, Properties
from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.plugins.stores.by_location import back_end_of, conditional_store_of
from recordpublisher.testing import ConditionalStoreCase, ConditionalStoreContract

from fakes.memory_store import MemoryStore
from random_inputs import inputs

NAMES = ["a/1", "a/2", "a/10", "a2/1", "b/c/1", "b/c/2", "b/c2", "plain"]
"""None is the folder of another one, which S3 allows, and servers that keep objects as files do not."""


class TestEveryStore(ConditionalStoreContract):
    """The contract, for every back end."""

    @pytest.fixture(autouse=True)
    def _location(self, open_store):
        self.open_store = open_store

    @asynccontextmanager
    async def open_case(self):
        yield ConditionalStoreCase(self.open_store)


STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES)),
    st.tuples(st.just("set"), st.sampled_from(NAMES), st.integers(0, 3)),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("list"), st.sampled_from(["", "a", "a/", "a/1", "b/", "b/c/", "c"])),
    st.tuples(st.just("names"), st.sampled_from(["", "a", "b/c/"]), st.sampled_from([None, *NAMES])),
)


@settings(max_examples=inputs(10, 3), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25))
def test_every_sequence_of_calls_does_what_a_dict_would(open_store, steps):
    asyncio.run(_compared(open_store, steps))


@asynccontextmanager
async def emptied(store):
    try:
        await store.delete(*await store.list_names(""))
        yield store
    finally:
        await store.close()


async def _compared(open_store, steps):
    model, of_model, of_store = MemoryStore(), {}, {}
    async with emptied(open_store()) as store:
        for number, step in enumerate(steps):
            value = b"%d" % number  # never the same twice: an ETag is a hash of the value
            assert await _done(store, step, of_store, value) == await _done(model, step, of_model, value)
        assert {n: e.value for n, e in (await store.list("")).items()} == {n: e.value for n, e in model.values.items()}


async def _done(store, step, known, value):
    """The result of one call, without versions; `known`: the versions seen of each name, newest first."""
    kind, name, *more = step
    try:
        if kind == "put":
            known.setdefault(name, []).insert(0, await store.put_if_absent(name, value))
        elif kind == "set" and len(known.get(name, ())) > more[0]:
            known[name].insert(0, await store.compare_and_set(name, value, known[name][more[0]]))
        elif kind == "delete":
            await store.delete(name)
        elif kind == "list":
            return {each: entry.value for each, entry in (await store.list(name)).items()}
        elif kind == "names":
            assert list(await store.list_versions(name)) == await store.list_names(name)
            return await store.list_names(name, *more)
    except ConflictError as error:
        return "conflict", error.current and error.current.value
    return "done"


@pytest.mark.parametrize(
    ("location", "back_end"),
    [
        ("/a/b", "FILE"),
        ("a:b/c", "FILE"),
        ("C:/a", "FILE"),
        ("file:///a", "FILE"),
        ("file:/a", "FILE"),
        ("s3://b/p", "S3"),
        ("s3a://b/p", "S3"),
        ("S3N://b/p", "S3"),
        ("dbfs:/a", "dbfs"),
        ("dynamodb://t/j", "DYNAMODB"),
        ("gs://b/p", "GOOGLE"),
        ("abfs://c@a.dfs.core.windows.net/p", "AZURE"),
        ("abfss://c@a.dfs.core.windows.net/p", "AZURE"),
        ("sqlite:////a.db", "SQL"),
        ("postgresql+psycopg://h/d", "SQL"),
        ("redis://h", "redis"),
    ],
)
def test_the_scheme_decides_the_back_end(location, back_end):
    assert back_end_of(location) == back_end


def test_an_error_about_a_location_says_what_is_valid_and_hides_the_password():
    with pytest.raises(
        ConfigurationError, match=r"a folder, s3://bucket/prefix, dynamodb://table/job, gs://.*, abfss://.* or postg"
    ) as raised:
        conditional_store_of("redis://me:hunter2@host", "uri", Properties())
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("location", ["file:/a%20b/c", "file:///a%20b/c", "file://localhost/a%20b/c", "/a b/c"])
def test_a_folder_may_be_a_uri(location):
    assert conditional_store_of(location, "uri", Properties()).place == "/a b/c"


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("hdfs://host/a", "there is no client of HDFS here. Valid: a folder, s3://bucket/prefix"),
        ("hdfs:/a", "there is no client of HDFS"),
        ("dbfs:/a", "DBFS does not promise that a rename is atomic"),
        ("wasbs://container@account/a", "Valid: a folder, s3://bucket/prefix"),
        ("gs:/bucket/a", "Valid: gs://bucket/prefix"),
        ("abfss://container/a", "Valid: gs://.* or abfss://container@account"),
        ("file://a/b", "'a' would be a host: file: has one slash or three"),
        ("s3:/bucket/a", "Valid: s3://bucket/prefix"),
    ],
)
def test_a_location_that_cannot_be_used_is_refused_with_the_reason(location, reason):
    with pytest.raises(ConfigurationError, match=reason):
        conditional_store_of(location, "uri", Properties({"aws.region": "us-east-1"}))
