"""The contract of conditional stores, for every back end, with lost responses and writers that overlap."""

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recordpublisher import ConfigurationError, Properties
from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.plugins.databases import Database
from recordpublisher.plugins.stores import s3_store
from recordpublisher.plugins.stores.aws_store_calls import AwsStoreCalls, ConditionFailedError
from recordpublisher.plugins.stores.back_ends import back_end_of
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.s3_store import S3Store
from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.testing import ConditionalStoreCase, ConditionalStoreContract

from fakes.memory_store import MemoryStore
from processes.store_writers import WRITES, count, put, put_and_delete, read
from random_inputs import inputs

NAMES = ["a/1", "a/2", "a/10", "a2/1", "b/c/1", "b/c/2", "b/c2", "plain"]
"""None is the folder of another one, which S3 allows, and servers that keep objects as files do not."""


class TestEveryStore(ConditionalStoreContract):
    """The contract, for every back end."""

    deadline = 60.0  # a shared machine may be slow

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
        ("sqlite:////a.db", "SQLITE"),
        ("postgresql+psycopg://h/d", "POSTGRESQL"),
        ("pigeon://h", "pigeon"),
    ],
)
def test_the_scheme_decides_the_back_end(location, back_end):
    assert back_end_of(location).name == back_end


def test_an_error_about_a_location_says_what_is_valid_and_hides_the_password():
    with pytest.raises(
        ConfigurationError,
        match=r"a folder, s3://bucket/prefix, dynamodb://table/job, gs://.*, abfss://.*, postgresql://.*sqlite",
    ) as raised:
        conditional_store_of("pigeon://me:hunter2@host", "uri", Properties())
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("location", ["file:/a%20b/c", "file:///a%20b/c", "file://localhost/a%20b/c", "/a b/c"])
def test_a_folder_may_be_a_uri(location):
    assert conditional_store_of(location, "uri", Properties()).place == "/a b/c"


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("hdfs://host/a", "this library has no client of HDFS. Valid: a folder, s3://bucket/prefix"),
        ("hdfs:/a", "this library has no client of HDFS"),
        ("dbfs:/a", "DBFS does not promise that a rename is atomic"),
        ("wasbs://container@account/a", "Valid: a folder, s3://bucket/prefix"),
        ("gs:/bucket/a", "Valid: gs://bucket/prefix"),
        ("abfss://container/a", "Valid: gs://.* or abfss://container@account"),
        ("file://a/b", "'a' would be a host; write file: with one slash or three"),
        ("s3:/bucket/a", "Valid: s3://bucket/prefix"),
    ],
)
def test_a_location_that_cannot_be_used_is_refused_with_the_reason(location, reason):
    with pytest.raises(ConfigurationError, match=reason):
        conditional_store_of(location, "uri", Properties({"aws.region": "us-east-1"}))


SENT_WRITES = ("PutObject", "UpdateItem")


@pytest.fixture
def every_write_is_sent_twice(monkeypatch):
    """As the SDK and `Database.transaction` do when the first response is lost."""
    call, transaction = AwsStoreCalls.call, Database.transaction

    async def call_twice(self, api, parse, **parameters):
        response = await call(self, api, parse, **parameters)
        return await call(self, api, parse, **parameters) if api in SENT_WRITES else response

    async def transaction_twice(self, work):
        await transaction(self, work)
        return await transaction(self, work)

    monkeypatch.setattr(AwsStoreCalls, "call", call_twice)
    monkeypatch.setattr(Database, "transaction", transaction_twice)


@pytest.mark.usefixtures("every_write_is_sent_twice")
async def test_a_write_that_is_sent_twice_is_made_once(open_store):
    store, other = open_store(), open_store()
    first = await store.put_if_absent("a/1", b"same")
    with pytest.raises(ConflictError):
        await other.put_if_absent("a/1", b"same")  # an equal value may be that of another writer

    second = await store.compare_and_set("a/1", b"2", first)
    with pytest.raises(ConflictError):
        await other.compare_and_set("a/1", b"2", first)

    found = await store.get("a/1")
    assert (found.value, found.version) == (b"2", second)
    await store.close()
    await other.close()


async def test_s3_a_refused_write_is_retried_when_nothing_has_changed(aws, tmp_path, monkeypatch):
    """S3 returns 409 during a concurrent write, which may fail afterwards."""
    call, refusals = AwsStoreCalls.call, [1, 2]

    async def refuse_at_first(self, api, parse, **parameters):
        if api == "PutObject" and refusals:
            refusals.pop()
            raise ConditionFailedError("ConditionalRequestConflict")
        return await call(self, api, parse, **parameters)

    monkeypatch.setattr(AwsStoreCalls, "call", refuse_at_first)
    store = S3Store(f"s3://bucket/{tmp_path.name}", "uri", aws)
    version = await store.put_if_absent("a/1", b"1")
    refusals += [1]
    await store.compare_and_set("a/1", b"2", version)
    assert (await store.get("a/1")).value == b"2"
    await store.close()


async def test_s3_writes_that_are_refused_as_long_as_nothing_changes_may_be_tried_later(aws, tmp_path, monkeypatch):
    """A job outlasts it by its retries for stores: nobody else has written."""
    call = AwsStoreCalls.call

    async def refuse(self, api, parse, **parameters):
        if api == "PutObject":
            raise ConditionFailedError("ConditionalRequestConflict")
        return await call(self, api, parse, **parameters)

    async def no_pause(attempt):
        """The real one waits for seconds."""

    monkeypatch.setattr(AwsStoreCalls, "call", refuse)
    monkeypatch.setattr(s3_store, "pause_after_conflict", no_pause)
    store = S3Store(f"s3://bucket/{tmp_path.name}", "uri", aws)
    with pytest.raises(StoreUnavailableError, match="each of 10 attempts collided with a write"):
        await store.put_if_absent("a/1", b"1")
    await store.close()


LOCATIONS = {"folder": "{folder}/values", "sqlite": "sqlite:///{folder}/values.db", "postgresql": ""}
WRITERS = 3


@pytest.fixture(params=LOCATIONS)
def location(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql"), tmp_path.name
    return LOCATIONS[request.param].format(folder=tmp_path), "job"


@pytest.fixture
def threads():
    with ThreadPoolExecutor(WRITERS) as made:
        yield made


@pytest.fixture
def processes():
    with ProcessPoolExecutor(WRITERS, mp_context=multiprocessing.get_context("forkserver")) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("pool_name", ["threads", "processes"])
def test_no_increment_of_a_shared_counter_is_lost(request, location, pool_name):
    pool = request.getfixturevalue(pool_name)
    conflicts = [future.result() for future in [pool.submit(count, *location, WRITERS) for _ in range(WRITERS)]]
    assert read(*location)["a/counter"] == b"%d" % (WRITERS * WRITES)
    assert sum(conflicts) >= WRITERS - 1


@pytest.mark.slow
def test_every_name_has_one_first_writer(location, threads):
    writers = [b"%d" % number for number in range(WRITERS)]
    won = [future.result() for future in [threads.submit(put, *location, mine) for mine in writers]]
    assert sorted(number for numbers in won for number in numbers) == list(range(WRITES))
    for mine, numbers in zip(writers, won, strict=True):
        assert all(read(*location)[f"a/{number}/name"] == mine for number in numbers)


@pytest.mark.slow
def test_concurrent_deletes_and_writes_raise_only_conflicts(location, threads):
    writers = [b"writer %d " % number for number in range(WRITERS)]
    for future in [threads.submit(put_and_delete, *location, mine) for mine in writers]:
        future.result()
    assert read(*location) == {}
