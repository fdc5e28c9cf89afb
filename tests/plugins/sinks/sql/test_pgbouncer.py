"""The sql sink and the store behind a real PgBouncer: in transaction mode each transaction may run in another session of the server."""

import asyncio

import psycopg
import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.sql import SqlSink
from recordpublisher.plugins.stores.sql_store import SqlStore

from fakes.batches import batch
from fakes.commits.committing_sink import snapshot_at, started
from servers.postgresql import serve_pgbouncer

pytestmark = pytest.mark.slow
STATE = snapshot_at(2)


@pytest.fixture(scope="module")
def one_session(postgresql):
    """A database of this module's own, through a pooler with one session of the server for all clients."""
    with psycopg.connect(postgresql, autocommit=True) as server:
        server.execute("create database pooled")
    with serve_pgbouncer(postgresql.replace("/postgres?", "/pooled?"), sessions=1) as uri:
        yield uri


@pytest.fixture
async def made():
    sinks = []

    def make(uri, **more):
        given = {"flink.job.name": "job", "flink.sink.sql.uri": uri, **more}
        sinks.append(SqlSink(rp.Properties(given)))
        return sinks[-1]

    yield make
    for sink in sinks:
        await sink.close()


async def test_prepared_statements_of_another_client_in_the_same_session_cost_no_record(one_session, made):
    job = await started(made(one_session, **{"flink.sink.sql.table": "t"}))
    with psycopg.connect(one_session, autocommit=True, prepare_threshold=0) as other:
        for number in range(8):  # psycopg would prepare its statements at the sixth time
            await job.sink.write(batch(b"a", b"b", first=2 * number + 1))
            await job.checkpoint(STATE)
            with other.transaction():
                other.execute(f"select {number}")
        assert other.execute("select count(*) from t", prepare=False).fetchone() == (16,)


async def test_nothing_of_a_transaction_is_left_in_the_session(one_session, made):
    shown = "select current_setting('application_name'), current_setting('idle_in_transaction_session_timeout')"
    with psycopg.connect(one_session, autocommit=True, prepare_threshold=None) as other:
        before = other.execute(shown).fetchone()
        job = await started(made(one_session, **{"flink.sink.sql.table": "t"}))
        await job.sink.write(batch(b"a"))
        await job.checkpoint(STATE)

        assert other.execute(shown).fetchone() == before


async def test_a_store_behind_a_pooler_keeps_what_it_is_given(one_session):
    stores = [SqlStore(one_session, "uri", rp.Properties({"flink.job.name": "job"})) for _ in range(2)]
    version = await stores[0].put_if_absent("entry", b"0")
    for number in range(1, 9):  # by turns in the one session
        version = await stores[number % 2].compare_and_set("entry", b"%d" % number, version)

    assert (await stores[0].get("entry")).value == b"8"
    for store in stores:
        await store.close()


async def test_a_predecessor_suspended_in_its_commit_is_ended_through_the_pooler(postgresql, made):  # S6
    with psycopg.connect(postgresql, autocommit=True) as server:
        server.execute("create database suspended")
    with serve_pgbouncer(postgresql.replace("/postgres?", "/suspended?")) as uri:
        sleeper = await started(made(uri))
        with sleeper.sink._database._engine.connect() as asleep:
            transaction = asleep.begin()
            asleep.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            asleep.exec_driver_sql("SELECT * FROM recordpublisher_commits FOR UPDATE")
            async with asyncio.timeout(60):
                successor = await started(made(uri))
                await successor.sink.write(batch(b"new"))
                await successor.checkpoint(STATE)
            with pytest.raises(Exception, match=r"terminat|closed|invalid|crashed"):
                asleep.exec_driver_sql("SELECT 1")
            transaction.close()


@pytest.mark.parametrize(
    ("mode", "parameter"), [("statement", ""), ("transaction", "&options=-cstatement_timeout%3D5s")]
)
async def test_what_cannot_work_behind_a_pooler_is_refused_with_its_name(postgresql, made, mode, parameter):
    with serve_pgbouncer(postgresql, mode) as uri, pytest.raises(rp.ConfigurationError, match="PgBouncer"):
        await made(uri + parameter).open(rp.SinkContext())
