"""Databases: one thread and one connection, what an error means, and the missing extra."""

import asyncio
import os
import subprocess
import sys
import threading
import traceback

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError, OperationalError

from recordpublisher import ConfigurationError, Properties, RetriesExhaustedError
from recordpublisher.plugins.databases import Database, engine_of, message_of_ended_session

FAST = Properties(max_outage="100ms")


@pytest.fixture
async def database(tmp_path):
    made = Database(f"sqlite:///{tmp_path}/a.db", "uri", FAST)
    yield made
    await made.close()


async def test_work_waits_for_cancelled_work_to_end(database):
    """The thread of a cancelled `asyncio.to_thread` overlaps the next call; on one connection that causes errors or a partial commit."""
    order, is_running, may_end = [], threading.Event(), threading.Event()

    def first():
        order.append("first begins")
        is_running.set()
        may_end.wait(60)
        order.append("first ends")

    cancelled = asyncio.ensure_future(database.in_thread(first))
    await asyncio.to_thread(is_running.wait, 60)
    cancelled.cancel()
    following = asyncio.ensure_future(database.in_thread(lambda: order.append("second")))
    closing = asyncio.ensure_future(database.close())
    await asyncio.sleep(0.05)
    may_end.set()
    await asyncio.gather(following, closing)

    assert cancelled.cancelled()
    assert order == ["first begins", "first ends", "second"]


async def test_a_transaction_that_begins_during_a_close_does_not_wait_for_the_pool(database):
    """It used to wait for 30 s: for the one connection of a pool that the close replaced meanwhile."""
    is_running, may_end = threading.Event(), threading.Event()

    def first(connection):
        is_running.set()
        may_end.wait(60)

    running = asyncio.ensure_future(database.transaction(first))
    await asyncio.to_thread(is_running.wait, 60)
    closing = asyncio.ensure_future(database.close())
    await asyncio.sleep(0.05)
    following = asyncio.ensure_future(database.transaction(lambda connection: connection.scalar(text("SELECT 7"))))
    await asyncio.sleep(0.05)
    may_end.set()

    async with asyncio.timeout(20):
        assert (await asyncio.gather(running, closing, following))[2] == 7


async def test_a_close_that_is_cancelled_while_work_runs_still_closes_the_connection(database):
    """It left the session open, with the locks of what it did not end."""
    await database.transaction(lambda connection: None)
    is_running, may_end = threading.Event(), threading.Event()

    def work():
        is_running.set()
        may_end.wait(60)

    running = asyncio.ensure_future(database.in_thread(work))
    await asyncio.to_thread(is_running.wait, 60)
    closing = asyncio.ensure_future(database.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    may_end.set()
    await running

    await asyncio.to_thread(database._disposal.result, 60)
    assert database._engine.pool.checkedin() == 0


async def test_a_file_that_was_cut_is_named(database, tmp_path):
    """The error was that of the driver, with the statement."""

    def fill(connection):
        connection.execute(text("create table t (v text)"))
        connection.execute(text("insert into t values (:v)"), {"v": "x" * 50_000})

    await database.transaction(fill)
    os.truncate(tmp_path / "a.db", 8_192)

    with pytest.raises(ConfigurationError, match=r"a\.db': database disk image is malformed"):
        await database.transaction(lambda connection: connection.scalar(text("select v from t")))


async def test_every_transaction_runs_in_one_thread(database):
    idents = [await database.transaction(lambda connection: threading.get_ident()) for _ in range(3)]
    assert len(set(idents)) == 1
    assert idents[0] != threading.get_ident()


async def test_an_error_of_the_work_rolls_back(database):
    def fail(connection):
        connection.execute(text("create table t (n int not null)"))
        connection.execute(text("insert into t values (null)"))

    with pytest.raises(IntegrityError):
        await database.transaction(fail)
    assert (
        await database.transaction(lambda connection: connection.scalar(text("select count(*) from sqlite_master")))
        == 0
    )


AWAY = "postgresql://me:hunter2@127.0.0.1:1/shop"


async def failure_of(uri, **more):
    away = Database(uri, "flink.sink.sql.uri", FAST.merged(more))
    with pytest.raises((RetriesExhaustedError, ConfigurationError)) as raised:
        await away.transaction(lambda connection: connection.execute(text("create table t (n int)")))
    await away.close()
    return raised.value


async def test_a_database_that_is_away_is_named_with_what_outlasts_it():  # C3
    message = str(await failure_of(AWAY))

    place = "postgresql://me:******@127.0.0.1:1/shop"
    assert message.startswith(f"a transaction in {place} failed ")
    assert f"ms (flink.job.max.outage decides); the last error: a transaction in {place} failed with " in message
    assert message.count("Connection refused") == 1


async def test_a_database_that_is_asked_once_was_not_tried_again(caplog):
    assert "in a row" not in str(await failure_of(AWAY, **{"flink.job.max.outage": 0}))
    assert not caplog.records


async def test_a_host_that_dns_does_not_know_is_tried_a_few_times_and_named():
    error = await failure_of("postgresql://me@nohost.invalid/shop", **{"flink.job.max.outage": "1h"})

    assert "nohost.invalid" in str(error)
    assert str(error).endswith(". Check the host in the URI")


@pytest.mark.parametrize(
    ("answer", "options", "said"),
    [
        (b"N", "?sslmode=require", "does not support SSL"),
        (b"H", "?sslmode=require", "invalid response to SSL negotiation"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "", "SSL negotiation"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "?sslmode=disable", "expected authentication request from server"),
    ],
)
async def test_what_answers_and_is_no_postgresql_or_has_no_tls_is_not_waited_for(answer, options, said, caplog):
    async def answered(reader, writer):
        await reader.read(100)
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(answered, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failure_of(f"postgresql://me@127.0.0.1:{port}/shop{options}")

    assert isinstance(error, ConfigurationError), error
    assert said in str(error)
    assert not caplog.records


async def test_a_host_that_was_reached_once_is_waited_for_also_while_dns_does_not_know_it(tmp_path):
    tries = []

    def work(connection):
        tries.append(1)
        raise OperationalError("", {}, Exception("failed to resolve host 'db': [Errno -2] Name or service not known"))

    database = Database(f"sqlite:///{tmp_path}/a.db", "flink.sink.sql.uri", Properties(max_outage="3s"))
    with pytest.raises(RetriesExhaustedError, match=r"in a row, for 3 s \(flink.job.max.outage decides\)"):
        await database.transaction(work)
    await database.close()
    assert len(tries) > 4


async def test_a_path_of_sqlite_that_cannot_be_opened_fails_at_once(tmp_path, caplog):
    error = await failure_of(f"sqlite:///{tmp_path}/no/such/folder/a.db")

    assert isinstance(error, ConfigurationError)
    assert f"'flink.sink.sql.uri' is 'sqlite:///{tmp_path}/no/such/folder/a.db': unable to open" in str(error)
    assert not caplog.records


async def test_a_file_of_sqlite_that_is_read_only_fails_at_once(tmp_path, caplog):
    (tmp_path / "a.db").touch()
    error = await failure_of(f"sqlite:///file:{tmp_path}/a.db?mode=ro&uri=true")

    assert isinstance(error, ConfigurationError)
    assert "attempt to write a readonly database" in str(error)
    assert not caplog.records


async def test_a_transaction_waits_for_a_lock(tmp_path, database):
    other = Database(f"sqlite:///{tmp_path}/a.db", "uri", FAST)
    holds, may_end = threading.Event(), threading.Event()

    def hold(connection):
        holds.set()
        may_end.wait(60)

    holding = asyncio.ensure_future(other.transaction(hold))
    await asyncio.to_thread(holds.wait, 60)
    waiting = asyncio.ensure_future(database.transaction(lambda connection: "mine"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    may_end.set()
    assert await waiting == "mine"
    await holding
    await other.close()


@pytest.mark.parametrize(
    "uri",
    ["", "orders.db", "sqlite://", "sqlite:///:memory:", "mysql://me:hunter2@host/db", "nosuch://x", "me:hunter2@host"],
)
def test_another_uri_is_an_error_that_says_what_is_valid(uri):  # C2, C3
    with pytest.raises(ConfigurationError, match="postgresql://user@host/database or sqlite") as raised:
        engine_of(uri, "flink.sink.sql.uri")
    assert "hunter2" not in "".join(traceback.format_exception(raised.value, limit=0))


class OfServerError(Exception):
    sqlstate = "57P01"


@pytest.mark.parametrize(
    "original",
    [
        OfServerError("terminating connection"),
        Exception("server closed the connection. It terminated abnormally before"),
    ],
)
def test_a_session_that_was_ended_is_not_told_as_a_crash_of_the_server(original):
    assert "a later start of this job" in message_of_ended_session(OperationalError("SELECT 1", {}, original))


def test_another_error_keeps_its_words():
    assert message_of_ended_session(OperationalError("SELECT 1", {}, Exception("deadlock detected"))) is None


@pytest.mark.parametrize("module", ["sinks.sql", "stores.sql_store"])
def test_the_missing_extra_is_named(module):
    code = f"import sys; sys.modules['sqlalchemy'] = None; import recordpublisher.plugins.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "SQLite needs only the extra 'sql'" in done.stderr
    assert "ImportError: PostgreSQL needs the extra 'postgresql': pip install" in done.stderr


def test_a_connection_without_a_network_fails_after_a_minute_unless_the_uri_says_otherwise():
    """It used to hang for 15 minutes, or for two hours while it waited for a response (after a suspension, or behind a NAT)."""
    given = {}
    engine = engine_of("postgresql://u@db.example/shop?keepalives_idle=300", "uri")

    @event.listens_for(engine, "do_connect")
    def connect(dialect, record, arguments, parameters):
        given.update(parameters)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        engine.connect()

    assert {name: given[name] for name in given if "keepalives" in name or "timeout" in name} == {
        "connect_timeout": 10,
        "keepalives_idle": "300",
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
    }


@pytest.mark.parametrize(
    "uri", ["postgresql+asyncpg://u:secret@h/shop", "postgresql+psycopg2://u@h/shop", "sqlite+aiosqlite:///x.db"]
)
def test_a_uri_with_the_driver_of_an_application_is_refused_with_what_to_write(uri):
    driver = uri.partition("+")[2].partition(":")[0]
    with pytest.raises(
        ConfigurationError, match=rf"the driver {driver} is not used here: leave out \+{driver}"
    ) as raised:
        engine_of(uri, "flink.state.uri")
    assert "secret" not in str(raised.value)
